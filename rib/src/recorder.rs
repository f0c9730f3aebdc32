//! Changes of the Adj-RIBs-In, recorded for a monitor.
//!
//! Without a monitor there is no recorder: a batch of routes costs one check of
//! [`Shared::recorder`], and so does the removal of a path.
//!
//! [`Shared::recorder`]: crate::shared::Shared::recorder

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bgp_proto::{Attributes, Family, Nlri};

use crate::attributes::AttrId;
use crate::intern::{Interner, Stamp};
use crate::limits::{RECORD_ROUTES_MAX, RECORDED_OCTETS_MAX, RECORDED_ROUTES_MAX};
use crate::peer::PeerId;
use crate::routes::{Routes, Stage, Stages, attribute_octets};

/// The stages of an Adj-RIB-In: as many records may be continued at once.
const STAGES: usize = 2;

/// Recorded routes that were not taken yet, bounded: with more, later ones are lost and counted.
#[derive(Debug)]
pub(crate) struct Recorder {
    stages: Stages,
    records: Vec<Routes>,
    routes: usize,
    octets: usize,
    lost: u64,
    /// The sets that were used last.
    sets: [Option<Set>; STAGES],
    /// The families of peers whose removed paths are not recorded, since the end of the session has
    /// removed them all.
    flushed: BTreeSet<(PeerId, Family)>,
}

/// A set of attributes that records share.
#[derive(Clone, Debug)]
struct Set {
    stamp: Stamp,
    attributes: Arc<Attributes>,
    octets: usize,
}

impl Recorder {
    pub(crate) fn new(stages: Stages) -> Self {
        Self {
            stages,
            records: Vec::new(),
            routes: 0,
            octets: 0,
            lost: 0,
            sets: [const { None }; STAGES],
            flushed: BTreeSet::new(),
        }
    }

    /// Records a route: announced with a set of attributes that the caller holds a reference of, or
    /// withdrawn.
    pub(crate) fn push(
        &mut self,
        interner: &Interner,
        (peer, stage, family): (PeerId, Stage, Family),
        nlri: &Nlri<'_>,
        id: Option<AttrId>,
    ) {
        if !self.stages.contains(stage) {
            return;
        }
        if self.routes >= RECORDED_ROUTES_MAX || self.octets >= RECORDED_OCTETS_MAX {
            self.lost += 1;
            return;
        }
        let set = id.map(|id| self.set(interner, id));
        let attributes = set.as_ref().map(|set| &set.attributes);
        let is_continued = |last: &Routes| {
            (last.peer, last.family) == (peer, family)
                && last.has_attributes(attributes)
                && last.len() < RECORD_ROUTES_MAX
        };
        let mut recent = self.records.iter_mut().rev().take(STAGES);
        let last = recent.find(|last| last.stage == stage);
        if let Some(last) = last.filter(|last| is_continued(last)) {
            self.octets += last.push(nlri);
        } else {
            let octets = set.as_ref().map_or(0, |set| set.octets);
            let attributes = set.map(|set| set.attributes);
            let mut record = Routes::with_octets((peer, stage, family), attributes, octets);
            record.push(nlri);
            self.octets += record.octets();
            self.records.push(record);
        }
        self.routes += 1;
    }

    /// Returns a set of attributes, shared with the last records if they have the same one.
    fn set(&mut self, interner: &Interner, id: AttrId) -> Set {
        let stamp = interner.stamp(id);
        let mut known = self.sets.iter().flatten();
        if let Some(set) = known.find(|set| set.stamp == stamp) {
            return set.clone();
        }
        let attributes = interner.get(id);
        let set = Set {
            stamp,
            octets: attribute_octets(&attributes),
            attributes: Arc::new(attributes),
        };
        self.sets.rotate_right(1);
        let [first, ..] = &mut self.sets;
        *first = Some(set.clone());
        set
    }

    /// Passes on the records, in order. Returns the number of routes that were lost after them.
    pub(crate) fn take(&mut self, each: &mut dyn FnMut(Routes)) -> u64 {
        core::mem::take(&mut self.records)
            .into_iter()
            .for_each(each);
        (self.routes, self.octets) = (0, 0);
        core::mem::take(&mut self.lost)
    }

    /// Notes that the end of a session has removed all routes of a family.
    pub(crate) fn flush(&mut self, peer: PeerId, family: Family) {
        self.flushed.insert((peer, family));
    }

    /// Notes that removed paths of a family are no longer those of an ended session alone.
    pub(crate) fn unflush(&mut self, peer: PeerId, family: Family) {
        self.flushed.remove(&(peer, family));
    }

    pub(crate) fn is_flushed(&self, peer: PeerId, family: Family) -> bool {
        self.flushed.contains(&(peer, family))
    }
}
