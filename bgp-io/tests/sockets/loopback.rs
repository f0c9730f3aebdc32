//! Speakers over real sockets on this machine's loopback addresses.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::support::{
    PATIENCE, RawPeer, announce, beside, down, held, host, io, is_up, local, med, neighbor, pair,
    port, speaker, stall, two_ports, until, up,
};
use bgp_io::bgp_fsm::DownReason;
use bgp_io::bgp_proto::{MessageKind, Notification};
use bgp_io::bgp_speaker::{Input, RangeConfig, Refusal};
use bgp_io::{Event, Io, IoConfig, IoError, ReconfigureError, Speaker, StopMode};

#[tokio::test]
async fn two_speakers_exchange_routes() {
    let mut pair = pair(11, 12, |_, _| {});
    announce(&mut pair[0], 1);
    announce(&mut pair[1], 2);
    until(&mut pair, |pair, _| {
        med(&pair[1], 1) == Some(1) && med(&pair[0], 2) == Some(2)
    })
    .await;
    // A change is advertised, a removed route is withdrawn.
    announce(&mut pair[0], 3);
    local(&mut pair[0], 1, None);
    until(&mut pair, |pair, _| {
        med(&pair[1], 3) == Some(3) && med(&pair[1], 1).is_none()
    })
    .await;
    assert!(up(&pair, None));
}

#[tokio::test]
async fn both_may_dial_at_once() {
    // Each must have the other's port before it starts: the second gets it from the first.
    let mut a = io(13, speaker(13));
    let peer = neighbor(14, host(13).into(), Some(port(&a)));
    let b = io(14, speaker(14).with_peer(peer));
    let peer = neighbor(13, host(14).into(), Some(port(&b)));
    a.reconfigure(speaker(13).with_peer(peer))
        .expect("same speaker");
    let mut pair = [a, b];
    announce(&mut pair[0], 1);
    until(&mut pair, |pair, event| {
        up(pair, event) && med(&pair[1], 1).is_some()
    })
    .await;
}

#[tokio::test]
async fn large_table_is_transferred() {
    const ROUTES: u32 = 40_000;
    let mut pair = pair(15, 16, |_, _| {});
    (0..ROUTES).for_each(|number| announce(&mut pair[0], number));
    let start = std::time::Instant::now();
    until(&mut pair, |pair, _| held(&pair[1]) == ROUTES as usize).await;
    println!(
        "{ROUTES} routes of as many attribute sets in {:?}",
        start.elapsed()
    );
    assert_eq!(med(&pair[1], ROUTES - 1), Some(ROUTES - 1));
}

#[tokio::test]
async fn ipv6_works_beside_ipv4_on_the_same_port() {
    let free = two_ports();
    let listen = vec![
        SocketAddr::from(([127, 0, 0, 17], free)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, free)),
    ];
    let all = vec![
        SocketAddr::from(([0; 4], free)),
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, free)),
    ];
    drop(Io::new(Speaker::new(speaker(17), 1), IoConfig::new(all)).expect("both, anywhere"));
    let localhost = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let passive = neighbor(17, localhost, None);
    let config = speaker(17).with_peer(passive);
    let passive = Io::new(Speaker::new(config, 1), IoConfig::new(listen)).expect("both");
    let active = neighbor(18, localhost, Some(free));
    let active = io(18, speaker(18).with_peer(active));
    until(&mut [active, passive], up).await;
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let first = io(19, speaker(19));
    let listen = vec![SocketAddr::from((host(19), port(&first)))];
    let second = Io::new(Speaker::new(speaker(19), 1), IoConfig::new(listen));
    let error = second.expect_err("taken");
    assert!(matches!(error, IoError::PortInUse { .. }), "{error}");
}

#[tokio::test]
async fn missing_listen_address_does_not_block_the_others() {
    let absent: SocketAddr = "192.0.2.1:0".parse().expect("an address");
    let listen = vec![absent, SocketAddr::from((host(19), 0))];
    let mut us = Io::new(Speaker::new(speaker(19), 1), IoConfig::new(listen)).expect("one of them");
    assert_eq!(us.unbound().collect::<Vec<_>>(), [absent]);
    assert_eq!(us.listening().count(), 1);
    let events = us.next().await;
    assert!(
        matches!(
            &events[..],
            [Event::ListenFailed(IoError::NoSuchAddress { .. })]
        ),
        "{events:?}"
    );
}

/// Whether a socket listens there.
async fn accepts_connections(address: SocketAddr) -> bool {
    tokio::net::TcpStream::connect(address).await.is_ok()
}

// Promise (BGP): The listening addresses change without an effect on sessions.
/// From one address to all and back, and on to another one: sessions stay, and so does a connection
/// that waits at a socket that closes.
#[tokio::test]
async fn listen_addresses_change_without_session_reset() {
    let base = two_ports();
    let first = SocketAddr::from((host(61), base));
    let second = SocketAddr::from((host(64), base + 1));
    let mut anywhere = neighbor(61, host(63).into(), None);
    anywhere.local = None;
    let peers = vec![neighbor(61, host(62).into(), None), anywhere];
    let speaker_of = |last, peers| speaker(last).with_peers(peers);
    let us = Speaker::new(speaker_of(61, peers), 61);
    let listen = vec![first];
    let us = Io::new(us, IoConfig::new(listen)).expect("it can listen");
    let one = io(
        62,
        speaker_of(62, vec![neighbor(62, host(61).into(), Some(base))]),
    );
    let mut pair = [us, one];
    until(&mut pair, up).await;
    let [mut us, one] = pair;
    us.listen_on(&[first]);
    assert_eq!(us.listening().collect::<Vec<_>>(), [first]);

    // Another connection waits, and is not yet accepted when the socket closes.
    let mut waiting = RawPeer::dial(63, first, None).await;
    let all = SocketAddr::from(([0; 4], base));
    us.listen_on(&[all]);
    assert_eq!(us.listening().collect::<Vec<_>>(), [all]);
    let greeted = beside(&mut us, waiting.recv(), |_| {}).await;
    assert_eq!(greeted.map(|frame| frame.kind), Some(MessageKind::Open));
    drop(waiting);
    assert!(accepts_connections(SocketAddr::from((host(65), base))).await);

    // One of these addresses again, and one that another program uses for a while.
    let taken = std::net::TcpListener::bind(second).expect("an address");
    us.listen_on(&[first, second]);
    assert_eq!(us.listening().collect::<Vec<_>>(), [first]);
    assert_eq!(us.unbound().collect::<Vec<_>>(), [second]);
    assert!(!accepts_connections(SocketAddr::from((host(65), base))).await);
    let is_failure =
        |event: &Event| matches!(event, Event::ListenFailed(IoError::PortInUse { .. }));
    let failure = async { while !us.next().await.iter().any(is_failure) {} };
    let failure = tokio::time::timeout(PATIENCE, failure).await;
    failure.expect("the port is in use");
    drop(taken);
    us.listen_on(&[first, second]);
    assert_eq!(us.listening().collect::<Vec<_>>(), [first, second]);
    us.listen_on(&[second]);
    assert_eq!(us.listening().collect::<Vec<_>>(), [second]);
    assert!(!accepts_connections(first).await);

    // The first session is not affected; the other one uses the new socket.
    let mut pair = [us, one];
    announce(&mut pair[1], 1);
    until(&mut pair, |pair, event| {
        assert!(
            event.is_none_or(|(_, event)| down(event).is_none()),
            "{event:?}"
        );
        med(&pair[0], 1) == Some(1)
    })
    .await;
    let [us, _one] = pair;
    let other = neighbor(63, second.ip(), Some(second.port()));
    let mut pair = [us, io(63, speaker_of(63, vec![other]))];
    until(&mut pair, |pair, _| is_up(&pair[1])).await;
}

#[tokio::test]
async fn unknown_peer_gets_a_cease_and_is_closed() {
    let mut us = io(20, speaker(20));
    let to = SocketAddr::from((host(20), port(&us)));
    let stranger = async {
        let mut stranger = RawPeer::dial(21, to, None).await;
        let word = stranger.recv().await.expect("a last word");
        assert_eq!(word.kind, MessageKind::Notification);
        assert_eq!(word.body[..2], [6, 5], "Cease/Connection Rejected");
        assert_eq!(stranger.recv().await, None);
    };
    let mut refused = Vec::new();
    beside(&mut us, stranger, |event| refused.push(event)).await;
    let [
        Event::Refused {
            remote,
            refusal: Refusal::Unknown,
            ..
        },
    ] = &refused[..]
    else {
        panic!("{refused:?}")
    };
    assert_eq!(remote.ip(), IpAddr::V4(host(21)));
}

#[tokio::test]
async fn range_accepts_peers_up_to_its_limit() {
    let prefix = "127.0.0.0/8".parse().expect("a prefix");
    let range = RangeConfig::new(prefix, 1, neighbor(22, host(0).into(), None));
    let mut us = io(22, speaker(22).with_range(range));
    let to = SocketAddr::from((host(22), port(&us)));
    let guest = async {
        let mut first = RawPeer::dial(23, to, None).await;
        first.open(23).await;
        let answers = [first.recv().await, first.recv().await];
        let kinds = answers.map(|answer| answer.expect("an answer").kind);
        assert_eq!(kinds, [MessageKind::Open, MessageKind::Keepalive]);
        first.send(4, &[]).await;
        first
    };
    let _first = beside(&mut us, guest, |_| {}).await;
    // A connection without a session would make room.
    while !is_up(&us) {
        beside(&mut us, tokio::task::yield_now(), |_| {}).await;
    }
    let guests = async {
        let mut second = RawPeer::dial(24, to, None).await;
        let word = second.recv().await.expect("a last word");
        let word = Notification::parse(&word.body).expect("a NOTIFICATION");
        let text = word.to_string();
        assert!(
            text.starts_with("Cease/Out of Resources: neighbor_range "),
            "{text}"
        );
        assert!(text.ends_with(" is full: limit = 1"), "{text}");
    };
    let mut events = Vec::new();
    beside(&mut us, guests, |event| events.push(event)).await;
    let full = |event: &Event| {
        matches!(
            event,
            Event::Refused {
                refusal: Refusal::RangeFull { limit: 1, .. },
                ..
            }
        )
    };
    assert!(events.iter().any(full), "{events:?}");
}

#[tokio::test]
async fn a_guest_that_leaves_before_its_open_frees_its_place() {
    let prefix = "127.0.0.0/8".parse().expect("a prefix");
    let range = RangeConfig::new(prefix, 1, neighbor(38, host(0).into(), None));
    let mut us = io(38, speaker(38).with_range(range));
    let to = SocketAddr::from((host(38), port(&us)));
    let guest = RawPeer::dial(39, to, None);
    drop(beside(&mut us, guest, |_| {}).await);
    let mut gone = false;
    while !gone {
        gone = us
            .next()
            .await
            .iter()
            .any(|event| matches!(event, Event::PeerRemoved(_)));
    }
    let second = async {
        let mut second = RawPeer::dial(40, to, None).await;
        second.recv().await.expect("an answer").kind
    };
    assert_eq!(beside(&mut us, second, |_| {}).await, MessageKind::Open);
}

#[tokio::test]
async fn refused_dial_is_reported_and_repeated() {
    let closed = {
        let there = io(25, speaker(25));
        port(&there)
    };
    let peer = neighbor(26, host(25).into(), Some(closed));
    let mut us = io(26, speaker(26).with_peer(peer));
    let mut failures = 0;
    while failures < 2 {
        for event in us.next().await {
            failures += u32::from(matches!(event, Event::DialFailed { .. }));
        }
    }
}

#[tokio::test]
async fn the_last_words_arrive() {
    let mut pair = pair(27, 28, |_, _| {});
    until(&mut pair, up).await;
    let bye = Notification::administrative_shutdown("back at ten");
    let [mut us, mut them] = pair;
    let mut reason = None;
    beside(&mut them, us.shutdown(StopMode::Permanent, &bye), |event| {
        reason = reason.take().or_else(|| down(&event).cloned())
    })
    .await;
    // This side has closed; the peer reads the rest in its own time.
    let read = async {
        while reason.is_none() {
            reason = them.next().await.iter().find_map(down).cloned();
        }
    };
    let read = tokio::time::timeout(PATIENCE, read).await;
    read.expect("they have read it");
    assert_eq!(reason, Some(DownReason::Received(bye)));
    assert!(!is_up(&them));
    assert!(us.listening().next().is_none());
}

#[tokio::test]
async fn a_broken_header_ends_the_session_with_its_name() {
    let peer = neighbor(29, host(30).into(), None);
    let mut us = io(29, speaker(29).with_peer(peer));
    let to = SocketAddr::from((host(29), port(&us)));
    let peer = async {
        let mut peer = RawPeer::dial(30, to, None).await;
        peer.open(30).await;
        peer.send(9, &[]).await;
        let kinds = [MessageKind::Open, MessageKind::Keepalive];
        for kind in kinds {
            assert_eq!(peer.recv().await.map(|frame| frame.kind), Some(kind));
        }
        let word = peer.recv().await.expect("a last word");
        assert_eq!(
            (word.kind, &word.body[..]),
            (MessageKind::Notification, [1, 3, 9].as_slice())
        );
        assert_eq!(peer.recv().await, None);
    };
    beside(&mut us, peer, |_| {}).await;
}

#[tokio::test]
async fn a_configuration_is_taken_while_running() {
    let mut pair = pair(31, 32, |_, _| {});
    until(&mut pair, up).await;
    let same = pair[0].speaker().config().clone();
    assert_eq!(
        pair[0].reconfigure(same.clone()).expect("the same"),
        Default::default()
    );
    assert!(is_up(&pair[0]), "what stays the same stays up");
    let mut other = same.clone();
    other.multipath_max += 1;
    let error = pair[0].reconfigure(other).expect_err("other tables");
    assert!(matches!(error, ReconfigureError::NeedsRestart(_)));
    assert!(error.to_string().contains("multipath"));
    let mut alone = same;
    alone.peers.clear();
    pair[0].reconfigure(alone).expect("without peers");
    until(&mut pair, |_, event| {
        let reason = event.and_then(|(_, event)| down(event));
        reason.is_some_and(
            |reason| matches!(reason, DownReason::Received(n) if (n.code, n.subcode) == (6, 3)),
        )
    })
    .await;
}

#[tokio::test]
async fn peer_that_stops_reading_is_closed_and_others_served() {
    const ROUTES: u32 = 65_000;
    let mut stalled = neighbor(33, host(34).into(), None);
    stalled.session.send_hold_s = Some(1);
    let peers = vec![stalled, neighbor(33, host(35).into(), None)];
    let mut us = io(33, speaker(33).with_peers(peers));
    (0..ROUTES).for_each(|number| announce(&mut us, number));
    let to = SocketAddr::from((host(33), port(&us)));
    let mut good = neighbor(35, host(33).into(), Some(port(&us)));
    good.session.passive = false;
    let good = io(35, speaker(35).with_peer(good));
    let connect = async {
        let mut peer = RawPeer::dial(34, to, Some(4096)).await;
        peer.open(34).await;
        peer.send(4, &[]).await;
        peer
    };
    let peer = beside(&mut us, connect, |_| {}).await;
    let mut reason = None;
    let mut pair = [us, good];
    until(&mut pair, |pair, event| {
        if let Some((0, event)) = event {
            reason = reason.take().or_else(|| down(event).cloned());
        }
        reason.is_some() && held(&pair[1]) == ROUTES as usize
    })
    .await;
    assert_eq!(
        reason,
        Some(DownReason::Sent(Notification::send_hold_timer_expired()))
    );
    assert!(is_up(&pair[1]), "the other session goes on");
    drop(peer);
    pair[0].handle(Input::Timeout);
}

#[tokio::test]
async fn all_is_sent_once_the_kernel_has_taken_it() {
    const ROUTES: u32 = 65_000;
    let mut us = io(
        41,
        speaker(41).with_peer(neighbor(41, host(42).into(), None)),
    );
    (0..ROUTES).for_each(|number| announce(&mut us, number));
    assert!(!us.all_sent(), "nothing is decided yet");
    let to = SocketAddr::from((host(41), port(&us)));
    let connect = async {
        let mut peer = RawPeer::dial(42, to, Some(4096)).await;
        peer.open(42).await;
        peer.send(4, &[]).await;
        peer
    };
    let mut peer = beside(&mut us, connect, |_| {}).await;
    // Until there is nothing more to do: the peer does not read, and so many routes fill both
    // sockets.
    let idle = Duration::from_millis(200);
    while tokio::time::timeout(idle, us.next()).await.is_ok() {}
    assert!(is_up(&us));
    assert!(!us.all_sent(), "the peer has not read");
    let reader = tokio::spawn(async move { while peer.recv().await.is_some() {} });
    while !us.all_sent() {
        us.next().await;
    }
    announce(&mut us, ROUTES);
    assert!(!us.all_sent(), "one more");
    while !us.all_sent() {
        us.next().await;
    }
    reader.abort();
}

#[tokio::test]
async fn keepalive_sent_in_time_is_read_in_time() {
    // The process is suspended for longer than the hold time; the peer's KEEPALIVE arrived in time.
    // It must be read before the hold timer is checked.
    let mut peer = neighbor(36, host(37).into(), None);
    peer.session.hold_time_s = 60;
    let mut us = io(36, speaker(36).with_peer(peer));
    let to = SocketAddr::from((host(36), port(&us)));
    let connect = async {
        let mut peer = RawPeer::dial(37, to, None).await;
        peer.open(37).await;
        peer.send(4, &[]).await;
        while peer.recv().await.expect("an answer").kind != MessageKind::Keepalive {}
        peer
    };
    let mut peer = beside(&mut us, connect, |_| {}).await;
    while !is_up(&us) {
        us.next().await;
    }
    peer.send(4, &[]).await;
    let hold_time = Duration::from_secs(60);
    stall(hold_time + Duration::from_secs(1)).await;
    let mut ends = Vec::new();
    let read = async {
        // The first KEEPALIVE, and that one.
        while keepalives(&us) < 2 {
            ends.extend(us.next().await.iter().filter_map(down).cloned());
        }
    };
    let read = tokio::time::timeout(PATIENCE, read).await;
    assert!(read.is_ok() && is_up(&us), "{ends:?}");
    // Without further KEEPALIVEs the hold timer expires.
    stall(hold_time + Duration::from_secs(1)).await;
    let end = async {
        while peer
            .recv()
            .await
            .is_some_and(|f| f.kind != MessageKind::Notification)
        {}
    };
    beside(&mut us, end, |event| ends.extend(down(&event).cloned())).await;
    assert_eq!(ends, [DownReason::Sent(Notification::hold_timer_expired())]);
}

/// The number of KEEPALIVEs from a driver's first neighbor.
fn keepalives(us: &Io) -> u64 {
    let mut peers = us.speaker().peers();
    let first = peers.next().expect("a neighbor");
    first.session.stats().received.keepalive
}

#[test]
fn a_driver_may_live_on_any_thread() {
    fn is_send<T: Send>() {}
    is_send::<Io>();
}
