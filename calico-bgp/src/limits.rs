//! Every limit of the derivation.

/// Route reflectors that a client peers with by default.
pub const REFLECTORS: usize = 2;
