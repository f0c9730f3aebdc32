//! The resources of the datastore that policies depend on.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::endpoints::{Endpoint, endpoint, host_endpoint};
use super::members::{Member, Members, member, set_member};
use super::nodes;
use super::policies::{Policy, Tier, policy, tier};
use super::pools::Pools;
use super::rules::{Rule, rules};
use super::settings::Settings;
use super::tunnels::Tunnels;
use super::values::{Labels, labels};

/// The prefix of the keys of resources.
const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

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
}

impl Fabric {
    /// Reads the stored keys and values, with the endpoints of one host. Keys of other programs are
    /// ignored. `adjust` changes the settings of the datastore to those that Felix has from its file.
    pub fn read(
        store: &BTreeMap<String, Value>,
        host: &str,
        adjust: impl FnOnce(&mut Settings),
    ) -> Self {
        let mut fabric = Self::default();
        let mut inherited: BTreeMap<String, Labels> = BTreeMap::new();
        for (kind, name, value) in resources(store) {
            match (kind, name.split_once('/')) {
                ("profiles", None) => {
                    let own = labels(&value["spec"]["labelsToApply"]);
                    inherited.insert(name.to_owned(), own);
                    fabric
                        .profiles
                        .insert(name.to_owned(), profile(name, value));
                }
                ("tiers", None) => {
                    fabric.tiers.insert(name.to_owned(), tier(value));
                }
                ("felixconfigurations", None) if name == "default" => {
                    fabric.settings.apply(value);
                }
                _ => {}
            }
        }
        let of_kind = |kind: &'static str| {
            let all = resources(store).filter(move |(other, _, _)| *other == kind);
            all.map(|(_, name, value)| (name, value))
        };
        let node = of_kind("nodes").find(|(name, _)| *name == host);
        let node = node.map_or(&Value::Null, |(_, value)| value);
        if let Some(value) = nodes::settings(node, of_kind("felixconfigurations")) {
            fabric.settings.apply(value);
        }
        let own = format!("node.{host}");
        for (kind, name, value) in resources(store) {
            if kind == "felixconfigurations" && name == own {
                fabric.settings.apply(value);
            }
        }
        adjust(&mut fabric.settings);
        let mut members: Vec<Member> = Vec::new();
        let mut host_endpoints = nodes::host_endpoints(of_kind("nodes"));
        // A stored one has precedence.
        let stored = of_kind("hostendpoints");
        host_endpoints.extend(stored.map(|(name, value)| (name.to_owned(), value.clone())));
        for (name, value) in &host_endpoints {
            members.push(set_member(None, value, "expectedIPs", &inherited));
            if value["spec"]["node"] != host {
                continue;
            }
            let mut read = host_endpoint(name, value, &inherited);
            // No host endpoint applies to a workload interface.
            if fabric.is_workload(&read.interface) {
                continue;
            }
            let excluded = &fabric.settings.excluded;
            if excluded.contains(&read.interface) {
                continue;
            }
            if excluded.iter().any(|part| part.starts_with('/')) {
                let fault = "patterns of interfaceExclude are not evaluated";
                read.fault.get_or_insert_with(|| fault.to_owned());
            }
            fabric.hosts.push(read);
        }
        for (kind, name, value) in resources(store) {
            match (kind, name.split_once('/')) {
                ("workloadendpoints", Some((namespace, _))) => {
                    members.push(member(namespace, value, &inherited));
                    if value["spec"]["node"] == host {
                        let read = endpoint(name, namespace, value, &fabric.settings, &inherited);
                        fabric.endpoints.push(read);
                    }
                }
                ("networksets", Some((namespace, _))) => {
                    members.push(set_member(Some(namespace), value, "nets", &inherited));
                }
                ("globalnetworksets", None) => {
                    members.push(set_member(None, value, "nets", &inherited));
                }
                ("networkpolicies", Some((namespace, stored))) => {
                    fabric.policies.push(policy(Some(namespace), stored, value));
                }
                ("globalnetworkpolicies", None) => {
                    fabric.policies.push(policy(None, name, value));
                }
                _ => {}
            }
        }
        fabric.pools = Pools::read(resources(store));
        fabric.tunnels = Tunnels::read(resources(store), &fabric.settings);
        fabric.members = Members::new(members);
        fabric.find_conflicts();
        fabric
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

/// Returns kind, name and value of each resource.
fn resources(store: &BTreeMap<String, Value>) -> impl Iterator<Item = (&str, &str, &Value)> {
    store.iter().filter_map(|(key, value)| {
        let (kind, name) = key.strip_prefix(PREFIX)?.split_once('/')?;
        Some((kind, name, value))
    })
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
