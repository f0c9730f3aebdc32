//! The steps of a turn.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fib_sync::{Instant, Owner, Route, RouteKey};
use tracing::{info, warn};

use super::core::{Agent, GRACE_OVER};
use super::host::Host;
use super::interface::{LOWEST, Setup, is_up};
use super::retry::Retry;
use crate::apply::{Checked, Neighbour};
use crate::calc::Endpoint;
use crate::limits::{INTERFACE_REFRESH, PREPARATIONS_PER_WRITE_MAX, ROUTE_GRACE, RULES_CHECK};
use crate::render::{Frame, Key, RuleInputs, Touched, floating, render, source};

impl Agent {
    /// Before anything is known of endpoints: if an earlier run left no rules, nothing passes; if
    /// it did, they stay in force.
    pub(super) fn guard(&mut self, now: Instant, host: &mut dyn Host) {
        if self.guarded || !self.rules_written.is_due(now) {
            return;
        }
        // Tunnels to the host are not asked about: no node is known yet, and the way to the store may
        // be a tunnel.
        let inputs = RuleInputs {
            frame: Frame {
                interface_prefixes: self.calculator.settings().interface_prefixes,
                ..Frame::default()
            },
            ..RuleInputs::default()
        };
        let closed = render(&inputs);
        let everything = Touched::between(&closed, &closed);
        let outcome = match host.rules_present() {
            Ok(true) => {
                self.inherited = true;
                Ok(())
            }
            Ok(false) => host.write_rules(&closed, &everything),
            Err(failed) => Err(failed),
        };
        self.guarded = outcome.is_ok();
        if let Some(reason) = self.rules_written.note(now, outcome) {
            warn!(reason, "no packet filter yet");
        }
    }

    /// Addresses whose connections are forgotten are given to who has them now.
    pub(super) fn release(&mut self, host: &mut dyn Host) {
        for address in host.take_forgotten() {
            self.resting.remove(&address);
            let holder = self.calculator.desired().routes.get(&address);
            self.due.extend(holder.cloned());
        }
    }

    /// Takes away at once what is not wanted any more on an interface.
    pub(super) fn withdraw(&mut self, name: &str, host: &mut dyn Host) {
        let desired = self.calculator.desired();
        let link = self.links.named(name);
        let up = link.filter(|link| is_up(link)).map(|link| link.index);
        for (address, index) in self.routed_on(name) {
            let wanted = desired.routes.get(&address).is_some_and(|on| on == name);
            if wanted && up == Some(index) {
                continue;
            }
            self.routed.remove(&(name.to_owned(), address));
            self.refused_routes.remove(&address);
            self.reconciler.unwant(&self.route_key(address));
        }
        let endpoint = desired.interfaces.get(name);
        let index = link.map(|link| link.index);
        if endpoint.is_none() || self.setups.get(name).map(|setup| setup.index) != index {
            self.setups.remove(name);
        }
        // What an earlier run made is not ours to remove before the store has been read.
        let Some(index) = index.filter(|_| !self.is_provisional()) else {
            return;
        };
        for (address, entry) in self.entries.made_on(index) {
            if endpoint.is_some_and(|endpoint| endpoint.mac_of(address) == Some(entry.mac)) {
                continue;
            }
            self.entries.made.remove(&(index, address));
            if let Err(reason) = host.delete_neighbour(&entry) {
                warn!(%address, %reason, "neighbour entry not removed");
            }
        }
    }

    /// The routes over an interface that were handed to the reconciler.
    fn routed_on(&self, name: &str) -> Vec<(IpAddr, u32)> {
        let routed = self.routed.range((name.to_owned(), LOWEST)..);
        let routed = routed.take_while(|((on, _), _)| on == name);
        routed
            .map(|((_, address), index)| (*address, *index))
            .collect()
    }

    /// Returns whether it was tried.
    pub(super) fn write_rules(&mut self, now: Instant, host: &mut dyn Host) -> bool {
        if self.keeps_rules() {
            return false;
        }
        let later = self.unwritten.withhold(self.resting_sources());
        if self.unwritten.is_more_than(&later) && self.rules_written.is_done() {
            self.rules_written = Retry::Due;
        }
        let due = self.rules_written.is_due(now);
        let wanted = self.calculator.desired().rules();
        // A store that never rests must not put off what denies.
        let prepares = due && self.preparations < PREPARATIONS_PER_WRITE_MAX;
        self.preparing = prepares && host.prepare_rules(wanted, &self.unwritten);
        if self.preparing {
            self.preparations += 1;
            self.unwritten.merge(later);
            return false;
        }
        if due {
            self.preparations = 0;
            let rules = self.calculator.desired().rules();
            let outcome = host.write_rules(rules, &self.unwritten);
            if outcome.is_ok() {
                self.unwritten = Touched::default();
                self.guarded = true;
                self.rules_check = now + RULES_CHECK;
            }
            if let Some(reason) = self.rules_written.note(now, outcome) {
                warn!(reason, "packet filter not written; it is tried again");
            }
        }
        self.unwritten.merge(later);
        due
    }

    /// Where it is written that addresses may be used which may not be yet.
    fn resting_sources(&self) -> Vec<(&'static str, Key)> {
        let desired = self.calculator.desired();
        let resting = self.resting.iter().filter_map(|address| {
            let name = desired.routes.get(address)?;
            let endpoint = desired.interfaces.get(name)?;
            let own = endpoint.addresses.contains(address);
            own.then(|| source(name, *address))
        });
        resting.collect()
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
            Ok(Checked::Renewed) => {
                info!("somebody wrote rules right after us; ours are written anew, to be sure");
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
            let ipv6 = self.calculator.desired().settings.ipv6;
            let outcome = host.configure(ipv6);
            if let Some(reason) = self.host_configured.note(now, outcome) {
                warn!(reason, "this host does not forward");
            }
        }
    }

    /// Does to an interface what is due, and notes when to look at it again.
    pub(super) fn set_up(&mut self, now: Instant, name: &str, host: &mut dyn Host) {
        let mut again = Vec::new();
        if let Some(endpoint) = self.calculator.desired().interfaces.get(name).cloned() {
            if let Some(index) = self.configure_interface(now, &endpoint, host) {
                self.announce(index, &endpoint);
                again.extend(self.put_entries(now, index, &endpoint, host));
            }
            self.untold.insert(endpoint.id);
        }
        if self.in_sync {
            again.extend(self.discover(now, name));
        }
        again.extend(self.setups.get(name).map(Setup::timeout));
        self.agenda.set(name, again.into_iter().min());
    }

    /// Returns the interface's index once it is configured.
    fn configure_interface(
        &mut self,
        now: Instant,
        endpoint: &Endpoint,
        host: &mut dyn Host,
    ) -> Option<u32> {
        let name = &endpoint.interface;
        let link = self.links.named(name).filter(|link| is_up(link))?;
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
        setup.configured.is_done().then_some(setup.index)
    }

    /// Routes of an endpoint whose interface and rules are in place.
    fn announce(&mut self, index: u32, endpoint: &Endpoint) {
        let name = &endpoint.interface;
        for address in endpoint.routes() {
            let place = (name.clone(), address);
            if self.routed.get(&place) == Some(&index) {
                continue;
            }
            if self.resting.contains(&address) {
                continue;
            }
            if !self.is_guarded(endpoint, address) {
                self.unguarded.insert(name.clone());
                continue;
            }
            self.routed.insert(place, index);
            self.unsettled.insert(address);
            let route = Route::device(Owner(self.config.route_protocol), index);
            self.reconciler.want(self.route_key(address), route);
        }
    }

    /// Returns when what was refused is tried again.
    fn put_entries(
        &mut self,
        now: Instant,
        index: u32,
        endpoint: &Endpoint,
        host: &mut dyn Host,
    ) -> Option<Instant> {
        let mut refused = BTreeMap::new();
        for address in self.entries.refused_on(index) {
            let key = (index, address);
            refused.extend(self.entries.refused.remove(&key).map(|one| (address, one)));
        }
        let mut again = None;
        for address in &endpoint.addresses {
            let Some(mac) = endpoint.mac else {
                continue;
            };
            let key = (index, *address);
            let entry = Neighbour {
                interface: index,
                address: *address,
                mac,
            };
            if self.entries.made.get(&key) == Some(&entry) {
                continue;
            }
            let mut retry = match refused.remove(address) {
                Some((refused, retry)) if refused == entry => retry,
                _ => Retry::Due,
            };
            if retry.is_due(now)
                && let Some(reason) = retry.note(now, host.put_neighbour(&entry))
            {
                let interface = &endpoint.interface;
                warn!(interface, %address, reason, "no neighbour entry");
            }
            if retry.is_done() {
                self.entries.made.insert(key, entry);
            } else {
                again = again.into_iter().chain(retry.timeout()).min();
                self.entries.refused.insert(key, (entry, retry));
            }
        }
        again
    }

    /// Neighbour entries of an earlier run are taken over; those that nobody wants go.
    pub(super) fn adopt(&mut self, now: Instant, host: &mut dyn Host) {
        if !self.adopted.is_due(now) {
            return;
        }
        let found = host.neighbours();
        let outcome = found.map(|found| {
            for entry in found {
                let link = self.links.at(entry.interface);
                self.due.extend(link.map(|link| link.name.clone()));
                let key = (entry.interface, entry.address);
                self.entries.made.insert(key, entry);
            }
        });
        if let Some(reason) = self.adopted.note(now, outcome) {
            warn!(reason, "neighbour entries cannot be read");
        }
    }

    /// Whether the rules in force let the address be used on its interface.
    fn is_guarded(&self, endpoint: &Endpoint, address: IpAddr) -> bool {
        if self.keeps_rules() {
            // If they hold nothing for it, nothing passes.
            return true;
        }
        let (set, key) = match endpoint.addresses.contains(&address) {
            true => source(&endpoint.interface, address),
            false => (floating(address), Key::Address(address)),
        };
        !self.unwritten.has_element(set, &key)
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
