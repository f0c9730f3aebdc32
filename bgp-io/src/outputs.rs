//! Execution of the speaker's outputs: connects, closes, and events for the program.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};

use bgp_speaker::bgp_fsm::{self, Conn, Instant, State};
use bgp_speaker::bgp_proto::{Notification, notification::cease};
use bgp_speaker::rib::PeerId;
use bgp_speaker::{Input, Output};
use bytes::Bytes;
use tokio::net::TcpStream;

use crate::io::Entry;
use crate::limits::{LINGER, LINGERING_MAX};
use crate::linger::Lingering;
use crate::link::{Dial, Link, Stage};
use crate::sockets::{dialing, secure};
use crate::{Event, Io};

impl Io {
    /// Takes and executes all outputs of the speaker.
    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.speaker.poll_output() {
            match output {
                Output::Dial {
                    peer,
                    remote,
                    local,
                    ttl_security_hops,
                    password,
                } => {
                    self.dial(peer, remote, local, ttl_security_hops, password.as_deref());
                }
                Output::Secure {
                    peer,
                    ttl_security_hops,
                    password,
                } => self.secure(peer, ttl_security_hops, password.as_deref()),
                Output::Close { peer, conn } => self.close(peer, conn),
                Output::Promote(peer) => self.promote(peer),
                Output::Probe { peer, conn, begins } => self.probe(peer, conn, begins),
                Output::Gone(peer) => {
                    self.trace.gone(peer);
                    self.events.push(Event::Gone(peer));
                }
                Output::Track(track) => self.events.push(Event::Track(track)),
                Output::Event(event) => self.events.push(Event::Speaker(event)),
            }
        }
    }

    fn dial(
        &mut self,
        peer: PeerId,
        remote: SocketAddr,
        local: Option<IpAddr>,
        ttl_security_hops: Option<u8>,
        password: Option<&str>,
    ) {
        match dialing(remote, local, ttl_security_hops, password) {
            Ok(socket) => {
                let dial: Dial = Box::pin(async move { socket.connect(remote).await });
                self.open(peer, Conn::Outbound, Stage::Dialing(dial));
            }
            Err(error) => {
                self.events.push(Event::DialFailed {
                    peer,
                    remote,
                    error,
                });
                let failed = bgp_fsm::Input::Failed(Conn::Outbound);
                // The caller's loop takes the outputs that follow.
                self.speaker
                    .handle(self.clock.now(), Input::Session(peer, failed));
            }
        }
    }

    /// Changes the security of a peer's open transports. If that fails the session ends: otherwise
    /// it would continue with less security than configured.
    fn secure(&mut self, peer: PeerId, ttl_security_hops: Option<u8>, password: Option<&str>) {
        for conn in Conn::PLACES {
            let token = self.places.get(&(peer, conn)).copied();
            let Some(Entry::Link(link)) = token.and_then(|token| self.entries.get(token)) else {
                continue;
            };
            let Stage::Open(stream) = &link.stage else {
                continue;
            };
            let Ok(remote) = stream.peer_addr() else {
                continue; // It is closed already; the next read will find that.
            };
            if let Err(error) = secure(stream, remote, ttl_security_hops, password) {
                self.events.push(Event::OptionFailed { remote, error });
                let why = Notification::cease(cease::OTHER_CONFIGURATION_CHANGE);
                let rejected = bgp_fsm::Input::Rejected(why);
                // The caller's loop takes the outputs that follow.
                self.speaker
                    .handle(self.clock.now(), Input::Session(peer, rejected));
            }
        }
    }

    /// Closes a transport: the session's pending octets are written first.
    fn close(&mut self, peer: PeerId, conn: Conn) {
        let mut words = Vec::new();
        self.speaker.fill(peer, conn, &mut words, usize::MAX);
        let octets = words.iter().map(Bytes::len).sum();
        self.speaker.sent(peer, conn, octets);
        match self.remove(peer, conn).map(|link| link.stage) {
            Some(Stage::Open(stream)) if octets > 0 => {
                if self.trace.is_on() {
                    self.trace_sent(peer, conn, &words, octets);
                    self.trace.forget(peer, conn);
                }
                self.linger(stream, words);
            }
            Some(Stage::Dialing(_)) => self.dial_timed_out(peer),
            _ => {}
        }
    }

    /// Reports a connect without an answer until the session tries again, but not one that the
    /// session gave up for another reason.
    fn dial_timed_out(&mut self, peer: PeerId) {
        let Some(view) = self.speaker.peer(peer) else {
            return;
        };
        if view.session.state() == State::Connect {
            let remote = SocketAddr::new(view.config.remote, view.config.port);
            self.events.push(Event::DialFailed {
                peer,
                remote,
                error: ErrorKind::TimedOut.into(),
            });
        }
    }

    /// Removes a transport.
    pub(crate) fn remove(&mut self, peer: PeerId, conn: Conn) -> Option<Link> {
        self.trace.forget(peer, conn);
        let token = self.places.remove(&(peer, conn))?;
        match self.entries.try_remove(token)? {
            Entry::Link(link) => Some(link),
            Entry::Lingering(_) => None,
        }
    }

    /// Lets a connection linger until the peer has read its last octets.
    pub(crate) fn linger(&mut self, stream: TcpStream, words: impl IntoIterator<Item = Bytes>) {
        let (token, signal) = self.vacancy();
        self.serial += 1;
        let mut lingering = Lingering::new(stream, words, signal, self.serial);
        // Usually all octets are written at once; if too many connections linger, that must
        // suffice.
        let done = lingering.poll(&mut self.scratch).is_ready();
        if done || self.lingering >= LINGERING_MAX {
            return;
        }
        self.lingering += 1;
        let at = self.entries.insert(Entry::Lingering(lingering));
        debug_assert_eq!(at, token);
        self.deadlines
            .push_back((self.clock.now() + LINGER, token, self.serial));
    }

    /// Closes connections that have lingered long enough.
    pub(crate) fn expire_lingering(&mut self, now: Instant) {
        while let Some((at, token, serial)) = self.deadlines.front().copied() {
            let there = matches!(
                self.entries.get(token),
                Some(Entry::Lingering(lingering)) if lingering.serial == serial
            );
            if there && at > now {
                return;
            }
            if there {
                self.entries.remove(token);
                self.lingering -= 1;
            }
            self.deadlines.pop_front();
        }
    }
}
