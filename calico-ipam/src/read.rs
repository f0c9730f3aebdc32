//! Reads the data of one decision with one request, as of one revision.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bytes::Bytes;
use calico_model::{AllocationBlock, BlockAffinity, IpamConfig, IpamHandle, IpamKey, ParseError};
use calico_store::limits::LIST_PAGE_KEYS;
use calico_store::{KeyRange, KeyValue, Op, OpReply, Query, Revision, Txn};
use ipnet::IpNet;

use crate::block::{Block, Holder};
use crate::error::IpamError;
use crate::limits::{BLOCK_ADDRESSES_MAX, LOOKED_UP_MAX};
use crate::store::Ipam;
use crate::stored::Stored;

/// Keys and values, all as of one revision.
#[derive(Debug, Default)]
pub(crate) struct Seen(BTreeMap<Bytes, KeyValue>);

impl Seen {
    fn get<T>(
        &self,
        key: &IpamKey,
        parse: impl Fn(&[u8]) -> Result<T, ParseError>,
    ) -> Result<Option<Stored<T>>, IpamError> {
        let key = key.to_string();
        let Some(found) = self.0.get(key.as_bytes()) else {
            return Ok(None);
        };
        match parse(&found.value) {
            Ok(value) => Ok(Some(Stored {
                value,
                revision: found.mod_revision,
            })),
            Err(error) => Err(IpamError::Unreadable { key, error }),
        }
    }

    /// Returns the IPAM configuration.
    pub(crate) fn config(&self) -> Result<IpamConfig, IpamError> {
        let stored = self.get(&IpamKey::Config, IpamConfig::parse)?;
        Ok(stored.map_or_else(IpamConfig::default, |stored| stored.value))
    }

    pub(crate) fn affinity(
        &self,
        key: &IpamKey,
    ) -> Result<Option<Stored<BlockAffinity>>, IpamError> {
        self.get(key, BlockAffinity::parse)
    }

    pub(crate) fn handle(&self, id: &str) -> Result<Option<Stored<IpamHandle>>, IpamError> {
        self.get(&IpamKey::Handle(id.to_owned()), IpamHandle::parse)
    }

    pub(crate) fn block(&self, cidr: IpNet) -> Result<Option<Stored<Block>>, IpamError> {
        let stored = self.get(&IpamKey::Block(cidr), AllocationBlock::parse)?;
        let Some(Stored { value, revision }) = stored else {
            return Ok(None);
        };
        let value =
            Block::stored(value).map_err(|fault| IpamError::Block { block: cidr, fault })?;
        Ok(Some(Stored { value, revision }))
    }

    /// Returns the keys of address management that were read, with their revisions.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (IpamKey, Revision)> {
        self.0.values().filter_map(|found| {
            let key = String::from_utf8_lossy(&found.key).parse().ok()?;
            Some((key, found.mod_revision))
        })
    }
}

/// Returns the range of one key.
pub(crate) fn just(key: &IpamKey) -> KeyRange {
    KeyRange::key(key.to_string())
}

impl Ipam<'_> {
    /// Reads ranges, all at one revision. They must be few and small, otherwise this takes more
    /// than one request.
    pub(crate) async fn see(&self, ranges: Vec<KeyRange>) -> Result<Seen, IpamError> {
        self.ask(ranges.into_iter().map(Query::new).collect()).await
    }

    async fn ask(&self, queries: Vec<Query>) -> Result<Seen, IpamError> {
        let txn = Txn {
            then: queries.into_iter().map(Op::Range).collect(),
            ..Txn::default()
        };
        let mut seen = Seen::default();
        for reply in self.store.txn(txn).await?.replies {
            if let OpReply::Range(listing) = reply {
                let items = listing.items.into_iter();
                seen.0.extend(items.map(|item| (item.key.clone(), item)));
            }
        }
        Ok(seen)
    }

    /// Reads every block. An unreadable block is returned as `None`.
    pub async fn blocks(&self) -> Result<Vec<(IpNet, Option<Block>)>, IpamError> {
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

    /// Reads the IPAM configuration.
    pub async fn config(&self) -> Result<IpamConfig, IpamError> {
        self.see(vec![just(&IpamKey::Config)]).await?.config()
    }

    /// Reads the ranges of all blocks.
    pub(crate) async fn block_ranges(&self) -> Result<BTreeSet<IpNet>, IpamError> {
        let keys = self.keys(IpamKey::BLOCKS).await?.into_iter();
        Ok(keys
            .filter_map(|key| match key {
                IpamKey::Block(cidr) => Some(cidr),
                _ => None,
            })
            .collect())
    }

    /// Reads the keys of address management below a prefix.
    pub(crate) async fn keys(&self, prefix: &str) -> Result<Vec<IpamKey>, IpamError> {
        let mut query = Query {
            limit: LIST_PAGE_KEYS,
            keys_only: true,
            ..Query::new(KeyRange::prefix(prefix.to_owned()))
        };
        let mut keys = Vec::new();
        loop {
            let page = self.store.range(query.clone()).await?;
            query.at.get_or_insert(page.header.revision);
            let found = page.items.iter();
            keys.extend(found.filter_map(|item| String::from_utf8_lossy(&item.key).parse().ok()));
            match page.items.last() {
                Some(last) if page.more => query.range = query.range.after(&last.key),
                _ => return Ok(keys),
            }
        }
    }

    /// Returns the block of each address that is in a block.
    pub(crate) async fn homes(
        &self,
        addresses: &[IpAddr],
    ) -> Result<BTreeMap<IpAddr, IpNet>, IpamError> {
        let known = if addresses.len() > LOOKED_UP_MAX {
            self.block_ranges().await?
        } else {
            let keys = addresses.iter().flat_map(|address| possible(*address));
            let queries = keys.map(|cidr| Query {
                keys_only: true,
                ..Query::new(just(&IpamKey::Block(cidr)))
            });
            let seen = self.ask(queries.collect()).await?;
            let blocks = seen.keys().filter_map(|(key, _)| match key {
                IpamKey::Block(cidr) => Some(cidr),
                _ => None,
            });
            blocks.collect()
        };
        let home = |address: &IpAddr| possible(*address).find(|cidr| known.contains(cidr));
        let homes = addresses.iter().filter_map(|at| Some((*at, home(at)?)));
        Ok(homes.collect())
    }

    /// Returns the allocations of these addresses; an address without one is left out.
    pub async fn holders(&self, addresses: &[IpAddr]) -> Result<Vec<Holder>, IpamError> {
        let mut by_block: BTreeMap<IpNet, Vec<IpAddr>> = BTreeMap::new();
        for (address, cidr) in self.homes(addresses).await? {
            by_block.entry(cidr).or_default().push(address);
        }
        let mut holders = Vec::new();
        for (cidr, addresses) in by_block {
            let seen = self.see(vec![just(&IpamKey::Block(cidr))]).await?;
            if let Some(block) = seen.block(cidr)? {
                let held = addresses.iter().filter_map(|at| block.value.holder(*at));
                holders.extend(held);
            }
        }
        Ok(holders)
    }
}

/// Returns the ranges of blocks that could contain an address, whatever the block size of its pool
/// is or was.
pub(crate) fn possible(address: IpAddr) -> impl Iterator<Item = IpNet> {
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let shortest = longest - u8::try_from(BLOCK_ADDRESSES_MAX.ilog2()).unwrap_or_default();
    (shortest..=longest)
        .rev()
        .filter_map(move |length| Some(IpNet::new(address, length).ok()?.trunc()))
}

/// Returns whether a block would overlap an existing one.
pub(crate) fn overlaps(known: &BTreeSet<IpNet>, cidr: IpNet) -> bool {
    let around = possible(cidr.network()).any(|other| known.contains(&other));
    // Only the first range from this position on could start within the block.
    let within = known.range(cidr..).next();
    around || within.is_some_and(|other| cidr.contains(other))
}
