//! Processes that are killed, and processes that hand their sessions over, under a keeper.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use super::peer::{Peer, Seen};
use super::*;

/// A daemon with a keeper, its peer, and its client with a session that is up.
struct Kept {
    daemon: Daemon,
    peer: Peer,
    user: User,
    /// The packets that the peer had received when the session was up.
    skipped: usize,
}

/// Starts a keeper with this program.
fn keeper(program: &Path, directory: &Path, address: IpAddr) -> Child {
    Command::new(program)
        .arg("--supervise")
        .arg("--config")
        .arg(configure(directory, address, ""))
        .spawn()
        .expect("the keeper starts")
}

impl Kept {
    async fn start(net: u8, program: &Path) -> Self {
        Self::with_multiplier(net, program, u8::MAX).await
    }

    /// The multiplier is that of the peer.
    async fn with_multiplier(net: u8, program: &Path, multiplier: u8) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let address = IpAddr::from([127, 33, net, 1]);
        let child = keeper(program, directory.path(), address);
        Self::of(child, directory, address, net, multiplier).await
    }

    async fn of(
        child: Child,
        directory: TempDir,
        address: IpAddr,
        net: u8,
        multiplier: u8,
    ) -> Self {
        let daemon = Daemon {
            child,
            directory,
            address,
        };
        daemon.answers().await;
        let peer = Peer::start([127, 33, net, 2], address, multiplier);
        let mut user = User::towards(&daemon, "test", peer.address, Hops::Single);
        user.liveness(Liveness::Alive).await;
        peer.receives(0, |seen| seen.state == bfd::State::Up).await;
        let skipped = peer.seen().len();
        Self {
            daemon,
            peer,
            user,
            skipped,
        }
    }

    /// Sends a signal to the daemon, and waits until its next process has sent a packet.
    async fn restart(&self, signal: Signal) {
        let pid = self.daemon.pid().await.expect("a daemon that answers");
        kill(pid, signal).expect("it runs");
        let next = async {
            loop {
                match self.daemon.pid().await {
                    Some(next) if next != pid => break,
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        timeout(WAIT, next).await.expect("the next process");
        self.peer.receives(self.peer.seen().len(), |_| true).await;
    }

    /// Checks that neither the peer nor the client has noticed anything. Returns the longest silence.
    async fn is_unnoticed(&mut self) -> Duration {
        let seen = self.peer.seen();
        let first = seen[self.skipped - 1];
        let up = &seen[self.skipped - 1..];
        for packet in up {
            let same = Seen {
                at: packet.at,
                ..first
            };
            assert_eq!((packet.state, *packet), (bfd::State::Up, same));
        }
        let state = self.user.liveness(Liveness::Alive).await;
        assert_eq!(state.failures, 0);
        let sessions = self.daemon.sessions().await;
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        let pairs = up.windows(2).map(|pair| pair[1].at - pair[0].at);
        pairs.max().unwrap_or_default()
    }
}

fn own() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_cambric-bfd"))
}

// Promise: as bfd-daemon killed_process_is_not_noticed_by_the_neighbor
#[tokio::test]
async fn killed_daemon_with_a_keeper_is_not_noticed() {
    let mut kept = Kept::start(20, &own()).await;
    let kills = std::env::var_os("CAMBRIC_SOAK").map_or(10, |_| 100);
    for _ in 0..kills {
        kept.restart(Signal::SIGKILL).await;
    }
    let silence = kept.is_unnoticed().await;
    println!("longest silence after {kills} kills: {silence:?}");
}

// Promise (BGP): An upgrade of cambric-bfd is not noticed by the neighbors.
#[tokio::test]
async fn upgraded_daemon_with_a_keeper_is_not_noticed() {
    // Links, not copies: a file that another thread's child still has open for writing cannot be started.
    let beside = own();
    let beside = beside.parent().expect("the directory of the program");
    let builds = tempfile::tempdir_in(beside).expect("a directory on its file system");
    let program = builds.path().join("cambric-bfd");
    fs::hard_link(own(), &program).expect("linked");
    let mut kept = Kept::start(21, &program).await;
    fs::rename(&program, builds.path().join("former")).expect("renamed");
    fs::hard_link(own(), &program).expect("upgraded");
    let running = async |daemon: &Daemon| {
        let pid = daemon.pid().await.expect("a daemon that answers");
        fs::read_link(format!("/proc/{pid}/exe")).expect("a program")
    };
    assert_ne!(running(&kept.daemon).await, program, "the former file");
    kept.restart(Signal::SIGTERM).await;
    assert_eq!(running(&kept.daemon).await, program);
    kept.is_unnoticed().await;
}

#[tokio::test]
async fn keeper_that_is_stopped_ends_sessions_in_admin_down() {
    let mut kept = Kept::start(22, &own()).await;
    let pid = kept.daemon.pid().await.expect("a daemon that answers");
    kept.daemon.signal(Signal::SIGTERM);
    let is_disabled = |seen: &Seen| seen.state == bfd::State::AdminDown;
    kept.peer.receives(kept.skipped, is_disabled).await;
    let status = kept.daemon.child.wait().expect("it ends");
    assert!(status.success(), "{status}");
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "its child");
    let states = kept.peer.seen();
    let mut states = states[kept.skipped..].iter().map(|seen| seen.state);
    assert!(states.all(|state| state != bfd::State::Down));
}

#[tokio::test]
async fn memory_of_another_version_starts_sessions_afresh() {
    let mut kept = Kept::start(23, &own()).await;
    let pid = kept.daemon.pid().await.expect("a daemon that answers");
    let is_memory = |path: &PathBuf| {
        let target = fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().contains("memfd:cambric-bfd")
    };
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    let mut files = files.map(|file| file.expect("a descriptor").path());
    let memory = files.find(is_memory).expect("a memory");
    let memory = fs::File::options().write(true).open(memory);
    let memory = memory.expect("opened");
    // The version is before the number of take-overs.
    memory.write_all_at(&[9], 11).expect("written");
    let former = kept.peer.seen()[0].discriminator;
    kill(pid, Signal::SIGKILL).expect("it runs");
    let lost = |event: &Event| matches!(event, Event::Lost { .. });
    kept.user.until(lost).await;
    let state = kept.user.liveness(Liveness::Alive).await;
    assert_eq!(state.failures, 0, "a new session has not failed");
    let is_new = |seen: &Seen| seen.state == bfd::State::Up && seen.discriminator != former;
    kept.peer.receives(kept.skipped, is_new).await;
    // The new memory survives.
    kept.skipped = kept.peer.seen().len();
    kept.restart(Signal::SIGKILL).await;
    kept.is_unnoticed().await;
}

#[tokio::test]
async fn peer_that_dies_while_the_daemon_is_killed_has_failed() {
    let mut kept = Kept::with_multiplier(24, &own(), 20).await;
    let pid = kept.daemon.pid().await.expect("a daemon that answers");
    kept.peer.silence(true);
    kill(pid, Signal::SIGKILL).expect("it runs");
    let state = kept.user.liveness(Liveness::Failed).await;
    assert!(state.diagnostic.contains("expired"), "{state:?}");
    assert_eq!(state.failures, 1);
}

/// The intervals of a detection time in the tests with a stopped process.
const DETECTION: u8 = 20;

// Promise (BGP): A process of cambric-bfd that gets no processor for longer than the detection time takes its own
// delay for no failure: the kernel's times of arrival decide.
#[tokio::test]
async fn packets_that_arrive_while_it_is_stopped_prevent_a_failure() {
    let kept = Kept::with_multiplier(27, &own(), DETECTION).await;
    let pid = kept.daemon.pid().await.expect("a daemon that answers");
    kill(pid, Signal::SIGSTOP).expect("it runs");
    kept.peer.pass(3 * usize::from(DETECTION)).await;
    let before = kept.peer.seen().len();
    kill(pid, Signal::SIGCONT).expect("it is stopped");
    kept.peer.receives(before, |_| true).await;
    kept.peer.pass(usize::from(DETECTION)).await;
    let seen = kept.peer.seen();
    let mut states = seen[kept.skipped..].iter().map(|seen| seen.state);
    assert!(states.all(|state| state == bfd::State::Up));
    let sessions = kept.daemon.sessions().await;
    assert_eq!((sessions[0].state.as_str(), sessions[0].downs), ("Up", 0));
}

#[tokio::test]
async fn gap_that_ends_before_it_continues_is_a_failure() {
    let mut kept = Kept::with_multiplier(28, &own(), DETECTION).await;
    let pid = kept.daemon.pid().await.expect("a daemon that answers");
    kill(pid, Signal::SIGSTOP).expect("it runs");
    kept.peer.silence(true);
    kept.peer.pass(2 * usize::from(DETECTION)).await;
    kept.peer.silence(false);
    kept.peer.pass(usize::from(DETECTION)).await;
    kill(pid, Signal::SIGCONT).expect("it is stopped");
    let failed = |event: &Event| matches!(event, Event::State(state) if state.failures > 0);
    let Event::State(state) = kept.user.until(failed).await else {
        panic!("a state");
    };
    assert_eq!(state.failures, 1, "{state:?}");
}

/// Reads the messages of a keeper until it has started its daemon again so many times after errors.
fn failed_starts(keeper: &mut Child, count: usize) {
    let messages = keeper.stderr.take().expect("its messages");
    let mut lines = BufReader::new(messages).lines().map_while(Result::ok);
    let failed = |line: &String| line.contains("has ended (exit status");
    let found = lines.by_ref().filter(failed).take(count).count();
    assert_eq!(found, count, "the keeper has ended");
    // Later messages are read, too, so that no process waits for it.
    std::thread::spawn(move || lines.for_each(drop));
}

#[tokio::test]
async fn starts_without_the_client_socket_end_no_session() {
    let directory = tempfile::tempdir().expect("a directory");
    let address = IpAddr::from([127, 33, 25, 1]);
    let config = configure(directory.path(), address, "");
    let good = fs::read_to_string(&config).expect("read");
    let child = Command::new(own())
        .args(["--supervise", "--config"])
        .arg(&config)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the keeper starts");
    let mut kept = Kept::of(child, directory, address, 25, u8::MAX).await;
    // No socket is below a file.
    fs::write(
        &config,
        good.replace("clients.sock", "bfd.toml/clients.sock"),
    )
    .expect("written");
    let pid = kept.daemon.pid().await.expect("a daemon that answers");
    kill(pid, Signal::SIGKILL).expect("it runs");
    // More than the starts that may fail to continue the state.
    failed_starts(&mut kept.daemon.child, 4);
    fs::write(&config, good).expect("written");
    kept.daemon.answers().await;
    kept.peer.receives(kept.peer.seen().len(), |_| true).await;
    kept.is_unnoticed().await;
}

#[test]
fn keeper_rejects_arguments_of_one_shot_commands() {
    for argument in ["--check", "--reload", "--help", "-h", "--version", "-V"] {
        let output = Command::new(own())
            .args(["--supervise", argument])
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{argument}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("exclude each other"), "{text}");
    }
}

#[test]
fn keeper_ends_with_the_error_of_its_first_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing.toml");
    let output = Command::new(own())
        .args(["--supervise", "--config"])
        .arg(missing)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("does not start"), "{text}");
}

/// In a network namespace of its own: as root with `CAMBRIC_LAB=1`.
#[tokio::test]
async fn changed_addresses_replace_the_stored_sockets() {
    if std::env::var_os("CAMBRIC_LAB").is_none() {
        println!("skipped: CAMBRIC_LAB is not set");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let any = IpAddr::from([0, 0, 0, 0]);
    let config = configure(directory.path(), any, "");
    let child = Command::new("unshare")
        .args([
            "--net",
            "sh",
            "-c",
            "ip link set lo up && exec \"$@\"",
            "sh",
        ])
        .arg(own())
        .args(["--supervise", "--config"])
        .arg(&config)
        .spawn()
        .expect("the keeper starts");
    let daemon = Daemon {
        child,
        directory,
        address: any,
    };
    for address in [[127, 0, 0, 1], [0, 0, 0, 0], [127, 0, 0, 1]] {
        daemon.answers().await;
        let address = IpAddr::from(address);
        configure(daemon.directory.path(), address, "");
        let pid = daemon.pid().await.expect("a daemon that answers");
        kill(pid, Signal::SIGTERM).expect("it runs");
        let next = async {
            while daemon.pid().await.is_none_or(|next| next == pid) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(WAIT, next).await.expect("the next process");
        let Reply::Status(status) = daemon.ask(Query::Status {}).await else {
            panic!("no status");
        };
        let listening = status.facts.iter().find(|fact| fact.name == "listening");
        let expected = format!("{address}:3784 {address}:4784");
        assert_eq!(listening.map(|fact| &fact.value), Some(&expected));
    }
}
