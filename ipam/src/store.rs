//! Blocks, affinities and handles in a store.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use datastore::{
    Compare, CompareWith, Comparison, Delete, KeyRange, KeyValue, Op, Put, Revision, Store, Txn,
};
use ipnet::IpNet;
use jiff::Timestamp;
use model::{AllocationBlock, BlockAffinity, IpamConfig, IpamHandle, IpamKey, ParseError};

use crate::block::{Block, Holder};
use crate::error::IpamError;

/// A time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub(crate) Timestamp);

impl Time {
    /// The time it is.
    pub fn now() -> Self {
        Self(Timestamp::now())
    }

    /// So many nanoseconds after 1970.
    pub fn after_epoch(time: Duration) -> Self {
        let time = Timestamp::UNIX_EPOCH.checked_add(time);
        Self(time.unwrap_or(Timestamp::MAX))
    }

    pub(crate) fn nanoseconds(self) -> u64 {
        u64::try_from(self.0.as_nanosecond()).unwrap_or_default()
    }

    pub(crate) fn text(self) -> String {
        model::rfc3339_utc(u64::try_from(self.0.as_second()).unwrap_or_default())
    }

    /// Seconds from here to a later time.
    pub(crate) fn seconds_to(self, later: Self) -> u64 {
        u64::try_from(later.0.as_second() - self.0.as_second()).unwrap_or_default()
    }
}

/// Address management over a store.
#[derive(Clone, Copy)]
pub struct Ipam<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: fn() -> Time,
}

/// Something stored, and when it was last written.
#[derive(Debug)]
pub(crate) struct Stored<T> {
    pub(crate) value: T,
    pub(crate) revision: Revision,
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

    async fn read<T>(
        &self,
        key: &IpamKey,
        parse: impl Fn(&[u8]) -> Result<T, ParseError>,
    ) -> Result<Option<Stored<T>>, IpamError> {
        let key = key.to_string();
        match self.store.get(key.clone().into()).await? {
            Some(found) => read(&key, &found, parse).map(Some),
            None => Ok(None),
        }
    }

    /// The settings in force.
    pub(crate) async fn config(&self) -> Result<IpamConfig, IpamError> {
        let stored = self.read(&IpamKey::Config, IpamConfig::parse).await?;
        Ok(stored.map_or_else(IpamConfig::default, |stored| stored.value))
    }

    pub(crate) async fn affinity(
        &self,
        key: &IpamKey,
    ) -> Result<Option<Stored<BlockAffinity>>, IpamError> {
        self.read(key, BlockAffinity::parse).await
    }

    pub(crate) async fn handle(&self, id: &str) -> Result<Option<Stored<IpamHandle>>, IpamError> {
        self.read(&IpamKey::Handle(id.to_owned()), IpamHandle::parse)
            .await
    }

    pub(crate) async fn block(&self, cidr: IpNet) -> Result<Option<Stored<Block>>, IpamError> {
        let stored = self
            .read(&IpamKey::Block(cidr), AllocationBlock::parse)
            .await?;
        let Some(Stored { value, revision }) = stored else {
            return Ok(None);
        };
        let value =
            Block::stored(value).map_err(|fault| IpamError::Block { block: cidr, fault })?;
        Ok(Some(Stored { value, revision }))
    }

    /// Every block that can be read. One that cannot is somebody's, all the same.
    pub(crate) async fn blocks(&self) -> Result<Vec<(IpNet, Option<Block>)>, IpamError> {
        let listing = self.store.list(KeyRange::prefix(IpamKey::BLOCKS)).await?;
        let mut blocks = Vec::new();
        for found in listing.items {
            if let Ok(IpamKey::Block(cidr)) = String::from_utf8_lossy(&found.key).parse() {
                let block = AllocationBlock::parse(&found.value).ok();
                blocks.push((cidr, block.and_then(|block| Block::stored(block).ok())));
            }
        }
        Ok(blocks)
    }

    /// Who has these addresses, of those that somebody has.
    pub async fn holders(&self, addresses: &[IpAddr]) -> Result<Vec<Holder>, IpamError> {
        let keys = self.keys(IpamKey::BLOCKS).await?;
        let mut holders = Vec::new();
        for key in keys {
            let IpamKey::Block(cidr) = key else { continue };
            let its = || addresses.iter().filter(|address| cidr.contains(*address));
            if its().next().is_none() {
                continue;
            }
            if let Some(block) = self.block(cidr).await? {
                holders.extend(its().filter_map(|address| block.value.holder(*address)));
            }
        }
        Ok(holders)
    }

    /// The keys below a prefix that are keys of address management.
    pub(crate) async fn keys(&self, prefix: &str) -> Result<Vec<IpamKey>, IpamError> {
        let listing = self.store.list(KeyRange::prefix(prefix.to_owned())).await?;
        let keys = listing.items.iter();
        Ok(keys
            .filter_map(|found| String::from_utf8_lossy(&found.key).parse().ok())
            .collect())
    }

    /// Makes all the changes, if everything they concern is still as it was read; tells whether.
    pub(crate) async fn write(&self, changes: Vec<Change>) -> Result<bool, IpamError> {
        let mut txn = Txn::default();
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

fn read<T>(
    key: &str,
    found: &KeyValue,
    parse: impl Fn(&[u8]) -> Result<T, ParseError>,
) -> Result<Stored<T>, IpamError> {
    match parse(&found.value) {
        Ok(value) => Ok(Stored {
            value,
            revision: found.mod_revision,
        }),
        Err(error) => Err(IpamError::Unreadable {
            key: key.to_owned(),
            error,
        }),
    }
}
