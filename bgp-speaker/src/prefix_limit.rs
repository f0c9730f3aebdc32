//! Limits of paths per peer and family: a warning when a peer approaches the limit, and an action
//! when it exceeds it.

use alloc::vec::Vec;
use core::time::Duration;

use bgp_fsm::Instant;
use bgp_proto::{Family, Notification};
use rib::{Ingested, PeerId};

use crate::{
    config::{LimitAction, PrefixLimit},
    event::{Event, Output},
    limits::{LIMIT_CHECK_EVERY, LIMIT_CLEARED_PERCENT},
    speaker::Speaker,
};

/// The level of a peer's paths relative to a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitLevel {
    /// Below the warning share.
    #[default]
    Below,
    /// At the warning share or above.
    Near,
    /// Above the limit.
    Passed,
}

impl Speaker {
    /// Applies the limits of an established session.
    pub(crate) fn limit_paths(&mut self, peer: PeerId) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        state.limit_levels.clear();
        state.limited.clear();
        self.set_path_limits(peer);
    }

    /// Checks a peer's limit after a received message. A returned input ends the session.
    pub(crate) fn watch_limit(
        &mut self,
        now: Instant,
        peer: PeerId,
        family: Family,
        ingested: &Ingested,
    ) -> Option<bgp_fsm::Input> {
        let state = self.roster.get_mut(peer)?;
        if ingested.limited > 0 && state.limited.iter().all(|&(of, _)| of != family) {
            state.limited.push((family, now + LIMIT_CHECK_EVERY));
        }
        let limit = state.config.prefix_limits.get(family)?;
        // A capped peer has not passed the limit of its configuration.
        let limited = ingested.limited > 0 && !state.is_capped();
        let passed = ingested.exceeded || limited;
        // Stale paths that wait for the sweep do not count for this session.
        let paths = self.rib.counters(peer, family).paths;
        let peak = state.path_peaks.entry(family).or_default();
        *peak = paths.max(*peak);
        let near = paths >= warn_from(limit.max, limit.warn_percent) && self.rib.is_settled(peer);
        let level = match (passed, near) {
            (true, _) => LimitLevel::Passed,
            (false, true) => LimitLevel::Near,
            (false, false) => LimitLevel::Below,
        };
        let reported = state.limit_levels.get(&family).copied().unwrap_or_default();
        let news = level > reported;
        if level == LimitLevel::Below && reported != LimitLevel::Below {
            state.limit_levels.remove(&family);
        }
        if news {
            state.limit_levels.insert(family, level);
            let name = state.config.name.clone();
            self.outputs.push_back(Output::Event(Event::PrefixLimit {
                peer,
                name,
                family,
                level,
                limit,
            }));
        }
        match limit.action {
            LimitAction::Restart { after_s } if passed => Some(bgp_fsm::Input::Limited {
                notification: Notification::prefix_limit(family, limit.max),
                idle_hold: Duration::from_secs(after_s.into()),
            }),
            _ => None,
        }
    }

    /// Asks a peer by ROUTE-REFRESH for the paths that were rejected above a limit, once the number
    /// of its paths has fallen far enough below the limit: the peer does not advertise them again by
    /// itself.
    pub(crate) fn check_limited(&mut self, now: Instant, peer: PeerId) {
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        if state.params.is_none() {
            return state.limited.clear(); // The next session begins with a full table dump.
        }
        let mut cleared = Vec::new();
        let is_capped = state.is_capped();
        for (family, at) in state.limited.iter_mut().filter(|(_, at)| *at <= now) {
            *at = now + LIMIT_CHECK_EVERY;
            if is_capped {
                continue;
            }
            let limit = state.config.prefix_limits.get(*family);
            let paths = self.rib.counters(peer, *family).paths;
            if let Some(limit) = limit.filter(|limit| has_room(limit, paths)) {
                cleared.push((*family, limit));
            }
        }
        for (family, limit) in cleared {
            self.clear_limited(peer, family, limit);
        }
    }

    /// Returns whether a family of a peer has room for rejected paths in the peer's own limit.
    pub(crate) fn has_room_for(&self, peer: PeerId, family: Family) -> bool {
        let state = self.roster.get(peer);
        let limit = state.and_then(|state| state.config.prefix_limits.get(family));
        limit.is_none_or(|limit| has_room(&limit, self.rib.counters(peer, family).paths))
    }

    fn clear_limited(&mut self, peer: PeerId, family: Family, limit: PrefixLimit) {
        let refresh = self.request_refresh(peer, Some(family)).map(|_| ());
        let Some(state) = self.roster.get_mut(peer) else {
            return;
        };
        state.limited.retain(|&(of, _)| of != family);
        // Paths above the limit are reported again.
        state.limit_levels.insert(family, LimitLevel::Near);
        let name = state.config.name.clone();
        let event = Event::PrefixLimitCleared {
            peer,
            name,
            family,
            limit,
            refresh,
        };
        self.outputs.push_back(Output::Event(event));
    }
}

/// Returns whether a family with this number of paths has room for paths that were rejected.
fn has_room(limit: &PrefixLimit, paths: u32) -> bool {
    u64::from(paths) * 100 <= u64::from(limit.max) * u64::from(LIMIT_CLEARED_PERCENT)
}

/// Returns the number of paths from which on a warning is issued; at least 1.
pub(crate) fn warn_from(max: u32, warn_percent: u8) -> u32 {
    let share = u64::from(max) * u64::from(warn_percent.min(100)) / 100;
    u32::try_from(share).unwrap_or(u32::MAX).max(1)
}
