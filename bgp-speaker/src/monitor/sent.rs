//! The UPDATEs that a peer is sent, decoded for a monitor.

use alloc::sync::Arc;

use bgp_proto::{Message, NlriIter, RouteBatch, SessionParams, UpdateView, decode_message};
use rib::{PeerId, Routes, Stage};

use super::Monitoring;
use crate::speaker::Speaker;

const STAGE: Stage = Stage::AdjRibOutPostPolicy;

impl Speaker {
    /// Reports the UPDATEs that were queued for a peer since the last call.
    pub(crate) fn monitor_sent(&mut self, peer: PeerId) {
        let monitoring = self.monitor.as_deref_mut();
        let sent = monitoring.map(|monitoring| core::mem::take(&mut monitoring.sent));
        let Some(sent) = sent.filter(|sent| !sent.is_empty()) else {
            return;
        };
        self.collect_routes();
        let state = self.roster.get(peer);
        let (Some(monitoring), Some(params)) = (
            &mut self.monitor,
            state.and_then(|state| state.params.as_ref()),
        ) else {
            return;
        };
        let params = of_receiver(params);
        for octets in sent {
            let mut rest = &octets[..];
            while let Ok(Some((message, length))) = decode_message(rest, &params) {
                if let Message::Update { view, .. } = message {
                    monitoring.push_update(peer, &view);
                }
                rest = rest.get(length..).unwrap_or_default();
            }
        }
    }
}

impl Monitoring {
    fn push_update(&mut self, peer: PeerId, view: &UpdateView<'_>) {
        if let Some(family) = view.end_of_rib() {
            return self.push_end_of_rib(peer, STAGE, family);
        }
        for batch in view.batches() {
            let RouteBatch { family, .. } = batch;
            let withdrawn = Routes::new(peer, STAGE, family, None);
            self.push_nlri(withdrawn, batch.unreach);
            if let Some(block) = &batch.attrs {
                let attributes = Some(Arc::new(block.parse().0));
                let announced = Routes::new(peer, STAGE, family, attributes);
                self.push_nlri(announced, batch.reach);
            }
        }
    }

    fn push_nlri(&mut self, mut routes: Routes, nlri: NlriIter<'_>) {
        for nlri in nlri.flatten() {
            routes.push(&nlri);
        }
        if !routes.is_empty() {
            self.push_routes(routes);
        }
    }
}

/// Returns the parameters with which the peer reads the messages of this speaker.
fn of_receiver(params: &SessionParams) -> SessionParams {
    SessionParams {
        add_path_receive: params.add_path_send,
        extended_receive: params.extended_send,
        extended_next_hop: true,
        v4_mapped_next_hop: true,
        ..params.clone()
    }
}
