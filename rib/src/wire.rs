//! Octets of opaque NLRI that are not part of the key but have to be passed on: labels, segment
//! identifiers. Only families with such octets fill these maps.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use bgp_proto::{FamilyRow, KeyRule, Net};

use crate::path::Path;
use crate::peer::PeerId;

/// NLRI as they were received, and as readers of the log were last told.
#[derive(Debug, Default)]
pub(crate) struct WireForms {
    paths: BTreeMap<(u32, u16, u32), Box<[u8]>>,
    published: BTreeMap<u32, Box<[u8]>>,
}

impl WireForms {
    /// Whether NLRI of the family hold more than their key.
    pub(crate) fn are_needed(row: &FamilyRow) -> bool {
        !row.is_typed() && row.key != KeyRule::Whole
    }

    /// Keeps the octets of a path. Returns whether they are new.
    pub(crate) fn keep(&mut self, slot: u32, path: &Path, net: Net<'_>) -> bool {
        let Net::Opaque(octets) = net else {
            return false;
        };
        let place = (slot, path.peer().0, path.path_id());
        if self.paths.get(&place).is_some_and(|kept| **kept == *octets) {
            return false;
        }
        self.paths.insert(place, octets.into());
        true
    }

    /// Drops the octets of a path.
    pub(crate) fn drop_path(&mut self, slot: u32, path: &Path) {
        self.paths.remove(&(slot, path.peer().0, path.path_id()));
    }

    /// Readers of the log are about to be told of this path.
    pub(crate) fn publish(&mut self, slot: u32, path: &Path) {
        if let Some(octets) = self.paths.get(&(slot, path.peer().0, path.path_id())) {
            self.published.insert(slot, octets.clone());
        }
    }

    /// What readers of the log were last told.
    pub(crate) fn published(&self, slot: u32) -> Option<Net<'_>> {
        self.published.get(&slot).map(|octets| Net::Opaque(octets))
    }

    /// The octets of a path.
    pub(crate) fn path(&self, slot: u32, peer: PeerId, path_id: u32) -> Option<Net<'_>> {
        let octets = self.paths.get(&(slot, peer.0, path_id));
        octets.map(|octets| Net::Opaque(octets))
    }

    /// The octets of some path of a prefix.
    pub(crate) fn any(&self, slot: u32) -> Option<Net<'_>> {
        let mut paths = self.paths.range((slot, 0, 0)..=(slot, u16::MAX, u32::MAX));
        paths.next().map(|(_, octets)| Net::Opaque(octets))
    }

    /// The prefix is forgotten.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.published.remove(&slot);
    }

    /// Octet strings kept.
    pub(crate) fn len(&self) -> usize {
        self.paths.len() + self.published.len()
    }
}
