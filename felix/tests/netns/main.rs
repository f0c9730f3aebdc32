//! Felix and its parts on a real kernel, each test in a network namespace of its own. Needs root
//! and `CAMBRIC_LAB=1`.
//!
//! The tests are one program, so that their helpers are compiled and linked once.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod attacks;
mod bandwidth;
mod boot;
mod budgets;
mod cutting;
mod denial;
mod encapsulation;
mod explain;
mod flows;
mod gateway;
mod guard;
mod health;
mod host_traffic;
mod hosts;
mod icmp_errors;
mod impersonation;
mod invalid;
mod ipip;
mod logs;
mod metrics;
mod named_ports;
mod network_set;
mod offload;
mod outgoing;
mod overlay;
mod owner;
mod packets;
mod policy;
mod qos;
mod readback;
mod reload;
mod rules;
mod service_loops;
mod services;
mod settings;
mod spoofing;
mod start;
mod status;
mod store;
mod two_hosts;
mod verdicts;
mod world;
