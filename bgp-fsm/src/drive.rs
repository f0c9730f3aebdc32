//! Dispatch of inputs to a session: their events, and the machine that handles them.

use core::net::SocketAddr;

use bgp_proto::notification::{cease, code};
use bgp_proto::{GracefulRestart, Notification};

use crate::connection::{Cause, Strict, Transport};
use crate::held::collision;
use crate::limits::INBOUND_FAILURES_MAX;
use crate::table::Event;
use crate::timer::Timer;
use crate::{Conn, DownReason, Input, Instant, Output, Session, State};

impl Session {
    /// Converts an input to events.
    pub(crate) fn dispatch(&mut self, now: Instant, input: Input) {
        match input {
            Input::Start => self.start(now),
            Input::Stop(notification) => self.stop(now, &notification),
            Input::StopForRestart(notification) => self.leave(now, &notification),
            Input::Opened {
                conn: Conn::Held, ..
            }
            | Input::Closed(Conn::Held)
            | Input::Received {
                conn: Conn::Held, ..
            }
            | Input::FrameError {
                conn: Conn::Held, ..
            } => self.held_input(now, input),
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
            Input::Limited {
                notification,
                idle_hold,
            } => {
                if let Some((conn, _)) = self.established {
                    self.idle_hold_until = Some(now + idle_hold);
                    // The peer's routes are to be removed, not retained.
                    let notification = self.hard(conn, notification);
                    self.step(now, conn, Event::AutomaticStop, Cause::Send(notification));
                }
            }
            Input::PathUp => self.path_up(now),
            Input::PathIsUp(is_up) => self.path_is_up(now, is_up),
            Input::PathFailed => self.path_failed(now),
            Input::Hold(time) => {
                if self.established.is_some() {
                    self.idle_hold_until = Some(now + time);
                }
            }
            Input::ReadPaused { unread } => {
                if let Some((conn, _)) = self.established {
                    self.conn_mut(conn).read_paused(unread, now);
                }
            }
            Input::Promoted => self.promoted(now),
            Input::Probed(probed) => self.probed(now, probed),
            Input::Timeout => self.timeout(now),
        }
    }

    pub(crate) fn begin(&mut self, now: Instant) {
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

    pub(crate) fn end(&mut self, now: Instant) {
        self.settle_held(now);
        let state = self.state();
        if state != self.reported {
            self.reported = state;
            self.outputs.push_back(Output::State(state));
        }
    }

    fn start(&mut self, now: Instant) {
        if self.stopped {
            self.stopped = false;
            self.stats.failures = 0;
        }
        self.idle_hold_until = None;
        self.timers.clear();
        self.wake(now);
    }

    /// Dials at once, unless an attempt has a transport already.
    fn path_up(&mut self, now: Instant) {
        let is_held = self.idle_hold_until.is_some_and(|until| now < until);
        if self.stopped || is_held || self.state() >= State::OpenSent {
            return;
        }
        if self.timers.deadline(Timer::IdleHold).is_some() {
            self.timers.clear();
            return self.wake(now);
        }
        let has_transport = self.outbound.transport() == Transport::Open;
        if self.outbound.state() != State::Idle && !has_transport {
            self.step(
                now,
                Conn::Outbound,
                Event::ConnectRetryExpires,
                Cause::Plain,
            );
        }
    }

    /// Continues the connections that wait for the path in strict mode. One that does not wait any more stays:
    /// BFD was disabled (draft-ietf-idr-bgp-bfd-strict-mode §8.6.1).
    fn path_is_up(&mut self, now: Instant, is_up: bool) {
        self.path_is_up = is_up;
        if !is_up {
            return;
        }
        for conn in Conn::ALL {
            let connection = self.conn_mut(conn);
            if !connection.awaits_path() {
                continue;
            }
            let waits = connection.strict.replace(Strict::Passed);
            self.step(now, conn, Event::PathUp, Cause::Plain);
            if waits == Some(Strict::PeerReady) {
                self.step(now, conn, Event::Keepalive, Cause::Plain);
            }
        }
    }

    /// Ends the connections in strict mode that are not established
    /// (draft-ietf-idr-bgp-bfd-strict-mode §8.5.2, §8.6.2).
    fn path_failed(&mut self, now: Instant) {
        self.path_is_up = false;
        for conn in Conn::ALL {
            let connection = self.conn(conn);
            if connection.strict.is_some() && connection.state() == State::OpenConfirm {
                let cause = Cause::Send(Notification::cease(cease::BFD_DOWN));
                self.step(now, conn, Event::AutomaticStop, cause);
            }
        }
    }

    /// Abandons attempts in progress and starts again at once, unless the session is stopped.
    pub(crate) fn start_over(&mut self, now: Instant) {
        let stopped = core::mem::replace(&mut self.stopped, true);
        let why = Notification::cease(cease::OTHER_CONFIGURATION_CHANGE);
        for conn in Conn::ALL {
            self.step(now, conn, Event::Stop, Cause::Send(why.clone()));
        }
        self.stopped = stopped;
        if !stopped && self.idle_hold_until.is_none() {
            self.stats.failures = 0;
            self.timers.clear();
            self.wake(now);
        }
    }

    fn stop(&mut self, now: Instant, notification: &Notification) {
        self.stopped = true;
        self.timers.clear();
        for conn in Conn::ALL {
            let notification = self.hardened(conn, notification.clone());
            self.step(now, conn, Event::Stop, Cause::Send(notification));
        }
    }

    fn leave(&mut self, now: Instant, notification: &Notification) {
        self.stopped = true;
        self.timers.clear();
        // RFC 4724 §4.2: without the N bit, any NOTIFICATION ends a helper's retention.
        let wordless = self.helper().is_some_and(|helper| !helper.notification);
        let established = self.established();
        for conn in Conn::ALL {
            let (event, cause) = if wordless && established == Some(conn) {
                (Event::StopForRestart, Cause::Plain)
            } else {
                (Event::Stop, Cause::Send(notification.clone()))
            };
            self.step(now, conn, event, cause);
        }
    }

    /// Returns the graceful restart capability of the established session's peer, if both sides
    /// have it.
    fn helper(&self) -> Option<&GracefulRestart> {
        self.config.graceful_restart.as_ref()?;
        self.params()?.peer_graceful.as_ref()
    }

    /// Returns the NOTIFICATION as a hard reset if the session is stopped for good and the peer
    /// would otherwise retain its routes. RFC 8538 §4. With both OPENs known, this applies before
    /// the peer's first KEEPALIVE is received: the peer may already be in Established.
    fn hardened(&self, conn: Conn, notification: Notification) -> Notification {
        let for_good = notification.code == code::CEASE && FOR_GOOD.contains(&notification.subcode);
        match for_good {
            true => self.hard(conn, notification),
            false => notification,
        }
    }

    /// Returns the NOTIFICATION as a hard reset if the peer would otherwise retain routes.
    fn hard(&self, conn: Conn, notification: Notification) -> Notification {
        let params = self.conn(conn).params.as_ref();
        let theirs = params.and_then(|params| params.peer_graceful.as_ref());
        let both = theirs.filter(|_| self.config.graceful_restart.is_some());
        if both.is_some_and(|theirs| theirs.notification) {
            Notification::hard_reset(&notification)
        } else {
            notification
        }
    }

    pub(crate) fn opened(
        &mut self,
        now: Instant,
        conn: Conn,
        local: SocketAddr,
        remote: SocketAddr,
    ) {
        if self.conn(conn).transport() == Transport::Open {
            debug_assert!(false, "a second transport was opened in the place of one");
            return;
        }
        let (connection, mut env) = self.parts(now, conn);
        connection.opened(local, remote, &mut env);
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

    /// Handles a lost transport that was known to be in `stage`; an outdated report is ignored.
    fn lost(&mut self, now: Instant, conn: Conn, stage: Transport) {
        if self.conn(conn).transport() == stage {
            self.conn_mut(conn).lost();
            if stage == Transport::Open {
                let state = self.conn(conn).state();
                self.unopened(conn, state, &DownReason::TransportLost);
            }
            self.step(now, conn, Event::TcpFailed, Cause::Plain);
        }
    }

    fn rejected(&mut self, now: Instant, notification: Notification) {
        let Some((conn, _)) = self.established else {
            return;
        };
        let limit = notification.code == code::CEASE;
        let notification = self.hardened(conn, notification);
        let event = if limit {
            Event::AutomaticStop
        } else {
            Event::UpdateError
        };
        self.step(now, conn, event, Cause::Send(notification));
    }

    fn timeout(&mut self, now: Instant) {
        if self.timers.take_due(now).is_some() {
            self.idle_hold_until = None;
            self.wake(now);
        }
        for conn in Conn::ALL {
            while let Some(timer) = self.conn_mut(conn).take_due(now) {
                let (event, cause) = match timer {
                    // draft-ietf-idr-bgp-bfd-strict-mode §8.5.3, §9; RFC 9384 §3
                    Timer::Handshake if self.conn(conn).awaits_path() => (
                        Event::HoldExpires,
                        Cause::Send(Notification::cease(cease::BFD_DOWN)),
                    ),
                    _ => expiry(timer),
                };
                self.step(now, conn, event, cause);
            }
        }
        while let Some(timer) = self.held.take_due(now) {
            self.held_timer(now, timer);
        }
    }

    /// Starts the idle machines, unless a connection is about to become the session.
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

    pub(crate) fn admission(&mut self, now: Instant) -> Result<Conn, Notification> {
        if self.stopped || self.idle_hold_until.is_some_and(|until| now < until) {
            return Err(Notification::cease(cease::CONNECTION_REJECTED));
        }
        if self.is_taken() {
            return self.make_room_to_hold();
        }
        if self.timers.deadline(Timer::IdleHold).is_some()
            && self.inbound.state() == State::Idle
            && self.stats.failures > INBOUND_FAILURES_MAX
            && !self.was_turned_away()
        {
            return Err(Notification::cease(cease::CONNECTION_REJECTED));
        }
        if self.inbound.transport() == Transport::Open {
            // It has no OPEN yet: the peer has abandoned it, or it is not the peer's.
            let cause = Cause::Send(collision());
            self.step_alone(now, Conn::Inbound, Event::CollisionDump, cause);
        }
        if self.inbound.state() == State::Idle {
            self.step(now, Conn::Inbound, Event::StartPassive, Cause::Plain);
        }
        if self.config.passive || self.outbound.state() != State::Idle {
            self.timers.clear(); // The idle hold has nothing left to start.
        }
        self.inbound.ends = None; // The addresses of the new connection follow with it.
        Ok(Conn::Inbound)
    }

    /// Returns whether the last attempt ended because the peer, in an idle hold of its own,
    /// rejected the connection. Then this side must accept connections: if both rejected each
    /// other's while in idle hold, no dial would ever succeed.
    fn was_turned_away(&self) -> bool {
        let reason = self.stats.last_error.as_ref().map(|(_, reason)| reason);
        let rejected = (code::CEASE, cease::CONNECTION_REJECTED);
        matches!(reason, Some(DownReason::Received(n)) if (n.code, n.subcode) == rejected)
    }
}

/// Subcodes of a Cease after which no peer should retain routes: RFC 8538 §4 leaves the choice to
/// the sender.
const FOR_GOOD: [u8; 3] = [
    cease::MAXIMUM_PREFIXES_REACHED,
    cease::ADMINISTRATIVE_SHUTDOWN,
    cease::PEER_DECONFIGURED,
];

/// Returns the event of a connection's timer and the NOTIFICATION for the peer.
fn expiry(timer: Timer) -> (Event, Cause) {
    match timer {
        Timer::ConnectRetry => (Event::ConnectRetryExpires, Cause::Plain),
        // RFC 4271 §8.2.2, event 10: a shorter "large value", and one that an OPEN does not stop.
        Timer::Hold | Timer::Handshake => (
            Event::HoldExpires,
            Cause::Send(Notification::hold_timer_expired()),
        ),
        Timer::Keepalive => (Event::KeepaliveExpires, Cause::Plain),
        Timer::DelayOpen => (Event::DelayOpenExpires, Cause::Plain),
        Timer::SendHold => (
            Event::SendHoldExpires,
            Cause::Send(Notification::send_hold_timer_expired()),
        ),
        // Timers of the session, not of a machine.
        Timer::IdleHold | Timer::Held | Timer::Probe => (Event::Start, Cause::Plain),
    }
}
