//! BFD for the daemons of a host, as a library with a thin `main`.
//!
//! The process outlives the BGP daemons, so that a restart of one of them and a dead path are different
//! events. [`Engine`] has the sessions of all clients: it is a value without sockets and clocks. The daemon
//! connects it to the network ([`Sockets`]), to the clients and to operators.

mod clients;
mod clock;
mod config;
mod daemon;
mod engine;
mod filter;
mod host;
mod keeper;
mod kept;
pub mod limits;
mod memory;
mod priority;
mod random;
mod report;
mod resolve;
mod sockets;
mod store;
mod users;
mod worker;

pub use config::{Config, Limits};
pub use daemon::{DaemonError, run};
pub use engine::{Engine, Identity, Key, Load, Outgoing, Record, RecordError, Restored};
pub use keeper::{SUPERVISE, supervise};
pub use report::DAEMON;
pub use resolve::{Addresses, Resolve, Way};
pub use sockets::Sockets;
pub use users::notes;
