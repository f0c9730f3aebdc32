//! A fabric's content of the store before its workloads: nodes, pools, and the BGP configuration.

use std::net::SocketAddr;

use anyhow::Result;
use calico_model::{FABRIC_PREFIX, Kind, ResourceKey};
use calico_store::resources::Resources;
use calico_store::{EtcdOptions, EtcdStore, KeyRange, Query};
use netns_lab::fabric::{Bgp, Fabric, MachinePlan, Plan};
use serde_json::{Value, json};

/// A connection to the store.
#[derive(Clone, Debug)]
pub(super) struct Records {
    all: Resources,
}

impl Records {
    /// Connects, and initializes the store.
    pub(super) async fn open(addresses: impl Iterator<Item = SocketAddr>) -> Result<Self> {
        let options = EtcdOptions::new(addresses.map(|address| format!("http://{address}")));
        let all = Resources::new(EtcdStore::connect(&options).await?);
        all.initialize().await?;
        Ok(Self { all })
    }

    /// Writes the resources of a plan.
    pub(super) async fn write(&self, plan: &Plan) -> Result<()> {
        for resource in resources(plan) {
            self.apply(resource).await?;
        }
        Ok(())
    }

    /// Writes a resource.
    pub(super) async fn apply(&self, resource: Value) -> Result<()> {
        self.all.apply(resource).await?;
        Ok(())
    }

    /// Deletes a GlobalNetworkPolicy.
    pub(super) async fn delete_policy(&self, name: &str) -> Result<()> {
        let key = ResourceKey::new(Kind::GlobalNetworkPolicy, None, name)?;
        self.all.delete(&key, None).await?;
        Ok(())
    }

    /// Returns the number of registered reflectors.
    pub(super) async fn registered(&self) -> Result<usize> {
        let mut query = Query::new(KeyRange::prefix(format!("{FABRIC_PREFIX}reflector/")));
        query.keys_only = true;
        Ok(self.all.store().range(query).await?.items.len())
    }
}

fn resources(plan: &Plan) -> Vec<Value> {
    let reflectors = match plan.bgp {
        Bgp::Files => &[][..],
        Bgp::Store => &plan.reflectors,
    };
    let nodes = reflectors.iter().chain(&plan.nodes);
    let nodes = nodes.map(|machine| node(machine, plan.asn));
    let pools = Fabric::workload_nets().into_iter().map(|net| {
        let family = if net.addr().is_ipv4() { "ipv4" } else { "ipv6" };
        json!({"kind": "IPPool", "metadata": {"name": format!("workloads-{family}")},
            "spec": {"cidr": net}})
    });
    let settings = json!({"kind": "BGPConfiguration", "metadata": {"name": "default"},
        "spec": {"asNumber": plan.asn, "nodeToNodeMeshEnabled": plan.shape.mesh}});
    pools.chain([settings]).chain(nodes).collect()
}

fn node(machine: &MachinePlan, asn: u32) -> Value {
    json!({"kind": "Node", "metadata": {"name": machine.name}, "spec": {"bgp": {
        "asNumber": asn, "ipv4Address": machine.net_v4(), "ipv6Address": machine.net_v6()}}})
}

#[cfg(test)]
mod tests {
    use calico_model::encode_strict;
    use netns_lab::fabric::Shape;

    use super::*;

    #[test]
    fn resources_of_a_fabric_are_valid() {
        let plan = |mesh| {
            let shape = Shape {
                nodes: 2,
                reflectors: 1,
                workloads_per_node: 1,
                mesh,
            };
            Plan::new(shape).expect("a plan")
        };
        for (plan, nodes, mesh) in [
            (plan(false), 2, false),
            (plan(false).with_bgp_from_store(), 3, false),
            (plan(true).with_bgp_from_store(), 2, true),
        ] {
            let all = resources(&plan);
            let of = |kind: &str| all.iter().filter(|one| one["kind"] == kind).count();
            assert_eq!((of("Node"), of("IPPool")), (nodes, 2), "{all:?}");
            let settings = all.iter().find(|one| one["kind"] == "BGPConfiguration");
            let settings = settings.expect("there");
            assert_eq!(settings["spec"]["nodeToNodeMeshEnabled"], mesh);
            for resource in all {
                encode_strict(resource.clone()).unwrap_or_else(|e| panic!("{resource}: {e}"));
            }
        }
    }
}
