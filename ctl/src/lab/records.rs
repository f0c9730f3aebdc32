//! What a fabric has in the store: nodes and workload endpoints, in Calico's keys.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use datastore::resources::Resources;
use datastore::{Delete, EtcdOptions, EtcdStore, KeyRange, LeaseId, Op, Put, Store, Txn};
use lab::fabric::{MachinePlan, WorkloadPlan};
use model::{
    AsNumber, DEFAULT_ALLOW_PROFILE, EndpointName, Mac, Network, NodeBgp, NodeSpec, Resource, Spec,
    WorkloadEndpointSpec, rfc3339_utc, uid_from_random,
};

/// The namespace that the workloads are in.
const NAMESPACE: &str = "lab";
/// Their orchestrator, and their only interface.
const ORCHESTRATOR: &str = "k8s";
const ENDPOINT: &str = "eth0";

/// A connection to the store.
#[derive(Debug)]
pub(super) struct Records {
    store: EtcdStore,
}

impl Records {
    /// Connects, and makes the store ready.
    pub(super) async fn open(addresses: impl Iterator<Item = SocketAddr>) -> Result<Self> {
        let options = EtcdOptions::new(addresses.map(|address| format!("http://{address}")));
        let store = EtcdStore::connect(&options).await?;
        Resources::new(store.clone()).initialize().await?;
        Ok(Self { store })
    }

    /// Writes a node.
    pub(super) async fn put_node(&mut self, node: &MachinePlan, asn: u32) -> Result<()> {
        let bgp = NodeBgp {
            as_number: Some(AsNumber(asn)),
            ipv4_address: Some(Network(node.net_v4())),
            ipv6_address: Some(Network(node.net_v6())),
            ..NodeBgp::default()
        };
        let spec = NodeSpec {
            bgp: Some(bgp),
            ..NodeSpec::default()
        };
        let (key, value) = encode(Resource::new(&node.name, spec))?;
        self.store
            .put(key.into(), value.into(), LeaseId::NONE)
            .await?;
        Ok(())
    }

    /// Writes the endpoint of a workload at a node.
    pub(super) async fn put_endpoint(&mut self, workload: &WorkloadPlan, node: &str) -> Result<()> {
        let (key, value) = encode(endpoint(workload, node)?)?;
        self.store
            .put(key.into(), value.into(), LeaseId::NONE)
            .await?;
        Ok(())
    }

    /// Puts a workload's endpoint at another node, at one revision: its key says where it is.
    pub(super) async fn move_endpoint(
        &mut self,
        workload: &WorkloadPlan,
        from: &str,
        to: &str,
    ) -> Result<()> {
        let old = endpoint(workload, from)?.key()?.to_string();
        let (key, value) = encode(endpoint(workload, to)?)?;
        let delete = Delete {
            range: KeyRange::key(old),
            previous: false,
        };
        let then = vec![Op::Delete(delete), Op::Put(Put::new(key, value))];
        self.store
            .txn(Txn {
                then,
                ..Txn::default()
            })
            .await?;
        Ok(())
    }

    /// Deletes a workload's endpoint.
    pub(super) async fn delete_endpoint(
        &mut self,
        workload: &WorkloadPlan,
        node: &str,
    ) -> Result<()> {
        let key = endpoint(workload, node)?.key()?.to_string();
        self.store.delete(key.into()).await?;
        Ok(())
    }
}

fn endpoint(workload: &WorkloadPlan, node: &str) -> Result<Resource<WorkloadEndpointSpec>> {
    let name = EndpointName::new(node, ORCHESTRATOR, &workload.name, ENDPOINT)?;
    let spec = WorkloadEndpointSpec {
        orchestrator: ORCHESTRATOR.to_owned(),
        node: node.to_owned(),
        pod: workload.name.clone(),
        endpoint: ENDPOINT.to_owned(),
        ip_networks: workload.nets().map(Network).to_vec(),
        profiles: vec![DEFAULT_ALLOW_PROFILE.to_owned()],
        interface_name: workload.host_link(),
        mac: Some(Mac(workload.mac)),
        ..WorkloadEndpointSpec::default()
    };
    Ok(Resource::namespaced(NAMESPACE, &name.to_string(), spec))
}

/// Key and value to store, with what every new resource is given.
fn encode<S: Spec>(mut resource: Resource<S>) -> Result<(String, Vec<u8>)> {
    let mut random = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .context("reading /dev/urandom")?;
    resource.metadata.uid = uid_from_random(random);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    resource.metadata.creation_timestamp = rfc3339_utc(now.as_secs());
    Ok((resource.key()?.to_string(), resource.encode()?))
}

#[cfg(test)]
mod tests {
    use model::Key;

    use super::*;

    #[test]
    fn an_endpoint_is_where_calico_looks_for_it() {
        let workload = WorkloadPlan::new(3);
        let (key, value) = encode(endpoint(&workload, "node2").unwrap()).unwrap();
        let wanted =
            "/calico/resources/v3/projectcalico.org/workloadendpoints/lab/node2-k8s-w3-eth0";
        assert_eq!(key, wanted);
        assert!(matches!(key.parse(), Ok(Key::Resource(_))));
        let read = Resource::<WorkloadEndpointSpec>::parse(&value).unwrap();
        assert_eq!(read.spec.interface_name, "caliw3");
        assert_eq!(read.spec.mac, Some(Mac([2, 0x65, 0, 0, 0, 3])));
        assert_eq!(
            read.metadata.labels["projectcalico.org/orchestrator"],
            "k8s"
        );
        assert_eq!(read.metadata.uid.len(), 36);
    }
}
