//! Octets of opaque NLRI that are not part of the key but must be advertised: labels, segment
//! identifiers. Only families with such octets fill these maps.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use bgp_proto::{FamilyRow, KeyRule, Net};

use crate::path::Path;
use crate::peer::PeerId;

/// NLRI as received, and as last sent to readers of the log.
#[derive(Debug, Default)]
pub(crate) struct WireForms {
    paths: BTreeMap<(u32, u16, u32), Box<[u8]>>,
    published: BTreeMap<u32, Box<[u8]>>,
}

impl WireForms {
    /// Returns whether NLRI of the family contain more than their key.
    pub(crate) fn are_needed(row: &FamilyRow) -> bool {
        !row.is_typed() && row.key != KeyRule::Whole
    }

    /// Stores the octets of a path. Returns whether they changed.
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

    /// Records that this path is about to be sent to readers of the log.
    pub(crate) fn publish(&mut self, slot: u32, path: &Path) {
        if let Some(octets) = self.paths.get(&(slot, path.peer().0, path.path_id())) {
            self.published.insert(slot, octets.clone());
        }
    }

    /// Returns the form that was last sent to readers of the log.
    pub(crate) fn published(&self, slot: u32) -> Option<Net<'_>> {
        self.published.get(&slot).map(|octets| Net::Opaque(octets))
    }

    /// Returns the octets of a path.
    pub(crate) fn path(&self, slot: u32, peer: PeerId, path_id: u32) -> Option<Net<'_>> {
        let octets = self.paths.get(&(slot, peer.0, path_id));
        octets.map(|octets| Net::Opaque(octets))
    }

    /// Returns the octets of any path of a prefix.
    pub(crate) fn any(&self, slot: u32) -> Option<Net<'_>> {
        let mut paths = self.paths.range((slot, 0, 0)..=(slot, u16::MAX, u32::MAX));
        paths.next().map(|(_, octets)| Net::Opaque(octets))
    }

    /// Drops the octets of a prefix.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.published.remove(&slot);
    }

    /// Returns the number of octet strings.
    pub(crate) fn len(&self) -> usize {
        self.paths.len() + self.published.len()
    }
}
