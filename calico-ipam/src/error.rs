//! What can go wrong with addresses.

use std::net::IpAddr;

use calico_model::ParseError;
use calico_store::Error;
use ipnet::IpNet;

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
    /// No pool that is enabled has this name or range.
    #[error("no pool that is enabled has the name or range \"{0}\"")]
    UnknownPool(String),
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
    /// No pool that addresses may be taken from has this one.
    #[error("{0} is in no pool that is enabled")]
    NotInPool(IpAddr),
    /// Somebody has the address, or had it just now.
    #[error("{address} is taken{}", of(.handle.as_deref()))]
    Taken {
        /// The address.
        address: IpAddr,
        /// The handle that has it; none while it cools down.
        handle: Option<String>,
    },
    /// The address is in a block of another host, and hosts keep to their own.
    #[error("{address} is in a block of {}, and hosts keep to their own", owner.as_deref().unwrap_or("nobody"))]
    Strict {
        /// The address.
        address: IpAddr,
        /// Whose block it is in.
        owner: Option<String>,
    },
    /// Addresses are in use where none must be.
    #[error("block {0} has addresses in use")]
    InUse(IpNet),
    /// The address was given to somebody else since.
    #[error("{0} has been allocated again since")]
    Changed(IpAddr),
}

/// The holder of an address, in words.
fn of(handle: Option<&str>) -> String {
    handle.map_or_else(
        || ", or cools down".to_owned(),
        |handle| format!(" by {handle}"),
    )
}
