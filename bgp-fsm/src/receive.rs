//! Events of received messages, and the choice between two connections.

use bgp_proto::notification::{code, header, open};
use bgp_proto::{Capability, Frame, MessageKind, Notification, Open, RouteRefresh, SessionParams};
use bytes::Bytes;

use crate::connection::{Cause, Strict, Transport};
use crate::negotiate::negotiate;
use crate::table::Event;
use crate::timer::Timer;
use crate::{Conn, Instant, Session, State};

impl Session {
    /// Handles a message of a connection; one received after the connection was closed is ignored.
    pub(crate) fn receive(&mut self, now: Instant, conn: Conn, frame: Frame) {
        if self.conn(conn).transport() != Transport::Open {
            return;
        }
        self.stats.received.add(frame.kind.0);
        match frame.kind {
            MessageKind::Open => self.receive_open(now, conn, &frame.body),
            MessageKind::Update => self.step(now, conn, Event::Update, Cause::Update(frame.body)),
            MessageKind::Keepalive => self.receive_keepalive(now, conn),
            MessageKind::Notification => self.receive_notification(now, conn, &frame.body),
            MessageKind::RouteRefresh => self.receive_refresh(now, conn, &frame.body),
            MessageKind(kind) => {
                // RFC 4271 §6.1: the data of this error is the type octet.
                let data = Bytes::copy_from_slice(&[kind]);
                let notification = Notification::message_header(header::BAD_MESSAGE_TYPE, data);
                self.step(now, conn, Event::HeaderError, Cause::Send(notification));
            }
        }
    }

    fn receive_keepalive(&mut self, now: Instant, conn: Conn) {
        let connection = self.conn_mut(conn);
        let event = match connection.awaits_path() {
            true => {
                connection.strict = Some(Strict::PeerReady);
                Event::KeepaliveStrict
            }
            false => Event::Keepalive,
        };
        self.step(now, conn, event, Cause::Plain);
    }

    fn receive_open(&mut self, now: Instant, conn: Conn, body: &[u8]) {
        let event = match self.conn(conn).state() {
            State::OpenSent => Event::Open,
            State::Connect | State::Active if self.opens_late(conn) => Event::OpenDelayed,
            // An unexpected OPEN need not be parsed.
            _ => return self.step(now, conn, Event::Open, Cause::Plain),
        };
        match Open::parse(body) {
            Ok(theirs) => self.settle_open(now, conn, event, theirs),
            Err(notification) => {
                self.step(now, conn, Event::OpenError, Cause::Send(notification));
            }
        }
    }

    /// Handles the OPEN that was received while the connection was held.
    pub(crate) fn take_open(&mut self, now: Instant, conn: Conn, theirs: Open) {
        let event = match self.conn(conn).state() {
            State::OpenSent => Event::Open,
            State::Active if self.opens_late(conn) => Event::OpenDelayed,
            _ => return, // It is already closed.
        };
        self.settle_open(now, conn, event, theirs);
    }

    fn settle_open(&mut self, now: Instant, conn: Conn, event: Event, theirs: Open) {
        match negotiate(self.config(), &theirs) {
            Err(notification) => {
                self.step(now, conn, Event::OpenError, Cause::Send(notification));
            }
            Ok(params) => {
                if self.wins_collision(now, conn, &params) {
                    let event = self.strict_event(conn, event, &theirs);
                    self.settle(conn, theirs, params);
                    self.step(now, conn, event, Cause::Plain);
                }
            }
        }
    }

    /// Returns the event of a valid OPEN: another one if the connection must wait for the path to the peer
    /// (draft-ietf-idr-bgp-bfd-strict-mode §8.5.5).
    fn strict_event(&mut self, conn: Conn, event: Event, theirs: &Open) -> Event {
        let is_strict =
            self.config().bfd_strict && theirs.capabilities.contains(&Capability::BfdStrictMode);
        let path_is_up = self.path_is_up;
        let connection = self.conn_mut(conn);
        if !is_strict {
            return event;
        }
        if path_is_up {
            connection.strict = Some(Strict::Passed);
            return event;
        }
        connection.strict = Some(Strict::Waits);
        match event {
            Event::OpenDelayed => Event::OpenDelayedStrict,
            _ => Event::OpenStrict,
        }
    }

    /// Returns whether the local OPEN still waits for the peer's.
    fn opens_late(&self, conn: Conn) -> bool {
        self.conn(conn)
            .timers()
            .deadline(Timer::DelayOpen)
            .is_some()
    }

    /// Closes this connection or the other if there are two; returns whether this one stays. RFC
    /// 4271 §6.8, RFC 6286 §2.3
    fn wins_collision(&mut self, now: Instant, conn: Conn, params: &SessionParams) -> bool {
        let other = self.conn(conn.other());
        let loser = match other.state() {
            State::Established => conn,
            // RFC 4271 §6.8: only connections with the same speaker collide. Of two speakers at one
            // address, the one at the dialed port has precedence.
            State::OpenConfirm if !other.params.as_ref().is_some_and(|p| is_same(p, params)) => {
                Conn::Inbound
            }
            State::OpenConfirm => kept(params).other(),
            // The other connection's OPEN has not been received yet; when it is, this connection is
            // the other one.
            _ => return true,
        };
        self.dump(now, loser);
        loser != conn
    }

    fn receive_notification(&mut self, now: Instant, conn: Conn, body: &[u8]) {
        // One that is too short still ends the session.
        let notification = Notification::parse(body).unwrap_or(Notification::new(0, 0));
        let version = (code::OPEN_MESSAGE, open::UNSUPPORTED_VERSION_NUMBER);
        let event = if (notification.code, notification.subcode) == version {
            Event::NotificationVersion
        } else {
            Event::Notification
        };
        self.step(now, conn, event, Cause::Received(notification));
    }

    fn receive_refresh(&mut self, now: Instant, conn: Conn, body: &[u8]) {
        match RouteRefresh::parse(body) {
            Ok(refresh) => self.step(now, conn, Event::Refresh, Cause::Refresh(refresh)),
            // RFC 7313 §5
            Err(notification) if self.conn(conn).state() == State::Established => {
                self.step(now, conn, Event::UpdateError, Cause::Send(notification));
            }
            Err(_) => self.step(now, conn, Event::Refresh, Cause::Plain),
        }
    }
}

/// Returns whether two connections are with the same speaker.
pub(crate) fn is_same(one: &SessionParams, other: &SessionParams) -> bool {
    (one.peer_asn, one.peer_id) == (other.peer_asn, other.peer_id)
}

/// Returns which of two colliding connections both sides keep: the one dialed by the speaker with
/// the higher identifier, and of equal ones by that with the higher AS number. RFC 4271 §6.8, RFC
/// 6286 §2.3
fn kept(params: &SessionParams) -> Conn {
    let ours = (params.local_id, params.local_asn);
    if ours > (params.peer_id, params.peer_asn) {
        Conn::Outbound
    } else {
        Conn::Inbound
    }
}
