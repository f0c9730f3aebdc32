//! Fabrics on one machine: hosts as namespaces, veth links, daemons as processes, and probes of
//! kernel routes and of connectivity.
//!
//! A [`Lab`] is a set of [`Host`]s: each has a network, a mount and a UTS namespace, held by file
//! descriptors, so that they do not outlive the process that created them. Processes run in a pid
//! namespace of the lab; the end of this namespace (also by SIGKILL) ends them all. No binary of
//! the system is needed: [`Links`] creates links over rtnetlink, [`Pinger`] sends pings,
//! [`RouteMonitor`] reads routes.
//!
//! There are two ways to create a lab:
//!
//! * in a program: [`enclose()`] moves a single-threaded process into new namespaces (inside a user
//!   namespace when it is not root), [`settle()`] prepares its first child there, and
//!   [`Lab::enclosed`] returns the lab;
//! * in a test, as root: [`in_lab`] runs it in a [`Lab::new`], which moves the calling thread into
//!   new namespaces; [`allowed`] returns whether such tests are enabled.
//!
//! [`scrape()`] reads metrics, and parses them strictly.
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
pub use process::{Process, Program, Usage, usage, usage_of_family};
pub use route::{Hop, KernelRoute, MAIN_TABLE};
pub use wait::{until, within};
