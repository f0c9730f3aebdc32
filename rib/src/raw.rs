//! A cache of attribute blocks as received, so that the next message with the same block needs no
//! parsing: from octets to an interned set.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bgp_proto::{AttrBlock, Fault};
use hashbrown::HashTable;

use crate::attributes::AttrId;
use crate::limits::{RAW_OCTETS_MAX, RAW_SETS_MAX, RAW_TOTAL_OCTETS_MAX};

/// The result of parsing a block.
#[derive(Debug)]
pub(crate) struct RawEntry {
    hash: u64,
    /// The block's position in its generation's octets.
    at: u32,
    len: u32,
    /// The set and its generation; `None` if the errors leave nothing to use.
    pub(crate) set: Option<(AttrId, u32)>,
    pub(crate) faults: Box<[Fault]>,
}

/// Blocks that were cached at about the same time, and are dropped together.
#[derive(Debug, Default)]
struct Generation {
    entries: HashTable<RawEntry>,
    octets: Vec<u8>,
}

impl RawEntry {
    fn is(&self, hash: u64, block: &AttrBlock<'_>, octets: &[u8]) -> bool {
        let (at, len) = (self.at as usize, self.len as usize);
        self.hash == hash
            && octets
                .get(at..at + len)
                .is_some_and(|key| block.eq_key(key))
    }
}

impl Generation {
    fn find(&self, hash: u64, block: &AttrBlock<'_>) -> Option<&RawEntry> {
        let same = |entry: &RawEntry| entry.is(hash, block, &self.octets);
        self.entries.find(hash, same)
    }

    /// Removes a block, but not its octets.
    fn take(&mut self, hash: u64, block: &AttrBlock<'_>) -> Option<RawEntry> {
        let Self { entries, octets } = self;
        let entry = entries.find_entry(hash, |entry| entry.is(hash, block, octets));
        Some(entry.ok()?.remove().0)
    }

    /// Caches a block, unless it is too long.
    fn insert(&mut self, block: &AttrBlock<'_>, entry: RawEntry) -> Option<&RawEntry> {
        let at = self.octets.len();
        block.write_key(&mut self.octets);
        let len = self.octets.len() - at;
        if len > RAW_OCTETS_MAX {
            self.octets.truncate(at);
            return None;
        }
        let (at, len) = (u32::try_from(at).ok()?, u32::try_from(len).ok()?);
        let entry = RawEntry { at, len, ..entry };
        let entries = &mut self.entries;
        let place = entries.insert_unique(entry.hash, entry, |entry| entry.hash);
        Some(place.into_mut())
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= RAW_SETS_MAX || self.octets.len() >= RAW_TOTAL_OCTETS_MAX
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.octets.clear();
    }
}

/// A bounded cache of two generations: when the young one is full it becomes the old one, and an
/// entry found in the old one moves back. It holds no references: an entry whose set was removed is
/// recognized by the set's generation.
#[derive(Debug, Default)]
pub(crate) struct RawCache {
    young: Generation,
    old: Generation,
}

impl RawCache {
    /// Returns the result for the block, unless `is_current` reports that its set was removed.
    pub(crate) fn find(
        &mut self,
        hash: u64,
        block: &AttrBlock<'_>,
        is_current: impl Fn(AttrId, u32) -> bool,
    ) -> Option<&RawEntry> {
        let current = |entry: &RawEntry| entry.set.is_none_or(|(id, gen_)| is_current(id, gen_));
        let known = self.young.find(hash, block).map(&current);
        match known {
            Some(true) => return self.young.find(hash, block),
            Some(false) => {
                self.young.take(hash, block);
                return None;
            }
            None => {}
        }
        let entry = self.old.take(hash, block)?;
        if !current(&entry) {
            return None;
        }
        self.make_room();
        self.young.insert(block, entry)
    }

    /// Caches the result for a block.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        block: &AttrBlock<'_>,
        set: Option<(AttrId, u32)>,
        faults: &[Fault],
    ) {
        self.make_room();
        let entry = RawEntry {
            hash,
            at: 0,
            len: 0,
            set,
            faults: faults.into(),
        };
        self.young.insert(block, entry);
    }

    fn make_room(&mut self) {
        if self.young.is_full() {
            core::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn len(&self) -> usize {
        self.young.entries.len() + self.old.entries.len()
    }
}
