//! The resources of the datastore that policies depend on.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::endpoints::{Endpoint, PATTERNS, endpoint, host_endpoint};
use super::guard::Control;
use super::members::{Member, Members, member, set_member};
use super::nodes;
use super::policies::{Policy, Tier, policy, tier};
use super::pools::Pools;
use super::rules::{Rule, rules};
use super::settings::Settings;
use super::slices::{SERVICES, services};
use super::stored::{REFLECTORS, Stored};
use super::tunnels::Tunnels;
use super::values::{Labels, labels};

/// Names and values of resources.
type Values<'s> = Vec<(&'s str, Cow<'s, Value>)>;

/// A profile.
#[derive(Clone, Debug, Default)]
pub(super) struct Profile {
    pub(super) ingress: Vec<Rule>,
    pub(super) egress: Vec<Rule>,
    /// Why it cannot be evaluated, if so.
    pub(super) fault: Option<String>,
}

/// The resources of the datastore, for one host.
#[derive(Debug, Default)]
pub struct Fabric {
    /// The endpoints of the host, by key.
    pub endpoints: Vec<Endpoint>,
    /// The host endpoints of the host, by name: the first one for an interface gets it.
    pub hosts: Vec<Endpoint>,
    /// The settings.
    pub settings: Settings,
    /// Resources that could not be read, and the consequence.
    pub faults: Vec<String>,
    pub(super) members: Members,
    pub(super) policies: Vec<Policy>,
    pub(super) tiers: BTreeMap<String, Tier>,
    pub(super) profiles: BTreeMap<String, Profile>,
    pub(super) tunnels: Tunnels,
    pub(super) pools: Pools,
    pub(super) control: Control,
}

impl Fabric {
    /// Reads the stored keys and values, with the endpoints of one host. Keys of other programs are
    /// ignored. `adjust` changes the settings of the datastore to those that Felix has from its file.
    pub fn read(store: &impl Stored, host: &str, adjust: impl FnOnce(&mut Settings)) -> Self {
        let mut fabric = Self::default();
        let mut inherited: BTreeMap<String, Labels> = BTreeMap::new();
        for (name, value) in global(store, "profiles") {
            let own = labels(&value["spec"]["labelsToApply"]);
            inherited.insert(name.to_owned(), own);
            let read = profile(name, &value);
            fabric.profiles.insert(name.to_owned(), read);
        }
        for (name, value) in global(store, "tiers") {
            fabric.tiers.insert(name.to_owned(), tier(&value));
        }
        let nodes: Values<'_> = store.of_kind("nodes").collect();
        fabric.read_settings(store, &nodes, host);
        adjust(&mut fabric.settings);
        let mut members: Vec<Member> = Vec::new();
        fabric.read_hosts(store, &nodes, (host, &inherited), &mut members);
        for (name, value) in store.of_kind("workloadendpoints") {
            let Some((namespace, _)) = name.split_once('/') else {
                continue;
            };
            members.push(member(namespace, &value, &inherited));
            if value["spec"]["node"] == host {
                let read = endpoint(name, namespace, &value, &fabric.settings, &inherited);
                fabric.endpoints.push(read);
            }
        }
        for (name, value) in store.of_kind("networksets") {
            if let Some((namespace, _)) = name.split_once('/') {
                members.push(set_member(Some(namespace), &value, "nets", &inherited));
            }
        }
        for (_, value) in global(store, "globalnetworksets") {
            members.push(set_member(None, &value, "nets", &inherited));
        }
        for (name, value) in store.of_kind("networkpolicies") {
            if let Some((namespace, stored)) = name.split_once('/') {
                let read = policy(Some(namespace), stored, &value);
                fabric.policies.push(read);
            }
        }
        for (name, value) in global(store, "globalnetworkpolicies") {
            fabric.policies.push(policy(None, name, &value));
        }
        let pools: Values<'_> = store.of_kind("ippools").collect();
        let pools = || pools.iter().map(|(_, value)| &**value);
        let nodes = nodes.iter().map(|(_, value)| &**value);
        fabric.pools = Pools::read(pools());
        fabric.tunnels = Tunnels::read(pools(), nodes, &fabric.settings);
        let configurations: Values<'_> = global(store, "bgpconfigurations").collect();
        let peers: Values<'_> = global(store, "bgppeers").collect();
        let peers = peers.iter().map(|(_, value)| &**value);
        let configurations = configurations.iter().map(|(_, value)| &**value);
        let reflectors: Values<'_> = store.below(REFLECTORS.to_owned()).collect();
        let reflectors = reflectors.iter().map(|(_, value)| &**value);
        fabric.control = Control::read(configurations, peers, reflectors);
        fabric.control.extend(&fabric.settings.control);
        for socket in fabric.settings.sockets() {
            fabric.control.close(socket);
        }
        let unread = fabric.control.unread.iter();
        let unread = unread.map(|reason| format!("control ports are not known: {reason}"));
        fabric.faults.extend(unread);
        let slices = store.below(SERVICES.to_owned());
        fabric.members = Members::new(members, services(slices));
        fabric.find_conflicts();
        fabric
    }

    /// Reads the settings of a host: those of the default, of its labels, and of its name.
    fn read_settings(&mut self, store: &impl Stored, nodes: &Values<'_>, host: &str) {
        let all: Values<'_> = store.of_kind("felixconfigurations").collect();
        let all = || all.iter().map(|(name, value)| (*name, &**value));
        if let Some((_, value)) = all().find(|(name, _)| *name == "default") {
            self.settings.apply(value);
        }
        let node = nodes.iter().find(|(name, _)| *name == host);
        let node = node.map_or(&Value::Null, |(_, value)| &**value);
        if let Some(value) = nodes::settings(node, all()) {
            self.settings.apply(value);
        }
        let own = format!("node.{host}");
        if let Some((_, value)) = all().find(|(name, _)| **name == *own) {
            self.settings.apply(value);
        }
    }

    /// Reads the host endpoints: all are members, and those of the host apply to its interfaces.
    fn read_hosts(
        &mut self,
        store: &impl Stored,
        nodes: &Values<'_>,
        (host, inherited): (&str, &BTreeMap<String, Labels>),
        members: &mut Vec<Member>,
    ) {
        let nodes = nodes.iter().map(|(name, value)| (*name, &**value));
        let mut all = nodes::host_endpoints(nodes);
        // A stored one has precedence.
        let stored = store.of_kind("hostendpoints");
        all.extend(stored.map(|(name, value)| (name.to_owned(), value.into_owned())));
        for (name, value) in &all {
            members.push(set_member(None, value, "expectedIPs", inherited));
            if value["spec"]["node"] != host {
                continue;
            }
            let mut read = host_endpoint(name, value, inherited);
            // No host endpoint applies to a workload interface.
            if self.is_workload(&read.interface) {
                continue;
            }
            if self.is_excluded(&read.interface) {
                continue;
            }
            if self.has_patterns() {
                read.fault.get_or_insert_with(|| PATTERNS.to_owned());
            }
            self.hosts.push(read);
        }
    }

    /// Marks endpoints that claim an interface or address of another endpoint: only Felix decides which
    /// of them is first.
    fn find_conflicts(&mut self) {
        let mut users: BTreeMap<String, usize> = BTreeMap::new();
        let claims = |endpoint: &Endpoint| {
            let addresses = endpoint.addresses.iter().map(IpAddr::to_string);
            let floating = endpoint
                .floating
                .iter()
                .map(|(outside, _)| outside.to_string());
            let claims = addresses
                .chain(floating)
                .chain([endpoint.interface.clone()]);
            claims.collect::<Vec<String>>()
        };
        for claim in self.endpoints.iter().flat_map(claims) {
            *users.entry(claim).or_default() += 1;
        }
        for endpoint in &mut self.endpoints {
            let shared = claims(endpoint).into_iter().find(|claim| users[claim] > 1);
            if let Some(claim) = shared {
                endpoint
                    .fault
                    .get_or_insert_with(|| format!("another endpoint has {claim} too"));
            }
        }
    }
}

/// Returns the resources of a kind without namespaces.
fn global<'s>(
    store: &'s impl Stored,
    kind: &str,
) -> impl Iterator<Item = (&'s str, Cow<'s, Value>)> {
    let all = store.of_kind(kind);
    all.filter(|(name, _)| !name.contains('/'))
}

fn profile(name: &str, value: &Value) -> Profile {
    let spec = &value["spec"];
    let place = |direction: &str| format!("profile {name} {direction}");
    let read = |direction: &str| rules(&spec[direction], None, &place(direction));
    let (ingress, egress) = (read("ingress"), read("egress"));
    let is_readable = ingress.is_some() && egress.is_some() && spec.is_object();
    Profile {
        ingress: ingress.unwrap_or_default(),
        egress: egress.unwrap_or_default(),
        fault: (!is_readable && !spec.is_null()).then(|| format!("profile {name} is unreadable")),
    }
}
