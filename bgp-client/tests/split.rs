//! The two processes of the running program, each killed, in a network namespace of the test's own.
//!
//! They need root, and run when `CAMBRIC_LAB=1` is set; otherwise they print that they were skipped.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use bgp_config::{BgpFile, NextHops, NoKernel, Source};
use bgp_io::bgp_proto::{Attributes, Family, Ipv4Prefix, Net, NextHop};
use bgp_io::{Input, Io, IoConfig, Speaker};
use daemon_common::report::{ParentFigures, Status};
use daemon_common::{Command, Reply, client};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::timeout;

/// Longer than any step takes; a test that waits so long has failed.
const DEADLINE: Duration = Duration::from_secs(120);
const PROGRAM: &str = env!("CARGO_BIN_EXE_cambric-bgp-client");

const CONFIG: &str = r#"
asn = 64512
router_id = "10.0.0.11"
listen = ["127.0.0.1:179"]

[[neighbor]]
address = "127.0.0.2"
asn = 64512
passive = true
"#;

const PEER: &str = r#"
asn = 64512
router_id = "127.0.0.2"
listen = []

[[neighbor]]
address = "127.0.0.1"
source = "127.0.0.2"
asn = 64512
"#;

/// The route that the peer advertises.
const ROUTE: &str = "10.65.0.0/24 via 10.0.0.12";

/// Runs a test in a network namespace with the networks of the client.
fn in_namespace(test: impl AsyncFnOnce() + Send + 'static) {
    if !netns_lab::allowed("a test with a kernel of its own") {
        return;
    }
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        for words in [
            "link set lo up",
            "link add up0 type veth peer name far0",
            "link set far0 up",
            "link set up0 up",
            "addr add 10.0.0.11/24 dev up0",
        ] {
            ip(words);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { timeout(4 * DEADLINE, test()).await.expect("in time") });
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` in this thread's namespace.
fn ip(arguments: &str) -> String {
    let output = Process::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The client, its peer, and a watch of the kernel's routes.
struct Lab {
    directory: tempfile::TempDir,
    daemon: Child,
    monitor: Child,
    peer: Io,
}

impl Lab {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let control = directory.path().join("client.sock");
        let config = format!("control = {control:?}\n{CONFIG}");
        fs::write(config_of(directory.path()), config).unwrap();
        let monitor = watch_routes(directory.path()).await;
        let daemon = run(directory.path());
        let mut lab = Self {
            directory,
            daemon,
            monitor,
            peer: peer(),
        };
        lab.until("the route is installed", |_| is_installed())
            .await;
        lab
    }

    /// Returns the changes of routes so far.
    fn seen(&self) -> String {
        routes_seen(self.directory.path())
    }

    /// Lets the peer run until it is so.
    async fn until(&mut self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let done = async {
            while !so(self) {
                tokio::select! {
                    _ = self.peer.next() => {}
                    () = tokio::task::yield_now() => {}
                }
            }
        };
        let done = timeout(DEADLINE, done).await;
        done.unwrap_or_else(|_| panic!("never: {what}"));
    }

    /// Lets the peer run until the status is so.
    async fn status(&mut self, what: &str, so: impl Fn(&Status) -> bool) -> Status {
        let control = self.directory.path().join("client.sock");
        let asked = async {
            loop {
                let answer = async {
                    match client::call(control.clone(), &Command::Status {}).await {
                        Ok(Reply::Status(status)) if so(&status) => return Some(status),
                        _ => tokio::task::yield_now().await,
                    }
                    None
                };
                let mut answer = std::pin::pin!(answer);
                let answer = loop {
                    tokio::select! {
                        answer = &mut answer => break answer,
                        _ = self.peer.next() => {}
                    }
                };
                if let Some(status) = answer {
                    return status;
                }
            }
        };
        let asked = timeout(DEADLINE, asked).await;
        asked.unwrap_or_else(|_| panic!("never: {what}"))
    }

    fn assert_no_flap(&self) {
        let seen = self.seen();
        assert!(is_installed(), "{seen}");
        let mut lines = seen.lines();
        assert!(
            lines.all(|line| !line.starts_with("Deleted 10.65.")),
            "{seen}"
        );
        let added = seen.lines().filter(|line| line.starts_with("10.65."));
        assert_eq!(added.count(), 1, "{seen}");
    }
}

/// Starts a watch of the kernel's routes, and returns when it reports changes.
async fn watch_routes(directory: &Path) -> Child {
    let seen = File::create(directory.join("routes")).unwrap();
    let monitor = Process::new("ip")
        .args(["-4", "monitor", "route"])
        .stdout(seen)
        .spawn()
        .unwrap();
    let begun = async {
        while !routes_seen(directory).contains("192.0.2.1") {
            // The kernel reports changes only: replacing a route by the same one is none.
            ip("route add 192.0.2.1/32 dev up0");
            ip("route delete 192.0.2.1/32 dev up0");
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, begun).await.expect("the monitor runs");
    monitor
}

fn routes_seen(directory: &Path) -> String {
    fs::read_to_string(directory.join("routes")).unwrap()
}

impl Drop for Lab {
    fn drop(&mut self) {
        for process in [&mut self.daemon, &mut self.monitor] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn config_of(directory: &Path) -> PathBuf {
    directory.join("client.toml")
}

fn run(directory: &Path) -> Child {
    let mut command = Process::new(PROGRAM);
    command.arg("--config").arg(config_of(directory));
    for variable in [
        "CAMBRIC_LOG",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
    ] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null()).spawn().unwrap()
}

fn peer() -> Io {
    let source = Source::new("peer.toml", PEER);
    let read = BgpFile::<NoKernel>::read(&source, NextHops::AssumeReachable);
    let (_, intent) = read.unwrap_or_else(|report| panic!("{report}"));
    let speaker = Speaker::new(intent.speaker, 1);
    let mut io = Io::new(speaker, IoConfig::default()).unwrap();
    io.handle(Input::Local {
        family: Family::IPV4_UNICAST,
        net: Net::V4(Ipv4Prefix::new(Ipv4Addr::new(10, 65, 0, 0), 24).unwrap()),
        attributes: Some(Attributes {
            next_hop: Some(NextHop::V4(Ipv4Addr::new(10, 0, 0, 12))),
            ..Attributes::default()
        }),
        interface: None,
    });
    io
}

fn is_installed() -> bool {
    ip("route show proto 119").contains(ROUTE)
}

fn parent_of(status: &Status) -> ParentFigures {
    let figures = status.privileges.as_deref().unwrap();
    assert_eq!(figures.capabilities, [""; 0], "{figures:?}");
    assert!(figures.confined && figures.seccomp, "{figures:?}");
    figures.parent.clone().unwrap()
}

fn is_up(status: &Status) -> bool {
    let mut facts = status.facts.iter();
    facts.any(|fact| fact.name == "sessions up" && fact.value == "1 of 1")
}

fn is_in_sync(status: &Status) -> bool {
    is_up(status) && status.ready && status.kernel.is_some()
}

fn is_alive(process: u32) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

fn signal(process: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process).unwrap()), signal).unwrap();
}

// Promise (Kernel routes): The end of the process that parses BGP changes no kernel route.
#[test]
fn killed_parser_returns_and_its_routes_stay() {
    in_namespace(async || {
        let mut lab = Lab::start().await;
        let status = lab.status("it is up", is_up).await;
        let parent = parent_of(&status);
        assert_eq!(parent.pid, lab.daemon.id());
        assert_eq!(
            parent.capabilities,
            ["CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE"]
        );
        // Its parent loads the host guard and reads it.
        let guard = status.facts.iter().find(|fact| fact.name == "host guard");
        assert!(guard.unwrap().value.starts_with("in effect"), "{guard:?}");

        signal(status.pid, Signal::SIGKILL);
        let again = |new: &Status| new.pid != status.pid && is_in_sync(new);
        let after = lab.status("it is up again", again).await;
        let parent = parent_of(&after);
        assert_eq!((parent.pid, parent.restarts), (lab.daemon.id(), 1));
        lab.assert_no_flap();
    });
}

// Promise: as bgp-client killed_parser_returns_and_its_routes_stay
#[test]
fn killed_parent_ends_its_parser_and_routes_stay() {
    in_namespace(async || {
        let mut lab = Lab::start().await;
        let status = lab.status("it is up", is_up).await;
        signal(lab.daemon.id(), Signal::SIGKILL);
        lab.daemon.wait().unwrap();
        lab.until("the parser ends", |_| !is_alive(status.pid))
            .await;
        lab.assert_no_flap();
        // The next start finds the route and writes nothing.
        lab.daemon = run(lab.directory.path());
        lab.status("it is up again", is_in_sync).await;
        lab.assert_no_flap();
    });
}

/// A signal to the parent reaches the parser, and the exit code is that of the parser.
#[test]
fn signals_to_the_parent_reload_and_stop_the_parser() {
    in_namespace(async || {
        let mut lab = Lab::start().await;
        let before = lab.status("it is up", is_up).await;
        // A port that the file names from now on.
        let file = config_of(lab.directory.path());
        let text = fs::read_to_string(&file).unwrap();
        let more = text.replace("\"127.0.0.1:179\"", "\"127.0.0.1:179\", \"127.0.0.1:180\"");
        fs::write(&file, more).unwrap();
        signal(lab.daemon.id(), Signal::SIGHUP);
        let listens = |status: &Status| {
            let mut facts = status.facts.iter();
            facts.any(|fact| fact.name == "listening" && fact.value.contains(":180"))
        };
        let after = lab.status("it listens", listens).await;
        assert_eq!((after.pid, &after.config_error), (before.pid, &None));
        signal(lab.daemon.id(), Signal::SIGTERM);
        let ended = lab.daemon.wait().unwrap();
        assert!(ended.success(), "{ended}");
        assert!(!is_alive(before.pid));
        lab.assert_no_flap();
    });
}
