//! The CNI plugin: connects containers to the fabric.
//!
//! A container gets an interface whose other end is the host's, addresses, and an endpoint in the
//! store. Felix brings that endpoint into the kernel, and only when it says so is the container's
//! runtime told that it is connected. The plugin is a process for every call, and keeps nothing: what
//! it made is found again by its name, so that any call can be killed and be made again.
//!
//! - [`Request`] is what a runtime asks for, read from environment and standard input.
//! - [`run`] does it; [`run_ipam`] is the program's other face, address management for other plugins.
//! - [`Failure`] is what is said when something was not done.

mod answer;
mod attach;
mod check;
mod collect;
mod config;
mod detach;
mod endpoint;
mod failure;
mod felix;
mod identity;
mod ipam;
pub mod limits;
mod link;
mod lock;
mod program;
mod request;
mod site;
mod status;
mod version;

pub use failure::{Code, Failure};
pub use program::{run, run_ipam, start};
pub use request::{Command, Request};
