//! One session of the load generator.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use bgp_io::set_md5_key;
use bytes::Bytes;
use nix::sys::epoll::EpollFlags;
use socket2::{Domain, Protocol, Socket, Type};

use crate::limits::KEEPALIVE_EVERY;
use crate::outbox::Outbox;
use crate::wire::Offer;

/// One session to the daemon.
#[derive(Debug)]
pub struct Session {
    pub(crate) source: Ipv4Addr,
    pub(crate) offer: Offer,
    pub(crate) state: State,
    pub(crate) stream: Option<TcpStream>,
    pub(crate) out: Outbox,
    /// The start of an incomplete message.
    pub(crate) rest: Vec<u8>,
    /// The events of the socket that the kernel reports.
    pub(crate) interest: EpollFlags,
    /// Octets that are sent as soon as the session is established.
    pub greeting: Bytes,
    /// Receive buffer in octets; the kernel's default if `None`.
    pub window: Option<usize>,
    /// Whether it reads received octets.
    pub(crate) reads: bool,
    /// The interval of its KEEPALIVEs.
    pub(crate) keepalive_every: Duration,
    pub(crate) keepalive_at: Instant,
    /// Intervals between KEEPALIVEs of the daemon.
    pub keepalives: Gaps,
    /// Intervals between messages of the daemon of any type: those restart a hold timer.
    pub signs: Gaps,
}

/// Intervals between occurrences of an event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gaps {
    pub(crate) last: Option<Instant>,
    longest: Duration,
}

impl Gaps {
    pub(crate) fn note(&mut self, now: Instant) {
        self.longest = self.longest();
        self.last = Some(now);
    }

    /// Returns the longest interval so far, including the current one.
    pub fn longest(&self) -> Duration {
        let open = self.last.map(|at| at.elapsed());
        self.longest.max(open.unwrap_or_default())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    Waiting(Instant),
    /// Until then: a SYN that finds a full accept queue is dropped, and the kernel's own retries
    /// have growing intervals.
    Dialing(Instant),
    Opening,
    Established,
}

impl Session {
    /// Makes a session that has not been dialed.
    pub(crate) fn new(offer: Offer) -> Self {
        Self {
            source: offer.id,
            offer,
            state: State::Idle,
            stream: None,
            out: Outbox::default(),
            rest: vec![],
            interest: EpollFlags::empty(),
            greeting: Bytes::new(),
            window: None,
            reads: true,
            keepalive_every: KEEPALIVE_EVERY.min(Duration::from_secs(offer.hold_time_s.into()) / 3),
            keepalive_at: Instant::now(),
            keepalives: Gaps::default(),
            signs: Gaps::default(),
        }
    }

    pub(crate) const fn is_opening(&self) -> bool {
        matches!(
            self.state,
            State::Dialing(_) | State::Opening | State::Waiting(_)
        )
    }
}

/// Starts a connection from `source`.
pub(crate) fn dial(
    source: Ipv4Addr,
    daemon: SocketAddrV4,
    window: Option<usize>,
    password: Option<&str>,
) -> std::io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::IPV4,
        Type::STREAM.nonblocking(),
        Some(Protocol::TCP),
    )?;
    socket.set_tcp_nodelay(true)?;
    if let Some(window) = window {
        socket.set_recv_buffer_size(window)?;
    }
    if let Some(password) = password {
        set_md5_key(&socket, (*daemon.ip()).into(), 32, password.as_bytes())?;
    }
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    match socket.connect(&SocketAddr::V4(daemon).into()) {
        Err(error) if error.raw_os_error() != Some(nix::libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}
