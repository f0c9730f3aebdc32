//! Connections that the peer opens while another one is in use.
//!
//! Such a connection is held: it waits beside the two machines, and only its OPEN is read. If the
//! session is Established and the OPEN is that of the same speaker, the established connection is
//! probed with KEEPALIVEs. It is closed only if its transport is found dead. If an older inbound connection still waits
//! for the path in strict mode, such an OPEN replaces it: there is no session to lose. A bare connection, or
//! an OPEN of another speaker, never ends a session. This departs from RFC 4724 §5; the reasons are
//! in `docs/design/session.md`.

use core::net::SocketAddr;

use bgp_proto::notification::{cease, fsm};
use bgp_proto::{Frame, MessageKind, Notification, Open, SessionParams};

use crate::connection::{Cause, Transport};
use crate::limits::{HELD_TIME, PROBE_INTERVAL, PROBE_TIME, PROBE_UNANSWERED_MIN};
use crate::negotiate::negotiate;
use crate::receive::is_same;
use crate::session::Probe;
use crate::table::Event;
use crate::timer::Timer;
use crate::{Conn, HeldEnd, Input, Instant, Output, Probed, Session, State};

impl Session {
    /// Returns whether another connection of the peer has to wait: the session is Established, or
    /// the peer's older connection has delivered its OPEN.
    pub(crate) fn is_taken(&self) -> bool {
        self.established.is_some() || self.inbound.state() == State::OpenConfirm
    }

    /// Makes room for a connection to be held. A held connection without an OPEN is replaced, so
    /// that bare connections do not keep the peer out; one with an OPEN stays.
    pub(crate) fn make_room_to_hold(&mut self) -> Result<Conn, Notification> {
        if self.held.open.is_some() {
            return Err(collision());
        }
        if self.held.transport() == Transport::Open {
            self.refuse_held(Some(&collision()), HeldEnd::Replaced);
        }
        Ok(Conn::Held)
    }

    /// Handles an input of the held connection.
    pub(crate) fn held_input(&mut self, now: Instant, input: Input) {
        let open = self.held.transport() == Transport::Open;
        match input {
            Input::Opened { local, remote, .. } => {
                debug_assert!(!open, "a second transport was opened in the place of one");
                self.hold(now, local, remote);
            }
            Input::Closed(_) if open => {
                self.held.lost();
                self.end_held(HeldEnd::Closed);
            }
            Input::Received { frame, .. } if open => self.receive_held(now, &frame),
            Input::FrameError { notification, .. } if open => {
                self.refuse_held(Some(&notification), HeldEnd::Invalid(notification.clone()));
            }
            _ => {}
        }
    }

    fn hold(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) {
        let (held, mut env) = self.parts(now, Conn::Held);
        held.opened(local, remote, &mut env);
        // The handshake timer does not run while it waits.
        held.stop_timers();
        held.set_timer(Timer::Held, Some(now + HELD_TIME));
        self.stats.held += 1;
    }

    /// Handles the first message of the held connection, which must be a valid OPEN.
    fn receive_held(&mut self, now: Instant, frame: &Frame) {
        if self.held.open.is_some() {
            return; // The driver reads no further messages of it: see Session::reads.
        }
        self.stats.received.add(frame.kind.0);
        let unexpected = Notification::fsm(fsm::UNEXPECTED_IN_OPEN_SENT);
        let refused = match frame.kind {
            MessageKind::Open => match self.check_held(&frame.body) {
                Ok((open, params)) => return self.keep_open(now, open, &params),
                Err(notification) => notification,
            },
            // RFC 4271 §6.4: a NOTIFICATION is never answered.
            MessageKind::Notification => return self.refuse_held(None, HeldEnd::Closed),
            _ => unexpected,
        };
        self.refuse_held(Some(&refused), HeldEnd::Invalid(refused.clone()));
    }

    /// Returns the OPEN of the held connection, if it is valid and from the session's speaker. The
    /// capabilities may differ: the peer may come back with another configuration.
    fn check_held(&self, body: &[u8]) -> Result<(Open, SessionParams), Notification> {
        let theirs = Open::parse(body)?;
        let params = negotiate(self.config(), &theirs)?;
        match self.params() {
            Some(ours) if !is_same(ours, &params) => Err(collision()),
            _ => Ok((theirs, params)),
        }
    }

    fn keep_open(&mut self, now: Instant, open: Open, params: &SessionParams) {
        self.held.open = Some(open.into());
        let older = self.inbound.params.as_deref();
        if self.inbound.awaits_path() && older.is_some_and(|older| is_same(older, params)) {
            // The peer has restarted or abandoned it: BGP sends nothing on it that would find it dead.
            let cause = Cause::Send(collision());
            self.step_alone(now, Conn::Inbound, Event::CollisionDump, cause);
        }
        if let Some(conn) = self.established() {
            let (began, sent_at) = (now, None);
            self.probe = Some(Probe { began, sent_at });
            // The driver inspects the transport before the first KEEPALIVE is written.
            self.outputs.push_back(Output::Probe { conn, begins: true });
            self.send_probe(now, conn, began);
        }
    }

    /// Sends a KEEPALIVE over the established connection, unless other octets are waiting.
    fn send_probe(&mut self, now: Instant, conn: Conn, began: Instant) {
        let connection = self.conn_mut(conn);
        if now - began < PROBE_TIME && connection.outbox.octets() == 0 {
            connection.send_keepalive();
        }
        self.held
            .set_timer(Timer::Probe, Some(now + PROBE_INTERVAL));
    }

    /// Handles an expired timer of the held connection.
    pub(crate) fn held_timer(&mut self, now: Instant, timer: Timer) {
        match (timer, self.probe, self.established()) {
            (Timer::Held, ..) => self.refuse_held(Some(&collision()), HeldEnd::Expired),
            (Timer::Probe, Some(probe), Some(conn)) => {
                self.send_probe(now, conn, probe.began);
                let begins = false;
                self.outputs.push_back(Output::Probe { conn, begins });
            }
            _ => {}
        }
    }

    /// Handles the activity of the established connection's transport since the probe began.
    pub(crate) fn probed(&mut self, now: Instant, probed: Probed) {
        let (Some(probe), Some((conn, _))) = (&mut self.probe, self.established) else {
            return;
        };
        match probed {
            Probed::Answered => self.refuse_held(Some(&collision()), HeldEnd::OlderAlive),
            // Nothing could be sent yet: silence proves nothing.
            Probed::Silent { sent: 0, .. } => {}
            Probed::Silent { unanswered, .. } => {
                let sent_at = *probe.sent_at.get_or_insert(now);
                if now - sent_at >= PROBE_TIME && unanswered >= PROBE_UNANSWERED_MIN {
                    self.step(now, conn, Event::Reopened, Cause::Plain);
                }
            }
        }
    }

    /// Moves the held connection to the place that has become free, or rejects it.
    pub(crate) fn settle_held(&mut self, now: Instant) {
        if self.held.transport() != Transport::Open || self.is_taken() {
            return;
        }
        match self.admission(now) {
            Ok(_) => self.promote(),
            Err(notification) => {
                self.refuse_held(Some(&notification), HeldEnd::Invalid(notification.clone()));
            }
        }
    }

    /// Makes the held connection the inbound one once the driver has moved it: by then the
    /// remaining octets of the older one are written.
    fn promote(&mut self) {
        let open = self.held.open.take();
        self.held.lost();
        self.end_held(HeldEnd::Promoted);
        self.held.open = open;
        self.moving = true;
        self.outputs.push_back(Output::Promote);
    }

    /// Handles the promotion of the held connection: its OPEN is processed at once.
    pub(crate) fn promoted(&mut self, now: Instant) {
        if !core::mem::take(&mut self.moving) {
            return;
        }
        let (ends, open) = (self.held.ends.take(), self.held.open.take());
        if let Some((local, remote)) = ends {
            self.opened(now, Conn::Inbound, local, remote);
        }
        if let Some(open) = open {
            self.take_open(now, Conn::Inbound, *open);
        }
    }

    /// Closes the held connection.
    pub(crate) fn refuse_held(&mut self, notification: Option<&Notification>, end: HeldEnd) {
        if self.held.transport() == Transport::Open {
            self.held.give_up(notification, &mut self.outputs);
            self.end_held(end);
        }
    }

    fn end_held(&mut self, end: HeldEnd) {
        self.probe = None;
        self.held.open = None;
        self.held.stop_timers();
        self.outputs.push_back(Output::HeldEnded(end));
    }
}

/// RFC 4271 §6.8, RFC 4486 §4
pub(crate) fn collision() -> Notification {
    Notification::cease(cease::CONNECTION_COLLISION_RESOLUTION)
}
