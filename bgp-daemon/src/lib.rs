//! A BGP daemon around its speaker: what all of them do the same way.
//!
//! One task owns everything: the speaker with its sockets ([`bgp_io::Io`]), the control socket, the
//! signals, and whatever the program adds meet in the `select!` loop of [`run`]. A program says what
//! it adds by two traits: [`Settings`], its own section of the configuration file, and [`Program`],
//! what stands on the other side of the speaker, such as a kernel.
//!
//! What the speaker is to be, the file says, or the store that the file names: then the resources
//! there are followed, and a change is in force as soon as it is heard of.
//!
//! `bgp-io` knows nothing of files, logs and operators; this crate knows nothing of kernels.

mod addresses;
mod answer;
mod begin;
mod config;
mod daemon;
pub mod drain;
mod enrolment;
pub mod fabric;
mod guard;
pub mod handover;
pub mod limits;
mod log;
mod memory;
pub mod picture;
mod program;
pub mod registrar;
mod reload;
pub mod report;
pub mod restart;
mod run;
mod secrets;
mod source;
mod survey;

pub use config::{Config, Settings};
pub use daemon::Daemon;
pub use program::{Forwarding, Program};
pub use run::{Failure, main, run};
