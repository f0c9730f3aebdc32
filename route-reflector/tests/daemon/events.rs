//! Events of the program, and the reported reasons of failed connections.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::LazyLock;

use daemon_common::command::{DebugRequest, EventQuery, LogRequest};
use daemon_common::limits::EVENT_WATCHERS_MAX;
use daemon_common::report::{EventPage, EventRecord, LogState, Neighbor};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname};
use nix::sys::socket::{listen, socket};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

use super::*;

/// Returns a configuration with one neighbor, at this port of 127.0.0.1.
fn config(port: u16) -> String {
    format!(
        "asn = 64512\nrouter_id = \"127.0.0.9\"\nlisten = []\nguard = {{ enabled = false }}\n\
         [[neighbor]]\nname = \"peer\"\naddress = \"127.0.0.1\"\nport = {port}\nasn = 64512\n\
         connect_retry = 1\n"
    )
}

async fn started(port: u16) -> Reflector {
    started_with(&config(port)).await
}

async fn started_with(keys: &str) -> Reflector {
    let directory = tempfile::tempdir().expect("a directory");
    let control = directory.path().join("rr.sock");
    let text = format!("control = {control:?}\n{keys}");
    std::fs::write(directory.path().join("rr.toml"), text).expect("written");
    let process = start(&directory.path().join("rr.toml"), &[]).expect("the program starts");
    let reflector = Reflector { process, directory };
    reflector.until("it answers", |_| true).await;
    reflector
}

impl Reflector {
    /// Queries the only neighbor until it satisfies `wanted`.
    async fn neighbor(&self, wanted: impl Fn(&Neighbor) -> bool) -> Neighbor {
        let asked = async {
            loop {
                let mut all = self.neighbors().await;
                let neighbor = all.neighbors.remove(0);
                if wanted(&neighbor) {
                    return neighbor;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(DEADLINE, asked).await.expect("the neighbor")
    }

    pub(super) async fn events(&self, query: EventQuery) -> EventPage {
        match self.call(Command::Events(query)).await {
            Ok(Reply::Events(page)) => page,
            other => panic!("{other:?}"),
        }
    }

    /// Waits for an event with a number above this one.
    pub(super) async fn event(&self, name: &str, after: u64) -> EventRecord {
        let mut query = EventQuery {
            name: Some(name.to_owned()),
            after: Some(after),
            wait: true,
            ..EventQuery::default()
        };
        let asked = async {
            loop {
                let page = self.events(query.clone()).await;
                if let Some(event) = page.events.into_iter().next() {
                    return event;
                }
                query.after = Some(page.next);
            }
        };
        timeout(DEADLINE, asked).await.expect("the event")
    }
}

/// A port of 127.0.0.1 where nothing listens. It is bound until the test program ends, so that no other
/// program gets it.
pub(super) fn closed_port() -> u16 {
    static PORT: LazyLock<(OwnedFd, u16)> = LazyLock::new(|| {
        let kind = SockType::Stream;
        let bound = socket(AddressFamily::Inet, kind, SockFlag::SOCK_CLOEXEC, None);
        let bound = bound.expect("a socket");
        bind(bound.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).expect("bound");
        let name: SockaddrIn = getsockname(bound.as_raw_fd()).expect("a name");
        (bound, name.port())
    });
    PORT.1
}

#[tokio::test]
async fn refused_dial_is_the_last_error_and_one_event() {
    let port = closed_port();
    let reflector = started(port).await;
    let event = reflector.event("session.connect_failed", 0).await;
    assert_eq!(event.level, "warn");
    let fields = serde_json::json!({
        "neighbor": "peer",
        "address": "127.0.0.1",
        "port": port,
        "reason": "Connection refused",
        "errno": 111,
    });
    assert_eq!(serde_json::Value::from(event.fields), fields);
    let expected = "cannot connect: Connection refused";
    let neighbor = reflector
        .neighbor(|neighbor| neighbor.last_error_for_s >= Some(3))
        .await;
    assert_eq!(neighbor.last_error.as_deref(), Some(expected));
    // By now it was dialed several times.
    let failed = EventQuery {
        name: Some("session.connect_failed".to_owned()),
        ..EventQuery::default()
    };
    assert_eq!(reflector.events(failed).await.events.len(), 1);
}

/// Returns a port with a full listen queue, so that further connections get no answer. The returned
/// value holds all connections of the queue.
async fn silent_port() -> (u16, impl Sized) {
    let kind = SockType::Stream;
    let silent = socket(AddressFamily::Inet, kind, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    let address = SockaddrIn::new(127, 0, 0, 1, 0);
    bind(silent.as_raw_fd(), &address).expect("bound");
    listen(&silent, Backlog::new(0).expect("a backlog")).expect("listens");
    let bound: SockaddrIn = getsockname(silent.as_raw_fd()).expect("a name");
    let mut held = Vec::new();
    loop {
        let connect = TcpStream::connect(("127.0.0.1", bound.port()));
        match timeout(Duration::from_millis(500), connect).await {
            Ok(stream) => held.push(stream.expect("connected")),
            Err(_) => return (bound.port(), (silent, held)),
        }
    }
}

#[tokio::test]
async fn dial_without_an_answer_times_out_as_last_error() {
    let (port, _held) = silent_port().await;
    let keys = format!("{}password = \"QXZQXZQXZ\"\n", config(port));
    let reflector = started_with(&keys).await;
    let event = reflector.event("session.connect_failed", 0).await;
    assert_eq!(event.fields["reason"], "timed out");
    let all = reflector.events(EventQuery::default()).await;
    assert!(!format!("{all:?}").contains("QXZ"), "a password: {all:?}");
    let neighbor = reflector.neighbor(|one| one.last_error.is_some()).await;
    assert_eq!(
        neighbor.last_error.as_deref(),
        Some("cannot connect: timed out")
    );
}

#[tokio::test]
async fn readers_that_never_read_leave_the_others_unaffected() {
    let reflector = started(closed_port()).await;
    reflector.event("session.connect_failed", 0).await;
    let path = reflector.directory.path().join("rr.sock");
    let mut readers = Vec::new();
    for after in [0, u64::MAX] {
        // As many watchers as may wait: they get pages that they do not read, or wait forever.
        for _ in 0..EVENT_WATCHERS_MAX / 2 {
            let mut reader = UnixStream::connect(&path).await.expect("connected");
            let request = format!("{{\"command\":\"events\",\"wait\":true,\"after\":{after}}}\n");
            let requests = request.repeat(100);
            reader
                .write_all(requests.as_bytes())
                .await
                .expect("written");
            readers.push(reader);
        }
    }
    let all = reflector.events(EventQuery::default()).await;
    assert!(!all.events.is_empty());
    reflector.until("it answers", |_| true).await;
    let limits = match reflector.call(Command::Limits {}).await {
        Ok(Reply::Limits(limits)) => limits.limits,
        other => panic!("{other:?}"),
    };
    let kept = limits.iter().find(|limit| limit.name == "events kept");
    assert!(
        kept.and_then(|limit| limit.used)
            .is_some_and(|used| used > 0)
    );
}

#[tokio::test]
async fn reader_beyond_those_that_may_wait_gets_an_error() {
    let reflector = started(closed_port()).await;
    reflector.event("session.connect_failed", 0).await;
    let query = EventQuery {
        name: Some("restart".to_owned()),
        wait: true,
        ..EventQuery::default()
    };
    let command = || reflector.call(Command::Events(query.clone()));
    let is_error = |reply: &&Result<Reply, client::CallError>| reply.is_err();
    let refused = async {
        loop {
            let readers = (0..=EVENT_WATCHERS_MAX).map(|_| command());
            let all = futures_util::future::join_all(readers).await;
            match all.iter().filter(is_error).count() {
                // The first reader had its answer before the last one asked.
                0 => {}
                count => return assert_eq!(count, 1, "{all:?}"),
            }
        }
    };
    timeout(DEADLINE, refused).await.expect("an error");
}

#[tokio::test]
async fn json_log_has_the_fields_of_events() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = directory.path().join("rr.sock");
    let text = config(closed_port());
    let text = format!("control = {control:?}\nlog_format = \"json\"\n{text}");
    std::fs::write(directory.path().join("rr.toml"), text).expect("written");
    let mut command = command(&directory.path().join("rr.toml"), &[]);
    let mut process = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let stderr = process.stderr.take().expect("piped");
    let reflector = Reflector { process, directory };
    reflector.until("it answers", |_| true).await;
    reflector.event("session.connect_failed", 0).await;
    reflector.signal(nix::sys::signal::Signal::SIGTERM);
    let log = std::io::read_to_string(stderr).expect("a log");
    let lines = log.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("one object a line");
        line
    });
    let failed: Vec<_> = lines
        .filter(|line| line["fields"]["event"] == "session.connect_failed")
        .collect();
    let [failed] = failed.as_slice() else {
        panic!("{log}")
    };
    assert_eq!(failed["level"], "WARN");
    let fields = &failed["fields"];
    assert_eq!(fields["message"], "cannot connect to neighbor");
    assert_eq!(fields["neighbor"], "peer");
    assert_eq!(fields["errno"], 111);
    assert!(fields["port"].is_u64(), "{fields}");
}

impl Reflector {
    async fn log_state(&self, command: Command) -> Result<LogState, client::CallError> {
        match self.call(command).await {
            Ok(Reply::Log(state)) => Ok(state),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        }
    }
}

fn set_log(level: Option<&str>, for_s: u64) -> Command {
    Command::SetLog(LogRequest {
        level: level.map(str::to_owned),
        for_s: Some(for_s),
    })
}

#[tokio::test]
async fn log_level_changes_at_run_time_and_returns() {
    let reflector = started(closed_port()).await;
    reflector.event("session.connect_failed", 0).await;
    let set = reflector
        .log_state(set_log(Some("event=debug"), 3600))
        .await;
    let set = set.expect("set");
    assert_eq!(
        (set.configured.as_str(), set.temporary.as_deref()),
        ("info", Some("event=debug"))
    );
    assert!(
        set.temporary_for_s.is_some_and(|left| left > 3000),
        "{set:?}"
    );
    reflector.event("session.connect_retried", 0).await;

    let wrong = reflector.log_state(set_log(Some("verbose"), 1)).await;
    let wrong = wrong.expect_err("refused").to_string();
    assert!(wrong.contains("`verbose` is not a level"), "{wrong}");
    let long = reflector.log_state(set_log(Some("debug"), u64::MAX)).await;
    assert!(long.is_err(), "{long:?}");

    // A shorter time replaces the longer one.
    let set = reflector.log_state(set_log(Some("debug"), 1)).await;
    set.expect("set");
    let ended = async {
        loop {
            let state = reflector.log_state(Command::Log {}).await.expect("a state");
            if state.temporary.is_none() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(DEADLINE, ended).await.expect("its time is over");
    let after = reflector.events(EventQuery::default()).await.next;
    let query = EventQuery {
        name: Some("session.connect_retried".to_owned()),
        after: Some(after),
        wait: true,
        ..EventQuery::default()
    };
    let page = reflector.events(query).await;
    assert!(page.events.is_empty(), "debug lines are over: {page:?}");
    let reset = reflector.log_state(set_log(None, 0)).await.expect("reset");
    assert_eq!(reset.temporary, None);
}

#[tokio::test]
async fn debugged_neighbor_logs_all_its_events() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = directory.path().join("rr.sock");
    let keys = config(closed_port());
    let text = format!("control = {control:?}\nlog = \"off\"\n{keys}");
    std::fs::write(directory.path().join("rr.toml"), text).expect("written");
    let mut process = start(&directory.path().join("rr.toml"), &[]).expect("it starts");
    let stderr = process.stderr.take().expect("piped");
    let reflector = Reflector { process, directory };
    reflector.until("it answers", |_| true).await;
    let debug = |neighbor: &str, for_s| {
        Command::Debug(DebugRequest {
            neighbor: neighbor.to_owned(),
            for_s: Some(for_s),
        })
    };
    let unknown = reflector.log_state(debug("nobody", 9)).await;
    assert!(unknown.is_err(), "{unknown:?}");
    let state = reflector.log_state(debug("127.0.0.1", 3600)).await;
    let state = state.expect("debugged");
    assert!(state.debugged.contains_key("peer"), "{state:?}");
    reflector.event("session.connect_retried", 0).await;
    let state = reflector.log_state(debug("peer", 0)).await.expect("ended");
    assert!(state.debugged.is_empty(), "{state:?}");
    reflector.signal(nix::sys::signal::Signal::SIGTERM);
    let log = std::io::read_to_string(stderr).expect("a log");
    assert!(
        log.contains("event=\"session.connect_retried\" neighbor=\"peer\""),
        "{log}"
    );
    let is_of_peer = |line: &str| line.contains("forced_event") && line.contains("\"peer\"");
    assert!(
        log.lines().all(is_of_peer),
        "log = \"off\" for all else: {log}"
    );
}

/// A neighbor that never connects, and its password.
const SILENT: &str = "[[neighbor]]\naddress = \"127.0.9.9\"\nasn = 64512\npassive = true\n\
                      password = \"QXZQXZQXZ\"\n";

#[tokio::test]
async fn debugged_neighbor_logs_its_messages() {
    let mut reflector = started_with(&format!("{CONFIG}{SILENT}")).await;
    let address = reflector.address().await;
    let (mut one, mut two) = (client(2, address), client(3, address));
    let debug = |neighbor: &str, for_s| {
        Command::Debug(DebugRequest {
            neighbor: neighbor.to_owned(),
            for_s: Some(for_s),
        })
    };
    up(&mut [&mut one, &mut two]).await;
    for neighbor in ["127.0.0.2", "127.0.0.3"] {
        let state = reflector.log_state(debug(neighbor, 3600)).await;
        state.expect("debugged");
    }
    one.handle(Input::Local {
        family: Family::IPV4_UNICAST,
        net: Net::V4(prefix()),
        attributes: Some(Attributes {
            local_pref: Some(200),
            next_hop: Some(NextHop::V4(Ipv4Addr::new(10, 0, 0, 2))),
            ..Attributes::default()
        }),
        interface: None,
    });
    arrival(&mut one, &mut two).await;
    // Of a neighbor that is debugged no more nothing is logged.
    let ended = reflector.log_state(debug("127.0.0.2", 0)).await;
    ended.expect("ended");
    drop(one);
    let clear = Command::Clear {
        neighbor: "127.0.0.3".to_owned(),
    };
    reflector.call(clear).await.expect("cleared");
    drive(&mut [&mut two], "the session ends", |event| {
        matches!(event, Event::Speaker(SpeakerEvent::Down { .. })).then_some(())
    })
    .await;
    reflector.signal(nix::sys::signal::Signal::SIGTERM);
    let stderr = reflector.process.stderr.take().expect("piped");
    let log = std::io::read_to_string(stderr).expect("a log");
    let has = |parts: &[&str]| {
        log.lines()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    let announced = "announced=1 (10.65.0.1/32)";
    for parts in [
        ["message.received", "address=127.0.0.2", "UPDATE", announced],
        ["message.sent", "address=127.0.0.3", "UPDATE", announced],
        [
            "message.sent",
            "address=127.0.0.3",
            "NOTIFICATION",
            "code=6 subcode=4",
        ],
    ] {
        assert!(has(&parts), "{parts:?} are not on a line of:\n{log}");
    }
    assert!(
        has(&["message.sent", "LOCAL_PREF=200", "127.0.0.2"]),
        "{log}"
    );
    assert!(
        !has(&["message.", "NOTIFICATION", "address=127.0.0.2"]),
        "{log}"
    );
    assert!(!log.contains("QXZ"), "a password:\n{log}");
}
