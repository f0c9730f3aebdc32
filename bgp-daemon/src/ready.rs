//! Readiness: the criteria that a daemon meets when packets can follow its routes. Pure.
//!
//! `docs/design/ready.md` has the criteria and their reasons.

use std::collections::{BTreeMap, BTreeSet};

use bgp_io::Speaker;
use bgp_io::bgp_fsm::{Instant, State};
use bgp_io::bgp_speaker::{Event, PeerView};
use bgp_io::rib::PeerId;
use daemon_common::report::Readiness;

use crate::AwaitedEndOfRib;
use crate::limits::{READY_NAMES_MAX, READY_WAIT, READY_WITHOUT_END_OF_RIB};

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
///
/// Without graceful restart a neighbor may send no markers: it counts [`READY_WITHOUT_END_OF_RIB`] after
/// its session was established. A neighbor that had sent its routes counts while they are retained as
/// stale.
///
/// A route reflector without configured neighbors has no routes before a client or another reflector
/// has a session: it requires one, for at most [`READY_WAIT`].
#[derive(Debug, Default)]
pub struct EndOfRibs {
    /// Whether the daemon is a route reflector.
    reflects: bool,
    awaited: AwaitedEndOfRib,
    /// The sessions without graceful restart, and when their neighbors count without markers.
    without_markers: BTreeMap<PeerId, Instant>,
    /// The neighbors that had sent all routes in a session whose routes were retained at its end.
    retained: BTreeSet<PeerId>,
    was_met: bool,
}

impl EndOfRibs {
    /// Creates the criterion of a node or of a route reflector that starts.
    pub fn new(reflects: bool) -> Self {
        Self {
            reflects,
            ..Self::default()
        }
    }

    /// Applies a session event.
    pub fn observe(&mut self, now: Instant, speaker: &Speaker, event: &Event) {
        let (Event::Up { peer, .. } | Event::EndOfRib { peer, .. } | Event::Down { peer, .. }) =
            event
        else {
            return;
        };
        let Some(view) = speaker.peer(*peer).filter(|view| !view.dynamic) else {
            self.forget(*peer);
            return;
        };
        let was_complete = self.is_complete(now, &view);
        if matches!(event, Event::Down { .. }) && was_complete {
            self.note_met(now, speaker);
        }
        self.awaited.observe(event);
        match event {
            Event::Up { params, .. } => {
                let is_graceful = view.config.session.graceful_restart.is_some();
                if !is_graceful || params.peer_graceful.is_none() {
                    let at = now + READY_WITHOUT_END_OF_RIB;
                    self.without_markers.insert(*peer, at);
                }
                if view.stale_until.is_none() {
                    self.retained.remove(peer);
                }
            }
            Event::Down { .. } => {
                self.without_markers.remove(peer);
                match was_complete && view.stale_until.is_some() {
                    true => self.retained.insert(*peer),
                    false => self.retained.remove(peer),
                };
            }
            _ if !was_complete && self.is_complete(now, &view) => self.note_met(now, speaker),
            _ => {}
        }
    }

    /// Removes a neighbor that no longer exists, or is not configured.
    fn forget(&mut self, peer: PeerId) {
        self.awaited.forget(peer);
        self.without_markers.remove(&peer);
        self.retained.remove(&peer);
    }

    /// Records whether all neighbors have sent their routes, while that matters.
    fn note_met(&mut self, now: Instant, speaker: &Speaker) {
        if self.is_start(now) {
            let missing = self.missing_peers(now, speaker).next().is_some();
            self.was_met = !missing;
        }
    }

    fn is_start(&self, now: Instant) -> bool {
        !self.was_met && now < Instant::ZERO + READY_WAIT
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
        if self.reflects && all == 0 && self.is_start(now) {
            let mut peers = speaker.peers();
            let is_used = peers.any(|peer| peer.session.state() == State::Established);
            let why = "no client and no other reflector has an established session";
            return (!is_used).then(|| why.to_owned());
        }
        let names = self.missing_peers(now, speaker);
        let names: Vec<String> = names.map(|peer| peer.config.name.to_string()).collect();
        if names.is_empty() || (!self.is_start(now) && names.len() < all) {
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
    fn missing_peers<'s>(
        &'s self,
        now: Instant,
        speaker: &'s Speaker,
    ) -> impl Iterator<Item = PeerView<'s>> {
        let peers = speaker.peers().filter(|peer| !peer.dynamic);
        peers.filter(move |peer| !self.is_complete(now, peer))
    }

    /// Returns whether a neighbor has sent all its routes, as far as that can be observed.
    fn is_complete(&self, now: Instant, peer: &PeerView<'_>) -> bool {
        let counts_at = self.without_markers.get(&peer.id);
        self.awaited.has_all_of(peer.id)
            || counts_at.is_some_and(|at| *at <= now)
            || (peer.stale_until.is_some() && self.retained.contains(&peer.id))
    }
}
