//! Types of records.

/// The retired type BGP (RFC 6396 appendix B.2.1).
pub(crate) const BGP: u16 = 5;
/// Types of records (RFC 6396 §4).
pub(crate) const TABLE_DUMP: u16 = 12;
pub(crate) const TABLE_DUMP_V2: u16 = 13;
pub(crate) const BGP4MP: u16 = 16;
pub(crate) const BGP4MP_ET: u16 = 17;
