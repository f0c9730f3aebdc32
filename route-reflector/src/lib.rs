//! The route reflector daemon (RFC 4456), as a library with a thin `main`.
//!
//! All that it does [`bgp_daemon`] does. The reflector adds nothing to a speaker: it never writes a
//! route, takes every next hop as reachable at cost 0, and shows that it does.

mod config;
mod reflector;

pub use config::{Config, Settings};
pub use reflector::Reflector;
