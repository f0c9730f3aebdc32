//! The state machine of one transport: it runs the table and performs the actions of its rows.

use alloc::{boxed::Box, collections::VecDeque};
use core::net::SocketAddr;

use bgp_proto::notification::fsm;
use bgp_proto::{HEADER_OCTETS, Notification, Open, RouteRefresh, SessionParams};
use bytes::{Bytes, BytesMut};

use crate::chance::Chance;
use crate::limits::{OPEN_HOLD, READ_PAUSE_HOLDS_MAX, SEND_HOLD_MIN};
use crate::negotiate::open_of;
use crate::outbox::Outbox;
use crate::table::{Action, Event, Row, row};
use crate::timer::{Timer, Timers};
use crate::{Conn, DownReason, Duration, Instant, Output, SessionConfig, State};

/// A whole KEEPALIVE: a header and nothing else. RFC 4271 §4.4
const KEEPALIVE: [u8; HEADER_OCTETS] = {
    let mut message = [0xff; HEADER_OCTETS];
    [message[16], message[17], message[18]] = [0, HEADER_OCTETS as u8, 4];
    message
};

/// The context of a transition beside the connection itself.
pub(crate) struct Env<'s> {
    pub(crate) now: Instant,
    pub(crate) config: &'s SessionConfig,
    pub(crate) chance: &'s mut Chance,
    pub(crate) outputs: &'s mut VecDeque<Output>,
}

/// The data of an event.
#[derive(Clone, Debug)]
pub(crate) enum Cause {
    /// None.
    Plain,
    /// The NOTIFICATION to send.
    Send(Notification),
    /// The received NOTIFICATION.
    Received(Notification),
    /// The body of an UPDATE.
    Update(Bytes),
    /// A ROUTE-REFRESH.
    Refresh(RouteRefresh),
}

/// The result of a transition.
pub(crate) struct Step {
    pub(crate) from: State,
    pub(crate) to: State,
    /// Whether it counts towards the idle hold.
    pub(crate) failed: bool,
    /// The reason, if it left a state with a session or an attempt.
    pub(crate) reason: DownReason,
}

/// The state of the transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transport {
    /// No transport.
    #[default]
    None,
    /// A dial was requested.
    Dialing,
    /// It carries octets.
    Open,
}

/// A wait for the path in strict mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strict {
    /// The path is not up at this end.
    Waits,
    /// The same, and the peer has sent its KEEPALIVE: the path is up at its end.
    PeerReady,
    /// The path has come up.
    Passed,
}

/// One of the two machines of a session.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    conn: Conn,
    state: State,
    transport: Transport,
    timers: Timers,
    /// Octets to be written; after a close those that the driver still flushes.
    pub(crate) outbox: Outbox,
    /// The OPEN that the peer has sent on this transport.
    pub(crate) open: Option<Box<Open>>,
    /// The negotiated parameters.
    pub(crate) params: Option<Box<SessionParams>>,
    /// The local and the remote end of the transport.
    pub(crate) ends: Option<(SocketAddr, SocketAddr)>,
    /// The wait for the path, in strict mode only.
    pub(crate) strict: Option<Strict>,
    /// Whether, at the last input, octets were waiting of which the socket had accepted none.
    stalled: bool,
    /// Since when octets are unread because reading is paused.
    paused_since: Option<Instant>,
}

impl Connection {
    pub(crate) fn new(conn: Conn) -> Self {
        Self {
            conn,
            state: State::Idle,
            transport: Transport::None,
            timers: Timers::default(),
            outbox: Outbox::default(),
            open: None,
            params: None,
            ends: None,
            strict: None,
            stalled: false,
            paused_since: None,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns whether it waits for the path in strict mode.
    pub(crate) fn awaits_path(&self) -> bool {
        let waits = matches!(self.strict, Some(Strict::Waits | Strict::PeerReady));
        waits && self.state == State::OpenConfirm
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.timers
    }

    /// Handles a new transport: resets the state of the last one, and starts the handshake timer.
    pub(crate) fn opened(&mut self, local: SocketAddr, remote: SocketAddr, env: &mut Env<'_>) {
        self.forget();
        self.transport = Transport::Open;
        self.ends = Some((local, remote));
        let config = env.config;
        let time = seconds(config.handshake_s.max(1)) + seconds(config.open_delay_s);
        self.start(Timer::Handshake, time, env);
    }

    /// Handles a transport that was lost.
    pub(crate) fn lost(&mut self) {
        self.transport = Transport::None;
    }

    /// Sets a timer without an action of the table.
    pub(crate) fn set_timer(&mut self, timer: Timer, at: Option<Instant>) {
        self.timers.set(timer, at);
    }

    /// Stops all timers.
    pub(crate) fn stop_timers(&mut self) {
        self.timers.clear();
    }

    /// Closes a transport outside the table, with a NOTIFICATION or without.
    pub(crate) fn give_up(
        &mut self,
        notification: Option<&Notification>,
        outputs: &mut VecDeque<Output>,
    ) {
        if let Some(notification) = notification {
            self.send(|out| notification.encode(out));
        }
        self.transport = Transport::None;
        outputs.push_back(Output::Close(self.conn));
    }

    /// Runs one event through the table.
    pub(crate) fn step(&mut self, event: Event, cause: Cause, env: &mut Env<'_>) -> Step {
        let from = self.state;
        let row = row(from, event);
        let reason = reason(row, event, from, &cause);
        let mut payload = Some(cause);
        for action in row.actions {
            self.act(*action, row, &reason, &mut payload, env);
        }
        self.state = row.to;
        let failed = row.actions.contains(&Action::Fail);
        Step {
            from,
            to: row.to,
            failed,
            reason,
        }
    }

    /// Performs one action of `row`.
    fn act(
        &mut self,
        action: Action,
        row: &Row,
        reason: &DownReason,
        payload: &mut Option<Cause>,
        env: &mut Env<'_>,
    ) {
        let config = env.config;
        match action {
            Action::Dial => {
                self.forget();
                self.transport = Transport::Dialing;
                env.outputs.push_back(Output::Dial);
            }
            Action::Close => self.close(row, env),
            Action::Fail => {} // The session counts it.
            Action::SendOpen => self.send(|out| open_of(config).encode(out)),
            Action::SendKeepalive => self.send_keepalive(),
            Action::Notify | Action::NotifyUnexpected => {
                if let DownReason::Sent(notification) = reason {
                    self.notify(notification);
                }
            }
            Action::StartConnectRetry => {
                // The machine of the inbound connection waits; it never dials.
                if self.conn == Conn::Outbound {
                    self.start(
                        Timer::ConnectRetry,
                        seconds(config.connect_retry_s.max(1)),
                        env,
                    );
                }
            }
            Action::StopConnectRetry => self.timers.stop(Timer::ConnectRetry),
            Action::StartDelayOpen => {
                self.start(Timer::DelayOpen, seconds(config.open_delay_s), env)
            }
            Action::StopDelayOpen => self.timers.stop(Timer::DelayOpen),
            Action::StartOpenHold => self.start(Timer::Hold, OPEN_HOLD, env),
            Action::StartHold => self.start(Timer::Hold, self.hold_time(), env),
            Action::StartKeepalive => {
                self.start(Timer::Keepalive, self.keepalive_time(config), env);
            }
            Action::StartSendHold => self.start(Timer::SendHold, self.send_hold_time(config), env),
            Action::Deliver => match payload.take() {
                Some(Cause::Update(body)) => env.outputs.push_back(Output::Update(body)),
                Some(Cause::Refresh(refresh)) => env.outputs.push_back(Output::Refresh(refresh)),
                _ => {}
            },
            Action::Establish => {
                self.timers.stop(Timer::Handshake);
                if let Some(params) = &self.params {
                    env.outputs.push_back(Output::Established(params.clone()));
                }
            }
        }
    }

    /// Returns the timer that is due, unless it is deferred.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        loop {
            let timer = self.timers.take_due(now)?;
            if timer != Timer::Hold || !self.hold_deferred(now) {
                return Some(timer);
            }
        }
    }

    /// Records the octets that the socket has accepted since the last input. The send hold timer
    /// runs from the first input at which octets are waiting and none was accepted (RFC 9687 §3.3);
    /// so it may fire late by the time between two inputs, never early.
    pub(crate) fn note_progress(&mut self, now: Instant, config: &SessionConfig) {
        let stalled = !self.outbox.take_progress() && self.outbox.octets() > 0;
        if self.timers.deadline(Timer::SendHold).is_some() && !(stalled && self.stalled) {
            self.timers
                .set(Timer::SendHold, Some(now + self.send_hold_time(config)));
        }
        self.stalled = stalled;
    }

    /// Applies a changed interval: the next KEEPALIVE is sent no later than it would have been.
    pub(crate) fn pace(&mut self, env: &mut Env<'_>) {
        if let Some(deadline) = self.timers.deadline(Timer::Keepalive) {
            self.start(Timer::Keepalive, self.keepalive_time(env.config), env);
            let new = self.timers.deadline(Timer::Keepalive);
            self.timers.set(Timer::Keepalive, new.min(Some(deadline)));
        }
    }

    /// Records that reading is paused (`unread` octets wait) or continues.
    pub(crate) fn read_paused(&mut self, unread: bool, now: Instant) {
        if unread {
            self.paused_since.get_or_insert(now);
        } else if self.paused_since.take().is_some()
            && let Some(deadline) = self.timers.deadline(Timer::Hold)
        {
            // Leaves time to read the octets that were unread.
            let least = now + self.hold_time() / 3;
            self.timers.set(Timer::Hold, Some(deadline.max(least)));
        }
    }

    /// Defers the hold timer while unread octets are known to wait, up to the limit.
    fn hold_deferred(&mut self, now: Instant) -> bool {
        let (Some(since), State::Established) = (self.paused_since, self.state) else {
            return false;
        };
        let cap = since + self.hold_time() * READ_PAUSE_HOLDS_MAX;
        let defer = now < cap;
        if defer {
            self.timers
                .set(Timer::Hold, Some(cap.min(now + self.hold_time())));
        }
        defer
    }

    fn close(&mut self, row: &Row, env: &mut Env<'_>) {
        let notified = row
            .actions
            .iter()
            .any(|a| matches!(a, Action::Notify | Action::NotifyUnexpected));
        if !notified || self.transport != Transport::Open {
            self.outbox.clear();
        }
        if self.transport != Transport::None {
            env.outputs.push_back(Output::Close(self.conn));
        }
        self.transport = Transport::None;
        self.timers.clear();
        self.paused_since = None;
    }

    fn notify(&mut self, notification: &Notification) {
        if self.transport == Transport::Open {
            if self.state == State::Established {
                self.outbox.cut();
            }
            self.send(|out| notification.encode(out));
        }
    }

    pub(crate) fn send_keepalive(&mut self) {
        let keepalive = Bytes::from_static(&KEEPALIVE);
        if !self.outbox.ends_with(&keepalive) {
            self.outbox.push(keepalive);
        }
    }

    fn send(&mut self, encode: impl FnOnce(&mut BytesMut)) {
        let mut out = BytesMut::new();
        encode(&mut out);
        self.outbox.push(out.freeze());
    }

    fn start(&mut self, timer: Timer, time: Duration, env: &mut Env<'_>) {
        self.timers.start(timer, env.now, time, env.chance);
    }

    /// Returns the negotiated hold time; zero for no keepalives.
    fn hold_time(&self) -> Duration {
        self.params
            .as_ref()
            .map_or(Duration::ZERO, |params| seconds(params.hold_time_s))
    }

    /// RFC 4271 §10: a third of the hold time, or less if that is configured.
    fn keepalive_time(&self, config: &SessionConfig) -> Duration {
        let most = self.hold_time() / 3;
        let wanted = config.keepalive_s.map(|time_s| seconds(time_s.max(1)));
        wanted.map_or(most, |wanted| wanted.min(most))
    }

    /// RFC 9687 §3.1: the greater of eight minutes and twice the hold time.
    fn send_hold_time(&self, config: &SessionConfig) -> Duration {
        match config.send_hold_s {
            Some(time_s) => Duration::from_secs(u64::from(time_s)),
            None => SEND_HOLD_MIN.max(self.hold_time() * 2),
        }
    }

    fn forget(&mut self) {
        self.outbox.clear();
        (self.open, self.params, self.ends, self.paused_since) = (None, None, None, None);
        self.strict = None;
    }
}

/// Returns the reason of the row's transition.
fn reason(row: &Row, event: Event, from: State, cause: &Cause) -> DownReason {
    if row.actions.contains(&Action::NotifyUnexpected) {
        return DownReason::Sent(unexpected_message(from));
    }
    match (event, cause) {
        (Event::Reopened, _) => DownReason::Reopened,
        (Event::StopForRestart, _) => DownReason::LocalRestart,
        (_, Cause::Send(notification)) => DownReason::Sent(notification.clone()),
        (_, Cause::Received(notification)) => DownReason::Received(notification.clone()),
        _ => DownReason::TransportLost,
    }
}

/// Returns the NOTIFICATION for a message that is unexpected in `state`. RFC 6608 §3
fn unexpected_message(state: State) -> Notification {
    Notification::fsm(match state {
        State::OpenSent => fsm::UNEXPECTED_IN_OPEN_SENT,
        State::OpenConfirm => fsm::UNEXPECTED_IN_OPEN_CONFIRM,
        State::Established => fsm::UNEXPECTED_IN_ESTABLISHED,
        State::Idle | State::Connect | State::Active => fsm::UNSPECIFIC,
    })
}

fn seconds(seconds: u16) -> Duration {
    Duration::from_secs(u64::from(seconds))
}
