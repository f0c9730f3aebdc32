//! The operator's interface of the daemons.
//!
//! * [`config`]: TOML files; every error has file, line and key, and a misspelled key gets a
//!   suggestion.
//! * [`paths`]: the default paths of the control sockets.
//! * [`control`]: the daemon's end of the control socket, and [`client`], the other end. One JSON
//!   request and one JSON reply per line.
//! * [`bird`]: the same queries in the protocol of BIRD's control socket.
//! * [`metrics`]: the same reports as OpenMetrics text over HTTP.
//! * [`health`]: liveness and readiness over HTTP.
//! * [`cgroup`]: the memory limit of the process; [`process`]: its CPU time, memory and files.
//! * [`report`]: the content of the replies, shared by the daemons and the command line.
//! * [`events`]: typed events: the source of the log, the history and the metrics.
//! * [`log_level`]: the level of the log at run time.
//! * [`daemon`]: log levels and signals; [`log`]: the queue of log lines and its writer;
//!   [`program`]: the command line of a daemon; [`service_manager`]: pings for the watchdog of
//!   systemd.
//!
//! This crate has no dependency on BGP: reports have strings, addresses and prefixes, so that a
//! daemon without BGP (Felix) contains no BGP code.

pub mod bird;
pub mod cgroup;
pub mod client;
pub mod command;
pub mod config;
pub mod control;
pub mod daemon;
pub mod events;
pub mod health;
mod http;
mod level;
pub mod limits;
pub mod log;
pub mod log_level;
pub mod metrics;
pub mod paths;
pub mod process;
pub mod program;
pub mod report;
mod request;
pub mod scrape_tls;
pub mod service_manager;

pub use command::{Command, Reply};
