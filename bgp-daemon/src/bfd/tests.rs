//! The driver with a socket of cambric-bfd that the test serves.

use std::io::ErrorKind;
use std::time::Duration;

use bfd_client::{Listener, Notice as Answer, Request, Socket, Welcome, encode};
use bgp_config::Source;
use bgp_io::bgp_speaker::{PathConsequence, Restart};
use bgp_io::{IoConfig, StopMode};
use tokio::time::timeout;

use super::*;
use crate::Config;
use crate::driver::tests::Plain;

/// A generous bound of every wait.
const WAIT: Duration = Duration::from_secs(60);

const REMOTE: [u8; 4] = [192, 0, 2, 2];

/// The file of a daemon with one neighbor.
fn file(keys: &str) -> Config<Plain> {
    let text = format!(
        "asn = 64512\nrouter_id = \"192.0.2.1\"\nlisten = []\n[[neighbor]]\naddress = \"192.0.2.2\"\n\
         asn = 64512\npassive = true\n{keys}\n"
    );
    Config::parse(&Source::new("daemon.toml", text)).expect("a valid file")
}

fn io(config: &Config<Plain>) -> Io {
    let intent = config.intent().expect("a speaker");
    let mut speaker = Speaker::new(intent.speaker.clone(), 7);
    speaker.start(Instant::ZERO);
    Io::new(speaker, IoConfig::new([])).expect("no socket")
}

fn turn(bfd: &mut Bfd, io: &mut Io) {
    let mut round = Round::new(io);
    Driver::<Plain>::turn(bfd, &mut round).expect("a turn");
}

async fn request(server: &Socket) -> Request {
    let mut buffer = Vec::new();
    let read = async {
        loop {
            match server.receive(&mut buffer) {
                Ok(Some(octets)) => return Request::read(octets).expect("a request"),
                Ok(None) => panic!("closed"),
                Err(error) if error.kind() == ErrorKind::WouldBlock => server.ready(false).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(WAIT, read).await.expect("a request")
}

/// Accepts a connection, and reads the first session that is requested on it.
async fn requested(listener: &Listener) -> (Socket, Wanted) {
    let server = listener.accept().await.expect("accepted");
    assert!(matches!(request(&server).await, Request::Hello { .. }));
    let Request::Set(wanted) = request(&server).await else {
        panic!("no session");
    };
    (server, wanted)
}

fn send(server: &Socket, answer: &Answer) {
    server.send(&encode(answer).expect("short")).expect("sent");
}

fn state(liveness: Liveness, failures: u64) -> Answer {
    Answer::State(SessionState {
        remote: REMOTE.into(),
        state: if liveness == Liveness::Alive {
            State::Up
        } else {
            State::Down
        },
        liveness,
        failures,
        diagnostic: "control detection time expired".to_owned(),
        control_plane_independent: true,
        interface: None,
        problem: None,
    })
}

/// Returns the consequences of failed paths that the speaker reports.
async fn consequences(io: &mut Io) -> Vec<PathConsequence> {
    let mut found = Vec::new();
    while let Ok(events) = timeout(Duration::from_millis(1), io.next()).await {
        found.extend(events.iter().filter_map(|event| match event {
            Event::Speaker(bgp_speaker::Event::PathFailed { consequence, .. }) => {
                Some(*consequence)
            }
            _ => None,
        }));
    }
    found
}

fn words(bfd: &Bfd, io: &Io) -> Option<String> {
    let mut neighbors = crate::report::neighbors(io.speaker(), io.clock().now());
    Driver::<Plain>::annotate(bfd, io.clock().now(), &mut neighbors);
    neighbors.neighbors[0].bfd.clone()
}

#[tokio::test]
async fn states_of_sessions_are_passed_to_the_speaker() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("clients.sock");
    let listener = Listener::bind(&path).expect("bound");
    let mut io = io(&file("bfd = { interval_ms = 100, mode = \"multihop\" }"));
    let mut bfd = Bfd::new::<Plain>(path);
    turn(&mut bfd, &mut io);
    let (server, wanted) = requested(&listener).await;
    assert_eq!((wanted.hops, wanted.interval_ms), (Hops::Multi, 100));
    assert_eq!((wanted.remote, wanted.multiplier), (REMOTE.into(), 3));
    assert_eq!(words(&bfd, &io).as_deref(), Some("requested"));
    send(&server, &Answer::Welcome(Welcome::default()));
    // A failure of an earlier process does not concern the sessions of this one.
    send(&server, &state(Liveness::Alive, 1));
    turn(&mut bfd, &mut io);
    assert_eq!(words(&bfd, &io).as_deref(), Some("up"));
    assert_eq!(consequences(&mut io).await, []);
    send(&server, &state(Liveness::Failed, 1));
    send(&server, &state(Liveness::Alive, 0));
    // A failure that was over before the daemon read it.
    send(&server, &state(Liveness::Alive, 1));
    send(&server, &state(Liveness::DisabledThere, 0));
    turn(&mut bfd, &mut io);
    assert_eq!(consequences(&mut io).await, [PathConsequence::None; 2]);
    assert_eq!(
        words(&bfd, &io).as_deref(),
        Some("disabled by the neighbor")
    );
    let clock = *io.clock();
    for mode in [StopMode::GracefulRestart, StopMode::Permanent] {
        Driver::<Plain>::stopping(&mut bfd, io.speaker(), clock.now(), mode);
        let early = server.receive(&mut Vec::new()).expect_err("no request");
        assert_eq!(early.kind(), ErrorKind::WouldBlock, "BGP has sessions");
        Driver::<Plain>::stop(&mut bfd, &clock).await;
    }
    let remote = REMOTE.into();
    assert_eq!(request(&server).await, Request::Remove { remote });
}

#[tokio::test]
async fn failure_before_the_start_is_passed_on_while_it_lasts() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("clients.sock");
    let listener = Listener::bind(&path).expect("bound");
    let mut io = io(&file("bfd = true"));
    let mut bfd = Bfd::new::<Plain>(path);
    turn(&mut bfd, &mut io);
    let server = listener.accept().await.expect("accepted");
    send(&server, &Answer::Welcome(Welcome::default()));
    send(&server, &state(Liveness::Failed, 1));
    turn(&mut bfd, &mut io);
    assert_eq!(consequences(&mut io).await, [PathConsequence::None]);
    // cambric-bfd restarts: nothing has failed, and the states stay for a while.
    drop(server);
    turn(&mut bfd, &mut io);
    let until = bfd.unknown_at.expect("the states stay");
    assert!(until <= io.clock().now() + BFD_ABSENCE);
    let back = async {
        loop {
            turn(&mut bfd, &mut io);
            tokio::select! {
                accepted = listener.accept() => break accepted.expect("accepted"),
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
    };
    let server = timeout(WAIT, back).await.expect("it connects again");
    send(&server, &Answer::Welcome(Welcome::default()));
    send(&server, &state(Liveness::Failed, 0));
    turn(&mut bfd, &mut io);
    assert_eq!(bfd.unknown_at, None);
    assert_eq!(consequences(&mut io).await, []);
}

#[tokio::test]
async fn dynamic_neighbor_of_the_former_process_is_monitored() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("clients.sock");
    let listener = Listener::bind(&path).expect("bound");
    let range = "[[neighbor_range]]\nprefix = \"192.0.2.0/24\"\nasn = 64512\nlimit = 9\n\
                 route_reflector_client = true\ngraceful_restart = 120\nbfd = { interval_ms = 100 }";
    let config = file(range);
    let intent = config.intent().expect("a speaker");
    let mut speaker = Speaker::new(intent.speaker.clone(), 7);
    let former = IpAddr::from([192, 0, 2, 3]);
    let restart = Restart::new(WAIT).with_dynamic([former].into());
    speaker.restarted(restart);
    speaker.start(Instant::ZERO);
    let mut io = Io::new(speaker, IoConfig::new([])).expect("no socket");
    let mut bfd = Bfd::new::<Plain>(path);
    turn(&mut bfd, &mut io);
    let (server, wanted) = requested(&listener).await;
    assert_eq!((wanted.remote, wanted.interval_ms), (former, 100));
    send(&server, &Answer::Welcome(Welcome::default()));
    let Answer::State(mut failed) = state(Liveness::Failed, 1) else {
        unreachable!("a state");
    };
    failed.remote = former;
    send(&server, &Answer::State(failed));
    turn(&mut bfd, &mut io);
    let found = consequences(&mut io).await;
    assert_eq!(found, [PathConsequence::FormerRemoved]);
    // Its peer has the session from now on.
    bfd.due = Some(Instant::ZERO);
    turn(&mut bfd, &mut io);
    let peers = io.speaker().peers();
    let peer = peers.filter(|view| view.dynamic).map(|view| view.id).last();
    assert!(peer.is_some() && bfd.paths[&former].peer == peer);
}

#[tokio::test]
async fn rejected_session_makes_the_path_unknown() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("clients.sock");
    let listener = Listener::bind(&path).expect("bound");
    let mut io = io(&file("bfd = true"));
    let mut bfd = Bfd::new::<Plain>(path);
    turn(&mut bfd, &mut io);
    let server = listener.accept().await.expect("accepted");
    send(&server, &Answer::Welcome(Welcome::default()));
    send(&server, &state(Liveness::Failed, 1));
    turn(&mut bfd, &mut io);
    let shown = words(&bfd, &io).expect("a neighbor with BFD");
    assert!(shown.contains("failed"), "{shown}");
    // The next process of cambric-bfd has lower limits.
    let rejected = Answer::Rejected {
        remote: Some(REMOTE.into()),
        reason: "sessions: 0".to_owned(),
    };
    send(&server, &rejected);
    turn(&mut bfd, &mut io);
    let shown = words(&bfd, &io);
    assert_eq!(shown.as_deref(), Some("rejected: sessions: 0"));
    assert!(bfd.paths[&IpAddr::from(REMOTE)].state.is_none());
    assert!(bfd.reject(REMOTE.into(), "sessions: 0".to_owned()));
    let other = IpAddr::from([192, 0, 2, 3]);
    assert!(!bfd.reject(other, "sessions: 0".to_owned()));
}

#[tokio::test]
async fn daemon_without_cambric_bfd_reports_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("clients.sock");
    let mut io = io(&file("bfd = true"));
    let mut bfd = Bfd::new::<Plain>(path);
    turn(&mut bfd, &mut io);
    let notes = Driver::<Plain>::notes(&bfd, Instant::ZERO);
    assert!(notes[0].contains("cambric-bfd does not run"), "{notes:?}");
    assert_eq!(notes.len(), 1);
    let shown = words(&bfd, &io).expect("a neighbor with BFD");
    assert!(shown.contains("cambric-bfd does not run"), "{shown}");
    assert!(
        Driver::<Plain>::poll_timeout(&bfd).is_some(),
        "it tries again"
    );
}

#[tokio::test]
async fn daemon_without_cambric_bfd_counts_strict_neighbors() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("clients.sock");
    let plain = "[[neighbor]]\naddress = \"192.0.2.3\"\nasn = 64512\npassive = true\nbfd = true";
    let mut io = io(&file(&format!("bfd = true\nbfd_strict = true\n{plain}")));
    let mut bfd = Bfd::new::<Plain>(path);
    turn(&mut bfd, &mut io);
    let notes = Driver::<Plain>::notes(&bfd, Instant::ZERO);
    assert!(notes[0].contains("for 2 neighbors"), "{notes:?}");
    let strict = "1 neighbors with bfd_strict cannot be established";
    assert!(notes[1].contains(strict), "{notes:?}");
}

#[tokio::test]
async fn daemon_without_such_neighbors_connects_to_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("clients.sock");
    let mut io = io(&file(""));
    let mut bfd = Bfd::new::<Plain>(path);
    turn(&mut bfd, &mut io);
    assert!(Driver::<Plain>::notes(&bfd, Instant::ZERO).is_empty());
    assert_eq!(Driver::<Plain>::poll_timeout(&bfd), None);
    assert_eq!(words(&bfd, &io), None);
}

#[tokio::test]
async fn timers_of_the_store_are_those_of_the_interface() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("clients.sock");
    let listener = Listener::bind(&path).expect("bound");
    let keys = "bfd = true\nbfd_auth = \"keyed-sha1\"\nbfd_keys = \"7 hush\"";
    let mut io = io(&file(keys));
    let mut bfd = Bfd::new::<Plain>(path);
    let timers = BfdTimers {
        pattern: "eth*".to_owned(),
        send_ms: 100,
        receive_ms: 60,
        idle_ms: 2_000,
        multiplier: 5,
    };
    let duties = Duties {
        bfd_timers: vec![timers],
        ..Duties::default()
    };
    Driver::<Plain>::assign(&mut bfd, &duties);
    turn(&mut bfd, &mut io);
    let server = listener.accept().await.expect("accepted");
    assert!(matches!(request(&server).await, Request::Hello { .. }));
    let Request::Set(before) = request(&server).await else {
        panic!("no session");
    };
    // The interface is not reported yet.
    assert_eq!((before.interval_ms, before.multiplier), (300, 3));
    let auth = before.auth.expect("keys");
    assert_eq!((auth.kind, auth.keys[0].id), (4, 7));
    assert_eq!(auth.keys[0].secret, "hush");
    send(&server, &Answer::Welcome(Welcome::default()));
    let Answer::State(reported) = state(Liveness::Alive, 0) else {
        panic!("a state");
    };
    let interface = Some("eth0".to_owned());
    send(
        &server,
        &Answer::State(SessionState {
            interface,
            ..reported
        }),
    );
    turn(&mut bfd, &mut io);
    bfd.due = Some(Instant::ZERO);
    turn(&mut bfd, &mut io);
    let Request::Set(after) = request(&server).await else {
        panic!("no change");
    };
    assert_eq!((after.interval_ms, after.receive_ms), (100, 60));
    assert_eq!((after.idle_ms, after.multiplier), (2_000, 5));
}
