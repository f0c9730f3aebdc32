//! What an input does to a session: which events it is, and for which of the two machines.

use core::net::SocketAddr;

use bgp_proto::notification::{cease, code};
use bgp_proto::{GracefulRestart, Notification};

use crate::connection::{Cause, Transport};
use crate::held::collision;
use crate::limits::INBOUND_FAILURES_MAX;
use crate::table::Event;
use crate::timer::Timer;
use crate::{Conn, DownReason, Input, Instant, Output, Session, State};

impl Session {
    /// Turns an input into events.
    pub(crate) fn dispatch(&mut self, now: Instant, input: Input) {
        match input {
            Input::Start => self.start(now),
            Input::Stop(notification) => self.stop(now, &notification),
            Input::Leave(notification) => self.leave(now, &notification),
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
            Input::Limited { notification, rest } => {
                if self.established.is_some() {
                    self.barred_until = Some(now + rest);
                    self.rejected(now, notification);
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
        self.barred_until = None;
        self.timers.clear();
        self.wake(now);
    }

    /// Gives up attempts under way and begins anew at once, unless the session is to be down.
    pub(crate) fn start_over(&mut self, now: Instant) {
        let stopped = core::mem::replace(&mut self.stopped, true);
        let why = Notification::cease(cease::OTHER_CONFIGURATION_CHANGE);
        for conn in Conn::ALL {
            self.step(now, conn, Event::Stop, Cause::Send(why.clone()));
        }
        self.stopped = stopped;
        if !stopped && self.barred_until.is_none() {
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
        // RFC 4724 §4.2: to a helper that is not told of the N bit every NOTIFICATION is the end.
        let wordless = self.helper().is_some_and(|helper| !helper.notification);
        let established = self.established();
        for conn in Conn::ALL {
            let (event, cause) = if wordless && established == Some(conn) {
                (Event::Leave, Cause::Plain)
            } else {
                (Event::Stop, Cause::Send(notification.clone()))
            };
            self.step(now, conn, event, cause);
        }
    }

    /// What the peer of the established session says of graceful restart, if both sides do it.
    fn helper(&self) -> Option<&GracefulRestart> {
        self.config.graceful_restart.as_ref()?;
        self.params()?.peer_graceful.as_ref()
    }

    /// The NOTIFICATION as a hard reset if it is meant for good and the peer would otherwise wait
    /// for us to come back. RFC 8538 §4. Where both OPENs are known it may, although we have not heard
    /// its first KEEPALIVE yet: to it the session may be up.
    fn hardened(&self, conn: Conn, notification: Notification) -> Notification {
        let for_good = notification.code == code::CEASE && FOR_GOOD.contains(&notification.subcode);
        let params = self.conn(conn).params.as_ref();
        let theirs = params.and_then(|params| params.peer_graceful.as_ref());
        let both = theirs.filter(|_| self.config.graceful_restart.is_some());
        if for_good && both.is_some_and(|theirs| theirs.notification) {
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

    /// A transport is gone that we thought to be in `stage`; a late word of it is ignored.
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
            self.barred_until = None;
            self.wake(now);
        }
        for conn in Conn::ALL {
            while let Some(timer) = self.conn_mut(conn).take_due(now) {
                let (event, cause) = expiry(timer);
                self.step(now, conn, event, cause);
            }
        }
        while let Some(timer) = self.held.take_due(now) {
            self.held_timer(now, timer);
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

    pub(crate) fn admission(&mut self, now: Instant) -> Result<Conn, Notification> {
        if self.stopped || self.barred_until.is_some_and(|until| now < until) {
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
            // It has brought no OPEN: the peer has given it up, or it is not the peer's.
            let cause = Cause::Send(collision());
            self.step_alone(now, Conn::Inbound, Event::CollisionDump, cause);
        }
        if self.inbound.state() == State::Idle {
            self.step(now, Conn::Inbound, Event::StartPassive, Cause::Plain);
        }
        if self.config.passive || self.outbound.state() != State::Idle {
            self.timers.clear(); // Nothing is left for the idle hold to start.
        }
        self.inbound.ends = None; // Those of the new connection come with it.
        Ok(Conn::Inbound)
    }

    /// Whether the last attempt ended because the peer, in an idle hold of its own, wanted no
    /// connection. Then it is for us to listen: if both turned the other away while they wait, each
    /// would dial only into the other's wait.
    fn was_turned_away(&self) -> bool {
        let reason = self.stats.last_error.as_ref().map(|(_, reason)| reason);
        let rejected = (code::CEASE, cease::CONNECTION_REJECTED);
        matches!(reason, Some(DownReason::Received(n)) if (n.code, n.subcode) == rejected)
    }
}

/// The reasons for a Cease after which no peer should wait for us to come back: RFC 8538 §4 leaves
/// the choice to us.
const FOR_GOOD: [u8; 3] = [
    cease::MAXIMUM_PREFIXES_REACHED,
    cease::ADMINISTRATIVE_SHUTDOWN,
    cease::PEER_DECONFIGURED,
];

/// The event of a connection's timer and what the peer is told.
fn expiry(timer: Timer) -> (Event, Cause) {
    match timer {
        Timer::ConnectRetry => (Event::ConnectRetryExpires, Cause::Plain),
        // RFC 4271 §8.2.2, event 10: a shorter "large value", and one that an OPEN does not end.
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
        // Not timers of a machine: the session takes them.
        Timer::IdleHold | Timer::Held | Timer::Probe => (Event::Start, Cause::Plain),
    }
}
