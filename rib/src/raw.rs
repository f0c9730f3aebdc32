//! Attribute blocks as received, remembered so that the next message with the same block needs no
//! parsing: the way from octets to an interned set.

use alloc::boxed::Box;
use alloc::vec::Vec;

use bgp_proto::{AttrBlock, Fault};
use hashbrown::HashTable;

use crate::attributes::AttrId;
use crate::limits::{RAW_OCTETS_MAX, RAW_SETS_MAX};

/// What a block turned out to be.
#[derive(Clone, Debug)]
pub(crate) struct RawEntry {
    hash: u64,
    key: Box<[u8]>,
    /// The set and its generation; `None` if the faults leave nothing to use.
    pub(crate) set: Option<(AttrId, u32)>,
    pub(crate) faults: Box<[Fault]>,
}

/// A bounded cache of two generations: when the young one is full it becomes the old one, and what
/// is asked for in the old one moves back. It holds no references: an entry whose set has gone is
/// recognised by the set's generation.
#[derive(Debug, Default)]
pub(crate) struct RawCache {
    young: HashTable<RawEntry>,
    old: HashTable<RawEntry>,
    scratch: Vec<u8>,
}

impl RawCache {
    /// What is known of the block, unless `is_current` says that its set has gone.
    pub(crate) fn find(
        &mut self,
        hash: u64,
        block: &AttrBlock<'_>,
        is_current: impl Fn(AttrId, u32) -> bool,
    ) -> Option<&RawEntry> {
        let same = |entry: &RawEntry| entry.hash == hash && block.eq_key(&entry.key);
        let current = |entry: &RawEntry| entry.set.is_none_or(|(id, gen_)| is_current(id, gen_));
        let known = self.young.find(hash, same).map(&current);
        match known {
            Some(true) => return self.young.find(hash, same),
            Some(false) => {
                self.young.find_entry(hash, same).ok()?.remove();
                return None;
            }
            None => {}
        }
        let (entry, _) = self.old.find_entry(hash, same).ok()?.remove();
        if !current(&entry) {
            return None;
        }
        self.make_room();
        Some(
            self.young
                .insert_unique(hash, entry, |entry| entry.hash)
                .into_mut(),
        )
    }

    /// Remembers what a block turned out to be.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        block: &AttrBlock<'_>,
        set: Option<(AttrId, u32)>,
        faults: &[Fault],
    ) {
        self.scratch.clear();
        block.write_key(&mut self.scratch);
        if self.scratch.len() > RAW_OCTETS_MAX {
            return;
        }
        self.make_room();
        let entry = RawEntry {
            hash,
            key: self.scratch.as_slice().into(),
            set,
            faults: faults.into(),
        };
        self.young.insert_unique(hash, entry, |entry| entry.hash);
    }

    fn make_room(&mut self) {
        if self.young.len() >= RAW_SETS_MAX {
            core::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
