//! Bidirectional Forwarding Detection (RFC 5880): the control packet, sans-IO.
//!
//! [`Packet`] is the control packet with its authentication section. Decoding returns the first rule of
//! RFC 5880 §6.8.6 that the octets do not obey, and encoding needs no allocation.
//!
//! ```
//! use bfd::{Invalid, Packet};
//!
//! let mut octets = [0; 24];
//! assert_eq!(Packet::decode(&octets), Err(Invalid::Version(0)));
//! octets[..4].copy_from_slice(&[0x20, 0x40, 3, 24]);
//! octets[7] = 1;
//! let packet = Packet::decode(&octets)?;
//! assert_eq!(packet.encode().octets(), octets);
//! # Ok::<(), Invalid>(())
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

#[cfg(test)]
extern crate std;

mod auth;
mod diagnostic;
mod encoded;
mod invalid;
pub mod limits;
mod packet;
mod secret;
pub mod table;

pub use auth::{AuthSection, AuthType};
pub use diagnostic::Diagnostic;
pub use encoded::Encoded;
pub use invalid::Invalid;
pub use packet::{Discriminator, Packet};
pub use secret::{Secret, SecretLength};
pub use table::State;

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
