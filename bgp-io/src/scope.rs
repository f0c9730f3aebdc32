//! The neighbors of a TCP-MD5 key.

use std::fmt;
use std::net::IpAddr;

use bgp_speaker::bgp_proto::Prefix;

/// The neighbors of a key: one neighbor, or all in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct PeerScope {
    /// The neighbor, or the first address of the range.
    pub address: IpAddr,
    /// Its number of significant bits.
    pub prefix_len: u8,
}

impl PeerScope {
    pub(crate) const fn neighbor(address: IpAddr) -> Self {
        let prefix_len = if address.is_ipv4() { 32 } else { 128 };
        Self {
            address,
            prefix_len,
        }
    }

    /// Returns whether it is one neighbor and not a range.
    #[must_use]
    pub fn is_neighbor(&self) -> bool {
        *self == Self::neighbor(self.address)
    }

    /// Returns whether an address is the neighbor or in the range.
    pub(crate) fn covers(&self, address: IpAddr) -> bool {
        Prefix::new(self.address, self.prefix_len).is_some_and(|prefix| prefix.contains(address))
    }

    pub(crate) const fn range(prefix: Prefix) -> Self {
        let (address, prefix_len) = match prefix {
            Prefix::V4(prefix) => (IpAddr::V4(prefix.addr()), prefix.len()),
            Prefix::V6(prefix) => (IpAddr::V6(prefix.addr()), prefix.len()),
        };
        Self {
            address,
            prefix_len,
        }
    }
}

impl fmt::Display for PeerScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            prefix_len,
        } = self;
        if self.is_neighbor() {
            write!(f, "neighbor {address}")
        } else {
            write!(f, "neighbor_range {address}/{prefix_len}")
        }
    }
}
