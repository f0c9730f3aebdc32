//! Resolves next hops with the kernel's routes, without those of this program.

use core::fmt;
use std::net::IpAddr;

use super::mirror::Mirror;
use crate::route::Hop;

/// The resolution of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The address is reachable.
    Reachable {
        /// Cost: the metric of the route to the address, 0 if it is on a link of this host.
        cost: u32,
        /// Gateways and interfaces, in the form of a route's next hops.
        hops: Vec<Hop>,
    },
    /// The address is unreachable.
    Unreachable(Unreachable),
}

/// Why an address cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreachable {
    /// No route covers it.
    NoRoute,
    /// The route that covers it drops packets.
    Dropped,
    /// The links of the route are down or without carrier.
    LinkDown,
    /// It is an address of this host.
    Own,
    /// It is a link-local address without an interface.
    LinkLocal,
}

impl Resolution {
    /// Returns whether it is reachable.
    pub fn is_reachable(&self) -> bool {
        matches!(self, Self::Reachable { .. })
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRoute => "no route",
            Self::Dropped => "the route there drops packets",
            Self::LinkDown => "the link there is down",
            Self::Own => "an address of this host",
            Self::LinkLocal => "a link-local address without its link",
        })
    }
}

/// Resolves `address` with the routes of `table`.
pub(super) fn resolve(mirror: &Mirror, table: u32, address: IpAddr) -> Resolution {
    if mirror
        .addresses
        .iter()
        .any(|own| own.address.addr() == address)
    {
        return Resolution::Unreachable(Unreachable::Own);
    }
    if matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
        return Resolution::Unreachable(Unreachable::LinkLocal);
    }
    let Some((key, route)) = mirror.route_to(table, address) else {
        return Resolution::Unreachable(Unreachable::NoRoute);
    };
    if !route.kind.forwards() {
        return Resolution::Unreachable(Unreachable::Dropped);
    }
    let running = |hop: &&Hop| {
        hop.interface
            .and_then(|index| mirror.links.get(&index))
            .is_some_and(|link| link.running)
    };
    let connected = route.next_hops.iter().any(|hop| hop.gateway.is_none());
    let hops: Vec<Hop> = route
        .next_hops
        .iter()
        .filter(running)
        .map(|hop| Hop {
            gateway: Some(hop.gateway.unwrap_or(address)),
            ..*hop
        })
        .collect();
    if hops.is_empty() {
        return Resolution::Unreachable(Unreachable::LinkDown);
    }
    Resolution::Reachable {
        cost: if connected { 0 } else { key.metric },
        hops,
    }
}
