//! Comparison of the route reflector with other daemons.
//!
//! Every run starts one daemon in a namespace of its own, opens the workload's sessions to it from
//! one thread, sends tables that were drawn from a seed and encoded before the measurement starts,
//! and ends when every receiver holds exactly the right path of every prefix.
//! `docs/design/bench.md` explains the measurements and the table.

pub mod bare;
pub mod bars;
pub mod bfd_peer;
pub mod chance;
pub mod cli;
pub mod daemons;
pub mod fabric;
pub mod flood;
pub mod generator;
pub mod intake;
pub mod ledger;
pub mod limits;
pub mod measured;
pub mod meter;
pub mod outbox;
pub mod relay;
pub mod report;
pub mod routes;
pub mod session;
mod socket_queue;
pub mod speed;
pub mod stage;
pub mod traffic;
pub mod wire;
pub mod work;
