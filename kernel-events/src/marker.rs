//! The route by which Felix shows to other programs of its host that the kernel has all rules and routes.
//!
//! Felix and the BGP client share no process and no socket: both know the kernel. The route is in a
//! table that no rule refers to, so no packet follows it. Only a program with `CAP_NET_ADMIN` can add
//! it. It stays while Felix restarts, as the rules and routes do.

use std::net::{IpAddr, Ipv4Addr};

use fib_sync::{Owner, Route, RouteKey};

/// The routing table of the route.
pub const TABLE: u32 = 80_119;

/// The metric of the route.
pub const METRIC: u32 = 256;

/// Its destination: the IPv4 dummy address (RFC 7600), which no host has.
const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// Returns the key of the route.
pub fn key() -> RouteKey {
    RouteKey::new(TABLE, IpAddr::V4(DESTINATION).into(), METRIC, 0)
}

/// Returns the route of a Felix with this protocol.
pub fn route(felix: Owner) -> Route {
    Route::blackhole(felix)
}
