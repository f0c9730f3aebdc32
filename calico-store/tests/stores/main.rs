//! The etcd client, mirrors and resources, on the embedded store and on real etcds.
//!
//! The tests are one program, so that their helpers are compiled and linked once.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;

mod applied;
mod conformance;
mod emptied;
mod etcdctl;
mod faults;
mod members;
mod mirror;
mod network;
mod resources;
mod restore;
mod secured;
mod snapshot;
