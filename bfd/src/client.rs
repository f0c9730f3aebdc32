//! The interface towards clients: protocols that use a session (RFC 5882).

use core::fmt;

use crate::diagnostic::Diagnostic;
use crate::table::State;

/// The system that has disabled a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// This one.
    Local,
    /// The remote one.
    Remote,
}

/// The result of the session for its clients.
///
/// Only [`Liveness::Failed`] is a reason for a client to act. In all other values, a client behaves as
/// if there were no session (RFC 5882 §3.2, §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// The session was not Up since it was enabled: the remote system may not use BFD at all.
    #[default]
    Unknown,
    /// The session is Up.
    Alive,
    /// The session was Up, and has failed.
    Failed {
        /// The reason: the local diagnostic.
        diagnostic: Diagnostic,
        /// The C bit of the last received packet. If it is set, the forwarding plane of the remote
        /// system has failed, so that a graceful restart must end. Otherwise its control plane may
        /// be restarting (RFC 5882 §4.3.2).
        control_plane_independent: bool,
    },
    /// An operator has disabled the session. That is no failure of the path (RFC 5882 §3.2).
    Disabled(Side),
}

impl fmt::Display for Liveness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("not yet up"),
            Self::Alive => f.write_str("alive"),
            Self::Failed { diagnostic, .. } => write!(f, "failed: {diagnostic}"),
            Self::Disabled(Side::Local) => f.write_str("disabled by the local operator"),
            Self::Disabled(Side::Remote) => f.write_str("disabled by the remote operator"),
        }
    }
}

/// A change of a session that its clients are notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The state before.
    pub from: State,
    /// The state now. It equals `from` if only `liveness` has changed, or in Up `remote_diagnostic`: the
    /// remote system signals the state of a concatenated path (RFC 5880 §6.8.17).
    pub to: State,
    /// The result for clients now.
    pub liveness: Liveness,
    /// Whether the session was Up at any time since it was made.
    pub was_up: bool,
    /// The local diagnostic.
    pub diagnostic: Diagnostic,
    /// The diagnostic in the last received packet.
    pub remote_diagnostic: Diagnostic,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} after {}: {}", self.to, self.from, self.liveness)
    }
}
