//! A peer's new connection while its older one is in use, over real sockets: the kernel's figures
//! of the older one decide.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::{
    self, PATIENCE, RawPeer, announce, beside, host, io, is_up, neighbor, port, speaker,
};
use bgp_io::bgp_fsm::{DownReason, HeldEnd};
use bgp_io::bgp_proto::{MessageKind, Notification};
use bgp_io::bgp_speaker;
use bgp_io::{Event, Io};

/// A driver at 127.0.0.`us` that waits for its neighbor at 127.0.0.`them`, and its address.
fn waiting(us: u8, them: u8) -> (Io, SocketAddr) {
    let config = speaker(us).with_peers(vec![neighbor(us, host(them).into(), None)]);
    let io = io(us, config);
    let to = SocketAddr::from((host(us), port(&io)));
    (io, to)
}

/// A session from 127.0.0.`last`.
async fn session(last: u8, to: SocketAddr, receive_octets: Option<u32>) -> RawPeer {
    let mut peer = RawPeer::dial(last, to, receive_octets).await;
    peer.open(last).await;
    for kind in [MessageKind::Open, MessageKind::Keepalive] {
        assert_eq!(peer.recv().await.expect("an answer").kind, kind);
    }
    peer.send(4, &[]).await;
    peer
}

/// The NOTIFICATION at the end of a connection: a Cease for the loser of a collision.
async fn refused(mut peer: RawPeer) {
    let word = peer.recv().await.expect("a last word");
    let word = Notification::parse(&word.body).expect("a NOTIFICATION");
    assert_eq!((word.code, word.subcode), (6, 7), "{word}");
}

fn end(event: &Event) -> Option<&HeldEnd> {
    match event {
        Event::Speaker(bgp_speaker::Event::HeldEnded { end, .. }) => Some(end),
        _ => None,
    }
}

fn flaps(io: &Io) -> u64 {
    let peers = io.speaker().peers();
    peers.map(|peer| peer.session.stats().flaps).sum()
}

#[tokio::test]
async fn connection_in_use_is_kept_against_newer_ones() {
    let (mut us, to) = waiting(121, 122);
    let old = up(&mut us, session(122, to, None)).await;
    let attack = async {
        let mut bare = Vec::new();
        for _ in 0..20 {
            bare.push(RawPeer::dial(122, to, None).await);
        }
        // The connection of another speaker at the same address.
        let mut other = RawPeer::dial(122, to, None).await;
        other.open(123).await;
        refused(other).await;
        for _ in 0..5 {
            let mut same = RawPeer::dial(122, to, None).await;
            same.open(122).await;
            refused(same).await;
        }
    };
    let mut ends = Vec::new();
    let each = |event: Event| ends.extend(end(&event).cloned());
    beside(&mut us, attack, each).await;
    let count = |wanted: &HeldEnd| ends.iter().filter(|end| *end == wanted).count();
    assert_eq!(count(&HeldEnd::OlderAlive), 5, "{ends:?}");
    assert!(count(&HeldEnd::Replaced) >= 19, "{ends:?}");
    assert!(is_up(&us));
    assert_eq!(flaps(&us), 0);
    drop(old);
}

#[tokio::test]
async fn peer_with_a_closed_window_is_alive() {
    let (mut us, to) = waiting(124, 125);
    let old = up(&mut us, session(125, to, Some(4096))).await;
    (0..100_000).for_each(|number| announce(&mut us, number));
    let attack = async {
        // The window closes, and the probe is a window probe.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut same = RawPeer::dial(125, to, None).await;
        same.open(125).await;
        refused(same).await;
    };
    beside(&mut us, attack, |_| {}).await;
    assert!(is_up(&us));
    assert_eq!(flaps(&us), 0);
    drop(old);
}

#[tokio::test]
async fn held_connection_follows_a_reset() {
    for with_open in [false, true] {
        let (mut us, to) = waiting(126 + u8::from(with_open), 128);
        let mut downs = Vec::new();
        let old = up(&mut us, session(128, to, None)).await;
        let changed = async {
            let mut new = RawPeer::dial(128, to, None).await;
            if with_open {
                // Octets behind its OPEN wait until it is promoted.
                new.open(128).await;
                new.send(4, &[]).await;
            }
            old.stream.set_zero_linger().expect("an option");
            drop(old);
            if !with_open {
                new.open(128).await;
                new.send(4, &[]).await;
            }
            for kind in [MessageKind::Open, MessageKind::Keepalive] {
                assert_eq!(new.recv().await.expect("an answer").kind, kind);
            }
            new
        };
        let each = |event: Event| downs.extend(support::down(&event).cloned());
        let _new = beside(&mut us, changed, each).await;
        up(&mut us, async {}).await;
        assert_eq!(downs, [DownReason::TransportLost]);
        assert_eq!(flaps(&us), 1);
    }
}

/// Drives a driver until the peer is done and its session is up.
async fn up<T>(us: &mut Io, peer: impl Future<Output = T>) -> T {
    let peer = beside(us, peer, |_| {}).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is_up(us) {
        let next = tokio::time::timeout_at(deadline, us.next());
        next.await.expect("it comes up in time");
    }
    peer
}
