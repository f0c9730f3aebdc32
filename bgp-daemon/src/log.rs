//! What happens, in the log.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::time::Duration;

use crate::report::{self, Weight};
use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_proto::Family;
use bgp_io::bgp_speaker::{self, Refusal};
use bgp_io::rib::PeerId;
use bgp_io::{Event, Speaker};
use daemon_common::log::{Repeats, Summary};
use tracing::Level;

use crate::limits::{LOG_DYNAMIC_KEYS_MAX, LOG_NEIGHBOR_KEYS_MAX, LOG_STRANGER_KEYS_MAX};

/// Events on their way into the log. Repeated ones are summarized by source and kind; each class of
/// sources has room of its own, so that strangers cannot hide what happens to neighbors.
#[derive(Debug)]
pub(crate) struct Log {
    neighbors: Repeats<Key>,
    dynamic: Repeats<Key>,
    strangers: Repeats<Key>,
}

/// What counts as the same event again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    of: Of,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Address(IpAddr),
    /// A neighbor out of a range that was removed before its event was read. Its number goes to the
    /// next one, which must not be counted with it.
    Forgotten(PeerId),
    /// All for which there is no room.
    Others,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A session comes up, goes down, or is not had.
    Session,
    /// A connection was held while another one was in use.
    Held,
    Malformed,
    PrefixLimit(Family),
    EndOfRib(Family),
    Refreshed(Family),
    RefreshOverdue(Family),
    Refused,
    AcceptFailed,
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
    pub(crate) const fn new() -> Self {
        Self {
            neighbors: Repeats::new(LOG_NEIGHBOR_KEYS_MAX),
            dynamic: Repeats::new(LOG_DYNAMIC_KEYS_MAX),
            strangers: Repeats::new(LOG_STRANGER_KEYS_MAX),
        }
    }

    /// Logs one event of the driver, or counts it.
    pub(crate) fn event(&mut self, now: Instant, speaker: &Speaker, event: &Event) {
        if let Some((level, text)) = self.admit(now, speaker, event) {
            write(level, &text);
        }
    }

    /// When to call [`look`](Self::look) again.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let tables = [&self.neighbors, &self.dynamic, &self.strangers];
        let ends = tables.into_iter().filter_map(Repeats::poll_timeout);
        ends.min().map(|end| Instant::ZERO + end)
    }

    /// Logs the summaries that are due.
    pub(crate) fn look(&mut self, now: Instant) {
        self.summaries(|table| table.due(since_start(now)));
    }

    /// Logs all summaries: the daemon ends.
    pub(crate) fn finish(&mut self, now: Instant) {
        self.summaries(|table| table.finish(since_start(now)));
    }

    /// Events that were summarized since the start.
    pub(crate) const fn summarized(&self) -> u64 {
        let (neighbors, dynamic) = (self.neighbors.summarized(), self.dynamic.summarized());
        neighbors
            .saturating_add(dynamic)
            .saturating_add(self.strangers.summarized())
    }

    fn summaries(&mut self, mut take: impl FnMut(&mut Repeats<Key>) -> Vec<Summary>) {
        for table in [&mut self.neighbors, &mut self.dynamic, &mut self.strangers] {
            for summary in take(table) {
                write(summary.level, &summary.to_string());
            }
        }
    }

    /// The line of an event, unless it is counted for a summary. Lines for a search (`debug`) are
    /// never summarized.
    fn admit(&mut self, now: Instant, speaker: &Speaker, event: &Event) -> Option<(Level, String)> {
        let (level, text) = line(speaker, event)?;
        let (Some((class, key)), true) = (source(speaker, event), level <= Level::INFO) else {
            return Some((level, text));
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
        let text = table.admit(since_start(now), key, others, level, text)?;
        Some((level, text))
    }
}

fn since_start(now: Instant) -> Duration {
    now.saturating_duration_since(Instant::ZERO)
}

/// Where an event comes from, and what it is the same as; `None` for those that do not repeat.
fn source(speaker: &Speaker, event: &Event) -> Option<(Class, Key)> {
    let (class, of, kind) = match event {
        Event::Speaker(event) => {
            let (peer, kind) = of_session(event)?;
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

fn of_session(event: &bgp_speaker::Event) -> Option<(PeerId, Kind)> {
    use bgp_speaker::Event;
    match event {
        Event::State { peer, .. } | Event::Up { peer, .. } | Event::Down { peer, .. } => {
            Some((*peer, Kind::Session))
        }
        Event::HeldEnded { peer, .. } => Some((*peer, Kind::Held)),
        Event::Malformed { peer, .. } => Some((*peer, Kind::Malformed)),
        Event::EndOfRib { peer, family, .. } => Some((*peer, Kind::EndOfRib(*family))),
        Event::PrefixLimit { peer, family, .. } => Some((*peer, Kind::PrefixLimit(*family))),
        Event::Refreshed { peer, family, .. } => Some((*peer, Kind::Refreshed(*family))),
        Event::RefreshOverdue { peer, family, .. } => Some((*peer, Kind::RefreshOverdue(*family))),
        _ => None,
    }
}

/// An event in words.
fn line(speaker: &Speaker, event: &Event) -> Option<(Level, String)> {
    let line = match event {
        Event::Speaker(event) => {
            let line = report::line(speaker, event);
            let level = match line.weight {
                Weight::Debug => Level::DEBUG,
                Weight::Info => Level::INFO,
                Weight::Warn => Level::WARN,
            };
            (level, line.text)
        }
        Event::Track(_) | Event::DialFailed { .. } if !tracing::enabled!(Level::DEBUG) => {
            return None;
        }
        Event::Track(track) => (Level::DEBUG, format!("next hop {track:?}")),
        Event::Gone(_) => return None,
        Event::Refused {
            remote, refusal, ..
        } => {
            let text = format!("connection of {remote} refused: {refusal}");
            // The speaker counts those of ranges, and reports them in sum.
            let level = match is_of_range(speaker, remote.ip()) {
                true => Level::DEBUG,
                false => Level::WARN,
            };
            (level, text)
        }
        Event::DialFailed {
            peer,
            remote,
            error,
        } => {
            let name = speaker.peer_name(*peer);
            let text = format!("neighbor {name}: dialling {remote}: {error}");
            (Level::DEBUG, text)
        }
        Event::AcceptFailed { local, error } => {
            let text = format!("cannot accept connections on {local} for now: {error}");
            (Level::WARN, text)
        }
        Event::OptionFailed { remote, error } => {
            let text = format!(
                "connection with {remote} closed: TCP-MD5 or GTSM cannot be set on it: {error}"
            );
            (Level::WARN, text)
        }
        // The speaker counts these, too.
        Event::TooFar { remote, why, .. } => {
            let text = format!("connection of {remote} closed: {why}");
            (Level::DEBUG, text)
        }
        Event::Unsigned { remote, .. } => {
            let text = format!(
                "connection of {remote} closed: there is a password, but the connection came \
                 before the kernel had it"
            );
            (Level::DEBUG, text)
        }
        Event::KeyFailed { error, .. } => {
            let text = format!("{error}; nobody it is for is let in until then");
            (Level::ERROR, text)
        }
        Event::KeySettled(whose) => {
            let text = format!("{whose}: the kernel has the password now");
            (Level::INFO, text)
        }
        Event::ListenFailed(error) => (Level::ERROR, format!("{error}; it is tried again")),
        Event::Listening(address) => (Level::INFO, format!("listening on {address}")),
    };
    Some(line)
}

fn write(level: Level, text: &str) {
    match level {
        Level::ERROR => tracing::error!("{text}"),
        Level::WARN => tracing::warn!("{text}"),
        Level::INFO => tracing::info!("{text}"),
        _ => tracing::debug!("{text}"),
    }
}

/// Whether an address belongs to a range and to no configured neighbor.
fn is_of_range(speaker: &Speaker, remote: IpAddr) -> bool {
    let config = speaker.config();
    let is_neighbor = config.peers.iter().any(|peer| peer.remote == remote);
    !is_neighbor && config.range_of(remote).is_some()
}
