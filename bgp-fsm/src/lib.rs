//! The BGP session machine of RFC 4271 §8, sans-IO and in virtual time.
//!
//! A [`Session`] is the state of one peer's session: up to three transports, their OPENs, timers,
//! and the octets that wait to be written. It owns no socket and reads no clock: the driver passes
//! inputs to [`Session::handle`], then drains [`Session::poll_output`], calls again at
//! [`Session::poll_timeout`], and takes octets with [`Session::fill`] and [`Session::sent`]
//! whenever a socket is writable.
//!
//! The transitions are rows of a table ([`table`]); its graph is `docs/design/fsm.dot`.
//!
//! ```
//! use bgp_fsm::{Input, Instant, Output, PeerAs, Session, SessionConfig, State};
//! use bgp_proto::{Asn, RouterId};
//!
//! let mut config = SessionConfig::new(Asn(64512), RouterId("192.0.2.1".parse()?));
//! config.peer_asn = PeerAs::Internal;
//! let mut session = Session::new(config, 7);
//! session.handle(Instant::ZERO, Input::Start);
//! assert!(matches!(session.poll_output(), Some(Output::Dial)));
//! while session.poll_output().is_some() {}
//! assert_eq!(session.state(), State::Connect);
//! # Ok::<(), core::net::AddrParseError>(())
//! ```
#![no_std]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod chance;
mod config;
mod connection;
mod drive;
mod event;
mod held;
pub mod limits;
mod machines;
mod negotiate;
mod outbox;
mod receive;
mod session;
mod stats;
pub mod table;
pub mod timer;

pub use config::{GracefulRestartConfig, PeerAs, SessionConfig};
pub use core::time::Duration;
pub use event::{Conn, DownReason, HeldEnd, Input, Output, Probed};
pub use instant::Instant;
pub use negotiate::{negotiate, open_of};
pub use session::Session;
pub use stats::{Counts, Stats};
pub use table::State;

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
