//! Floods by others, beside the session of a client.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};

use super::*;

/// How long the floods last: two detection times of the session.
const FLOOD: Duration = Duration::from_secs(10);

/// A thread that floods until it is dropped.
struct Flood {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Flood {
    /// Sends these packets, again and again.
    fn of(from: [u8; 4], to: (IpAddr, u16), ttl: u32, payload: &[u8]) -> Self {
        let socket = UdpSocket::bind((IpAddr::from(from), 0)).expect("bound");
        socket.set_ttl(ttl).expect("set");
        let ends = Arc::new(AtomicBool::new(false));
        let (end, payload) = (ends.clone(), payload.to_vec());
        let send = move || {
            let mut sent = 0;
            while !end.load(Ordering::Relaxed) {
                sent += u64::from(socket.send_to(&payload, to).is_ok());
            }
            sent
        };
        Self {
            ends,
            thread: Some(spawn(send)),
        }
    }

    /// Ends it, and returns the number of sent packets.
    fn end(mut self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it runs");
        thread.join().expect("no panic")
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

// Promise (BGP): Floods of packets by strangers and of requests by a client of cambric-bfd end no session of others.
/// A stranger floods the port with packets of another link and of this one, and a client with requests.
#[tokio::test]
async fn floods_end_no_session_of_another_client() {
    let ([one, other], [_user, _other_user]) = pair(9, Hops::Single).await;
    // A valid packet with the discriminator of no session.
    let mut packet = [0; 24];
    packet[0] = 1 << 5;
    packet[1] = 1 << 6;
    packet[2..4].copy_from_slice(&[3, 24]);
    packet[7] = 9;
    packet[14..16].copy_from_slice(&[0xff, 0xff]);
    packet[18..20].copy_from_slice(&[0xff, 0xff]);
    let before = drops(&one).await;
    let to = (one.address, bfd::limits::PORT_SINGLE_HOP);
    let far = Flood::of([127, 33, 9, 8], to, 64, &packet);
    let near = Flood::of([127, 33, 9, 9], to, 255, &packet);

    // Each turn changes all sessions of the flooding client.
    let mut flooding = User::towards(&one, "flood", [127, 33, 9, 8].into(), Hops::Single);
    let until = std::time::Instant::now() + FLOOD;
    let mut requests = 0_u64;
    while std::time::Instant::now() < until {
        let interval_ms = 1_000 + requests as u32 % 7;
        let wanted = (1..=200).map(|last| {
            let remote = IpAddr::from([127, 33, 109, last]);
            let wanted = Wanted {
                remote,
                local: Some(one.address),
                hops: Hops::Multi,
                interval_ms,
                receive_ms: interval_ms,
                idle_ms: IDLE_MS,
                multiplier: 3,
                ttl_min: 0,
                auth: None,
            };
            (remote, wanted)
        });
        flooding.client.want(wanted.collect());
        let states = flooding
            .client
            .turn(Instant::ZERO + flooding.start.elapsed());
        requests += states.len() as u64;
        tokio::task::yield_now().await;
    }
    let [far, near] = [far, near].map(Flood::end);
    println!("{far} packets of another link, {near} of this link, {requests} answers to requests");
    assert!(far > 0 && near > 0 && requests > 200);
    for (daemon, remote) in [(&one, other.address), (&other, one.address)] {
        let sessions = daemon.sessions().await;
        let session = sessions.iter().find(|one| one.remote == Some(remote));
        let session = session.expect("the session");
        assert_eq!((session.state.as_str(), session.downs), ("Up", 0));
    }
    // The kernel has dropped the packets of another link: they have cost no turn.
    let after = drops(&one).await;
    let [dropped, discarded] = [after[0] - before[0], after[1] - before[1]];
    assert!(dropped >= far, "{dropped} of {far}");
    assert!((1..=near).contains(&discarded), "{discarded} of {near}");
}

/// Returns the packets that the kernel has dropped, and those that the daemon has discarded.
async fn drops(daemon: &Daemon) -> [u64; 2] {
    let Reply::Status(Status { facts, bfd, .. }) = daemon.ask(Query::Status {}).await else {
        panic!("no status");
    };
    let mut facts = facts.iter();
    let fact = facts.find(|fact| fact.name.starts_with("packets dropped"));
    let dropped = fact.expect("the fact").value.parse();
    [dropped.expect("a number"), bfd.expect("figures").discarded]
}
