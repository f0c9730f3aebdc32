//! A program that is busy, or was suspended: no session is lost if its peer's messages arrived in
//! time.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{PATIENCE, RawPeer, beside, host, io, neighbor, port, speaker, stall};
use bgp_io::bgp_fsm::State;
use bgp_io::{Event, Io};

const PEERS: u8 = 12;
const KEEPALIVE: u8 = 4;
/// RFC 4271 §4.4.
const KEEPALIVE_OCTETS: [u8; 19] = {
    let mut octets = [0xff; 19];
    (octets[16], octets[17], octets[18]) = (0, 19, KEEPALIVE);
    octets
};
const HOLD_S: u16 = 60;
/// Longer than the hold time.
const STALL: Duration = Duration::from_secs(62);

/// A speaker and its peers, all Established with this hold time. From here on the runtime does not
/// report octets for the peers.
async fn established() -> (Io, Vec<TcpStream>) {
    let peers = (0..PEERS).map(|n| {
        let mut peer = neighbor(40, host(41 + n).into(), None);
        peer.session.hold_time_s = HOLD_S;
        peer
    });
    let mut us = io(40, speaker(40).with_peers(peers));
    let address = (host(40), port(&us)).into();
    let mut peers = vec![];
    for n in 0..PEERS {
        let greeting = async {
            let mut peer = RawPeer::dial(41 + n, address, None).await;
            peer.open(41 + n).await;
            peer.send(KEEPALIVE, &[]).await;
            while peer.recv().await.expect("a message").kind.0 != KEEPALIVE {}
            peer.stream.into_std().expect("a socket")
        };
        peers.push(beside(&mut us, greeting, |_| {}).await);
    }
    (us, peers)
}

fn up(us: &Io) -> usize {
    let sessions = us.speaker().peers();
    sessions
        .filter(|peer| peer.session.state() == State::Established)
        .count()
}

/// Whether so many KEEPALIVEs of every peer were received.
fn have_received(us: &Io, keepalives: u64) -> bool {
    let mut sessions = us.speaker().peers();
    sessions.all(|peer| peer.session.stats().received.keepalive >= keepalives)
}

/// Drives the speaker until `done`; returns the events.
async fn until(us: &mut Io, what: &str, done: impl Fn(&Io) -> bool) -> Vec<Event> {
    let mut events = vec![];
    let going = async {
        while !done(us) {
            events.extend(us.next().await);
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, going).await;
    in_time.unwrap_or_else(|_| panic!("never happened: {what}"));
    events
}

// Promise (BGP): No session is lost because the daemon is busy.
/// The process does not run for longer than the hold time, while all peers' KEEPALIVEs wait in
/// their sockets; and the runtime reports two sockets at a time.
#[test]
fn unread_keepalives_are_handled_before_hold_timers() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_io_events_per_tick(2)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (mut us, mut peers) = established().await;
        for peer in &mut peers {
            peer.write_all(&KEEPALIVE_OCTETS).expect("it listens");
        }
        beside(&mut us, async { tokio::task::yield_now().await }, |_| {}).await;
        for peer in &mut peers {
            peer.write_all(&KEEPALIVE_OCTETS).expect("it listens");
        }
        stall(STALL).await;
        // The first one and two more from each. Hold timers with priority would end sessions with
        // unread KEEPALIVEs.
        let events = until(&mut us, "all peers are heard", |us| have_received(us, 3)).await;
        let lost = events.iter().filter(|event| {
            use bgp_io::bgp_speaker::Event as SpeakerEvent;
            matches!(event, Event::Speaker(SpeakerEvent::Down { .. }))
        });
        assert_eq!((lost.count(), up(&us)), (0, usize::from(PEERS)));

        // A peer that is silent from here on is lost all the same.
        stall(STALL).await;
        until(&mut us, "all peers are lost", |us| up(us) == 0).await;
    });
}
