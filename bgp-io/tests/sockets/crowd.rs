//! Many connections from a range that never become sessions: a valid peer connects all the same,
//! and the program gets sums of the others.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::support::{self, PATIENCE, RawPeer, beside, host, is_up, neighbor, port, speaker};
use bgp_io::bgp_fsm::limits::HANDSHAKE_S_MAX;
use bgp_io::bgp_speaker::{self, HandshakeFailure, HandshakeFailures, RangeConfig};
use bgp_io::{Event, Io, limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const PLACES: u16 = 100;

/// A speaker at 127.0.0.`us` with a range for 100 of 127.0.`net`.0/24.
fn with_range(us: u8, net: u8) -> Io {
    let mut template = neighbor(us, host(0).into(), None);
    // With this, none of them times out on a slow machine.
    template.session.handshake_s = HANDSHAKE_S_MAX;
    let prefix = format!("127.0.{net}.0/24").parse().expect("a prefix");
    let range = RangeConfig::new(prefix, PLACES, template);
    support::io(us, speaker(us).with_range(range))
}

async fn dial(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option");
    socket.bind((from, 0).into()).expect("an address");
    socket.connect(to).await.expect("it listens")
}

/// A valid peer that connects from there and establishes its session.
async fn comes_in(io: &mut Io, from: Ipv4Addr, to: SocketAddr) -> RawPeer {
    let stream = dial(from, to).await.into_std().expect("a socket");
    let mut peer = RawPeer::of(stream);
    let handshake = async {
        peer.open(200).await;
        peer.recv().await.expect("an OPEN");
        peer.recv().await.expect("a KEEPALIVE");
        peer.send(4, &[]).await;
    };
    beside(io, handshake, |_| {}).await;
    drive(io, is_up).await;
    peer
}

/// Drives a speaker until a condition holds.
async fn drive(io: &mut Io, done: impl Fn(&Io) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done(io) {
        assert!(Instant::now() < deadline, "it has not come");
        beside(io, tokio::time::sleep(Duration::from_millis(5)), |_| {}).await;
    }
}

fn failures(io: &Io) -> HandshakeFailures {
    io.speaker().usage().ranges[0].failures
}

#[tokio::test]
async fn slow_connections_do_not_keep_honest_peer_out() {
    let mut io = with_range(160, 60);
    let to = SocketAddr::from((host(160), port(&io)));
    let mut slow = Vec::new();
    for last in 1..=150 {
        slow.push(dial(Ipv4Addr::new(127, 0, 60, last), to).await);
    }
    let trickle = async {
        for stream in &mut slow {
            // Evicted connections may be closed already.
            let _ = stream.write_all(&[0xff]).await;
        }
    };
    beside(&mut io, trickle, |_| {}).await;
    drive(&mut io, |io| {
        failures(io).count(HandshakeFailure::Evicted) == 50
    })
    .await;
    let range = io.speaker().usage().ranges[0];
    assert_eq!(range.peers.now, usize::from(PLACES));
    let _honest = comes_in(&mut io, Ipv4Addr::new(127, 0, 60, 200), to).await;
    assert_eq!(failures(&io).count(HandshakeFailure::Evicted), 51);
    assert_eq!(failures(&io).count(HandshakeFailure::Full), 0);
}

/// All connections are complete before the driver runs, and so is the KEEPALIVE: few of them are
/// accepted before it is read.
#[tokio::test]
async fn established_session_does_not_wait_for_a_crowd() {
    const CROWD: u8 = 150;
    let mut io = with_range(162, 62);
    let to = SocketAddr::from((host(162), port(&io)));
    let mut peer = comes_in(&mut io, Ipv4Addr::new(127, 0, 62, 200), to).await;
    let mut crowd = Vec::new();
    for last in 1..=CROWD {
        let mut stream = dial(Ipv4Addr::new(127, 0, 62, last), to).await;
        stream.write_all(&[0xff; 8]).await.expect("it is open");
        crowd.push(stream);
    }
    let received = |io: &Io| {
        let all = io
            .speaker()
            .peers()
            .map(|peer| peer.session.stats().received.keepalive);
        all.sum::<u64>()
    };
    let before = received(&io);
    peer.send(4, &[]).await;
    let mut turns = 0;
    while received(&io) == before {
        io.next().await;
        turns += 1;
        assert!(turns < 20, "the KEEPALIVE waits for the crowd");
    }
    let accepted = io.speaker().peers().count() - 1;
    assert!(
        accepted <= 4 * turns,
        "{accepted} connections in {turns} turns"
    );
    // The crowd is served, too.
    drive(&mut io, |io| {
        failures(io).count(HandshakeFailure::Evicted) >= 51
    })
    .await;
}

#[tokio::test]
async fn refused_connections_are_answered_up_to_a_limit() {
    const STRANGERS: usize = 300;
    let mut io = support::io(163, speaker(163));
    let to = SocketAddr::from((host(163), port(&io)));
    let began = Instant::now();
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..STRANGERS {
        let stranger = async {
            let mut stream = dial(Ipv4Addr::new(127, 0, 63, 1), to).await;
            let mut octets = Vec::new();
            // The daemon closes each connection.
            let _ = stream.read_to_end(&mut octets).await;
            octets.len()
        };
        let octets = beside(&mut io, stranger, |event| {
            refused += usize::from(matches!(event, Event::Refused { .. }));
        });
        answered += u128::from(octets.await > 0);
    }
    let passed = began.elapsed();
    let at_once = limits::ANSWERED_REFUSALS_AT_ONCE as u128;
    let later = passed.as_millis() / limits::ANSWER_REFUSAL_EVERY.as_millis() + 1;
    assert!(answered >= at_once, "{answered}");
    assert!(answered <= at_once + later, "{answered} in {passed:?}");
    assert_eq!(refused, STRANGERS, "each is reported");
}

#[tokio::test]
async fn garbage_connections_are_counted_and_reported_in_sum() {
    const ROUNDS: u64 = 10;
    let mut io = with_range(161, 61);
    let to = SocketAddr::from((host(161), port(&io)));
    let mut reports = Vec::new();
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let crowd = async {
            let mut streams = Vec::new();
            for last in 1..=150 {
                let mut stream = dial(Ipv4Addr::new(127, 0, 61, last), to).await;
                let _ = stream
                    .write_all(b"GET / HTTP/1.1\r\nHost: you\r\n\r\n")
                    .await;
                streams.push(stream);
            }
            for stream in streams {
                let _ = stream.readable().await;
            }
        };
        beside(&mut io, crowd, |event| {
            if let Event::Speaker(bgp_speaker::Event::Handshakes { failures, .. }) = event {
                reports.push(failures.total());
            }
        })
        .await;
    }
    let _honest = comes_in(&mut io, Ipv4Addr::new(127, 0, 61, 200), to).await;
    drive(&mut io, |io| failures(io).total() >= ROUNDS * 150).await;
    assert_eq!(failures(&io).total(), ROUNDS * 150, "{}", failures(&io));
    // One at once, the others every ten seconds, on a machine of any speed.
    assert_eq!(reports.first(), Some(&1));
    let most = 2 + began.elapsed().as_secs() / 10;
    assert!(reports.len() as u64 <= most, "{reports:?}");
}
