//! The route reflector daemon (RFC 4456), as a library with a thin `main`.
//!
//! One task owns everything: the speaker with its sockets ([`bgp_io::Io`]), the control socket
//! and the signals meet in the `select!` loop of [`run`]. The reflector never writes a route:
//! it takes every next hop as reachable at cost 0, and shows that it does.

mod config;
mod daemon;
mod log;
mod reload;
mod run;

pub use config::{CONTROL_DEFAULT, Config};
pub use daemon::Daemon;
pub use run::{Failure, run};
