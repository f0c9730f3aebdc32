//! The part of the routing table that a socket shows.

use std::net::IpAddr;

/// Which half of the daemon a socket shows: BIRD 1 is two daemons, one a family, with a socket
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All neighbors, and the routes of both families, as BIRD 2 and 3 have them.
    Both,
    /// Neighbors with IPv4 addresses, and IPv4 routes.
    Ipv4,
    /// Neighbors with IPv6 addresses, and IPv6 routes.
    Ipv6,
}

impl View {
    /// Returns whether a neighbor with this address is shown.
    pub(super) const fn has(self, address: IpAddr) -> bool {
        match self {
            Self::Both => true,
            Self::Ipv4 => address.is_ipv4(),
            Self::Ipv6 => address.is_ipv6(),
        }
    }

    /// Returns the families with shown routes.
    pub(super) const fn families(self) -> &'static [&'static str] {
        match self {
            Self::Both => &["ipv4-unicast", "ipv6-unicast"],
            Self::Ipv4 => &["ipv4-unicast"],
            Self::Ipv6 => &["ipv6-unicast"],
        }
    }
}
