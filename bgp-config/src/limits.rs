//! Every limit of the configuration.

use std::net::Ipv4Addr;

/// Equal-cost paths of a prefix that may be used at once.
pub const MULTIPATH_MAX: u16 = 256;

/// Octets of the host name in the OPEN.
pub const HOSTNAME_OCTETS_MAX: usize = 64;

/// Default `restart_wait` in seconds: less than the restart time, so that neighbors still retain
/// the routes.
pub const RESTART_WAIT_S: u32 = 90;

/// The longest `restart_wait`, in seconds.
pub const RESTART_WAIT_S_MAX: u32 = 3600;

/// Default `registration_ttl` in seconds; etcd may grant more. A reflector that restarts is back
/// well before.
pub const REGISTRATION_TTL_S: u32 = 15;

/// The shortest `registration_ttl`, in seconds: etcd grants no shorter lease.
pub const REGISTRATION_TTL_S_MIN: u32 = 2;

/// The longest `registration_ttl`, in seconds.
pub const REGISTRATION_TTL_S_MAX: u32 = 3600;

/// Default `absence_wait` in seconds: a datastore that was unreachable has the registrations again
/// by then.
pub const ABSENCE_WAIT_S: u32 = 60;

/// The longest `absence_wait`, in seconds.
pub const ABSENCE_WAIT_S_MAX: u32 = 3600;

pub use bgp_speaker::limits::{BGP_PORT, PASSWORD_OCTETS_MAX, RESTART_TIME_S, RESTART_TIME_S_MAX};

/// The most reflectors that a client can be configured to peer with: each sends one more copy of
/// every route.
pub const REFLECTORS_MAX: usize = 8;

/// The router ids of the packaged files, which are examples.
pub const SAMPLE_ROUTER_IDS: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
