//! A stored destination, independent of the message that it came in.

use alloc::boxed::Box;

use bgp_proto::{Ipv4Prefix, Ipv6Prefix, Net};

/// A stored [`Net`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    V4(Ipv4Prefix),
    V6(Ipv6Prefix),
    Opaque(Box<[u8]>),
}

impl Destination {
    pub(crate) fn new(net: Net<'_>) -> Self {
        match net {
            Net::V4(prefix) => Self::V4(prefix),
            Net::V6(prefix) => Self::V6(prefix),
            Net::Opaque(octets) => Self::Opaque(octets.into()),
        }
    }

    pub(crate) fn net(&self) -> Net<'_> {
        match self {
            Self::V4(prefix) => Net::V4(*prefix),
            Self::V6(prefix) => Net::V6(*prefix),
            Self::Opaque(octets) => Net::Opaque(octets),
        }
    }

    /// Returns the octets beside the value itself.
    pub(crate) fn heap_octets(&self) -> usize {
        match self {
            Self::V4(_) | Self::V6(_) => 0,
            Self::Opaque(octets) => octets.len(),
        }
    }
}
