//! The routes by which Felix and the BGP client of a host show each other their state.
//!
//! * Felix shows that the kernel has all rules and routes ([`key`]).
//! * The BGP client shows that it answers ([`answerer_key`]): Felix marks a workload's route before it
//!   removes it ([`fib_sync::METRIC_LEAVING`]), and the BGP client answers ([`answer_key`]) when it has
//!   withdrawn the prefix.
//!
//! Felix and the BGP client share no process and no socket: both know the kernel. The routes are in a
//! table that no rule refers to, so no packet follows them. Only a program with `CAP_NET_ADMIN` can add
//! them. They stay while the programs restart, as the rules and routes do.

use std::net::{IpAddr, Ipv4Addr};

use fib_sync::{Owner, Route, RouteKey};
use ipnet::IpNet;

/// The routing table of the routes.
pub const TABLE: u32 = 80_119;

/// The metric of Felix's route.
pub const METRIC: u32 = 256;

/// The metric of the routes of the BGP client.
pub const ANSWER_METRIC: u32 = 1024;

/// The destination of the routes about a program: the IPv4 dummy address (RFC 7600), which no host has.
const DESTINATION: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// Returns the key of Felix's route.
pub fn key() -> RouteKey {
    RouteKey::new(TABLE, IpAddr::V4(DESTINATION).into(), METRIC, 0)
}

/// Returns the key of the route by which a BGP client shows that it answers.
pub fn answerer_key() -> RouteKey {
    answer_key(IpAddr::V4(DESTINATION).into())
}

/// Returns the key of the route by which a BGP client shows that this prefix is withdrawn.
pub fn answer_key(prefix: IpNet) -> RouteKey {
    RouteKey::new(TABLE, prefix, ANSWER_METRIC, 0)
}

/// Returns a route of a program with this protocol.
pub fn route(owner: Owner) -> Route {
    Route::blackhole(owner)
}
