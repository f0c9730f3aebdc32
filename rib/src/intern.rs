//! Attribute sets, each stored once with a reference count.

use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};

use bgp_proto::{Asn, AttrBlock, Attributes, ClusterId, Fault, PackedAttributes, Packer, Remedy};
use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::attributes::{AttrId, Ranks};
use crate::limits::SET_OCTETS;
use crate::next_hop::NextHopTable;
use crate::peer::PeerId;
use crate::raw::RawCache;

/// State of one place in the interner.
#[derive(Clone, Copy, Debug)]
struct Meta {
    /// The set's hash, folded: see [`widen`].
    hash: u32,
    references: u32,
    /// How many sets had this place before.
    generation: u32,
    /// The peer whose account has the set: the first one that it was received from.
    owner: PeerId,
}

const _: () = assert!(size_of::<Meta>() == 16);

/// Folds a hash, so that it needs only half of the memory.
const fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

/// Returns the hash by which the index finds a set: all its bits depend on the folded one.
const fn widen(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A set at one time: unlike its number, which may be reused, this can be kept without a reference
/// and compared later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    id: AttrId,
    generation: u32,
}

const _: () = assert!(size_of::<Option<Stamp>>() == 8);

impl Stamp {
    pub(crate) const fn new(id: AttrId, generation: u32) -> Self {
        Self { id, generation }
    }

    /// Returns the number of the set, valid as long as a reference to it is held.
    pub(crate) const fn id(self) -> AttrId {
        self.id
    }
}

/// The result of a received block of attributes.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The set, with a reference that the caller has to release; `None` if the errors leave nothing
    /// to use.
    pub(crate) set: Option<AttrId>,
    /// The errors. Empty, as nearly always, it takes no memory.
    pub(crate) faults: Vec<Fault>,
}

/// Attribute sets by number, and the numbers by set.
#[derive(Debug)]
pub(crate) struct Interner {
    hasher: FixedState,
    local_asn: Asn,
    index: HashTable<u32>,
    // Three columns: the comparison of paths reads `ranks`, counting `meta`, only export the sets.
    sets: Vec<Option<PackedAttributes>>,
    ranks: Vec<Ranks>,
    meta: Vec<Meta>,
    free: Vec<u32>,
    /// By number of a peer: the octets of the sets in its account.
    owned: Vec<usize>,
    /// The octets of all sets.
    held: usize,
    /// The first generation of new places: above all generations before the interner was last
    /// empty.
    first_generation: u32,
    raw: RawCache,
    packer: Packer,
}

impl Interner {
    pub(crate) fn new(local_asn: Asn, seed: u64) -> Self {
        Self {
            hasher: FixedState::with_seed(seed),
            local_asn,
            index: HashTable::new(),
            sets: Vec::new(),
            ranks: Vec::new(),
            meta: Vec::new(),
            free: Vec::new(),
            owned: Vec::new(),
            held: 0,
            first_generation: 0,
            raw: RawCache::default(),
            packer: Packer::default(),
        }
    }

    /// Returns the set of a block of octets that a peer sent. A known block is neither parsed nor
    /// allocated.
    pub(crate) fn receive(
        &mut self,
        peer: PeerId,
        block: &AttrBlock<'_>,
        next_hops: &mut NextHopTable,
    ) -> Received {
        let mut hasher = self.hasher.build_hasher();
        block.hash(&mut hasher);
        let hash = hasher.finish();
        let meta = &self.meta;
        let is_current = |id: AttrId, generation| meta[id.index()].generation == generation;
        if let Some(entry) = self.raw.find(hash, block, is_current) {
            let set = entry.set.map(|(id, _)| id);
            let faults = entry.faults.to_vec();
            if let Some(id) = set {
                self.acquire(id, 1);
            }
            return Received { set, faults };
        }
        let (attributes, faults) = block.parse();
        let usable = faults
            .iter()
            .all(|fault| fault.remedy() < Remedy::TreatAsWithdraw);
        let set = usable.then(|| self.intern(peer, attributes, next_hops));
        let known = set.map(|id| (id, self.meta[id.index()].generation));
        self.raw.insert(hash, block, known, &faults);
        Received { set, faults }
    }

    /// Returns the number of a set, with a reference that the caller has to release. A new set is
    /// in the account of this peer until it is removed, whichever peers have it later.
    pub(crate) fn intern(
        &mut self,
        owner: PeerId,
        attributes: Attributes,
        next_hops: &mut NextHopTable,
    ) -> AttrId {
        let Self {
            hasher,
            index,
            sets,
            meta,
            packer,
            ..
        } = self;
        let packed = packer.pack(&attributes);
        let hash = fold(hasher.hash_one(packed));
        let same = |&at: &u32| {
            let set = sets[at as usize].as_ref();
            meta[at as usize].hash == hash && set.is_some_and(|set| set.octets() == packed)
        };
        if let Some(&at) = index.find(widen(hash), same) {
            meta[at as usize].references += 1;
            return AttrId::from_index(at);
        }
        let next_hop = next_hops.acquire(attributes.next_hop_address());
        let ranks = Ranks::new(&attributes, self.local_asn, next_hop);
        let packed = self.packer.keep();
        let octets = SET_OCTETS + packed.octets().len();
        self.held += octets;
        self.charge(owner, octets);
        let at = self.place(packed, ranks, (hash, owner));
        let meta = &self.meta;
        self.index
            .insert_unique(widen(hash), at, |&at| widen(meta[at as usize].hash));
        AttrId::from_index(at)
    }

    fn charge(&mut self, owner: PeerId, octets: usize) {
        let at = usize::from(owner.0);
        if at >= self.owned.len() {
            self.owned.resize(at + 1, 0);
        }
        self.owned[at] += octets;
    }

    /// Returns the octets of the sets in a peer's account.
    pub(crate) fn owned(&self, peer: PeerId) -> usize {
        let octets = self.owned.get(usize::from(peer.0));
        octets.copied().unwrap_or_default()
    }

    /// Returns the octets of the sets in all accounts.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    /// Moves the sets in the accounts of these peers, which other peers still have, to that of no
    /// peer: the numbers of these peers are about to be used again. Reads all sets, but only once.
    pub(crate) fn disown(&mut self, peers: &[PeerId]) {
        let mut octets = 0;
        for peer in peers.iter().filter(|&&peer| peer != PeerId::LOCAL) {
            if let Some(owned) = self.owned.get_mut(usize::from(peer.0)) {
                octets += core::mem::take(owned);
            }
        }
        if octets == 0 {
            return;
        }
        self.charge(PeerId::LOCAL, octets);
        // An account with a set has octets, except for those that have just been emptied.
        for meta in &mut self.meta {
            if self.owned[usize::from(meta.owner.0)] == 0 {
                meta.owner = PeerId::LOCAL;
            }
        }
    }

    fn place(
        &mut self,
        attributes: PackedAttributes,
        ranks: Ranks,
        (hash, owner): (u32, PeerId),
    ) -> u32 {
        if let Some(at) = self.free.pop() {
            let slot = at as usize;
            self.sets[slot] = Some(attributes);
            self.ranks[slot] = ranks;
            self.meta[slot].hash = hash;
            self.meta[slot].references = 1;
            self.meta[slot].owner = owner;
            return at;
        }
        self.sets.push(Some(attributes));
        self.ranks.push(ranks);
        self.meta.push(Meta {
            hash,
            references: 1,
            generation: self.first_generation,
            owner,
        });
        self.sets.len() as u32 - 1
    }

    /// Sets the local AS: every set is ranked again.
    pub(crate) fn set_local_asn(&mut self, local_asn: Asn) {
        self.local_asn = local_asn;
        for (set, ranks) in self.sets.iter().zip(&mut self.ranks) {
            if let Some(set) = set {
                *ranks = Ranks::new(&set.unpack(), local_asn, ranks.next_hop);
            }
        }
    }

    /// Adds this many references.
    pub(crate) fn acquire(&mut self, id: AttrId, count: u32) {
        self.meta[id.index()].references += count;
    }

    /// Releases this many references; the last one removes the set.
    #[inline]
    pub(crate) fn release(&mut self, id: AttrId, count: u32, next_hops: &mut NextHopTable) {
        let meta = &mut self.meta[id.index()];
        debug_assert!(
            meta.references >= count,
            "{id:?} is released more often than acquired"
        );
        meta.references -= count;
        if meta.references == 0 {
            self.forget(id.index(), next_hops);
        }
    }

    fn forget(&mut self, at: usize, next_hops: &mut NextHopTable) {
        let meta = &mut self.meta[at];
        meta.generation = meta.generation.wrapping_add(1);
        let (hash, owner) = (widen(meta.hash), usize::from(meta.owner.0));
        if let Some(set) = self.sets[at].take() {
            let octets = SET_OCTETS + set.octets().len();
            self.held -= octets;
            self.owned[owner] -= octets;
        }
        next_hops.release(self.ranks[at].next_hop);
        if let Ok(entry) = self.index.find_entry(hash, |&other| other as usize == at) {
            entry.remove();
        }
        self.free.push(at as u32);
        if self.index.is_empty() {
            // No number is in use any more, and the raw cache has none that it could confuse.
            self.raw.clear();
            self.index = HashTable::new();
            self.sets = Vec::new();
            self.ranks = Vec::new();
            let last = self.meta.iter().map(|meta| meta.generation).max();
            self.first_generation = last.unwrap_or_default().wrapping_add(1);
            self.meta = Vec::new();
            self.free = Vec::new();
            self.owned = Vec::new();
        }
    }

    /// Returns the set of a number that the caller holds a reference of.
    pub(crate) fn get(&self, id: AttrId) -> Attributes {
        match self.find(id) {
            Some(set) => set,
            None => unreachable!("{id:?} is used without a reference"),
        }
    }

    /// Returns the set of a number, if it is in use.
    pub(crate) fn find(&self, id: AttrId) -> Option<Attributes> {
        let packed = self.sets.get(id.index())?.as_ref()?;
        Some(packed.unpack())
    }

    /// Returns the CLUSTER_LIST of a set that the caller holds a reference of.
    pub(crate) fn cluster_list(&self, id: AttrId) -> impl Iterator<Item = ClusterId> + '_ {
        let packed = self.sets.get(id.index()).and_then(Option::as_ref);
        packed.into_iter().flat_map(PackedAttributes::cluster_list)
    }

    /// Returns the stamp of a set that the caller holds a reference of, to be compared later.
    pub(crate) fn stamp(&self, id: AttrId) -> Stamp {
        Stamp::new(id, self.meta[id.index()].generation)
    }

    /// Returns the packed octets of a set; 0 if it is not in use.
    pub(crate) fn octets(&self, id: AttrId) -> usize {
        let set = self.sets.get(id.index()).and_then(Option::as_ref);
        set.map_or(0, |set| set.octets().len())
    }

    pub(crate) fn ranks(&self, id: AttrId) -> &Ranks {
        &self.ranks[id.index()]
    }

    /// Returns the number of sets.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of cached blocks.
    pub(crate) fn raw_len(&self) -> usize {
        self.raw.len()
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use bgp_proto::Community;

    use super::*;
    use crate::next_hop::NextHops;

    fn set(number: u32) -> Attributes {
        Attributes {
            communities: (0..number).map(Community).collect(),
            ..Attributes::default()
        }
    }

    /// A set is in the account of the peer that sent it first, until nothing refers to it.
    #[test]
    fn set_is_in_one_account_until_removed() {
        let mut interner = Interner::new(Asn(1), 7);
        let mut next_hops = NextHopTable::new(NextHops::AssumeReachable);
        // By set: its owner, its id and its references.
        let mut naive: BTreeMap<u32, (u16, AttrId, u32)> = BTreeMap::new();
        let mut random = 1_u32;
        for _ in 0..5000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (number, peer) = (random >> 8 & 31, (random >> 16 & 3) as u16);
            match (random >> 24 & 7, naive.get_mut(&number)) {
                (0..=3, None) => {
                    let id = interner.intern(PeerId(peer), set(number), &mut next_hops);
                    naive.insert(number, (peer, id, 1));
                }
                (0..=3, Some(known)) => {
                    let id = interner.intern(PeerId(peer), set(number), &mut next_hops);
                    assert_eq!(id, known.1);
                    known.2 += 1;
                }
                (4, _) if random >> 20 & 7 == 0 => {
                    // Peer 9 has no account.
                    let removed = [peer, 9, random as u16 & 3];
                    interner.disown(&removed.map(PeerId));
                    let owned = naive
                        .values_mut()
                        .filter(|known| removed.contains(&known.0));
                    owned.for_each(|known| known.0 = 0);
                }
                (_, Some(known)) => {
                    interner.release(known.1, 1, &mut next_hops);
                    known.2 -= 1;
                    if known.2 == 0 {
                        naive.remove(&number);
                    }
                }
                (_, None) => {}
            }
            for peer in 0..4 {
                let owned = naive.values().filter(|known| known.0 == peer);
                let octets = owned.map(|known| SET_OCTETS + interner.octets(known.1));
                assert_eq!(interner.owned(PeerId(peer)), octets.sum::<usize>());
            }
            assert_eq!(interner.held(), interner.owned.iter().sum::<usize>());
        }
    }
}
