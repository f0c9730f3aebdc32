//! Execution of the speaker's outputs: connects, closes, and events for the program.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use bgp_speaker::bgp_fsm::{self, Conn, Instant, State};
use bgp_speaker::bgp_proto::{Notification, notification::cease};
use bgp_speaker::rib::PeerId;
use bgp_speaker::{Input, Output, Password};
use bytes::Bytes;
use tokio::net::TcpStream;

use crate::dial_keys::{DialKeys, Dialing};
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
                    second_password,
                } => {
                    let dialing = Dialing {
                        remote,
                        local,
                        ttl_security_hops,
                        second: second_password,
                        retry: self.connect_retry(peer),
                    };
                    self.dial(peer, dialing, password);
                }
                Output::Secure {
                    peer,
                    ttl_security_hops,
                    password,
                    second_password,
                } => self.secure(
                    peer,
                    ttl_security_hops,
                    (password.as_ref(), second_password.as_ref()),
                ),
                Output::Close { peer, conn } => self.close(peer, conn),
                Output::Promote(peer) => self.promote(peer),
                Output::Probe { peer, conn, begins } => self.probe(peer, conn, begins),
                Output::PeerRemoved(peer) => {
                    self.trace.gone(peer);
                    self.events.push(Event::PeerRemoved(peer));
                }
                Output::Track(track) => self.events.push(Event::Track(track)),
                Output::Event(event) => {
                    if let bgp_speaker::Event::Up { peer, params, .. } = &event {
                        self.negotiated(*peer, params.hold_time_s);
                    }
                    self.events.push(Event::Speaker(event));
                }
            }
        }
    }

    fn dial(&mut self, peer: PeerId, to: Dialing, password: Option<Password>) {
        let remote = to.remote;
        match dialing(remote, to.local, to.ttl_security_hops, password.as_deref()) {
            Ok(socket) => {
                let keys = self.dial_keys(peer, password, to.second.clone());
                let dial: Dial = Box::pin(to.connect(socket));
                self.open(peer, Conn::Outbound, Stage::Dialing(dial), keys);
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

    fn connect_retry(&self, peer: PeerId) -> Duration {
        let config = self.speaker.peer_config(peer);
        Duration::from_secs(config.map_or(0, |config| config.session.connect_retry_s.into()))
    }

    /// Returns the keys of a connection to a peer; none without a password.
    fn dial_keys(
        &self,
        peer: PeerId,
        password: Option<Password>,
        second: Option<Password>,
    ) -> Option<DialKeys> {
        let password = password?;
        let view = self.speaker.peer(peer)?;
        let configured = view.config.session.hold_time_s;
        let hold_time_s = view.params.map_or(configured, |params| params.hold_time_s);
        let now = self.clock.now();
        Some(DialKeys::new(password, second, hold_time_s, now))
    }

    /// Applies the hold time of an established session to the connection that this side dialed.
    fn negotiated(&mut self, peer: PeerId, hold_time_s: u16) {
        let token = self.places.get(&(peer, Conn::Outbound)).copied();
        if let Some(link) = token.and_then(|token| self.link(token)) {
            link.set_hold_time(hold_time_s);
        }
    }

    /// Changes the security of a peer's open transports. If that fails the session ends: otherwise
    /// it would continue with less security than configured.
    fn secure(
        &mut self,
        peer: PeerId,
        ttl_security_hops: Option<u8>,
        (password, second): (Option<&Password>, Option<&Password>),
    ) {
        for conn in Conn::PLACES {
            let keys = self.dial_keys(peer, password.cloned(), second.cloned());
            let token = self.places.get(&(peer, conn)).copied();
            let Some(link) = token.and_then(|token| self.link(token)) else {
                continue;
            };
            let mut key = password.cloned();
            if conn == Conn::Outbound && matches!(link.stage, Stage::Open(_)) {
                link.configure_keys(keys);
                key = link.dial_keys.as_ref().map(|keys| keys.used().clone());
            }
            let Stage::Open(stream) = &link.stage else {
                continue;
            };
            let Ok(remote) = stream.peer_addr() else {
                continue; // It is closed already; the next read will find that.
            };
            if let Err(error) = secure(stream, remote, ttl_security_hops, key.as_deref()) {
                self.events.push(Event::OptionFailed { remote, error });
                let why = Notification::cease(cease::OTHER_CONFIGURATION_CHANGE);
                let rejected = bgp_fsm::Input::Rejected(why);
                // The caller's loop takes the outputs that follow.
                self.speaker
                    .handle(self.clock.now(), Input::Session(peer, rejected));
            }
        }
        if second.is_some() {
            self.watch_keys();
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
