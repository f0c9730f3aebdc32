//! Speakers, sessions and their keys over real sockets, on loopback addresses or in a network
//! namespace.
//!
//! The tests are one program, so that their helpers are compiled and linked once.

mod busy;
mod crowd;
mod gtsm;
mod handle;
mod held;
mod loopback;
mod monitor;
mod options;
mod session;
mod session_keys;
mod strangers;
mod support;
