//! Workloads with namespaces of their own, which send and receive packets.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Result;
use ipnet::IpNet;
use netns_lab::{Host, VethEnd};

use super::{Endpoint, Ground};

/// The gateway of workloads, for which their node answers.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The interface within a workload.
const INTERFACE: &str = "eth0";

/// The MAC address of the interfaces at nodes.
const HOST_MAC: [u8; 6] = [0xee; 6];

/// A workload of a node.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// Its namespaces.
    pub host: Host,
}

impl Workload {
    /// Returns its address.
    pub const fn address(&self) -> Ipv4Addr {
        self.endpoint.address()
    }

    /// Configures its gateway, for a node that does not answer for it.
    pub async fn resolve_gateway(&self) -> Result<()> {
        let links = self.host.links()?;
        let added = links.add_neighbor(INTERFACE, GATEWAY.into(), HOST_MAC);
        Ok(added.await?)
    }
}

impl Ground {
    /// Makes so many workloads at a node with their interfaces, without endpoints in the datastore yet.
    pub async fn workloads(&mut self, node: usize, count: u32) -> Result<Vec<Workload>> {
        let mut workloads = vec![];
        for number in self.count..self.count + count {
            let machine = self.fabric.node(node)?;
            let endpoint = Endpoint::new(number, &machine.plan.name);
            let host = self.fabric.lab().host(&format!("w{number}")).await?;
            let (name, links) = (endpoint.interface(), host.links()?);
            let outer = VethEnd {
                host: &machine.host,
                name: &name,
                mac: Some(HOST_MAC),
            };
            let inner = VethEnd {
                host: &host,
                name: INTERFACE,
                mac: Some(endpoint.mac()),
            };
            machine.links.add_veth(outer, inner).await?;
            machine.links.up(&name).await?;
            links.up(INTERFACE).await?;
            let own = IpNet::from(IpAddr::V4(endpoint.address()));
            links.add_address(INTERFACE, own).await?;
            let gateway = Some(IpAddr::V4(GATEWAY));
            links
                .add_route(
                    IpNet::new_assert(Ipv4Addr::UNSPECIFIED.into(), 0),
                    gateway,
                    INTERFACE,
                )
                .await?;
            workloads.push(Workload { endpoint, host });
        }
        self.count += count;
        Ok(workloads)
    }
}
