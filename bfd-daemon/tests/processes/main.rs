//! Processes of the daemon on loopback, with the clients of this test.

mod flood;
mod peer;
mod survival;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use bfd::Instant;
use bfd_client::limits::IDLE_MS;
use bfd_client::{Client, Event, Hops, Liveness, SessionState, Wanted};
use daemon_common::report::{BfdSession, Limits, Status};
use daemon_common::{Command as Query, Reply, client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::time::timeout;

/// A generous bound of every wait.
const WAIT: Duration = Duration::from_secs(120);

/// A process of the daemon, which is killed when it is dropped.
struct Daemon {
    child: Child,
    directory: TempDir,
    address: IpAddr,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    async fn start(address: [u8; 4], keys: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let address = IpAddr::from(address);
        let daemon = Self {
            child: spawn(directory.path(), address, keys),
            directory,
            address,
        };
        daemon.answers().await;
        daemon
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Waits until the daemon answers.
    async fn answers(&self) {
        let control = self.path("bfd.sock");
        let answer = async {
            while client::call(&control, &Query::Status {}).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(WAIT, answer).await.expect("a daemon that answers");
    }

    async fn ask(&self, query: Query) -> Reply {
        let control = self.path("bfd.sock");
        client::call(control, &query).await.expect("an answer")
    }

    async fn sessions(&self) -> Vec<BfdSession> {
        match self.ask(Query::Bfd {}).await {
            Reply::Bfd(report) => report.sessions,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the process that answers; that of a daemon under a keeper is not its child's.
    async fn pid(&self) -> Option<Pid> {
        let control = self.path("bfd.sock");
        match client::call(control, &Query::Status {}).await {
            Ok(Reply::Status(status)) => Some(Pid::from_raw(status.pid as i32)),
            _ => None,
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32);
        kill(pid, signal).expect("the process runs");
    }
}

fn spawn(directory: &Path, address: IpAddr, keys: &str) -> Child {
    let config = configure(directory, address, keys);
    Command::new(env!("CARGO_BIN_EXE_cambric-bfd"))
        .arg("--config")
        .arg(config)
        .spawn()
        .expect("the daemon starts")
}

/// Writes the configuration, and returns its path.
fn configure(directory: &Path, address: IpAddr, keys: &str) -> PathBuf {
    let config = directory.join("bfd.toml");
    let at = directory.display();
    let text = format!(
        "control = \"{at}/bfd.sock\"\nsocket = \"{at}/clients.sock\"\naddresses = [\"{address}\"]\n\
         interval_min_ms = 10\n{keys}\n"
    );
    std::fs::write(&config, text).expect("written");
    config
}

/// A client of a daemon.
struct User {
    client: Client,
    start: std::time::Instant,
    events: Vec<Event>,
}

impl User {
    fn of(daemon: &Daemon, name: &str, remote: &Daemon, hops: Hops) -> Self {
        Self::towards(daemon, name, remote.address, hops)
    }

    fn towards(daemon: &Daemon, name: &str, remote: IpAddr, hops: Hops) -> Self {
        let mut client = Client::new(daemon.path("clients.sock"), name);
        let wanted = Wanted {
            remote,
            local: Some(daemon.address),
            hops,
            interval_ms: 50,
            receive_ms: 50,
            idle_ms: IDLE_MS,
            multiplier: 100,
            ttl_min: 255,
            auth: None,
        };
        client.want(BTreeMap::from([(wanted.remote, wanted)]));
        Self {
            client,
            start: std::time::Instant::now(),
            events: Vec::new(),
        }
    }

    /// Waits for an event that `wanted` accepts.
    async fn until(&mut self, wanted: impl Fn(&Event) -> bool) -> Event {
        let wait = async {
            loop {
                let now = Instant::ZERO + self.start.elapsed();
                self.events.extend(self.client.turn(now));
                if let Some(at) = self.events.iter().position(&wanted) {
                    let event = self.events.swap_remove(at);
                    self.events.clear();
                    return event;
                }
                let rest = self.client.poll_timeout().map(|at| at - now);
                tokio::select! {
                    () = self.client.ready() => {}
                    () = tokio::time::sleep(rest.unwrap_or(WAIT)) => {}
                }
            }
        };
        timeout(WAIT, wait).await.expect("the event")
    }

    async fn liveness(&mut self, liveness: Liveness) -> SessionState {
        let is = |event: &Event| matches!(event, Event::State(state) if state.liveness == liveness);
        match self.until(is).await {
            Event::State(state) => state,
            other => panic!("{other:?}"),
        }
    }
}

async fn pair(net: u8, hops: Hops) -> ([Daemon; 2], [User; 2]) {
    let one = Daemon::start([127, 33, net, 1], "").await;
    let other = Daemon::start([127, 33, net, 2], "").await;
    let mut users = [
        User::of(&one, "test", &other, hops),
        User::of(&other, "test", &one, hops),
    ];
    let [first, second] = &mut users;
    tokio::join!(
        first.liveness(Liveness::Alive),
        second.liveness(Liveness::Alive)
    );
    ([one, other], users)
}

// Promise (BGP): For the neighbors, a killed cambric-bfd without systemd and without a keeper is a failure of the path,
// and a stopped one is not.
#[tokio::test]
async fn killed_daemon_is_a_failure_and_stopped_one_is_not() {
    let ([one, other], [mut user, _other_user]) = pair(1, Hops::Single).await;
    let sessions = one.sessions().await;
    assert_eq!(sessions.len(), 1);
    assert_eq!(
        (sessions[0].hops.as_str(), sessions[0].state.as_str()),
        ("single", "Up")
    );
    assert!(sessions[0].remote_independent, "the C bit");
    other.signal(Signal::SIGKILL);
    let state = user.liveness(Liveness::Failed).await;
    assert_eq!(state.failures, 1);
    drop(other);

    let ([_one, other], [mut user, _other_user]) = pair(2, Hops::Multi).await;
    other.signal(Signal::SIGTERM);
    let state = user.liveness(Liveness::DisabledThere).await;
    assert_eq!(state.failures, 0);
}

#[tokio::test]
async fn sessions_over_routers_report_their_kind() {
    let ([one, _other], _users) = pair(3, Hops::Multi).await;
    let sessions = one.sessions().await;
    assert_eq!(
        (sessions[0].hops.as_str(), sessions[0].state.as_str()),
        ("multi", "Up")
    );
    let Reply::Status(Status { bfd, .. }) = one.ask(Query::Status {}).await else {
        panic!("no status");
    };
    let figures = bfd.expect("figures");
    assert_eq!((figures.clients, figures.sessions, figures.up), (1, 1, 1));
    let Reply::Limits(Limits { limits }) = one.ask(Query::Limits {}).await else {
        panic!("no limits");
    };
    let rate = limits.iter().find(|one| one.name == "packets per second");
    assert_eq!(rate.and_then(|one| one.used), Some(20));
}

// Promise (BGP): BFD sessions of a BGP daemon that has died continue, and its next process takes them over.
#[tokio::test]
async fn sessions_continue_without_their_client() {
    let ([one, _other], [user, mut other_user]) = pair(4, Hops::Single).await;
    drop(user);
    let away = async {
        while one.sessions().await[0].expires_in_s.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(WAIT, away).await.expect("the client is away");
    assert_eq!(one.sessions().await[0].state, "Up");
    let mut next = User::of(&one, "test", &_other, Hops::Single);
    let state = next.liveness(Liveness::Alive).await;
    assert_eq!(state.failures, 0);
    let sessions = one.sessions().await;
    assert_eq!((sessions.len(), sessions[0].expires_in_s), (1, None));
    assert_eq!(sessions[0].downs, 0);
    next.client.leave();
    let state = other_user.liveness(Liveness::DisabledThere).await;
    assert_eq!(state.failures, 0);
}

#[tokio::test]
async fn stopped_process_that_continues_loses_no_session() {
    let ([one, other], [mut user, mut other_user]) = pair(5, Hops::Single).await;
    // The other end finds the silence a failure. This end has received packets all the time, and finds
    // only the other end's answer.
    one.signal(Signal::SIGSTOP);
    let state = other_user.liveness(Liveness::Failed).await;
    assert!(state.diagnostic.contains("expired"), "{state:?}");
    one.signal(Signal::SIGCONT);
    let state = user.liveness(Liveness::Failed).await;
    assert!(!state.diagnostic.contains("expired"), "{state:?}");
    drop(other);
}

#[tokio::test]
async fn rejected_session_names_the_limit() {
    let one = Daemon::start([127, 33, 6, 1], "packets_per_second = 5").await;
    let other = Daemon::start([127, 33, 6, 2], "").await;
    let mut user = User::of(&one, "test", &other, Hops::Auto);
    let event = user
        .until(|event| matches!(event, Event::Rejected { .. }))
        .await;
    let Event::Rejected { reason, .. } = event else {
        panic!("{event:?}");
    };
    assert!(reason.contains("packets_per_second"), "{reason}");
    let config = one.path("bfd.toml");
    let text = std::fs::read_to_string(&config).expect("read");
    std::fs::write(&config, text.replace("second = 5", "second = 50")).expect("written");
    let reply = one.ask(Query::Reload {}).await;
    assert!(matches!(reply, Reply::Reload(_)), "{reply:?}");
    let mut again = User::of(&one, "again", &other, Hops::Auto);
    again.until(|event| matches!(event, Event::State(_))).await;
}

/// A neighbor without an answer must not delay the packets of others, so each session has a socket.
#[tokio::test]
async fn each_session_sends_from_a_port_of_its_own() {
    let daemon = Daemon::start([127, 33, 7, 1], "").await;
    let remotes = [2, 3].map(|last| IpAddr::from([127, 33, 7, last]));
    let sockets = remotes.map(|remote| std::net::UdpSocket::bind((remote, 3784)).expect("bound"));
    let mut client = Client::new(daemon.path("clients.sock"), "test");
    let wanted = remotes.map(|remote| {
        let wanted = Wanted {
            remote,
            local: None,
            hops: Hops::Single,
            interval_ms: 50,
            receive_ms: 50,
            idle_ms: IDLE_MS,
            multiplier: 3,
            ttl_min: 255,
            auth: None,
        };
        (remote, wanted)
    });
    client.want(BTreeMap::from(wanted));
    let mut user = User {
        client,
        start: std::time::Instant::now(),
        events: Vec::new(),
    };
    user.until(|event| matches!(event, Event::State(_))).await;
    let ports = sockets.map(|socket| {
        socket.set_read_timeout(Some(WAIT)).expect("set");
        let mut ports = [0, 1].map(|_| socket.recv_from(&mut [0; 64]).expect("a packet").1.port());
        assert_eq!(ports[0], ports[1], "a session keeps its port");
        assert!((49152..).contains(&ports[0]), "{ports:?}");
        std::mem::take(&mut ports[0])
    });
    assert_ne!(ports[0], ports[1]);
}

/// A process with few descriptors shares a socket, and reports it.
#[tokio::test]
async fn daemon_without_descriptors_shares_a_socket() {
    let mut daemon = Daemon::start([127, 33, 8, 1], "").await;
    daemon.child.kill().expect("it runs");
    daemon.child.wait().expect("it has ended");
    let directory = daemon.directory.path().display();
    let start = format!(
        "ulimit -n 256; exec {} --config {directory}/bfd.toml",
        env!("CARGO_BIN_EXE_cambric-bfd")
    );
    let shell = Command::new("sh").arg("-c").arg(start).spawn();
    daemon.child = shell.expect("the daemon starts");
    daemon.answers().await;
    let other = Daemon::start([127, 33, 8, 2], "").await;
    let mut users = [
        User::of(&daemon, "test", &other, Hops::Single),
        User::of(&other, "test", &daemon, Hops::Single),
    ];
    let [first, second] = &mut users;
    tokio::join!(
        first.liveness(Liveness::Alive),
        second.liveness(Liveness::Alive)
    );
    let notes = async |daemon: &Daemon| match daemon.ask(Query::Status {}).await {
        Reply::Status(Status { notes, .. }) => notes.join("\n"),
        other => panic!("{other:?}"),
    };
    let shared = notes(&daemon).await;
    assert!(shared.contains("1 sessions share"), "{shared}");
    let own = notes(&other).await;
    assert!(!own.contains("share"), "{own}");
}
