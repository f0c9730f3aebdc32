//! Every limit of the derivation.

/// The default of the paths of a node in one family. A node advertises its blocks and its
/// endpoints, of which a host has some hundred.
pub const NODE_PREFIXES_MAX: u32 = 20_000;

/// Route reflectors that a client peers with by default.
pub const REFLECTORS: usize = 2;

/// The most nodes of a mesh whose sessions have BFD by default: every node sends packets to all others.
pub const BFD_MESH_NODES_MAX: usize = 100;

/// The shortest interval of packets of BFD while a session is not up, in milliseconds (RFC 5880 §6.8.3).
pub const BFD_IDLE_MS_MIN: u32 = 1_000;
