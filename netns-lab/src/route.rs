//! The kernel routes of a host, read by dumps.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};

use crate::{Error, Links};

/// The kernel's main routing table (`RT_TABLE_MAIN`).
pub const MAIN_TABLE: u32 = 254;

/// A route as the kernel holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelRoute {
    /// The destination.
    pub net: IpNet,
    /// Routing table.
    pub table: u32,
    /// Priority; lower is preferred.
    pub metric: u32,
    /// The owner of the route (`rtm_protocol`).
    pub protocol: u8,
    /// Whether packets are forwarded (not dropped, local or answered with an error).
    pub unicast: bool,
    /// Next hops, sorted.
    pub hops: Vec<Hop>,
}

/// One next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// The neighbor to send to; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The link, by index.
    pub link: Option<u32>,
}

impl KernelRoute {
    pub(crate) fn read(message: &RouteMessage) -> Option<Self> {
        let header = &message.header;
        let mut net = match header.address_family {
            AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => return None,
        };
        let (mut table, mut metric) = (u32::from(header.table), 0);
        let mut single = Hop {
            gateway: None,
            link: None,
        };
        let mut hops = Vec::new();
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(to) => net = address(to)?,
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::Priority(priority) => metric = *priority,
                RouteAttribute::MultiPath(many) => {
                    hops.extend(many.iter().map(|hop| {
                        let gateway = hop.attributes.iter().find_map(gateway);
                        Hop {
                            gateway,
                            link: Some(hop.interface_index),
                        }
                    }));
                }
                RouteAttribute::Oif(index) => single.link = Some(*index),
                other => single.gateway = gateway(other).or(single.gateway),
            }
        }
        if hops.is_empty() && single.link.is_some() {
            hops.push(single);
        }
        hops.sort_unstable();
        Some(Self {
            net: IpNet::new(net, header.destination_prefix_length).ok()?,
            table,
            metric,
            protocol: header.protocol.into(),
            unicast: header.kind == RouteType::Unicast,
            hops,
        })
    }
}

fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(to) => address(to),
        _ => None,
    }
}

const fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some(IpAddr::V4(*v4)),
        RouteAddress::Inet6(v6) => Some(IpAddr::V6(*v6)),
        _ => None,
    }
}

impl Links {
    /// Returns all routes of the main table, IPv4 and IPv6, sorted.
    ///
    /// # Errors
    ///
    /// If the kernel rejects the dump.
    pub async fn routes(&self) -> Result<Vec<KernelRoute>, Error> {
        let families = [
            RouteMessageBuilder::<Ipv4Addr>::new().build(),
            RouteMessageBuilder::<Ipv6Addr>::new().build(),
        ];
        let mut routes = Vec::new();
        for family in families {
            let mut dump = Box::pin(self.handle().route().get(family).execute());
            while let Some(message) = dump
                .try_next()
                .await
                .map_err(|e| Error::link("dumping", "routes", e))?
            {
                routes.extend(KernelRoute::read(&message).filter(|r| r.table == MAIN_TABLE));
            }
        }
        routes.sort_unstable();
        Ok(routes)
    }
}
