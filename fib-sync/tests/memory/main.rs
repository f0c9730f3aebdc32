//! The reconciler and the watcher against the simulated kernel, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kernel;
mod metric;
mod nexthops;
mod property;
mod scenario;
mod world;
