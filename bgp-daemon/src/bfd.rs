//! The sessions of BFD with neighbors, from the process that has them.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::IpAddr;
use std::path::PathBuf;

use bfd_client::limits::IDLE_MS;
use bfd_client::{
    Auth, AuthKey, Client, Event as Notice, Hops, Liveness, SessionState, State, Wanted,
};
use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_speaker::{self, BfdAuth, BfdMode, PathState, PeerConfig, PeerView};
use bgp_io::rib::PeerId;
use bgp_io::{Clock, Event, Input, Io, Speaker, StopMode};
use calico_bgp::{BfdTimers, Duties};
use daemon_common::events::{self, Text, emit};
use daemon_common::report::Neighbors;

use crate::limits::{BFD_ABSENCE, BFD_SESSIONS_DELAY, BFD_SESSIONS_INTERVAL};
use crate::{Driver, DriverError, Round, Settings};

/// The client of cambric-bfd.
#[derive(Debug)]
pub(crate) struct Bfd {
    client: Client,
    /// The neighbors with BFD, by address.
    paths: BTreeMap<IpAddr, Path>,
    /// The timers by interface, from the datastore.
    timers: Vec<BfdTimers>,
    /// When the neighbors are compared with the requested sessions.
    due: Option<Instant>,
    /// Why cambric-bfd is not reached, if it is not.
    problem: Option<String>,
    /// When the states of lost sessions become unknown, unless cambric-bfd is back.
    unknown_at: Option<Instant>,
    /// The daemon stops for good: the sessions end after those of BGP.
    leaves: bool,
}

/// The path to one neighbor.
#[derive(Debug, Default)]
struct Path {
    /// The peer; a dynamic neighbor of the former process has none before it connects.
    peer: Option<PeerId>,
    /// Whether its BGP session is established only when the path is up.
    is_strict: bool,
    /// The last state of its session since the last connection to cambric-bfd.
    state: Option<SessionState>,
    /// The interface of a path over a single hop, as cambric-bfd has last reported it.
    interface: Option<String>,
    /// Whether a state was received in this process: failures before it concern an earlier process.
    is_known: bool,
    /// Why its session was rejected.
    rejected: Option<String>,
}

impl Path {
    fn is_alive(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|state| state.liveness == Liveness::Alive)
    }
}

impl Bfd {
    /// Makes the client of this daemon. It connects when a neighbor has BFD.
    pub(crate) fn new<S: Settings>(socket: PathBuf) -> Self {
        Self {
            client: Client::new(socket, format!("cambric-{}", S::DAEMON)),
            paths: BTreeMap::new(),
            timers: Vec::new(),
            due: Some(Instant::ZERO),
            problem: None,
            unknown_at: None,
            leaves: false,
        }
    }

    /// Schedules a comparison soon. Many sessions that come up together cause one.
    fn hasten(&mut self, now: Instant) {
        let soon = now + BFD_SESSIONS_DELAY;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// Requests the sessions of the neighbors that have BFD now.
    fn compare(&mut self, io: &mut Io) {
        let sessions = self.sessions(io.speaker());
        let mut former = std::mem::take(&mut self.paths);
        let (mut wanted, mut alive) = (BTreeMap::new(), Vec::new());
        for (peer, session) in sessions {
            let remote = session.remote;
            let mut path = former.remove(&remote).unwrap_or_default();
            if path.peer != peer && path.is_alive() {
                alive.push(remote);
            }
            path.peer = peer;
            let view = peer.and_then(|peer| io.speaker().peer(peer));
            path.is_strict = view.is_some_and(|view| view.config.session.bfd_strict);
            wanted.insert(remote, session);
            self.paths.insert(remote, path);
        }
        for remote in former.into_keys() {
            io.handle(Input::Path(remote, PathState::Unknown));
        }
        for remote in alive {
            io.handle(Input::Path(remote, PathState::Alive));
        }
        if wanted.is_empty() {
            self.problem = None;
        }
        self.client.want(wanted);
    }

    /// Returns the sessions of the peers, and of the dynamic neighbors of the former process: such a neighbor
    /// may have failed before it can connect to this one.
    fn sessions(&self, speaker: &Speaker) -> Vec<(Option<PeerId>, Wanted)> {
        let peers = speaker.peers().filter(|view| self.has_session(view));
        let peers = peers.filter_map(|view| {
            let session = self.session(view.config, view.local)?;
            Some((Some(view.id), session))
        });
        let former = speaker.former_dynamic();
        let former = former.filter_map(|config| Some((None, self.session(&config, None)?)));
        peers.chain(former).collect()
    }

    /// Returns whether a neighbor may have a session. A neighbor of a range has it from its first
    /// established session on: others could only be invented addresses.
    fn has_session(&self, view: &PeerView<'_>) -> bool {
        let wanted = self.client.wanted();
        !view.dynamic || view.local.is_some() || wanted.contains_key(&view.config.remote)
    }

    /// Returns the session for a neighbor, if it has one.
    fn session(&self, config: &PeerConfig, local: Option<IpAddr>) -> Option<Wanted> {
        let (bfd, remote) = (config.bfd?, config.remote);
        let former = self.client.wanted().get(&remote);
        let path = self.paths.get(&remote);
        let interface = path.and_then(|path| path.interface.as_deref());
        let last = former.and_then(|former| former.local);
        // GTSM (RFC 5082): a neighbor within one hop sends packets that arrive with 255.
        let hops = config.ttl_security_hops;
        let timers = BfdTimers::of(&self.timers, interface);
        let of = |timer: fn(&BfdTimers) -> u32, own| timers.map_or(own, timer);
        Some(Wanted {
            remote,
            local: config.local.or(local).or(last),
            hops: match bfd.mode {
                BfdMode::SingleHop => Hops::Single,
                BfdMode::Multihop => Hops::Multi,
                _ => Hops::Auto,
            },
            interval_ms: of(|timers| timers.send_ms, bfd.interval_ms),
            receive_ms: of(|timers| timers.receive_ms, bfd.interval_ms),
            idle_ms: of(|timers| timers.idle_ms, IDLE_MS),
            multiplier: timers.map_or(bfd.multiplier, |timers| timers.multiplier),
            ttl_min: hops.map_or(0, |hops| u8::MAX - hops.saturating_sub(1)),
            auth: auth(config),
        })
    }

    fn notice(&mut self, now: Instant, io: &mut Io, notice: Notice) {
        match notice {
            Notice::Connected(_) => {
                self.problem = None;
                self.unknown_at = None;
                for path in self.paths.values_mut() {
                    path.rejected = None;
                }
                emit(events::Event::BfdAvailable {});
            }
            Notice::Lost { reason } => self.lost(now, reason),
            Notice::State(state) => {
                if self.state(io, state) {
                    self.hasten(now);
                }
            }
            Notice::Rejected { remote, reason } => {
                if self.reject(remote, reason) {
                    io.handle(Input::Path(remote, PathState::Unknown));
                }
            }
        }
    }

    /// Notes that a session was rejected. Returns whether the path becomes unknown: without a session, no
    /// later state would end a failure.
    fn reject(&mut self, remote: IpAddr, reason: String) -> bool {
        let Some(path) = self.paths.get_mut(&remote) else {
            return false;
        };
        emit(events::Event::BfdRejected {
            address: remote,
            reason: Text::new(&reason),
        });
        path.rejected = Some(reason);
        path.state = None;
        true
    }

    /// cambric-bfd may just restart: its sessions continue. The states stay for that time.
    fn lost(&mut self, now: Instant, reason: String) {
        for path in self.paths.values_mut() {
            path.state = None;
        }
        self.unknown_at.get_or_insert(now + BFD_ABSENCE);
        emit(events::Event::BfdUnavailable {
            reason: Text::new(&reason),
        });
        self.problem = Some(reason);
    }

    /// Without cambric-bfd, all neighbors are as neighbors without BFD.
    fn forget(&mut self, now: Instant, io: &mut Io) {
        if self.unknown_at.is_none_or(|at| at > now) {
            return;
        }
        self.unknown_at = None;
        for remote in self.paths.keys() {
            io.handle(Input::Path(*remote, PathState::Unknown));
        }
    }

    /// Passes a state on. A failure between two states counts, also if the path works again. Returns
    /// whether other timers may count for the session.
    fn state(&mut self, io: &mut Io, state: SessionState) -> bool {
        let Some(path) = self.paths.get_mut(&state.remote) else {
            return false;
        };
        let is_first = !std::mem::replace(&mut path.is_known, true);
        let remote = state.remote;
        // A failure before this start concerns the routes that an earlier process has left. If the path works
        // again, or BGP has a session over it, they are not wrong.
        let has_failed = match is_first {
            true => state.liveness == Liveness::Failed && !has_session(io, remote),
            false => state.failures > 0,
        };
        if has_failed {
            let failed = PathState::Failed {
                control_plane_independent: state.control_plane_independent,
            };
            io.handle(Input::Path(remote, failed));
        }
        match state.liveness {
            Liveness::Alive => io.handle(Input::Path(remote, PathState::Alive)),
            Liveness::Failed => {}
            _ => io.handle(Input::Path(remote, PathState::Unknown)),
        }
        if state.failures > 0 && is_first {
            emit(events::Event::BfdFailedBefore {
                address: state.remote,
                reason: Text::new(&state.diagnostic),
            });
        }
        path.rejected = None;
        let is_other_interface = path.interface != state.interface;
        path.interface.clone_from(&state.interface);
        path.state = Some(state);
        is_other_interface && !self.timers.is_empty()
    }

    /// Returns the state of a neighbor's session in words.
    fn words(&self, path: &Path) -> String {
        if let Some(problem) = &self.problem {
            return problem.clone();
        }
        if let Some(rejected) = &path.rejected {
            return format!("rejected: {rejected}");
        }
        let Some(state) = &path.state else {
            return "requested".to_owned();
        };
        if let Some(problem) = &state.problem {
            return match state.state {
                State::Up => format!("up; {problem}"),
                _ => problem.clone(),
            };
        }
        match (state.state, state.liveness) {
            (State::Up, _) => "up".to_owned(),
            (_, Liveness::Failed) => format!("failed: {}", state.diagnostic),
            (_, Liveness::DisabledHere) => "disabled here".to_owned(),
            (_, Liveness::DisabledThere) => "disabled by the neighbor".to_owned(),
            _ => "not up yet".to_owned(),
        }
    }
}

/// Returns the authentication of a neighbor. The check of the configuration has found its keys valid.
fn auth(config: &PeerConfig) -> Option<Auth> {
    let kind = config.bfd_auth?;
    let keys = config.bfd_keys.as_ref()?;
    let keys = kind.keys(keys).unwrap_or_default().into_iter();
    let keys = keys.map(|(id, secret)| AuthKey {
        id,
        secret: secret.to_owned(),
    });
    let code = match kind {
        BfdAuth::Simple => 1,
        BfdAuth::KeyedMd5 => 2,
        BfdAuth::MeticulousKeyedMd5 => 3,
        BfdAuth::KeyedSha1 => 4,
        // A later type is rejected by its code.
        BfdAuth::MeticulousKeyedSha1 => 5,
        _ => u8::MAX,
    };
    Some(Auth {
        kind: code,
        keys: keys.collect(),
    })
}

fn has_session(io: &Io, remote: IpAddr) -> bool {
    let mut peers = io.speaker().peers();
    peers.any(|view| view.config.remote == remote && view.params.is_some())
}

impl<S: Settings> Driver<S> for Bfd {
    async fn wait(&mut self) {
        match self.client.is_connected() {
            true => self.client.ready().await,
            false => pending().await,
        }
    }

    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        if self.due.is_some_and(|due| due <= round.now) {
            self.compare(round.io);
            let has_any = !self.client.wanted().is_empty();
            self.due = has_any.then(|| round.now + BFD_SESSIONS_INTERVAL);
        }
        for notice in self.client.turn(round.now) {
            self.notice(round.now, round.io, notice);
        }
        self.forget(round.now, round.io);
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let times = [self.due, self.client.poll_timeout(), self.unknown_at];
        times.into_iter().flatten().min()
    }

    fn observe(&mut self, now: Instant, _: &Speaker, event: &Event) {
        use bgp_speaker::Event as Of;
        if matches!(event, Event::Speaker(Of::Up { .. } | Of::Down { .. })) {
            self.hasten(now);
        }
    }

    fn assign(&mut self, duties: &Duties) {
        if self.timers != duties.bfd_timers {
            self.timers.clone_from(&duties.bfd_timers);
            self.due = Some(Instant::ZERO);
        }
    }

    fn adopted(&mut self, now: Instant, _: &bgp_config::Intent) {
        self.hasten(now);
    }

    fn annotate(&self, _: Instant, neighbors: &mut Neighbors) {
        for neighbor in &mut neighbors.neighbors {
            let path = neighbor
                .address
                .and_then(|address| self.paths.get(&address));
            let words = path.map(|path| self.words(path)).into_iter();
            let words: Vec<String> = words.chain(neighbor.bfd.take()).collect();
            neighbor.bfd = (!words.is_empty()).then(|| words.join("; "));
        }
    }

    fn notes(&self, _: Instant) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(problem) = &self.problem {
            let count = self.paths.len();
            notes.push(format!(
                "BFD is not in effect for {count} neighbors: {problem}; a dead neighbor is found by the hold \
                 time only"
            ));
            let strict = self.paths.values().filter(|path| path.is_strict).count();
            if strict > 0 {
                notes.push(format!(
                    "{strict} neighbors with bfd_strict cannot be established: they wait for BFD"
                ));
            }
        }
        let rejected = self
            .paths
            .values()
            .filter_map(|path| path.rejected.as_ref());
        notes.extend(rejected.take(1).map(|reason| {
            format!("a session of BFD is rejected: {reason}; see `cambric show neighbors NAME`")
        }));
        notes
    }

    fn stopping(&mut self, _: &Speaker, _: Instant, parting: StopMode) {
        self.leaves = parting == StopMode::Permanent;
    }

    // After the sessions of BGP: the neighbors have the NOTIFICATION with its reason before AdminDown.
    async fn stop(&mut self, _: &Clock) {
        if self.leaves {
            self.client.leave();
        }
    }
}

#[cfg(test)]
mod tests;
