//! A BGP daemon around its speaker: what all of them do the same way.
//!
//! One task owns everything: the speaker with its sockets ([`bgp_io::Io`]), and a list of
//! [`Driver`]s, each of which connects the speaker to one thing beside BGP: the datastore, operators,
//! the log. A program adds its section of the configuration file ([`Settings`]), its names, and drivers
//! of its own ([`Program`]), such as one for the kernel's routes.
//!
//! What the speaker is to be, the file says, or the store that the file names: then the resources
//! there are followed, and a change is in force as soon as it is heard of.
//!
//! `bgp-io` knows nothing of files, logs and operators; this crate knows nothing of kernels.

mod addresses;
mod answer;
mod config;
mod daemon;
pub mod drain;
mod driver;
mod guard;
pub mod limits;
mod log;
mod logging;
pub mod make_before_break;
mod needed_peers;
mod operators;
mod program;
pub mod registrar;
mod registration;
mod reload;
pub mod report;
pub mod resources;
pub mod restart;
mod restart_file;
mod route_events;
mod run;
mod secrets;
mod source;
mod startup;
mod store;
pub mod transition;

pub use config::{Config, Settings};
pub(crate) use daemon::Daemon;
pub use driver::{Driver, DriverError, Open, Order, Round};
pub use program::{Forwarding, Program};
pub use route_events::{Looked, RouteEvents};
pub use run::{Failure, main, run};
