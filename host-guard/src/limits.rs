//! Every limit of this crate (invariant I7 of ARCHITECTURE.md).

/// How often a transaction is repeated when others write to nftables at the same time.
pub const TRANSACTION_ATTEMPTS: u32 = 8;

/// Elements in one nftables message; its attribute holds less than 64 KiB.
pub const ELEMENTS_PER_MESSAGE: usize = 500;

/// Peers of one daemon that are guarded by address and port.
pub const PEERS_MAX: usize = 4096;

/// How many of them a line of text names.
pub const PEERS_SHOWN: usize = 8;

/// Connections of other users whose segments are dropped after their sockets are closed, too.
pub const REFUSED_CONNECTIONS_MAX: u32 = 65_536;

/// How long such a connection is remembered, in milliseconds: longer than the kernel sends again what
/// a closed socket has left.
pub const REFUSED_CONNECTION_MS: u64 = 3_600_000;

/// Octets of a record that are read.
pub const RECORD_OCTETS_MAX: u64 = 1 << 20;
