//! How an operator meets a daemon.
//!
//! * [`config`]: TOML files; every error names file, line and key, and a typo'd key gets a
//!   suggestion.
//! * [`control`]: the daemon's end of the control socket, and [`client`], the other end. One JSON
//!   request and one JSON reply a line.
//! * [`bird`]: the same questions in the language of BIRD's control socket.
//! * [`metrics`]: the same reports as OpenMetrics text over HTTP.
//! * [`report`]: what the replies say, shared by the daemons and the command line.
//! * [`events`]: what happens, typed: the log, the history and the metrics are made from it.
//! * [`log_level`]: the level of the log at run time.
//! * [`daemon`]: log levels and signals; [`log`]: the queue of log lines and its writer;
//!   [`program`]: the command line of a daemon.
//!
//! Nothing in here knows BGP: reports speak in strings, addresses and prefixes, so that a daemon
//! without BGP (Felix) carries none of it.

pub mod bird;
pub mod client;
pub mod command;
pub mod config;
pub mod control;
pub mod daemon;
pub mod events;
mod level;
pub mod limits;
pub mod log;
pub mod log_level;
pub mod metrics;
pub mod program;
pub mod report;
mod request;

pub use command::{Command, Reply};
