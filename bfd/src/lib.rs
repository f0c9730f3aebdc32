//! Bidirectional Forwarding Detection (RFC 5880), sans-IO and in virtual time.
//!
//! A [`Session`] monitors the path to one remote system, in asynchronous mode. It owns no socket
//! and reads no clock: the caller passes received payloads and the time, and sends the packets that the
//! session returns. [`Sessions`] is a bounded set of sessions: it finds the session of a packet (RFC 5881,
//! RFC 5883), selects discriminators, and returns the next deadline of all sessions. A [`Change`] has the
//! result for clients (RFC 5882). The echo function and demand mode of the local system are not supported.
//!
//! The transitions are rows of a table ([`table`]); its graph is `docs/design/bfd.dot`.
//!
//! ```
//! use bfd::{Discriminator, Instant, Random, Seeded, Session, SessionConfig, State};
//!
//! let mut random = Seeded::new(7);
//! let mut make = |id| {
//!     let id = Discriminator::new(id).expect("not zero");
//!     Session::new(Instant::ZERO, SessionConfig::default(), id, &mut random)
//! };
//! let (mut one, mut other) = (make(1)?, make(2)?);
//! let mut random = Seeded::new(8);
//! for second in 0..4 {
//!     let now = Instant::from_secs(second);
//!     while let Some(packet) = one.transmit(now, &mut random) {
//!         other.receive(now, packet.octets()).expect("a valid packet");
//!     }
//!     while let Some(packet) = other.transmit(now, &mut random) {
//!         one.receive(now, packet.octets()).expect("a valid packet");
//!     }
//! }
//! assert_eq!((one.state(), other.state()), (State::Up, State::Up));
//! # Ok::<(), bfd::ConfigError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]
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

mod auth;
mod client;
mod config;
mod diagnostic;
mod discard;
mod due;
mod encoded;
mod invalid;
pub mod limits;
mod packet;
mod path;
mod random;
mod receive;
mod secret;
mod sequence;
mod session;
mod sessions;
mod snapshot;
pub mod table;
mod timing;
mod transmit;
mod urgent;

pub use auth::{AuthSection, AuthType};
pub use client::{Change, Liveness, Side};
pub use config::{AuthKey, Authentication, ConfigError, Role, SessionConfig};
pub use core::time::Duration;
pub use diagnostic::Diagnostic;
pub use discard::Discard;
pub use encoded::Encoded;
pub use instant::Instant;
pub use invalid::Invalid;
pub use packet::{Discriminator, Packet};
pub use path::{Arrival, Family, Hops, Path};
pub use random::{Random, Seeded};
pub use secret::{Secret, SecretLength};
pub use session::{ConcatenatedPath, Session, Stats};
pub use sessions::{AddError, Sessions, Step};
pub use snapshot::{RestoreError, Snapshot, SnapshotError};
pub use table::State;

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
