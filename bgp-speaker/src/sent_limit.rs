//! Limits of the paths that a peer is sent, per family: the events, and the instants at which a
//! peer's output continues (see [`crate::limited`]).

use alloc::vec::Vec;

use bgp_fsm::Instant;
use rib::PeerId;

use crate::{
    event::{Event, Output},
    limited::{Limited, SentPaths},
    outgroup::OutGroup,
    peer::Peer,
    prefix_limit::{LimitLevel, warn_from},
    speaker::Speaker,
};

impl Speaker {
    pub(crate) fn out_group(&self, state: &Peer) -> Option<&OutGroup> {
        self.groups.get(state.group?)?.as_ref()
    }

    /// Returns the paths that a peer was sent in the families with a limit.
    pub(crate) fn sent_to(&self, state: &Peer, peer: PeerId) -> Vec<SentPaths> {
        let group = self.out_group(state).into_iter();
        let limited = group.flat_map(|group| group.limited(peer));
        limited.filter_map(Limited::usage).collect()
    }

    /// Returns whether a peer has to be sent paths later: those that were suppressed, or that wait for
    /// its route targets.
    pub(crate) fn is_sent_later(&self, peer: PeerId) -> bool {
        let state = self.roster.get(peer);
        state.is_some_and(|state| state.sent_resume.or(state.targets_until).is_some())
    }

    /// Reports the limits that a step of output has reached, and sets the time of the next step.
    pub(crate) fn watch_sent(&mut self, peer: PeerId) {
        let Some(state) = self.roster.get(peer) else {
            return;
        };
        if self
            .out_group(state)
            .is_none_or(|group| !group.is_limited())
        {
            return;
        }
        let group = self.out_group(state);
        let limited = group.into_iter().flat_map(|group| group.limited(peer));
        let resume = limited.filter_map(|limited| limited.poll_timeout(self.now));
        let (resume, all) = (resume.min(), self.sent_to(state, peer));
        for sent in &all {
            self.watch_level(peer, sent);
        }
        if let Some(state) = self.roster.get_mut(peer)
            && state.sent_resume != resume
        {
            state.sent_resume = resume;
            self.rearm(peer);
        }
    }

    /// Reports that a peer has approached its limit in a family, that paths are suppressed, or that
    /// all paths have room again.
    fn watch_level(&mut self, peer: PeerId, sent: &SentPaths) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        let (family, limit) = (sent.family, sent.limit);
        let near = sent.paths >= warn_from(limit.max, limit.warn_percent);
        let level = match (sent.is_short, near) {
            (true, _) => LimitLevel::Passed,
            (false, true) => LimitLevel::Near,
            (false, false) => LimitLevel::Below,
        };
        let reported = state.sent_levels.get(&family).copied().unwrap_or_default();
        let is_cleared = reported == LimitLevel::Passed && level < reported;
        if level > reported || is_cleared || level == LimitLevel::Below {
            state.sent_levels.insert(family, level);
        }
        let name = &state.config.name;
        let event = match (is_cleared, level > reported) {
            (true, _) => Event::SentLimitCleared {
                peer,
                name: name.clone(),
                family,
                limit,
            },
            (false, true) => Event::SentLimit {
                peer,
                name: name.clone(),
                family,
                level,
                limit,
            },
            (false, false) => return,
        };
        self.outputs.push_back(Output::Event(event));
    }

    /// Continues the output of a peer with a limit.
    pub(crate) fn resume_sent(&mut self, now: Instant, peer: PeerId) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        if state.sent_resume.is_none_or(|at| at > now) {
            return;
        }
        state.sent_resume = None;
        let group = state.group;
        let group = group.and_then(|group| self.groups.get_mut(group)?.as_mut());
        for limited in group.into_iter().flat_map(|group| group.limited_mut(peer)) {
            limited.resume(now);
        }
        self.list(peer);
    }
}
