//! Limits of the reader.

/// Longest record that is read, in octets. A RIB record with the paths of a thousand peers is far
/// shorter; a greater length means that the file is damaged.
pub const RECORD_OCTETS_MAX: u32 = 16 << 20;
