//! The errors of failed connections to neighbors.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use bgp_io::Speaker;
use bgp_io::bgp_fsm::{Instant, State};
use bgp_io::bgp_speaker::Event;

use crate::limits::CONNECT_REASONS_MAX;

/// The last failure to connect of each neighbor that cannot be connected to.
#[derive(Debug, Default)]
pub(crate) struct ConnectErrors(BTreeMap<IpAddr, ConnectError>);

#[derive(Debug)]
struct ConnectError {
    reason: String,
    /// When this reason was first seen.
    since: Instant,
    /// All reasons since the last connection, at most [`CONNECT_REASONS_MAX`].
    reported: Vec<String>,
}

impl ConnectErrors {
    /// Records that a neighbor cannot be connected to. Returns whether the reason is new since the
    /// last connection.
    pub(crate) fn failed(
        &mut self,
        now: Instant,
        speaker: &Speaker,
        neighbor: IpAddr,
        error: &io::Error,
    ) -> bool {
        if !self.0.contains_key(&neighbor) && self.0.len() >= speaker.peers().count() {
            self.forget_removed(speaker);
        }
        let reason = reason(error);
        let known = self.0.entry(neighbor).or_insert_with(|| ConnectError {
            reason: String::new(),
            since: now,
            reported: Vec::new(),
        });
        if known.reason != reason {
            known.since = now;
            known.reason.clone_from(&reason);
        }
        let is_new =
            !known.reported.contains(&reason) && known.reported.len() < CONNECT_REASONS_MAX;
        if is_new {
            known.reported.push(reason);
        }
        is_new
    }

    /// Removes the failures of a neighbor whose connection opened.
    pub(crate) fn observe(&mut self, speaker: &Speaker, event: &Event) {
        let peer = match event {
            Event::State { peer, state, .. } if *state > State::Active => peer,
            Event::Up { peer, .. } => peer,
            _ => return,
        };
        if let Some(config) = speaker.peer_config(*peer) {
            self.0.remove(&config.remote);
        }
    }

    /// Returns why a neighbor cannot be connected to, and since when.
    pub(crate) fn last(&self, neighbor: IpAddr) -> Option<(&str, Instant)> {
        let error = self.0.get(&neighbor)?;
        Some((&error.reason, error.since))
    }

    /// Removes neighbors that were removed from the configuration.
    fn forget_removed(&mut self, speaker: &Speaker) {
        let peers = speaker.peers().map(|peer| peer.config.remote);
        let peers: std::collections::BTreeSet<IpAddr> = peers.collect();
        self.0.retain(|neighbor, _| peers.contains(neighbor));
    }
}

/// Returns the kernel's text of an error, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error ") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}
