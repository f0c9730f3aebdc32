//! Exchanges with one peer: what it says, what we answer, and when.

mod support;

use bgp_fsm::{
    Conn, DownReason, Duration, GracefulRestartConfig, Input, Output, SessionConfig, State,
};
use bgp_proto::notification::{cease, open};
use bgp_proto::{
    Asn, Capability, Family, GracefulRestart, Notification, Open, RefreshSubtype, RouteRefresh,
};
use bytes::{Bytes, BytesMut};
use support::{Exchange, Msg, config, end, id, peer_open, raw};

const CEASE: u8 = 6;

fn downs(exchange: &mut Exchange) -> Vec<DownReason> {
    let outputs = exchange.outputs().into_iter();
    outputs
        .filter_map(|o| {
            if let Output::Down(reason) = o {
                Some(reason)
            } else {
                None
            }
        })
        .collect()
}

fn notified(code: u8, subcode: u8) -> Vec<DownReason> {
    vec![DownReason::Sent(Notification::new(code, subcode))]
}

#[test]
fn a_session_opens_step_by_step() {
    let mut peer = Exchange::start(config());
    recv!(peer, nothing);
    peer.connect().expect("admitted");
    assert_eq!(peer.session.state(), State::OpenSent);
    recv!(
        peer,
        Msg::Open(Open {
            asn: Asn(64512),
            hold_time: 90,
            ..
        })
    );
    send!(peer, Msg::Open(peer_open()));
    assert_eq!(peer.session.state(), State::OpenConfirm);
    recv!(peer, Msg::Keepalive);
    assert!(peer.session.params().is_none(), "not before it is up");
    send!(peer, Msg::Keepalive);
    recv!(peer, nothing);
    let params = peer.session.params().expect("up").clone();
    assert_eq!(
        (params.peer_asn, params.hold_time_s, params.as4),
        (Asn(64513), 90, true)
    );
    assert_eq!(peer.session.peer_open(), Some(&peer_open()));
    assert_eq!(peer.session.ends(Conn::Inbound), Some((end(1), end(2))));
    let told: Vec<Output> = peer.outputs();
    let states: Vec<State> = told
        .iter()
        .filter_map(|o| {
            if let Output::State(s) = o {
                Some(*s)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(
        states,
        [
            State::Active,
            State::OpenSent,
            State::OpenConfirm,
            State::Established
        ]
    );
    assert_eq!(
        told.iter()
            .filter(|o| matches!(o, Output::Established(_)))
            .count(),
        1
    );
    let stats = peer.session.stats();
    assert_eq!((stats.sent.open, stats.sent.keepalive), (1, 1));
    assert_eq!((stats.received.open, stats.received.keepalive), (1, 1));
}

#[test]
fn updates_are_handed_on_and_written_in_order() {
    let mut peer = Exchange::established(config(), peer_open());
    send!(
        peer,
        Msg::Update(&[0, 0, 0, 0]),
        Msg::Keepalive,
        Msg::Update(&[0, 0, 0, 0, 24, 10, 0, 0])
    );
    let bodies: Vec<usize> = peer
        .outputs()
        .iter()
        .filter_map(|o| {
            if let Output::Update(body) = o {
                Some(body.len())
            } else {
                None
            }
        })
        .collect();
    assert_eq!(bodies, [4, 8]);
    peer.session.queue(
        [Msg::Update(&[1; 4]).encode(), Msg::Update(&[2; 5]).encode()]
            .concat()
            .into(),
    );
    assert_eq!(peer.session.queued_octets(), 23 + 24);
    peer.session.queue(Msg::Update(&[3; 6]).encode());
    recv!(
        peer,
        Msg::Update([1, ..]),
        Msg::Update([2, ..]),
        Msg::Update([3, ..])
    );
    assert_eq!(
        (
            peer.session.queued_octets(),
            peer.session.stats().sent.update
        ),
        (0, 3)
    );
}

#[test]
fn a_refresh_is_handed_on_and_a_malformed_one_ends_the_session() {
    let mut peer = Exchange::established(config(), peer_open());
    let request = RouteRefresh::request(Family::IPV6_UNICAST);
    let begin = RouteRefresh {
        family: Family::IPV4_UNICAST,
        subtype: RefreshSubtype::Begin,
    };
    send!(peer, Msg::Refresh(request), Msg::Refresh(begin));
    let told = peer.outputs();
    let refreshes = told.iter().filter_map(|o| {
        if let Output::Refresh(r) = o {
            Some(*r)
        } else {
            None
        }
    });
    assert_eq!(refreshes.collect::<Vec<_>>(), [request, begin]);
    // RFC 7313 §5: the border of a refresh with octets after it.
    let mut octets = BytesMut::new();
    raw(&mut octets, 5, &[0, 1, 1, 1, 9]);
    peer.send_octets(&octets);
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 7,
            subcode: 1,
            ..
        })
    );
}

#[test]
fn a_peer_that_is_silent_is_told_and_left() {
    let mut peer = Exchange::established(config(), peer_open());
    peer.pass(89);
    while peer.recv().is_some() {}
    assert_eq!(peer.session.state(), State::Established);
    peer.pass(1);
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 4,
            subcode: 0,
            ..
        })
    );
    assert_eq!(downs(&mut peer), notified(4, 0));
}

#[test]
fn any_sign_of_life_restarts_the_hold_timer() {
    let mut peer = Exchange::established(config(), peer_open());
    for message in [
        Msg::Keepalive,
        Msg::Update(&[0, 0, 0, 0]),
        Msg::Refresh(RouteRefresh::request(Family::IPV4_UNICAST)),
        Msg::Keepalive,
    ] {
        peer.pass(80);
        send!(peer, message);
        while peer.recv().is_some() {}
    }
    assert_eq!(peer.session.state(), State::Established);
}

#[test]
fn the_open_may_take_four_minutes() {
    let mut peer = Exchange::connected(config());
    recv!(peer, Msg::Open(_));
    peer.pass(239);
    assert_eq!(peer.session.state(), State::OpenSent);
    peer.pass(1);
    recv!(peer, Msg::Notification(Notification { code: 4, .. }));
}

#[test]
fn keepalives_come_at_a_third_of_the_smaller_hold_time() {
    let mut peer = Exchange::established(
        config(),
        Open {
            hold_time: 30,
            ..peer_open()
        },
    );
    let mut times = Vec::new();
    for tenth in 0..3_000_u32 {
        peer.pass(0);
        peer.now += Duration::from_millis(100);
        if peer.session.poll_timeout().is_some_and(|at| at <= peer.now) {
            peer.handle(Input::Timeout);
        }
        if tenth % 100 == 0 {
            send!(peer, Msg::Keepalive);
        }
        while peer.recv().is_some() {
            times.push(tenth);
        }
    }
    let gaps: Vec<u32> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        gaps.iter().all(|gap| (74..=101).contains(gap)),
        "RFC 4271 §10: {gaps:?}"
    );
    assert!(gaps.iter().max() > gaps.iter().min(), "jitter");
}

#[test]
fn without_a_hold_time_nothing_is_expected_and_nothing_said() {
    let mut peer = Exchange::established(
        config(),
        Open {
            hold_time: 0,
            ..peer_open()
        },
    );
    peer.pass(100_000);
    recv!(peer, nothing);
    assert_eq!(peer.session.state(), State::Established);
}

#[test]
fn one_keepalive_waits_at_most_while_the_socket_is_full() {
    let mut peer = Exchange::established(config(), peer_open());
    for _ in 0..10 {
        peer.pass(40);
        send!(peer, Msg::Keepalive);
    }
    recv!(peer, Msg::Keepalive);
}

#[test]
fn a_peer_that_does_not_read_is_left() {
    // RFC 9687: eight minutes, or what is configured.
    for (send_hold_s, patience) in [(None, 480), (Some(10), 10)] {
        let mut peer = Exchange::established(
            SessionConfig {
                send_hold_s,
                ..config()
            },
            peer_open(),
        );
        peer.pass_alive(60);
        peer.session.queue(Msg::Update(&[0; 100]).encode());
        while peer.session.state() == State::Established {
            peer.pass(1);
            send!(peer, Msg::Keepalive);
            assert!(
                peer.now < bgp_fsm::Instant::from_secs(3_000),
                "given up at last"
            );
        }
        assert_eq!(downs(&mut peer), notified(8, 0));
        let since = peer
            .session
            .stats()
            .last_error
            .as_ref()
            .expect("an error")
            .0;
        let stalled = since - bgp_fsm::Instant::from_secs(1_060);
        let range = Duration::from_secs(patience)..=Duration::from_secs(patience + 31);
        assert!(range.contains(&stalled), "{stalled:?}");
    }
}

#[test]
fn a_peer_that_reads_slowly_is_kept() {
    let slow = SessionConfig {
        send_hold_s: Some(10),
        ..config()
    };
    let mut peer = Exchange::established(slow, peer_open());
    peer.session.queue(Msg::Update(&[0; 1_000]).encode());
    for _ in 0..100 {
        peer.pass(9);
        peer.session.sent(Conn::Inbound, 10);
        send!(peer, Msg::Keepalive);
    }
    assert_eq!(peer.session.state(), State::Established);
}

#[test]
fn octets_that_we_leave_unread_keep_the_peer_alive_up_to_a_cap() {
    let mut peer = Exchange::established(config(), peer_open());
    peer.pass(60);
    peer.handle(Input::ReadPaused { unread: true });
    peer.pass(60);
    assert_eq!(
        peer.session.state(),
        State::Established,
        "the hold timer has not fired"
    );
    // Read on: what lay there gets the time to be read.
    peer.handle(Input::ReadPaused { unread: false });
    peer.pass(29);
    assert_eq!(peer.session.state(), State::Established);
    send!(peer, Msg::Keepalive);
    peer.handle(Input::ReadPaused { unread: true });
    peer.pass(3 * 90 - 1);
    assert_eq!(peer.session.state(), State::Established);
    peer.pass(2);
    assert_ne!(
        peer.session.state(),
        State::Established,
        "three hold times and no more"
    );
    assert_eq!(downs(&mut peer), notified(4, 0));
}

#[test]
fn nothing_unread_is_no_excuse() {
    let mut peer = Exchange::established(config(), peer_open());
    peer.handle(Input::ReadPaused { unread: true });
    peer.pass(10);
    peer.handle(Input::ReadPaused { unread: false });
    peer.pass(81);
    assert_eq!(downs(&mut peer), notified(4, 0));
}

#[test]
fn bad_opens_are_refused_by_name() {
    let good = peer_open;
    let bad = [
        (
            open::BAD_PEER_AS,
            Open {
                asn: Asn(1),
                capabilities: vec![],
                ..good()
            },
        ),
        (
            open::BAD_BGP_IDENTIFIER,
            Open {
                id: id(1),
                asn: Asn(64512),
                capabilities: vec![],
                ..good()
            },
        ),
        (
            open::UNACCEPTABLE_HOLD_TIME,
            Open {
                hold_time: 2,
                ..good()
            },
        ),
        (
            open::UNSUPPORTED_CAPABILITY,
            Open {
                capabilities: vec![
                    Capability::MultiProtocol(Family::L2VPN_EVPN),
                    Capability::FourOctetAsn(Asn(64513)),
                ],
                ..good()
            },
        ),
    ];
    for (subcode, open) in bad {
        let peer_asn = match subcode {
            open::BAD_PEER_AS => bgp_fsm::PeerAs::Exactly(Asn(64513)),
            _ => bgp_fsm::PeerAs::Any,
        };
        let mut peer = Exchange::connected(SessionConfig {
            peer_asn,
            ..config()
        });
        recv!(peer, Msg::Open(_));
        send!(peer, Msg::Open(open));
        let answer = peer.recv();
        let Some(Msg::Notification(answer)) = answer else {
            panic!("{subcode}: {answer:?}")
        };
        assert_eq!((answer.code, answer.subcode), (2, subcode));
        if subcode == open::UNSUPPORTED_CAPABILITY {
            // RFC 5492 §5: the capabilities we miss.
            assert_eq!(answer.data, [1, 4, 0, 1, 0, 1, 1, 4, 0, 2, 0, 1].as_slice());
        }
        assert_eq!(peer.session.state(), State::Idle);
        assert!(
            peer.outputs()
                .iter()
                .any(|o| matches!(o, Output::Close(Conn::Inbound)))
        );
        assert!(downs(&mut peer).is_empty(), "never up, never down");
    }
}

#[test]
fn another_version_and_broken_headers_are_refused() {
    let mut octets = BytesMut::new();
    raw(&mut octets, 1, &[5, 0, 1, 0, 90, 192, 0, 2, 2, 0]);
    let mut peer = Exchange::connected(config());
    recv!(peer, Msg::Open(_));
    peer.send_octets(&octets);
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 2,
            subcode: 1,
            ..
        })
    );

    let mut peer = Exchange::established(config(), peer_open());
    peer.send_octets(&[0; 19]);
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 1,
            subcode: 1,
            ..
        })
    );
    assert_eq!(downs(&mut peer), notified(1, 1));
}

#[test]
fn messages_at_the_wrong_time_are_errors_of_the_machine() {
    // RFC 6608 §3
    let mut peer = Exchange::connected(config());
    recv!(peer, Msg::Open(_));
    send!(peer, Msg::Update(&[0, 0, 0, 0]));
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 5,
            subcode: 1,
            ..
        })
    );

    let mut peer = Exchange::connected(config());
    send!(peer, Msg::Open(peer_open()), Msg::Update(&[0, 0, 0, 0]));
    recv!(
        peer,
        Msg::Open(_),
        Msg::Keepalive,
        Msg::Notification(Notification {
            code: 5,
            subcode: 2,
            ..
        })
    );

    let mut peer = Exchange::established(config(), peer_open());
    send!(peer, Msg::Open(peer_open()));
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 5,
            subcode: 3,
            ..
        })
    );
    assert_eq!(downs(&mut peer), notified(5, 3));
    send!(peer, Msg::Update(&[0, 0, 0, 0]));
    assert!(
        peer.outputs().is_empty(),
        "what comes after the end is ignored"
    );
}

#[test]
fn a_notification_is_not_answered() {
    for state in [State::OpenSent, State::OpenConfirm, State::Established] {
        let mut peer = Exchange::connected(config());
        recv!(peer, Msg::Open(_));
        if state > State::OpenSent {
            send!(peer, Msg::Open(peer_open()));
            recv!(peer, Msg::Keepalive);
        }
        if state > State::OpenConfirm {
            send!(peer, Msg::Keepalive);
        }
        assert_eq!(peer.session.state(), state);
        let bye = Notification::cease(cease::PEER_DECONFIGURED);
        send!(peer, Msg::Notification(bye.clone()));
        recv!(peer, nothing);
        let expected = (state == State::Established).then_some(DownReason::Received(bye));
        assert_eq!(downs(&mut peer), Vec::from_iter(expected));
    }
}

#[test]
fn the_operator_stops_with_a_text_and_starts_again() {
    let mut peer = Exchange::established(config(), peer_open());
    let bye = Notification::administrative_shutdown("back at ten");
    peer.handle(Input::Stop(bye.clone()));
    let message = peer.recv();
    assert_eq!(message, Some(Msg::Notification(bye.clone())));
    assert_eq!(downs(&mut peer), [DownReason::Sent(bye)]);
    assert_eq!(
        (peer.session.state(), peer.session.poll_timeout()),
        (State::Idle, None)
    );
    let refused = peer.connect().expect_err("stopped");
    assert_eq!(
        (refused.code, refused.subcode),
        (CEASE, cease::CONNECTION_REJECTED)
    );
    peer.handle(Input::Start);
    peer.connect().expect("admitted again");
    recv!(peer, Msg::Open(_));
}

#[test]
fn a_notification_overtakes_what_waits_but_cuts_no_message() {
    let mut peer = Exchange::established(config(), peer_open());
    let updates: Vec<Bytes> = (0..3)
        .map(|n| Msg::Update(vec![n; 50].leak()).encode())
        .collect();
    peer.session.queue(updates.concat().into());
    peer.session.queue(updates.concat().into());
    // The socket takes the first message and half of the second, then the operator stops.
    let mut slices = Vec::new();
    peer.session.fill(peer.conn, &mut slices, 100);
    let mut octets = BytesMut::from(slices.concat().as_slice());
    peer.session.sent(peer.conn, octets.len());
    peer.handle(Input::Stop(Notification::cease(cease::PEER_DECONFIGURED)));
    let mut rest = Vec::new();
    peer.session.fill(peer.conn, &mut rest, usize::MAX);
    octets.extend_from_slice(&rest.concat());
    assert_eq!(octets.len(), 2 * 69 + 21);
    assert_eq!(
        octets[2 * 69 + 18],
        3,
        "a NOTIFICATION at a message boundary"
    );
}

#[test]
fn a_fault_in_an_update_resets_and_the_session_comes_back() {
    let mut peer = Exchange::established(config(), peer_open());
    let fault = Notification::update_message(1, Bytes::new());
    peer.handle(Input::Rejected(fault.clone()));
    recv!(
        peer,
        Msg::Notification(Notification {
            code: 3,
            subcode: 1,
            ..
        })
    );
    assert_eq!(downs(&mut peer), [DownReason::Sent(fault)]);
    assert_eq!(peer.session.state(), State::Idle);
    peer.pass(1);
    assert_eq!(peer.session.state(), State::Active);
}

#[test]
fn the_idle_hold_doubles_with_each_error_in_a_row() {
    let mut peer = Exchange::start(SessionConfig {
        idle_hold_s: (2, 20),
        ..config()
    });
    let mut holds = Vec::new();
    for _ in 0..6 {
        peer.connect().expect("admitted");
        send!(peer, Msg::Keepalive);
        assert_eq!(peer.session.state(), State::Idle);
        let at = peer.session.poll_timeout().expect("an idle hold");
        holds.push((at - peer.now).as_secs_f64());
        if holds.len() > 1 {
            assert!(peer.connect().is_err(), "not before the hold is over");
        }
        peer.pass(20);
        assert_eq!(peer.session.state(), State::Active);
    }
    for (hold, most) in holds.iter().zip([2.0, 4.0, 8.0, 16.0, 20.0, 20.0]) {
        assert!((0.75 * most..=most).contains(hold), "{holds:?}");
    }
    // A session that stays up for the longest hold makes good for all.
    peer.connect().expect("admitted");
    establish(&mut peer);
    peer.pass_alive(20);
    let fault = Notification::new(3, 1);
    send!(peer, Msg::Notification(fault));
    assert_eq!(peer.session.stats().failures, 1);
}

/// The peer of a connection that is open says what establishes the session.
fn establish(peer: &mut Exchange) {
    assert!(matches!(peer.recv(), Some(Msg::Open(_))));
    send!(peer, Msg::Open(peer_open()), Msg::Keepalive);
    assert_eq!(peer.session.state(), State::Established);
}

#[test]
fn a_session_ended_by_a_limit_rests_for_as_long_as_it_is_told() {
    let mut peer = Exchange::established(config(), peer_open());
    let limit = Notification::prefix_limit(Family::IPV4_UNICAST, 7);
    peer.handle(Input::Limited {
        notification: limit.clone(),
        rest: Duration::from_secs(300),
    });
    assert_eq!(peer.recv(), Some(Msg::Notification(limit)));
    let until = peer.now + Duration::from_secs(300);
    assert_eq!(peer.session.barred_until(), Some(until));
    peer.pass(299);
    let refused = peer.connect().expect_err("whoever dials");
    assert_eq!(refused, Notification::cease(cease::CONNECTION_REJECTED));
    peer.pass(1);
    assert_eq!(peer.session.barred_until(), None);
    peer.connect().expect("the rest is over");
    // The operator may end it before.
    let mut peer = Exchange::established(config(), peer_open());
    peer.handle(Input::Limited {
        notification: Notification::cease(cease::MAXIMUM_PREFIXES_REACHED),
        rest: Duration::from_secs(300),
    });
    peer.handle(Input::Start);
    peer.connect().expect("by the operator's leave");
}

#[test]
fn a_peer_that_lost_its_connection_is_let_in_at_once() {
    let mut peer = Exchange::established(config(), peer_open());
    peer.handle(Input::Closed(Conn::Inbound));
    assert_eq!(downs(&mut peer), [DownReason::TransportLost]);
    assert_eq!(peer.session.state(), State::Idle);
    peer.connect().expect("before our own idle hold is over");
    assert_eq!(peer.session.state(), State::OpenSent);
}

#[test]
fn a_peer_that_goes_and_comes_back_again_and_again_is_never_refused() {
    let mut peer = Exchange::established(config(), peer_open());
    let reset = || Notification::cease(cease::ADMINISTRATIVE_RESET);
    for round in 0..6 {
        match round % 2 {
            0 => peer.handle(Input::Closed(Conn::Inbound)),
            _ => peer.send(&Msg::Notification(reset())),
        }
        assert_eq!(peer.session.state(), State::Idle);
        peer.connect().expect("it has done nothing wrong");
        establish(&mut peer);
    }
    // One that ends the session each time because of an error is made to wait.
    for _ in 0..2 {
        let fault = Notification::new(3, 1);
        send!(peer, Msg::Notification(fault));
        if peer.connect().is_ok() {
            establish(&mut peer);
        }
    }
    assert_eq!(peer.session.stats().failures, 2);
    peer.connect().expect_err("an error is rested on");
}

/// Two speakers that rest after errors, each turning away the other's dials, would never meet.
#[test]
fn who_is_turned_away_by_a_resting_peer_listens_while_it_rests() {
    let mut peer = Exchange::start(config());
    for _ in 0..3 {
        peer.connect().expect("admitted");
        send!(peer, Msg::Keepalive); // instead of an OPEN: an error
        assert_eq!(peer.session.state(), State::Idle);
        peer.pass(60);
    }
    peer.connect().expect("admitted");
    let resting = Notification::cease(cease::CONNECTION_REJECTED);
    send!(peer, Msg::Notification(resting));
    assert_eq!(peer.session.state(), State::Idle);
    assert_eq!(peer.session.stats().failures, 4);
    peer.connect().expect("the peer's rest is over before ours");
    send!(peer, Msg::Keepalive);
    assert!(peer.connect().is_err(), "an error of its own is rested on");
}

#[test]
fn a_dial_that_fails_or_hangs_is_repeated() {
    let active = SessionConfig {
        passive: false,
        connect_retry_s: 4,
        ..config()
    };
    let mut peer = Exchange::start(active);
    let dials = |peer: &mut Exchange| {
        peer.outputs()
            .iter()
            .filter(|o| matches!(o, Output::Dial))
            .count()
    };
    assert_eq!(
        (dials(&mut peer), peer.session.state()),
        (1, State::Connect)
    );
    peer.handle(Input::Failed(Conn::Outbound));
    assert_eq!(peer.session.state(), State::Active);
    peer.pass(4);
    assert_eq!(
        (dials(&mut peer), peer.session.state()),
        (1, State::Connect)
    );
    // This one hangs: given up and dialled anew.
    peer.pass(4);
    let told = peer.outputs();
    assert!(
        matches!(told[..], [Output::Close(Conn::Outbound), Output::Dial]),
        "{told:?}"
    );
    peer.handle(Input::Opened {
        conn: Conn::Outbound,
        local: end(1),
        remote: end(2),
    });
    peer.conn = Conn::Outbound;
    recv!(peer, Msg::Open(_));
    // Lost before the OPEN: back to waiting (RFC 4271 §8.2.2 OpenSent, event 18).
    peer.handle(Input::Closed(Conn::Outbound));
    assert_eq!(peer.session.state(), State::Active);
    peer.pass(4);
    assert_eq!(dials(&mut peer), 1);
}

#[test]
fn an_open_may_be_delayed() {
    let delayed = SessionConfig {
        open_delay_s: 10,
        ..config()
    };
    // The peer's OPEN comes first.
    let mut peer = Exchange::connected(delayed.clone());
    recv!(peer, nothing);
    send!(peer, Msg::Open(peer_open()));
    recv!(peer, Msg::Open(_), Msg::Keepalive);
    assert_eq!(peer.session.state(), State::OpenConfirm);
    // It does not come.
    let mut peer = Exchange::connected(delayed);
    peer.pass(10);
    recv!(peer, Msg::Open(_));
    assert_eq!(peer.session.state(), State::OpenSent);
}

fn graceful() -> (SessionConfig, Open) {
    let ours = GracefulRestartConfig {
        time_s: 60,
        ..GracefulRestartConfig::default()
    };
    let theirs = GracefulRestart {
        families: vec![(Family::IPV4_UNICAST, true), (Family::L2VPN_EVPN, true)],
        time_s: 120,
        ..GracefulRestart::default()
    };
    let mut open = peer_open();
    open.capabilities.push(Capability::GracefulRestart(theirs));
    (
        SessionConfig {
            graceful_restart: Some(ours),
            ..config()
        },
        open,
    )
}

#[test]
fn a_peer_that_restarted_takes_the_place_of_its_former_self() {
    // RFC 4724 §5
    let (config, open) = graceful();
    let mut peer = Exchange::established(config, open);
    let kept = &peer.session.params().expect("up").peer_graceful;
    assert_eq!(
        kept.as_ref().map(|g| g.families.as_slice()),
        Some([(Family::IPV4_UNICAST, true)].as_slice())
    );
    peer.pass(5);
    let refused = peer
        .connect()
        .expect_err("too young: this may be a late collision");
    assert_eq!(
        (refused.code, refused.subcode),
        (CEASE, cease::CONNECTION_COLLISION_RESOLUTION)
    );
    peer.pass(5);
    peer.connect().expect("restarted");
    assert_eq!(downs(&mut peer), [DownReason::Reopened]);
    recv!(peer, Msg::Open(_));
}

#[test]
fn without_graceful_restart_the_established_connection_is_kept() {
    let mut peer = Exchange::established(config(), peer_open());
    peer.pass_alive(60);
    assert!(peer.session.admit(peer.now).is_err());
    assert_eq!(peer.session.state(), State::Established);
}

#[test]
fn our_open_tells_of_our_restart_until_it_is_over() {
    let (config, open) = graceful();
    let mut peer = Exchange::start(config);
    peer.session.set_restarting(true);
    let flag = |peer: &mut Exchange| {
        peer.connect().expect("admitted");
        let Some(Msg::Open(open)) = peer.recv() else {
            panic!("no OPEN")
        };
        open.capabilities.iter().find_map(|c| match c {
            Capability::GracefulRestart(graceful) => {
                Some((graceful.restart_state, graceful.time_s))
            }
            _ => None,
        })
    };
    assert_eq!(flag(&mut peer), Some((true, 60)));
    send!(peer, Msg::Open(open), Msg::Keepalive);
    peer.session.set_restarting(false);
    peer.handle(Input::Closed(Conn::Inbound));
    assert_eq!(flag(&mut peer), Some((false, 60)));
}

/// An OPEN of a peer that restarts gracefully, with or without the N bit.
fn graceful_peer(notification: bool) -> Open {
    let mut open = peer_open();
    open.capabilities
        .push(Capability::GracefulRestart(GracefulRestart {
            notification,
            families: vec![(Family::IPV4_UNICAST, true)],
            ..GracefulRestart::default()
        }));
    open
}

#[test]
fn who_leaves_to_come_back_gives_no_reason_to_forget_it() {
    let bye = Notification::administrative_shutdown("upgrade");
    let (config, _) = graceful();
    // RFC 4724 §4.2: any NOTIFICATION would be the end.
    let mut peer = Exchange::established(config.clone(), graceful_peer(false));
    peer.handle(Input::Leave(bye.clone()));
    recv!(peer, nothing);
    let told = peer.outputs();
    assert!(told.iter().any(|o| matches!(o, Output::Close(_))));
    assert!(
        told.iter()
            .any(|o| matches!(o, Output::Down(DownReason::Left)))
    );
    assert!(peer.connect().is_err(), "left, not just down");
    // RFC 8538 §3: a Cease that is no hard reset; and who is no helper is told as ever.
    for open in [graceful_peer(true), peer_open()] {
        let mut peer = Exchange::established(config.clone(), open);
        peer.handle(Input::Leave(bye.clone()));
        assert_eq!(peer.recv(), Some(Msg::Notification(bye.clone())));
        assert_eq!(downs(&mut peer), [DownReason::Sent(bye.clone())]);
    }
}

/// RFC 8538 §4
#[test]
fn who_leaves_for_good_says_so() {
    let (config, _) = graceful();
    for (subcode, hard) in [
        (cease::ADMINISTRATIVE_SHUTDOWN, true),
        (cease::PEER_DECONFIGURED, true),
        (cease::OTHER_CONFIGURATION_CHANGE, false),
    ] {
        let bye = Notification::cease(subcode);
        let mut peer = Exchange::established(config.clone(), graceful_peer(true));
        peer.handle(Input::Stop(bye.clone()));
        let expected = if hard {
            Notification::hard_reset(&bye)
        } else {
            bye.clone()
        };
        assert_eq!(peer.recv(), Some(Msg::Notification(expected)));
        let mut peer = Exchange::established(config.clone(), graceful_peer(false));
        peer.handle(Input::Stop(bye.clone()));
        assert_eq!(peer.recv(), Some(Msg::Notification(bye)));
    }
    let limit = Notification::cease(cease::MAXIMUM_PREFIXES_REACHED);
    let mut peer = Exchange::established(config, graceful_peer(true));
    peer.handle(Input::Rejected(limit.clone()));
    assert_eq!(
        downs(&mut peer),
        [DownReason::Sent(Notification::hard_reset(&limit))]
    );
}

#[test]
fn which_ends_keep_the_routes() {
    // RFC 4724 §4.2, RFC 8538 §3
    let reset = Notification::cease(cease::HARD_RESET);
    let bye = Notification::cease(cease::ADMINISTRATIVE_RESET);
    assert!(DownReason::TransportLost.is_graceful(false));
    assert!(!DownReason::Received(bye.clone()).is_graceful(false));
    assert!(DownReason::Received(bye).is_graceful(true));
    assert!(!DownReason::Received(reset).is_graceful(true));
}

#[test]
fn a_session_knows_when_its_peer_has_left() {
    let mut peer = Exchange::start(config());
    assert!(!peer.session.is_deserted(), "nobody has come yet");
    peer.session.admit(peer.now).expect("admitted");
    assert!(!peer.session.is_deserted(), "one is coming");
    peer.connect().expect("admitted");
    assert!(!peer.session.is_deserted());
    // Gone before its OPEN: the machine waits in Active, for nobody.
    peer.handle(Input::Closed(Conn::Inbound));
    assert_eq!(peer.session.state(), State::Active);
    assert!(peer.session.is_deserted());
    peer.connect().expect("back again");
    peer.connect().expect("anew, in the place of the older");
    assert!(!peer.session.is_deserted());
}
