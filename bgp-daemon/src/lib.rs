//! The common part of the BGP daemons, around a speaker.
//!
//! One task owns everything: the speaker with its sockets ([`bgp_io::Io`]), and a list of
//! [`Driver`]s, each of which connects the speaker to one thing beside BGP: the datastore,
//! operators, the log. A program adds its section of the configuration file ([`Settings`]), its
//! names, and its own drivers ([`Program`]), such as one for the kernel's routes.
//!
//! The speaker's configuration is in the file, or in the datastore that the file names. In the
//! second case the daemon watches the resources, and applies a change as soon as it arrives.
//!
//! `bgp-io` has no dependency on files, logs and operators; this crate has none on kernels.

mod addresses;
mod answer;
mod bfd;
mod config;
mod daemon;
pub mod drain;
mod draining;
mod driver;
mod end_of_rib;
mod guard;
mod heap;
pub mod limits;
mod log;
mod logging;
pub mod make_before_break;
mod memory;
mod needed_peers;
pub mod node_drain;
mod operators;
mod origins;
pub mod parent;
pub mod privileges;
mod program;
pub mod ready;
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
pub use end_of_rib::AwaitedEndOfRib;
pub use origins::{Known, OriginWatch, Suspect, Unconfirmed};
pub use parent::Parent;
pub use privileges::Privileges;
pub use program::{Forwarding, Program};
pub use ready::Criterion;
pub use route_events::{Looked, RouteEvents};
pub use run::{Failure, main, run};
