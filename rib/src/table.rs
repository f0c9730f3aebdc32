//! The prefixes of one family: slots in a slab, found by a hash index.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::{BuildHasher, Hash, Hasher};

use bgp_proto::{FamilyRow, Ipv4Prefix, Ipv6Prefix, Net};
use foldhash::fast::FixedState;

use crate::index::Index;
use crate::slot::Slot;

/// The key that identifies a prefix of a family.
pub(crate) trait Key: Debug + Sized + 'static {
    /// The borrowed form of the key.
    type Ref<'a>: Copy;
    /// Whether it is a key of opaque octets.
    const IS_OPAQUE: bool = false;

    /// Returns the key of a destination; `None` if it is of another kind.
    fn find<'a>(net: Net<'a>, row: &FamilyRow, scratch: &'a mut Vec<u8>) -> Option<Self::Ref<'a>>;
    fn own(key: Self::Ref<'_>) -> Self;
    fn borrow(&self) -> Self::Ref<'_>;
    fn same(&self, key: Self::Ref<'_>) -> bool;
    fn hash(key: Self::Ref<'_>, hasher: &mut impl Hasher);
    /// Returns the key as a destination: the whole one, unless the family has octets beside it.
    fn net(&self) -> Net<'_>;
}

impl Key for Ipv4Prefix {
    type Ref<'a> = Self;

    fn find<'a>(net: Net<'a>, _: &FamilyRow, _: &'a mut Vec<u8>) -> Option<Self> {
        match net {
            Net::V4(prefix) => Some(prefix),
            _ => None,
        }
    }

    fn own(key: Self) -> Self {
        key
    }

    fn borrow(&self) -> Self {
        *self
    }

    fn same(&self, key: Self) -> bool {
        *self == key
    }

    fn hash(key: Self, hasher: &mut impl Hasher) {
        hasher.write_u64(u64::from(key.addr().to_bits()) << 8 | u64::from(key.len()));
    }

    fn net(&self) -> Net<'_> {
        Net::V4(*self)
    }
}

impl Key for Ipv6Prefix {
    type Ref<'a> = Self;

    fn find<'a>(net: Net<'a>, _: &FamilyRow, _: &'a mut Vec<u8>) -> Option<Self> {
        match net {
            Net::V6(prefix) => Some(prefix),
            _ => None,
        }
    }

    fn own(key: Self) -> Self {
        key
    }

    fn borrow(&self) -> Self {
        *self
    }

    fn same(&self, key: Self) -> bool {
        *self == key
    }

    fn hash(key: Self, hasher: &mut impl Hasher) {
        hasher.write_u128(key.addr().to_bits());
        hasher.write_u8(key.len());
    }

    fn net(&self) -> Net<'_> {
        Net::V6(*self)
    }
}

/// The octets that identify a route of a family with opaque NLRI.
#[derive(Debug)]
pub(crate) struct OctetKey(Box<[u8]>);

impl Key for OctetKey {
    type Ref<'a> = &'a [u8];
    const IS_OPAQUE: bool = true;

    fn find<'a>(net: Net<'a>, row: &FamilyRow, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let Net::Opaque(octets) = net else {
            return None;
        };
        scratch.clear();
        row.key(octets, scratch);
        Some(scratch)
    }

    fn own(key: &[u8]) -> Self {
        Self(key.into())
    }

    fn borrow(&self) -> &[u8] {
        &self.0
    }

    fn same(&self, key: &[u8]) -> bool {
        *self.0 == *key
    }

    fn hash(key: &[u8], hasher: &mut impl Hasher) {
        key.hash(hasher);
    }

    fn net(&self) -> Net<'_> {
        Net::Opaque(&self.0)
    }
}

/// The slots of one family, with their index.
#[derive(Debug)]
pub(crate) struct Table<K> {
    hasher: FixedState,
    index: Index,
    slots: Vec<Slot<K>>,
    free: Vec<u32>,
}

impl<K: Key> Table<K> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            hasher: FixedState::with_seed(seed),
            index: Index::default(),
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Returns the hash for the index.
    pub(crate) fn hash(&self, key: K::Ref<'_>) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        K::hash(key, &mut hasher);
        (hasher.finish() >> 32) as u32
    }

    /// Prefetches the memory that the lookups of all these hashes read, so that the processor does
    /// not wait for one after the other.
    pub(crate) fn warm(&self, hashes: impl Iterator<Item = u32>) {
        core::hint::black_box(hashes.fold(0, |all, hash| all ^ self.index.touch(hash)));
    }

    /// Returns the slot of a prefix.
    pub(crate) fn find(&self, key: K::Ref<'_>) -> Option<u32> {
        self.find_by(key, self.hash(key))
    }

    /// Returns the slot of a prefix with a known hash.
    pub(crate) fn find_by(&self, key: K::Ref<'_>, hash: u32) -> Option<u32> {
        let same = |slot: u32| self.slots[slot as usize].key().same(key);
        self.index.find(hash, same)
    }

    /// Returns the slot of a prefix, made if there is none.
    pub(crate) fn find_or_insert(&mut self, key: K::Ref<'_>, hash: u32) -> u32 {
        if let Some(at) = self.find_by(key, hash) {
            return at;
        }
        let slot = Slot::new(K::own(key));
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.index.insert(hash, at);
        at
    }

    /// Returns the hash of a slot's prefix.
    pub(crate) fn hash_at(&self, at: u32) -> u32 {
        let slot = self.slots.get(at as usize);
        slot.map_or(0, |slot| self.hash(slot.key().borrow()))
    }

    /// Releases a slot without paths.
    pub(crate) fn remove(&mut self, at: u32) {
        let hash = self.hash_at(at);
        self.slots[at as usize].release();
        self.index.remove(hash, at);
        self.free.push(at);
        if self.index.is_empty() {
            // The table is empty, so its memory is released, too; the order of hashes does not
            // matter here.
            self.slots = Vec::new();
            self.free = Vec::new();
        }
    }

    pub(crate) fn slot(&self, at: u32) -> &Slot<K> {
        &self.slots[at as usize]
    }

    pub(crate) fn slot_mut(&mut self, at: u32) -> &mut Slot<K> {
        &mut self.slots[at as usize]
    }

    /// Returns the slot, if there is one in use.
    pub(crate) fn used(&self, at: u32) -> Option<&Slot<K>> {
        self.slots.get(at as usize).filter(|slot| !slot.is_free())
    }

    /// Returns the number of slots, including free ones.
    pub(crate) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the number of prefixes, including those that are only kept until readers have read
    /// their withdrawal.
    pub(crate) fn used_len(&self) -> usize {
        self.index.len()
    }
}
