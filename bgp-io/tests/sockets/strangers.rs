//! Floods of connections from addresses that are no neighbor's: the kernel drops their SYNs, the
//! neighbors' connections are accepted.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::support::{self, RawPeer, beside, host, is_up, neighbor, port, speaker};
use bgp_io::{Event, Io};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::AsyncReadExt;
use tokio::net::TcpSocket;

const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 64, 1);

/// Connects as a stranger, again and again, until it is dropped.
struct Flood {
    ends: Arc<AtomicBool>,
    /// The number of its SYNs.
    syns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn start(to: SocketAddr) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let syns = Arc::new(AtomicU64::new(0));
        let (until, count) = (ends.clone(), syns.clone());
        let thread = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                // A machine without a free port has enough connections.
                let sent = begin(to).is_ok();
                count.fetch_add(sent.into(), Ordering::Relaxed);
            }
        });
        Self {
            ends,
            syns,
            thread: Some(thread),
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The events of a speaker about a flood.
#[derive(Debug, Default)]
struct Seen {
    /// Whether SYNs are dropped now.
    drops: bool,
    /// How often that ended, and the sum of dropped segments.
    ends: u32,
    dropped: u64,
    /// Refused connections.
    refused: u32,
}

impl Seen {
    fn note(&mut self, event: &Event) {
        match event {
            Event::StrangersDropped => self.drops = true,
            Event::StrangersAdmitted { dropped } => {
                self.drops = false;
                self.ends += 1;
                self.dropped += dropped;
            }
            Event::Refused { .. } => self.refused += 1,
            _ => {}
        }
    }
}

/// Sends a SYN, and resets the connection if the kernel has answered at once.
fn begin(to: SocketAddr) -> std::io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.bind(&SockAddr::from(SocketAddr::from((STRANGER, 0))))?;
    let _ = socket.connect(&to.into());
    Ok(())
}

/// Drives a speaker until an event.
async fn until(io: &mut Io, mut is: impl FnMut(&Event) -> bool) {
    let mut came = false;
    while !came {
        let pause = tokio::time::sleep(Duration::from_millis(5));
        beside(io, pause, |event| came |= is(&event)).await;
    }
}

#[tokio::test]
async fn neighbor_connects_while_strangers_are_dropped() {
    let (us, them) = (165, 166);
    let config = speaker(us).with_peer(neighbor(us, host(them).into(), None));
    let mut io = support::io(us, config);
    let to = SocketAddr::from((host(us), port(&io)));
    let flood = Flood::start(to);
    until(&mut io, |event| matches!(event, Event::StrangersDropped)).await;

    let peer = async {
        let mut peer = RawPeer::dial(them, to, None).await;
        peer.open(200).await;
        peer.recv().await.expect("an OPEN");
        peer.recv().await.expect("a KEEPALIVE");
        peer.send(4, &[]).await;
        peer
    };
    let mut seen = Seen {
        drops: true,
        ..Seen::default()
    };
    let _peer = beside(&mut io, peer, |event| seen.note(&event)).await;
    // The neighbor's session comes up, then so many SYNs are sent after the filter was set.
    let later = flood.syns.load(Ordering::Relaxed) + 100;
    while !is_up(&io) || flood.syns.load(Ordering::Relaxed) < later {
        beside(&mut io, tokio::task::yield_now(), |event| seen.note(&event)).await;
    }

    // Older connections of strangers were accepted before the neighbor's.
    seen.refused = 0;
    drop(flood);
    while seen.drops {
        beside(&mut io, tokio::task::yield_now(), |event| seen.note(&event)).await;
    }
    assert!(seen.dropped > 0);
    // On a very slow machine, the flood may have paused before.
    let is_one_flood = seen.ends == 1;
    assert!(!is_one_flood || seen.refused == 0, "{seen:?}");

    let stranger = async {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((STRANGER, 0).into()).expect("a port");
        let mut stream = socket.connect(to).await.expect("it listens");
        let mut octets = Vec::new();
        let _ = stream.read_to_end(&mut octets).await;
        octets
    };
    let octets = beside(&mut io, stranger, |_| {}).await;
    assert_eq!(octets.get(18), Some(&3), "a NOTIFICATION");
}

#[tokio::test]
async fn new_neighbor_is_no_stranger_in_a_flood() {
    let (us, them) = (167, 168);
    let mut io = support::io(us, speaker(us));
    let to = SocketAddr::from((host(us), port(&io)));
    let _flood = Flood::start(to);
    until(&mut io, |event| matches!(event, Event::StrangersDropped)).await;

    let config = speaker(us).with_peer(neighbor(us, host(them).into(), None));
    io.reconfigure(config).expect("a configuration");
    let peer = async {
        let mut peer = RawPeer::dial(them, to, None).await;
        peer.recv().await.expect("an OPEN");
    };
    let mut admitted = false;
    beside(&mut io, peer, |event| {
        admitted |= matches!(event, Event::StrangersAdmitted { .. });
    })
    .await;
    assert!(admitted);
}
