//! The sessions of a daemon according to its events.
//!
//! This side of the oracle `events` reads events as an operator's query does, by stable name and
//! field. The other side is the speaker's state.

use std::collections::BTreeMap;

use bgp_speaker::Speaker;
use bgp_speaker::bgp_fsm::State;
use daemon_common::events::Event;

use crate::limits::WRONG_EVENTS;

/// The causes of `session.closed` in the operators' page.
const CAUSES: [&str; 5] = ["sent", "received", "connection-lost", "reopened", "restart"];

/// The reports of a daemon since its start.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// Neighbors whose last event is `session.established`, and those whose last is `session.closed`.
    established: BTreeMap<String, bool>,
    /// Events that contradict the ones before, at most [`WRONG_EVENTS`].
    wrong: Vec<String>,
}

impl Reported {
    /// Reads an event.
    pub(crate) fn read(&mut self, event: &Event) {
        let name = event.kind().name;
        let is_established = match name {
            "session.established" => true,
            "session.closed" => false,
            _ => return,
        };
        let fields = event.fields();
        let text = |field: &str| fields.get(field).and_then(|value| value.as_str());
        let neighbor = text("neighbor").unwrap_or_default().to_owned();
        if neighbor.is_empty() {
            self.contradicts(format!("{name} without a neighbor"));
        }
        if is_established && text("families").is_none_or(str::is_empty) {
            self.contradicts(format!("{name} of {neighbor} without families"));
        }
        if !is_established && !text("cause").is_some_and(|cause| CAUSES.contains(&cause)) {
            self.contradicts(format!("{name} of {neighbor} without a known cause"));
        }
        if !is_established && text("reason").is_none_or(str::is_empty) {
            self.contradicts(format!("{name} of {neighbor} without a reason"));
        }
        let before = self.established.insert(neighbor.clone(), is_established);
        if before.unwrap_or(false) == is_established {
            self.contradicts(format!("{name} of {neighbor}, as before"));
        }
    }

    fn contradicts(&mut self, what: String) {
        if self.wrong.len() < WRONG_EVENTS {
            self.wrong.push(what);
        }
    }

    /// Returns the contradictions, and what differs from the sessions of the speaker.
    pub(crate) fn check(&self, speaker: &Speaker) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        for peer in speaker.peers() {
            let name = speaker.peer_name(peer.id);
            let reported = self.established.get(name).copied().unwrap_or(false);
            let state = peer.session.state();
            if reported != (state == State::Established) {
                let last = match reported {
                    true => "established",
                    false => "closed, or nothing",
                };
                wrong.push(format!("{name} is {state:?}; last reported: {last}"));
            }
        }
        wrong
    }
}
