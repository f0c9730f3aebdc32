//! Socket options with teeth: what they keep out stays out.

mod support;

use std::net::SocketAddr;

use bgp_io::bgp_speaker::{PeerConfig, RangeConfig, Reconfigured, SpeakerConfig};
use bgp_io::{Io, IoConfig, IoError, Speaker};
use support::{DOUBT, announce, host, is_up, med, neighbor, pair, run, speaker, until, up};

/// Whether this kernel has TCP-MD5; says so if not.
async fn has_md5() -> bool {
    let mut peer = neighbor(40, host(41).into(), None);
    peer.password = Some("probe".into());
    let config = SpeakerConfig {
        peers: vec![peer],
        ..speaker(40)
    };
    let listen = vec![SocketAddr::from((host(40), 0))];
    match Io::new(Speaker::new(config, 1), IoConfig { listen }) {
        Err(IoError::Key { error, .. }) => {
            println!("skipped: the kernel has no TCP-MD5: {error}");
            false
        }
        other => {
            other.expect("nothing else is wrong");
            true
        }
    }
}

#[tokio::test]
async fn the_same_password_lets_in_and_another_keeps_out() {
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
    let range = RangeConfig {
        name: "nodes".into(),
        prefix,
        limit: 8,
        template,
    };
    let us = support::io(
        48,
        SpeakerConfig {
            ranges: vec![range],
            ..speaker(48)
        },
    );
    let mut guest = neighbor(49, host(48).into(), Some(support::port(&us)));
    guest.password = Some("secret".into());
    let guest = support::io(
        49,
        SpeakerConfig {
            peers: vec![guest],
            ..speaker(49)
        },
    );
    until(&mut [guest, us], up).await;
}

/// Changes the neighbor of one side while it runs.
fn change(io: &mut Io, edit: impl Fn(&mut PeerConfig)) {
    let mut config = io.speaker().config().clone();
    edit(&mut config.peers[0]);
    let done = io.reconfigure(config).expect("taken");
    assert_eq!(done, Reconfigured::default(), "the session stays");
}

#[tokio::test]
async fn a_password_may_come_and_go_under_a_living_session() {
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
    // Only one side has another: nothing comes through until the other has it, too.
    change(&mut pair[1], |peer| peer.password = Some("mine".into()));
    announce(&mut pair[0], 9);
    assert!(!run(&mut pair, DOUBT, &mut |pair, _| med(&pair[1], 9).is_some()).await);
    change(&mut pair[0], |peer| peer.password = Some("mine".into()));
    until(&mut pair, |pair, _| med(&pair[1], 9).is_some()).await;
    assert!(pair.iter().all(|io| flaps(io) == 0));
}

fn flaps(io: &Io) -> u64 {
    let peers = io.speaker().peers();
    peers.map(|peer| peer.session.stats().flaps).sum()
}

#[tokio::test]
async fn ttl_security_may_come_and_go_under_a_living_session() {
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

#[tokio::test]
async fn a_key_that_is_too_long_is_named() {
    let mut peer = neighbor(52, host(53).into(), None);
    peer.password = Some("x".repeat(81).into());
    let config = SpeakerConfig {
        peers: vec![peer],
        ..speaker(52)
    };
    let listen = vec![SocketAddr::from((host(52), 0))];
    let error = Io::new(Speaker::new(config, 1), IoConfig { listen }).expect_err("too long");
    assert!(error.to_string().contains("81 octets"), "{error}");
}

#[tokio::test]
async fn ttl_security_takes_neighbors_only() {
    let mut good = pair(54, 55, |_, peer| peer.ttl_security_hops = Some(1));
    until(&mut good, up).await;
    // Packets with the usual TTL look as if they came from far away.
    let mut bad = pair(56, 57, |us, peer| {
        peer.ttl_security_hops = (us == 57).then_some(1)
    });
    assert!(!run(&mut bad, DOUBT, &mut |pair, _| is_up(&pair[1])).await);
}
