//! The public interface of a speaker's tables.

mod failures;
mod follow;
mod record;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

use bgp_proto::{
    Asn, Attributes, ClusterId, FAMILIES, Family, Ipv4Prefix, Ipv6Prefix, Net, RouteBatch, RouterId,
};

use crate::attributes::AttrId;
use crate::budget::{Budget, Progress};
use crate::config::{RibConfig, RibStats};
use crate::depend::Dependence;
use crate::explain::RouteView;
use crate::export::{Change, Cursor, ExportSink, GroupId, GroupRules, SentPath};
use crate::family::{FamilyTable, Ingested, Tables};
use crate::limits::PATH_OCTETS;
use crate::membership::RouteTargets;
use crate::next_hop::{Reach, Track};
use crate::origin::OriginCheck;
use crate::peer::{DownMode, PathLimit, PeerCounters, PeerId, PeerInfo};
use crate::policy::{InterfaceName, PrefixRange};
use crate::shared::Shared;
use crate::stale::{Mark, Reevaluate};
use crate::table::OctetKey;

/// Requests another evaluation of all paths of a peer.
fn reevaluate_peer(families: &mut [Option<Box<dyn Tables>>], peer: PeerId, how: Reevaluate) {
    for table in families.iter_mut().flatten() {
        let met_by = table.sweep_mut().met_by();
        if table.received_mut().reevaluate(peer, how, met_by) {
            table.sweep_mut().request();
        }
        if how == Reevaluate::All {
            let len = table.len();
            table.exporter_mut().mark_sent_stale(len);
        }
    }
}

/// The tables of a speaker: one for each family that has been used.
#[derive(Debug)]
pub struct Rib {
    shared: Shared,
    seed: u64,
    /// By [`Family::index`].
    families: Vec<Option<Box<dyn Tables>>>,
    free_groups: Vec<u32>,
}

impl Rib {
    /// Makes empty tables. The seed is for the hash functions; it never changes an outcome.
    #[must_use]
    pub fn new(config: RibConfig, seed: u64) -> Self {
        let mut families = Vec::new();
        families.resize_with(FAMILIES.len(), || None);
        Self {
            shared: Shared::new(config, seed),
            seed,
            families,
            free_groups: Vec::new(),
        }
    }

    /// Returns the configuration of the tables.
    #[must_use]
    pub fn config(&self) -> &RibConfig {
        &self.shared.config
    }

    /// Sets the identity of the speaker: [`Rib::decide`] evaluates all received routes again, for
    /// the local AS in their AS_PATH (RFC 4271 §9.1.2) and the local identifier in ORIGINATOR_ID
    /// (RFC 4456 §8).
    pub fn set_identity(&mut self, local_asn: Asn, router_id: RouterId) {
        let config = &mut self.shared.config;
        if (config.local_asn, config.router_id) == (local_asn, router_id) {
            return;
        }
        (config.local_asn, config.router_id) = (local_asn, router_id);
        self.shared.interner.set_local_asn(local_asn);
        self.reevaluate_peers(Reevaluate::All, |_| true);
    }

    /// Sets the local clusters: [`Rib::decide`] evaluates routes of internal peers again (RFC 4456
    /// §8).
    pub fn set_cluster_ids(&mut self, cluster_ids: BTreeSet<ClusterId>) {
        if self.shared.config.cluster_ids == cluster_ids {
            return;
        }
        self.shared.config.cluster_ids = cluster_ids;
        self.reevaluate_peers(Reevaluate::Changed, |peer| peer.role.is_internal());
    }

    /// Sets the addresses of this machine. [`Rib::decide`] evaluates paths of all peers again: none
    /// may have a local address as next hop (RFC 4271 §5.1.3).
    pub fn set_own_addresses(&mut self, own_addresses: BTreeSet<IpAddr>) {
        if self.shared.config.own_addresses == own_addresses {
            return;
        }
        self.shared.config.own_addresses = own_addresses;
        self.reevaluate_peers(Reevaluate::Changed, |_| true);
    }

    /// Sets the validation of the origin of received paths, or disables it. [`Rib::decide`] evaluates
    /// paths of all peers again.
    pub fn set_origin_check(&mut self, check: Option<Arc<dyn OriginCheck>>) {
        self.shared.origin_check = check;
        self.reevaluate_peers(Reevaluate::Changed, |_| true);
    }

    /// Requests another evaluation of all paths of some peers.
    fn reevaluate_peers(&mut self, how: Reevaluate, which: impl Fn(&PeerInfo) -> bool) {
        for (info, peer) in self.shared.peers.iter().zip(0..) {
            if info.as_ref().is_some_and(&which) {
                reevaluate_peer(&mut self.families, PeerId(peer), how);
            }
        }
    }

    // --- peers ---------------------------------------------------------------------------------

    /// Records that a session is established. Paths of the former session keep their status, unless
    /// the properties of the peer have changed.
    pub fn peer_up(&mut self, peer: PeerId, info: PeerInfo) {
        if peer == PeerId::LOCAL || peer.0 == u16::MAX {
            return;
        }
        if peer.index() >= self.shared.peers.len() {
            self.shared.peers.resize(peer.index() + 1, None);
        }
        let before = self.shared.peers[peer.index()].replace(info.clone());
        if before.is_some_and(|before| before != info) {
            for row in FAMILIES {
                self.mark(peer, row.family, Mark::Flush);
            }
            // The advertisement of a path depends on its peer, too.
            for table in self.families.iter_mut().flatten() {
                let len = table.len();
                table.exporter_mut().mark_sent_stale(len);
            }
        }
    }

    /// Changes properties of a peer while its paths stay: its import policy, its role as a client,
    /// its cluster. [`Rib::decide`] evaluates its routes again; the peer need not send them again.
    pub fn change_peer(&mut self, peer: PeerId, change: impl FnOnce(&mut PeerInfo)) {
        let Some(Some(info)) = self.shared.peers.get_mut(peer.index()) else {
            return;
        };
        let before = info.clone();
        change(info);
        let evaluated = (&before.import, before.local, before.domain)
            != (&info.import, info.local, info.domain)
            || (before.local_asn, before.as_path) != (info.local_asn, info.as_path)
            || (&before.link, before.origin) != (&info.link, info.origin);
        let advertised =
            (before.role, before.asn, before.cluster_id) != (info.role, info.asn, info.cluster_id);
        let how = match (evaluated, advertised) {
            (_, true) => Reevaluate::All,
            (true, false) => Reevaluate::Changed,
            (false, false) => return,
        };
        reevaluate_peer(&mut self.families, peer, how);
    }

    /// Evaluates eligibility and import policy of all paths in a range of prefixes again, without a
    /// message from their peers. It is for changes that [`Rib::change_peer`] does not cover: of
    /// data that a policy refers to, such as a ROA or a datastore record.
    ///
    /// A range of one prefix is evaluated at once, any other by [`Rib::decide`], with one unit of
    /// its [`Budget`] per path; it is complete for the paths in the table when that returns
    /// [`Progress::Done`]. In a family whose NLRI are not IP prefixes all paths are evaluated.
    pub fn reevaluate(&mut self, family: Family, range: &PrefixRange) {
        if let Some((table, shared)) = self.table_mut(family) {
            table.reevaluate(shared, range);
        }
    }

    /// Sets the maximum number of paths of a peer in a family. Existing paths stay.
    pub fn limit_paths(&mut self, peer: PeerId, family: Family, limit: Option<PathLimit>) {
        if let Some((table, _)) = self.table_made(family) {
            table.received_mut().set_limit(peer, limit);
        }
    }

    /// Records that a session has ended. Paths to be removed are excluded from decisions at once
    /// and swept by [`Rib::decide`].
    pub fn peer_down(&mut self, peer: PeerId, mode: DownMode) {
        for family in FAMILIES.iter().map(|row| row.family) {
            let how = Mark::of_end(mode, family);
            self.mark(peer, family, how);
            if let (Mark::Flush, Some(recorder)) = (how, &mut self.shared.recorder) {
                recorder.flush(peer, family);
            }
        }
    }

    /// Handles the end of a peer's restart time (RFC 9494 §4.2): [`Rib::decide`] adds LLGR_STALE to its
    /// stale paths, and removes paths with NO_LLGR.
    pub fn begin_long_lived(&mut self, peer: PeerId, family: Family) {
        self.mark(peer, family, Mark::LongLived);
    }

    /// Handles an End-of-RIB marker: paths that are still stale are removed (RFC 4724 §4.2).
    pub fn end_of_rib(&mut self, peer: PeerId, family: Family) {
        self.mark(peer, family, Mark::EndRestart);
    }

    /// Removes stale paths of all families after their time has expired (RFC 4724 §4.2).
    pub fn stale_expired(&mut self, peer: PeerId) {
        for row in FAMILIES {
            self.mark(peer, row.family, Mark::EndRestart);
        }
    }

    /// Handles BoRR: the peer begins to send a family again (RFC 7313 §4).
    pub fn begin_refresh(&mut self, peer: PeerId, family: Family) {
        self.mark(peer, family, Mark::BeginRefresh);
    }

    /// Handles EoRR: paths that the peer did not send again are removed (RFC 7313 §4).
    pub fn end_refresh(&mut self, peer: PeerId, family: Family) {
        self.mark(peer, family, Mark::EndRefresh);
    }

    /// Returns whether no path of a peer is left to sweep, so that its number may be reused.
    #[must_use]
    pub fn is_settled(&self, peer: PeerId) -> bool {
        self.families
            .iter()
            .flatten()
            .all(|table| table.received().is_settled(peer))
    }

    /// Returns the counters of one peer in one family.
    #[must_use]
    pub fn counters(&self, peer: PeerId, family: Family) -> PeerCounters {
        self.table(family)
            .map(|table| table.received().counters(peer))
            .unwrap_or_default()
    }

    /// Returns the octets that the tables hold for a peer: [`PATH_OCTETS`](crate::limits::PATH_OCTETS)
    /// for each of its paths, and the attribute sets in its account. A set that several peers have
    /// sent is in the account of the first one, until it is removed.
    #[must_use]
    pub fn octets(&self, peer: PeerId) -> usize {
        let tables = self.families.iter().flatten();
        let paths = tables.map(|table| table.received().counters(peer).paths as usize);
        paths.sum::<usize>() * PATH_OCTETS + self.shared.interner.owned(peer)
    }

    /// Returns the octets in the accounts of all peers and of local routes together.
    #[must_use]
    pub fn octets_held(&self) -> usize {
        let tables = self.families.iter().flatten();
        let paths = tables.map(|table| table.received().paths_len());
        paths.sum::<usize>() * PATH_OCTETS + self.shared.interner.held()
    }

    /// Moves the attribute sets in the accounts of removed peers, which other peers have sent, too,
    /// to the account of no peer: the numbers of these peers may be used again. Call it once
    /// [`Rib::is_settled`] returns true for each of them. It reads every set if there is one to move,
    /// so call it once for all of them.
    pub fn disown(&mut self, peers: &[PeerId]) {
        self.shared.interner.disown(peers);
    }

    fn mark(&mut self, peer: PeerId, family: Family, how: Mark) {
        if peer == PeerId::LOCAL {
            return;
        }
        if let Some((table, shared)) = self.table_mut(family) {
            if let Some(recorder) = &mut shared.recorder {
                recorder.unflush(peer, family);
            }
            table.mark(shared, peer, how);
        }
    }

    // --- routes in -----------------------------------------------------------------------------

    /// Applies the routes of one UPDATE for one family. Withdrawals are applied before
    /// announcements. Announcements without attributes are treated as withdrawals (RFC 7606 §2).
    pub fn ingest(&mut self, peer: PeerId, batch: &RouteBatch<'_>) -> Ingested {
        let Some((table, shared)) = self.table_made(batch.family) else {
            return Ingested::default();
        };
        table.ingest(shared, peer, batch)
    }

    /// Announces or changes a locally originated route. Without a next hop, peers receive the local
    /// address. Its interface is for export policies only.
    pub fn announce(
        &mut self,
        family: Family,
        net: Net<'_>,
        attributes: Attributes,
        interface: Option<InterfaceName>,
    ) {
        if let Some((table, shared)) = self.table_made(family) {
            table.announce(shared, net, attributes, interface);
        }
    }

    /// Withdraws a locally originated route.
    pub fn withdraw(&mut self, family: Family, net: Net<'_>) {
        if let Some((table, shared)) = self.table_mut(family) {
            table.withdraw(shared, net);
        }
    }

    /// Returns the next request about next hops, if there is one.
    pub fn poll_track(&mut self) -> Option<Track> {
        self.shared.next_hops.poll_track()
    }

    /// Returns the next peer with changed route target memberships, if there is one. Poll it after
    /// each call that may change paths.
    #[inline]
    pub fn poll_route_targets(&mut self) -> Option<PeerId> {
        self.shared.memberships.poll()
    }

    /// Returns the route targets that a peer wants: by the memberships that it has advertised, and
    /// that its import policy accepts (RFC 4684). Do not keep the result while routes are received:
    /// it would be copied.
    #[must_use]
    pub fn route_targets(&self, peer: PeerId) -> Arc<RouteTargets> {
        self.shared.memberships.of(peer)
    }

    /// Sets the reachability of a tracked next hop.
    pub fn resolve(&mut self, next_hop: IpAddr, reach: Reach) {
        if self.shared.next_hops.resolve(next_hop, reach) {
            self.sweep_next_hops();
        }
    }

    /// Decides about prefixes that wait for it, and sweeps removed paths.
    pub fn decide(&mut self, budget: Budget) -> Progress {
        let mut left = budget.0.max(1);
        for table in self.families.iter_mut().flatten() {
            let progress = table.decide(&mut self.shared, &mut left);
            if progress != Progress::Done || left == 0 {
                return Progress::More;
            }
        }
        Progress::Done
    }

    // --- routes out ----------------------------------------------------------------------------

    /// Reads the next changes of a family. A cursor at the start receives the whole table first. A
    /// change that has not been read when the next one of the prefix occurs is skipped.
    pub fn changes(
        &mut self,
        family: Family,
        cursor: &mut Cursor,
        budget: Budget,
        reader: &mut dyn FnMut(Change<'_>),
    ) -> Progress {
        match self.table_made(family) {
            Some((table, shared)) => table.changes(shared, (cursor, budget), reader),
            None => Progress::Done,
        }
    }

    /// Adds an update group. It follows changes from its first export on; its members receive their
    /// full dump by [`Rib::export_private`].
    pub fn add_group(&mut self, rules: GroupRules) -> GroupId {
        let groups = &mut self.shared.groups;
        match self.free_groups.pop() {
            Some(at) => {
                groups[at as usize] = Some(rules);
                GroupId(at)
            }
            None => {
                groups.push(Some(rules));
                GroupId(groups.len() as u32 - 1)
            }
        }
    }

    /// Removes a group.
    pub fn remove_group(&mut self, group: GroupId) {
        let Some(rules) = self.shared.groups.get_mut(group.0 as usize) else {
            return;
        };
        if rules.take().is_some() {
            self.free_groups.push(group.0);
            for table in self.families.iter_mut().flatten() {
                table.exporter_mut().remove_group(group);
            }
        }
    }

    /// Prepares for members of the group `from` that move to the group `to`, each from its own
    /// position ([`Cursor::with_new_rules`]): paths that they may hold by path identifiers of the one group
    /// (RFC 7911) are withdrawn in the other. Visits all prefixes at once, once for all these
    /// members.
    pub fn adopt(&mut self, to: GroupId, from: GroupId) {
        for table in self.families.iter_mut().flatten() {
            let len = table.len();
            table.exporter_mut().adopt(&self.shared, len, (to, from));
        }
    }

    /// Advances the cursor of a group in a family by one step, and writes the changes for its members
    /// to `sink`.
    ///
    /// With [`Progress::Lost`] the group starts from the beginning: the sessions of all members at
    /// its cursor have to be reset.
    pub fn export(
        &mut self,
        group: GroupId,
        family: Family,
        budget: Budget,
        sink: &mut dyn ExportSink,
    ) -> Progress {
        match self.table_made(family) {
            Some((table, shared)) => table.export(shared, group, (None, budget), sink),
            None => Progress::Done,
        }
    }

    /// Advances the cursor of private members by one step. It begins with a full table dump, or at the
    /// group's cursor when the member left it. The output from one cursor to the next may be sent to
    /// any member at the first one, also later, as long as that cursor is passed to [`Rib::trim`];
    /// the member is at the second cursor then.
    ///
    /// With [`Progress::Done`] a member that is sent the output at once holds everything. From the
    /// next [`Rib::export`] on it is at the group's cursor, wherever that is. With
    /// [`Progress::Lost`] its session has to be reset.
    pub fn export_private(
        &mut self,
        group: GroupId,
        family: Family,
        cursor: &mut Cursor,
        budget: Budget,
        sink: &mut dyn ExportSink,
    ) -> Progress {
        match self.table_made(family) {
            Some((table, shared)) => table.export(shared, group, (Some(cursor), budget), sink),
            None => Progress::Done,
        }
    }

    /// Returns the cursor of a group, from which a member that becomes private now continues.
    pub fn group_cursor(&mut self, group: GroupId, family: Family) -> Cursor {
        match self.table_made(family) {
            Some((table, shared)) if shared.rules(group).is_some() => {
                let len = table.len();
                table.exporter_mut().group_cursor(shared, len, group)
            }
            _ => Cursor::initial(),
        }
    }

    /// Drops log entries and withdrawn prefixes that no reader needs any more. `held` are the
    /// cursors of all readers of the family; the cursors of groups are known. A reader that is omitted
    /// loses its position: it reads the whole table, or gets [`Progress::Lost`].
    pub fn trim(&mut self, family: Family, held: &[Cursor]) {
        if let Some((table, _)) = self.table_mut(family) {
            table.trim(held);
        }
    }

    /// Returns the paths of a prefix that the members of a group must hold now, each except its
    /// source.
    #[must_use]
    pub fn sent(&self, group: GroupId, family: Family, net: Net<'_>) -> Vec<SentPath> {
        let table = self.table(family);
        table.map_or_else(Vec::new, |table| table.sent(&self.shared, group, net))
    }

    // --- views ---------------------------------------------------------------------------------

    /// Returns the prefixes of a family with paths, in no particular order.
    pub fn prefixes(&self, family: Family) -> impl Iterator<Item = RouteView<'_>> + '_ {
        self.prefixes_from(family, 0).map(|(_, view)| view)
    }

    /// Does the same with the place of each, from a place on: so a caller can page. A place is
    /// valid as long as its prefix exists; a prefix added in between may be missed.
    pub fn prefixes_from(
        &self,
        family: Family,
        place: u32,
    ) -> impl Iterator<Item = (u32, RouteView<'_>)> + '_ {
        let table = self.table(family);
        let slots = place..table.map_or(0, Tables::len);
        slots.filter_map(move |at| Some((at, table?.view(&self.shared, at)?)))
    }

    /// Returns one prefix.
    #[must_use]
    pub fn lookup(&self, family: Family, net: Net<'_>) -> Option<RouteView<'_>> {
        let table = self.table(family)?;
        table.view(&self.shared, table.look_up(net)?)
    }

    /// Searches from a place on for a prefix that is usable through these peers only: it would be
    /// lost with them. Places are those of [`Rib::prefixes_from`].
    #[must_use]
    pub fn depend(
        &self,
        family: Family,
        peers: &BTreeSet<PeerId>,
        place: u32,
        budget: Budget,
    ) -> Dependence {
        match self.table(family) {
            Some(table) => table.depend(&self.shared, peers, place, budget),
            None => Dependence::None,
        }
    }

    /// Returns an interned attribute set, if the number is in use.
    #[must_use]
    pub fn attributes(&self, id: AttrId) -> Option<Attributes> {
        self.shared.interner.find(id)
    }

    /// Returns the size of the tables.
    #[must_use]
    pub fn stats(&self) -> RibStats {
        let mut stats = RibStats {
            attribute_sets: self.shared.interner.len(),
            raw_sets: self.shared.interner.raw_len(),
            next_hops: self.shared.next_hops.len(),
            ..RibStats::default()
        };
        for table in self.families.iter().flatten() {
            table.add_stats(&mut stats);
        }
        stats
    }

    fn table(&self, family: Family) -> Option<&dyn Tables> {
        self.families.get(usize::from(family.index()?))?.as_deref()
    }

    fn table_mut(&mut self, family: Family) -> Option<(&mut dyn Tables, &mut Shared)> {
        let table = self
            .families
            .get_mut(usize::from(family.index()?))?
            .as_deref_mut()?;
        Some((table, &mut self.shared))
    }

    /// Returns the table of a family, made if necessary; `None` if the family is unsupported.
    fn table_made(&mut self, family: Family) -> Option<(&mut dyn Tables, &mut Shared)> {
        let place = self.families.get_mut(usize::from(family.index()?))?;
        if place.is_none() {
            let (row, seed) = (family.row()?, self.seed);
            let limits = self.shared.config.limits;
            *place = Some(match row.framing {
                bgp_proto::Framing::Ipv4 => {
                    Box::new(FamilyTable::<Ipv4Prefix>::new(row, seed, limits))
                }
                bgp_proto::Framing::Ipv6 => {
                    Box::new(FamilyTable::<Ipv6Prefix>::new(row, seed, limits))
                }
                _ => Box::new(FamilyTable::<OctetKey>::new(row, seed, limits)),
            });
        }
        let table = place.as_deref_mut()?;
        Some((table, &mut self.shared))
    }
}

#[cfg(test)]
mod tests;
