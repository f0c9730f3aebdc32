//! Records for a monitor of changes of the Adj-RIBs-In.

use bgp_proto::Nlri;

use super::FamilyTable;
use super::import::Import;
use crate::attributes::AttrId;
use crate::path::Path;
use crate::peer::PeerId;
use crate::routes::Stage;
use crate::shared::Shared;
use crate::table::Key;

impl<K: Key> FamilyTable<K> {
    /// Returns whether the table has a path of a peer that the import policy accepted.
    #[cold]
    pub(super) fn has_accepted(&self, peer: PeerId, nlri: &Nlri<'_>) -> bool {
        let at = self.prefixes.look_up(nlri.net);
        let mut paths = at.map_or(&[][..], |at| self.prefixes.paths(at)).iter();
        let path = paths.find(|path| path.is_from(peer, nlri.path_id));
        path.is_some_and(|path| path.accepted().is_some())
    }

    /// Records a received announcement. One that the import policy rejects is recorded after policy
    /// only if it replaces an accepted one.
    #[cold]
    pub(super) fn record_reach(
        &self,
        shared: &mut Shared,
        peer: PeerId,
        nlri: &Nlri<'_>,
        (import, was_accepted): (&Import, bool),
    ) {
        let received = Some(import.received);
        self.record(shared, (peer, Stage::AdjRibInPrePolicy), nlri, received);
        if was_accepted || import.accepted.is_some() {
            self.record_accepted(shared, peer, nlri, import.accepted);
        }
    }

    /// Records another result of the import policy for a path in the table.
    #[cold]
    pub(super) fn record_reevaluated(&self, shared: &mut Shared, at: u32, path: &Path) {
        let nlri = self.nlri(at, path);
        self.record_accepted(shared, path.peer(), &nlri, path.accepted());
    }

    /// Records that a path is removed, unless the end of its session has removed it already.
    #[cold]
    pub(super) fn record_removed(&self, shared: &mut Shared, at: u32, path: &Path) {
        let peer = path.peer();
        let recorder = shared.recorder.as_ref();
        let is_flushed = recorder.is_some_and(|all| all.is_flushed(peer, self.prefixes.family()));
        if is_flushed && self.received.is_dead(path) {
            return;
        }
        let nlri = self.nlri(at, path);
        self.record(shared, (peer, Stage::AdjRibInPrePolicy), &nlri, None);
        if path.accepted().is_some() {
            self.record_accepted(shared, peer, &nlri, None);
        }
    }

    fn nlri(&self, at: u32, path: &Path) -> Nlri<'_> {
        let path_id = path.path_id();
        let net = self.prefixes.path_net(at, path.peer(), path_id);
        Nlri { path_id, net }
    }

    fn record_accepted(
        &self,
        shared: &mut Shared,
        peer: PeerId,
        nlri: &Nlri<'_>,
        accepted: Option<AttrId>,
    ) {
        self.record(shared, (peer, Stage::AdjRibInPostPolicy), nlri, accepted);
    }

    fn record(
        &self,
        shared: &mut Shared,
        (peer, stage): (PeerId, Stage),
        nlri: &Nlri<'_>,
        id: Option<AttrId>,
    ) {
        let Shared {
            recorder, interner, ..
        } = shared;
        if let Some(recorder) = recorder.as_deref_mut().filter(|_| peer != PeerId::LOCAL) {
            let of = (peer, stage, self.prefixes.family());
            recorder.push(interner, of, nlri, id);
        }
    }
}
