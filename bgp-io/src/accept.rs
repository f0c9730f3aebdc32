//! Connections that come in.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bgp_speaker::bgp_fsm::{self, Conn};
use bgp_speaker::rib::PeerId;
use bgp_speaker::{Input, Refusal};
use bytes::BytesMut;
use tokio::net::TcpStream;

use crate::io::Entry;
use crate::limits::{ACCEPT_PAUSE, TURN_ACCEPTS_MAX};
use crate::link::{Link, Stage};
use crate::sockets::secure_ttl;
use crate::{Event, Io};

impl Io {
    /// Takes the connections that wait on the listening sockets.
    pub(crate) fn accept_ready(&mut self, cx: &mut Context<'_>) -> bool {
        if self.accept_pause.is_some() {
            return false;
        }
        let mut worked = false;
        for at in 0..self.listeners.len() {
            for _ in 0..TURN_ACCEPTS_MAX {
                let Some(listener) = self.listeners.get(at) else {
                    break;
                };
                let listening = listener.address;
                match listener.socket.poll_accept(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Ok((stream, remote))) => self.accepted(stream, listening, remote),
                    Poll::Ready(Err(error)) => self.accept_failed(listening, error),
                }
                worked = true;
            }
        }
        worked
    }

    fn accept_failed(&mut self, local: SocketAddr, error: io::Error) {
        // A peer that hung up before we came is nobody's failure.
        if error.kind() != io::ErrorKind::ConnectionAborted {
            self.accept_pause = Some(self.clock.now() + ACCEPT_PAUSE);
            self.events.push(Event::AcceptFailed { local, error });
        }
    }

    fn accepted(&mut self, stream: TcpStream, listening: SocketAddr, remote: SocketAddr) {
        let local = stream.local_addr().unwrap_or(listening);
        let verdict = self.speaker.accept(self.clock.now(), local, remote);
        // Room is made for the new connection before it takes its place.
        self.drain();
        match verdict {
            Ok(peer) => self.admit(stream, peer, local, remote),
            Err(refusal) => self.refuse(stream, local, remote, refusal),
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: PeerId, local: SocketAddr, remote: SocketAddr) {
        let hops = self
            .speaker
            .peer_config(peer)
            .and_then(|config| config.ttl_security_hops);
        let mut options = stream.set_nodelay(true);
        if let Some(hops) = hops {
            options = options.and_then(|()| secure_ttl(&stream, remote.is_ipv4(), hops));
        }
        if let Err(error) = options {
            self.events.push(Event::OptionFailed { remote, error });
        }
        self.open(peer, Conn::Inbound, Stage::Open(stream));
        let opened = bgp_fsm::Input::Opened {
            conn: Conn::Inbound,
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
        let mut words = BytesMut::new();
        refusal.notification().encode(&mut words);
        self.linger(stream, [words.freeze()]);
        self.events.push(Event::Refused {
            local,
            remote,
            refusal,
        });
    }

    /// Gives a transport its place.
    pub(crate) fn open(&mut self, peer: PeerId, conn: Conn, stage: Stage) {
        let (token, signal) = self.vacancy();
        let link = Link::new(peer, conn, stage, signal);
        link.wake();
        let at = self.entries.insert(Entry::Link(link));
        debug_assert_eq!(at, token);
        if let Some(old) = self.places.insert((peer, conn), token) {
            debug_assert!(false, "a transport takes the place of another");
            self.entries.try_remove(old);
        }
    }
}
