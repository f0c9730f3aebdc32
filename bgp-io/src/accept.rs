//! Incoming connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};

use bgp_speaker::bgp_fsm::{self, Conn, Instant};
use bgp_speaker::rib::PeerId;
use bgp_speaker::{HandshakeFailure, Input, Refusal, SpeakerConfig};
use bytes::BytesMut;
use tokio::net::TcpStream;

use crate::dial_keys::DialKeys;
use crate::filter::all_sources;
use crate::gtsm;
use crate::io::Entry;
use crate::limits::{
    ACCEPT_PAUSE, ANSWER_REFUSAL_EVERY, ANSWERED_REFUSALS_AT_ONCE, BACKLOG, TURN_ACCEPTS_MAX,
    WAITING_HANDSHAKES_MAX,
};
use crate::link::{Link, Stage};
use crate::listen_socket::{Insecure, ListenSocket, Required};
use crate::sockets::accept_now;
use crate::sockopt::dropped_segments;
use crate::{Event, Io, PeerScope};

impl Io {
    /// Accepts the connections that wait on the listening sockets.
    pub(crate) fn accept_ready(&mut self, cx: &mut Context<'_>) -> bool {
        // The others wait in the kernel, in their order. The next turn tries again.
        let is_crowded = self.handshakes.len() >= WAITING_HANDSHAKES_MAX;
        if self.accept_pause.is_some() || is_crowded {
            return false;
        }
        let mut worked = false;
        for at in 0..self.listeners.len() {
            self.take_backlog(at);
            for _ in 0..TURN_ACCEPTS_MAX {
                let Some(listener) = self.listeners.get(at) else {
                    break;
                };
                let listening = listener.address;
                match listener.socket.poll_accept(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Ok((stream, remote))) => self.accepted(at, stream, remote),
                    Poll::Ready(Err(error)) => self.accept_failed(listening, error),
                }
                worked = true;
            }
        }
        worked
    }

    /// Accepts all connections that wait on a listening socket with new keys or a new filter: they
    /// may have been opened before these were set. All later connections were checked against them.
    pub(crate) fn take_backlog(&mut self, at: usize) {
        let listener = self.listeners.get(at);
        let is_settled =
            |listener: &ListenSocket| listener.keys.fresh.is_empty() && !listener.guard.fresh;
        if listener.is_none_or(is_settled) {
            return;
        }
        // If it fails the keys stay marked as new: the rest is accepted after the pause.
        if self.take_waiting(at)
            && let Some(listener) = self.listeners.get_mut(at)
        {
            listener.keys.fresh.clear();
            listener.guard.fresh = false;
        }
    }

    /// Accepts all connections that wait on a listening socket; returns false if the machine lacks
    /// the resources.
    pub(crate) fn take_waiting(&mut self, at: usize) -> bool {
        for _ in 0..=BACKLOG {
            let Some(listener) = self.listeners.get(at) else {
                break;
            };
            let listening = listener.address;
            match accept_now(&listener.socket) {
                Ok((stream, remote)) => self.accepted(at, stream, remote),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.accept_failed(listening, error);
                    return false;
                }
            }
        }
        true
    }

    fn accept_failed(&mut self, local: SocketAddr, error: io::Error) {
        // The peer closed the connection before it was accepted.
        if error.kind() != io::ErrorKind::ConnectionAborted {
            self.accept_pause = Some(self.clock.now() + ACCEPT_PAUSE);
            self.events.push(Event::AcceptFailed { local, error });
        }
    }

    fn accepted(&mut self, at: usize, stream: TcpStream, remote: SocketAddr) {
        let Some(listener) = self.listeners.get(at) else {
            return;
        };
        let local = stream.local_addr().unwrap_or(listener.address);
        // Only connections with the configured security reach the session.
        if let Some(required) = required(self.speaker.config(), remote.ip())
            && let Err(why) = listener.secure(&stream, remote, required)
        {
            return self.insecure(&stream, local, remote, why);
        }
        let verdict = self.speaker.accept(self.clock.now(), local, remote);
        // The old connection is closed before the new one takes its place.
        self.drain();
        match verdict {
            Ok((peer, conn)) => self.admit(stream, (peer, conn), local, remote),
            Err(refusal) => self.refuse(stream, local, remote, refusal),
        }
    }

    /// Closes a connection that is not secure, without a NOTIFICATION.
    fn insecure(
        &mut self,
        stream: &TcpStream,
        local: SocketAddr,
        remote: SocketAddr,
        why: Insecure,
    ) {
        why.reset_if_far(stream);
        match why {
            Insecure::Unsigned => {
                self.events.push(Event::Unsigned { local, remote });
                self.failed(remote, HandshakeFailure::Unsigned);
            }
            Insecure::Option(error) => self.events.push(Event::OptionFailed { remote, error }),
            Insecure::TooFar(why) => {
                self.events.push(Event::TooFar { local, remote, why });
                self.failed(remote, why.failure());
            }
        }
    }

    /// Makes the speaker count a connection that does not reach a session.
    fn failed(&mut self, remote: SocketAddr, failure: HandshakeFailure) {
        self.speaker
            .count_failure(self.clock.now(), remote.ip(), failure);
        self.drain();
    }

    fn admit(
        &mut self,
        stream: TcpStream,
        (peer, conn): (PeerId, Conn),
        local: SocketAddr,
        remote: SocketAddr,
    ) {
        self.open(peer, conn, Stage::Open(stream), None);
        let opened = bgp_fsm::Input::Opened {
            conn,
            local,
            remote,
        };
        self.handle(Input::Session(peer, opened));
    }

    fn refuse(
        &mut self,
        stream: TcpStream,
        local: SocketAddr,
        remote: SocketAddr,
        refusal: Refusal,
    ) {
        self.count_stranger(&refusal);
        if self.may_answer() {
            gtsm::release(&stream);
            let mut words = BytesMut::new();
            refusal.notification().encode(&mut words);
            self.linger(stream, [words.freeze()]);
        }
        self.events.push(Event::Refused {
            local,
            remote,
            refusal,
        });
    }

    /// Counts a refused connection. In a flood of them, has the kernel drop the SYNs of strangers.
    fn count_stranger(&mut self, refusal: &Refusal) {
        let now = self.clock.now();
        let is_stranger = matches!(refusal, Refusal::Unknown);
        if !is_stranger || self.strangers.are_dropped() || !self.strangers.count(now) {
            return;
        }
        // Without the filter, each connection is accepted and refused.
        if self.refuse_strangers() {
            self.strangers.begin(now, dropped(&self.listeners));
            self.events.push(Event::StrangersDropped);
        } else {
            self.strangers.failed(now);
        }
    }

    /// Has all listening sockets drop the SYNs of strangers; returns whether any does.
    pub(crate) fn refuse_strangers(&mut self) -> bool {
        let neighbors = all_sources(self.speaker.config());
        let mut refuses = false;
        for listener in &mut self.listeners {
            let ipv4 = listener.address.is_ipv4();
            refuses |= (listener.guard).refuse_strangers(&listener.socket, ipv4, &neighbors);
        }
        refuses
    }

    /// Checks whether a flood of strangers continues.
    pub(crate) fn look_at_strangers(&mut self, now: Instant) {
        if self.strangers.look(now, dropped(&self.listeners)) {
            self.admit_strangers();
        }
    }

    /// Has strangers accepted, and refused with a NOTIFICATION, again.
    pub(crate) fn admit_strangers(&mut self) {
        let Some(dropped) = self.strangers.end() else {
            return;
        };
        for listener in &mut self.listeners {
            listener.guard.admit_strangers(&listener.socket);
        }
        self.events.push(Event::StrangersAdmitted { dropped });
    }

    /// Returns whether one more refused connection gets a NOTIFICATION.
    fn may_answer(&mut self) -> bool {
        let now = self.clock.now();
        let until = self.answered_until.max(now);
        let may = until - now < ANSWER_REFUSAL_EVERY * ANSWERED_REFUSALS_AT_ONCE;
        if may {
            self.answered_until = until + ANSWER_REFUSAL_EVERY;
        }
        may
    }

    /// Stores a new transport; `keys`: those of one that this side dials.
    pub(crate) fn open(&mut self, peer: PeerId, conn: Conn, stage: Stage, keys: Option<DialKeys>) {
        if keys.as_ref().is_some_and(DialKeys::are_two) {
            self.watch_keys();
        }
        let (token, signal) = self.vacancy();
        let mut link = Link::new(peer, conn, stage, signal);
        link.dial_keys = keys.map(Box::new);
        link.wake();
        let at = self.entries.insert(Entry::Link(link));
        debug_assert_eq!(at, token);
        if let Some(old) = self.places.insert((peer, conn), token) {
            debug_assert!(false, "a transport takes the place of another");
            self.entries.try_remove(old);
        }
    }
}

/// Returns how many segments the kernel has dropped at listening sockets.
fn dropped(listeners: &[ListenSocket]) -> u64 {
    let each = listeners.iter().map(|one| dropped_segments(&one.socket));
    each.map(|dropped| u64::from(dropped.unwrap_or(0))).sum()
}

/// Returns the requirements for connections from an address; none for an address that is not
/// configured.
fn required(config: &SpeakerConfig, remote: IpAddr) -> Option<Required<'_>> {
    let neighbor = config.peers.iter().find(|peer| peer.remote == remote);
    let range = config.range_of(remote).map(|(_, range)| range);
    let peer = neighbor.or_else(|| range.map(|range| &range.template))?;
    Some(Required {
        password: peer.password.as_ref(),
        ttl_security_hops: peer.ttl_security_hops,
        range: range.map(|range| PeerScope::range(range.prefix)),
    })
}
