//! Any sequence of operations: no panic, and the invariants hold.

mod support;

use bgp_fsm::timer::{TIMERS, Timer};
use bgp_fsm::{
    Conn, DownReason, Duration, GracefulRestartConfig, Input, Instant, Output, Probed, Session,
    SessionConfig, State,
};
use bgp_proto::{
    Capability, Family, Frame, GracefulRestart, MESSAGE_OCTETS_MAX_EXTENDED, MessageKind,
    Notification, Open, next_frame,
};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use support::{Msg, config, end, id, peer_open};

#[derive(Clone, Debug)]
enum Op {
    Start,
    Stop,
    Leave,
    Configure(SessionConfig),
    Dialed(bool),
    Accept,
    Close(Conn),
    Late(Conn),
    Frame(Conn, u8, Vec<u8>),
    Good(Conn, u8),
    Broken(Conn),
    Reject(u8),
    Limit(u16),
    PathUp,
    PathIsUp(bool),
    PathFailed,
    Hold(u16),
    Pause(bool),
    Queue(u16),
    Write(Conn, u16),
    Pass(u32),
    Wake,
    /// The transport of the established connection dies or works again.
    Die(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let conn = || {
        prop_oneof![
            2 => Just(Conn::Outbound),
            2 => Just(Conn::Inbound),
            1 => Just(Conn::Held)
        ]
    };
    prop_oneof![
        2 => Just(Op::Start),
        1 => Just(Op::Stop),
        1 => Just(Op::Leave),
        2 => configs().prop_map(Op::Configure),
        6 => any::<bool>().prop_map(Op::Dialed),
        6 => Just(Op::Accept),
        2 => conn().prop_map(Op::Close),
        1 => conn().prop_map(Op::Late),
        2 => (conn(), 0_u8..8, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(conn, kind, body)| Op::Frame(conn, kind, body)),
        20 => (conn(), 0_u8..8).prop_map(|(conn, kind)| Op::Good(conn, kind)),
        1 => conn().prop_map(Op::Broken),
        1 => prop_oneof![Just(3_u8), Just(6)].prop_map(Op::Reject),
        1 => (0_u16..40).prop_map(Op::Limit),
        2 => Just(Op::PathUp),
        3 => any::<bool>().prop_map(Op::PathIsUp),
        1 => Just(Op::PathFailed),
        1 => (0_u16..40).prop_map(Op::Hold),
        2 => any::<bool>().prop_map(Op::Pause),
        4 => (4_u16..400).prop_map(Op::Queue),
        8 => (conn(), 1_u16..300).prop_map(|(conn, octets)| Op::Write(conn, octets)),
        6 => (0_u32..100_000).prop_map(Op::Pass),
        6 => Just(Op::Wake),
        2 => any::<bool>().prop_map(Op::Die),
    ]
}

/// The driver's view of one transport, with the octets that the peer has read.
#[derive(Default)]
struct Transport {
    open: bool,
    dialing: bool,
    stream: BytesMut,
    kinds: Vec<MessageKind>,
}

struct World {
    session: Session,
    now: Instant,
    transports: [Transport; 3],
    up: bool,
    /// Whether the peer's host responds on the established connection.
    answers: bool,
    /// Whether the path has been up since its last failure.
    path_was_up: bool,
    /// Whether a connection with a valid OPEN was held, so that the peer's host may have been
    /// replaced.
    good_open_held: bool,
    /// Whether a transport has moved without a report to the session yet.
    moved: bool,
    /// Probes that must be answered.
    asked: u32,
}

impl World {
    fn at(&mut self, conn: Conn) -> &mut Transport {
        &mut self.transports[conn as usize]
    }

    fn handle(&mut self, input: Input) {
        self.session.handle(self.now, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.session.poll_output() {
            match output {
                Output::Dial => {
                    let outbound = self.at(Conn::Outbound);
                    assert!(!outbound.open && !outbound.dialing, "one dial at a time");
                    outbound.dialing = true;
                }
                Output::Close(conn) => {
                    assert!(
                        self.at(conn).open || self.at(conn).dialing,
                        "closes what there is"
                    );
                    self.write(conn, usize::MAX);
                    self.finish(conn);
                }
                Output::Established(_) => {
                    assert!(!std::mem::replace(&mut self.up, true));
                    self.answers = true;
                    let open = self.session.peer_open().expect("received");
                    let is_strict = self.session.config().bfd_strict
                        && open.capabilities.contains(&Capability::BfdStrictMode);
                    assert!(!is_strict || self.path_was_up, "strict without the path");
                }
                Output::Down(reason) => {
                    assert!(std::mem::replace(&mut self.up, false));
                    // A bare connection, or an OPEN of another speaker, never ends a session, and
                    // no connection does while the transport responds.
                    if reason == DownReason::Reopened {
                        assert!(self.good_open_held && !self.answers);
                    }
                }
                Output::Promote => {
                    assert!(self.at(Conn::Held).open && !self.at(Conn::Inbound).open);
                    *self.at(Conn::Inbound) = std::mem::take(self.at(Conn::Held));
                    self.moved = true;
                }
                Output::Probe { begins, .. } => self.asked += u32::from(!begins),
                Output::HeldEnded(_) => self.good_open_held = false,
                Output::Update(_) | Output::Refresh(_) => assert!(self.up),
                Output::State(state) => assert_eq!(state, self.session.state()),
                Output::Unopened { conn, .. } => {
                    assert_ne!(self.session.established(), Some(conn), "it was no session");
                }
            }
        }
        if std::mem::take(&mut self.moved) {
            self.handle(Input::Promoted);
        }
    }

    fn opened(&mut self, conn: Conn) {
        *self.at(conn) = Transport {
            open: true,
            ..Transport::default()
        };
        self.handle(Input::Opened {
            conn,
            local: end(1),
            remote: end(2),
        });
    }

    fn write(&mut self, conn: Conn, octets_max: usize) {
        let mut slices = Vec::new();
        self.session.fill(conn, &mut slices, octets_max);
        let octets = slices.concat();
        assert!(octets.len() <= octets_max);
        self.session.sent(conn, octets.len());
        let transport = self.at(conn);
        transport.stream.extend_from_slice(&octets);
        while let Some(frame) =
            next_frame(&mut transport.stream, MESSAGE_OCTETS_MAX_EXTENDED).expect("messages")
        {
            transport.kinds.push(frame.kind);
        }
    }

    /// Asserts that the peer has read all octets written before the end: whole messages in a valid
    /// order.
    fn finish(&mut self, conn: Conn) {
        let transport = std::mem::take(self.at(conn));
        let first = transport.kinds.first();
        assert!(
            matches!(
                first,
                None | Some(&MessageKind::Open | &MessageKind::Notification)
            ),
            "{first:?}"
        );
        let last = transport
            .kinds
            .iter()
            .position(|kind| *kind == MessageKind::Notification);
        assert!(
            last.is_none_or(|at| at + 1 == transport.kinds.len()),
            "a NOTIFICATION is the last word"
        );
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Start => self.handle(Input::Start),
            Op::Stop => self.handle(Input::Stop(Notification::administrative_shutdown("x"))),
            Op::Configure(config) => {
                self.session.reconfigure(self.now, config);
                self.drain();
            }
            Op::Leave => self.handle(Input::StopForRestart(
                Notification::administrative_shutdown("x"),
            )),
            Op::Dialed(good) if self.at(Conn::Outbound).dialing => {
                self.at(Conn::Outbound).dialing = false;
                if good {
                    self.opened(Conn::Outbound)
                } else {
                    self.handle(Input::Failed(Conn::Outbound))
                }
            }
            Op::Accept => {
                let verdict = self.session.admit(self.now);
                self.drain();
                if let Ok(conn) = verdict {
                    assert!(!self.at(conn).open, "admission makes room");
                    self.opened(conn);
                    if conn == Conn::Held {
                        return;
                    }
                    assert!(
                        self.session.state_of(Conn::Inbound) >= State::OpenSent
                            || !self.at(Conn::Inbound).open
                            || self.session.config().open_delay_s > 0
                    );
                }
            }
            Op::Close(conn) if self.at(conn).open => {
                *self.at(conn) = Transport::default();
                self.handle(Input::Closed(conn));
            }
            Op::Late(conn) if !self.at(conn).open => self.handle(Input::Closed(conn)),
            Op::Frame(conn, kind, body) => {
                let frame = Frame {
                    kind: MessageKind(kind),
                    body: Bytes::from(body),
                };
                self.handle(Input::Received { conn, frame });
            }
            Op::Good(conn, kind) => self.receive(conn, kind),
            Op::Broken(conn) => {
                let notification = Notification::message_header(1, Bytes::new());
                self.handle(Input::FrameError { conn, notification });
            }
            Op::Reject(code) => self.handle(Input::Rejected(Notification::new(code, 1))),
            Op::Limit(rest_s) => self.handle(Input::Limited {
                notification: Notification::cease(1),
                idle_hold: Duration::from_secs(rest_s.into()),
            }),
            Op::PathUp => self.handle(Input::PathUp),
            Op::PathIsUp(is_up) => {
                self.path_was_up |= is_up;
                self.handle(Input::PathIsUp(is_up));
                assert!(!is_up || !self.session.awaits_path());
            }
            Op::PathFailed => {
                self.path_was_up = false;
                self.handle(Input::PathFailed);
                assert!(!self.session.awaits_path());
            }
            Op::Hold(time_s) => self.handle(Input::Hold(Duration::from_secs(time_s.into()))),
            Op::Pause(unread) => self.handle(Input::ReadPaused { unread }),
            Op::Queue(octets) => {
                self.session
                    .queue(Msg::Update(vec![0; usize::from(octets)].leak()).encode());
            }
            Op::Write(conn, octets) if self.at(conn).open => self.write(conn, usize::from(octets)),
            Op::Pass(millis) => {
                let then = self.now + Duration::from_millis(u64::from(millis));
                self.now = self
                    .session
                    .poll_timeout()
                    .map_or(then, |at| then.min(at.max(self.now)));
            }
            Op::Wake => {
                if let Some(at) = self.session.poll_timeout() {
                    self.now = self.now.max(at);
                    self.handle(Input::Timeout);
                    assert!(self.session.poll_timeout().is_none_or(|at| at > self.now));
                }
                while self.asked > 0 {
                    self.asked -= 1;
                    let probed = match self.answers {
                        true => Probed::Answered,
                        false => Probed::Silent {
                            unanswered: 20,
                            sent: 1,
                        },
                    };
                    self.handle(Input::Probed(probed));
                }
            }
            Op::Die(dead) => self.answers = !dead,
            _ => {}
        }
    }

    fn receive(&mut self, conn: Conn, kind: u8) {
        let mut open = peer_open();
        open.id = match kind {
            5 => id(0),
            6 => id(77),
            _ => open.id,
        };
        open.capabilities
            .push(Capability::GracefulRestart(GracefulRestart {
                families: vec![(Family::IPV4_UNICAST, true)],
                ..GracefulRestart::default()
            }));
        if kind == 1 {
            open.capabilities.push(Capability::BfdStrictMode);
        }
        let message = match kind {
            0 | 1 | 5 | 6 => Msg::Open(Open { ..open }),
            2 => Msg::Update(&[0, 0, 0, 0]),
            3 => Msg::Notification(Notification::cease(7)),
            _ => Msg::Keepalive,
        };
        let frame = next_frame(&mut BytesMut::from(message.encode()), 4096)
            .expect("good")
            .expect("whole");
        if conn == Conn::Held && self.at(conn).open && self.session.reads(conn) {
            self.good_open_held = matches!(kind, 0 | 1);
        }
        self.handle(Input::Received { conn, frame });
    }

    fn check(&self) {
        let states = Conn::ALL.map(|conn| self.session.state_of(conn));
        let established = states
            .iter()
            .filter(|state| **state == State::Established)
            .count();
        assert!(established <= 1, "{states:?}");
        assert_eq!(
            established == 1,
            self.up,
            "the reported state is the current one"
        );
        assert_eq!(self.session.params().is_some(), self.up);
        for (conn, timer) in self.session.running_timers() {
            let row = TIMERS.iter().find(|row| row.timer == timer).expect("a row");
            let allowed = match conn {
                Some(Conn::Held) => row.states.contains(&self.session.state()),
                Some(conn) => row.states.contains(&self.session.state_of(conn)),
                None => {
                    timer == Timer::IdleHold
                        && states.iter().any(|state| row.states.contains(state))
                }
            };
            assert!(allowed, "{timer:?} of {conn:?} in {states:?}");
        }
        for conn in Conn::ALL {
            let (state, transport) = (self.session.state_of(conn), &self.transports[conn as usize]);
            assert!(
                state < State::OpenSent || transport.open,
                "{state} without a transport"
            );
            assert!(
                state != State::Idle || !(transport.open || transport.dialing),
                "a transport in Idle"
            );
        }
    }
}

fn configs() -> impl Strategy<Value = SessionConfig> {
    (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        0_u16..3,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(passive, delay, graceful, hold, send_hold, strict)| {
            config().with(|config| {
                config.passive = passive;
                config.open_delay_s = u16::from(delay) * 3;
                config.graceful_restart = graceful.then(GracefulRestartConfig::default);
                config.hold_time_s = hold * 3;
                config.send_hold_s = send_hold.then_some(5);
                config.bfd_strict = strict;
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    // Promise (BGP): Any operations in any order keep the invariants of a session.
    #[test]
    fn invariants_hold(config in configs(), seed: u64, ops in prop::collection::vec(op(), 1..120)) {
        let mut world = World {
            session: Session::new(config, seed),
            now: Instant::from_secs(1),
            transports: Default::default(),
            up: false,
            answers: true,
            path_was_up: false,
            good_open_held: false,
            asked: 0,
            moved: false,
        };
        for op in ops {
            world.run(op);
            world.check();
        }
    }
}
