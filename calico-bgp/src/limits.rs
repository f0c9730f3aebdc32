//! Every limit of the derivation.

/// The default of the paths of a node in one family. A node advertises its blocks and its
/// endpoints, of which a host has some hundred.
pub const NODE_PREFIXES_MAX: u32 = 20_000;

/// Route reflectors that a client peers with by default.
pub const REFLECTORS: usize = 2;
