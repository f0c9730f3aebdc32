//! Errors of address management.

use std::net::IpAddr;

use calico_model::ParseError;
use calico_store::Error;
use ipnet::IpNet;

use crate::block::BlockFault;

/// Why addresses were not assigned or released.
#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    /// The datastore did not answer, or returned an error.
    #[error("the store: {0}")]
    Store(#[from] Error),
    /// The value of a key cannot be parsed.
    #[error("{key}: {error}")]
    Unreadable {
        /// The key.
        key: String,
        /// Why.
        error: ParseError,
    },
    /// A stored block is inconsistent.
    #[error("block {block}: {fault}")]
    Block {
        /// The block.
        block: IpNet,
        /// How.
        fault: BlockFault,
    },
    /// Concurrent writes to a key prevented the change in every attempt.
    #[error("{0}: too many concurrent writes by other programs")]
    Contended(String),
    /// No pool applies to this host and use.
    #[error("no pool is for host {host}")]
    NoPool {
        /// The host.
        host: String,
    },
    /// No enabled pool has this name or range.
    #[error("no pool that is enabled has the name or range \"{0}\"")]
    UnknownPool(String),
    /// The allowed uses of the pool do not contain workloads.
    #[error("pool {pool} is not for workloads: its allowedUses are {uses}")]
    OtherUse {
        /// Its name.
        pool: String,
        /// Its allowed uses, separated by commas.
        uses: String,
    },
    /// The host has reached its maximum number of blocks.
    #[error("host {host} has {blocks} blocks, as many as it may have, and they are full")]
    BlockLimit {
        /// The host.
        host: String,
        /// The maximum.
        blocks: usize,
    },
    /// All addresses are allocated or reserved.
    #[error("the pools are used up: {assigned} of {wanted} addresses could be had")]
    UsedUp {
        /// Number of addresses that were available; they were released again.
        assigned: usize,
        /// Number of requested addresses.
        wanted: usize,
    },
    /// No usable pool contains this address.
    #[error("{0} is in no pool that is enabled")]
    NotInPool(IpAddr),
    /// The address is allocated, or cooling down.
    #[error("{address} is taken{}", of(.handle.as_deref()))]
    Taken {
        /// The address.
        address: IpAddr,
        /// The handle of the allocation; `None` while the address cools down.
        handle: Option<String>,
    },
    /// The address is in a block of another host, and strict affinity is configured; or in a block
    /// of a virtual owner, such as load balancers.
    #[error("{address} is in a block of {}, and hosts keep to their own", owner.as_deref().unwrap_or("nobody"))]
    Strict {
        /// The address.
        address: IpAddr,
        /// The owner of the block.
        owner: Option<String>,
    },
    /// Allocated addresses prevent the change of this range.
    #[error("block {0} has addresses in use")]
    InUse(IpNet),
    /// The address has been allocated again since.
    #[error("{0} has been allocated again since")]
    Changed(IpAddr),
}

/// Returns the handle of an allocation as text for an error.
fn of(handle: Option<&str>) -> String {
    handle.map_or_else(
        || ", or cools down".to_owned(),
        |handle| format!(" by {handle}"),
    )
}
