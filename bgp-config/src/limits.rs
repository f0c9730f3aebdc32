//! Every limit of the configuration (invariant I7 of ARCHITECTURE.md).

use std::net::Ipv4Addr;

/// Equal paths that a prefix may use at once.
pub const MULTIPATH_MAX: u16 = 256;

/// Octets of the host name that our OPEN tells.
pub const HOSTNAME_OCTETS_MAX: usize = 64;

/// How long the choice of routes waits after a restart of ours when `restart_wait` is not given, in
/// seconds: less than the restart time, so that neighbours have not given up.
pub const RESTART_WAIT_S: u32 = 90;

/// The longest `restart_wait`, in seconds.
pub const RESTART_WAIT_S_MAX: u32 = 3600;

/// How long a reflector's registration outlives its last word when `registration_ttl` is not given,
/// in seconds; the store may make it longer. A reflector that restarts is back well within it.
pub const REGISTRATION_TTL_S: u32 = 15;

/// The shortest `registration_ttl`, in seconds: etcd grants no shorter lease.
pub const REGISTRATION_TTL_S_MIN: u32 = 2;

/// The longest `registration_ttl`, in seconds.
pub const REGISTRATION_TTL_S_MAX: u32 = 3600;

/// How long a reflector whose registration is gone but whose session is up counts as if it were
/// registered when `absence_wait` is not given, in seconds: a store that comes back finds it there
/// again by then.
pub const ABSENCE_WAIT_S: u32 = 60;

/// The longest `absence_wait`, in seconds.
pub const ABSENCE_WAIT_S_MAX: u32 = 3600;

pub use bgp_speaker::limits::{BGP_PORT, PASSWORD_OCTETS_MAX, RESTART_TIME_S, RESTART_TIME_S_MAX};

/// The most reflectors that a client can be told to peer with: each is one more copy of every route.
pub const REFLECTORS_MAX: usize = 8;

/// The router ids of the packaged files, which are examples.
pub const SAMPLE_ROUTER_IDS: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
