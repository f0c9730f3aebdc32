//! Cambric's programs beside other implementations, each test on hosts of its own. Needs root and
//! `CAMBRIC_LAB=1`.
//!
//! The tests are one program, so that the crates are linked once.

mod add_path;
mod admission;
mod attributes;
mod bfd;
mod bfd_attacks;
mod bfd_frr;
mod bfd_restart;
mod classic;
mod departure;
mod examples;
mod exchange;
mod foreign_keys;
mod full_table;
mod host_guard;
mod link_bandwidth;
mod long_lived;
mod malformed;
mod metrics;
mod migrate;
mod next_hops;
mod opaque;
mod readme;
mod ready;
mod reflection;
mod restart;
mod route_targets;
mod secrets;
mod sent_limit;
mod session_keys;
mod takeover;
mod workloads;
