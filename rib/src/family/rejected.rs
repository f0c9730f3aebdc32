//! Reports to watchers of paths that an import policy rejects.

use bgp_proto::Nlri;

use super::FamilyTable;
use crate::explain::evaluation;
use crate::path::Path;
use crate::peer::PeerId;
use crate::shared::Shared;
use crate::table::Key;

impl<K: Key> FamilyTable<K> {
    /// Records for watchers that the import policy rejected a path. A path that is not in the table
    /// was rejected for another reason.
    #[cold]
    pub(super) fn record_rejected(&self, shared: &mut Shared, peer: PeerId, nlri: Nlri<'_>) {
        let Some(at) = self.prefixes.look_up(nlri.net) else {
            return;
        };
        let mut paths = self.prefixes.paths(at).iter();
        if let Some(path) = paths.find(|path| path.is_from(peer, nlri.path_id)) {
            self.record_rejected_at(shared, at, path);
        }
    }

    /// Does the same for a path in the table.
    #[cold]
    pub(super) fn record_rejected_at(&self, shared: &mut Shared, at: u32, path: &Path) {
        let (peer, path_id) = (path.peer(), path.path_id());
        let net = self.prefixes.path_net(at, peer, path_id);
        let Some(mut rejections) = shared.rejected.import.take() else {
            return;
        };
        if rejections.wants(net) {
            let marks = self.received.of(peer);
            let is_long_lived = marks.is_some_and(|marks| marks.is_long_lived(path));
            let evaluation = evaluation(&self.prefixes, shared, at, (path, is_long_lived));
            let of = (peer, None, self.prefixes.family());
            rejections.push(of, Nlri { path_id, net }, evaluation);
        }
        shared.rejected.import = Some(rejections);
    }
}
