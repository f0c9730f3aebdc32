//! Signs of life: hold timers, keepalives, and peers that do not read.

use super::*;

#[test]
fn silent_peer_gets_hold_timer_expired() {
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
fn handshake_beyond_its_limit_ends_connection() {
    // By default, as configured, and at most what RFC 4271 §8.2.2 suggests.
    for (configured, limit) in [(None, 15), (Some(40), 40), (Some(u16::MAX), 240)] {
        let mut config = config();
        config.handshake_s = configured.unwrap_or(config.handshake_s);
        let mut peer = Exchange::connected(config);
        recv!(peer, Msg::Open(_));
        peer.pass(limit - 1);
        assert_eq!(peer.session.state(), State::OpenSent);
        peer.pass(1);
        recv!(peer, Msg::Notification(Notification { code: 4, .. }));
    }
}

#[test]
fn open_without_keepalive_does_not_extend_handshake() {
    // Without keepalives no hold timer ends OpenConfirm either.
    for hold_time in [0, 90] {
        let mut peer = Exchange::connected(config());
        recv!(peer, Msg::Open(_));
        peer.pass(10);
        send!(
            peer,
            Msg::Open(Open {
                hold_time,
                ..peer_open()
            })
        );
        recv!(peer, Msg::Keepalive);
        peer.pass(4);
        assert_eq!(peer.session.state(), State::OpenConfirm);
        while peer.recv().is_some() {}
        peer.pass(1);
        recv!(peer, Msg::Notification(Notification { code: 4, .. }));
        assert_ne!(peer.session.state(), State::OpenConfirm);
    }
}

#[test]
fn established_session_has_no_handshake_limit() {
    let mut peer = Exchange::established(config(), peer_open());
    peer.pass(16);
    while peer.recv().is_some() {}
    assert_eq!(peer.session.state(), State::Established);
}

#[test]
fn keepalive_interval_is_a_third_of_the_hold_time() {
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
fn session_without_hold_time_has_no_keepalives() {
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
fn send_hold_timer_ends_session_of_unread_peer() {
    // RFC 9687: eight minutes, or the configured time.
    for (send_hold_s, patience) in [(None, 480), (Some(10), 10)] {
        let mut peer = Exchange::established(
            config().with(|config| config.send_hold_s = send_hold_s),
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
    let slow = config().with(|config| config.send_hold_s = Some(10));
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
fn unread_octets_extend_hold_time_up_to_a_limit() {
    let mut peer = Exchange::established(config(), peer_open());
    peer.pass(60);
    peer.handle(Input::ReadPaused { unread: true });
    peer.pass(60);
    assert_eq!(
        peer.session.state(),
        State::Established,
        "the hold timer has not fired"
    );
    // Reading continues: the unread octets get time to be read.
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
