//! The states of the paths to the neighbors of a BGP daemon. It follows the daemon's own driver of BFD,
//! without its socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bfd_client::limits::IDLE_MS;
use bfd_client::{Hops, Liveness, SessionState, Wanted};
use bgp_daemon::limits::{BFD_ABSENCE, BFD_SESSIONS_DELAY, BFD_SESSIONS_INTERVAL};
use bgp_speaker::rib::PeerId;
use bgp_speaker::{PathState, PeerView, Speaker};

use crate::bfd::{Monitor, client};
use crate::limits::RECONNECT_MAX;
use crate::plants::PathPlant;
use crate::time::nanos;
use crate::world::Cx;

/// The client of the process of BFD.
#[derive(Default)]
pub(crate) struct Paths {
    /// The life of the process that it is connected to.
    connected: Option<u64>,
    connect_at: u64,
    /// When the states of lost sessions become unknown.
    unknown_at: Option<u64>,
    /// When the neighbors are compared with the requested sessions.
    compare_at: u64,
    wanted: BTreeMap<IpAddr, Wanted>,
    /// The peers; a dynamic neighbor of the former process has none before it connects.
    peers: BTreeMap<IpAddr, Option<PeerId>>,
    /// The neighbors with a path that works.
    alive: BTreeSet<IpAddr>,
    /// The neighbors with a state in this life of the daemon.
    known: BTreeSet<IpAddr>,
    /// Whether the engine has received a request.
    has_requested: bool,
    plant: Option<PathPlant>,
}

impl Paths {
    pub(crate) fn new(plant: Option<PathPlant>) -> Self {
        Self {
            plant,
            ..Self::default()
        }
    }

    /// Returns when it needs a turn without an event.
    pub(crate) fn timeout(&self) -> Option<u64> {
        let connect = self.connected.is_none().then_some(self.connect_at);
        let times = [connect, self.unknown_at, Some(self.compare_at)];
        times.into_iter().flatten().min()
    }

    /// Compares the neighbors soon: a session has begun or ended.
    pub(crate) fn hasten(&mut self, now: u64) {
        self.compare_at = self.compare_at.min(now + nanos(BFD_SESSIONS_DELAY));
    }

    /// Requests the sessions, and returns the states of paths that have changed.
    pub(crate) fn turn(
        &mut self,
        cx: &mut Cx<'_>,
        speaker: &Speaker,
        monitor: &mut Monitor,
    ) -> Vec<(IpAddr, PathState)> {
        let mut passed = Vec::new();
        self.connect(cx, monitor, &mut passed);
        if self.compare_at <= cx.now {
            self.compare_at = cx.now + nanos(BFD_SESSIONS_INTERVAL);
            self.compare(cx.now, speaker, monitor, &mut passed);
        }
        let life = monitor.slot.life;
        let failures = &mut monitor.failures;
        let Some(bfd) = monitor.slot.run.as_mut() else {
            return passed;
        };
        if self.connected != Some(life) {
            return passed;
        }
        while let Some(mut state) = bfd.engine().unreported(&client()) {
            bfd.engine().reported(&client(), &state);
            let is_first = self.known.insert(state.remote);
            if self.plant.is_some_and(|plant| !plant(is_first, &mut state)) {
                continue;
            }
            let before = passed.len();
            self.state(speaker, is_first, &state, &mut passed);
            let failed =
                |(_, path): &&(IpAddr, PathState)| matches!(path, PathState::Failed { .. });
            *failures += passed.iter().skip(before).filter(failed).count() as u64;
        }
        passed
    }

    /// Returns whether the process of BFD has received a request since the last call.
    pub(crate) fn has_requested(&mut self) -> bool {
        std::mem::take(&mut self.has_requested)
    }

    fn connect(
        &mut self,
        cx: &mut Cx<'_>,
        monitor: &mut Monitor,
        passed: &mut Vec<(IpAddr, PathState)>,
    ) {
        let life = monitor.slot.life;
        match &mut monitor.slot.run {
            Some(_) if self.connected == Some(life) => {}
            Some(bfd) if self.connected.is_none() && self.connect_at <= cx.now => {
                let now = bfd::Instant(cx.now);
                if bfd.engine().attach(now, &client()).is_ok() {
                    self.connected = Some(life);
                    self.unknown_at = None;
                    self.has_requested = true;
                    for wanted in self.wanted.values() {
                        // A rejected session has no path, as an unmonitored neighbor.
                        let _ = bfd.set(cx.now, wanted);
                    }
                }
            }
            _ if self.connected.is_some() => {
                self.connected = None;
                self.alive.clear();
                self.connect_at = cx.now + cx.chance.within(0..=nanos(RECONNECT_MAX));
                self.unknown_at = Some(cx.now + nanos(BFD_ABSENCE));
            }
            _ if self.connect_at <= cx.now => {
                self.connect_at = cx.now + cx.chance.within(1..=nanos(RECONNECT_MAX));
            }
            _ => {}
        }
        if self.unknown_at.is_some_and(|at| at <= cx.now) {
            self.unknown_at = None;
            passed.extend(
                self.peers
                    .keys()
                    .map(|remote| (*remote, PathState::Unknown)),
            );
        }
    }

    fn compare(
        &mut self,
        now: u64,
        speaker: &Speaker,
        monitor: &mut Monitor,
        passed: &mut Vec<(IpAddr, PathState)>,
    ) {
        let (mut wanted, mut peers) = (BTreeMap::new(), BTreeMap::new());
        let is_invented = |view: &PeerView<'_>| {
            view.dynamic && view.local.is_none() && !self.wanted.contains_key(&view.config.remote)
        };
        let current = speaker.peers().filter(|view| !is_invented(view));
        let current = current.map(|view| (view.config.clone(), view.local, Some(view.id)));
        let dynamic = speaker.former_dynamic().map(|config| (config, None, None));
        for (config, local, peer) in current.chain(dynamic) {
            let remote = config.remote;
            let Some(bfd) = config.bfd else {
                continue;
            };
            let last = self.wanted.get(&remote).and_then(|former| former.local);
            let session = Wanted {
                remote,
                local: config.local.or(local).or(last),
                hops: Hops::Auto,
                interval_ms: bfd.interval_ms,
                receive_ms: bfd.interval_ms,
                idle_ms: IDLE_MS,
                multiplier: bfd.multiplier,
                ttl_min: 0,
                auth: None,
            };
            wanted.insert(remote, session);
            let former = self.peers.get(&remote);
            if former.is_some_and(|former| *former != peer) && self.alive.contains(&remote) {
                passed.push((remote, PathState::Alive));
            }
            peers.insert(remote, peer);
        }
        let removed = self.peers.keys();
        let removed = removed.filter(|remote| !peers.contains_key(*remote));
        passed.extend(removed.map(|remote| (*remote, PathState::Unknown)));
        if let (Some(bfd), true) = (&mut monitor.slot.run, self.connected.is_some()) {
            for remote in self.wanted.keys().filter(|one| !wanted.contains_key(*one)) {
                let now = bfd::Instant(now);
                bfd.engine().remove(now, &client(), *remote);
            }
            for (remote, session) in &wanted {
                if self.wanted.get(remote) != Some(session) {
                    let _ = bfd.set(now, session);
                }
            }
        }
        self.has_requested |= self.wanted != wanted;
        (self.wanted, self.peers) = (wanted, peers);
    }

    /// Translates the state of a session for the speaker.
    fn state(
        &mut self,
        speaker: &Speaker,
        is_first: bool,
        state: &SessionState,
        passed: &mut Vec<(IpAddr, PathState)>,
    ) {
        let remote = state.remote;
        if !self.peers.contains_key(&remote) {
            return;
        }
        let has_session = || {
            let mut peers = speaker.peers();
            peers.any(|view| view.config.remote == remote && view.params.is_some())
        };
        let has_failed = match is_first {
            true => state.liveness == Liveness::Failed && !has_session(),
            false => state.failures > 0,
        };
        if has_failed {
            let control_plane_independent = state.control_plane_independent;
            let failed = PathState::Failed {
                control_plane_independent,
            };
            passed.push((remote, failed));
        }
        match state.liveness {
            Liveness::Alive => self.alive.insert(remote),
            _ => self.alive.remove(&remote),
        };
        match state.liveness {
            Liveness::Alive => passed.push((remote, PathState::Alive)),
            Liveness::Failed => {}
            _ => passed.push((remote, PathState::Unknown)),
        }
    }
}
