//! What a fabric has in the store before its workloads: nodes and pools, in Calico's keys.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use datastore::resources::Resources;
use datastore::{EtcdOptions, EtcdStore, LeaseId, Store};
use ipnet::IpNet;
use lab::fabric::MachinePlan;
use model::{
    AsNumber, IpPoolSpec, Network, NodeBgp, NodeSpec, Resource, Spec, rfc3339_utc, uid_from_random,
};

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

    /// Writes the pools that workloads' addresses are from.
    pub(super) async fn put_pools(&mut self, nets: &[IpNet]) -> Result<()> {
        for net in nets {
            let name = match net {
                IpNet::V4(_) => "workloads-ipv4",
                IpNet::V6(_) => "workloads-ipv6",
            };
            let spec = IpPoolSpec {
                cidr: Some(Network(*net)),
                ..IpPoolSpec::default()
            };
            let (key, value) = encode(Resource::new(name, spec))?;
            self.store
                .put(key.into(), value.into(), LeaseId::NONE)
                .await?;
        }
        Ok(())
    }
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
