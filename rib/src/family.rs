//! The table of one family, composed of its parts.
//!
//! Each part owns its state. Changes of paths (modules `import` and `sweep`) modify [`Prefixes`]
//! and [`AdjRibsIn`]; the [`Decider`] returns the result for readers, and the [`Exporter`]
//! publishes it.

mod eligible;
mod import;
mod record;
mod rejected;
mod sweep;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt::Debug;

use bgp_proto::{Attributes, FamilyRow, Fault, Net, Nlri, Prefix, Remedy, RouteBatch};

use crate::adj_rib_in::AdjRibsIn;
use crate::budget::{Budget, Progress};
use crate::config::{RibLimits, RibStats};
use crate::decide::Decider;
use crate::depend::{self, Dependence};
use crate::explain::{self, RouteView};
use crate::export::{Change, Cursor, ExportSink, Exporter, GroupId, SentPath, View};
use crate::limits::TRUSTED_PER_MESSAGE;
use crate::path::Path;
use crate::peer::PeerId;
use crate::policy::{InterfaceName, PrefixRange};
use crate::prefixes::Prefixes;
use crate::shared::Shared;
use crate::stale::{Mark, Reevaluate};
use crate::table::Key;

pub(crate) use import::Arrival;
use import::Import;
pub use import::Ingested;
pub(crate) use sweep::Sweep;

/// A table, independent of the type of its keys.
pub(crate) trait Tables: Debug + Send {
    fn received(&self) -> &AdjRibsIn;
    fn received_mut(&mut self) -> &mut AdjRibsIn;
    fn sweep_mut(&mut self) -> &mut Sweep;
    fn exporter(&self) -> &Exporter;
    fn exporter_mut(&mut self) -> &mut Exporter;

    /// Applies the routes of one UPDATE.
    fn ingest(&mut self, shared: &mut Shared, peer: PeerId, batch: &RouteBatch<'_>) -> Ingested;
    /// Adds or changes a locally originated route.
    fn announce(
        &mut self,
        shared: &mut Shared,
        net: Net<'_>,
        attributes: Attributes,
        interface: Option<InterfaceName>,
    );
    /// Removes a locally originated route.
    fn withdraw(&mut self, shared: &mut Shared, net: Net<'_>);
    /// Ends the doubts about paths of a peer that is present, as many as one message may.
    fn trust(&mut self, peer: PeerId);
    /// Marks all paths of a peer in one step; removed ones are swept in steps.
    fn mark(&mut self, shared: &mut Shared, peer: PeerId, how: Mark);
    /// Evaluates the paths of one prefix again, or requests it for those of a longer range.
    fn reevaluate(&mut self, shared: &mut Shared, range: &PrefixRange);
    /// Performs pending work: decisions first, then the sweep, which causes more of them.
    fn decide(&mut self, shared: &mut Shared, budget: &mut u32) -> Progress;

    /// Performs one step of a reader of routes.
    fn changes(
        &mut self,
        shared: &mut Shared,
        place: (&mut Cursor, Budget),
        reader: &mut dyn FnMut(Change<'_>),
    ) -> Progress;
    /// Performs one step of a group at its shared cursor, or of members at `own`.
    fn export(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        place: (Option<&mut Cursor>, Budget),
        sink: &mut dyn ExportSink,
    ) -> Progress;
    /// Drops state that no reader needs any more; `held` are the readers beside the groups.
    fn trim(&mut self, held: &[Cursor]);
    /// Returns the paths of a prefix that the members of a group must hold now.
    fn sent(&self, shared: &Shared, group: GroupId, net: Net<'_>) -> Vec<SentPath>;

    /// Returns the number of slots, including free ones.
    fn len(&self) -> u32;
    /// Returns the slot of a prefix.
    fn look_up(&self, net: Net<'_>) -> Option<u32>;
    /// Returns the view of a slot; `None` if it has no paths.
    fn view<'a>(&'a self, shared: &'a Shared, at: u32) -> Option<RouteView<'a>>;
    /// Searches from a place on for the next prefix that is usable through these peers only.
    fn depend(
        &self,
        shared: &Shared,
        peers: &BTreeSet<PeerId>,
        place: u32,
        budget: Budget,
    ) -> Dependence;
    fn add_stats(&self, stats: &mut RibStats);
}

/// The table of one family.
#[derive(Debug)]
pub(crate) struct FamilyTable<K: Key> {
    prefixes: Prefixes<K>,
    received: AdjRibsIn,
    decider: Decider,
    sweep: Sweep,
    exporter: Exporter,
}

impl<K: Key> FamilyTable<K> {
    pub(crate) fn new(row: &'static FamilyRow, seed: u64, limits: RibLimits) -> Self {
        Self {
            prefixes: Prefixes::new(row, seed),
            received: AdjRibsIn::default(),
            decider: Decider::default(),
            sweep: Sweep::default(),
            exporter: Exporter::new(row.family, limits),
        }
    }

    fn decide_next(&mut self, shared: &Shared) -> bool {
        let Some(at) = self.decider.next() else {
            return false;
        };
        let tables = (&mut self.prefixes, &self.received);
        let outcome = self.decider.decide(tables, shared, at);
        self.exporter.publish(&mut self.prefixes, at, outcome);
        true
    }

    fn progress(&self) -> Progress {
        match self.decider.is_idle() && !self.sweep.is_active() {
            true => Progress::Done,
            false => Progress::More,
        }
    }
}

impl<K: Key + Send> Tables for FamilyTable<K> {
    fn received(&self) -> &AdjRibsIn {
        &self.received
    }

    fn received_mut(&mut self) -> &mut AdjRibsIn {
        &mut self.received
    }

    fn sweep_mut(&mut self) -> &mut Sweep {
        &mut self.sweep
    }

    fn exporter(&self) -> &Exporter {
        &self.exporter
    }

    fn exporter_mut(&mut self) -> &mut Exporter {
        &mut self.exporter
    }

    fn ingest(&mut self, shared: &mut Shared, peer: PeerId, batch: &RouteBatch<'_>) -> Ingested {
        let mut done = Ingested::default();
        let Some(info) = shared.peer(peer).cloned() else {
            return done;
        };
        self.received.of_mut(peer);
        self.make_room(shared, peer, &batch.reach);
        let mut received = None;
        if let Some(block) = batch.attrs.as_ref().filter(|_| !batch.reach.is_empty()) {
            let known = shared.receive(peer, block);
            received = known.set;
            done.faults = known.faults;
        }
        done.remedy = Fault::worst(&done.faults);
        if done.remedy >= Some(Remedy::DisableFamily) {
            if let Some(received) = received {
                shared.release(received);
            }
            return done;
        }
        self.unreach_all(shared, peer, batch.unreach.clone(), &mut done);
        match received {
            Some(received) => {
                let import =
                    Import::new(shared, (peer, &info), self.prefixes.row(), received, false);
                let reach = batch.reach.clone();
                self.reach_all(shared, (peer, &info.import), &import, reach, &mut done);
                import.release(shared);
            }
            // RFC 7606 §2: announced without usable attributes means withdrawn.
            None => self.unreach_all(shared, peer, batch.reach.clone(), &mut done),
        }
        done.remedy = Fault::worst(&done.faults);
        done.exceeded = done.reach > 0 && self.received.exceeds(peer);
        let counters = &mut self.received.of_mut(peer).counters;
        counters.limited += u64::from(done.limited);
        counters.reach += u64::from(done.reach);
        counters.unreach += u64::from(done.unreach);
        done
    }

    fn announce(
        &mut self,
        shared: &mut Shared,
        net: Net<'_>,
        attributes: Attributes,
        interface: Option<InterfaceName>,
    ) {
        self.received.of_mut(PeerId::LOCAL);
        let received = shared.intern(PeerId::LOCAL, attributes);
        shared.interner.acquire(received, 1);
        let import = Import {
            received,
            accepted: Some(received),
            reason: None,
            interface,
        };
        let route = self.wanted(Nlri::new(net));
        self.reach(shared, &route, PeerId::LOCAL, &import);
        import.release(shared);
    }

    fn withdraw(&mut self, shared: &mut Shared, net: Net<'_>) {
        let hash = self.prefixes.hash(net);
        if let Some(at) = self.prefixes.find(net, hash) {
            self.unreach_at(shared, at, PeerId::LOCAL, 0);
        }
    }

    fn trust(&mut self, peer: PeerId) {
        for _ in 0..TRUSTED_PER_MESSAGE {
            let Some(at) = self.received.take_doubted(peer) else {
                return;
            };
            let received = &self.received;
            // A stale path has an announcement to wait for.
            let is_trusted = |path: &&mut Path| {
                path.peer() == peer && received.of(peer).is_none_or(|marks| !marks.is_stale(path))
            };
            if self.prefixes.used(at).is_some() {
                let paths = self.prefixes.slot_mut(at).paths_mut().iter_mut();
                paths.filter(is_trusted).for_each(|path| path.doubt(false));
            }
        }
    }

    fn mark(&mut self, shared: &mut Shared, peer: PeerId, how: Mark) {
        let Some(marks) = self.received.of(peer) else {
            return;
        };
        if marks.is_full() {
            self.renew(shared, peer);
        }
        if self.received.mark(peer, how, self.sweep.met_by()) {
            self.sweep.request();
        }
        let has_refuted = self.received.has_doubted(peer) || !shared.failed_origins.is_empty();
        if has_refuted && matches!(how, Mark::Restart { .. }) {
            self.sweep.decide_all();
        }
    }

    fn reevaluate(&mut self, shared: &mut Shared, range: &PrefixRange) {
        if !self.prefixes.row().is_typed() {
            return self.sweep.reevaluate_all();
        }
        if !range.is_single() {
            return self.sweep.reevaluate(range);
        }
        let net = match range.prefix() {
            Prefix::V4(prefix) => Net::V4(prefix),
            Prefix::V6(prefix) => Net::V6(prefix),
        };
        if let Some(at) = self.prefixes.look_up(net) {
            self.sweep_paths(shared, at, Some(Reevaluate::Changed));
        }
    }

    fn decide(&mut self, shared: &mut Shared, budget: &mut u32) -> Progress {
        loop {
            while self.decide_next(shared) {
                *budget = budget.saturating_sub(1);
                if *budget == 0 {
                    return self.progress();
                }
            }
            if !self.sweep.is_active() {
                return Progress::Done;
            }
            let evaluated = self.sweep_unit(shared);
            *budget = budget.saturating_sub(evaluated.max(1));
            if *budget == 0 {
                return self.progress();
            }
        }
    }

    fn changes(
        &mut self,
        shared: &mut Shared,
        place: (&mut Cursor, Budget),
        reader: &mut dyn FnMut(Change<'_>),
    ) -> Progress {
        let mut view = View {
            prefixes: &mut self.prefixes,
            received: &self.received,
            shared,
        };
        self.exporter.changes(&mut view, place, reader)
    }

    fn export(
        &mut self,
        shared: &mut Shared,
        group: GroupId,
        place: (Option<&mut Cursor>, Budget),
        sink: &mut dyn ExportSink,
    ) -> Progress {
        let mut view = View {
            prefixes: &mut self.prefixes,
            received: &self.received,
            shared,
        };
        self.exporter.export(&mut view, group, place, sink)
    }

    fn trim(&mut self, held: &[Cursor]) {
        self.exporter.trim(&mut self.prefixes, held);
    }

    fn sent(&self, shared: &Shared, group: GroupId, net: Net<'_>) -> Vec<SentPath> {
        let tables = (&self.prefixes, &self.received);
        self.exporter.sent(tables, shared, group, net)
    }

    fn len(&self) -> u32 {
        self.prefixes.len()
    }

    fn look_up(&self, net: Net<'_>) -> Option<u32> {
        self.prefixes.look_up(net)
    }

    fn view<'a>(&'a self, shared: &'a Shared, at: u32) -> Option<RouteView<'a>> {
        explain::view((&self.prefixes, &self.received), shared, at)
    }

    fn depend(
        &self,
        shared: &Shared,
        peers: &BTreeSet<PeerId>,
        place: u32,
        budget: Budget,
    ) -> Dependence {
        let tables = (&self.prefixes, &self.received);
        depend::depend(tables, shared, peers, (place, budget))
    }

    fn add_stats(&self, stats: &mut RibStats) {
        let occupied = self.prefixes.occupied();
        stats.prefixes += occupied;
        stats.tombstones += self.prefixes.used_len() - occupied;
        stats.octet_strings += self.prefixes.wire_len();
        stats.pending += self.decider.len();
        stats.paths += self.received.paths_len();
        self.exporter.add_stats(stats);
    }
}
