//! Assigns interfaces to the host endpoints of this host, and computes their part of the packet filter.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_model::{Kind, ResourceKey};

use super::automatic::{Automatic, key_of};
use super::calculator::Calculator;
use super::passage::Passages;
use super::policy::{Member, Stage};
use super::read;
use super::types::{AppliesTo, HostEndpoint, Problem};
use crate::render::{Direction, HostInterface, HostRules, Part, Passage, host_part};

impl Calculator {
    /// Returns whether a host endpoint of this host may apply.
    pub(crate) fn has_host_endpoints(&self) -> bool {
        !self.hosts.endpoints.is_empty()
    }

    /// Records a host endpoint of any host.
    pub(super) fn host_endpoint(
        &mut self,
        key: &str,
        resource: &ResourceKey,
        value: Option<&[u8]>,
    ) -> Result<(), Problem> {
        let read = value.map(|octets| read::host_endpoint(key, resource, octets, &self.hostname));
        let Some((endpoint, member, problem)) = read.transpose()? else {
            if self.hosts.stored.remove(key) {
                self.take_automatic(key);
            }
            return Ok(());
        };
        self.hosts.stored.insert(key.to_owned());
        self.put_host(key, endpoint, Some(member));
        problem.map_or(Ok(()), Err)
    }

    /// Records the automatic host endpoint of a node, or that it has none. A stored one of its name has
    /// precedence.
    pub(super) fn put_automatic(&mut self, node: &str, automatic: Option<Automatic>) {
        let key = key_of(node);
        match automatic {
            Some(automatic) => self.hosts.automatic.insert(key.clone(), automatic),
            None => self.hosts.automatic.remove(&key),
        };
        if !self.hosts.stored.contains(&key) {
            self.take_automatic(&key);
        }
    }

    /// Applies the automatic host endpoint with a key, if there is one.
    pub(super) fn take_automatic(&mut self, key: &str) {
        let automatic = self.hosts.automatic.get(key).cloned();
        let (endpoint, member) = match automatic {
            Some(Automatic { endpoint, member }) => (endpoint, Some(member)),
            None => (None, None),
        };
        self.put_host(key, endpoint, member);
    }

    /// Returns the host endpoints of this host: each name, and whether it is automatic.
    pub(crate) fn host_endpoints(&self) -> impl Iterator<Item = (&str, bool)> {
        let prefix = Kind::HostEndpoint.prefix();
        self.hosts.endpoints.keys().map(move |key| {
            let name = key.get(prefix.len()..).unwrap_or(key);
            (name, !self.hosts.stored.contains(key))
        })
    }

    /// Puts a host endpoint, or removes it.
    pub(super) fn put_host(
        &mut self,
        key: &str,
        endpoint: Option<HostEndpoint>,
        member: Option<Member>,
    ) {
        if self.hosts.endpoints.get(key) != endpoint.as_ref() {
            match endpoint {
                Some(endpoint) => self.hosts.endpoints.insert(key.to_owned(), endpoint),
                None => self.hosts.endpoints.remove(key),
            };
            self.news.hosts = true;
        }
        self.index.put_member(key, member);
    }

    /// Records the addresses of an interface of this host, or that it does not exist.
    pub(crate) fn host_interface(&mut self, name: &str, addresses: Option<BTreeSet<IpAddr>>) {
        let interfaces = &mut self.hosts.interfaces;
        if interfaces.get(name) == addresses.as_ref() {
            return;
        }
        match addresses {
            Some(addresses) => interfaces.insert(name.to_owned(), addresses),
            None => interfaces.remove(name),
        };
        let may_have_one = !self.desired.settings.is_workload_interface(name);
        self.news.hosts |= !self.hosts.endpoints.is_empty() && may_have_one;
    }

    /// Computes the part of the packet filter of all host endpoints again.
    pub(super) fn put_hosts(&mut self) {
        let (part, problems) = self.part_of_hosts();
        let old = std::mem::replace(&mut self.hosts.part, part);
        self.desired.rules.remove(&old);
        self.desired.rules.add(&self.hosts.part);
        let old = std::mem::replace(&mut self.hosts.problems, problems);
        let all = &mut self.desired.problems;
        self.assignments
            .count_problems(&old, &self.hosts.problems, all);
    }

    fn part_of_hosts(&self) -> (Part, BTreeSet<Problem>) {
        let (assigned, mut problems) = self.assigned_interfaces();
        if assigned.is_empty() {
            return (Part::default(), problems);
        }
        let settings = &self.desired.settings;
        let (mut chains, mut sets) = (BTreeMap::new(), BTreeMap::new());
        let mut all = BTreeMap::new();
        for (interface, (key, endpoint)) in assigned {
            let mut passages = Passages::new(self, key);
            let rules = HostRules {
                to_host: passages.passage(&endpoint.profiles, Direction::Ingress),
                from_host: passages.passage(&endpoint.profiles, Direction::Egress),
                forward_in: passages.of_policies(Direction::Ingress, Stage::Forward),
                forward_out: passages.of_policies(Direction::Egress, Stage::Forward),
                untranslated: passages.of_policies(Direction::Ingress, Stage::Untranslated),
                untracked: untracked(&mut passages, &interface),
                takes_invalid: settings.takes_invalid,
                denial: settings.denial,
                flows: self.desired.flows,
            };
            all.insert(interface, rules);
            chains.extend(passages.part.chains);
            sets.extend(passages.part.sets);
            problems.extend(passages.problems);
        }
        let excluded = self.excluded_interfaces();
        let mut part = host_part(&self.frame(), &settings.failsafe, &all, &excluded);
        part.chains.extend(chains);
        part.sets.extend(sets);
        (part, problems)
    }

    /// Returns the interfaces that `interfaceExclude` names, and those that it matches.
    fn excluded_interfaces(&self) -> BTreeSet<String> {
        let settings = &self.desired.settings;
        let named = settings.excluded.names();
        let held = self.hosts.interfaces.keys().map(String::as_str);
        let held = held.filter(|name| settings.excluded.has(name));
        let all = named.chain(held);
        let all = all.filter(|name| !settings.is_workload_interface(name));
        all.map(str::to_owned).collect()
    }

    /// Returns the host endpoint of each interface, and the problems of the others. Of several for
    /// one interface, the first in the order of their names gets it, as in Calico.
    fn assigned_interfaces(&self) -> (Assigned<'_>, BTreeSet<Problem>) {
        let mut assigned = Assigned::new();
        let mut problems = BTreeSet::new();
        for (key, endpoint) in &self.hosts.endpoints {
            let (interfaces, fault) = self.interfaces_of(endpoint);
            if let Some((field, reason)) = fault {
                problems.insert(Problem::new(key, field, reason));
            }
            for interface in interfaces {
                match assigned.entry(interface) {
                    Entry::Vacant(vacant) => drop(vacant.insert((key, endpoint))),
                    Entry::Occupied(taken) => {
                        let (holder, _) = taken.get();
                        let holder = holder.trim_start_matches(&Kind::HostEndpoint.prefix());
                        let reason = match taken.key() {
                            HostInterface::All => format!("is that of host endpoint {holder}"),
                            HostInterface::Named(name) => {
                                format!("{name} is the interface of host endpoint {holder}")
                            }
                        };
                        problems.insert(Problem::new(key, "spec.interfaceName", reason));
                    }
                }
            }
        }
        (assigned, problems)
    }

    /// Returns the interfaces of a host endpoint, and a problem of them: the field, and why.
    fn interfaces_of(
        &self,
        endpoint: &HostEndpoint,
    ) -> (Vec<HostInterface>, Option<(&'static str, String)>) {
        let at_name = "spec.interfaceName";
        let is_workload = |name: &str| self.desired.settings.is_workload_interface(name);
        let is_excluded = |name: &str| self.desired.settings.excluded.has(name);
        let interfaces = &self.hosts.interfaces;
        let named = |name: &String| HostInterface::Named(name.clone());
        match &endpoint.applies_to {
            AppliesTo::All => (vec![HostInterface::All], None),
            AppliesTo::Named(name) if is_workload(name) => {
                let reason = format!("{name} is a workload interface: no host endpoint applies");
                (Vec::new(), Some((at_name, reason)))
            }
            AppliesTo::Named(name) if is_excluded(name) => {
                let reason = format!("{name} is in interfaceExclude: no host endpoint applies");
                (Vec::new(), Some((at_name, reason)))
            }
            AppliesTo::Named(name) => {
                let is_missing = !interfaces.is_empty() && !interfaces.contains_key(name);
                let fault = is_missing.then(|| {
                    let reason = format!("{name} does not exist; its rules wait for it");
                    (at_name, reason)
                });
                (vec![named(name)], fault)
            }
            AppliesTo::Holders(addresses) => {
                let holds = |(name, held): &(&String, &BTreeSet<IpAddr>)| {
                    !is_workload(name)
                        && !is_excluded(name)
                        && addresses.iter().any(|address| held.contains(address))
                };
                let found = interfaces.iter().filter(holds);
                let found: Vec<HostInterface> = found.map(|(name, _)| named(name)).collect();
                let fault = found.is_empty().then(|| {
                    let reason = match addresses.is_empty() {
                        true => "interfaceName and expectedIPs are missing",
                        false => "no interface of this host has one of these addresses",
                    };
                    ("spec.expectedIPs", reason.to_owned())
                });
                (found, fault)
            }
        }
    }
}

/// Returns the passages of packets that connection tracking leaves out. As in Calico, a host endpoint for
/// all interfaces has none: it would also leave out packets of workloads.
fn untracked(passages: &mut Passages<'_>, interface: &HostInterface) -> [Passage; 2] {
    let both = [Direction::Ingress, Direction::Egress];
    let found = both.map(|direction| passages.of_policies(direction, Stage::Untracked));
    if *interface != HostInterface::All || found.iter().all(|one| one.through.is_empty()) {
        return found;
    }
    let reason = "policies with doNotTrack have no effect on a host endpoint for all interfaces";
    passages.problem("spec.interfaceName", reason);
    found.map(|passage| Passage {
        through: Vec::new(),
        ..passage
    })
}

/// Interfaces, each with the key of its host endpoint and this endpoint.
type Assigned<'h> = BTreeMap<HostInterface, (&'h String, &'h HostEndpoint)>;
