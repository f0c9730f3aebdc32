//! The monitor of a speaker: its start and end, and the session events and markers that it reports.

use alloc::{boxed::Box, sync::Arc};

use bgp_fsm::{DownReason, Instant};
use bgp_proto::{Family, FamilySet};
use rib::{PeerId, Stage};

use super::{Monitor, Monitoring, Neighbor, Record};
use crate::speaker::Speaker;

/// The stages of an Adj-RIB-In.
const RECEIVED: [Stage; 2] = [Stage::AdjRibInPrePolicy, Stage::AdjRibInPostPolicy];

impl Speaker {
    /// Starts to report from now on what peers send and are sent, in place of a former monitor.
    /// [`poll_record`](Self::poll_record) returns the records. Sessions that are established are
    /// reported first.
    ///
    /// Routes that were exchanged before are not reported: a program that needs them starts the
    /// monitor before the sessions, or requests them with [`request_refresh`](Self::request_refresh).
    ///
    /// The queue is bounded by [`Monitor::entries_max`] and [`Monitor::octets_max`]. If it is full,
    /// the oldest records are dropped, and [`Record::Lost`] is at their place. Without a monitor
    /// nothing is recorded and nothing allocated.
    pub fn start_monitor(&mut self, now: Instant, monitor: Monitor) {
        self.rib.record(monitor.stages);
        self.monitor = Some(Box::new(Monitoring::new(now, monitor)));
        for peer in self.roster.ids() {
            self.monitor_up(peer);
        }
    }

    /// Stops the monitor and drops its records.
    pub fn stop_monitor(&mut self) {
        self.rib.stop_recording();
        self.monitor = None;
    }

    /// Returns the next record of the monitor, until there is none.
    pub fn poll_record(&mut self) -> Option<Record> {
        self.collect_routes();
        self.monitor.as_mut()?.queue.pop()
    }

    /// Returns whether the queue of the monitor is more than half full. A driver that reads no
    /// further messages until the records are taken loses none of them.
    #[must_use]
    pub fn is_monitor_busy(&self) -> bool {
        let monitoring = self.monitor.as_deref();
        monitoring.is_some_and(|monitoring| monitoring.queue.is_half_full())
    }

    /// Sets the time of the records that follow.
    pub(crate) fn monitor_at(&mut self, now: Instant) {
        if let Some(monitoring) = self.monitor.as_deref_mut() {
            monitoring.now = now;
        }
    }

    /// Takes what the tables have recorded.
    pub(crate) fn collect_routes(&mut self) {
        let Some(monitoring) = self.monitor.as_deref_mut() else {
            return;
        };
        let each = &mut |routes| monitoring.push_routes(routes);
        let lost = self.rib.take_recorded(each);
        monitoring.queue.push_lost(lost);
    }

    /// Reports that a session is established.
    pub(crate) fn monitor_up(&mut self, peer: PeerId) {
        self.collect_routes();
        let (Some(monitoring), Some(state)) = (&mut self.monitor, self.roster.get(peer)) else {
            return;
        };
        if let Some(params) = &state.params {
            let neighbor = Neighbor {
                peer,
                name: state.config.name.clone(),
                address: state.config.remote,
                asn: params.peer_asn,
                router_id: params.peer_id,
            };
            monitoring.neighbors.insert(peer, Arc::new(neighbor));
            monitoring.push(peer, |at, neighbor| Record::Up {
                at,
                neighbor,
                params: Box::new(params.clone()),
            });
        }
    }

    /// Reports the end of an established session.
    pub(crate) fn monitor_down(&mut self, peer: PeerId, reason: &DownReason, retained: FamilySet) {
        self.collect_routes();
        if let Some(monitoring) = &mut self.monitor {
            monitoring.push(peer, |at, neighbor| Record::Down {
                at,
                neighbor,
                reason: reason.clone(),
                retained,
            });
        }
    }

    /// Reports a received End-of-RIB marker.
    pub(crate) fn monitor_end_of_rib(&mut self, peer: PeerId, family: Family) {
        self.collect_routes();
        if let Some(monitoring) = &mut self.monitor {
            for stage in RECEIVED {
                monitoring.push_end_of_rib(peer, stage, family);
            }
        }
    }

    /// Forgets a peer whose id is released.
    pub(crate) fn monitor_gone(&mut self, peer: PeerId) {
        self.collect_routes();
        if let Some(monitoring) = &mut self.monitor {
            monitoring.neighbors.remove(&peer);
        }
    }
}
