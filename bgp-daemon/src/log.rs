//! Events of the speaker and its driver.

mod convert;
mod errors;
mod messages;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::time::Duration;

use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_proto::Family;
use bgp_io::bgp_speaker::{self, Refusal};
use bgp_io::rib::PeerId;
use bgp_io::{Event, Speaker};
use daemon_common::events::{self, Event as Emitted};
use daemon_common::log::{Repeats, Summary};
use tracing::Level;

use crate::limits::{LOG_DYNAMIC_KEYS_MAX, LOG_NEIGHBOR_KEYS_MAX, LOG_STRANGER_KEYS_MAX};
use crate::report;
use convert::{converted, failed_dial};
use errors::ConnectErrors;
use messages::Messages;

/// Events on their way into the log and the history. Repeated events are summarized by source and
/// kind. Each class of sources has its own capacity, so that strangers cannot hide events of
/// neighbors.
#[derive(Debug)]
pub(crate) struct Log {
    neighbors: Repeats<Key, Emitted>,
    dynamic: Repeats<Key, Emitted>,
    strangers: Repeats<Key, Emitted>,
    /// Why neighbors cannot be connected to.
    errors: ConnectErrors,
    /// Messages of debugged neighbors.
    messages: Messages,
}

/// Key of events that are counted as repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    of: Of,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Address(IpAddr),
    /// A neighbor in a range that was removed before its event was read. Its number is used again
    /// for another neighbor, whose events must not be counted with it.
    Forgotten(PeerId),
    /// All strangers together.
    Strangers,
    /// All sources beyond the capacity.
    Others,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A session is established, is closed, or is rejected.
    Session,
    /// A connection cannot be opened.
    Connect,
    /// A connection was held while another one was in use.
    Held,
    /// The path to a neighbor failed.
    Path,
    /// The routes of a neighbor are stale beyond its restart time.
    LongLivedStale,
    Malformed,
    PrefixLimit(Family),
    PrefixLimitCleared(Family),
    SentLimit(Family),
    SentLimitCleared(Family),
    Memory,
    EndOfRib(Family),
    Refreshed(Family),
    RefreshOverdue(Family),
    Refused,
    AcceptFailed,
    StrangersDropped,
    StrangersAdmitted,
    OptionFailed,
    Unsigned,
}

/// Which table counts an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Neighbor,
    Dynamic,
    Stranger,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            neighbors: Repeats::new(LOG_NEIGHBOR_KEYS_MAX),
            dynamic: Repeats::new(LOG_DYNAMIC_KEYS_MAX),
            strangers: Repeats::new(LOG_STRANGER_KEYS_MAX),
            errors: ConnectErrors::default(),
            messages: Messages::default(),
        }
    }

    /// Emits one event of the driver, or counts it.
    pub(crate) fn event(&mut self, now: Instant, speaker: &Speaker, event: &Event) {
        match event {
            Event::Message(message) => self.messages.log(now, speaker, message),
            Event::MessagesMissed { address, count } => self.messages.lose(*address, *count),
            event => self
                .admit(now, speaker, event)
                .into_iter()
                .for_each(events::emit),
        }
    }

    /// Returns whether the set of debugged neighbors differs from the set that the driver traces.
    pub(crate) fn is_trace_over(&mut self) -> bool {
        self.messages.take_over()
    }

    /// Returns why a neighbor cannot be connected to, and since when; `None` after a connection
    /// opened.
    pub(crate) fn connect_error(&self, neighbor: IpAddr) -> Option<(&str, Instant)> {
        self.errors.last(neighbor)
    }

    /// Returns when to call [`look`](Self::look) again.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let tables = [&self.neighbors, &self.dynamic, &self.strangers];
        let ends = tables.into_iter().filter_map(Repeats::poll_timeout);
        let end = ends.min().map(|end| Instant::ZERO + end);
        end.into_iter().chain(self.messages.poll_timeout()).min()
    }

    /// Emits the summaries that are due.
    pub(crate) fn look(&mut self, now: Instant) {
        self.messages.look(now);
        let due = self.summaries(|table| table.due(since_start(now)));
        due.iter().for_each(events::emit_summary);
    }

    /// Emits all summaries, before the daemon ends.
    pub(crate) fn finish(&mut self, now: Instant) {
        let all = self.summaries(|table| table.finish(since_start(now)));
        all.iter().for_each(events::emit_summary);
    }

    /// Returns the number of events that were summarized since the start.
    pub(crate) const fn summarized(&self) -> u64 {
        let (neighbors, dynamic) = (self.neighbors.summarized(), self.dynamic.summarized());
        neighbors
            .saturating_add(dynamic)
            .saturating_add(self.strangers.summarized())
    }

    fn summaries(
        &mut self,
        take: impl FnMut(&mut Repeats<Key, Emitted>) -> Vec<Summary<Emitted>>,
    ) -> Vec<Summary<Emitted>> {
        let tables = [&mut self.neighbors, &mut self.dynamic, &mut self.strangers];
        tables.into_iter().flat_map(take).collect()
    }

    /// Returns the event to emit, or `None` if it is counted for a summary. Events of level `debug`
    /// are never summarized.
    fn admit(&mut self, now: Instant, speaker: &Speaker, event: &Event) -> Option<Emitted> {
        let converted = self.convert(now, speaker, event)?;
        let level = converted.kind().level;
        let (Some((class, key)), true) = (source(speaker, event), level <= Level::INFO) else {
            return Some(converted);
        };
        let table = match class {
            Class::Neighbor => &mut self.neighbors,
            Class::Dynamic => &mut self.dynamic,
            Class::Stranger => &mut self.strangers,
        };
        let others = Key {
            of: Of::Others,
            ..key
        };
        table.admit(since_start(now), key, others, level, converted)
    }

    fn convert(&mut self, now: Instant, speaker: &Speaker, event: &Event) -> Option<Emitted> {
        match event {
            Event::DialFailed {
                peer,
                remote,
                error,
            } => {
                let is_new = self.errors.failed(now, speaker, remote.ip(), error);
                let name = speaker.peer_name(*peer);
                (is_new || events::is_debugging())
                    .then(|| failed_dial(name, *remote, error, is_new))
            }
            Event::Speaker(event) => {
                self.errors.observe(speaker, event);
                report::event(speaker, event)
            }
            event => converted(speaker, event),
        }
    }
}

fn since_start(now: Instant) -> Duration {
    now.saturating_duration_since(Instant::ZERO)
}

/// Returns the source and the repetition key of an event; `None` for events that do not repeat.
fn source(speaker: &Speaker, event: &Event) -> Option<(Class, Key)> {
    let (class, of, kind) = match event {
        Event::Speaker(event) => {
            let (peer, kind) = of_session(event)?;
            of_peer(speaker, peer, kind)
        }
        Event::DialFailed { peer, .. } => of_peer(speaker, *peer, Kind::Connect),
        Event::Refused {
            remote, refusal, ..
        } => {
            let class = match refusal {
                Refusal::Unknown | Refusal::RangeFull { .. } | Refusal::TooManyPeers => {
                    Class::Stranger
                }
                Refusal::WrongLocal => Class::Neighbor,
                Refusal::Session(_) => Class::Dynamic,
            };
            (class, Of::Address(remote.ip()), Kind::Refused)
        }
        Event::AcceptFailed { local, .. } => {
            (Class::Neighbor, Of::Address(local.ip()), Kind::AcceptFailed)
        }
        Event::StrangersDropped => (Class::Neighbor, Of::Strangers, Kind::StrangersDropped),
        Event::StrangersAdmitted { .. } => {
            (Class::Neighbor, Of::Strangers, Kind::StrangersAdmitted)
        }
        Event::OptionFailed { remote, .. } => {
            (Class::Dynamic, Of::Address(remote.ip()), Kind::OptionFailed)
        }
        Event::Unsigned { remote, .. } => {
            (Class::Dynamic, Of::Address(remote.ip()), Kind::Unsigned)
        }
        _ => return None,
    };
    Some((class, Key { of, kind }))
}

fn of_peer(speaker: &Speaker, peer: PeerId, kind: Kind) -> (Class, Of, Kind) {
    match speaker.peer(peer) {
        Some(peer) => {
            let class = match peer.dynamic {
                true => Class::Dynamic,
                false => Class::Neighbor,
            };
            (class, Of::Address(peer.config.remote), kind)
        }
        None => (Class::Dynamic, Of::Forgotten(peer), kind),
    }
}

fn of_session(event: &bgp_speaker::Event) -> Option<(PeerId, Kind)> {
    use bgp_speaker::Event;
    match event {
        Event::State { peer, .. } | Event::Up { peer, .. } | Event::Down { peer, .. } => {
            Some((*peer, Kind::Session))
        }
        Event::HeldEnded { peer, .. } => Some((*peer, Kind::Held)),
        Event::LongLivedStale { peer, .. } => Some((*peer, Kind::LongLivedStale)),
        Event::PathFailed { peer, .. } => Some((*peer, Kind::Path)),
        Event::Malformed { peer, .. } => Some((*peer, Kind::Malformed)),
        Event::EndOfRib { peer, family, .. } => Some((*peer, Kind::EndOfRib(*family))),
        Event::PrefixLimit { peer, family, .. } => Some((*peer, Kind::PrefixLimit(*family))),
        Event::PrefixLimitCleared { peer, family, .. } => {
            Some((*peer, Kind::PrefixLimitCleared(*family)))
        }
        Event::SentLimit { peer, family, .. } => Some((*peer, Kind::SentLimit(*family))),
        Event::SentLimitCleared { peer, family, .. } => {
            Some((*peer, Kind::SentLimitCleared(*family)))
        }
        Event::MemoryLimit { peer, .. } | Event::MemoryCleared { peer, .. } => {
            Some((*peer, Kind::Memory))
        }
        Event::Refreshed { peer, family, .. } => Some((*peer, Kind::Refreshed(*family))),
        Event::RefreshOverdue { peer, family, .. } => Some((*peer, Kind::RefreshOverdue(*family))),
        _ => None,
    }
}
