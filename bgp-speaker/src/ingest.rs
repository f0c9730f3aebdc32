//! Processing of received UPDATEs, with the error handling of RFC 7606.

use alloc::vec::Vec;

use bgp_fsm::Instant;
use bgp_proto::{Fault, Notification, Remedy, UpdateView};
use bytes::Bytes;
use rib::PeerId;

use crate::{
    event::{Event, Malformed, Output},
    limits::{MALFORMED_KEPT, MALFORMED_OCTETS_MAX},
    speaker::Speaker,
};

impl Speaker {
    /// Applies one UPDATE to the tables. A returned input resets the session.
    pub(crate) fn update(
        &mut self,
        now: Instant,
        peer: PeerId,
        body: &Bytes,
    ) -> Option<bgp_fsm::Input> {
        let params = self.roster.get(peer)?.params.as_ref()?;
        let (view, mut faults) = match UpdateView::parse(body, params) {
            Ok(parsed) => parsed,
            Err(notification) => return Some(bgp_fsm::Input::Rejected(notification)),
        };
        if let Some(family) = view.end_of_rib() {
            if params.families.contains(family) {
                self.end_of_rib(peer, family);
            }
            return None;
        }
        let mut limited = None;
        for batch in view.batches() {
            let ingested = self.rib.ingest(peer, &batch);
            limited = limited.or_else(|| self.watch_limit(now, peer, batch.family, &ingested));
            faults.extend(ingested.faults);
        }
        if faults.is_empty() {
            return limited;
        }
        let rejected = self.record_faults(now, peer, body, faults);
        rejected.map(bgp_fsm::Input::Rejected).or(limited)
    }

    /// Records a malformed message for the operator and returns the strongest action.
    /// Treat-as-withdraw and attribute discard are already done; the caller performs a session
    /// reset.
    #[cold]
    fn record_faults(
        &mut self,
        now: Instant,
        peer: PeerId,
        body: &Bytes,
        faults: Vec<Fault>,
    ) -> Option<Notification> {
        let worst = faults.into_iter().max_by_key(Fault::remedy)?;
        let remedy = worst.remedy();
        if self.malformed.len() >= MALFORMED_KEPT {
            self.malformed.pop_front();
        }
        self.malformed_total += 1;
        self.malformed.push_back(Malformed {
            at: now,
            peer: self.peer_name(peer).into(),
            body: Bytes::copy_from_slice(body.get(..MALFORMED_OCTETS_MAX).unwrap_or(body)),
            octets: body.len(),
            fault: worst,
            remedy,
        });
        let reset = remedy >= Remedy::DisableFamily;
        let notification = reset.then(|| worst.notification(body));
        let name = self.peer_name(peer).into();
        self.outputs.push_back(Output::Event(Event::Malformed {
            peer,
            name,
            fault: worst,
            remedy,
        }));
        notification
    }
}
