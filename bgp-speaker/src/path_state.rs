//! The path to a peer as BFD sees it.

use core::fmt;

/// The state of the path to a peer, as a session of BFD reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathState {
    /// There is no session, it was not up yet, or an operator has disabled it: BGP behaves as without
    /// BFD (RFC 5882 §3.2, §4.2).
    #[default]
    Unknown,
    /// The path works.
    Alive,
    /// The path has failed. Each such input is a failure of its own.
    Failed {
        /// The C bit of the peer's last packet: its BFD does not end with its control plane, so that no
        /// restart explains the failure (RFC 5882 §4.3.2).
        control_plane_independent: bool,
    },
}

/// The consequence of a failed path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathConsequence {
    /// The session was closed, and its routes were removed.
    SessionClosed,
    /// The session was closed, and its routes are retained as stale.
    SessionClosedForRestart,
    /// The session was closed, all routes with the peer as next hop are excluded, and its other routes
    /// are retained as stale.
    SessionClosedNextHopFailed,
    /// The session had ended before, and its stale routes were removed.
    StaleRemoved,
    /// The session had ended before, and its stale routes are retained: the peer restarts.
    Restart,
    /// The session had ended before. All routes with the peer as next hop are excluded, and its other
    /// routes remain stale.
    NextHopFailed,
    /// The session had ended before, and its stale routes are retained: this speaker does not forward
    /// packets along them.
    StaleRetained,
    /// This speaker has restarted, and the peer has failed before it had a session: it is not waited for,
    /// and routes of the former process through it are not kept.
    FormerRemoved,
    /// There was neither a session nor a stale route.
    None,
}

impl fmt::Display for PathConsequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SessionClosed => "session closed, routes removed",
            Self::SessionClosedForRestart => "session closed, routes retained as stale",
            Self::SessionClosedNextHopFailed => {
                "session closed, routes through the neighbor excluded, others retained as stale"
            }
            Self::StaleRemoved => "stale routes removed",
            Self::Restart => "stale routes retained: the neighbor restarts",
            Self::NextHopFailed => {
                "routes through the neighbor excluded, its other routes remain stale"
            }
            Self::StaleRetained => "stale routes retained",
            Self::FormerRemoved => {
                "failed before the first session since the restart, former routes through the neighbor removed"
            }
            Self::None => "no session and no stale routes",
        })
    }
}
