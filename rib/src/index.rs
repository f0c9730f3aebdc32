//! The index of a table: from hashes to slots.
//!
//! Open addressing in one array whose places are in the order of their hashes. If a table does not
//! fit into caches, a lookup waits for memory once, and not at all if it follows soon after
//! [`Index::touch`]; a growing index reads the old array and writes the new one from one end to the
//! other. A place has 8 octets, and at most [`FULL_NUM`] of [`FULL_DEN`] are used.

use alloc::vec::Vec;

/// A place: the hash in the upper half, the slot's number plus 1 in the lower one; 0 is free.
type Place = u64;

const FREE: Place = 0;
const FULL_NUM: usize = 25;
const FULL_DEN: usize = 32;
const BITS_MIN: u32 = 3;
/// Places at the end beyond the homes of all hashes, made as needed.
const SPARE: usize = 8;

/// Slots by their hashes; several may have the same hash.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// No free place is between a place and its hash's home.
    places: Vec<Place>,
    /// So many upper bits of a hash are its home.
    bits: u32,
    len: usize,
}

const fn place(hash: u32, slot: u32) -> Place {
    (hash as u64) << 32 | (slot as u64 + 1)
}

const fn hash_of(place: Place) -> u32 {
    (place >> 32) as u32
}

const fn slot_of(place: Place) -> u32 {
    (place as u32).wrapping_sub(1)
}

impl Index {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    const fn home(&self, hash: u32) -> usize {
        (hash as u64 >> (32 - self.bits)) as usize
    }

    /// Reads the start of a lookup. A caller that does this for many lookups before the first one
    /// waits for memory once.
    pub(crate) fn touch(&self, hash: u32) -> u64 {
        self.places.get(self.home(hash)).copied().unwrap_or(FREE)
    }

    /// Returns the slot with this hash for which `same` returns true.
    pub(crate) fn find(&self, hash: u32, same: impl Fn(u32) -> bool) -> Option<u32> {
        let beyond = self.places.get(self.home(hash)..)?;
        for &place in beyond {
            if place == FREE || hash_of(place) > hash {
                return None;
            }
            if hash_of(place) == hash && same(slot_of(place)) {
                return Some(slot_of(place));
            }
        }
        None
    }

    /// Adds a slot that is not in the index.
    pub(crate) fn insert(&mut self, hash: u32, slot: u32) {
        if self.len * FULL_DEN >= (1 << self.bits) * FULL_NUM || self.places.is_empty() {
            self.grow();
        }
        let beyond = self.places.get(self.home(hash)..).unwrap_or_default();
        let ends = |&place: &Place| place == FREE || hash_of(place) > hash;
        let run = beyond.iter().position(ends).unwrap_or(beyond.len());
        // The following places move on, up to the next free place.
        let mut moved = place(hash, slot);
        for at in self.home(hash) + run.. {
            if at == self.places.len() {
                self.places.reserve_exact(SPARE);
                self.places.resize(at + SPARE, FREE);
            }
            moved = core::mem::replace(&mut self.places[at], moved);
            if moved == FREE {
                break;
            }
        }
        self.len += 1;
    }

    /// Removes a slot, if it is in the index.
    pub(crate) fn remove(&mut self, hash: u32, slot: u32) {
        let wanted = place(hash, slot);
        let mut at = self.home(hash);
        while let Some(&place) = self.places.get(at)
            && place != wanted
        {
            if place == FREE || hash_of(place) > hash {
                return;
            }
            at += 1;
        }
        if at >= self.places.len() {
            return;
        }
        // The following places move up, but none before its home.
        while let Some(&next) = self.places.get(at + 1)
            && next != FREE
            && self.home(hash_of(next)) <= at
        {
            self.places[at] = next;
            at += 1;
        }
        self.places[at] = FREE;
        self.len -= 1;
        if self.len == 0 {
            // The index is empty, so its memory is released, too.
            *self = Self::default();
        }
    }

    /// Doubles the number of places.
    fn grow(&mut self) {
        let bits = (self.bits + 1).max(BITS_MIN);
        let room = alloc::vec![FREE; (1 << bits) + SPARE];
        let old = core::mem::replace(&mut self.places, room);
        self.bits = bits;
        let mut next = 0;
        for place in old.into_iter().filter(|&place| place != FREE) {
            let at = next.max(self.home(hash_of(place)));
            match self.places.get_mut(at) {
                Some(free) => *free = place,
                None => self.places.push(place),
            }
            next = at + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use core::hash::BuildHasher;
    use foldhash::fast::FixedState;
    use proptest::prelude::*;

    use super::*;

    impl Index {
        /// Asserts the invariants of lookups.
        fn check(&self) {
            let mut last = 0;
            let mut free_before = true;
            for (at, &place) in self.places.iter().enumerate() {
                if place != FREE {
                    let hash = hash_of(place);
                    assert!(hash >= last, "in order");
                    assert!(self.home(hash) <= at, "not before its home");
                    assert!(
                        self.home(hash) == at || !free_before,
                        "nothing free between a place and its home"
                    );
                    last = hash;
                }
                free_before = place == FREE;
            }
            let taken = self.places.iter().filter(|&&place| place != FREE);
            assert_eq!(taken.count(), self.len);
        }

        /// Returns the greatest distance of a place from its home.
        fn farthest(&self) -> usize {
            let places = self.places.iter().enumerate();
            let taken = places.filter(|(_, place)| **place != FREE);
            let far = taken.map(|(at, &place)| at - self.home(hash_of(place)));
            far.max().unwrap_or(0)
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Insert(u32),
        Remove(u32, usize),
    }

    /// Generates hashes that are often equal, and often at either end.
    fn hash() -> impl Strategy<Value = u32> {
        prop_oneof![
            any::<u32>(),
            (0..4u32).prop_map(|low| u32::MAX - low),
            0..4u32,
            Just(0x8000_0000),
        ]
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => hash().prop_map(Event::Insert),
            2 => (hash(), any::<usize>()).prop_map(|(hash, which)| Event::Remove(hash, which)),
        ]
    }

    proptest! {
        #[test]
        fn index_is_equivalent_to_a_set(events in prop::collection::vec(event(), 0..200)) {
            let mut index = Index::default();
            let mut set: BTreeSet<(u32, u32)> = BTreeSet::new();
            for (number, event) in (0..).zip(events) {
                match event {
                    Event::Insert(hash) => {
                        index.insert(hash, number);
                        set.insert((hash, number));
                    }
                    // A slot that is in the index, and one that mostly is not.
                    Event::Remove(hash, which) => {
                        index.remove(hash, which as u32);
                        set.remove(&(hash, which as u32));
                        let there = set.iter().nth(which % set.len().max(1)).copied();
                        if let Some((hash, slot)) = there {
                            index.remove(hash, slot);
                            set.remove(&(hash, slot));
                            prop_assert_eq!(index.find(hash, |at| at == slot), None);
                        }
                    }
                }
                index.check();
                prop_assert_eq!(index.len(), set.len());
                for &(hash, slot) in &set {
                    prop_assert_eq!(index.find(hash, |at| at == slot), Some(slot));
                }
            }
        }
    }

    /// Prefixes are often consecutive: their hashes must not be.
    #[test]
    fn rows_of_prefixes_are_spread() {
        let hasher = FixedState::with_seed(7);
        for (len, step) in [(32, 1), (24, 1 << 8), (26, 64), (16, 1 << 16)] {
            let mut index = Index::default();
            let count = if len == 16 { 40_000 } else { 200_000 };
            for number in 0..count {
                let key = u64::from(0x0a00_0000_u32.wrapping_add(number * step)) << 8 | len;
                index.insert((hasher.hash_one(key) >> 32) as u32, number);
            }
            assert!(index.farthest() < 128, "/{len}: {}", index.farthest());
        }
    }
}
