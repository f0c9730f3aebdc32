//! The route reflector daemon (RFC 4456), as a library with a thin `main`.
//!
//! [`bgp_daemon`] implements all of it. The reflector adds nothing to a speaker: it never writes a
//! route to the kernel, treats every next hop as reachable at cost 0, and reports that it does.

mod config;
#[cfg(test)]
mod mistakes;
mod reflector;

pub use config::{Config, Settings};
pub use reflector::Reflector;
