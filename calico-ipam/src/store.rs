//! Blocks, affinities and handles in a store.

use bytes::Bytes;
use calico_model::{IpamHandle, IpamKey};
use calico_store::{
    Compare, CompareWith, Comparison, Delete, KeyRange, Op, Put, Revision, Store, Txn,
};
use ipnet::IpNet;

use crate::error::IpamError;
use crate::stored::Stored;
use crate::time::Time;

/// Address management over a store.
#[derive(Clone, Copy)]
pub struct Ipam<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: fn() -> Time,
}

/// What becomes of a key.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) key: IpamKey,
    /// When it was last written; zero if it is not there.
    pub(crate) was: Revision,
    /// What it holds from now on; nothing if it is deleted.
    pub(crate) value: Option<Vec<u8>>,
}

impl<'a> Ipam<'a> {
    /// Over this store.
    pub const fn new(store: &'a dyn Store) -> Self {
        Self::with_clock(store, Time::now)
    }

    /// Over this store, with another clock.
    pub const fn with_clock(store: &'a dyn Store, clock: fn() -> Time) -> Self {
        Self { store, clock }
    }

    pub(crate) fn now(&self) -> Time {
        (self.clock)()
    }

    /// Makes all the changes, if everything they concern is still as it was read; tells whether.
    pub(crate) async fn write(&self, changes: Vec<Change>) -> Result<bool, IpamError> {
        self.write_if(changes, &[]).await
    }

    /// The same, if also something else is so.
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
    /// A handle that counts so many more or fewer addresses of a block.
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
