//! Workload endpoints, as an orchestrator writes them.

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::Result;
use calico_model::{
    DEFAULT_ALLOW_PROFILE, EndpointName, Mac, Network, Resource, WorkloadEndpointSpec,
};
use calico_store::{LeaseId, Store};
use ipnet::IpNet;
use serde_json::Value;

/// An endpoint of a node, by its number.
#[derive(Clone, Debug)]
pub struct Endpoint {
    number: u32,
    node: String,
}

impl Endpoint {
    /// Makes the `number`th endpoint, at this node.
    pub fn new(number: u32, node: &str) -> Self {
        Self {
            number,
            node: node.to_owned(),
        }
    }

    /// Returns its interface at the node.
    pub fn interface(&self) -> String {
        format!("cali{}", self.number)
    }

    /// Returns its first address.
    pub const fn address(&self) -> Ipv4Addr {
        super::address(self.number)
    }

    /// Returns the MAC address of its workload.
    pub const fn mac(&self) -> [u8; 6] {
        let [_, a, b, c] = self.number.to_be_bytes();
        [2, 0x65, 0, a, b, c]
    }

    /// Returns its key and value with labels.
    pub fn labeled(&self, labels: &Value) -> Result<(String, Vec<u8>)> {
        self.changed(|value| value["metadata"]["labels"] = labels.clone())
    }

    /// Returns its key and value after a change of the value.
    pub fn changed(&self, change: impl FnOnce(&mut Value)) -> Result<(String, Vec<u8>)> {
        let (key, value) = self.encode(self.address())?;
        let mut value = serde_json::from_slice(&value)?;
        change(&mut value);
        Ok((key, value.to_string().into_bytes()))
    }

    /// Returns its key and value with this address.
    pub fn encode(&self, address: Ipv4Addr) -> Result<(String, Vec<u8>)> {
        let workload = format!("w{}", self.number);
        let name = EndpointName::new(&self.node, "k8s", &workload, "eth0")?;
        let spec = WorkloadEndpointSpec {
            orchestrator: "k8s".to_owned(),
            node: self.node.clone(),
            pod: workload,
            endpoint: "eth0".to_owned(),
            ip_networks: vec![Network(IpNet::from(std::net::IpAddr::V4(address)))],
            profiles: vec![DEFAULT_ALLOW_PROFILE.to_owned()],
            interface_name: self.interface(),
            mac: Some(Mac(self.mac())),
            ..WorkloadEndpointSpec::default()
        };
        let resource = Resource::namespaced("bench", &name.to_string(), spec);
        Ok((resource.key()?.to_string(), resource.encode()?))
    }
}

/// Writes an endpoint with an address; returns the instant right before the write.
pub async fn write(store: &dyn Store, endpoint: &Endpoint, address: Ipv4Addr) -> Result<Instant> {
    let (key, value) = endpoint.encode(address)?;
    let began = Instant::now();
    store.put(key.into(), value.into(), LeaseId::NONE).await?;
    Ok(began)
}
