//! Every limit of the codec, in one place.

pub use crate::header::{MESSAGE_OCTETS_MAX, MESSAGE_OCTETS_MAX_EXTENDED};

/// Most ASNs that one AS_PATH segment can hold: its count is one octet (RFC 4271 §4.3).
pub const SEGMENT_ASNS_MAX: usize = 255;

/// Longest shutdown communication that is sent, in octets (RFC 9003 §2 allows 255).
pub const SHUTDOWN_TEXT_OCTETS_MAX: usize = 255;

/// Longest value of a path attribute: its length field has two octets (RFC 4271 §4.3).
pub const ATTRIBUTE_OCTETS_MAX: usize = 65_535;

/// How much of an offending message a NOTIFICATION carries back at most, in octets, so that
/// the NOTIFICATION itself always fits the 4096 octets every peer accepts (RFC 4271 §4.1).
pub const NOTIFICATION_DATA_OCTETS_MAX: usize = 4096 - 19 - 2;
