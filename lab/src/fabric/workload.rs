//! Workloads: a host of their own, linked to a node.

use ipnet::IpNet;

use super::plan::{Place, WorkloadPlan};
use crate::{Error, Host, Links, Pinger, VethEnd};

/// One workload of a fabric.
#[derive(Debug)]
pub struct Workload {
    /// Name and addresses.
    pub plan: WorkloadPlan,
    /// The node it is linked to.
    pub place: Place,
    /// Its namespaces.
    pub host: Host,
    links: Links,
    pinger: Option<Pinger>,
}

impl Workload {
    pub(super) async fn new(
        host: Host,
        plan: WorkloadPlan,
        place: Place,
        node: &Host,
    ) -> Result<Self, Error> {
        let links = host.links()?;
        let mut workload = Self {
            plan,
            place,
            host,
            links,
            pinger: None,
        };
        workload.plug(place, node).await?;
        Ok(workload)
    }

    /// Takes the link away from the node where it is: the workload is off the network.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub async fn unplug(&mut self) -> Result<(), Error> {
        self.pinger = None;
        self.links.delete(INSIDE).await
    }

    /// Links the workload to a node, as an orchestrator does: one end at the node, without any
    /// address or route there (that is Felix's work), the other with the workload's addresses
    /// and Calico's default routes.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    pub async fn plug(&mut self, place: Place, node: &Host) -> Result<(), Error> {
        let outside = self.plan.host_link();
        let ends = (
            VethEnd {
                host: node,
                name: &outside,
                mac: Some(HOST_SIDE_MAC),
            },
            VethEnd {
                host: &self.host,
                name: INSIDE,
                mac: Some(self.plan.mac),
            },
        );
        self.links.add_veth(ends.0, ends.1).await?;
        self.links.up(INSIDE).await?;
        for net in self.plan.nets() {
            self.links.add_address(INSIDE, net).await?;
        }
        node.links()?.up(&outside).await?;
        for (net, gateway) in default_routes() {
            self.links.add_route(net, gateway, INSIDE).await?;
        }
        self.place = place;
        self.pinger = Some(Pinger::open(&self.host, self.plan.v4, self.plan.v6)?);
        Ok(())
    }

    /// Its pinger, while it is plugged in.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] while it is unplugged.
    pub fn pinger(&self) -> Result<&Pinger, Error> {
        self.pinger.as_ref().ok_or_else(|| Error::Unknown {
            kind: "link of",
            name: self.plan.name.clone(),
        })
    }
}

/// The workload's own name for its link.
const INSIDE: &str = "eth0";

/// Every host side has the same MAC address, as with Calico: a workload that moves keeps its
/// gateway's neighbour entry.
const HOST_SIDE_MAC: [u8; 6] = [0xee; 6];

/// A workload reaches all others through its host, which answers for the gateways by proxy ARP
/// and with the link-local address.
fn default_routes() -> [(IpNet, Option<std::net::IpAddr>); 3] {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    let v4_gateway = IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1));
    let v6_gateway = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
    let all_v4 = IpNet::V4(ipnet::Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0));
    let all_v6 = IpNet::V6(ipnet::Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 0));
    [
        (IpNet::from(v4_gateway), None),
        (all_v4, Some(v4_gateway)),
        (all_v6, Some(v6_gateway)),
    ]
}
