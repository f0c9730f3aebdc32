//! The verdicts of the stored resources: the objects are converted, and `rule-audit` evaluates the
//! JSON.

use std::collections::BTreeMap;

use calico_kubernetes::{Converted, cluster_network_policy, namespace, network_policy, pod, tiers};
use calico_model::{Resource, Spec as ResourceSpec};
use rule_audit::evaluator::{Fabric, Hook, Spec};
use rule_audit::packet::{Family, Field, Packet, protocol};
use rule_audit::ranges::number;
use rule_audit::space::{Outcome, ProgramId, Space};
use serde_json::{Value, json};

use crate::direct::{Cluster, Direction, Probe};
use crate::mistakes::Mistake;
use crate::world::OUTSIDE;

/// The node of all pods.
const NODE: &str = "n1";

/// The datastore.
pub(crate) type Store = BTreeMap<String, Value>;

/// Converts the objects of a cluster, with a planted mistake.
pub(crate) fn stored(cluster: &Cluster, mistake: Option<&Mistake>) -> Store {
    let mut cluster = cluster.clone();
    if let Some(mistake) = mistake {
        objects(&mut cluster).for_each(|object| mistake.change_object(object));
    }
    let mut store = Store::new();
    for tier in tiers() {
        put(&mut store, &tier);
    }
    for value in &cluster.namespaces {
        put_converted(&mut store, namespace(value));
    }
    for value in &cluster.policies {
        put_converted(&mut store, network_policy(value));
    }
    for value in &cluster.cluster_policies {
        put_converted(&mut store, cluster_network_policy(value));
    }
    for (at, value) in cluster.pods.iter().enumerate() {
        if let Some(found) = pod(value).resource() {
            let endpoint = found.workload_endpoint(NODE, &format!("cali{at}"));
            let endpoint = endpoint.expect("a valid name");
            // Without an address there is no endpoint.
            if !endpoint.spec.ip_networks.is_empty() {
                put(&mut store, &endpoint);
            }
        }
    }
    let set = json!({"metadata": {"labels": {"app": "web", "x.y/role": "db"}},
        "spec": {"nets": [format!("{}/32", OUTSIDE[1])]}});
    let prefix = calico_model::Kind::NetworkSet.prefix();
    store.insert(format!("{prefix}a/set"), set);
    if let Some(mistake) = mistake {
        mistake.change_store(&mut store);
    }
    store
}

fn objects(cluster: &mut Cluster) -> impl Iterator<Item = &mut Value> {
    let policies = cluster
        .policies
        .iter_mut()
        .chain(&mut cluster.cluster_policies);
    policies
        .chain(&mut cluster.namespaces)
        .chain(&mut cluster.pods)
}

fn put_converted<S: ResourceSpec>(store: &mut Store, found: Converted<Resource<S>>) {
    if let Some(resource) = found.resource() {
        put(store, &resource);
    }
}

fn put<S: ResourceSpec>(store: &mut Store, resource: &Resource<S>) {
    let octets = resource.encode().expect("a valid resource");
    let value = serde_json::from_slice(&octets).expect("JSON");
    let key = resource.key().expect("a key").to_string();
    store.insert(key, value);
}

/// The programs of all pods.
pub(crate) struct Verdicts {
    space: Space,
    programs: BTreeMap<(String, bool, Family), ProgramId>,
}

impl Verdicts {
    pub(crate) fn new(store: &Store) -> Self {
        let fabric = Fabric::read(store, NODE, |_| {});
        let mut space = Space::new();
        let mut spec = Spec::new(&fabric);
        let mut programs = BTreeMap::new();
        for endpoint in &fabric.endpoints {
            for (hook, is_ingress) in [(Hook::ForwardTo, true), (Hook::Forward, false)] {
                for family in Family::ALL {
                    let program = spec.program(&mut space, endpoint, hook, family);
                    programs.insert((endpoint.interface.clone(), is_ingress, family), program);
                }
            }
        }
        Self { space, programs }
    }

    /// Returns whether a packet passes; `None` if there is no clear verdict.
    pub(crate) fn allow(&self, subject: usize, direction: Direction, probe: Probe) -> Option<bool> {
        let family = match probe.source.is_ipv4() {
            true => Family::V4,
            false => Family::V6,
        };
        let protocol = match probe.protocol {
            "TCP" => protocol::TCP,
            "UDP" => protocol::UDP,
            _ => protocol::SCTP,
        };
        let packet = Packet::new(family)
            .with(Field::Source, number(probe.source))
            .with(Field::Destination, number(probe.destination))
            .with(Field::Protocol, protocol)
            .with(Field::DestinationPort, probe.port.into());
        let is_ingress = direction == Direction::Ingress;
        let key = (format!("cali{subject}"), is_ingress, family);
        match self.space.run(*self.programs.get(&key)?, &packet).0 {
            Outcome::Accept => Some(true),
            Outcome::Drop => Some(false),
            _ => None,
        }
    }
}
