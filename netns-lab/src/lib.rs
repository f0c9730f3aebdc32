//! Fabrics on one machine: hosts as namespaces, veth links, daemons as processes, and probes
//! that say what the kernels hold and which packets pass.
//!
//! A [`Lab`] is a set of [`Host`]s: each has a network, a mount and a UTS namespace, held by file
//! descriptors, so that nothing of it outlives the process that made it. Processes run in a pid
//! namespace of the lab, whose end (also by SIGKILL) ends them all. No binary of the system is
//! needed: links are made over rtnetlink ([`Links`]), pings are sent by [`Pinger`], routes read
//! by [`RouteMonitor`].
//!
//! Two ways in:
//!
//! * a program: [`enclose()`] takes a single-threaded process into namespaces of its own (a user
//!   namespace around them when it is not root), [`settle()`] prepares its first child there,
//!   and [`Lab::enclosed`] begins;
//! * a test, as root: [`in_lab`] runs it in a [`Lab::new`], which moves the calling thread into
//!   fresh namespaces; [`allowed`] says whether the one who runs the tests wants that.
//!
//! What programs tell scrapers is read by [`scrape()`], strictly.
//!
//! [`fabric`] builds on these: the plan of a routed fabric of nodes and reflectors, the
//! configuration files of Cambric's daemons, and the fabric itself.

mod enclose;
mod error;
mod exposition;
pub mod fabric;
mod gate;
mod host;
mod icmp;
mod init;
mod lab;
mod limits;
mod link;
mod monitor;
mod ping;
mod process;
mod route;
mod wait;

#[cfg(test)]
mod tests;

pub use enclose::{Enclosure, enclose, settle};
pub use error::Error;
pub use exposition::{Exposition, Fault, Scraper, Type, scrape};
pub use gate::{LAB_VARIABLE, allowed, asked_for, in_lab};
pub use host::{Host, NamespaceFiles};
pub use lab::Lab;
pub use limits::*;
pub use link::{Links, VethEnd};
pub use monitor::{RouteEvent, RouteEventKind, RouteMonitor};
pub use ping::{Flow, FlowReport, Pinger};
pub use process::{Process, Program, Usage, usage};
pub use route::{Hop, KernelRoute, MAIN_TABLE};
pub use wait::{until, within};
