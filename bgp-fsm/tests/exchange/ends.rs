//! Ends of sessions, their idle hold, and their new start.

use super::*;

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
    // The socket accepts the first message and half of the second, then the operator stops the
    // session.
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
fn session_is_restarted_after_an_update_error() {
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
    let mut peer = Exchange::start(config().with(|config| config.idle_hold_s = (2, 20)));
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
    // A session that stays established for the longest hold resets the count of failures.
    peer.connect().expect("admitted");
    establish(&mut peer);
    peer.pass_alive(20);
    let fault = Notification::new(3, 1);
    send!(peer, Msg::Notification(fault));
    assert_eq!(peer.session.stats().failures, 1);
}

/// Sends the peer's messages that establish the session on an open connection.
fn establish(peer: &mut Exchange) {
    assert!(matches!(peer.recv(), Some(Msg::Open(_))));
    send!(peer, Msg::Open(peer_open()), Msg::Keepalive);
    assert_eq!(peer.session.state(), State::Established);
}

#[test]
fn idle_hold_after_a_limit_lasts_the_given_time() {
    let mut peer = Exchange::established(config(), peer_open());
    let limit = Notification::prefix_limit(Family::IPV4_UNICAST, 7);
    peer.handle(Input::Limited {
        notification: limit.clone(),
        idle_hold: Duration::from_secs(300),
    });
    assert_eq!(peer.recv(), Some(Msg::Notification(limit)));
    let until = peer.now + Duration::from_secs(300);
    assert_eq!(peer.session.idle_hold_until(), Some(until));
    peer.pass(299);
    let refused = peer.connect().expect_err("whoever dials");
    assert_eq!(refused, Notification::cease(cease::CONNECTION_REJECTED));
    peer.pass(1);
    assert_eq!(peer.session.idle_hold_until(), None);
    peer.connect().expect("the rest is over");
    // The operator may end the idle hold earlier.
    let mut peer = Exchange::established(config(), peer_open());
    peer.handle(Input::Limited {
        notification: Notification::cease(cease::MAXIMUM_PREFIXES_REACHED),
        idle_hold: Duration::from_secs(300),
    });
    peer.handle(Input::Start);
    peer.connect().expect("by the operator's leave");
}

#[test]
fn peer_is_accepted_at_once_after_a_lost_connection() {
    let mut peer = Exchange::established(config(), peer_open());
    peer.handle(Input::Closed(Conn::Inbound));
    assert_eq!(downs(&mut peer), [DownReason::TransportLost]);
    assert_eq!(peer.session.state(), State::Idle);
    peer.connect().expect("before our own idle hold is over");
    assert_eq!(peer.session.state(), State::OpenSent);
}

#[test]
fn peer_that_returns_often_is_never_rejected() {
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
    // A peer that ends the session each time because of an error is put into idle hold.
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

/// Two speakers in idle hold after errors that reject each other's connections would never connect.
#[test]
fn peer_rejected_in_idle_hold_accepts_connections() {
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
    let active = config().with(|config| {
        config.passive = false;
        config.connect_retry_s = 4;
    });
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
    // This connection hangs: it is abandoned and dialed again.
    peer.pass(4);
    let outputs = peer.outputs();
    assert!(
        matches!(outputs[..], [Output::Close(Conn::Outbound), Output::Dial]),
        "{outputs:?}"
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
