//! Socket options: connections and packets that they exclude stay excluded.

use std::net::SocketAddr;

use crate::support::{
    self, DOUBT, RawPeer, announce, beside, down, host, is_up, med, neighbor, pair, run, speaker,
    until, up,
};
use bgp_io::bgp_fsm::DownReason;
use bgp_io::bgp_proto::{MessageKind, Notification, notification::cease};
use bgp_io::bgp_speaker::{Password, PeerConfig, RangeConfig, Reconfigured, SpeakerConfig};
use bgp_io::{Event, Io, IoConfig, Speaker};

/// Whether this kernel has TCP-MD5; prints a note if not.
pub(crate) async fn has_md5() -> bool {
    let mut peer = neighbor(40, host(41).into(), None);
    peer.password = Some("probe".into());
    let config = speaker(40).with_peer(peer);
    let listen = vec![SocketAddr::from((host(40), 0))];
    let io = Io::new(Speaker::new(config, 1), IoConfig::new(listen)).expect("it can listen");
    if let Some((_, error)) = io.keyless().next() {
        println!("skipped: the kernel has no TCP-MD5: {error}");
        return false;
    }
    true
}

#[tokio::test]
async fn wrong_password_is_rejected() {
    if !has_md5().await {
        return;
    }
    let mut good = pair(42, 43, |_, peer| peer.password = Some("secret".into()));
    until(&mut good, up).await;
    let mut bad = pair(44, 45, |us, peer| {
        peer.password = Some(format!("secret of {us}").into())
    });
    assert!(!run(&mut bad, DOUBT, &mut |pair, _| pair.iter().any(is_up)).await);
    let mut none = pair(46, 47, |us, peer| {
        peer.password = (us == 47).then(|| "secret".into())
    });
    assert!(!run(&mut none, DOUBT, &mut |pair, _| pair.iter().any(is_up)).await);
}

#[tokio::test]
async fn a_range_has_one_password_for_all() {
    if !has_md5().await {
        return;
    }
    let mut template = neighbor(48, host(0).into(), None);
    template.password = Some("secret".into());
    let prefix = "127.0.0.48/29".parse().expect("a prefix");
    let range = RangeConfig::new(prefix, 8, template);
    let us = support::io(48, speaker(48).with_range(range));
    let mut guest = neighbor(49, host(48).into(), Some(support::port(&us)));
    guest.password = Some("secret".into());
    let guest = support::io(49, speaker(49).with_peer(guest));
    until(&mut [guest, us], up).await;
}

/// Changes the neighbor of one side at run time.
pub(crate) fn change(io: &mut Io, edit: impl Fn(&mut PeerConfig)) {
    let mut config = io.speaker().config().clone();
    edit(&mut config.peers[0]);
    let done = io.reconfigure(config).expect("taken");
    assert_eq!(done, Reconfigured::default(), "the session stays");
}

#[tokio::test]
async fn password_changes_keep_the_session() {
    if !has_md5().await {
        return;
    }
    let mut pair = pair(50, 51, |_, _| {});
    until(&mut pair, up).await;
    for (number, password) in (1..).zip([Some("secret"), Some("other"), None]) {
        for io in &mut pair {
            change(io, |peer| peer.password = password.map(Into::into));
        }
        announce(&mut pair[0], number);
        until(&mut pair, |pair, _| med(&pair[1], number).is_some()).await;
    }
    // Only one side has another key: nothing passes until the other side has it, too.
    change(&mut pair[1], |peer| peer.password = Some("mine".into()));
    announce(&mut pair[0], 9);
    assert!(!run(&mut pair, DOUBT, &mut |pair, _| med(&pair[1], 9).is_some()).await);
    change(&mut pair[0], |peer| peer.password = Some("mine".into()));
    until(&mut pair, |pair, _| med(&pair[1], 9).is_some()).await;
    assert!(pair.iter().all(|io| flaps(io) == 0));
}

pub(crate) fn flaps(io: &Io) -> u64 {
    let peers = io.speaker().peers();
    peers.map(|peer| peer.session.stats().flaps).sum()
}

#[tokio::test]
async fn ttl_security_changes_keep_the_session() {
    let mut pair = pair(60, 61, |_, peer| peer.ttl_security_hops = Some(1));
    until(&mut pair, up).await;
    change(&mut pair[1], |peer| peer.ttl_security_hops = None);
    announce(&mut pair[0], 1);
    until(&mut pair, |pair, _| med(&pair[1], 1).is_some()).await;
    change(&mut pair[1], |peer| peer.ttl_security_hops = Some(1));
    announce(&mut pair[0], 2);
    until(&mut pair, |pair, _| med(&pair[1], 2).is_some()).await;
    assert!(pair.iter().all(|io| flaps(io) == 0));
}

/// A password that no kernel accepts.
fn too_long() -> Option<Password> {
    Some("x".repeat(81).into())
}

/// Two passive neighbors of the speaker at 127.0.0.`us`, with passwords.
fn two(us: u8, of: [(u8, Option<Password>); 2]) -> SpeakerConfig {
    let peers = of.map(|(them, password)| {
        let mut peer = neighbor(us, host(them).into(), None);
        peer.password = password;
        peer
    });
    speaker(us).with_peers(peers)
}

/// The speaker at 127.0.0.`us` that connects, with a password.
fn dialer(us: u8, them: u8, to: &Io, password: Option<Password>) -> Io {
    let mut peer = neighbor(us, host(them).into(), Some(support::port(to)));
    peer.password = password;
    let peers = vec![peer];
    support::io(us, speaker(us).with_peers(peers))
}

/// Connects without a key, sends OPEN, and checks that no answer comes.
async fn without_a_key(us: u8, to: SocketAddr) {
    let mut stranger = RawPeer::dial(us, to, None).await;
    // It may be closed already.
    let _ = stranger.stream.try_write(&[0xff; 16]);
    assert_eq!(stranger.recv().await, None, "not a word");
}

fn unsigned(events: &[Event]) -> usize {
    let unsigned = |event: &&Event| matches!(event, Event::Unsigned { .. });
    events.iter().filter(unsigned).count()
}

#[tokio::test]
async fn invalid_key_blocks_only_its_neighbor() {
    if !has_md5().await {
        return;
    }
    let secret = || Some(Password::from("secret"));
    let us = support::io(64, two(64, [(65, too_long()), (66, secret())]));
    let keyless: Vec<String> = us.keyless().map(|(_, error)| error.to_string()).collect();
    assert!(
        matches!(&keyless[..], [one] if one.contains("neighbor 127.0.0.65 has 81 octets")),
        "{keyless:?}"
    );
    let other = dialer(66, 64, &us, secret());
    let to = SocketAddr::from((host(64), support::port(&us)));
    let mut pair = [other, us];
    until(&mut pair, up).await;
    let [_other, mut us] = pair;
    // Without a key on the listening socket the kernel accepts any connection.
    let mut events = Vec::new();
    beside(&mut us, without_a_key(65, to), |event| events.push(event)).await;
    assert_eq!(unsigned(&events), 1, "{events:?}");
    let is_failure = |event: &&Event| matches!(event, Event::KeyFailed { .. });
    assert!(
        events.iter().filter(is_failure).count() <= 1,
        "once: {events:?}"
    );
    // A key that works takes its place, and the other session is not affected.
    us.reconfigure(two(64, [(65, secret()), (66, secret())]))
        .expect("the same speaker");
    assert_eq!(us.keyless().count(), 0);
    let late = dialer(65, 64, &us, secret());
    let mut pair = [late, us];
    until(&mut pair, |pair, _| is_up(&pair[0])).await;
    assert_eq!(flaps(&pair[1]), 0);
}

#[tokio::test]
async fn connection_before_the_key_is_rejected() {
    if !has_md5().await {
        return;
    }
    let mut us = support::io(67, speaker(67));
    let to = SocketAddr::from((host(67), support::port(&us)));
    // They wait to be accepted: the listening socket is not polled in this time.
    let mut early = RawPeer::dial(68, to, None).await;
    let mut welcome = RawPeer::dial(69, to, None).await;
    early.open(68).await;
    welcome.open(69).await;
    let secret = || Some(Password::from("secret"));
    us.reconfigure(two(67, [(68, secret()), (69, None)]))
        .expect("the same speaker");
    let mut events = Vec::new();
    let words = async {
        assert_eq!(early.recv().await, None, "not a word");
        let word = welcome.recv().await.expect("an answer");
        assert_eq!(word.kind, MessageKind::Open);
    };
    beside(&mut us, words, |event| events.push(event)).await;
    assert_eq!(unsigned(&events), 1, "{events:?}");
    let signed = dialer(68, 67, &us, secret());
    until(&mut [signed, us], |pair, _| is_up(&pair[0])).await;
}

#[tokio::test]
async fn session_with_an_invalid_new_key_is_closed() {
    if !has_md5().await {
        return;
    }
    for bad in [too_long(), Some("".into())] {
        let mut pair = pair(70, 71, |_, _| {});
        until(&mut pair, up).await;
        change(&mut pair[1], |peer| peer.password = bad.clone());
        let why = Notification::cease(cease::OTHER_CONFIGURATION_CHANGE);
        let mut reason = None;
        until(&mut pair, |_, event| {
            reason = reason.take().or_else(|| down(event?.1).cloned());
            reason.is_some()
        })
        .await;
        assert!(
            [
                DownReason::Sent(why.clone()),
                DownReason::Received(why.clone())
            ]
            .contains(reason.as_ref().expect("there")),
            "{reason:?}"
        );
        assert!(!run(&mut pair, DOUBT, &mut |pair, _| is_up(&pair[1])).await);
        assert_eq!(pair[1].keyless().count(), 1);
        change(&mut pair[1], |peer| peer.password = None);
        assert_eq!(pair[1].keyless().count(), 0);
        until(&mut pair, up).await;
    }
}

#[tokio::test]
async fn ttl_security_takes_neighbors_only() {
    let mut good = pair(54, 55, |_, peer| peer.ttl_security_hops = Some(1));
    until(&mut good, up).await;
    // Packets with the default TTL look as if they came from far away.
    let mut bad = pair(56, 57, |us, peer| {
        peer.ttl_security_hops = (us == 57).then_some(1)
    });
    assert!(!run(&mut bad, DOUBT, &mut |pair, _| is_up(&pair[1])).await);
}
