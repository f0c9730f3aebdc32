//! The blind relay: a program without tables that completes the opening of a session and copies
//! every UPDATE of a client, unchanged, to all others. It shows the cost of sockets and the load
//! generator alone.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result};
use bgp_io::bgp_proto::MessageKind;
use bytes::Bytes;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Socket, Type};
use testkit::{Encode, Keepalive};

use crate::limits::{EVENTS_MAX, HOLD_TIME_S, READ_OCTETS_MAX};
use crate::outbox::Outbox;
use crate::wire::Offer;

struct Client {
    stream: TcpStream,
    rest: Vec<u8>,
    out: Outbox,
    waits: bool,
    established: bool,
}

struct Relay {
    offer: Offer,
    epoll: Epoll,
    clients: Vec<Option<Client>>,
    scratch: Vec<u8>,
}

/// The listening socket's index among the clients.
const LISTENER: u64 = u64::MAX;

/// Relays until it is killed.
pub fn run(address: Ipv4Addr, asn: u32) -> Result<()> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.set_reuse_address(true)?;
    listener.bind(&SocketAddr::from((address, 179)).into())?;
    listener.listen(4096)?;
    let listener = TcpListener::from(listener);
    let mut relay = Relay {
        offer: Offer {
            asn,
            id: address,
            hold_time_s: HOLD_TIME_S,
            ipv6: false,
            add_path: false,
        },
        epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
        clients: vec![],
        scratch: vec![0; READ_OCTETS_MAX],
    };
    relay
        .epoll
        .add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let mut events = [EpollEvent::empty(); EVENTS_MAX];
    loop {
        let count = relay
            .epoll
            .wait(&mut events, EpollTimeout::NONE)
            .context("epoll")?;
        for event in &events[..count] {
            if event.data() == LISTENER {
                relay.accept(listener.accept()?.0)?;
                continue;
            }
            let at = event.data() as usize;
            if event.events().contains(EpollFlags::EPOLLOUT) {
                relay.flush(at);
            }
            if event.events() != EpollFlags::EPOLLOUT {
                relay.read(at)?;
            }
        }
    }
}

impl Relay {
    fn accept(&mut self, stream: TcpStream) -> Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let at = self.clients.len();
        self.epoll
            .add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, at as u64))?;
        let mut out = Outbox::default();
        out.push(self.offer.open().octets().freeze());
        out.push(Keepalive.octets().freeze());
        self.clients.push(Some(Client {
            stream,
            rest: vec![],
            out,
            waits: false,
            established: false,
        }));
        self.flush(at);
        Ok(())
    }

    fn flush(&mut self, at: usize) {
        let Some(client) = &mut self.clients[at] else {
            return;
        };
        if client.out.flush(&mut client.stream).is_err() {
            self.clients[at] = None;
            return;
        }
        let waits = !client.out.is_empty();
        if waits != client.waits {
            client.waits = waits;
            let mut interest = EpollFlags::EPOLLIN;
            interest.set(EpollFlags::EPOLLOUT, waits);
            let mut event = EpollEvent::new(interest, at as u64);
            let _ = self.epoll.modify(&client.stream, &mut event);
        }
    }

    fn read(&mut self, at: usize) -> Result<()> {
        let Some(client) = &mut self.clients[at] else {
            return Ok(());
        };
        match client.stream.read(&mut self.scratch) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Ok(0) | Err(_) => {
                self.clients[at] = None;
                Ok(())
            }
            Ok(read) => {
                client.rest.extend_from_slice(&self.scratch[..read]);
                self.pass_on(at)
            }
        }
    }

    /// Copies the complete messages of a client to the others.
    fn pass_on(&mut self, at: usize) -> Result<()> {
        let Some(client) = &mut self.clients[at] else {
            return Ok(());
        };
        let mut octets = std::mem::take(&mut client.rest);
        let (mut updates, mut whole) = (vec![], 0);
        while let Some(length) = testkit::message_octets(&octets[whole..])? {
            let Some(message) = octets.get(whole..whole + length) else {
                break;
            };
            whole += length;
            match MessageKind(message[18]) {
                MessageKind::Update => updates.extend_from_slice(message),
                MessageKind::Keepalive if client.established => {
                    client.out.push(Keepalive.octets().freeze())
                }
                MessageKind::Keepalive => client.established = true,
                _ => {}
            }
        }
        octets.drain(..whole);
        client.rest = octets;
        self.flush(at);
        let updates = Bytes::from(updates);
        if updates.is_empty() {
            return Ok(());
        }
        for other in (0..self.clients.len()).filter(|&other| other != at) {
            if let Some(client) = &mut self.clients[other] {
                client.out.push(updates.clone());
                self.flush(other);
            }
        }
        Ok(())
    }
}
