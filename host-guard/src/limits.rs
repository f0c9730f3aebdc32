//! Every limit of this crate.

/// Attempts of a transaction while other programs write to nftables at the same time.
pub const TRANSACTION_ATTEMPTS: u32 = 8;

/// Elements in one nftables message; its attribute holds less than 64 KiB.
pub const ELEMENTS_PER_MESSAGE: usize = 500;

/// Peers of one daemon that are guarded by address and port.
pub const PEERS_MAX: usize = 4096;

/// Number of them that a line of text names.
pub const PEERS_SHOWN: usize = 8;

/// Connections of other users of which segments are also dropped after their sockets are closed.
pub const REFUSED_CONNECTIONS_MAX: u32 = 65_536;

/// How long such a connection is remembered, in milliseconds: longer than the kernel retransmits
/// the remaining data of a closed socket.
pub const REFUSED_CONNECTION_MS: u64 = 3_600_000;

/// Octets of a record that are read.
pub const RECORD_OCTETS_MAX: u64 = 1 << 20;
