//! Reasons to discard a received packet.

use crate::auth::AuthType;
use crate::invalid::Invalid;

/// A reason to discard a received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Discard {
    /// The octets are no valid packet.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// No session has this discriminator, or this path.
    #[error("no session for this packet")]
    NoSession,
    /// The packet is addressed to another session.
    #[error("your discriminator {0} is that of another session")]
    YourDiscriminator(u32),
    /// The time to live shows that the packet was forwarded too often.
    #[error("time to live {ttl} is less than {ttl_min}")]
    TimeToLive {
        /// The received value.
        ttl: u8,
        /// The least accepted value.
        ttl_min: u8,
    },
    /// The packet has the discriminator of a session, but arrived on another path.
    #[error("the packet arrived on another path than that of its session")]
    Path,
    /// The session requires authentication.
    #[error("authentication is missing")]
    AuthMissing,
    /// The session has no authentication.
    #[error("authentication is not in use")]
    AuthUnexpected,
    /// The session has another type of authentication.
    #[error("authentication by {0} is not in use")]
    AuthType(AuthType),
    /// The session has no key with this number.
    #[error("no key has the number {0}")]
    AuthKeyId(u8),
    /// The sequence number was used, or is too far from the last one.
    #[error("sequence number {0} is not in the window")]
    AuthSequence(u32),
    /// The password or digest is wrong.
    #[error("the password or digest is wrong")]
    AuthValue,
}
