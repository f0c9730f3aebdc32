//! The CNI plugin: connects containers to the fabric.
//!
//! A container gets one end of a veth pair, with the other end on the host, addresses, and an
//! endpoint in the datastore. Felix programs that endpoint into the kernel, and ADD succeeds only
//! after Felix has reported this. The plugin runs as one process per call and keeps no state: it
//! finds its objects by their names, so that any call can be killed and repeated.
//!
//! - [`Request`] is the request of a runtime, read from environment and standard input.
//! - [`run`] performs it; [`run_ipam`] performs the request of another plugin for address
//!   management.
//! - [`Failure`] is the error of a request.

mod answer;
mod api;
mod attach;
mod check;
mod collect;
mod config;
mod detach;
mod endpoint;
mod facts;
mod failure;
mod felix;
mod identity;
mod ipam;
pub mod limits;
mod link;
mod lock;
mod pod_networks;
mod program;
mod request;
mod server;
mod site;
mod status;
mod version;

pub use failure::{Code, Failure};
pub use program::{run, run_ipam, start};
pub use request::{Command, Request};
