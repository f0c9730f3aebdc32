//! Every limit and fixed value of the crate, in one place.

/// The version of the protocol (RFC 5880 §4.1).
pub const VERSION: u8 = 1;

/// The octets of a packet without an authentication section (RFC 5880 §4.1).
pub const HEADER_OCTETS: usize = 24;

/// The longest password or key, in octets: the key of SHA1 (RFC 5880 §4.4).
pub const SECRET_OCTETS_MAX: usize = 20;

/// The octets of an authentication section before its digest (RFC 5880 §4.3, §4.4).
pub const DIGEST_AT: usize = 8;

/// The octets of a section with a password before the password (RFC 5880 §4.2).
pub const PASSWORD_AT: usize = 3;

/// The longest packet that is sent, in octets: with a digest of SHA1.
pub const PACKET_OCTETS_MAX: usize = HEADER_OCTETS + DIGEST_AT + SECRET_OCTETS_MAX;
