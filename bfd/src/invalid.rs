//! The validity rules of a received packet.

use crate::limits::{HEADER_OCTETS, VERSION};
use crate::table::State;

/// A rule of RFC 5880 §6.8.6 that received octets do not obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The octets are fewer than a packet has.
    #[error("{0} octets are no control packet: it has at least {HEADER_OCTETS}")]
    Truncated(usize),
    /// The version is not 1.
    #[error("version {0} instead of {VERSION}")]
    Version(u8),
    /// The field Length is less than the header, and the two octets of a section if the A bit is set.
    #[error("length {0} is too small")]
    LengthTooSmall(u8),
    /// The field Length is greater than the payload.
    #[error("length {length} is greater than the payload of {payload} octets")]
    LengthTooGreat {
        /// The field.
        length: u8,
        /// The octets of the payload.
        payload: usize,
    },
    /// The field Detect Mult is zero.
    #[error("the detection multiplier is zero")]
    DetectMultiplierZero,
    /// The M bit is set.
    #[error("the multipoint bit is set")]
    Multipoint,
    /// The field My Discriminator is zero.
    #[error("the sender's discriminator is zero")]
    MyDiscriminatorZero,
    /// The field Your Discriminator is zero in the state Init or Up.
    #[error("the receiver's discriminator is zero in the state {0}")]
    YourDiscriminatorZero(State),
    /// The type of the authentication section is not defined.
    #[error("authentication type {0} is not defined")]
    AuthType(u8),
    /// The length of the authentication section is not that of its type, or exceeds the packet.
    #[error("the authentication section has the wrong length {0}")]
    AuthLength(u8),
}
