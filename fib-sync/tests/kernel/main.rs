//! The driver against the real kernel, each test in a network namespace of its own.
//!
//! They need root (or a user namespace) and run when `CAMBRIC_LAB=1` is set; otherwise they print
//! that they were skipped.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

mod host;
mod nexthops;
mod reconcile;
mod speed;
mod watch;
mod writer;
