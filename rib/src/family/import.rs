//! Import: received routes become paths in the tables (RFC 4271 §9).

use alloc::vec::Vec;
use core::cell::LazyCell;

use bgp_proto::{
    AttrCodes, Attributes, Community, FamilyRow, Fault, Net, Nlri, NlriIter, Remedy, RouterId,
};
use smallvec::SmallVec;

use super::{FamilyTable, eligible};
use crate::attributes::{AttrId, Ranks};
use crate::decide::Candidate;
use crate::eligible::Ineligible;
use crate::limits::{CHUNK, PATHS_PER_PEER_MAX, PATHS_PER_PREFIX_MAX};
use crate::membership::is_counted;
use crate::path::Path;
use crate::peer::{PeerId, PeerInfo};
use crate::policy::{InterfaceName, Policy, RouteContext, Verdict, insert};
use crate::role::Role;
use crate::shared::Shared;
use crate::stale::Reevaluate;
use crate::table::Key;

/// The result of a batch of routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ingested {
    /// The errors in its attributes and NLRI.
    pub faults: Vec<Fault>,
    /// The strongest action for these errors. Attribute discard and treat-as-withdraw are already
    /// done. With [`Remedy::DisableFamily`] and [`Remedy::ResetSession`] the caller must act.
    pub remedy: Option<Remedy>,
    /// Announced destinations.
    pub reach: u32,
    /// Withdrawn destinations, including those that errors turned into withdrawals.
    pub unreach: u32,
    /// Announcements rejected because the peer has too many paths for one prefix
    /// ([`PATHS_PER_PEER_MAX`]).
    pub refused: u32,
    /// Announcements rejected because the peer has reached its limit of paths
    /// ([`crate::PathLimit::refuse`]).
    pub limited: u32,
    /// Whether the peer has more paths than its limit, and none was rejected.
    pub exceeded: bool,
}

/// The result of one announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    /// The prefix has too many paths.
    NoRoom,
    /// The peer has reached its limit of paths.
    Limited,
}

/// A route of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    nlri: Nlri<'a>,
    /// The hash of its destination.
    hash: u32,
    /// Its slot; `None` if none is known.
    slot: Option<u32>,
}

/// Changes of a set before the import policy evaluates it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Another LOCAL_PREF, or none.
    local_pref: Option<Option<u32>>,
    /// The attributes of an administrative domain that stay, if others may have to be removed.
    domain: Option<AttrCodes>,
    /// Whether LLGR_STALE is added.
    is_long_lived: bool,
}

impl Arrival {
    /// Returns the changes of a set that a peer has sent; `None` if there are none. `is_long_lived`
    /// states whether the route is stale beyond the restart time of the peer.
    pub(crate) fn of(
        shared: &Shared,
        (info, row): (&PeerInfo, &FamilyRow),
        received: AttrId,
        is_long_lived: bool,
    ) -> Option<Self> {
        let ranks = shared.interner.ranks(received);
        let is_external = info.role == Role::External;
        let local_pref = if row.is_membership() {
            preference_of_membership(info.role, ranks)
        } else if ranks.well_known.shuts_down() {
            Some(Some(0)) // RFC 8326 §4.1: below all other routes.
        } else if is_external && ranks.has_local_pref {
            Some(None) // RFC 4271 §5.1.5: the preference of another AS is ignored.
        } else {
            None
        };
        let domain = (is_external && ranks.has_domain).then_some(info.domain);
        let is_long_lived = is_long_lived && !ranks.well_known.is_llgr_stale();
        (local_pref.is_some() || domain.is_some() || is_long_lived).then_some(Self {
            local_pref,
            domain,
            is_long_lived,
        })
    }

    pub(crate) fn apply(self, attributes: &mut Attributes) {
        if let Some(local_pref) = self.local_pref {
            attributes.local_pref = local_pref;
        }
        if let Some(domain) = self.domain {
            attributes.enter_as(domain);
        }
        if self.is_long_lived {
            insert(&mut attributes.communities, Community::LLGR_STALE); // RFC 9494 §4.2
        }
    }
}

/// Returns the change of LOCAL_PREF of a route target membership. A path of a non-client iBGP peer is
/// never preferred to another one, because other such peers must be sent the path of a client in any
/// case. RFC 4684 §3.2
const fn preference_of_membership(role: Role, ranks: &Ranks) -> Option<Option<u32>> {
    match (role, ranks.local_pref) {
        (Role::External, _) if ranks.has_local_pref => Some(None),
        (Role::Internal, 1..) => Some(Some(0)),
        (Role::Client, 0) => Some(Some(1)),
        _ => None,
    }
}

/// The imported form of a set of attributes. It holds a reference for each of its ids.
#[derive(Clone, Copy, Debug)]
pub(super) struct Import {
    pub(super) received: AttrId,
    pub(super) accepted: Option<AttrId>,
    pub(super) reason: Option<Ineligible>,
    /// The interface of a locally originated route.
    pub(super) interface: Option<InterfaceName>,
}

impl Import {
    /// Returns the import of all routes with these attributes from one peer, unless the policy
    /// evaluates each one. Takes over the reference of `received`.
    pub(super) fn new(
        shared: &mut Shared,
        (peer, info): (PeerId, &PeerInfo),
        row: &FamilyRow,
        received: AttrId,
        is_long_lived: bool,
    ) -> Self {
        let reason = eligible::evaluate(shared, received, info);
        let arrival = Arrival::of(shared, (info, row), received, is_long_lived);
        let accepted = match (&info.import, arrival) {
            (Policy::RejectAll, _) => None,
            (_, Some(arrival)) => {
                let mut ours = shared.interner.get(received);
                arrival.apply(&mut ours);
                Some(shared.intern(peer, ours))
            }
            _ => {
                shared.interner.acquire(received, 1);
                Some(received)
            }
        };
        Self {
            received,
            accepted,
            reason,
            interface: None,
        }
    }

    /// Returns whether the evaluation of a route depends on its destination.
    fn depends_on_destination(shared: &Shared, policy: &Policy) -> bool {
        shared.origin_check.is_some() || matches!(policy, Policy::Rules(_))
    }

    /// Does the same with the rules' verdict on one destination, and the validation of its origin.
    #[inline(never)]
    fn evaluated(self, shared: &mut Shared, peer: PeerId, row: &FamilyRow, nlri: Nlri<'_>) -> Self {
        let evaluated = self.by_rules(shared, peer, row, nlri.net);
        if evaluated.accepted.is_none() || evaluated.reason.is_some() {
            return evaluated;
        }
        let route = (row.family, nlri.net, nlri.path_id);
        let is_confirmed = shared.peer(peer).is_none_or(|info| {
            eligible::is_confirmed(shared, (peer, info), route, evaluated.received)
        });
        Self {
            reason: (!is_confirmed).then_some(Ineligible::Unconfirmed),
            ..evaluated
        }
    }

    fn by_rules(self, shared: &mut Shared, peer: PeerId, row: &FamilyRow, net: Net<'_>) -> Self {
        let (Some(info), Some(accepted)) = (shared.peer(peer), self.accepted) else {
            return self;
        };
        if !matches!(info.import, Policy::Rules(_)) {
            return self;
        }
        let context = RouteContext {
            family: row.family,
            net,
            attributes: &LazyCell::new(|| shared.interner.get(accepted)),
            source: info.role,
            peer: info.role,
            interface: None,
        };
        match info.import.evaluate(&context) {
            Verdict::Accept => self,
            Verdict::Reject => Self {
                accepted: None,
                ..self
            },
            Verdict::AcceptWith(attributes) => {
                let edited = shared.intern(peer, *attributes);
                if edited == accepted {
                    shared.release(edited);
                }
                Self {
                    accepted: Some(edited),
                    ..self
                }
            }
        }
    }

    /// Releases the references that [`Import::evaluated`] acquired beside those of `import`.
    #[inline(never)]
    fn release_edited(self, shared: &mut Shared, import: &Self) {
        if let Some(edited) = self.accepted.filter(|id| Some(*id) != import.accepted) {
            shared.release(edited);
        }
    }

    /// Releases the references.
    pub(super) fn release(self, shared: &mut Shared) {
        shared.release(self.received);
        if let Some(accepted) = self.accepted {
            shared.release(accepted);
        }
    }
}

impl<K: Key> FamilyTable<K> {
    pub(super) fn unreach_all(
        &mut self,
        shared: &mut Shared,
        peer: PeerId,
        nlri: NlriIter<'_>,
        done: &mut Ingested,
    ) {
        self.in_chunks(nlri, done, |this, route, done| {
            done.unreach += 1;
            if let Some(slot) = route.slot {
                this.unreach_at(shared, slot, peer, route.nlri.path_id);
            }
        });
    }

    pub(super) fn reach_all(
        &mut self,
        shared: &mut Shared,
        (peer, policy): (PeerId, &Policy),
        import: &Import,
        nlri: NlriIter<'_>,
        done: &mut Ingested,
    ) {
        let is_monitored = shared.recorder.is_some();
        let records = shared.rejected.import.is_some();
        let depends = Import::depends_on_destination(shared, policy);
        self.in_chunks(nlri, done, |this, route, done| {
            let evaluated = depends.then(|| {
                let row = this.prefixes.row();
                import.evaluated(shared, peer, row, route.nlri)
            });
            let used = evaluated.as_ref().unwrap_or(import);
            let was_accepted = is_monitored && this.has_accepted(peer, &route.nlri);
            let taken = this.reach(shared, route, peer, used);
            if is_monitored && taken == Taken::Yes {
                this.record_reach(shared, peer, &route.nlri, (used, was_accepted));
            }
            let is_recorded = records && used.accepted.is_none();
            if let Some(evaluated) = evaluated {
                evaluated.release_edited(shared, import);
            }
            if is_recorded {
                this.record_rejected(shared, peer, route.nlri);
            }
            match taken {
                Taken::Yes => done.reach += 1,
                Taken::NoRoom => done.refused += 1,
                Taken::Limited => done.limited += 1,
            }
        });
    }

    /// Processes NLRI in chunks; all of a chunk are looked up before any is applied: if tables do
    /// not fit into caches, the processor then waits for many lookups at once.
    fn in_chunks(
        &mut self,
        mut nlri: NlriIter<'_>,
        done: &mut Ingested,
        mut take: impl FnMut(&mut Self, &Wanted<'_>, &mut Ingested),
    ) {
        let mut chunk: SmallVec<[Wanted<'_>; CHUNK]> = SmallVec::new();
        loop {
            for nlri in nlri.by_ref().take(CHUNK) {
                match nlri {
                    Ok(nlri) => chunk.push(self.wanted(nlri)),
                    Err(fault) => done.faults.push(fault),
                }
            }
            if chunk.is_empty() {
                return;
            }
            self.prefixes.warm(chunk.iter().map(|route| route.hash));
            for route in &mut chunk {
                route.slot = self.prefixes.find(route.nlri.net, route.hash);
            }
            for route in &chunk {
                take(self, route, done);
            }
            chunk.clear();
        }
    }

    /// Evaluates eligibility and import policy of a path as if it had just been received. Its age
    /// does not change.
    pub(super) fn reevaluate_path(
        &mut self,
        shared: &mut Shared,
        at: u32,
        index: usize,
        how: Reevaluate,
    ) {
        let old = self.prefixes.paths(at)[index];
        let peer = old.peer();
        let Some(info) = shared.peer(peer).cloned() else {
            return;
        };
        shared.interner.acquire(old.received(), 1);
        let row = self.prefixes.row();
        let marks = self.received.of(peer);
        let is_long_lived = marks.is_some_and(|marks| marks.is_long_lived(&old));
        let import = Import::new(shared, (peer, &info), row, old.received(), is_long_lived);
        let evaluated = if Import::depends_on_destination(shared, &info.import) {
            let net = self.prefixes.path_net(at, peer, old.path_id());
            let path_id = old.path_id();
            import.evaluated(shared, peer, self.prefixes.row(), Nlri { path_id, net })
        } else {
            import
        };
        let mut path = Path::new(
            peer,
            old.path_id(),
            old.epoch(),
            evaluated.received,
            evaluated.accepted,
            evaluated.reason,
        );
        path.doubt(old.is_doubted());
        let is_rejected = evaluated.accepted.is_none() && old.accepted().is_some();
        let is_changed = evaluated.accepted != old.accepted();
        self.replace_path(shared, at, index, path, how == Reevaluate::All);
        evaluated.release_edited(shared, &import);
        import.release(shared);
        if is_changed && shared.recorder.is_some() {
            self.record_reevaluated(shared, at, &path);
        }
        if is_rejected {
            self.record_rejected_at(shared, at, &path);
        }
    }

    pub(super) fn wanted<'a>(&mut self, nlri: Nlri<'a>) -> Wanted<'a> {
        Wanted {
            nlri,
            hash: self.prefixes.hash(nlri.net),
            slot: None,
        }
    }

    /// Adds or changes a peer's path to a destination.
    pub(super) fn reach(
        &mut self,
        shared: &mut Shared,
        route: &Wanted<'_>,
        peer: PeerId,
        import: &Import,
    ) -> Taken {
        let &Wanted { nlri, hash, slot } = route;
        let Nlri { path_id, net } = nlri;
        let at = match slot {
            Some(at) => at,
            None if self.received.refuses(peer) => return Taken::Limited,
            None => match self.prefixes.find_or_insert(net, hash) {
                Some(at) => at,
                None => return Taken::NoRoom,
            },
        };
        let epoch = self.received.epoch(peer);
        let path = Path::new(
            peer,
            path_id,
            epoch,
            import.received,
            import.accepted,
            import.reason,
        );
        self.confirm(shared, at, &path);
        let beside = (self.prefixes).keep_beside(at, &path, net, import.interface);
        let paths = self.prefixes.paths(at);
        let refused = match paths.iter().position(|path| path.is_from(peer, path_id)) {
            Some(index) => {
                self.replace_path(shared, at, index, path, beside);
                return Taken::Yes;
            }
            None if !has_room(paths, peer) => Taken::NoRoom,
            None if slot.is_some() && self.received.refuses(peer) => Taken::Limited,
            None => {
                self.add_path(shared, at, path);
                return Taken::Yes;
            }
        };
        self.prefixes.drop_beside(at, &path);
        refused
    }

    /// Sweeps a peer's removed paths at once if they might matter for its limit, before any slot is
    /// looked up: removed paths do not count.
    pub(super) fn make_room(&mut self, shared: &mut Shared, peer: PeerId, reach: &NlriIter<'_>) {
        let Some(marks) = self.received.of(peer).filter(|marks| marks.has_dead()) else {
            return;
        };
        let max = marks.limit.map_or(usize::MAX, |limit| limit.max as usize);
        if (marks.counters.paths as usize).saturating_add(reach.clone().count()) > max {
            self.sweep_peer(shared, peer);
        }
    }

    fn add_path(&mut self, shared: &mut Shared, at: u32, path: Path) {
        self.received.hold(shared, &path);
        self.count_membership(shared, at, (None, Some(&path)));
        let index = self.prefixes.add_path(at, path);
        self.path_changed(shared, (at, index), None);
    }

    fn replace_path(
        &mut self,
        shared: &mut Shared,
        at: u32,
        index: usize,
        mut path: Path,
        beside_changed: bool,
    ) {
        let slot = self.prefixes.slot_mut(at);
        let is_best = slot.best() == Some(index);
        let place = &mut slot.paths_mut()[index];
        let old = *place;
        let marks = self.received.of(path.peer());
        // A removed or refuted path from before the session counts as absent: the new one is published.
        let revived =
            marks.is_some_and(|marks| marks.is_dead(&old) || shared.is_refuted(&old, marks));
        let changed = beside_changed || revived || !old.has_outcome_of(&path);
        if !changed && old.received() == path.received() {
            place.set_epoch(path.epoch());
            return;
        }
        let before = is_best.then(|| shared.candidate(&old, marks));
        path.inherit(&old, changed);
        self.received.hold(shared, &path);
        self.prefixes.slot_mut(at).paths_mut()[index] = path;
        self.received.unhold(shared, &old);
        self.count_membership(shared, at, (Some(&old), Some(&path)));
        if changed {
            self.path_changed(shared, (at, index), before);
        }
    }

    /// Removes a peer's path to a destination.
    pub(super) fn unreach_at(&mut self, shared: &mut Shared, at: u32, peer: PeerId, path_id: u32) {
        // A message may withdraw a destination twice, and the slot may be released in between.
        let Some(slot) = self.prefixes.used(at) else {
            return;
        };
        let mut paths = slot.paths().iter();
        let Some(index) = paths.position(|path| path.is_from(peer, path_id)) else {
            return;
        };
        let path = slot.paths()[index];
        let is_dead = self.received.is_dead(&path);
        let origin = shared.origin(&path).filter(|_| !is_dead);
        self.remove_path(shared, at, index);
        if let Some(origin) = origin {
            self.doubt(shared, at, peer, origin);
        }
    }

    /// Handles that a peer has withdrawn a path of an origin. If it was the last one, paths of this origin from
    /// other peers are not used if they are stale, or become it before their peers have sent another message: a
    /// peer that is present is right about the origin.
    fn doubt(&mut self, shared: &Shared, at: u32, peer: PeerId, origin: RouterId) {
        let Some(slot) = self.prefixes.used(at) else {
            return;
        };
        let is_of =
            |path: &Path| shared.origin(path) == Some(origin) && !self.received.is_dead(path);
        let paths = slot.paths().iter().enumerate();
        let of_origin: SmallVec<[usize; 4]> = paths
            .filter(|(_, path)| is_of(path))
            .map(|(index, _)| index)
            .collect();
        let is_last = |index: &usize| slot.paths()[*index].peer() != peer;
        if !of_origin.iter().all(is_last) {
            return;
        }
        let mut has_stale = false;
        for index in of_origin {
            let path = &mut self.prefixes.slot_mut(at).paths_mut()[index];
            path.doubt(true);
            let of = path.peer();
            has_stale |= (self.received.of(of)).is_some_and(|marks| marks.is_stale(path));
            self.received.doubt(of, at);
        }
        if has_stale {
            self.decider.enqueue(self.prefixes.slot_mut(at), at);
        }
    }

    /// Handles an announced path: paths of its origin are not doubted any more.
    fn confirm(&mut self, shared: &Shared, at: u32, path: &Path) {
        if !self.prefixes.paths(at).iter().any(Path::is_doubted) {
            return;
        }
        let origin = shared.origin(path);
        let mut has_stale = false;
        for path in self.prefixes.slot_mut(at).paths_mut() {
            if path.is_doubted() && shared.origin(path) == origin {
                path.doubt(false);
                let marks = self.received.of(path.peer());
                has_stale |= marks.is_some_and(|marks| marks.is_stale(path));
            }
        }
        if has_stale {
            self.decider.enqueue(self.prefixes.slot_mut(at), at);
        }
    }

    pub(super) fn remove_path(&mut self, shared: &mut Shared, at: u32, index: usize) {
        if shared.recorder.is_some() {
            let path = self.prefixes.paths(at)[index];
            self.record_removed(shared, at, &path);
        }
        let path = self.prefixes.remove_path(at, index);
        self.received.unhold(shared, &path);
        self.count_membership(shared, at, (Some(&path), None));
        let outcome = self.decider.path_removed(self.prefixes.slot_mut(at), at);
        self.exporter.publish(&mut self.prefixes, at, outcome);
    }

    /// Counts a changed path if the family is that of route target memberships.
    #[inline]
    fn count_membership(
        &self,
        shared: &mut Shared,
        at: u32,
        (old, new): (Option<&Path>, Option<&Path>),
    ) {
        if !K::IS_OPAQUE || !self.prefixes.row().is_membership() {
            return;
        }
        let counted = [old, new].map(|path| path.filter(|path| is_counted(path)));
        if let ([Some(path), None] | [None, Some(path)], Net::Opaque(nlri)) =
            (counted, self.prefixes.slot(at).key().net())
        {
            (shared.memberships).count(path.peer(), nlri, counted[1].is_some());
        }
    }

    fn path_changed(
        &mut self,
        shared: &Shared,
        (at, index): (u32, usize),
        before: Option<Candidate>,
    ) {
        let tables = (&mut self.prefixes, &self.received);
        let outcome = (self.decider).path_changed(tables, shared, (at, index), before);
        self.exporter.publish(&mut self.prefixes, at, outcome);
    }
}

fn has_room(paths: &[Path], peer: PeerId) -> bool {
    paths.len() < PATHS_PER_PEER_MAX
        || paths.len() < PATHS_PER_PREFIX_MAX
            && paths.iter().filter(|path| path.peer() == peer).count() < PATHS_PER_PEER_MAX
}
