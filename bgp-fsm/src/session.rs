//! The peer's session: two machines, collisions, the idle hold, and the caller's interface.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};
use core::net::SocketAddr;

use bgp_proto::notification::cease;
use bgp_proto::{MESSAGE_OCTETS_MAX, Notification, Open, SessionParams};
use bytes::Bytes;

use crate::chance::Chance;
use crate::connection::{Cause, Connection, Env, Step, Transport};
use crate::limits::{INBOUND_FAILURES_MAX, REOPEN_AGE_MIN};
use crate::table::Event;
use crate::timer::{Timer, Timers};
use crate::{Conn, DownReason, Duration, Input, Instant, Output, SessionConfig, State, Stats};

/// One peer's session: outlives its transports.
#[derive(Clone, Debug)]
pub struct Session {
    config: SessionConfig,
    outbound: Connection,
    inbound: Connection,
    /// Holds the idle hold timer only.
    timers: Timers,
    chance: Chance,
    outputs: VecDeque<Output>,
    /// Whether the operator wants the session down.
    stopped: bool,
    /// The connection that is Established, and since when.
    established: Option<(Conn, Instant)>,
    /// The state last told.
    told: State,
    stats: Stats,
}

impl Session {
    /// A session at rest. `seed` decides the jitter of its timers.
    #[must_use]
    pub fn new(config: SessionConfig, seed: u64) -> Self {
        Self {
            config,
            outbound: Connection::new(Conn::Outbound),
            inbound: Connection::new(Conn::Inbound),
            timers: Timers::default(),
            chance: Chance::new(seed),
            outputs: VecDeque::new(),
            stopped: true,
            established: None,
            told: State::Idle,
            stats: Stats::default(),
        }
    }

    /// Takes one thing that happened. Everything that [`Session::poll_output`] had to say must
    /// have been taken before.
    pub fn handle(&mut self, now: Instant, input: Input) {
        self.begin(now);
        match input {
            Input::Start => self.start(now),
            Input::Stop(notification) => self.stop(now, &notification),
            Input::Opened {
                conn,
                local,
                remote,
            } => self.opened(now, conn, local, remote),
            Input::Failed(conn) => self.lost(now, conn, Transport::Dialing),
            Input::Closed(conn) => self.lost(now, conn, Transport::Open),
            Input::Received { conn, frame } => self.receive(now, conn, frame),
            Input::FrameError { conn, notification } => {
                if self.conn(conn).transport() == Transport::Open {
                    self.step(now, conn, Event::HeaderError, Cause::Send(notification));
                }
            }
            Input::Rejected(notification) => self.rejected(now, notification),
            Input::ReadPaused { unread } => {
                if let Some((conn, _)) = self.established {
                    self.conn_mut(conn).read_paused(unread, now);
                }
            }
            Input::Timeout => self.timeout(now),
        }
        self.end();
    }

    /// Asks whether a connection that the peer has opened is wanted. `Ok` makes room for it: an
    /// older one in its place is closed (drain [`Session::poll_output`] before you hand over
    /// `Opened`). `Err` is what the peer should be told before its connection is closed.
    ///
    /// # Errors
    ///
    /// The session is stopped, waits after errors, or is established and stays so.
    pub fn admit(&mut self, now: Instant) -> Result<(), Notification> {
        self.begin(now);
        let verdict = self.admission(now);
        self.end();
        verdict
    }

    /// The next thing for the caller to do or know.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back with [`Input::Timeout`] at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timers = [&self.timers, self.outbound.timers(), self.inbound.timers()];
        timers.into_iter().filter_map(Timers::next).min()
    }

    /// Appends up to `octets_max` octets that wait on a connection to `slices`. They stay in place until
    /// [`Session::sent`]; hand over what was sent before the next input.
    pub fn fill(&self, conn: Conn, slices: &mut Vec<Bytes>, octets_max: usize) {
        self.conn(conn).outbox.fill(slices, octets_max);
    }

    /// The socket has taken the first `octets` of what [`Session::fill`] gave.
    pub fn sent(&mut self, conn: Conn, octets: usize) {
        let Self {
            outbound,
            inbound,
            stats,
            ..
        } = self;
        let connection = match conn {
            Conn::Outbound => outbound,
            Conn::Inbound => inbound,
        };
        connection.outbox.sent(octets, &mut stats.sent);
    }

    /// Whether octets wait on a connection.
    #[must_use]
    pub fn wants_write(&self, conn: Conn) -> bool {
        self.conn(conn).outbox.octets() > 0
    }

    /// Queues whole messages (UPDATE, ROUTE-REFRESH) on the established connection; without one they
    /// are dropped. The caller keeps the queue short by asking [`Session::queued_octets`] first.
    pub fn queue(&mut self, messages: Bytes) {
        if let Some((conn, _)) = self.established {
            self.conn_mut(conn).outbox.push(messages);
        }
    }

    /// Octets that wait on the established connection; 0 without one.
    #[must_use]
    pub fn queued_octets(&self) -> usize {
        self.established
            .map_or(0, |(conn, _)| self.conn(conn).outbox.octets())
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// What the next OPEN says about a restart of ours (RFC 4724 §3, the R bit).
    pub fn set_restarting(&mut self, restarting: bool) {
        if let Some(graceful) = &mut self.config.graceful_restart {
            graceful.restarting = restarting;
        }
    }

    /// The state of the session: that of the connection that has come further.
    #[must_use]
    pub fn state(&self) -> State {
        let (outbound, inbound) = (self.outbound.state(), self.inbound.state());
        let furthest = outbound.max(inbound);
        if furthest >= State::OpenSent || outbound == State::Idle {
            furthest
        } else {
            outbound
        }
    }

    /// The state of one of the two connections.
    #[must_use]
    pub fn state_of(&self, conn: Conn) -> State {
        self.conn(conn).state()
    }

    /// The connection that is Established.
    #[must_use]
    pub fn established(&self) -> Option<Conn> {
        self.established.map(|(conn, _)| conn)
    }

    /// Since when the session is Established.
    #[must_use]
    pub fn established_at(&self) -> Option<Instant> {
        self.established.map(|(_, since)| since)
    }

    /// What the OPENs of the established session settled.
    #[must_use]
    pub fn params(&self) -> Option<&SessionParams> {
        self.conn(self.established?.0).params.as_deref()
    }

    /// The OPEN of the peer: of the established connection, else of the one that has come further.
    #[must_use]
    pub fn peer_open(&self) -> Option<&Open> {
        let conns = match self.established {
            Some((conn, _)) => [conn, conn],
            None => Conn::ALL,
        };
        conns
            .into_iter()
            .find_map(|conn| self.conn(conn).open.as_deref())
    }

    /// Our and the peer's end of a connection's transport.
    #[must_use]
    pub fn ends(&self, conn: Conn) -> Option<(SocketAddr, SocketAddr)> {
        self.conn(conn).ends
    }

    /// The longest message that may arrive on a connection, in octets (RFC 8654 §4).
    #[must_use]
    pub fn octets_max(&self, conn: Conn) -> usize {
        let params = self.conn(conn).params.as_ref();
        params.map_or(MESSAGE_OCTETS_MAX, |params| params.octets_max())
    }

    /// What was counted.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The timers that run: the session's own with `None`, else with their connection.
    pub fn running_timers(&self) -> impl Iterator<Item = (Option<Conn>, Timer)> + '_ {
        let own = self.timers.running().map(|timer| (None, timer));
        own.chain(Conn::ALL.into_iter().flat_map(|conn| {
            self.conn(conn)
                .timers()
                .running()
                .map(move |timer| (Some(conn), timer))
        }))
    }
}

/// What happens on an input.
impl Session {
    fn begin(&mut self, now: Instant) {
        debug_assert!(
            self.outputs.is_empty(),
            "poll_output must be drained before the next input"
        );
        let Self {
            outbound,
            inbound,
            config,
            ..
        } = self;
        outbound.note_progress(now, config);
        inbound.note_progress(now, config);
    }

    fn end(&mut self) {
        let state = self.state();
        if state != self.told {
            self.told = state;
            self.outputs.push_back(Output::State(state));
        }
    }

    fn start(&mut self, now: Instant) {
        if self.stopped {
            self.stopped = false;
            self.stats.failures = 0;
        }
        self.timers.clear();
        self.wake(now);
    }

    fn stop(&mut self, now: Instant, notification: &Notification) {
        self.stopped = true;
        self.timers.clear();
        for conn in Conn::ALL {
            self.step(now, conn, Event::Stop, Cause::Send(notification.clone()));
        }
    }

    fn opened(&mut self, now: Instant, conn: Conn, local: SocketAddr, remote: SocketAddr) {
        let connection = self.conn_mut(conn);
        if connection.transport() == Transport::Open {
            debug_assert!(false, "a second transport was opened in the place of one");
            return;
        }
        connection.opened(local, remote);
        let delayed = self.config.open_delay_s > 0;
        let event = if delayed {
            Event::TcpOpenedDelayed
        } else {
            Event::TcpOpened
        };
        self.step(
            now,
            conn,
            event,
            Cause::Send(Notification::cease(cease::CONNECTION_REJECTED)),
        );
    }

    /// A transport is gone that we thought to be in `stage`; a late word of it is ignored.
    fn lost(&mut self, now: Instant, conn: Conn, stage: Transport) {
        if self.conn(conn).transport() == stage {
            self.conn_mut(conn).lost();
            self.step(now, conn, Event::TcpFailed, Cause::Plain);
        }
    }

    fn rejected(&mut self, now: Instant, notification: Notification) {
        let Some((conn, _)) = self.established else {
            return;
        };
        let limit = notification.code == bgp_proto::notification::code::CEASE;
        let event = if limit {
            Event::AutomaticStop
        } else {
            Event::UpdateError
        };
        self.step(now, conn, event, Cause::Send(notification));
    }

    fn timeout(&mut self, now: Instant) {
        if self.timers.take_due(now).is_some() {
            self.wake(now);
        }
        for conn in Conn::ALL {
            while let Some(timer) = self.conn_mut(conn).take_due(now) {
                let (event, cause) = expiry(timer);
                self.step(now, conn, event, cause);
            }
        }
    }

    /// Starts what is Idle, unless a connection is about to be the session.
    fn wake(&mut self, now: Instant) {
        if self.state() >= State::OpenConfirm {
            return;
        }
        if self.inbound.state() == State::Idle {
            self.step(now, Conn::Inbound, Event::StartPassive, Cause::Plain);
        }
        if self.outbound.state() == State::Idle && !self.config.passive {
            self.step(now, Conn::Outbound, Event::Start, Cause::Plain);
        }
    }

    fn admission(&mut self, now: Instant) -> Result<(), Notification> {
        if self.stopped {
            return Err(Notification::cease(cease::CONNECTION_REJECTED));
        }
        if let Some((conn, since)) = self.established {
            if self.reopens(now, since) {
                // RFC 4724 §5: the peer has restarted; its routes are kept, its connection is not.
                self.step(now, conn, Event::Reopened, Cause::Plain);
            } else if conn == Conn::Inbound {
                // RFC 4271 §6.8: an established connection is kept.
                return Err(Notification::cease(cease::CONNECTION_COLLISION_RESOLUTION));
            }
        } else if self.timers.deadline(Timer::IdleHold).is_some()
            && self.inbound.state() == State::Idle
            && self.stats.failures > INBOUND_FAILURES_MAX
        {
            return Err(Notification::cease(cease::CONNECTION_REJECTED));
        }
        if self.inbound.transport() == Transport::Open {
            // The peer has given up the older one: it has only one connection to dial.
            let notification = Notification::cease(cease::CONNECTION_COLLISION_RESOLUTION);
            self.step_alone(
                now,
                Conn::Inbound,
                Event::CollisionDump,
                Cause::Send(notification),
            );
        }
        if self.inbound.state() == State::Idle {
            self.step(now, Conn::Inbound, Event::StartPassive, Cause::Plain);
        }
        if self.config.passive || self.outbound.state() != State::Idle {
            self.timers.clear(); // Nothing is left for the idle hold to start.
        }
        Ok(())
    }

    /// Whether a new connection of the peer means that it has restarted. RFC 4724 §5
    fn reopens(&self, now: Instant, since: Instant) -> bool {
        let graceful = self
            .params()
            .and_then(|params| params.peer_graceful.as_ref());
        self.config.graceful_restart.is_some()
            && graceful.is_some_and(|graceful| !graceful.families.is_empty())
            && now - since >= REOPEN_AGE_MIN
    }
}

/// Running the machines.
impl Session {
    /// Runs an event through a connection's table and draws the consequences for the session.
    pub(crate) fn step(&mut self, now: Instant, conn: Conn, event: Event, cause: Cause) {
        let step = self.step_alone(now, conn, event, cause);
        if step.from == State::Established && step.to != State::Established {
            self.down(now, &step.reason);
        }
        // RFC 4271 §8.1.1 DampPeerOscillations; a lost collision is nobody's error.
        if step.failed && !is_collision(&step.reason) {
            self.stats.failures = self.stats.failures.saturating_add(1);
            self.stats.last_error = Some((now, step.reason));
        }
        if step.to == State::Established && step.from != State::Established {
            self.up(now, conn);
        }
        if step.to == State::Idle && step.from != State::Idle && !self.stopped {
            self.rest(now, conn);
        }
    }

    /// Runs an event through a connection's table, no more.
    fn step_alone(&mut self, now: Instant, conn: Conn, event: Event, cause: Cause) -> Step {
        let Self {
            outbound,
            inbound,
            config,
            chance,
            outputs,
            ..
        } = self;
        let connection = match conn {
            Conn::Outbound => outbound,
            Conn::Inbound => inbound,
        };
        connection.step(
            event,
            cause,
            &mut Env {
                now,
                config,
                chance,
                outputs,
            },
        )
    }

    /// A connection is Established: the session is up and the other connection goes.
    fn up(&mut self, now: Instant, conn: Conn) {
        debug_assert!(
            self.established.is_none(),
            "at most one connection is established"
        );
        self.established = Some((conn, now));
        self.stats.established += 1;
        self.timers.clear();
        if self.conn(conn.other()).state() != State::Idle {
            self.dump(now, conn.other());
        }
    }

    /// The established connection has ended.
    fn down(&mut self, now: Instant, reason: &DownReason) {
        if let Some((_, since)) = self.established.take() {
            let stable = Duration::from_secs(u64::from(self.config.idle_hold_s.1));
            if now - since >= stable {
                self.stats.failures = 0;
            }
            self.stats.flaps += 1;
            self.stats.last_down = Some(reason.clone());
            self.outputs.push_back(Output::Down(reason.clone()));
        }
    }

    /// A connection has fallen to Idle: unless the other is about to be the session, both rest for the
    /// idle hold.
    fn rest(&mut self, now: Instant, conn: Conn) {
        let other = conn.other();
        match self.conn(other).state() {
            State::OpenConfirm | State::Established => return,
            State::Idle | State::OpenSent => {}
            State::Connect | State::Active => {
                let notification = Notification::cease(cease::CONNECTION_REJECTED);
                self.step_alone(now, other, Event::CollisionDump, Cause::Send(notification));
            }
        }
        let time = self.idle_hold();
        self.timers
            .start(Timer::IdleHold, now, time, &mut self.chance);
    }

    /// The idle hold doubles with each failure in a row.
    fn idle_hold(&self) -> Duration {
        let (least, most) = self.config.idle_hold_s;
        let doublings = self.stats.failures.saturating_sub(1).min(u16::BITS);
        let time_s = u64::from(least.max(1)) << doublings;
        Duration::from_secs(time_s.min(u64::from(most.max(least).max(1))))
    }

    /// Closes a connection in favour of the other.
    pub(crate) fn dump(&mut self, now: Instant, conn: Conn) {
        let notification = Notification::cease(cease::CONNECTION_COLLISION_RESOLUTION);
        self.step(now, conn, Event::CollisionDump, Cause::Send(notification));
    }

    pub(crate) fn conn(&self, conn: Conn) -> &Connection {
        match conn {
            Conn::Outbound => &self.outbound,
            Conn::Inbound => &self.inbound,
        }
    }

    pub(crate) fn conn_mut(&mut self, conn: Conn) -> &mut Connection {
        match conn {
            Conn::Outbound => &mut self.outbound,
            Conn::Inbound => &mut self.inbound,
        }
    }

    pub(crate) fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// Keeps the peer's OPEN and what it settles with ours.
    pub(crate) fn settle(&mut self, conn: Conn, open: Open, params: SessionParams) {
        let connection = self.conn_mut(conn);
        connection.open = Some(Box::new(open));
        connection.params = Some(Box::new(params));
    }
}

/// The event of a connection's timer and what the peer is told.
fn expiry(timer: Timer) -> (Event, Cause) {
    match timer {
        Timer::ConnectRetry => (Event::ConnectRetryExpires, Cause::Plain),
        Timer::Hold => (
            Event::HoldExpires,
            Cause::Send(Notification::hold_timer_expired()),
        ),
        Timer::Keepalive => (Event::KeepaliveExpires, Cause::Plain),
        Timer::DelayOpen => (Event::DelayOpenExpires, Cause::Plain),
        Timer::SendHold => (
            Event::SendHoldExpires,
            Cause::Send(Notification::send_hold_timer_expired()),
        ),
        Timer::IdleHold => (Event::Start, Cause::Plain),
    }
}

/// Whether the peer ended a connection only because it keeps the other.
fn is_collision(reason: &DownReason) -> bool {
    let collision = Notification::cease(cease::CONNECTION_COLLISION_RESOLUTION);
    matches!(reason, DownReason::Received(n) if (n.code, n.subcode) == (collision.code, collision.subcode))
}
