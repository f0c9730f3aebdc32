//! The records of the datastore, shared with the tables of the speaker.
//!
//! In the mode `enforce` the tables ask for each received path of a neighbor whether the records confirm it,
//! before it is used for the first time. The driver owns the records and changes them; both are in
//! one task, so nobody waits for the lock.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bgp_io::bgp_proto::{Asn, Family, Net, Prefix};
use bgp_io::rib::{OriginCheck, OriginMode, OriginRules, ReceivedPath};
use calico_bgp::Fault;
use calico_bgp::validation::{Affected, Neighbor, Origin, OriginIndex, ReceivedRoute};

use crate::limits::ORIGIN_LOOKUPS_MAX;

/// The families of which routes have records.
pub(super) const FAMILIES: [Family; 2] = [Family::IPV4_UNICAST, Family::IPV6_UNICAST];

/// The records that were read completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// None: no neighbor is known to be a node.
    #[default]
    Nothing,
    /// Records about nodes.
    Nodes,
    /// Records about nodes and workloads.
    All,
}

/// The records, and the prefixes of paths that they do not confirm.
#[derive(Debug)]
pub(super) struct Records {
    index: OriginIndex,
    known: Known,
    /// The prefixes of rejected paths since the last [`Records::take_rejected`].
    rejected: BTreeSet<Prefix>,
    /// Whether there were more of them.
    has_more_rejected: bool,
}

/// The records, for the driver and for the tables.
#[derive(Clone, Debug)]
pub(crate) struct SharedRecords {
    /// The mode for neighbors without one of their own.
    mode: OriginMode,
    records: Arc<Mutex<Records>>,
}

impl SharedRecords {
    pub(crate) fn new(seed: u64, mode: OriginMode) -> Self {
        let records = Records {
            index: OriginIndex::new(seed),
            known: Known::Nothing,
            rejected: BTreeSet::new(),
            has_more_rejected: false,
        };
        Self {
            mode,
            records: Arc::new(Mutex::new(records)),
        }
    }

    /// Returns the mode for the paths of a neighbor.
    pub(super) fn mode_of(&self, own: Option<OriginMode>) -> OriginMode {
        own.unwrap_or(self.mode)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OriginCheck for SharedRecords {
    fn confirms(&self, path: &ReceivedPath<'_>) -> bool {
        if self.mode_of(path.rules.mode) != OriginMode::Enforce {
            return true;
        }
        let Some(prefix) = prefix_of(path.net).filter(|_| FAMILIES.contains(&path.family)) else {
            return true;
        };
        let route = ReceivedRoute {
            prefix,
            next_hop: path.next_hop,
            has_originator_id: path.has_originator_id,
        };
        let mut records = self.lock();
        let is_confirmed = records.confirms(path.address, path.rules, path.origin_as, &route);
        if !is_confirmed {
            records.reject(prefix);
        }
        is_confirmed
    }
}

impl Records {
    /// Applies a key's new value or its deletion.
    pub(super) fn take(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<Affected, Fault> {
        self.index.take(key, value)
    }

    pub(super) const fn known(&self) -> Known {
        self.known
    }

    /// Records what was read completely. Returns whether that is more than before.
    pub(super) fn learn(&mut self, known: Known) -> bool {
        let is_new = known > self.known;
        self.known = self.known.max(known);
        is_new
    }

    /// Returns the neighbor at an address, which the records determine: only one that is not a node
    /// can pass on routes of nodes. `origin` is the AS in which its route originates.
    pub(super) fn neighbor_at(
        &self,
        address: IpAddr,
        rules: OriginRules,
        origin: Option<Asn>,
    ) -> Neighbor<'_> {
        match (self.index.neighbor_at(address), origin) {
            (Neighbor::Other, Some(origin)) if rules.is_transit => Neighbor::Transit { origin },
            (neighbor, _) => neighbor,
        }
    }

    pub(super) fn origin(&self, neighbor: Neighbor<'_>, route: &ReceivedRoute) -> Origin<'_> {
        self.index.origin(neighbor, route)
    }

    /// Returns whether a path may be used. Before the records about nodes are read, each neighbor
    /// may be a node; before those about workloads, each route of a node may be another node's.
    fn confirms(
        &self,
        address: IpAddr,
        rules: OriginRules,
        origin: Option<Asn>,
        route: &ReceivedRoute,
    ) -> bool {
        let neighbor = match self.neighbor_at(address, rules, origin) {
            _ if self.known == Known::Nothing => return false,
            Neighbor::Node(_) if self.known < Known::All => return false,
            // The routes of nodes that it passes on wait for the records of workloads.
            Neighbor::Transit { .. } if self.known < Known::All => Neighbor::Other,
            neighbor => neighbor,
        };
        self.index.origin(neighbor, route) == Origin::Confirmed
    }

    fn reject(&mut self, prefix: Prefix) {
        match self.rejected.len() < ORIGIN_LOOKUPS_MAX {
            true => {
                self.rejected.insert(prefix);
            }
            false => self.has_more_rejected = true,
        }
    }

    /// Takes the prefixes of rejected paths, and whether there were more than these.
    pub(super) fn take_rejected(&mut self) -> (BTreeSet<Prefix>, bool) {
        let has_more = std::mem::take(&mut self.has_more_rejected);
        (std::mem::take(&mut self.rejected), has_more)
    }
}

/// Returns a destination as a prefix, if it is one.
pub(super) fn prefix_of(net: Net<'_>) -> Option<Prefix> {
    Some(match net {
        Net::V4(prefix) => prefix.into(),
        Net::V6(prefix) => prefix.into(),
        Net::Opaque(_) => return None,
    })
}
