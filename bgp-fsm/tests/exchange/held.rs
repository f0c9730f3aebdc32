//! A new connection while an older one is in use: it is held, and ends a session only if the older
//! one is dead.

use super::graceful::graceful;
use super::*;
use bgp_fsm::limits::{HELD_TIME, PROBE_TIME, PROBE_UNANSWERED_MIN};
use bgp_proto::notification::fsm;

const DEAD: Probed = Probed::Silent {
    unanswered: PROBE_UNANSWERED_MIN,
    sent: 1,
};

/// Returns a session with a hold time of one minute, with graceful restart or without.
fn established(with_restart: bool) -> Exchange {
    let (config, open) = match with_restart {
        true => graceful(),
        false => (config(), peer_open()),
    };
    let mut peer = Exchange::established(config, open);
    peer.pass_alive(60);
    peer.outputs();
    peer
}

/// Holds a connection that has sent `open`.
fn hold(peer: &mut Exchange, open: Open) {
    assert_eq!(peer.connect_again(), Ok(Conn::Held));
    peer.send_on(Conn::Held, &Msg::Open(open));
}

fn ends(peer: &mut Exchange) -> Vec<HeldEnd> {
    let outputs = peer.outputs().into_iter();
    let ends = outputs.filter_map(|output| match output {
        Output::HeldEnded(end) => Some(end),
        _ => None,
    });
    ends.collect()
}

/// Reports the same probe result for a while, at every probe.
fn find(peer: &mut Exchange, probed: Probed, time: Duration) {
    let until = peer.now + time;
    while let Some(at) = peer.session.poll_timeout().filter(|at| *at <= until) {
        peer.now = at;
        peer.outputs();
        peer.handle(Input::Timeout);
        let asked = |output: &Output| matches!(output, Output::Probe { begins: false, .. });
        if peer.outputs.iter().any(asked) {
            peer.handle(Input::Probed(probed));
        }
        if peer.session.established() != Some(Conn::Inbound) || peer.session.reads(Conn::Held) {
            return;
        }
    }
    peer.now = until;
}

#[test]
fn bare_connections_never_end_a_session() {
    let mut peer = established(true);
    for _ in 0..100 {
        assert_eq!(peer.connect_again(), Ok(Conn::Held));
        peer.pass_alive(20);
    }
    assert_eq!(peer.session.state(), State::Established);
    assert_eq!(peer.session.stats().flaps, 0);
    assert_eq!(peer.session.stats().held, 100);
    assert_eq!(ends(&mut peer).last(), Some(&HeldEnd::Expired));
}

#[test]
fn dead_connection_gives_way_to_an_open_of_the_same_peer() {
    for with_restart in [true, false] {
        let mut peer = established(with_restart);
        let (_, mut open) = graceful();
        open.capabilities.remove(1); // An upgrade, or a downgrade.
        hold(&mut peer, open.clone());
        let begun = peer.now;
        recv!(peer, Msg::Keepalive);
        assert!(matches!(
            peer.outputs()[..],
            [Output::Probe { begins: true, .. }]
        ));
        find(&mut peer, DEAD, Duration::from_secs(2));
        let took = peer.now - begun;
        assert!((PROBE_TIME..PROBE_TIME * 2).contains(&took), "{took:?}");
        let outputs = peer.outputs();
        let at = |wanted: fn(&Output) -> bool| outputs.iter().position(wanted).expect("an output");
        let closed = at(|o| matches!(o, Output::Close(Conn::Inbound)));
        let down = at(|o| matches!(o, Output::Down(DownReason::Reopened)));
        let promoted = at(|o| matches!(o, Output::Promote));
        assert!(closed < promoted && down < promoted, "{outputs:?}");
        // Its OPEN has already been processed.
        assert_eq!(peer.session.state(), State::OpenConfirm);
        recv!(peer, Msg::Open(_), Msg::Keepalive);
        peer.send(&Msg::Keepalive);
        assert_eq!(peer.session.state(), State::Established);
        assert_eq!(peer.session.peer_open(), Some(&open));
    }
}

#[test]
fn connection_that_acknowledges_is_kept() {
    let mut peer = established(true);
    hold(&mut peer, graceful().1);
    find(&mut peer, DEAD, Duration::from_millis(500));
    peer.handle(Input::Probed(Probed::Answered));
    assert_eq!(ends(&mut peer), [HeldEnd::OlderAlive]);
    let refused = Notification::cease(cease::CONNECTION_COLLISION_RESOLUTION);
    let words = peer.last_words(Conn::Held);
    assert_eq!(words, Some(Msg::Notification(refused)));
    // Later results are ignored.
    peer.handle(Input::Probed(DEAD));
    assert_eq!(peer.session.state(), State::Established);
}

#[test]
fn silence_without_enough_segments_proves_nothing() {
    for (probed, time) in [
        // Nothing could be sent: a closed window, or a long retransmission timer.
        (
            Probed::Silent {
                unanswered: 40,
                sent: 0,
            },
            HELD_TIME,
        ),
        // Too few to be certain on a lossy path.
        (
            Probed::Silent {
                unanswered: PROBE_UNANSWERED_MIN - 1,
                sent: PROBE_UNANSWERED_MIN - 1,
            },
            HELD_TIME,
        ),
        // Too short a time.
        (DEAD, PROBE_TIME),
    ] {
        let mut peer = established(true);
        hold(&mut peer, graceful().1);
        find(&mut peer, probed, time);
        assert_eq!(peer.session.stats().flaps, 0, "{probed:?}");
        assert_eq!(peer.session.established(), Some(Conn::Inbound));
    }
}

#[test]
fn probe_without_figures_leaves_it_to_the_hold_timer() {
    let mut peer = established(true);
    hold(&mut peer, graceful().1);
    peer.pass(15);
    assert_eq!(peer.session.state(), State::Established);
    assert_eq!(ends(&mut peer), [HeldEnd::Expired]);
    peer.pass(90);
    assert_eq!(downs(&mut peer).len(), 1, "the hold timer");
}

#[test]
fn probe_sends_few_keepalives_and_none_behind_a_backlog() {
    let mut peer = established(true);
    hold(&mut peer, graceful().1);
    let mut keepalives = 0;
    for _ in 0..100 {
        find(
            &mut peer,
            Probed::Silent {
                unanswered: 1,
                sent: 1,
            },
            Duration::from_millis(100),
        );
        keepalives += std::iter::from_fn(|| peer.recv()).count();
    }
    assert!((5..=16).contains(&keepalives), "{keepalives}");
    peer.handle(Input::Probed(Probed::Answered));
    peer.session.queue(Msg::Update(&[0; 200]).encode());
    hold(&mut peer, graceful().1);
    recv!(peer, Msg::Update(_));
}

#[test]
fn open_of_another_speaker_is_refused() {
    let other_id = Open {
        id: id(9),
        ..graceful().1
    };
    let mut other_asn = graceful().1;
    other_asn.asn = Asn(64514);
    other_asn
        .capabilities
        .retain(|c| !matches!(c, Capability::FourOctetAsn(_)));
    for open in [other_id, other_asn] {
        let mut peer = established(true);
        hold(&mut peer, open);
        let refused = Notification::cease(cease::CONNECTION_COLLISION_RESOLUTION);
        assert_eq!(ends(&mut peer), [HeldEnd::Invalid(refused.clone())]);
        assert_eq!(
            peer.last_words(Conn::Held),
            Some(Msg::Notification(refused))
        );
        recv!(peer, nothing);
        assert_eq!(peer.session.state(), State::Established);
    }
}

#[test]
fn held_connection_must_begin_with_a_valid_open() {
    let unexpected = Notification::fsm(fsm::UNEXPECTED_IN_OPEN_SENT);
    let mut peer = established(true);
    for message in [Msg::Keepalive, Msg::Update(&[0; 4])] {
        assert_eq!(peer.connect_again(), Ok(Conn::Held));
        peer.send_on(Conn::Held, &message);
        assert_eq!(ends(&mut peer), [HeldEnd::Invalid(unexpected.clone())]);
    }
    // RFC 4271 §6.4: a NOTIFICATION is not answered.
    assert_eq!(peer.connect_again(), Ok(Conn::Held));
    peer.send_on(Conn::Held, &Msg::Notification(Notification::cease(1)));
    assert_eq!(peer.last_words(Conn::Held), None);
    hold(
        &mut peer,
        Open {
            hold_time: 2,
            ..graceful().1
        },
    );
    let ended = ends(&mut peer);
    assert!(
        matches!(&ended[..], [_, HeldEnd::Invalid(n)] if n.code == 2),
        "{ended:?}"
    );
    assert_eq!(peer.session.stats().flaps, 0);
}

#[test]
fn silent_held_connection_gives_way_to_a_newer_one() {
    let mut peer = established(true);
    assert_eq!(peer.connect_again(), Ok(Conn::Held));
    hold(&mut peer, graceful().1);
    assert_eq!(ends(&mut peer), [HeldEnd::Replaced]);
    // One with a valid OPEN stays, and nothing after its OPEN is processed.
    assert!(peer.connect_again().is_err());
    assert!(!peer.session.reads(Conn::Held));
    peer.handle(Input::Closed(Conn::Held));
    assert_eq!(ends(&mut peer), [HeldEnd::Closed]);
    assert_eq!(peer.connect_again(), Ok(Conn::Held));
}

#[test]
fn held_connection_follows_a_session_that_ends_by_itself() {
    // A reset by the kernel, with and without an OPEN on the held one.
    for with_open in [true, false] {
        let mut peer = established(true);
        match with_open {
            true => hold(&mut peer, graceful().1),
            false => assert_eq!(peer.connect_again(), Ok(Conn::Held)),
        }
        peer.handle(Input::Closed(Conn::Inbound));
        assert_eq!(ends(&mut peer), [HeldEnd::Promoted]);
        let expected = if with_open {
            State::OpenConfirm
        } else {
            State::OpenSent
        };
        assert_eq!(peer.session.state_of(Conn::Inbound), expected);
    }
    // A stop by the operator applies to both.
    let mut peer = established(true);
    hold(&mut peer, graceful().1);
    peer.handle(Input::Stop(Notification::administrative_shutdown("")));
    let refused = Notification::cease(cease::CONNECTION_REJECTED);
    assert_eq!(ends(&mut peer), [HeldEnd::Invalid(refused)]);
    assert_eq!(peer.session.state(), State::Idle);
}

#[test]
fn last_words_go_to_the_older_connection() {
    let mut peer = Exchange::connected(config());
    recv!(peer, Msg::Open(_));
    peer.send(&Msg::Open(peer_open()));
    recv!(peer, Msg::Keepalive);
    hold(&mut peer, peer_open());
    peer.send(&Msg::Update(&[0; 4]));
    let unexpected = Notification::fsm(fsm::UNEXPECTED_IN_OPEN_CONFIRM);
    assert_eq!(peer.words, Some(Msg::Notification(unexpected)));
    recv!(peer, Msg::Open(_), Msg::Keepalive);
}

#[test]
fn inbound_connection_with_an_open_is_not_dumped_for_a_bare_one() {
    let mut peer = Exchange::connected(config());
    recv!(peer, Msg::Open(_));
    peer.send(&Msg::Open(peer_open()));
    for _ in 0..10 {
        assert_eq!(peer.connect_again(), Ok(Conn::Held));
    }
    recv!(peer, Msg::Keepalive);
    peer.send(&Msg::Keepalive);
    assert_eq!(peer.session.state(), State::Established);
    assert_eq!(ends(&mut peer).last(), Some(&HeldEnd::OlderAlive));
    // But if the older one belonged to a host that has died, the newer one follows.
    let mut peer = Exchange::connected(config());
    peer.send(&Msg::Open(peer_open()));
    hold(&mut peer, peer_open());
    peer.handle(Input::Closed(Conn::Inbound));
    assert_eq!(ends(&mut peer), [HeldEnd::Promoted]);
    assert_eq!(peer.session.state(), State::OpenConfirm);
}

#[test]
fn inbound_open_of_another_speaker_does_not_dump_our_dial() {
    let active = config().with(|config| config.passive = false);
    let mut peer = Exchange::start(active);
    peer.handle(Input::Opened {
        conn: Conn::Outbound,
        local: end(1),
        remote: end(2),
    });
    peer.send_on(Conn::Outbound, &Msg::Open(peer_open()));
    assert_eq!(peer.session.state_of(Conn::Outbound), State::OpenConfirm);
    // Its identifier is higher than the local one, so that by RFC 4271 §6.8 alone it would win.
    assert_eq!(peer.connect_again(), Ok(Conn::Inbound));
    peer.send_on(
        Conn::Inbound,
        &Msg::Open(Open {
            id: id(200),
            ..peer_open()
        }),
    );
    assert_eq!(peer.session.state_of(Conn::Outbound), State::OpenConfirm);
    assert_eq!(peer.session.state_of(Conn::Inbound), State::Idle);
}

/// Returns a configuration in strict mode, and the OPEN of a peer with the same.
fn strict() -> (SessionConfig, Open) {
    let mut open = peer_open();
    open.capabilities.push(Capability::BfdStrictMode);
    (config().with(|config| config.bfd_strict = true), open)
}

#[test]
fn open_replaces_a_connection_that_awaits_the_path() {
    for is_ready in [false, true] {
        let (config, open) = strict();
        let mut peer = Exchange::connected(config);
        recv!(peer, Msg::Open(_));
        send!(peer, Msg::Open(open.clone()));
        if is_ready {
            send!(peer, Msg::Keepalive);
        }
        assert!(peer.session.awaits_path());
        peer.outputs();
        // The host has restarted without a word on the older connection.
        hold(&mut peer, open);
        assert_eq!(ends(&mut peer), [HeldEnd::Promoted]);
        let replaced = Notification::cease(cease::CONNECTION_COLLISION_RESOLUTION);
        assert_eq!(peer.words, Some(Msg::Notification(replaced)));
        recv!(peer, Msg::Open(_));
        assert!(peer.session.awaits_path());
        // The KEEPALIVE of the older connection does not count.
        peer.handle(Input::PathIsUp(true));
        assert_eq!(peer.session.state(), State::OpenConfirm);
        recv!(peer, Msg::Keepalive);
        send!(peer, Msg::Keepalive);
        assert_eq!(peer.session.state(), State::Established);
        assert_eq!(peer.session.stats().failures, 0);
    }
}

#[test]
fn another_speaker_does_not_replace_a_waiting_connection() {
    let (config, open) = strict();
    let mut peer = Exchange::connected(config);
    recv!(peer, Msg::Open(_));
    send!(peer, Msg::Open(open.clone()));
    hold(
        &mut peer,
        Open {
            id: id(200),
            ..open
        },
    );
    assert_eq!(ends(&mut peer), []);
    assert!(peer.session.awaits_path() && !peer.session.reads(Conn::Held));
}
