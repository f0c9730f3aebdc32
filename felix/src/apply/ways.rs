//! The interfaces by which the host reaches addresses, as its routing table decides.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netlink::{Refused, Requests};
use netlink_packet_core::Parseable;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// Netlink protocol of routes and links.
const NETLINK_ROUTE: isize = 0;

/// Looks up routes, and remembers the results.
#[derive(Debug)]
pub(super) struct Ways {
    requests: Requests,
    /// By address; one without a route has no interface.
    found: BTreeMap<IpAddr, Option<String>>,
    /// The names of interfaces by their index.
    names: BTreeMap<u32, Option<String>>,
}

impl Ways {
    /// Opens a socket in the network namespace of the calling thread.
    pub(super) fn open() -> std::io::Result<Self> {
        Ok(Self {
            requests: Requests::open(NETLINK_ROUTE)?,
            found: BTreeMap::new(),
            names: BTreeMap::new(),
        })
    }

    /// Returns the name of the interface of the route to an address: `lo` for an address of the host itself.
    ///
    /// # Errors
    ///
    /// The route or the name of its interface is unknown: the kernel did not answer, or failed.
    pub(super) fn interface(&mut self, address: IpAddr) -> Result<Option<String>, Refused> {
        if let Some(known) = self.found.get(&address) {
            return Ok(known.clone());
        }
        let row = self
            .requests
            .fetch(RouteNetlinkMessage::GetRoute(query(address)));
        let name = match answered(row)?.as_deref().and_then(output) {
            Some(index) => self.name(index)?,
            None => None,
        };
        self.found.insert(address, name.clone());
        Ok(name)
    }

    fn name(&mut self, index: u32) -> Result<Option<String>, Refused> {
        if let Some(known) = self.names.get(&index) {
            return Ok(known.clone());
        }
        let mut message = LinkMessage::default();
        message.header.index = index;
        let row = self.requests.fetch(RouteNetlinkMessage::GetLink(message));
        let name = answered(row)?.as_deref().and_then(link_name);
        self.names.insert(index, name.clone());
        Ok(name)
    }
}

/// Errors by which the kernel reports that no route leads to an address, or that an interface is removed:
/// also those of routes that reject packets (`unreachable`, `prohibit`, `blackhole`).
const ABSENT: [i32; 5] = [
    libc::ENETUNREACH,
    libc::EHOSTUNREACH,
    libc::ENODEV,
    libc::EACCES,
    libc::EINVAL,
];

/// Returns the payload of an answer; `None` if the kernel has no such object.
///
/// # Errors
///
/// The kernel did not answer, or failed for any other reason: the route is unknown.
fn answered(row: Result<Option<netlink::Row>, Refused>) -> Result<Option<Vec<u8>>, Refused> {
    match row {
        Ok(row) => Ok(row.map(|row| row.payload)),
        Err(cause) if ABSENT.contains(&cause.errno) => Ok(None),
        Err(cause) => Err(cause),
    }
}

fn query(address: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    let (family, length, address) = match address {
        IpAddr::V4(v4) => (AddressFamily::Inet, 32, RouteAddress::Inet(v4)),
        IpAddr::V6(v6) => (AddressFamily::Inet6, 128, RouteAddress::Inet6(v6)),
    };
    message.header.address_family = family;
    message.header.destination_prefix_length = length;
    message.attributes = vec![RouteAttribute::Destination(address)];
    message
}

/// Returns the index of the output interface of a route.
fn output(payload: &[u8]) -> Option<u32> {
    let message = RouteMessage::parse(payload).ok()?;
    let mut found = message.attributes.iter();
    found.find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}

fn link_name(payload: &[u8]) -> Option<String> {
    let message = LinkMessage::parse(payload).ok()?;
    message
        .attributes
        .into_iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_route_is_no_route() {
        let row = |errno| answered(Err(Refused::of(errno)));
        for errno in [
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::ENODEV,
            libc::EACCES,
            libc::EINVAL,
        ] {
            assert_eq!(row(errno), Ok(None), "{errno}");
        }
        for errno in [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM, libc::EPERM] {
            assert_eq!(row(errno), Err(Refused::of(errno)));
        }
    }
}
