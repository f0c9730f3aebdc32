//! A scripted peer, for exchanges with two macros: `send!` and `recv!`.
#![allow(dead_code)] // Each test binary uses its own part.

pub(crate) mod pair;

use bgp_fsm::{Conn, Duration, Input, Instant, Output, PeerAs, Session, SessionConfig, State};
use bgp_proto::{
    Asn, Capability, Family, FamilySet, Frame, MESSAGE_OCTETS_MAX_EXTENDED, MessageKind,
    Notification, Open, RouteRefresh, RouterId, next_frame,
};
use bytes::{BufMut, Bytes, BytesMut};
use std::net::SocketAddr;

/// A message in the notation of the tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Msg {
    Open(Open),
    Update(&'static [u8]),
    Notification(Notification),
    Keepalive,
    Refresh(RouteRefresh),
}

impl Msg {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::Open(open) => open.encode(&mut out),
            Self::Notification(notification) => notification.encode(&mut out),
            Self::Refresh(refresh) => refresh.encode(&mut out),
            Self::Update(body) => raw(&mut out, 2, body),
            Self::Keepalive => raw(&mut out, 4, &[]),
        }
        out.freeze()
    }

    pub(crate) fn decode(frame: &Frame) -> Self {
        match frame.kind {
            MessageKind::Open => Self::Open(Open::parse(&frame.body).expect("an OPEN")),
            MessageKind::Update => Self::Update(frame.body.to_vec().leak()),
            MessageKind::Notification => {
                Self::Notification(Notification::parse(&frame.body).expect("a NOTIFICATION"))
            }
            MessageKind::RouteRefresh => {
                Self::Refresh(RouteRefresh::parse(&frame.body).expect("a ROUTE-REFRESH"))
            }
            _ => Self::Keepalive,
        }
    }
}

/// Appends a message of any kind and body.
pub(crate) fn raw(out: &mut BytesMut, kind: u8, body: &[u8]) {
    out.put_slice(&[0xff; 16]);
    out.put_u16(u16::try_from(19 + body.len()).expect("a short body"));
    out.put_u8(kind);
    out.put_slice(body);
}

/// Returns the local configuration of most tests: AS 64512, 192.0.2.1, IPv4 and IPv6 unicast,
/// passive.
pub(crate) fn config() -> SessionConfig {
    SessionConfig::new(Asn(64512), id(1)).with(|config| {
        config.peer_asn = PeerAs::Any;
        config.passive = true;
        config.families = FamilySet::UNICAST;
    })
}

/// Returns the identifier 192.0.2.`last`.
pub(crate) fn id(last: u8) -> RouterId {
    RouterId::from([192, 0, 2, last])
}

/// Returns the OPEN of a valid peer: AS 64513, 192.0.2.2.
pub(crate) fn peer_open() -> Open {
    Open {
        asn: Asn(64513),
        hold_time: 90,
        id: id(2),
        capabilities: vec![
            Capability::MultiProtocol(Family::IPV4_UNICAST),
            Capability::MultiProtocol(Family::IPV6_UNICAST),
            Capability::RouteRefresh,
            Capability::FourOctetAsn(Asn(64513)),
        ],
    }
}

/// Returns one end of a transport; the session ignores its value.
pub(crate) fn end(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 179))
}

/// A session and a scripted peer.
pub(crate) struct Exchange {
    pub(crate) session: Session,
    pub(crate) now: Instant,
    pub(crate) conn: Conn,
    /// All outputs of the session that no test has taken.
    pub(crate) outputs: Vec<Output>,
    /// The last message of a connection that was replaced.
    pub(crate) words: Option<Msg>,
    /// Octets from the session that no `recv!` has taken.
    received: BytesMut,
}

impl Exchange {
    /// Returns a started session.
    pub(crate) fn start(config: SessionConfig) -> Self {
        let mut exchange = Self {
            session: Session::new(config, 1),
            now: Instant::from_secs(1_000),
            conn: Conn::Inbound,
            outputs: Vec::new(),
            words: None,
            received: BytesMut::new(),
        };
        exchange.handle(Input::Start);
        exchange
    }

    /// Returns a started session with a connection of the peer.
    pub(crate) fn connected(config: SessionConfig) -> Self {
        let mut exchange = Self::start(config);
        exchange.connect().expect("admitted");
        exchange
    }

    /// Returns a session that is established with a peer that sent `open`.
    pub(crate) fn established(config: SessionConfig, open: Open) -> Self {
        let mut exchange = Self::connected(config);
        assert!(matches!(exchange.recv(), Some(Msg::Open(_))));
        exchange.send(&Msg::Open(open));
        assert_eq!(exchange.recv(), Some(Msg::Keepalive));
        exchange.send(&Msg::Keepalive);
        assert_eq!(exchange.session.state(), State::Established);
        exchange.outputs.clear();
        exchange
    }

    /// Dials from the peer.
    pub(crate) fn connect(&mut self) -> Result<(), Notification> {
        self.connect_again().map(|conn| {
            self.conn = conn;
            self.received.clear();
        })
    }

    /// Dials from the peer and keeps its existing connection for the exchange; returns the place of
    /// the new one.
    pub(crate) fn connect_again(&mut self) -> Result<Conn, Notification> {
        let verdict = self.session.admit(self.now);
        self.drain();
        let conn = verdict?;
        self.handle(Input::Opened {
            conn,
            local: end(1),
            remote: end(2),
        });
        Ok(conn)
    }

    /// Sends a message of the peer on another connection than that of the exchange.
    pub(crate) fn send_on(&mut self, conn: Conn, message: &Msg) {
        let frame = next_frame(&mut BytesMut::from(message.encode()), 4096);
        let frame = frame.expect("good").expect("whole");
        self.handle(Input::Received { conn, frame });
    }

    /// Takes the last message of a connection.
    pub(crate) fn last_words(&mut self, conn: Conn) -> Option<Msg> {
        let mut slices = Vec::new();
        self.session.fill(conn, &mut slices, usize::MAX);
        let octets = slices.concat();
        self.session.sent(conn, octets.len());
        let mut octets = BytesMut::from(&octets[..]);
        let frame = next_frame(&mut octets, MESSAGE_OCTETS_MAX_EXTENDED).expect("messages");
        frame.as_ref().map(Msg::decode)
    }

    pub(crate) fn handle(&mut self, input: Input) {
        self.session.handle(self.now, input);
        self.drain();
    }

    /// Applies another configuration.
    pub(crate) fn reconfigure(&mut self, config: SessionConfig) {
        self.session.reconfigure(self.now, config);
        self.drain();
    }

    fn drain(&mut self) {
        let mut moved = false;
        while let Some(output) = self.session.poll_output() {
            moved |= matches!(output, Output::Promote);
            self.outputs.push(output);
        }
        if moved {
            // The last message of the older connection is written before it is replaced.
            self.words = self.last_words(Conn::Inbound);
            self.received.clear();
            self.handle(Input::Promoted);
        }
    }

    /// Sends a message of the peer.
    pub(crate) fn send(&mut self, message: &Msg) {
        self.send_octets(&message.encode());
    }

    /// Sends octets of the peer that may not be a message.
    pub(crate) fn send_octets(&mut self, octets: &[u8]) {
        let mut octets = BytesMut::from(octets);
        let octets_max = self.session.octets_max(self.conn);
        loop {
            match next_frame(&mut octets, octets_max) {
                Ok(Some(frame)) => self.handle(Input::Received {
                    conn: self.conn,
                    frame,
                }),
                Ok(None) => return,
                Err(notification) => {
                    return self.handle(Input::FrameError {
                        conn: self.conn,
                        notification,
                    });
                }
            }
        }
    }

    /// Reads all waiting octets as the peer and takes the next message.
    pub(crate) fn recv(&mut self) -> Option<Msg> {
        let mut slices = Vec::new();
        self.session.fill(self.conn, &mut slices, usize::MAX);
        let octets = slices.concat();
        self.session.sent(self.conn, octets.len());
        self.received.extend_from_slice(&octets);
        let frame = next_frame(&mut self.received, MESSAGE_OCTETS_MAX_EXTENDED).expect("messages");
        frame.as_ref().map(Msg::decode)
    }

    /// Lets time pass; the session gets its timeouts, and its output is stored.
    pub(crate) fn pass(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while let Some(at) = self.session.poll_timeout().filter(|at| *at <= until) {
            assert!(at >= self.now, "a timer in the past");
            self.now = at;
            self.handle(Input::Timeout);
            assert_ne!(
                self.session.poll_timeout(),
                Some(at),
                "a timer that fires for ever"
            );
        }
        self.now = until;
    }

    /// Does the same as `pass` with a live peer: it reads everything and sends a KEEPALIVE every 20
    /// seconds.
    pub(crate) fn pass_alive(&mut self, seconds: u64) {
        for _ in 0..seconds / 20 {
            self.pass(20);
            while self.recv().is_some() {}
            self.send(&Msg::Keepalive);
        }
    }

    /// Returns the outputs since the last call.
    pub(crate) fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }
}

/// Sends these messages of the peer.
#[macro_export]
macro_rules! send {
    ($exchange:ident, $($message:expr),+ $(,)?) => { $($exchange.send(&$message);)+ };
}

/// Asserts that the session sends exactly these messages, or `nothing`.
#[macro_export]
macro_rules! recv {
    ($exchange:ident, nothing) => { assert_eq!($exchange.recv(), None) };
    ($exchange:ident, $($message:pat),+ $(,)?) => {
        $(
            let message = $exchange.recv();
            assert!(matches!(message, Some($message)), "got {message:?}, not {}", stringify!($message));
        )+
        assert_eq!($exchange.recv(), None);
    };
}
