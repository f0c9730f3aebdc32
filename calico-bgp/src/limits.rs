//! Every limit of the derivation (invariant I7 of ARCHITECTURE.md).

/// Route reflectors that a client peers with by default.
pub const REFLECTORS: usize = 2;
