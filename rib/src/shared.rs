//! State shared by the tables of all families.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bgp_proto::{Attributes, Family, RouterId};

use crate::attributes::AttrId;
use crate::config::RibConfig;
use crate::decide::Candidate;
use crate::eligible::Ineligible;
use crate::export::{GroupId, GroupRules, SendPaths};
use crate::intern::{Interner, Received};
use crate::membership::Memberships;
use crate::next_hop::NextHopTable;
use crate::origin::OriginCheck;
use crate::path::Path;
use crate::peer::{PeerId, PeerInfo};
use crate::recorder::Recorder;
use crate::rejected::Rejected;
use crate::role::Role;
use crate::stale::Marks;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: RibConfig,
    pub(crate) interner: Interner,
    pub(crate) next_hops: NextHopTable,
    /// By peer number. A peer's entry stays after its session, as its paths may.
    pub(crate) peers: Vec<Option<PeerInfo>>,
    /// By group number.
    pub(crate) groups: Vec<Option<GroupRules>>,
    /// Runs of equal attributes handed out so far.
    pub(crate) runs: u64,
    /// Changes of the Adj-RIBs-In, while they are recorded.
    pub(crate) recorder: Option<Box<Recorder>>,
    /// Paths that policies rejected, while they are watched.
    pub(crate) rejected: Rejected,
    /// Validation of the origin of received paths, while it is enabled.
    pub(crate) origin_check: Option<Arc<dyn OriginCheck>>,
    /// The origins of routes that have failed.
    pub(crate) failed_origins: BTreeSet<RouterId>,
    /// The route targets that each peer wants.
    pub(crate) memberships: Memberships,
}

impl Shared {
    pub(crate) fn new(config: RibConfig, seed: u64) -> Self {
        Self {
            interner: Interner::new(config.local_asn, seed),
            next_hops: NextHopTable::new(config.next_hops),
            config,
            peers: Vec::new(),
            groups: Vec::new(),
            runs: 0,
            recorder: None,
            rejected: Rejected::default(),
            origin_check: None,
            failed_origins: BTreeSet::new(),
            memberships: Memberships::default(),
        }
    }

    pub(crate) fn peer(&self, peer: PeerId) -> Option<&PeerInfo> {
        self.peers.get(peer.index()).and_then(Option::as_ref)
    }

    pub(crate) fn role(&self, peer: PeerId) -> Role {
        self.peer(peer).map_or(Role::Local, |info| info.role)
    }

    pub(crate) fn rules(&self, group: GroupId) -> Option<GroupRules> {
        self.groups.get(group.0 as usize).and_then(Clone::clone)
    }

    /// Returns the paths that a group sends in a family; `None` for the best one only.
    pub(crate) fn send_paths(&self, group: GroupId, family: Family) -> Option<SendPaths> {
        let rules = self.groups.get(group.0 as usize)?.as_ref()?;
        rules.send_paths(family)
    }

    pub(crate) fn receive(&mut self, peer: PeerId, block: &bgp_proto::AttrBlock<'_>) -> Received {
        self.interner.receive(peer, block, &mut self.next_hops)
    }

    pub(crate) fn intern(&mut self, owner: PeerId, attributes: Attributes) -> AttrId {
        self.interner.intern(owner, attributes, &mut self.next_hops)
    }

    pub(crate) fn release(&mut self, id: AttrId) {
        self.interner.release(id, 1, &mut self.next_hops);
    }

    /// Acquires the references of a path: two, mostly of one set.
    pub(crate) fn acquire_path(&mut self, path: &Path) {
        match path.accepted() {
            Some(accepted) if accepted == path.received() => self.interner.acquire(accepted, 2),
            Some(accepted) => {
                self.interner.acquire(accepted, 1);
                self.interner.acquire(path.received(), 1);
            }
            None => self.interner.acquire(path.received(), 1),
        }
    }

    /// Releases the references of a path.
    pub(crate) fn release_path(&mut self, path: &Path) {
        let Self {
            interner,
            next_hops,
            ..
        } = self;
        match path.accepted() {
            Some(accepted) if accepted == path.received() => {
                interner.release(accepted, 2, next_hops);
            }
            Some(accepted) => {
                interner.release(path.received(), 1, next_hops);
                interner.release(accepted, 1, next_hops);
            }
            None => interner.release(path.received(), 1, next_hops),
        }
    }

    /// Returns the speaker inside the AS that originates a path of an internal peer: the peer itself, or the
    /// originator of a reflected route (RFC 4456 §8).
    pub(crate) fn origin(&self, path: &Path) -> Option<RouterId> {
        let info = self.peer(path.peer())?;
        let originator = self.interner.ranks(path.received()).originator;
        info.role.is_internal().then_some(match originator {
            0 => info.id,
            _ => originator.into(),
        })
    }

    /// Returns whether a path that its peer cannot withdraw now is known to be wrong.
    pub(crate) fn is_refuted(&self, path: &Path, marks: &Marks) -> bool {
        let has_failed = || {
            let origin = self.origin(path);
            origin.is_some_and(|origin| self.failed_origins.contains(&origin))
        };
        marks.is_stale(path)
            && (path.is_doubted() || !self.failed_origins.is_empty() && has_failed())
    }

    /// Returns whether a path is present for decisions.
    #[inline]
    fn is_held(&self, path: &Path, marks: Option<&Marks>) -> bool {
        marks.is_none_or(|marks| !marks.is_dead(path) && !self.is_refuted(path, marks))
    }

    /// Returns why a path cannot be used now.
    pub(crate) fn ineligible(&self, path: &Path, marks: Option<&Marks>) -> Option<Ineligible> {
        if marks.is_some_and(|marks| marks.is_dead(path)) {
            return Some(Ineligible::PeerDown);
        }
        if !self.is_held(path, marks) {
            return Some(Ineligible::OriginFailed);
        }
        let Some(accepted) = path.accepted() else {
            return Some(Ineligible::Policy);
        };
        path.reason().or_else(|| {
            let next_hop = self.interner.ranks(accepted).next_hop;
            self.next_hops
                .cost(next_hop)
                .is_none()
                .then_some(Ineligible::NextHopUnresolved)
        })
    }

    /// Returns whether a path can be used now: [`Self::ineligible`] without the reason.
    #[inline]
    pub(crate) fn is_usable(&self, path: &Path, marks: Option<&Marks>) -> bool {
        let Some(accepted) = path.accepted() else {
            return false;
        };
        let next_hop = self.interner.ranks(accepted).next_hop;
        self.is_held(path, marks) && !path.has_reason() && self.next_hops.cost(next_hop).is_some()
    }

    /// Returns the inputs of the decision process for a path.
    pub(crate) fn candidate(&self, path: &Path, marks: Option<&Marks>) -> Candidate {
        let accepted = path.accepted();
        let ranks = self
            .interner
            .ranks(accepted.unwrap_or_else(|| path.received()));
        // Avoids a second lookup of the reachability in `ineligible`.
        let cost = self.next_hops.cost(ranks.next_hop);
        let is_usable = accepted.is_some() && !path.has_reason() && cost.is_some();
        let (external, id, address) = match self.peer(path.peer()) {
            Some(info) => (info.role == Role::External, info.id, info.address),
            None => (
                false,
                self.config.router_id,
                core::net::Ipv4Addr::UNSPECIFIED.into(),
            ),
        };
        Candidate {
            eligible: is_usable && self.is_held(path, marks),
            long_lived_stale: ranks.well_known.is_llgr_stale(),
            local: path.peer() == PeerId::LOCAL,
            local_pref: ranks.local_pref,
            as_path_length: u32::from(ranks.as_path_length),
            origin: ranks.origin,
            neighbor_as: ranks.neighbor_as,
            med: ranks.med,
            external,
            igp_cost: cost.unwrap_or(u32::MAX),
            id: if ranks.originator == 0 {
                id
            } else {
                ranks.originator.into()
            },
            cluster_list_length: u32::from(ranks.cluster_list_length),
            address,
            path_id: path.path_id(),
            next_hop: ranks.next_hop,
        }
    }
}
