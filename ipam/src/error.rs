//! What can go wrong with addresses.

use std::net::IpAddr;

use datastore::Error;
use ipnet::IpNet;
use model::ParseError;

use crate::block::BlockFault;

/// Why addresses were not given or taken back.
#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    /// The store did not answer, or refused.
    #[error("the store: {0}")]
    Store(#[from] Error),
    /// What is stored under a key does not read.
    #[error("{key}: {error}")]
    Unreadable {
        /// The key.
        key: String,
        /// Why.
        error: ParseError,
    },
    /// A stored block contradicts itself.
    #[error("block {block}: {fault}")]
    Block {
        /// The block.
        block: IpNet,
        /// How.
        fault: BlockFault,
    },
    /// Others wrote a key again and again.
    #[error("{0} is written by others all the time")]
    Contended(String),
    /// No pool is for this host and use.
    #[error("no pool is for host {host}")]
    NoPool {
        /// The host.
        host: String,
    },
    /// The host has as many blocks as it may.
    #[error("host {host} has {blocks} blocks, as many as it may have, and they are full")]
    BlockLimit {
        /// The host.
        host: String,
        /// How many.
        blocks: usize,
    },
    /// All addresses are taken or reserved.
    #[error("the pools are used up: {assigned} of {wanted} addresses could be had")]
    UsedUp {
        /// How many there were; they were given back.
        assigned: usize,
        /// How many were asked for.
        wanted: usize,
    },
    /// Addresses are in use where none must be.
    #[error("block {0} has addresses in use")]
    InUse(IpNet),
    /// The address was given to somebody else since.
    #[error("{0} belongs to somebody else by now")]
    Changed(IpAddr),
}
