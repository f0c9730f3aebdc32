//! Blocks, affinities and handles in a datastore.

use bytes::Bytes;
use calico_model::{AffinityOwner, IpamConfig, IpamHandle, IpamKey};
use calico_store::{
    Compare, CompareWith, Comparison, Delete, KeyRange, Op, Put, Revision, Store, Txn,
};
use ipnet::IpNet;

use crate::error::IpamError;
use crate::limits::HOST_BLOCKS_DEFAULT;
use crate::stored::Stored;
use crate::time::Time;

/// Address management over a datastore.
#[derive(Clone, Copy)]
pub struct Ipam<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: fn() -> Time,
    /// Whether requests are of a virtual owner in place of a host.
    is_virtual: bool,
}

/// A change of one key.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) key: IpamKey,
    /// Its last revision; zero if it does not exist.
    pub(crate) was: Revision,
    /// The new value; `None` deletes the key.
    pub(crate) value: Option<Vec<u8>>,
}

impl<'a> Ipam<'a> {
    /// Returns the address management of this datastore.
    pub const fn new(store: &'a dyn Store) -> Self {
        Self::with_clock(store, Time::now)
    }

    /// Returns the address management of this datastore, with another clock.
    pub const fn with_clock(store: &'a dyn Store, clock: fn() -> Time) -> Self {
        Self {
            store,
            clock,
            is_virtual: false,
        }
    }

    /// Returns the address management of a virtual owner: the host of a request is the name of the
    /// owner, such as `load-balancer`. It may have any number of blocks, and no host borrows from them.
    pub const fn of_virtual_owner(self) -> Self {
        Self {
            is_virtual: true,
            ..self
        }
    }

    /// Returns the owner with the name in a request.
    pub(crate) fn owner(&self, name: &str) -> AffinityOwner {
        match self.is_virtual {
            true => AffinityOwner::Virtual(name.to_owned()),
            false => AffinityOwner::Host(name.to_owned()),
        }
    }

    /// Returns the maximum number of blocks of an owner by the configuration.
    pub(crate) fn blocks_max(&self, config: &IpamConfig) -> usize {
        match config.max_blocks_per_host {
            _ if self.is_virtual => usize::MAX,
            0 => HOST_BLOCKS_DEFAULT,
            most => usize::try_from(most).unwrap_or(usize::MAX),
        }
    }

    pub(crate) fn now(&self) -> Time {
        (self.clock)()
    }

    /// Writes all changes if no key has changed since it was read. Returns whether it did.
    pub(crate) async fn write(&self, changes: Vec<Change>) -> Result<bool, IpamError> {
        self.write_if(changes, &[]).await
    }

    /// Does the same as `write`, under further conditions.
    pub(crate) async fn write_if(
        &self,
        changes: Vec<Change>,
        conditions: &[Compare],
    ) -> Result<bool, IpamError> {
        let mut txn = Txn {
            compares: conditions.to_vec(),
            ..Txn::default()
        };
        for Change { key, was, value } in changes {
            let at = Bytes::from(key.to_string());
            txn.compares.push(Compare {
                range: KeyRange::key(at.clone()),
                comparison: Comparison::Equal,
                with: CompareWith::ModRevision(was),
            });
            txn.then.push(match value {
                Some(value) => Op::Put(Put::new(at, value)),
                None => Op::Delete(Delete {
                    range: KeyRange::key(at),
                    previous: false,
                }),
            });
        }
        Ok(self.store.txn(txn).await?.succeeded)
    }
}

impl Change {
    /// Returns the change of a handle's count for a block by this number of addresses.
    pub(crate) fn of_handle(
        id: &str,
        found: Option<Stored<IpamHandle>>,
        block: IpNet,
        change: impl Fn(u32) -> u32,
    ) -> Self {
        let (mut handle, was) = match found {
            Some(found) => (found.value, found.revision),
            None => (IpamHandle::default(), Revision::ZERO),
        };
        match change(handle.block.get(&block).copied().unwrap_or_default()) {
            0 => handle.block.remove(&block),
            count => handle.block.insert(block, count),
        };
        Self {
            key: IpamKey::Handle(id.to_owned()),
            was,
            value: (!handle.block.is_empty()).then(|| handle.encode()),
        }
    }
}

impl std::fmt::Debug for Ipam<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ipam").finish_non_exhaustive()
    }
}
