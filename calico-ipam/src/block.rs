//! One block: its free addresses and its allocations.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_model::{AffinityOwner, AllocationAttribute, AllocationBlock, Ordinal};
use ipnet::IpNet;

use crate::limits::BLOCK_ADDRESSES_MAX;
use crate::time::Time;

/// The handle of addresses that Windows hosts reserve for themselves; they do not count as in use.
const WINDOWS_RESERVED: &str = "windows-reserved-ipam-handle";

/// A consistent block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block(AllocationBlock);

/// How a stored block is inconsistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockFault {
    /// It has more addresses than a block may have.
    #[error("it is larger than any block")]
    Size,
    /// Its list of allocations does not have one entry per address.
    #[error("its allocations are not one an address")]
    Allocations,
    /// An allocation refers to attributes that do not exist.
    #[error("an allocation has no attributes")]
    Attributes,
    /// An address is both free and allocated, or neither.
    #[error("an address is both free and allocated, or neither")]
    Unallocated,
}

/// The handle and attributes of new allocations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker {
    /// The handle, by which all addresses can be released at once.
    pub handle: String,
    /// Node, namespace, pod and the like.
    pub attributes: BTreeMap<String, String>,
}

/// An address, and the block's sequence number at its allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Given {
    /// The address.
    pub address: IpAddr,
    /// The sequence number that a release can require.
    pub sequence: u64,
}

impl Given {
    /// Returns a release of the address, conditional on this handle and sequence number.
    pub fn release(&self, handle: &str) -> Release {
        Release {
            address: self.address,
            handle: Some(handle.to_owned()),
            sequence: Some(self.sequence),
        }
    }
}

/// A request to release an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The address.
    pub address: IpAddr,
    /// Release only if the address is allocated to this handle.
    pub handle: Option<String>,
    /// Release only if the address has not been allocated again since.
    pub sequence: Option<u64>,
}

impl Release {
    /// Returns a release without conditions.
    pub const fn of(address: IpAddr) -> Self {
        Self {
            address,
            handle: None,
            sequence: None,
        }
    }
}

/// The allocation of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The address, and the block's sequence number at its allocation.
    pub given: Given,
    /// The handle of the allocation.
    pub handle: Option<String>,
    /// Node, namespace, pod and the like.
    pub attributes: BTreeMap<String, String>,
}

impl Holder {
    /// Returns a release of the address, conditional on this allocation.
    pub fn release(&self) -> Release {
        Release {
            address: self.given.address,
            handle: self.handle.clone(),
            sequence: Some(self.given.sequence),
        }
    }
}

/// The result of a release.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Released {
    /// Number of released addresses by handle.
    pub by_handle: BTreeMap<String, u32>,
    /// Addresses that were not allocated.
    pub not_taken: Vec<IpAddr>,
}

impl Block {
    /// Creates a block without allocations. Its first sequence number is derived from the time, so
    /// that a block that is deleted and created again does not repeat any.
    pub fn fresh(cidr: IpNet, owner: &AffinityOwner, now: Time) -> Result<Self, BlockFault> {
        let size = size(cidr).ok_or(BlockFault::Size)?;
        let ordinals = (0..=Ordinal::MAX).take(size);
        Ok(Self(AllocationBlock {
            cidr: cidr.trunc(),
            affinity: Some(owner.to_string()),
            affinity_claim_time: Some(now.text()),
            allocations: vec![None; size],
            unallocated: ordinals.collect(),
            attributes: Vec::new(),
            sequence_number: now.nanoseconds(),
            sequence_number_for_allocation: BTreeMap::new(),
            deleted: false,
            host_affinity: None,
            unknown: BTreeMap::new(),
        }))
    }

    /// Checks a stored block for consistency.
    pub fn stored(block: AllocationBlock) -> Result<Self, BlockFault> {
        let size = size(block.cidr).ok_or(BlockFault::Size)?;
        if block.allocations.len() != size {
            return Err(BlockFault::Allocations);
        }
        let known = block.attributes.len();
        if block
            .allocations
            .iter()
            .flatten()
            .any(|place| *place >= known)
        {
            return Err(BlockFault::Attributes);
        }
        let free: BTreeSet<usize> = block
            .unallocated
            .iter()
            .map(|at| usize::from(*at))
            .collect();
        let untaken = (0..size).filter(|at| block.allocations.get(*at) == Some(&None));
        if free.len() != block.unallocated.len() || !free.iter().copied().eq(untaken) {
            return Err(BlockFault::Unallocated);
        }
        Ok(Self(block))
    }

    /// Returns the block as it is stored.
    pub const fn value(&self) -> &AllocationBlock {
        &self.0
    }

    /// Returns the range.
    pub fn cidr(&self) -> IpNet {
        self.0.cidr
    }

    /// Returns the owner that the block has affinity to.
    pub fn owner(&self) -> Option<AffinityOwner> {
        self.0.owner()
    }

    /// Returns the time at which it got this affinity, if known.
    pub fn claimed(&self) -> Option<Time> {
        Time::parse(self.0.affinity_claim_time.as_deref()?)
    }

    /// Removes the affinity of the block.
    pub fn disown(&mut self) {
        self.0.affinity = None;
        self.0.affinity_claim_time = None;
        self.0.host_affinity = None;
    }

    /// Increments the sequence number for the next write.
    pub fn count_write(&mut self) {
        self.0.sequence_number = self.0.sequence_number.wrapping_add(1);
    }

    /// Returns whether no address of the block is allocated.
    pub fn is_empty(&self) -> bool {
        self.0.allocations.iter().flatten().all(|place| {
            let handle = self
                .attribute(*place)
                .and_then(|known| known.handle_id.as_deref());
            handle.is_some_and(|handle| handle.eq_ignore_ascii_case(WINDOWS_RESERVED))
        })
    }

    /// Returns the number of free addresses, without the reserved ones.
    pub fn free(&self, reserved: &[IpNet]) -> usize {
        let addresses = self
            .0
            .unallocated
            .iter()
            .filter_map(|at| self.0.address(*at));
        addresses
            .filter(|address| !is_reserved(reserved, *address))
            .count()
    }

    /// Returns the addresses of a handle.
    pub fn of_handle(&self, handle: &str) -> Vec<Given> {
        let taken = (0..=Ordinal::MAX).zip(&self.0.allocations);
        taken
            .filter(|(_, place)| {
                let known = place.and_then(|place| self.attribute(place));
                known.is_some_and(|known| known.handle_id.as_deref().map(clean) == Some(handle))
            })
            .filter_map(|(ordinal, _)| self.given(ordinal))
            .collect()
    }

    /// Returns the allocation of this address; `None` if it is free or cooling down.
    pub fn holder(&self, address: IpAddr) -> Option<Holder> {
        let ordinal = self.0.ordinal(address)?;
        let place = *self.0.allocations.get(usize::from(ordinal))?;
        let known = self.attribute(place?)?;
        if known.released_at.is_some() {
            return None;
        }
        Some(Holder {
            given: self.given(ordinal)?,
            handle: known.handle_id.as_deref().map(clean).map(str::to_owned),
            attributes: known.active_owner.clone(),
        })
    }

    /// Returns all allocations.
    pub fn holders(&self) -> impl Iterator<Item = Holder> + '_ {
        let ordinals = (0..=Ordinal::MAX).zip(&self.0.allocations);
        let addresses = ordinals.filter_map(|(ordinal, _)| self.0.address(ordinal));
        addresses.filter_map(|address| self.holder(address))
    }

    fn attribute(&self, place: usize) -> Option<&AllocationAttribute> {
        self.0.attributes.get(place)
    }

    fn given(&self, ordinal: Ordinal) -> Option<Given> {
        let sequences = &self.0.sequence_number_for_allocation;
        Some(Given {
            address: self.0.address(ordinal)?,
            sequence: sequences.get(&ordinal).copied().unwrap_or_default(),
        })
    }

    /// Allocates free addresses, at most `count`, without the reserved ones. The addresses that
    /// have been free longest are allocated first.
    pub fn take(&mut self, count: usize, taker: &Taker, reserved: &[IpNet]) -> Vec<Given> {
        let mut taken = Vec::new();
        for ordinal in self.0.unallocated.clone() {
            if taken.len() == count {
                break;
            }
            let free = self.0.address(ordinal);
            if free.is_some_and(|address| !is_reserved(reserved, address)) {
                taken.extend(self.take_ordinal(ordinal, taker));
            }
        }
        taken
    }

    /// Allocates this address; `None` if it is allocated already, or not in the block.
    pub fn take_address(&mut self, address: IpAddr, taker: &Taker) -> Option<Given> {
        let ordinal = self.0.ordinal(address)?;
        if !self.0.unallocated.contains(&ordinal) {
            return None;
        }
        self.take_ordinal(ordinal, taker)
    }

    fn take_ordinal(&mut self, ordinal: Ordinal, taker: &Taker) -> Option<Given> {
        let place = self.place_of(taker);
        let allocation = self.0.allocations.get_mut(usize::from(ordinal))?;
        *allocation = Some(place);
        self.0.unallocated.retain(|free| *free != ordinal);
        let sequence = self.0.sequence_number;
        self.0
            .sequence_number_for_allocation
            .insert(ordinal, sequence);
        self.given(ordinal)
    }

    /// Returns the position of an allocation's attributes, which are added if they are new.
    fn place_of(&mut self, taker: &Taker) -> usize {
        let known = AllocationAttribute {
            handle_id: Some(taker.handle.clone()),
            active_owner: taker.attributes.clone(),
            ..AllocationAttribute::default()
        };
        let found = self.0.attributes.iter().position(|other| *other == known);
        found.unwrap_or_else(|| {
            self.0.attributes.push(known);
            self.0.attributes.len() - 1
        })
    }

    /// Releases addresses. If a condition of one release does not hold, nothing is released, and
    /// the error is that address.
    pub fn release(
        &mut self,
        releases: &[Release],
        now: Time,
        cool_down_s: u32,
    ) -> Result<Released, IpAddr> {
        let mut released = Released::default();
        let mut ordinals = BTreeSet::new();
        for release in releases {
            let Some(ordinal) = self.0.ordinal(release.address) else {
                continue;
            };
            let place = self
                .0
                .allocations
                .get(usize::from(ordinal))
                .copied()
                .flatten();
            let known = place.and_then(|place| self.attribute(place));
            let Some(known) = known.filter(|known| known.released_at.is_none()) else {
                released.not_taken.push(release.address);
                continue;
            };
            let handle = known.handle_id.as_deref().map(clean);
            let given = self.given(ordinal).map(|given| given.sequence);
            if release.sequence.is_some() && release.sequence != given
                || release.handle.is_some() && release.handle.as_deref() != handle
            {
                return Err(release.address);
            }
            if ordinals.insert(ordinal)
                && let Some(handle) = handle
            {
                *released.by_handle.entry(handle.to_owned()).or_default() += 1;
            }
        }
        self.cool_down(&ordinals, now);
        self.collect(now, cool_down_s);
        Ok(released)
    }

    fn cool_down(&mut self, ordinals: &BTreeSet<Ordinal>, now: Time) {
        if ordinals.is_empty() {
            return;
        }
        let place = self.0.attributes.len();
        self.0.attributes.push(AllocationAttribute {
            released_at: Some(now.text()),
            ..AllocationAttribute::default()
        });
        for ordinal in ordinals {
            if let Some(allocation) = self.0.allocations.get_mut(usize::from(*ordinal)) {
                *allocation = Some(place);
            }
            let sequence = self.0.sequence_number;
            self.0
                .sequence_number_for_allocation
                .insert(*ordinal, sequence);
        }
    }

    /// Frees addresses that have cooled down, and removes attributes without allocations.
    pub fn collect(&mut self, now: Time, cool_down_s: u32) {
        let cold: BTreeSet<usize> = (0..self.0.attributes.len())
            .filter(|place| {
                let released = self
                    .attribute(*place)
                    .and_then(|known| known.released_at.as_deref());
                // An unparsable time counts as long ago.
                released.is_some_and(|text| {
                    Time::parse(text)
                        .is_none_or(|then| then.seconds_to(now) >= u64::from(cool_down_s))
                })
            })
            .collect();
        for (ordinal, allocation) in (0..=Ordinal::MAX).zip(&mut self.0.allocations) {
            if allocation.is_some_and(|place| cold.contains(&place)) {
                *allocation = None;
                self.0.unallocated.push(ordinal);
                self.0.sequence_number_for_allocation.remove(&ordinal);
            }
        }
        self.forget_unreferenced();
    }

    fn forget_unreferenced(&mut self) {
        let used: BTreeSet<usize> = self.0.allocations.iter().flatten().copied().collect();
        let places: BTreeMap<usize, usize> = used
            .iter()
            .enumerate()
            .map(|(new, old)| (*old, new))
            .collect();
        let mut place = 0;
        self.0.attributes.retain(|_| {
            place += 1;
            used.contains(&(place - 1))
        });
        for allocation in &mut self.0.allocations {
            *allocation = allocation.and_then(|old| places.get(&old).copied());
        }
    }
}

/// Returns the number of addresses of a block of this range, if it can be a block.
fn size(cidr: IpNet) -> Option<usize> {
    let bits = u32::from(cidr.max_prefix_len() - cidr.prefix_len());
    1_usize
        .checked_shl(bits)
        .filter(|size| *size <= BLOCK_ADDRESSES_MAX && bits < usize::BITS)
}

pub(crate) fn is_reserved(reserved: &[IpNet], address: IpAddr) -> bool {
    reserved.iter().any(|range| range.contains(&address))
}

/// Returns the handle without a carriage return and the text after it, which some old handles
/// contain.
fn clean(handle: &str) -> &str {
    handle.split('\r').next().unwrap_or_default()
}
