//! A bounded, ordered stream of the routes received from each peer, before and after the import
//! policy (RFC 7854), and of the routes sent to it, after the export policy (RFC 8671), with session
//! events and End-of-RIB markers in order.
//!
//! The tables record received routes ([`rib::Rib::record`]). The speaker takes these records before
//! it adds anything of its own, so that the order of the queue is the order of what happened.

mod queue;
mod record;
mod report;
mod sent;

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};

use bgp_fsm::Instant;
use bgp_proto::Family;
use bytes::Bytes;
use rib::{PeerId, Routes, Stage, Stages};

use crate::limits::{MONITOR_ENTRIES_MAX, MONITOR_OCTETS_MAX};
use queue::Queue;
pub use record::{Neighbor, Record};

/// The records that a monitor reports, and the limits of its queue: see [`crate::Speaker::start_monitor`].
///
/// ```
/// use bgp_speaker::bgp_fsm::Instant;
/// use bgp_speaker::bgp_proto::{Asn, RouterId};
/// use bgp_speaker::rib::Stage;
/// use bgp_speaker::{Monitor, Record, Speaker, SpeakerConfig};
///
/// let config = SpeakerConfig::new(Asn(64512), RouterId("192.0.2.1".parse()?));
/// let mut speaker = Speaker::new(config, 7);
/// speaker.start_monitor(Instant::ZERO, Monitor::new([Stage::AdjRibInPrePolicy]));
/// // After each turn of the driver:
/// while let Some(record) = speaker.poll_record() {
///     match record {
///         Record::Routes { neighbor, routes, .. } => {
///             for route in routes.nlri() {
///                 println!("{} {} {:?}", neighbor.address, route.net, routes.attributes);
///             }
///         }
///         other => println!("{other:?}"),
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Monitor {
    /// The tables to report.
    pub stages: Stages,
    /// The greatest number of routes and events that wait; [`MONITOR_ENTRIES_MAX`] by default.
    pub entries_max: usize,
    /// The greatest number of octets that they take; [`MONITOR_OCTETS_MAX`] by default.
    pub octets_max: usize,
}

impl Monitor {
    /// Returns a monitor of these stages with the default limits.
    #[must_use]
    pub fn new(stages: impl Into<Stages>) -> Self {
        Self {
            stages: stages.into(),
            entries_max: MONITOR_ENTRIES_MAX,
            octets_max: MONITOR_OCTETS_MAX,
        }
    }
}

/// The state of the monitor, while there is one.
#[derive(Debug)]
pub(crate) struct Monitoring {
    stages: Stages,
    /// The time of the last input.
    now: Instant,
    /// The peers that the stream has reported as established, until their ids are released.
    neighbors: BTreeMap<PeerId, Arc<Neighbor>>,
    queue: Queue,
    /// Octets that were queued for a peer and are to be reported.
    sent: Vec<Bytes>,
}

impl Monitoring {
    fn new(now: Instant, monitor: Monitor) -> Self {
        Self {
            stages: monitor.stages,
            now,
            neighbors: BTreeMap::new(),
            queue: Queue::new(monitor.entries_max, monitor.octets_max),
            sent: Vec::new(),
        }
    }

    /// Returns the octets of the records that wait.
    pub(crate) const fn octets(&self) -> usize {
        self.queue.octets()
    }

    /// Adds a record of a peer whose session was reported.
    fn push(&mut self, peer: PeerId, record: impl FnOnce(Instant, Arc<Neighbor>) -> Record) {
        if let Some(neighbor) = self.neighbors.get(&peer) {
            self.queue.push(record(self.now, Arc::clone(neighbor)));
        }
    }

    fn push_routes(&mut self, routes: Routes) {
        self.push(routes.peer, |at, neighbor| Record::Routes {
            at,
            neighbor,
            routes,
        });
    }

    fn push_end_of_rib(&mut self, peer: PeerId, stage: Stage, family: Family) {
        if self.stages.contains(stage) {
            self.push(peer, |at, neighbor| Record::EndOfRib {
                at,
                neighbor,
                stage,
                family,
            });
        }
    }

    /// Returns where octets that are queued for a peer are noted, if they are to be reported.
    pub(crate) fn sent(&mut self) -> Option<&mut Vec<Bytes>> {
        let is_wanted = self.stages.contains(Stage::AdjRibOutPostPolicy);
        is_wanted.then_some(&mut self.sent)
    }
}
