//! A TCP-MD5 key that changes: both keys are valid meanwhile, and no session is reset.

use std::net::IpAddr;

use crate::options::{change, flaps, has_md5};
use crate::support::{
    DOUBT, announce, host, io, is_up, med, neighbor, pair, port, run, speaker, until, up,
};
use bgp_io::Io;
use bgp_io::bgp_speaker::{PeerConfig, RangeConfig};

/// The keys of a neighbor.
type Keys = (&'static str, Option<&'static str>);

fn set((password, second): Keys) -> impl Fn(&mut PeerConfig) {
    move |peer| {
        peer.password = Some(password.into());
        peer.second_password = second.map(Into::into);
    }
}

/// Sends a route in both directions, over the session that was there before.
async fn pass(pair: &mut [Io; 2], number: u32) {
    for (from, to) in [(0, 1), (1, 0)] {
        let number = 2 * number + u32::try_from(from).expect("small");
        announce(&mut pair[from], number);
        until(pair, |pair, _| med(&pair[to], number).is_some()).await;
    }
    assert!(pair.iter().all(|io| flaps(io) == 0), "the session stays");
}

// Promise (BGP): A TCP-MD5 key changes without a reset of a session, in whatever order the
// two neighbors take each step.
#[tokio::test]
async fn key_changes_under_an_established_session() {
    if !has_md5().await {
        return;
    }
    let steps: [Keys; 4] = [
        ("old", Some("new")),
        ("new", Some("old")),
        ("new", None),
        ("new", Some("newest")),
    ];
    // The dialing side first, then the accepting one first.
    for (a, order) in [(80, [0, 1]), (82, [1, 0])] {
        let mut pair = pair(a, a + 1, |_, peer| set(("old", None))(peer));
        until(&mut pair, up).await;
        let mut number = 0;
        for step in steps {
            for side in order {
                change(&mut pair[side], set(step));
                pass(&mut pair, number).await;
                number += 1;
            }
        }
    }
}

#[tokio::test]
async fn dial_succeeds_with_either_key_and_no_other() {
    if !has_md5().await {
        return;
    }
    let both = ("old", Some("new"));
    let of = |ours: Keys, theirs: Keys| {
        move |us: u8, peer: &mut PeerConfig| {
            set(if us.is_multiple_of(2) { ours } else { theirs })(peer)
        }
    };
    for (a, theirs) in [
        (84, ("old", None)),
        (86, ("new", None)),
        (88, ("new", Some("old"))),
    ] {
        let mut pair = pair(a, a + 1, of(both, theirs));
        until(&mut pair, up).await;
        pass(&mut pair, 1).await;
    }
    // The accepting side has one key at a time.
    for (a, ours, theirs) in [(90, both, ("third", None)), (92, ("new", None), both)] {
        let mut pair = pair(a, a + 1, of(ours, theirs));
        assert!(!run(&mut pair, 2 * DOUBT, &mut |pair, _| pair.iter().any(is_up)).await);
    }
}

#[tokio::test]
async fn key_of_range_changes_under_established_sessions() {
    if !has_md5().await {
        return;
    }
    let range = |keys: Keys| {
        let mut template = neighbor(94, host(0).into(), None);
        set(keys)(&mut template);
        let prefix = "127.0.0.94/31".parse().expect("a prefix");
        speaker(94).with_range(RangeConfig::new(prefix, 2, template))
    };
    let us = io(94, range(("old", None)));
    let mut guest = neighbor(95, IpAddr::from(host(94)), Some(port(&us)));
    set(("old", Some("new")))(&mut guest);
    let mut pair = [io(95, speaker(95).with_peer(guest)), us];
    until(&mut pair, up).await;
    for (number, keys) in [(1, ("new", Some("old"))), (2, ("old", None))] {
        pair[1].reconfigure(range(keys)).expect("the same speaker");
        pass(&mut pair, number).await;
    }
}
