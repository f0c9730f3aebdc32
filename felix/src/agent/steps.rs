//! The steps of a turn.

use std::net::IpAddr;

use fib_sync::{Instant, Owner, Route, RouteKey};
use tracing::{info, warn};

use super::core::{Agent, GRACE_OVER};
use super::host::Host;
use super::interface::{Setup, is_up};
use super::retry::Retry;
use crate::apply::{Checked, Neighbour};
use crate::limits::{INTERFACE_REFRESH, ROUTE_GRACE, RULES_CHECK};
use crate::render::{FLOATING, Key, RuleInputs, SOURCES, render};

impl Agent {
    /// Before anything is known of endpoints: if an earlier run left no rules, nothing passes; if
    /// it did, they stay in force.
    pub(super) fn guard(&mut self, now: Instant, host: &mut dyn Host) {
        if self.guarded || !self.rules_written.is_due(now) {
            return;
        }
        let inputs = RuleInputs {
            interface_prefixes: self.calculator.settings().interface_prefixes,
            ..RuleInputs::default()
        };
        let outcome = match host.rules_present() {
            Ok(true) => {
                self.inherited = true;
                Ok(())
            }
            Ok(false) => host.write_rules(&render(&inputs)),
            Err(failed) => Err(failed),
        };
        self.guarded = outcome.is_ok();
        if let Some(reason) = self.rules_written.note(now, outcome) {
            warn!(reason, "no packet filter yet");
        }
    }

    /// Takes away at once what is not wanted any more.
    pub(super) fn withdraw(&mut self, host: &mut dyn Host) {
        let routed: Vec<(IpAddr, u32)> = self.routed.iter().map(|(a, i)| (*a, *i)).collect();
        for (address, index) in routed {
            let wanted = self.desired.routes.get(&address);
            let link = wanted.and_then(|name| self.links.named(name));
            if link.is_some_and(|link| link.index == index && is_up(link)) {
                continue;
            }
            self.routed.remove(&address);
            self.reconciler.unwant(&self.route_key(address));
        }
        // What an earlier run made is not ours to remove before the store has been read.
        let unwanted: Vec<Neighbour> = self
            .entries
            .made
            .values()
            .filter(|entry| !self.is_provisional() && !self.wants_entry(entry))
            .copied()
            .collect();
        for entry in unwanted {
            self.entries.made.remove(&(entry.interface, entry.address));
            if let Err(reason) = host.delete_neighbour(&entry) {
                warn!(address = %entry.address, %reason, "neighbour entry not removed");
            }
        }
        let (links, desired) = (&self.links, &self.desired);
        self.setups.retain(|name, setup| {
            desired.interfaces.contains_key(name)
                && links
                    .named(name)
                    .is_some_and(|link| link.index == setup.index)
        });
    }

    fn wants_entry(&self, entry: &Neighbour) -> bool {
        let Some(link) = self.links.at(entry.interface) else {
            return false;
        };
        let wanted = self
            .desired
            .neighbours
            .get(&(link.name.clone(), entry.address));
        wanted == Some(&entry.mac)
    }

    pub(super) fn write_rules(&mut self, now: Instant, host: &mut dyn Host) {
        if self.keeps_rules() {
            return;
        }
        if self.rules != self.desired.rules && self.rules_written.is_done() {
            self.rules_written = Retry::Due;
        }
        if self.rules_written.is_due(now) {
            let outcome = host.write_rules(&self.desired.rules);
            if outcome.is_ok() {
                self.rules = self.desired.rules.clone();
                self.guarded = true;
                self.rules_check = now + RULES_CHECK;
            }
            if let Some(reason) = self.rules_written.note(now, outcome) {
                warn!(reason, "packet filter not written; it is tried again");
            }
        }
    }

    /// Whether the rules of an earlier run stay: written anew from what it knew, they might lack
    /// those of an endpoint that came last.
    const fn keeps_rules(&self) -> bool {
        self.is_provisional() && self.inherited
    }

    pub(super) fn check_rules(&mut self, host: &mut dyn Host) {
        match host.check_rules() {
            Ok(Checked::Healed) => {
                self.foreign_edits += 1;
                warn!("somebody changed the packet filter; it is as it should be again");
            }
            Ok(Checked::Intact | Checked::Nothing) => {}
            Err(reason) => warn!(%reason, "packet filter could not be looked at"),
        }
    }

    pub(super) fn configure(&mut self, now: Instant, host: &mut dyn Host) {
        if self.host_refresh <= now {
            self.host_refresh = now + INTERFACE_REFRESH;
            if self.host_configured.is_done() {
                self.host_configured = Retry::Due;
            }
        }
        if self.host_configured.is_due(now) {
            let outcome = host.configure(self.desired.settings.ipv6);
            if let Some(reason) = self.host_configured.note(now, outcome) {
                warn!(reason, "this host does not forward");
            }
        }
        for (name, endpoint) in &self.desired.interfaces {
            let Some(link) = self.links.named(name).filter(|link| is_up(link)) else {
                continue;
            };
            let ipv6 = endpoint.addresses.iter().any(IpAddr::is_ipv6);
            let setup = self.setups.entry(name.clone()).or_insert_with(|| Setup {
                index: link.index,
                configured: Retry::Due,
                fresh: true,
                ipv6,
                refresh: now + INTERFACE_REFRESH,
            });
            if setup.refresh <= now || (ipv6 && !setup.ipv6) {
                setup.refresh = now + INTERFACE_REFRESH;
                setup.ipv6 = ipv6;
                if setup.configured.is_done() {
                    setup.configured = Retry::Due;
                }
            }
            if setup.configured.is_due(now) {
                let outcome = host.configure_interface(link, ipv6);
                if let Some(reason) = setup.configured.note(now, outcome) {
                    warn!(
                        interface = name,
                        reason, "not configured; it is tried again"
                    );
                }
                if setup.configured.is_done() && std::mem::take(&mut setup.fresh) {
                    info!(interface = name, endpoint = %endpoint.id, "configured");
                }
            }
        }
    }

    /// Routes and neighbour entries of endpoints whose interface and rules are in place.
    pub(super) fn announce(&mut self, now: Instant, host: &mut dyn Host) {
        self.adopt(now, host);
        for (address, name) in &self.desired.routes {
            let Some(setup) = self.setups.get(name).filter(|s| s.configured.is_done()) else {
                continue;
            };
            if self.routed.get(address) == Some(&setup.index) || !self.is_guarded(name, *address) {
                continue;
            }
            self.routed.insert(*address, setup.index);
            let route = Route::device(Owner(self.config.route_protocol), setup.index);
            self.reconciler.want(self.route_key(*address), route);
        }
        self.put_entries(now, host);
    }

    fn put_entries(&mut self, now: Instant, host: &mut dyn Host) {
        for ((name, address), mac) in &self.desired.neighbours {
            let Some(setup) = self.setups.get(name).filter(|s| s.configured.is_done()) else {
                continue;
            };
            let key = (setup.index, *address);
            let entry = Neighbour {
                interface: setup.index,
                address: *address,
                mac: *mac,
            };
            if self.entries.made.get(&key) == Some(&entry) {
                continue;
            }
            let mut retry = match self.entries.refused.remove(&key) {
                Some((refused, retry)) if refused == entry => retry,
                _ => Retry::Due,
            };
            if retry.is_due(now)
                && let Some(reason) = retry.note(now, host.put_neighbour(&entry))
            {
                warn!(interface = name, %address, reason, "no neighbour entry");
            }
            match retry.is_done() {
                true => self.entries.made.insert(key, entry).map(drop),
                false => self.entries.refused.insert(key, (entry, retry)).map(drop),
            };
        }
        let desired = &self.desired.neighbours;
        let links = &self.links;
        self.entries.refused.retain(|(index, address), _| {
            let link = links.at(*index);
            link.is_some_and(|link| desired.contains_key(&(link.name.clone(), *address)))
        });
    }

    /// Neighbour entries of an earlier run are taken over; the next turn removes the unwanted.
    fn adopt(&mut self, now: Instant, host: &mut dyn Host) {
        if !self.adopted.is_due(now) {
            return;
        }
        let found = host.neighbours();
        let outcome = found.map(|found| {
            let found = found
                .into_iter()
                .map(|entry| ((entry.interface, entry.address), entry));
            self.entries.made.extend(found);
        });
        if let Some(reason) = self.adopted.note(now, outcome) {
            warn!(reason, "neighbour entries cannot be read");
        }
    }

    /// Whether the rules in force let the address be used on the interface.
    fn is_guarded(&self, name: &str, address: IpAddr) -> bool {
        if self.keeps_rules() {
            // If they hold nothing for it, nothing passes.
            return true;
        }
        let key = match address {
            IpAddr::V4(v4) => Key::InterfaceIpv4(name.to_owned(), v4),
            IpAddr::V6(v6) => Key::InterfaceIpv6(name.to_owned(), v6),
        };
        let outside = Key::Address(address);
        let holds = |key: &Key, sets: &[&str]| {
            let mut sets = sets.iter().filter_map(|name| self.rules.sets.get(*name));
            sets.any(|set| set.elements.contains_key(key))
        };
        holds(&key, &SOURCES) || holds(&outside, &FLOATING)
    }

    pub(super) fn route_key(&self, address: IpAddr) -> RouteKey {
        RouteKey::new(
            self.config.table,
            address.into(),
            self.config.endpoint_metric,
            0,
        )
    }

    /// Some time after the first full look at the store, own routes that nobody wants go. The time
    /// is for interfaces that are still coming up.
    pub(super) fn end_grace(&mut self, now: Instant) {
        let ends = *self.grace.get_or_insert(now + ROUTE_GRACE);
        if ends <= now {
            self.grace = Some(GRACE_OVER);
            self.reconciler.finish_grace();
        }
    }
}
