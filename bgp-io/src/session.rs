//! One session over one transport, without a speaker and its tables.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bgp_speaker::bgp_fsm::{Conn, Input, Output, Session, SessionConfig};
use bgp_speaker::bgp_proto::notification::cease;
use bgp_speaker::bgp_proto::{Notification, SessionParams, next_frame};
use bytes::{Bytes, BytesMut};
use tokio::time::Sleep;

use crate::closing::Closing;
use crate::limits::{
    LINGER, SESSION_READ_OCTETS, SESSION_STALL_TURNS, SESSION_TURN_STEPS, STALL, WRITE_OCTETS_MAX,
};
use crate::{Clock, Transport};

mod event;
mod received;
mod send;
#[cfg(test)]
mod tests;

pub use event::SessionEvent;
pub use received::{ReceivedUpdate, Routes};
pub use send::SendError;

/// The place of the only transport in the state machine, for both sides: the machine must not dial.
const CONN: Conn = Conn::Inbound;

/// One BGP session over one [`Transport`]: it exchanges OPENs and KEEPALIVEs, keeps the timers, and
/// returns what happens. It has no tables and does not dial again; when it is over, so is the value.
///
/// All work is done within [`next`](Self::next), which the owner therefore calls all the time, mostly in
/// a task of its own.
///
/// [`close`](Self::close) ends the session with a NOTIFICATION. A session that is dropped sends
/// Cease/Administrative Shutdown if its transport takes it at once; nothing waits for the peer to read it.
/// With graceful restart it sends none, so that the peer retains the routes (RFC 4724 §4.2).
///
/// The peer must finish the handshake within `SessionConfig::handshake_s`, 15 seconds by default, and
/// then send a message within each hold time. A malformed UPDATE is handled as RFC 7606 requires: see
/// [`ReceivedUpdate::faults`].
///
/// ```
/// use bgp_io::bgp_fsm::{PeerAs, SessionConfig};
/// use bgp_io::bgp_proto::{Asn, Attributes, Family, FamilySet, Net, Nlri, RouterId};
/// use bgp_io::{Memory, SessionEvent, SessionStream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = |last| SessionConfig::new(Asn(64512), RouterId([192, 0, 2, last].into())).with(|config| {
///     config.peer_asn = PeerAs::Internal;
///     config.families = FamilySet::UNICAST;
/// });
/// let ends = Memory::pair(["192.0.2.1:179".parse()?, "192.0.2.2:179".parse()?]);
/// let [one, other] = ends;
/// let mut one = SessionStream::new(one, config(1))?;
/// let mut other = SessionStream::new(other, config(2))?;
///
/// tokio::spawn(async move {
///     while let Some(event) = one.next().await {
///         if let SessionEvent::Established(_) = event {
///             let attributes = Attributes {
///                 next_hop: Some(bgp_io::bgp_proto::NextHop::V4([192, 0, 2, 1].into())),
///                 local_pref: Some(100),
///                 ..Attributes::default()
///             };
///             let route = Nlri::new(Net::V4("198.51.100.0/24".parse().expect("a prefix")));
///             let sent = one.announce(Family::IPV4_UNICAST, &attributes, [route]);
///             sent.expect("the session is up and its queue is empty");
///         }
///     }
/// });
/// while let Some(event) = other.next().await {
///     if let SessionEvent::Update(update) = event {
///         let routes = update.routes().next().expect("one family");
///         assert_eq!(routes.announced().count(), 1);
///         assert_eq!(routes.attributes.and_then(|a| a.local_pref), Some(100));
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SessionStream<T: Transport> {
    session: Session,
    stage: Stage<T>,
    clock: Clock,
    sleep: Pin<Box<Sleep>>,
    /// Octets that were read and are no whole message yet.
    buffer: BytesMut,
    /// Octets to be written, kept for its allocation.
    slices: Vec<Bytes>,
    /// Events that were not returned yet: those of one input.
    events: VecDeque<SessionEvent>,
    /// The parameters of the established session.
    params: Option<Arc<SessionParams>>,
    /// Whether a write has failed: what the peer sent before is read first.
    is_broken: bool,
    /// Whether octets of the owner wait that [`SessionEvent::AllSent`] has to follow.
    owes_all_sent: bool,
    /// Turns of the runtime that overdue timers still wait for.
    stall_turns: Option<u8>,
}

/// The state of the transport.
#[derive(Debug)]
enum Stage<T> {
    Open(T),
    Closing(Closing<T>),
    Over,
}

impl<T: Transport> SessionStream<T> {
    /// Starts a session over an open transport; it does not matter which side has opened it. Must be
    /// called within a Tokio runtime with time.
    ///
    /// Of the configuration, the settings that concern dials, idle holds and further connections have
    /// no effect.
    ///
    /// # Errors
    ///
    /// The transport is closed already.
    pub fn new(transport: T, config: SessionConfig) -> io::Result<Self> {
        let (local, remote) = transport.ends()?;
        let config = config.with(|config| config.passive = true);
        // The jitter of timers needs no secret, but should differ from session to session.
        let seed = RandomState::new().hash_one(remote);
        let mut stream = Self {
            session: Session::new(config, seed),
            stage: Stage::Open(transport),
            clock: Clock::new(),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            buffer: BytesMut::new(),
            slices: Vec::new(),
            events: VecDeque::new(),
            params: None,
            is_broken: false,
            owes_all_sent: false,
            stall_turns: None,
        };
        stream.input(Input::Start);
        stream.input(Input::Opened {
            conn: CONN,
            local,
            remote,
        });
        Ok(stream)
    }

    /// Works on the session until something happens, and returns it. `None` is the end: it follows
    /// [`SessionEvent::Down`] once the last message is delivered or [`LINGER`] is over.
    ///
    /// May be dropped at any time without loss, as `select!` does.
    pub async fn next(&mut self) -> Option<SessionEvent> {
        // However much the peer sends, other tasks get their turn.
        tokio::task::coop::consume_budget().await;
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls [`next`](Self::next) for a `Future` or `Stream` of the caller.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<SessionEvent>> {
        for _ in 0..SESSION_TURN_STEPS {
            // The last message is under way before its event is returned.
            let closed = self.poll_closing(cx);
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(Some(event));
            }
            match self.stage {
                Stage::Open(_) => ready!(self.poll_open(cx)),
                Stage::Closing(_) => ready!(closed),
                Stage::Over => return Poll::Ready(None),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ends the session with this NOTIFICATION, and waits until it is delivered, at most [`LINGER`].
    /// Events that were not returned yet are dropped, and so are UPDATEs that were not written yet.
    pub async fn close(mut self, why: Notification) {
        self.input(Input::Stop(why));
        while self.next().await.is_some() {}
    }

    /// Returns the session's state machine: its state, counters, addresses, and the OPEN of the peer.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the local and the remote address.
    #[must_use]
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.session.ends(CONN)
    }

    /// Returns the negotiated parameters while the session is established.
    #[must_use]
    pub fn params(&self) -> Option<&SessionParams> {
        self.session.params()
    }

    /// Reads, looks at the clock, writes; ready if anything was done.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Reads come before timers: a message that arrived in time counts.
        let has_read = self.read(cx);
        let is_open = matches!(self.stage, Stage::Open(_));
        let has_expired = is_open && self.poll_clock(cx);
        let has_written = self.write(cx);
        if has_read || has_expired || has_written {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Handles the next message, if it has arrived, or the end of the transport.
    fn read(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            let input = match next_frame(&mut self.buffer, self.session.octets_max(CONN)) {
                Ok(Some(frame)) => Some(Input::Received { conn: CONN, frame }),
                Ok(None) => None,
                Err(notification) => {
                    self.buffer.clear();
                    let conn = CONN;
                    Some(Input::FrameError { conn, notification })
                }
            };
            if let Some(input) = input {
                self.input(input);
                return true;
            }
            let Stage::Open(transport) = &mut self.stage else {
                return false;
            };
            self.buffer.reserve(SESSION_READ_OCTETS);
            match transport.poll_read(cx, &mut self.buffer) {
                Poll::Pending if !self.is_broken => return false,
                Poll::Pending | Poll::Ready(Ok(0) | Err(_)) => {
                    self.stage = Stage::Over;
                    self.input(Input::Closed(CONN));
                    return true;
                }
                Poll::Ready(Ok(_)) => {}
            }
        }
    }

    /// Waits for the session's next deadline, and acts if it has come.
    fn poll_clock(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(at) = self.session.poll_timeout() else {
            return false;
        };
        let deadline = self.clock.tokio(at);
        if self.sleep.deadline() != deadline {
            self.sleep.as_mut().reset(deadline);
        }
        if self.sleep.as_mut().poll(cx).is_pending() {
            self.stall_turns = None;
            return false;
        }
        let late = self.clock.now().saturating_duration_since(at);
        if late >= STALL && self.waits_after_stall(cx) {
            return false;
        }
        self.input(Input::Timeout);
        true
    }

    /// Returns whether overdue timers have to wait. The program was busy or asleep, so messages may have
    /// arrived that the runtime has not reported yet: it gets some turns to look at its sockets.
    fn waits_after_stall(&mut self, cx: &mut Context<'_>) -> bool {
        let left = self.stall_turns.unwrap_or(SESSION_STALL_TURNS);
        self.stall_turns = left.checked_sub(1);
        // Unlike a wake, this comes after the runtime has looked at its sockets.
        left > 0 && pin!(tokio::task::yield_now()).poll(cx).is_pending()
    }

    /// Writes until nothing waits or the transport is full.
    fn write(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_written = false;
        while let Stage::Open(transport) = &mut self.stage
            && !self.is_broken
        {
            self.slices.clear();
            self.session.fill(CONN, &mut self.slices, WRITE_OCTETS_MAX);
            if self.slices.is_empty() {
                break;
            }
            match transport.poll_write(cx, &self.slices) {
                Poll::Pending => break,
                Poll::Ready(Ok(octets @ 1..)) => self.session.sent(CONN, octets),
                // The peer may have sent the reason before: that is read first.
                Poll::Ready(Ok(0) | Err(_)) => self.is_broken = true,
            }
            has_written = true;
        }
        self.slices.clear();
        if self.owes_all_sent && self.session.queued_octets() == 0 {
            self.owes_all_sent = false;
            self.events.push_back(SessionEvent::AllSent);
            has_written = true;
        }
        has_written
    }

    /// Goes on with the close of the transport.
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Stage::Closing(closing) = &mut self.stage else {
            return Poll::Pending;
        };
        let is_late = self.sleep.as_mut().poll(cx).is_ready();
        if is_late || closing.poll(cx, &mut self.buffer).is_ready() {
            self.stage = Stage::Over;
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Passes an input to the session, and carries out what it requests.
    fn input(&mut self, input: Input) {
        let mut inputs = Some(input);
        while let Some(input) = inputs.take() {
            self.session.handle(self.clock.now(), input);
            while let Some(output) = self.session.poll_output() {
                inputs = self.output(output).or(inputs);
            }
        }
    }

    /// Carries out one output; returns the input that it leads to.
    fn output(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Established(params) => {
                self.params = Some(Arc::new((*params).clone()));
                self.events.push_back(SessionEvent::Established(params));
            }
            Output::Update(body) => {
                let params = self.params.as_ref()?;
                match received::decode(body, params) {
                    Ok(content) => self.events.extend(content.map(SessionEvent::of)),
                    Err(notification) => return Some(Input::Rejected(notification)),
                }
            }
            Output::Refresh(refresh) => self.events.push_back(SessionEvent::Refresh(refresh)),
            Output::Close(_) => self.close_transport(),
            Output::Down(reason) | Output::Unopened { reason, .. } => {
                (self.params, self.owes_all_sent) = (None, false);
                self.events.push_back(SessionEvent::Down(reason));
            }
            Output::State(_) => {}
            // A passive session with one transport dials none and holds none.
            Output::Dial | Output::Promote | Output::Probe { .. } | Output::HeldEnded(_) => {}
        }
        None
    }

    /// Closes the transport behind the octets that the session has still to send.
    fn close_transport(&mut self) {
        let mut last = Vec::new();
        self.session.fill(CONN, &mut last, usize::MAX);
        self.session.sent(CONN, last.iter().map(Bytes::len).sum());
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Open(transport) => Stage::Closing(Closing::new(transport, last)),
            other => other,
        };
        let deadline = self.clock.tokio(self.clock.now() + LINGER);
        self.sleep.as_mut().reset(deadline);
    }
}

impl<T: Transport> Drop for SessionStream<T> {
    fn drop(&mut self) {
        let retains = self.session.config().graceful_restart.is_some();
        if let Stage::Open(transport) = &mut self.stage
            && !self.is_broken
            && !retains
        {
            let why = Notification::cease(cease::ADMINISTRATIVE_SHUTDOWN);
            self.session.handle(self.clock.now(), Input::Stop(why));
            self.session.fill(CONN, &mut self.slices, WRITE_OCTETS_MAX);
            let mut cx = Context::from_waker(Waker::noop());
            let _ = transport.poll_write(&mut cx, &self.slices);
        }
    }
}
