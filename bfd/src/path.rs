//! The path that a session monitors, and the path on which a packet arrived (RFC 5881, RFC 5883).

use core::net::IpAddr;

use crate::Instant;
use crate::discard::Discard;
use crate::limits::TTL_SINGLE_HOP;

/// The path of a session.
///
/// An interface is the number that the system gives it. An IPv4 address that is mapped into IPv6 is the
/// same as the IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Path {
    /// A link with one remote system. The source address of its packets is not used, but their family is:
    /// each family has its own session (RFC 5881 §2, §3).
    PointToPoint {
        /// The interface.
        interface: u32,
        /// The family of the packets.
        family: Family,
    },
    /// One system on a link with several.
    SingleHop {
        /// The interface.
        interface: u32,
        /// The address of the remote system.
        remote: IpAddr,
    },
    /// A path over routers (RFC 5883).
    Multihop {
        /// The routing table of the addresses: 0 if there is one only.
        table: u32,
        /// The local address.
        local: IpAddr,
        /// The address of the remote system.
        remote: IpAddr,
        /// The least time to live of accepted packets: 255 less the permitted routers.
        ttl_min: u8,
    },
}

impl Path {
    /// Returns the kind of the path.
    #[must_use]
    pub const fn hops(&self) -> Hops {
        match self {
            Self::PointToPoint { .. } | Self::SingleHop { .. } => Hops::Single,
            Self::Multihop { .. } => Hops::Multi,
        }
    }

    /// Returns the path with IPv4 addresses that are not mapped into IPv6.
    pub(crate) const fn canonical(self) -> Self {
        match self {
            Self::PointToPoint { .. } => self,
            Self::SingleHop { interface, remote } => Self::SingleHop {
                interface,
                remote: remote.to_canonical(),
            },
            Self::Multihop {
                table,
                local,
                remote,
                ttl_min,
            } => Self::Multihop {
                table,
                local: local.to_canonical(),
                remote: remote.to_canonical(),
                ttl_min,
            },
        }
    }

    /// Returns the canonical path without the values that do not distinguish it from others.
    pub(crate) const fn key(self) -> Self {
        match self.canonical() {
            Self::Multihop {
                table,
                local,
                remote,
                ..
            } => Self::Multihop {
                table,
                local,
                remote,
                ttl_min: 0,
            },
            other => other,
        }
    }

    /// Returns the keys of the paths on which a packet may have arrived, the most specific first.
    pub(crate) const fn keys_of(arrival: &Arrival) -> [Self; 2] {
        let Arrival {
            interface, table, ..
        } = *arrival;
        let remote = arrival.source.to_canonical();
        match arrival.hops {
            Hops::Single => [
                Self::SingleHop { interface, remote },
                Self::PointToPoint {
                    interface,
                    family: Family::of(remote),
                },
            ],
            Hops::Multi => {
                let path = Self::Multihop {
                    table,
                    local: arrival.destination.to_canonical(),
                    remote,
                    ttl_min: 0,
                };
                [path, path]
            }
        }
    }

    /// Checks that a packet arrived on this path, and its time to live.
    pub(crate) fn check(&self, arrival: &Arrival) -> Result<(), Discard> {
        if !Self::keys_of(arrival).contains(&self.key()) {
            return Err(Discard::Path);
        }
        // RFC 5881 §5 and RFC 5082: a packet from another link has a lower value.
        let ttl_min = match *self {
            Self::Multihop { ttl_min, .. } => ttl_min,
            _ => TTL_SINGLE_HOP,
        };
        if arrival.ttl < ttl_min {
            return Err(Discard::TimeToLive {
                ttl: arrival.ttl,
                ttl_min,
            });
        }
        Ok(())
    }
}

/// The family of the addresses of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Returns the family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }
}

/// Whether packets cross routers. Each kind has its own UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hops {
    /// One link: [`crate::limits::PORT_SINGLE_HOP`].
    Single,
    /// Any number of links: [`crate::limits::PORT_MULTIHOP`].
    Multi,
}

/// The circumstances in which a packet was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// The kind of its destination port.
    pub hops: Hops,
    /// The interface.
    pub interface: u32,
    /// The routing table of the interface: that of [`Path::Multihop`].
    pub table: u32,
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The time to live, or the hop limit.
    pub ttl: u8,
    /// When it arrived, as the kernel has measured it; `None` if only the time of reading is known.
    pub arrived_at: Option<Instant>,
}

impl Arrival {
    /// Makes the arrival of a packet in the routing table 0, at an unknown time.
    #[must_use]
    pub const fn new(
        hops: Hops,
        interface: u32,
        source: IpAddr,
        destination: IpAddr,
        ttl: u8,
    ) -> Self {
        Self {
            hops,
            interface,
            table: 0,
            source,
            destination,
            ttl,
            arrived_at: None,
        }
    }

    /// Returns the arrival after `change`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}
