use std::sync::mpsc::sync_channel;
use std::time::Duration;

use bfd::Seeded;
use bfd_client::limits::IDLE_MS;
use bfd_client::{Hops, Listener, Wanted, decode};
use tempfile::TempDir;

use super::*;
use crate::config::Limits;
use crate::resolve::Addresses;

/// Longest wait for the thread, which has nothing to do but to answer.
const THREAD_WITHIN: Duration = Duration::from_secs(60);

/// A listener, and the engine behind it.
struct Served {
    directory: TempDir,
    listener: Listener,
    engine: Engine<Seeded>,
    clients: Clients,
    now: Instant,
}

impl Served {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = Listener::bind(&directory.path().join("clients.sock"));
        Self {
            listener: listener.expect("bound"),
            directory,
            engine: Engine::new(Seeded::new(1), Limits::default()),
            clients: Clients::default(),
            now: Instant::from_secs(1),
        }
    }

    /// Connects, and sends the first message. Returns both ends.
    async fn connect(&self, name: &str) -> (Socket, Socket) {
        let end = Socket::connect(&self.directory.path().join("clients.sock"));
        let end = end.expect("connected");
        end.send(&message(&Request::hello(name))).expect("sent");
        let socket = self.listener.accept().await.expect("accepted");
        (end, socket)
    }

    /// A connection of a user that waits for a decision.
    async fn wait(&mut self, uid: u32, users: &mut Users) -> Socket {
        let (end, socket) = self.connect("bgp").await;
        let new = Pending {
            socket,
            credentials: Credentials { pid: 1, uid },
            until: self.now + USERS_WITHIN,
        };
        self.clients.decide(self.now, new, users);
        end
    }

    /// Does the work of a turn with the clients.
    fn turn(&mut self, users: &mut Users) -> bool {
        users.turn(self.now);
        self.clients.admit(self.now, users);
        let host = Addresses::unread();
        self.clients.serve(self.now, &mut self.engine, &host)
    }
}

fn message(request: &Request) -> Vec<u8> {
    encode(request).expect("short")
}

/// Returns the notices that have arrived.
fn notices(end: &Socket) -> Vec<Notice> {
    let mut buffer = Vec::new();
    let mut notices = Vec::new();
    loop {
        match end.receive(&mut buffer) {
            Ok(Some(octets)) => notices.push(decode(octets).expect("a notice")),
            // The kernel reports once that the other end has closed with unread messages. The notices follow.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            _ => return notices,
        }
    }
}

/// A session over several hops, which needs no addresses of the host.
fn wanted(last: u8) -> Wanted {
    Wanted {
        remote: [192, 0, 2, last].into(),
        local: Some([192, 0, 2, 1].into()),
        hops: Hops::Multi,
        interval_ms: 300,
        receive_ms: 300,
        idle_ms: IDLE_MS,
        multiplier: 3,
        ttl_min: 254,
        auth: None,
    }
}

#[tokio::test]
async fn slow_lookup_of_users_delays_no_packet_and_loses_no_client() {
    const BGP: u32 = 4_000_000_002;
    const STRANGER: u32 = 4_000_000_001;
    let (release, released) = sync_channel::<()>(1);
    let mut served = Served::new();
    let look_up = move |names: Vec<String>| {
        released.recv().expect("the test ends later");
        names.into_iter().map(|name| (name, Some(BGP))).collect()
    };
    let users = Users::start(served.now, &["bgp".to_owned()], look_up);
    let mut users = users.expect("a thread");
    let (own, socket) = served.connect("own").await;
    served.clients.add(served.now, socket, &mut users);
    own.send(&message(&Request::Set(wanted(2)))).expect("sent");
    let late = served.wait(STRANGER, &mut users).await;
    served.turn(&mut users);

    // The host does not answer for 6 s, and packets are sent in time.
    let (mut last, mut longest) = (served.now, Duration::ZERO);
    let mut waits = None;
    for _ in 0..6_000 {
        served.now += Duration::from_millis(1);
        let now = served.now;
        while served.engine.step(now).is_some() {
            longest = longest.max(now.saturating_duration_since(last));
            last = now;
        }
        served.turn(&mut users);
        if now == Instant::from_secs(4) {
            waits = Some([
                served.wait(STRANGER, &mut users).await,
                served.wait(BGP, &mut users).await,
            ]);
        }
    }
    assert!(longest <= Duration::from_secs(1), "{longest:?}");
    let [stranger, bgp] = waits.expect("connected");
    let reason = |end: &Socket| match &notices(end)[..] {
        [Notice::Rejected { reason, .. }] => reason.clone(),
        other => panic!("{other:?}"),
    };
    // The second connection of the user has replaced it.
    let mut buffer = Vec::new();
    let end = late.receive(&mut buffer).map_err(|error| error.kind());
    assert_eq!(end, Err(ErrorKind::ConnectionReset), "closed");
    assert_eq!((served.clients.len(), served.engine.clients()), (1, 1));
    assert_eq!(served.clients.pending.len(), 2);

    release.send(()).expect("the thread runs");
    let ready = tokio::time::timeout(THREAD_WITHIN, users.ready()).await;
    ready.expect("an answer");
    served.turn(&mut users);
    served.turn(&mut users);
    assert_eq!((served.clients.len(), served.engine.clients()), (2, 2));
    assert!(matches!(notices(&bgp)[..], [Notice::Welcome(_)]));
    let reason = reason(&stranger);
    assert!(reason.contains("is not in `users`"), "{reason}");
}

#[tokio::test]
async fn connection_that_waits_too_long_for_users_is_closed() {
    let mut served = Served::new();
    let (_release, released) = sync_channel::<()>(1);
    let look_up = move |_| {
        let _ = released.recv();
        Default::default()
    };
    let users = Users::start(served.now, &["bgp".to_owned()], look_up);
    let mut users = users.expect("a thread");
    let mut ends = Vec::new();
    for uid in 1..=CONNECTIONS_PENDING_MAX as u32 + 1 {
        ends.push(served.wait(4_000_000_000 + uid, &mut users).await);
    }
    let further = ends.pop().expect("one");
    let is_closed = |end: &Socket| match &notices(end)[..] {
        [] => false,
        [Notice::Rejected { reason, .. }] => reason.contains("numbers"),
        other => panic!("{other:?}"),
    };
    assert!(is_closed(&further), "no place");
    assert!(!ends.iter().any(is_closed));
    let until = served.clients.poll_timeout();
    assert_eq!(until, Some(served.now + USERS_WITHIN));
    served.now += USERS_WITHIN;
    served.turn(&mut users);
    assert!(ends.iter().all(is_closed));
    assert_eq!(served.clients.poll_timeout(), None);
}

#[tokio::test]
async fn replaced_connection_that_does_not_read_is_closed() {
    let mut served = Served::new();
    let users = Users::start(served.now, &[], |_| panic!("no names"));
    let mut users = users.expect("a thread");
    let mut ends = Vec::new();
    for _ in 0..2 {
        let (end, socket) = served.connect("bgp").await;
        served.clients.add(served.now, socket, &mut users);
        ends.push(end);
        if served.clients.len() == 1 {
            served.turn(&mut users);
            // The client does not read.
            let first = &mut served.clients.connections[0];
            let hello = message(&Request::hello("bgp"));
            while first.socket.send(&hello).is_ok() {}
            first.waiting = Some(Notice::Rejected {
                remote: None,
                reason: String::new(),
            });
        }
    }
    served.turn(&mut users);
    served.turn(&mut users);
    let clients = &served.clients;
    assert_eq!((clients.len(), clients.poll_timeout()), (1, None));
    assert_eq!(served.engine.clients(), 1);
    assert!(matches!(notices(&ends[1])[..], [Notice::Welcome(_)]));
}

/// Each connection has its share of a turn, so that packets are sent in between, and no client waits for others.
#[tokio::test]
async fn flood_of_requests_defers_neither_packets_nor_clients() {
    const REQUESTS: usize = 100;
    const REMOTES: usize = 40;
    let mut served = Served::new();
    let users = Users::start(served.now, &[], |_| panic!("no names"));
    let mut users = users.expect("a thread");
    let mut ends = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let (end, socket) = served.connect(name).await;
        served.clients.add(served.now, socket, &mut users);
        ends.push(end);
    }
    // The first message concerns all sessions of a client: one in a turn.
    for greeted in 1..=4 {
        served.turn(&mut users);
        assert_eq!(served.engine.clients(), greeted);
    }
    assert!(!served.turn(&mut users), "no more work");
    let [flooding @ .., quiet] = &ends[..] else {
        panic!("no clients");
    };
    for end in flooding {
        for number in 0..REQUESTS {
            let last = 2 + (number % REMOTES) as u8;
            end.send(&message(&Request::Set(wanted(last))))
                .expect("sent");
        }
    }
    quiet
        .send(&message(&Request::Set(wanted(99))))
        .expect("sent");
    assert_eq!(notices(quiet).len(), 1, "welcome");
    assert!(served.turn(&mut users), "more waits");
    let states = notices(quiet);
    assert!(matches!(states[..], [Notice::State(_)]), "{states:?}");
    let share = MESSAGES_PER_TURN / ends.len();
    let mut turns = 1;
    let mut answered = 0;
    loop {
        let sent: usize = flooding.iter().map(|end| notices(end).len()).sum();
        assert!(sent <= (share + 1) * flooding.len(), "{sent} in a turn");
        answered += sent;
        if !served.turn(&mut users) {
            break;
        }
        turns += 1;
    }
    // Each is welcomed, and has at least one state for each remote system.
    assert!(answered > flooding.len() * REMOTES, "{answered}");
    assert!(turns >= REQUESTS / share, "{turns}");
}
