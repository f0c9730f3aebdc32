//! Blocks, affinities and handles in a datastore.

use bytes::Bytes;
use calico_model::{IpamHandle, IpamKey};
use calico_store::{
    Compare, CompareWith, Comparison, Delete, KeyRange, Op, Put, Revision, Store, Txn,
};
use ipnet::IpNet;

use crate::error::IpamError;
use crate::stored::Stored;
use crate::time::Time;

/// Address management over a datastore.
#[derive(Clone, Copy)]
pub struct Ipam<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: fn() -> Time,
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
        Self { store, clock }
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
