//! `cambric lab`: a routed fabric on this machine, to see and to explore.
//!
//! `demo` and `up` start themselves a second time: the process that the user started enters new
//! namespaces and waits; the second one, process 1 of a pid namespace, builds the fabric. When that
//! process ends for any reason, the kernel kills all others.

mod args;
mod client;
mod containers;
mod demo;
mod diagram;
mod entry;
mod journal;
mod keeper;
mod kernels;
mod limits;
mod policy;
mod programs;
mod reach;
mod records;
mod sessions;
mod stage;
mod usage;

pub(crate) use args::Args;
pub(crate) use entry::run;
