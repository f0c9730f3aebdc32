//! The driver: one value that owns the speaker and its sockets, and that its program polls.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bgp_speaker::bgp_fsm::{Conn, Instant};
use bgp_speaker::bgp_proto::{Family, Notification};
use bgp_speaker::rib::{Budget, Change, PeerId, Progress};
use bgp_speaker::{Input, PeerConfig, ReaderId, Reconfigured, Speaker, SpeakerConfig};
use bytes::{Bytes, BytesMut};
use slab::Slab;
use tokio::time::Sleep;

use crate::keys::Keyless;
use crate::limits::{
    STALL, TURN_HANDSHAKE_OCTETS_MAX, TURN_HANDSHAKES_MAX, TURN_OCTETS_MAX, TURN_PREFIXES_MAX,
};
use crate::linger::Lingering;
use crate::link::Link;
use crate::listen_socket::ListenSocket;
use crate::ready::{ReadyList, Signal};
use crate::strangers::Strangers;
use crate::trace::Trace;
use crate::{Bind, Clock, Event, IoError, ReconfigureError};

/// The driver's configuration, beside the speaker's.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct IoConfig {
    /// Addresses to listen on. An IPv6 address accepts IPv6 connections only; port 0 is any free
    /// port.
    pub listen: Vec<SocketAddr>,
    /// Binds the ports for which this process lacks the permission.
    pub binder: Option<Arc<dyn Bind>>,
}

impl IoConfig {
    /// Returns a driver's configuration that listens at these addresses; without any the driver
    /// only connects.
    #[must_use]
    pub fn new(listen: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            listen: listen.into_iter().collect(),
            binder: None,
        }
    }

    /// Returns the same with another process that binds ports.
    #[must_use]
    pub fn with_binder(self, binder: Option<Arc<dyn Bind>>) -> Self {
        Self { binder, ..self }
    }
}

/// How a speaker stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Peers are to delete its routes.
    Permanent,
    /// It restarts soon: peers that support it are to retain its routes (RFC 4724, RFC 8538).
    GracefulRestart,
}

/// A speaker with its sockets and its clock. Belongs to one task of a Tokio runtime with I/O and
/// time.
pub struct Io {
    pub(crate) speaker: Speaker,
    pub(crate) clock: Clock,
    pub(crate) listeners: Vec<ListenSocket>,
    /// Binds the ports for which this process lacks the permission.
    pub(crate) binder: Option<Arc<dyn Bind>>,
    /// Addresses on which it cannot listen yet.
    pub(crate) unbound: Vec<SocketAddr>,
    /// Keys that are not set on all listening sockets.
    pub(crate) keyless: Keyless,
    /// When missing addresses and keys of the listening sockets are tried again.
    pub(crate) arm_at: Option<Instant>,
    /// When connections with two TCP-MD5 keys are checked.
    pub(crate) keys_at: Option<Instant>,
    pub(crate) entries: Slab<Entry>,
    /// The index of each transport in `entries`.
    pub(crate) places: BTreeMap<(PeerId, Conn), usize>,
    pub(crate) ready: Arc<ReadyList>,
    /// The tokens of the turn, kept for its allocation.
    tokens: Vec<usize>,
    /// The woken connections without an established session that no turn has served yet.
    pub(crate) handshakes: VecDeque<usize>,
    /// Until when the NOTIFICATIONs to refused connections count, one per [`ANSWER_REFUSAL_EVERY`].
    pub(crate) answered_until: Instant,
    pub(crate) strangers: Strangers,
    /// The buffer into which all connections read; it is empty between reads.
    pub(crate) scratch: BytesMut,
    /// The slices of one write, kept for their allocation.
    pub(crate) slices: Vec<Bytes>,
    /// When lingering connections are closed, in order; all linger equally long.
    pub(crate) deadlines: VecDeque<(Instant, usize, u64)>,
    pub(crate) lingering: usize,
    pub(crate) serial: u64,
    /// Until when no connection is accepted.
    pub(crate) accept_pause: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
    /// Events that the program has not received yet.
    pub(crate) events: Vec<Event>,
    /// The peers with messages to report.
    pub(crate) trace: Trace,
    /// Whether the speaker has background work.
    pub(crate) work: bool,
    /// Turns until timers count again after the program was busy for a long time.
    catching_up: Option<usize>,
    /// Whether the last turn did something, so that the runtime must poll its sockets first.
    busy: bool,
}

/// The object that a token refers to.
pub(crate) enum Entry {
    /// A transport of a session.
    Link(Link),
    /// A connection that is being closed.
    Lingering(Lingering),
}

impl Io {
    /// Listens, and starts the speaker's sessions. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// An address that cannot be listened on, with the remedy. An address that the machine does not
    /// have yet is tried again, and so is a TCP-MD5 key that the kernel rejects:
    /// [`unbound`](Self::unbound) and [`keyless`](Self::keyless) return them.
    pub fn new(speaker: Speaker, config: IoConfig) -> Result<Self, IoError> {
        let clock = Clock::new();
        let mut io = Self {
            speaker,
            answered_until: clock.now(),
            strangers: Strangers::new(clock.now()),
            clock,
            listeners: Vec::new(),
            binder: config.binder,
            unbound: Vec::new(),
            keyless: Keyless::new(),
            arm_at: None,
            keys_at: None,
            entries: Slab::new(),
            places: BTreeMap::new(),
            ready: Arc::default(),
            tokens: Vec::new(),
            handshakes: VecDeque::new(),
            scratch: BytesMut::new(),
            slices: Vec::new(),
            deadlines: VecDeque::new(),
            lingering: 0,
            serial: 0,
            accept_pause: None,
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            events: Vec::new(),
            trace: Trace::default(),
            work: true,
            catching_up: None,
            busy: false,
        };
        io.listen(config.listen)?;
        io.speaker.start(io.clock.now());
        io.drain();
        Ok(io)
    }

    /// Executes the pending work and returns its events, perhaps none: after each return the
    /// speaker's tables may have changed. Waits if there is no work.
    ///
    /// May be dropped at any time without loss, as `select!` does.
    pub async fn next(&mut self) -> Vec<Event> {
        if std::mem::take(&mut self.busy) {
            // Between two turns the runtime must poll the sockets and the clock.
            tokio::task::yield_now().await;
        }
        std::future::poll_fn(|cx| self.poll_turn(cx)).await
    }

    /// Passes an input to the speaker, at the clock's time.
    pub fn handle(&mut self, input: Input<'_>) {
        self.work = true;
        self.speaker.handle(self.clock.now(), input);
        self.drain();
    }

    /// Returns the speaker, to read.
    #[must_use]
    pub fn speaker(&self) -> &Speaker {
        &self.speaker
    }

    /// Returns the speaker to change it. A change takes effect in the next turn.
    pub fn speaker_mut(&mut self) -> &mut Speaker {
        self.work = true;
        &mut self.speaker
    }

    /// Continues to read one family of the tables, see [`Speaker::read`]. Unlike
    /// [`speaker_mut`](Self::speaker_mut) it makes no work when there was nothing to read, so a
    /// program may call it after every turn and still become idle.
    pub fn read(
        &mut self,
        reader: ReaderId,
        family: Family,
        budget: Budget,
        each: &mut dyn FnMut(Change<'_>),
    ) -> Progress {
        let mut read = false;
        let progress = self.speaker.read(reader, family, budget, &mut |change| {
            read = true;
            each(change);
        });
        // Entries that all readers have read are removed in a turn.
        self.work |= read || progress != Progress::Done;
        progress
    }

    /// Reads from the speaker with more than one call. `read` returns whether it has read anything:
    /// only then there is work for the next turn, as with [`read`](Self::read).
    pub fn read_with(&mut self, read: impl FnOnce(&mut Speaker) -> bool) {
        self.work |= read(&mut self.speaker);
    }

    /// Returns the driver's clock, to which the speaker's instants refer.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns whether the kernel has accepted all octets for the peers with an established
    /// session: every route that was announced or withdrawn before the call and every End-of-RIB.
    ///
    /// Peers without an established session are ignored, so a program checks for the sessions that
    /// it needs first. Call it after each [`next`](Self::next).
    #[must_use]
    pub fn all_sent(&self) -> bool {
        !self.work && self.speaker.all_sent()
    }

    /// Returns the number of connections that are being closed: the peer has not read their last
    /// octets yet.
    #[must_use]
    pub fn lingering(&self) -> usize {
        self.lingering
    }

    /// Applies a new configuration of the speaker; [`listen_on`](Self::listen_on) changes the
    /// listening addresses. If the kernel rejects a TCP-MD5 key, its neighbors cannot connect: see
    /// [`keyless`](Self::keyless).
    ///
    /// # Errors
    ///
    /// The configuration needs another speaker, and nothing changes.
    pub fn reconfigure(&mut self, config: SpeakerConfig) -> Result<Reconfigured, ReconfigureError> {
        let now = self.clock.now();
        let done = self
            .speaker
            .reconfigure(now, config)
            .map_err(ReconfigureError::NeedsRestart)?;
        self.peers_changed(true);
        Ok(done)
    }

    /// Adds a peer, or gives the one at its address another configuration, see [`Speaker::set_peer`].
    pub fn set_peer(&mut self, peer: PeerConfig) -> Reconfigured {
        let is_guarded = peer.password.is_some() || peer.ttl_security_hops.is_some();
        let done = self.speaker.set_peer(self.clock.now(), peer);
        self.peers_changed(is_guarded || done.added.is_empty());
        done
    }

    /// Removes the configured peer at an address, see [`Speaker::remove_peer`].
    pub fn remove_peer(&mut self, remote: IpAddr) -> Option<Reconfigured> {
        let done = self.speaker.remove_peer(self.clock.now(), remote)?;
        self.peers_changed(true);
        Some(done)
    }

    /// Performs what follows from changed peers. `is_guarded`: the listening sockets may need other keys
    /// or another filter, which are made of all peers.
    fn peers_changed(&mut self, is_guarded: bool) {
        self.work = true;
        self.drain();
        // A new neighbor is no stranger.
        self.admit_strangers();
        if is_guarded {
            self.arm();
        }
    }

    /// Resets one session: sends the peer the notification `why`, closes the session and starts it
    /// again. A dynamic peer is removed, and is created again when it connects.
    pub fn reset(&mut self, peer: PeerId, why: Notification) {
        self.speaker.stop(self.clock.now(), peer, why);
        // The closed connection gives up its place before the next one takes it.
        self.drain();
        self.handle(Input::Session(peer, bgp_speaker::bgp_fsm::Input::Start));
    }

    /// Ends all sessions with the notification `why`, and waits until the notifications are sent, at most
    /// [`crate::limits::LINGER`].
    pub async fn shutdown(&mut self, mode: StopMode, why: &Notification) {
        self.listeners.clear();
        self.unbound.clear();
        self.arm_at = None;
        let now = self.clock.now();
        match mode {
            StopMode::Permanent => self.speaker.stop_all(now, why),
            StopMode::GracefulRestart => self.speaker.stop_all_for_restart(now, why),
        }
        self.drain();
        while self.lingering > 0 {
            self.next().await;
        }
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Event>> {
        self.ready.register(cx.waker());
        self.trace_turn();
        // Established sessions do not wait for a flood of connections.
        let mut worked = self.serve_ready();
        worked |= self.write_listed();
        worked |= self.accept_ready(cx);
        // Reads come before timers: a message that arrived in time must be processed in time.
        worked |= self.poll_clock(cx);
        worked |= self.run_step();
        worked |= self.write_listed();
        self.take_records();
        if !worked && self.events.is_empty() {
            return Poll::Pending;
        }
        self.busy = true;
        Poll::Ready(std::mem::take(&mut self.events))
    }

    /// Serves the connections that were woken: all established sessions, then a few others.
    fn serve_ready(&mut self) -> bool {
        let mut tokens = std::mem::take(&mut self.tokens);
        self.ready.take(&mut tokens);
        let worked = !tokens.is_empty() || !self.handshakes.is_empty();
        let mut octets_left = TURN_OCTETS_MAX;
        for token in tokens.drain(..) {
            if self.is_established(token) {
                self.serve_within(token, &mut octets_left);
            } else {
                self.handshakes.push_back(token);
            }
        }
        self.tokens = tokens;
        octets_left = octets_left.min(TURN_HANDSHAKE_OCTETS_MAX);
        for _ in 0..TURN_HANDSHAKES_MAX {
            if octets_left == 0 {
                break;
            }
            let Some(token) = self.handshakes.pop_front() else {
                break;
            };
            self.serve_within(token, &mut octets_left);
        }
        worked
    }

    fn is_established(&mut self, token: usize) -> bool {
        let place = self.link(token).map(|link| (link.peer, link.conn));
        place.is_some_and(|(peer, conn)| self.speaker.established(peer) == Some(conn))
    }

    fn serve_within(&mut self, token: usize, octets_left: &mut usize) {
        self.serve(token, octets_left);
        // The rest is read and written in the next turn, so that this one loses no record.
        if self.speaker.is_monitor_busy() {
            *octets_left = 0;
        }
    }

    /// Passes the records of the monitor to the program.
    fn take_records(&mut self) {
        while let Some(record) = self.speaker.poll_record() {
            self.events.push(Event::Monitor(record));
        }
    }

    /// Waits for the next deadline, and handles it when it has passed.
    fn poll_clock(&mut self, cx: &mut Context<'_>) -> bool {
        let lingering = self.deadlines.front().map(|(at, ..)| *at);
        let deadlines = [
            self.speaker.poll_timeout(),
            lingering,
            self.accept_pause,
            self.arm_at,
            self.keys_at,
            self.strangers.look_at(),
        ];
        let Some(at) = deadlines.into_iter().flatten().min() else {
            return false;
        };
        let deadline = self.clock.tokio(at);
        if self.sleep.deadline() != deadline {
            self.sleep.as_mut().reset(deadline);
        }
        if self.sleep.as_mut().poll(cx).is_pending() {
            self.catching_up = None;
            return false;
        }
        let now = self.clock.now();
        if self.accept_pause.is_some_and(|at| at <= now) {
            self.accept_pause = None;
        }
        if self.arm_at.is_some_and(|at| at <= now) {
            self.arm();
        }
        if self.keys_at.is_some_and(|at| at <= now) {
            self.check_keys();
        }
        if self.strangers.look_at().is_some_and(|at| at <= now) {
            self.look_at_strangers(now);
        }
        self.expire_lingering(now);
        match self.speaker.poll_timeout().filter(|&at| at <= now) {
            Some(due) if self.catches_up(now - due) => {}
            Some(_) => self.handle(Input::Timeout),
            None => self.catching_up = None,
        }
        true
    }

    /// Returns whether the timers have to wait. After a long delay, messages of peers may have arrived
    /// that are not read yet. The runtime reports a few ready sockets at a time, so there is a turn for
    /// each connection, and each message that is read restarts an overdue timer.
    fn catches_up(&mut self, late: Duration) -> bool {
        let left = match self.catching_up {
            None if late < STALL => return false,
            None => self.entries.len(),
            Some(left) => left,
        };
        self.catching_up = left.checked_sub(1);
        left > 0
    }

    /// Runs one bounded step of the speaker's background work.
    fn run_step(&mut self) -> bool {
        if !self.work {
            return false;
        }
        if self.speaker.is_monitor_busy() {
            return true; // It is done in the next turn, as the rest of the reads and writes.
        }
        let progress = self
            .speaker
            .run(self.clock.now(), Budget(TURN_PREFIXES_MAX));
        self.drain();
        self.work = progress == Progress::More;
        true
    }

    /// Returns a token for a new entry, and its signal.
    pub(crate) fn vacancy(&self) -> (usize, Arc<Signal>) {
        let token = self.entries.vacant_key();
        (token, Signal::new(token, &self.ready))
    }
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Io")
            .field("listening", &self.listening().collect::<Vec<_>>())
            .field("connections", &self.places.len())
            .field("lingering", &self.lingering)
            .finish_non_exhaustive()
    }
}
