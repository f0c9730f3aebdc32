//! The driver: one value that owns the speaker and its sockets, given turns by its program.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bgp_speaker::bgp_fsm::{Conn, Instant};
use bgp_speaker::bgp_proto::{Family, Notification};
use bgp_speaker::rib::{Budget, Change, PeerId, Progress};
use bgp_speaker::{Input, ReaderId, Reconfigured, Speaker, SpeakerConfig};
use bytes::{Bytes, BytesMut};
use slab::Slab;
use tokio::time::Sleep;

use crate::keys::Keyless;
use crate::limits::{STALL, TURN_PREFIXES_MAX};
use crate::linger::Lingering;
use crate::link::Link;
use crate::listener::Listener;
use crate::ready::{ReadyList, Signal};
use crate::trace::Trace;
use crate::{Clock, Event, IoError, ReconfigureError};

/// What the driver needs to know besides the speaker's configuration.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct IoConfig {
    /// Where to listen. An IPv6 address takes IPv6 connections only; port 0 is any free port.
    pub listen: Vec<SocketAddr>,
}

impl IoConfig {
    /// Returns a driver that listens at these addresses; without any it only dials.
    #[must_use]
    pub fn new(listen: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self {
            listen: listen.into_iter().collect(),
        }
    }
}

/// How a speaker leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// Peers are to forget its routes.
    ForGood,
    /// It will be back in a moment: peers that can are to keep its routes (RFC 4724, RFC 8538).
    ToComeBack,
}

/// A speaker with its sockets and its clock. Belongs to one task of a Tokio runtime with I/O and
/// time.
pub struct Io {
    pub(crate) speaker: Speaker,
    pub(crate) clock: Clock,
    pub(crate) listeners: Vec<Listener>,
    /// Where it is to listen once it can.
    pub(crate) unheard: Vec<SocketAddr>,
    /// The keys that are not on all listening sockets.
    pub(crate) keyless: Keyless,
    /// When what is missing on the listening sockets is tried again.
    pub(crate) arm_at: Option<Instant>,
    pub(crate) entries: Slab<Entry>,
    /// Where each transport stands in `entries`.
    pub(crate) places: BTreeMap<(PeerId, Conn), usize>,
    pub(crate) ready: Arc<ReadyList>,
    /// The tokens of the turn, kept for its allocation.
    tokens: Vec<usize>,
    /// Where all connections read to; nothing stays in it between reads.
    pub(crate) scratch: BytesMut,
    /// What is to be written in one go, kept for its allocation.
    pub(crate) slices: Vec<Bytes>,
    /// When lingering connections are closed for good, in order; all linger equally long.
    pub(crate) deadlines: VecDeque<(Instant, usize, u64)>,
    pub(crate) lingering: usize,
    pub(crate) serial: u64,
    /// Until when we do not accept.
    pub(crate) accept_pause: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
    /// What the program has not heard yet.
    pub(crate) events: Vec<Event>,
    /// The peers whose messages are reported.
    pub(crate) trace: Trace,
    /// Whether the speaker has background work.
    pub(crate) work: bool,
    /// Turns until timers count again after the program was busy for long.
    catching_up: Option<usize>,
    /// Whether the last turn did something, so that the runtime must look at its sockets first.
    busy: bool,
}

/// What a token stands for.
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
    /// An address that cannot be listened on, and what to do about it. One that the machine does not
    /// have yet is tried again, and so is a TCP-MD5 key that the kernel does not take:
    /// [`unheard`](Self::unheard) and [`keyless`](Self::keyless) name them.
    pub fn new(speaker: Speaker, config: IoConfig) -> Result<Self, IoError> {
        let mut io = Self {
            speaker,
            clock: Clock::new(),
            listeners: Vec::new(),
            unheard: Vec::new(),
            keyless: Keyless::new(),
            arm_at: None,
            entries: Slab::new(),
            places: BTreeMap::new(),
            ready: Arc::default(),
            tokens: Vec::new(),
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

    /// Does what there is to do and returns what came of it, perhaps nothing to tell: after each
    /// return the speaker's tables may have changed. Waits if there is nothing to do.
    ///
    /// May be dropped at any time without loss, as `select!` does.
    pub async fn next(&mut self) -> Vec<Event> {
        if std::mem::take(&mut self.busy) {
            // Between two turns the runtime must get to see the sockets and the clock.
            tokio::task::yield_now().await;
        }
        std::future::poll_fn(|cx| self.poll_turn(cx)).await
    }

    /// Hands an input to the speaker, at the clock's time.
    pub fn handle(&mut self, input: Input<'_>) {
        self.work = true;
        self.speaker.handle(self.clock.now(), input);
        self.drain();
    }

    /// The speaker, to read.
    #[must_use]
    pub fn speaker(&self) -> &Speaker {
        &self.speaker
    }

    /// Returns the speaker to change it. A change takes effect in the next turn.
    pub fn speaker_mut(&mut self) -> &mut Speaker {
        self.work = true;
        &mut self.speaker
    }

    /// Reads on in one family of the tables, see [`Speaker::read`]. Unlike
    /// [`speaker_mut`](Self::speaker_mut) it makes no work when there was nothing to read, so a
    /// program may call it after every turn and still rest.
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
        // What all readers have read, the tables forget in a turn.
        self.work |= read || progress != Progress::Done;
        progress
    }

    /// Has a program read from the speaker with more than one call. `read` returns whether it has
    /// read anything: only then there is work for the next turn, as with [`read`](Self::read).
    pub fn read_with(&mut self, read: impl FnOnce(&mut Speaker) -> bool) {
        self.work |= read(&mut self.speaker);
    }

    /// The driver's clock: the speaker's instants are of this one.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns whether the kernel has taken all that there is to send to the peers whose sessions are
    /// up: every route that was announced or withdrawn before the call and every End-of-RIB.
    ///
    /// A peer whose session is not up counts for nothing, so a program asks for the sessions that it
    /// needs first. It is good to ask after each [`next`](Self::next).
    #[must_use]
    pub fn all_sent(&self) -> bool {
        !self.work && self.speaker.all_sent()
    }

    /// Connections that are being closed: their last words are not read yet.
    #[must_use]
    pub fn lingering(&self) -> usize {
        self.lingering
    }

    /// Takes over a new configuration of the speaker; where it listens is said by
    /// [`listen_on`](Self::listen_on). A TCP-MD5 key
    /// that the kernel does not take keeps out those it is for: see [`keyless`](Self::keyless).
    ///
    /// # Errors
    ///
    /// The speaker cannot become another one, and nothing changes.
    pub fn reconfigure(&mut self, config: SpeakerConfig) -> Result<Reconfigured, ReconfigureError> {
        let now = self.clock.now();
        let done = self
            .speaker
            .reconfigure(now, config)
            .map_err(ReconfigureError::NeedsRestart)?;
        self.work = true;
        self.drain();
        self.arm();
        Ok(done)
    }

    /// Resets one session: sends the peer the notification `why`, closes the session and starts it
    /// again. A dynamic peer is removed, and is created again when it connects.
    pub fn reset(&mut self, peer: PeerId, why: Notification) {
        self.speaker.stop(self.clock.now(), peer, why);
        // Its connection gives up its place before the next one takes it.
        self.drain();
        self.handle(Input::Session(peer, bgp_speaker::bgp_fsm::Input::Start));
    }

    /// Ends all sessions with the notification `why`, and waits until the notifications are sent, at most
    /// [`crate::limits::LINGER`].
    pub async fn shutdown(&mut self, parting: Parting, why: &Notification) {
        self.listeners.clear();
        self.unheard.clear();
        self.arm_at = None;
        let now = self.clock.now();
        match parting {
            Parting::ForGood => self.speaker.stop_all(now, why),
            Parting::ToComeBack => self.speaker.leave_all(now, why),
        }
        self.drain();
        while self.lingering > 0 {
            self.next().await;
        }
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Event>> {
        self.ready.register(cx.waker());
        self.trace.turned();
        let mut worked = self.accept_ready(cx);
        worked |= self.serve_ready();
        worked |= self.write_listed();
        // Reads come before timers: what a peer said in time must be heard in time.
        worked |= self.poll_clock(cx);
        worked |= self.run_bite();
        worked |= self.write_listed();
        if !worked && self.events.is_empty() {
            return Poll::Pending;
        }
        self.busy = true;
        Poll::Ready(std::mem::take(&mut self.events))
    }

    /// Looks at the connections that were woken.
    fn serve_ready(&mut self) -> bool {
        let mut tokens = std::mem::take(&mut self.tokens);
        self.ready.take(&mut tokens);
        let worked = !tokens.is_empty();
        let mut octets_left = crate::limits::TURN_OCTETS_MAX;
        for token in tokens.drain(..) {
            self.serve(token, &mut octets_left);
        }
        self.tokens = tokens;
        worked
    }

    /// Waits for the next deadline, and acts if it has come.
    fn poll_clock(&mut self, cx: &mut Context<'_>) -> bool {
        let lingering = self.deadlines.front().map(|(at, ..)| *at);
        let deadlines = [
            self.speaker.poll_timeout(),
            lingering,
            self.accept_pause,
            self.arm_at,
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

    /// Gives the speaker a bite of its background work.
    fn run_bite(&mut self) -> bool {
        if !self.work {
            return false;
        }
        let progress = self
            .speaker
            .run(self.clock.now(), Budget(TURN_PREFIXES_MAX));
        self.drain();
        self.work = progress == Progress::More;
        true
    }

    /// A token for a new entry, and its signal.
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
