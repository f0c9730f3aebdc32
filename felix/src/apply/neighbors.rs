//! Neighbor entries of workloads, and the addresses of their gateways.
//!
//! Every workload has the same gateways, whichever host it is on.
//!
//! * IPv4: 169.254.1.1, held by `lo` with scope host. The kernel answers ARP requests for a local
//!   address on any interface; proxy ARP alone would answer only as long as the host has a route
//!   that covers the address, so that the loss of a default route would disconnect even workloads
//!   of the same host. With scope host it is never chosen as a source address.
//! * IPv6: `fe80::1`, held by each workload interface.

use std::net::IpAddr;
use std::time::Instant;

use calico_model::Mac;
use netlink::{Refused, Requests};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE, Parseable};
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use tracing::debug;

use super::solicited::SolicitedGroup;
use crate::agent::{GATEWAY_IPV4, GATEWAY_IPV6, Neighbor};

/// Netlink protocol of routes, links, addresses and neighbors.
const NETLINK_ROUTE: isize = 0;
/// `RTM_NEWNEIGH`.
const NEW_NEIGHBOR: u16 = 28;

/// Prefix length of the IPv6 gateway on the interface.
const GATEWAY_PREFIX: u8 = 64;

/// Index of `lo`, in every network namespace.
const LOOPBACK: u32 = 1;

/// Writes neighbor entries and addresses.
#[derive(Debug)]
pub struct Neighbors {
    requests: Requests,
    protocol: u8,
    /// `None` without IPv6.
    solicited: Option<SolicitedGroup>,
}

impl Neighbors {
    /// Opens a socket in the network namespace of the calling thread. `protocol` marks entries as
    /// Felix's, as with routes.
    ///
    /// # Errors
    ///
    /// The socket cannot be opened.
    pub fn open(protocol: u8) -> std::io::Result<Self> {
        let requests = Requests::open(NETLINK_ROUTE)?;
        let solicited = SolicitedGroup::open(GATEWAY_IPV6).ok();
        Ok(Self {
            requests,
            protocol,
            solicited,
        })
    }

    /// Creates or changes an entry.
    ///
    /// # Errors
    ///
    /// The kernel rejects it; an interface without ARP, or that is down, has no entries.
    pub fn put(&mut self, neighbor: &Neighbor) -> Result<(), Refused> {
        let mut message = entry(neighbor.interface, neighbor.address);
        message.header.state = NeighbourState::Permanent;
        message.attributes.extend([
            NeighbourAttribute::LinkLayerAddress(neighbor.mac.0.into()),
            NeighbourAttribute::Protocol(RouteProtocol::from(self.protocol)),
        ]);
        let message = RouteNetlinkMessage::NewNeighbour(message);
        self.requests.execute(message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Removes an entry; a missing entry is not an error.
    ///
    /// # Errors
    ///
    /// The kernel rejects the request.
    pub fn delete(&mut self, interface: u32, address: IpAddr) -> Result<(), Refused> {
        let message = RouteNetlinkMessage::DelNeighbour(entry(interface, address));
        match self.requests.execute(message, 0) {
            // The entry, or its interface, does not exist any more.
            Err(cause) if matches!(cause.errno, libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Returns all entries that are marked as Felix's.
    ///
    /// # Errors
    ///
    /// The kernel rejects the request.
    pub fn list(&mut self) -> Result<Vec<Neighbor>, Refused> {
        let message = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let rows = self.requests.dump(message)?;
        let ours = RouteProtocol::from(self.protocol);
        Ok(rows
            .iter()
            .filter(|row| row.kind == NEW_NEIGHBOR)
            .filter_map(|row| NeighbourMessage::parse(row.payload.as_slice()).ok())
            .filter_map(|message| own(&message, ours))
            .collect())
    }

    /// Adds the IPv4 gateway's address to `lo`.
    ///
    /// # Errors
    ///
    /// The kernel rejects the request.
    pub(crate) fn put_gateway_ipv4(&mut self) -> Result<(), Refused> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = 32;
        message.header.scope = AddressScope::Host;
        message.header.index = LOOPBACK;
        message.attributes = vec![
            AddressAttribute::Local(GATEWAY_IPV4.into()),
            AddressAttribute::Address(GATEWAY_IPV4.into()),
        ];
        self.put_address(message)
    }

    /// Adds the IPv6 gateway's address to an interface, without duplicate address detection: the
    /// workload must not be able to claim it.
    ///
    /// # Errors
    ///
    /// The kernel rejects the request; IPv6 may be disabled on the interface.
    pub fn put_gateway_ipv6(&mut self, interface: u32) -> Result<(), Refused> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.header.prefix_len = GATEWAY_PREFIX;
        message.header.flags = AddressHeaderFlags::Nodad | AddressHeaderFlags::Permanent;
        message.header.scope = AddressScope::Link;
        message.header.index = interface;
        message.attributes = vec![
            AddressAttribute::Address(GATEWAY_IPV6.into()),
            AddressAttribute::Flags(AddressFlags::Nodad | AddressFlags::Permanent),
        ];
        self.put_address(message)?;
        if let Some(Err(cause)) = self
            .solicited
            .as_mut()
            .map(|group| group.join(interface, Instant::now()))
        {
            debug!(interface, %cause, "the gateway may miss a first solicitation");
        }
        Ok(())
    }

    fn put_address(&mut self, message: AddressMessage) -> Result<(), Refused> {
        let message = RouteNetlinkMessage::NewAddress(message);
        self.requests.execute(message, NLM_F_CREATE | NLM_F_REPLACE)
    }
}

fn entry(interface: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    let (family, destination) = match address {
        IpAddr::V4(v4) => (AddressFamily::Inet, NeighbourAddress::Inet(v4)),
        IpAddr::V6(v6) => (AddressFamily::Inet6, NeighbourAddress::Inet6(v6)),
    };
    message.header.family = family;
    message.header.ifindex = interface;
    message.attributes = vec![NeighbourAttribute::Destination(destination)];
    message
}

fn own(message: &NeighbourMessage, ours: RouteProtocol) -> Option<Neighbor> {
    let (mut address, mut mac, mut marked) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                address = Some((*v4).into())
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                address = Some((*v6).into())
            }
            NeighbourAttribute::LinkLayerAddress(octets) => {
                mac = octets.as_slice().try_into().ok().map(Mac);
            }
            NeighbourAttribute::Protocol(protocol) => marked = *protocol == ours,
            _ => {}
        }
    }
    let interface = message.header.ifindex;
    let neighbor = Neighbor {
        interface,
        address: address?,
        mac: mac?,
    };
    marked.then_some(neighbor)
}
