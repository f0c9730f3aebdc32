//! One client, and the sessions that it wants.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bfd::{Discriminator, Instant, Liveness, Session, Side, State};
use bfd_client::{Liveness as Reported, SessionState, State as ReportedState, Wanted};

/// The identity of a client over its restarts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Its user.
    pub uid: u32,
    /// Its name.
    pub name: String,
}

/// A client, connected or away.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) is_connected: bool,
    /// Its sessions by the address of the remote system.
    pub(super) entries: BTreeMap<IpAddr, Entry>,
    /// The sessions with a state that it was not sent yet.
    pub(super) unreported: BTreeSet<IpAddr>,
}

/// A session that a client wants.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) wanted: Wanted,
    /// Its session, if it has a path.
    pub(super) id: Option<Discriminator>,
    /// The interface of its path over a single hop.
    pub(super) interface: Option<String>,
    /// Why it has none, or none by its latest wish.
    pub(super) problem: Option<String>,
    /// Whether another user decides on its session.
    pub(super) follows: bool,
    /// Packets of its remote system on the other port.
    pub(super) other_port: Option<OtherPort>,
    /// Failures that the client was not sent yet.
    pub(super) failures: u64,
    /// When it ends, unless its client wants it again.
    pub(super) expires: Option<Instant>,
    /// When the client set it, until a path was looked for.
    pub(super) since: Option<Instant>,
}

/// Packets of a remote system on the other port.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherPort {
    /// When the last one was read.
    pub(super) last: Instant,
    /// The reason and the remedy.
    pub(super) text: &'static str,
}

impl Client {
    /// Notes that the client is to be sent the state of a session, if it has requested it since it
    /// connected.
    pub(super) fn report(&mut self, remote: IpAddr) {
        let entry = self.entries.get(&remote);
        if entry.is_some_and(|entry| entry.expires.is_none()) {
            self.unreported.insert(remote);
        }
    }
}

impl Entry {
    pub(super) const fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            id: None,
            interface: None,
            problem: None,
            follows: false,
            other_port: None,
            failures: 0,
            expires: None,
            since: None,
        }
    }

    /// Returns why it has no session, or none that can come up.
    pub(super) fn problem(&self) -> Option<&str> {
        let other_port = self.other_port.as_ref().map(|other| other.text);
        self.problem.as_deref().or(other_port)
    }

    /// Returns the state for the client.
    pub(super) fn state(&self, session: Option<&Session>) -> SessionState {
        let state = session.map_or(State::Down, Session::state);
        let liveness = session.map_or(Liveness::Unknown, Session::liveness);
        let diagnostic = session.map(|session| session.diagnostic().to_string());
        SessionState {
            remote: self.wanted.remote,
            state: match state {
                State::AdminDown => ReportedState::AdminDown,
                State::Down => ReportedState::Down,
                State::Init => ReportedState::Init,
                State::Up => ReportedState::Up,
            },
            liveness: match liveness {
                Liveness::Unknown => Reported::Unknown,
                Liveness::Alive => Reported::Alive,
                Liveness::Failed { .. } => Reported::Failed,
                Liveness::Disabled(Side::Local) => Reported::DisabledHere,
                Liveness::Disabled(Side::Remote) => Reported::DisabledThere,
            },
            failures: self.failures,
            diagnostic: diagnostic.unwrap_or_default(),
            control_plane_independent: session
                .is_some_and(Session::is_remote_control_plane_independent),
            interface: self.interface.clone(),
            problem: self.problem().map(str::to_owned),
        }
    }
}
