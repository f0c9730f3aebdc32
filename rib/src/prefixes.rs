//! The prefixes of one family: their slots, and the state beside the slots.

use alloc::vec::Vec;

use bgp_proto::{Family, FamilyRow, Net};

use crate::interfaces::Interfaces;
use crate::path::Path;
use crate::peer::PeerId;
use crate::policy::InterfaceName;
use crate::slot::Slot;
use crate::table::{Key, Table};
use crate::wire::WireForms;

/// The prefixes of one family.
#[derive(Debug)]
pub(crate) struct Prefixes<K: Key> {
    row: &'static FamilyRow,
    table: Table<K>,
    /// Prefixes that have paths.
    occupied: usize,
    wire: WireForms,
    keeps_wire: bool,
    interfaces: Interfaces,
    /// Memory for the key of a lookup.
    key: Vec<u8>,
}

impl<K: Key> Prefixes<K> {
    pub(crate) fn new(row: &'static FamilyRow, seed: u64) -> Self {
        Self {
            row,
            table: Table::new(seed),
            occupied: 0,
            wire: WireForms::default(),
            keeps_wire: WireForms::are_needed(row),
            interfaces: Interfaces::default(),
            key: Vec::new(),
        }
    }

    #[inline]
    pub(crate) const fn row(&self) -> &'static FamilyRow {
        self.row
    }

    pub(crate) const fn family(&self) -> Family {
        self.row.family
    }

    /// Returns whether NLRI contain more than the key of a prefix: then equal attributes do not
    /// imply equal routes.
    #[inline]
    pub(crate) const fn keeps_wire(&self) -> bool {
        self.keeps_wire
    }

    // --- look-ups ------------------------------------------------------------------------------

    /// Returns the hash of a destination; any number for one of another kind.
    #[inline]
    pub(crate) fn hash(&mut self, net: Net<'_>) -> u32 {
        let key = K::find(net, self.row, &mut self.key);
        key.map_or(0, |key| self.table.hash(key))
    }

    /// Returns the slot of a destination with a known hash.
    #[inline]
    pub(crate) fn find(&mut self, net: Net<'_>, hash: u32) -> Option<u32> {
        let key = K::find(net, self.row, &mut self.key)?;
        self.table.find_by(key, hash)
    }

    /// Returns the slot of a destination, made if there is none; `None` if it is of another kind.
    #[inline]
    pub(crate) fn find_or_insert(&mut self, net: Net<'_>, hash: u32) -> Option<u32> {
        let key = K::find(net, self.row, &mut self.key)?;
        Some(self.table.find_or_insert(key, hash))
    }

    /// Returns the slot of a destination.
    pub(crate) fn look_up(&self, net: Net<'_>) -> Option<u32> {
        let mut scratch = Vec::new();
        self.table.find(K::find(net, self.row, &mut scratch)?)
    }

    /// Prefetches the memory that the lookups of these hashes read.
    pub(crate) fn warm(&self, hashes: impl Iterator<Item = u32>) {
        self.table.warm(hashes);
    }

    // --- slots ---------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn slot(&self, at: u32) -> &Slot<K> {
        self.table.slot(at)
    }

    #[inline]
    pub(crate) fn slot_mut(&mut self, at: u32) -> &mut Slot<K> {
        self.table.slot_mut(at)
    }

    /// Returns the slot, if there is one in use.
    #[inline]
    pub(crate) fn used(&self, at: u32) -> Option<&Slot<K>> {
        self.table.used(at)
    }

    /// Returns the paths of a slot.
    #[inline]
    pub(crate) fn paths(&self, at: u32) -> &[Path] {
        self.table.slot(at).paths()
    }

    /// Returns the number of slots, including free ones.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.table.len()
    }

    /// Returns the number of prefixes, including those without paths.
    pub(crate) fn used_len(&self) -> usize {
        self.table.used_len()
    }

    /// Returns the number of prefixes with paths.
    pub(crate) const fn occupied(&self) -> usize {
        self.occupied
    }

    /// Returns the number of octet strings beside the slots.
    pub(crate) fn wire_len(&self) -> usize {
        self.wire.len()
    }

    /// Adds a path; returns its index.
    #[inline]
    pub(crate) fn add_path(&mut self, at: u32, path: Path) -> usize {
        let index = self.table.slot_mut(at).add_path(path);
        self.occupied += usize::from(index == 0);
        index
    }

    /// Removes a path; the last one takes its index. Returns it.
    #[inline]
    pub(crate) fn remove_path(&mut self, at: u32, index: usize) -> Path {
        let slot = self.table.slot_mut(at);
        let path = slot.remove_path(index);
        self.occupied -= usize::from(slot.paths().is_empty());
        self.drop_beside(at, &path);
        path
    }

    /// Stores the NLRI of the best path of a slot that has been published.
    #[inline]
    pub(crate) fn keep_published(&mut self, at: u32) {
        if self.keeps_wire
            && let Some(path) = self.table.slot(at).best_path()
        {
            self.wire.publish(at, path);
        }
    }

    /// Releases slots without paths.
    pub(crate) fn release(&mut self, slots: &[u32]) {
        for &at in slots {
            if self.keeps_wire {
                self.wire.forget(at);
            }
            self.table.remove(at);
        }
    }

    /// Prefetches the memory that releasing these slots reads.
    pub(crate) fn warm_slots(&self, slots: &[u32]) {
        self.table
            .warm(slots.iter().map(|&at| self.table.hash_at(at)));
    }

    // --- beside the slots ----------------------------------------------------------------------

    /// Stores the state of a path beside its slot: its NLRI, and the interface of a locally
    /// originated route. Returns whether it changed.
    #[inline]
    pub(crate) fn keep_beside(
        &mut self,
        at: u32,
        path: &Path,
        net: Net<'_>,
        interface: Option<InterfaceName>,
    ) -> bool {
        let rewired = self.keeps_wire && self.wire.keep(at, path, net);
        let moved = path.peer() == PeerId::LOCAL && self.interfaces.keep(at, interface);
        rewired || moved
    }

    /// Drops the state of a path beside its slot.
    #[inline]
    pub(crate) fn drop_beside(&mut self, at: u32, path: &Path) {
        if self.keeps_wire {
            self.wire.drop_path(at, path);
        }
        if path.peer() == PeerId::LOCAL {
            self.interfaces.keep(at, None);
        }
    }

    /// Returns the destination of a slot, as in the log.
    #[inline]
    pub(crate) fn net(&self, at: u32) -> Net<'_> {
        let kept = if self.keeps_wire {
            self.wire.published(at).or_else(|| self.wire.any(at))
        } else {
            None
        };
        kept.unwrap_or_else(|| self.table.slot(at).key().net())
    }

    /// Returns the destination of a slot in the form of one of its paths.
    #[inline]
    pub(crate) fn path_net(&self, at: u32, source: PeerId, received_id: u32) -> Net<'_> {
        let kept = if self.keeps_wire {
            self.wire.path(at, source, received_id)
        } else {
            None
        };
        kept.unwrap_or_else(|| self.table.slot(at).key().net())
    }

    /// Returns the interface of a path, if it is locally originated.
    #[inline]
    pub(crate) fn interface(&self, at: u32, path: &Path) -> Option<InterfaceName> {
        self.interfaces.of(at, path)
    }
}
