//! The session machine with any sequence of operations, including impossible ones.

use std::net::{Ipv4Addr, SocketAddr};

use bgp_fsm::{Conn, Duration, Input, Instant, Output, PeerAs, Probed, Session, SessionConfig};
use bgp_proto::{
    Asn, Capability, Family, FamilySet, Notification, Open, RouterId, UpdateWriter, next_frame,
    notification::cease,
};
use bytes::BytesMut;

use crate::octets::Octets;

/// Performs the operations that the octets select; checks the invariants after each.
pub fn session(data: &[u8]) {
    let mut octets = Octets(data);
    let mut rig = Rig {
        session: Session::new(config(&mut octets), u64::from(octets.short())),
        now: Instant(0),
        up: false,
        dialing: false,
    };
    for _ in 0..2000 {
        if octets.is_empty() {
            return;
        }
        rig.operate(&mut octets);
    }
}

fn config(octets: &mut Octets<'_>) -> SessionConfig {
    SessionConfig::new(Asn(64512), RouterId(Ipv4Addr::new(10, 0, 0, 1))).with(|config| {
        config.peer_asn = PeerAs::Any;
        config.passive = octets.flag();
        config.open_delay_s = u16::from(octets.octet() % 4);
        config.families = FamilySet::UNICAST;
    })
}

struct Rig {
    session: Session,
    now: Instant,
    up: bool,
    /// The machine has requested a dial; the result is not reported yet.
    dialing: bool,
}

impl Rig {
    fn operate(&mut self, octets: &mut Octets<'_>) {
        let conn = match octets.octet() % 4 {
            0 | 1 => Conn::Outbound,
            2 => Conn::Inbound,
            _ => Conn::Held,
        };
        let (local, remote) = ends();
        match octets.octet() % 15 {
            0 => self.input(Input::Start),
            1 => self.input(Input::Stop(Notification::administrative_shutdown("fuzz"))),
            2 if self.dialing => {
                self.dialing = false;
                self.input(Input::Opened {
                    conn: Conn::Outbound,
                    local,
                    remote,
                });
            }
            2 => {}
            3 => {
                let admitted = self.session.admit(self.now);
                self.drain();
                if let Ok(conn) = admitted {
                    self.input(Input::Opened {
                        conn,
                        local,
                        remote,
                    });
                }
            }
            4 => {
                self.dialing &= conn != Conn::Outbound;
                self.input(Input::Failed(conn));
            }
            5 => self.input(Input::Closed(conn)),
            6 => self.frame(conn, octets),
            7 => self.receive(conn, &peer_open()),
            8 => self.receive(conn, &keepalive()),
            9 => self.input(Input::Rejected(Notification::cease(
                cease::OUT_OF_RESOURCES,
            ))),
            10 => self.input(Input::ReadPaused {
                unread: octets.flag(),
            }),
            11 => self.input(Input::Timeout),
            12 => self.write(conn, octets),
            13 => self.input(Input::Probed(Probed::Silent {
                unanswered: u32::from(octets.octet()),
                sent: u32::from(octets.octet()),
            })),
            _ => self.pass(octets),
        }
    }

    fn input(&mut self, input: Input) {
        self.session.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        let mut moved = false;
        while let Some(output) = self.session.poll_output() {
            match output {
                Output::Promote => moved = true,
                Output::Established(_) => {
                    assert!(!self.up, "Established twice");
                    self.up = true;
                }
                Output::Down(_) => {
                    assert!(self.up, "Down without Established");
                    self.up = false;
                }
                _ => {}
            }
        }
        assert_eq!(
            self.up,
            self.session.established().is_some(),
            "reported as established"
        );
        assert_eq!(
            self.up,
            self.session.params().is_some(),
            "parameters while established"
        );
        if moved {
            self.input(Input::Promoted);
        }
    }

    /// Passes a frame with the fuzzer's octets after a valid header.
    fn frame(&mut self, conn: Conn, octets: &mut Octets<'_>) {
        let kind = octets.octet();
        let body = usize::from(octets.octet());
        let body = octets.take(body);
        let mut stream = BytesMut::from(&[0xff; 16][..]);
        let length = u16::try_from(19 + body.len()).unwrap_or(u16::MAX);
        stream.extend_from_slice(&length.to_be_bytes());
        stream.extend_from_slice(&[kind]);
        stream.extend_from_slice(body);
        self.receive(conn, &stream);
    }

    fn receive(&mut self, conn: Conn, stream: &[u8]) {
        match next_frame(&mut BytesMut::from(stream), self.session.octets_max(conn)) {
            Ok(Some(frame)) => self.input(Input::Received { conn, frame }),
            Ok(None) => {}
            Err(notification) => self.input(Input::FrameError { conn, notification }),
        }
    }

    fn write(&mut self, conn: Conn, octets: &mut Octets<'_>) {
        let mut slices = Vec::new();
        self.session
            .fill(conn, &mut slices, usize::from(octets.short()));
        let waiting: usize = slices.iter().map(bytes::Bytes::len).sum();
        self.session
            .sent(conn, waiting.min(usize::from(octets.short())));
    }

    fn pass(&mut self, octets: &mut Octets<'_>) {
        self.now += Duration::from_millis(u64::from(octets.short()) * 4);
        for _ in 0..64 {
            if self.session.poll_timeout().is_none_or(|at| at > self.now) {
                return;
            }
            self.input(Input::Timeout);
        }
        panic!("a timer that is due stays due");
    }
}

fn ends() -> (SocketAddr, SocketAddr) {
    let end = |host, port| SocketAddr::from((Ipv4Addr::new(10, 0, 0, host), port));
    (end(1, 40_000), end(2, 179))
}

fn peer_open() -> BytesMut {
    let mut out = BytesMut::new();
    Open {
        asn: Asn(64513),
        hold_time: 30,
        id: RouterId(Ipv4Addr::new(10, 0, 0, 2)),
        capabilities: vec![Capability::MultiProtocol(Family::IPV4_UNICAST)],
    }
    .encode(&mut out);
    out
}

fn keepalive() -> BytesMut {
    let mut out = BytesMut::new();
    UpdateWriter::keepalive(&mut out);
    out
}
