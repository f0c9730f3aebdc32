//! Draining a node: its routes become the least preferred ones of all its neighbors before it stops
//! (RFC 8326). Pure.
//!
//! The routes of services come first: other nodes advertise them, too. The routes of workloads follow
//! when the neighbors have been sent those, and have had time for their decisions. Sessions stay
//! established. `docs/design/drain.md` has the reasons. A reflector is drained by its registration
//! ([`crate::drain`]).

pub(crate) mod file;
pub(crate) mod report;

use std::collections::{BTreeSet, VecDeque};

use bgp_io::Speaker;
use bgp_io::bgp_fsm::{Instant, State};
use bgp_io::bgp_speaker::SpeakerConfig;
use bgp_io::rib::PeerId;
use calico_bgp::{Duties, Farewell};
use calico_model::{DrainReport, DrainStage};
use daemon_common::events::{Event, Text};
use daemon_common::report::DrainFigures;

use crate::limits::{
    NODE_DRAIN_LOOK_EVERY, NODE_DRAIN_SETTLE, NODE_DRAIN_STAGE_MAX, NODE_DRAINED_LOOK_EVERY,
};

#[cfg(test)]
mod tests;

/// The requests to drain a node, and the progress.
#[derive(Debug)]
pub struct NodeDrain {
    /// The time of the request in the datastore.
    stored: Option<String>,
    /// The time of the request on the control socket.
    local: Option<String>,
    /// The daemon has not advertised any route yet.
    is_starting: bool,
    services: Farewell,
    stage: Option<Stage>,
    /// Established neighbors.
    neighbors: usize,
    events: VecDeque<Event>,
}

/// A stage of the drain.
#[derive(Debug)]
struct Stage {
    of: DrainStage,
    since: Instant,
    /// When to look again.
    look_at: Instant,
    /// When all neighbors had been sent all.
    sent_at: Option<Instant>,
    /// Neighbors that have been sent all since the stage began.
    up_to_date: BTreeSet<PeerId>,
    /// Established neighbors that have not been sent all.
    behind: usize,
    /// The same when the node was drained: the stored report does not change later.
    behind_at_end: usize,
}

impl Stage {
    const fn new(of: DrainStage, now: Instant) -> Self {
        Self {
            of,
            since: now,
            look_at: now,
            sent_at: None,
            up_to_date: BTreeSet::new(),
            behind: 0,
            behind_at_end: 0,
        }
    }
}

impl NodeDrain {
    /// Creates the drain of a daemon that starts. `local` is the time of the request on the control
    /// socket of its predecessor.
    pub fn new(local: Option<String>) -> Self {
        let mut drain = Self {
            stored: None,
            local,
            is_starting: true,
            services: Farewell::Services(BTreeSet::new()),
            stage: None,
            neighbors: 0,
            events: VecDeque::new(),
        };
        drain.turn(Instant::ZERO);
        drain
    }

    /// Ends the start: the daemon advertises routes from now on.
    pub const fn started(&mut self) {
        self.is_starting = false;
    }

    /// Takes the request of the datastore, and the prefixes of workloads. Returns whether
    /// [`effective`](Self::effective) changes.
    pub fn assign(&mut self, now: Instant, duties: &Duties) -> bool {
        let services = Farewell::Services(duties.workloads());
        let is_other = self.services != services && self.stage_of() == Some(DrainStage::Services);
        self.services = services;
        self.stored.clone_from(&duties.drain);
        self.turn(now) || is_other
    }

    /// Takes the request of the control socket. Returns whether [`effective`](Self::effective)
    /// changes.
    pub fn request(&mut self, now: Instant, since: Option<String>) -> bool {
        self.local = match (since, self.local.take()) {
            (Some(_), Some(earlier)) => Some(earlier),
            (since, _) => since,
        };
        self.turn(now)
    }

    /// Begins or ends the drain.
    fn turn(&mut self, now: Instant) -> bool {
        match (self.since().is_some(), self.stage.is_some()) {
            (true, false) => {
                // A node that restarts must not advertise workloads as usual for a moment.
                let first = match self.is_starting {
                    true => DrainStage::All,
                    false => DrainStage::Services,
                };
                self.stage = Some(Stage::new(first, now));
                self.events.push_back(Event::NodeDrainStarted {
                    source: Text::new(self.source()),
                });
                true
            }
            (false, true) => {
                self.stage = None;
                self.events.push_back(Event::NodeDrainEnded {});
                true
            }
            _ => false,
        }
    }

    fn since(&self) -> Option<&str> {
        self.stored.as_deref().or(self.local.as_deref())
    }

    fn source(&self) -> &'static str {
        match (&self.stored, &self.local) {
            (Some(_), Some(_)) => "datastore, control socket",
            (Some(_), None) => "datastore",
            (None, _) => "control socket",
        }
    }

    fn stage_of(&self) -> Option<DrainStage> {
        self.stage.as_ref().map(|stage| stage.of)
    }

    /// Checks whether the stage is complete. Returns whether [`effective`](Self::effective) changes.
    pub fn look(&mut self, now: Instant, speaker: &Speaker) -> bool {
        let Some(stage) = &mut self.stage else {
            return false;
        };
        if now < stage.look_at {
            return false;
        }
        if stage.of == DrainStage::Drained {
            stage.look_at = now + NODE_DRAINED_LOOK_EVERY;
            self.neighbors = stage.note_up_to_date(now, speaker);
            return false;
        }
        stage.look_at = now + NODE_DRAIN_LOOK_EVERY;
        if !speaker.deferred().is_empty() {
            stage.since = now; // Routes are held back after a restart (RFC 4724 §4.1).
            return false;
        }
        self.neighbors = stage.note_up_to_date(now, speaker);
        if now == stage.since || stage.behind > 0 {
            stage.sent_at = None;
        } else {
            stage.sent_at.get_or_insert(now);
        }
        let is_sent = stage
            .sent_at
            .is_some_and(|at| at + NODE_DRAIN_SETTLE <= now);
        if !is_sent && now < stage.since + NODE_DRAIN_STAGE_MAX {
            return false;
        }
        if stage.of == DrainStage::Services {
            *stage = Stage::new(DrainStage::All, now);
            return true;
        }
        stage.of = DrainStage::Drained;
        stage.behind_at_end = stage.behind;
        self.events.push_back(Event::NodeDrained {
            behind: stage.behind as u64,
        });
        false
    }

    /// When to [`look`](Self::look) again.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.stage.as_ref().map(|stage| stage.look_at)
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the configuration to apply instead of `config`, if the node is drained.
    pub fn effective(&self, config: &SpeakerConfig) -> Option<SpeakerConfig> {
        let farewell = match self.stage_of()? {
            DrainStage::Services => &self.services,
            DrainStage::All | DrainStage::Drained => &Farewell::All,
        };
        let mut config = config.clone();
        let ranges = config.ranges.iter_mut().map(|range| &mut range.template);
        for peer in config.peers.iter_mut().chain(ranges) {
            peer.export = farewell.apply(&peer.export);
        }
        Some(config)
    }

    /// Returns the report for the datastore, if the request is from there.
    pub fn report(&self) -> Option<DrainReport> {
        let (stage, since) = (self.stage.as_ref()?, self.stored.as_ref()?);
        Some(DrainReport {
            since: since.clone(),
            stage: stage.of,
            behind: match stage.of {
                DrainStage::Drained => u32::try_from(stage.behind_at_end).unwrap_or(u32::MAX),
                DrainStage::Services | DrainStage::All => 0,
            },
            unknown: Default::default(),
        })
    }

    /// Returns the progress for operators.
    pub fn figures(&self) -> Option<DrainFigures> {
        let stage = self.stage.as_ref()?;
        Some(DrainFigures {
            stage: stage.of.to_string(),
            source: self.source().to_owned(),
            since: self.since().unwrap_or_default().to_owned(),
            neighbors: self.neighbors as u64,
            behind: stage.behind as u64,
        })
    }
}

impl Stage {
    /// Records the neighbors that have nothing left to receive. When the stage begins, nothing has
    /// been queued yet, so no neighbor is recorded. Returns the number of established neighbors.
    fn note_up_to_date(&mut self, now: Instant, speaker: &Speaker) -> usize {
        let peers = speaker.peers();
        let up = peers.filter(|peer| peer.session.state() == State::Established);
        let up: Vec<_> = up.collect();
        let there: BTreeSet<PeerId> = up.iter().map(|peer| peer.id).collect();
        self.up_to_date.retain(|id| there.contains(id));
        if now > self.since {
            let has_all = up.iter().filter(|peer| {
                let conn = peer.session.established();
                conn.is_some_and(|conn| !speaker.wants_write(peer.id, conn))
            });
            self.up_to_date.extend(has_all.map(|peer| peer.id));
        }
        self.behind = there.len() - self.up_to_date.len();
        there.len()
    }
}
