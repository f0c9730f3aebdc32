//! Execution of the two machines of a session, and their combination: which one is the session, and
//! which one is idle.

use alloc::boxed::Box;

use bgp_proto::notification::{cease, code};
use bgp_proto::{Notification, Open, SessionParams};

use crate::connection::{Cause, Connection, Env, Step, Transport};
use crate::held::collision;
use crate::table::Event;
use crate::timer::Timer;
use crate::{Conn, DownReason, Duration, HeldEnd, Instant, Output, Session, State};

impl Session {
    /// Runs an event through a connection's table and applies the consequences to the session.
    pub(crate) fn step(&mut self, now: Instant, conn: Conn, event: Event, cause: Cause) {
        let step = self.step_alone(now, conn, event, cause);
        if step.from == State::Established && step.to != State::Established {
            self.down(now, &step.reason);
        }
        // RFC 4271 §8.1.1 DampPeerOscillations; a lost collision is not an error.
        if step.failed && !is_collision(&step.reason) {
            let left = step.from == State::Established && is_departure(&step.reason);
            let failures = self.stats.failures.saturating_add(u32::from(!left));
            self.stats.failures = failures;
            self.stats.last_error = Some((now, step.reason));
        }
        if step.to == State::Established && step.from != State::Established {
            self.up(now, conn);
        }
        if step.to == State::Idle && step.from != State::Idle && !self.stopped {
            self.rest(now, conn);
        }
    }

    /// Runs an event through a connection's table without consequences for the session.
    pub(crate) fn step_alone(
        &mut self,
        now: Instant,
        conn: Conn,
        event: Event,
        cause: Cause,
    ) -> Step {
        let was_open = self.conn(conn).transport() == Transport::Open;
        let (connection, mut env) = self.parts(now, conn);
        let step = connection.step(event, cause, &mut env);
        if was_open && self.conn(conn).transport() == Transport::None {
            self.unopened(conn, step.from, &step.reason);
        }
        step
    }

    /// Reports the end of a transport that never carried a session.
    pub(crate) fn unopened(&mut self, conn: Conn, state: State, reason: &DownReason) {
        if state < State::Established {
            let reason = reason.clone();
            self.outputs.push_back(Output::Unopened { conn, reason });
        }
    }

    /// Returns a connection and the context of its transitions.
    pub(crate) fn parts(&mut self, now: Instant, conn: Conn) -> (&mut Connection, Env<'_>) {
        let Self {
            outbound,
            inbound,
            held,
            config,
            chance,
            outputs,
            ..
        } = self;
        let connection = match conn {
            Conn::Outbound => outbound,
            Conn::Inbound => inbound,
            Conn::Held => held,
        };
        let env = Env {
            now,
            config,
            chance,
            outputs,
        };
        (connection, env)
    }

    /// Handles a connection that is Established: the session is up and the other connection is
    /// closed.
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
        // RFC 4271 §6.8: the KEEPALIVE just received is the sign of life.
        self.refuse_held(Some(&collision()), HeldEnd::OlderAlive);
    }

    /// Handles the end of the established connection.
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

    /// Handles a connection that has fallen to Idle: unless the other is about to become the
    /// session, both are in idle hold.
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
        self.idle_hold_until = self.idle_hold_until.filter(|until| *until > now);
        if self.idle_hold_until.is_some() {
            return self.timers.set(Timer::IdleHold, self.idle_hold_until);
        }
        let time = self.idle_hold();
        self.timers
            .start(Timer::IdleHold, now, time, &mut self.chance);
    }

    /// Returns the idle hold, which doubles with each consecutive failure.
    fn idle_hold(&self) -> Duration {
        let (least, most) = self.config.idle_hold_s;
        let doublings = self.stats.failures.saturating_sub(1).min(u16::BITS);
        let time_s = u64::from(least.max(1)) << doublings;
        Duration::from_secs(time_s.min(u64::from(most.max(least).max(1))))
    }

    /// Closes a connection in favor of the other.
    pub(crate) fn dump(&mut self, now: Instant, conn: Conn) {
        self.step(now, conn, Event::CollisionDump, Cause::Send(collision()));
    }

    pub(crate) fn conn(&self, conn: Conn) -> &Connection {
        match conn {
            Conn::Outbound => &self.outbound,
            Conn::Inbound => &self.inbound,
            Conn::Held => &self.held,
        }
    }

    pub(crate) fn conn_mut(&mut self, conn: Conn) -> &mut Connection {
        match conn {
            Conn::Outbound => &mut self.outbound,
            Conn::Inbound => &mut self.inbound,
            Conn::Held => &mut self.held,
        }
    }

    /// Stores the peer's OPEN and the negotiated parameters.
    pub(crate) fn settle(&mut self, conn: Conn, open: Open, params: SessionParams) {
        let connection = self.conn_mut(conn);
        connection.open = Some(Box::new(open));
        connection.params = Some(Box::new(params));
    }
}

/// Returns whether the peer of an established session disconnected, with or without a NOTIFICATION,
/// and without an error. RFC 4271 §8.2.2 does not damp a session for it.
fn is_departure(reason: &DownReason) -> bool {
    match reason {
        DownReason::TransportLost => true,
        DownReason::Received(n) => n.code == code::CEASE && DEPARTURES.contains(&n.subcode),
        _ => false,
    }
}

/// Subcodes of a Cease by which a peer reports its own departure, not a rejection of this speaker.
const DEPARTURES: [u8; 4] = [
    cease::ADMINISTRATIVE_SHUTDOWN,
    cease::ADMINISTRATIVE_RESET,
    cease::OTHER_CONFIGURATION_CHANGE,
    cease::HARD_RESET,
];

/// Returns whether the peer ended a connection only because it keeps the other.
fn is_collision(reason: &DownReason) -> bool {
    let collision = collision();
    matches!(reason, DownReason::Received(n) if (n.code, n.subcode) == (collision.code, collision.subcode))
}
