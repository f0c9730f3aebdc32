//! Readiness: the criteria that a daemon meets when packets can follow its routes. Pure.
//!
//! `docs/design/ready.md` has the criteria and their reasons.

use bgp_io::Speaker;
use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_speaker::{Event, PeerView};
use daemon_common::report::Readiness;

use crate::AwaitedEndOfRib;
use crate::limits::{READY_NAMES_MAX, READY_WAIT};

#[cfg(test)]
mod tests;

/// A criterion of readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Criterion {
    /// Its name, which scripts can rely on.
    pub name: &'static str,
    /// Why it is not met; `None` if it is.
    pub missing: Option<String>,
}

impl Criterion {
    /// Returns a criterion that is met if there is no reason why not.
    pub const fn new(name: &'static str, missing: Option<String>) -> Self {
        Self { name, missing }
    }
}

/// Returns all criteria as a report.
pub fn report(criteria: Vec<Criterion>) -> Readiness {
    let mut report = Readiness::default();
    for Criterion { name, missing } in criteria {
        match missing {
            Some(why) => report.missing.push(format!("{name}: {why}")),
            None => report.met.push(name.to_owned()),
        }
    }
    report
}

/// The criterion `end-of-rib`: the neighbors have sent their routes.
///
/// After a start, all configured neighbors have to send all End-of-RIB markers (RFC 4724 §2), for at
/// most [`READY_WAIT`]: a neighbor that is down must not keep the host unready for ever. Then, and
/// after it was met once, the markers of one neighbor are enough: a route reflector has the routes of
/// all nodes, and without any neighbor there are no routes.
#[derive(Debug, Default)]
pub struct EndOfRibs {
    awaited: AwaitedEndOfRib,
    was_met: bool,
}

impl EndOfRibs {
    /// Applies a session event.
    pub fn observe(&mut self, speaker: &Speaker, event: &Event) {
        self.awaited.observe(event);
        if matches!(event, Event::EndOfRib { .. }) && !self.was_met {
            let missing = self.missing_peers(speaker).count();
            self.was_met = missing == 0;
        }
    }

    /// Returns the criterion. The daemon has started at [`Instant::ZERO`].
    pub fn criterion(&self, now: Instant, speaker: &Speaker) -> Criterion {
        Criterion::new("end-of-rib", self.missing(now, speaker))
    }

    fn missing(&self, now: Instant, speaker: &Speaker) -> Option<String> {
        if !speaker.deferred().is_empty() {
            return Some("routes are held back until the neighbors have sent theirs".to_owned());
        }
        let all = speaker.peers().filter(|peer| !peer.dynamic).count();
        let names = self.missing_peers(speaker);
        let names: Vec<String> = names.map(|peer| peer.config.name.to_string()).collect();
        let is_start = !self.was_met && now < Instant::ZERO + READY_WAIT;
        if names.is_empty() || (!is_start && names.len() < all) {
            return None;
        }
        let shown = names.get(..READY_NAMES_MAX).unwrap_or(&names).join(", ");
        let more = match names.len().saturating_sub(READY_NAMES_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "{} of {all} neighbors have not sent all their routes: {shown}{more}",
            names.len()
        ))
    }

    /// Returns the configured neighbors that have not sent all their routes.
    fn missing_peers<'s>(&'s self, speaker: &'s Speaker) -> impl Iterator<Item = PeerView<'s>> {
        let peers = speaker.peers().filter(|peer| !peer.dynamic);
        peers.filter(|peer| !self.awaited.has_all_of(peer.id))
    }
}
