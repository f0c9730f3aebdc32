//! Tests of the program: started, addressed over BGP and its control socket, signaled, stopped. All
//! sockets are on loopback addresses and free ports.

mod events;
mod listening;
mod log;
mod metrics;
mod operator;
mod origins;
mod privileges;
mod relocations;
mod runtime_secrets;
mod secrets;
mod service_manager;
mod slow_readers;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command as Process, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::Poll;
use std::time::Duration;

use bgp_config::{BgpFile, NextHops, NoKernel, Source};
use bgp_io::bgp_fsm::DownReason;
use bgp_io::bgp_proto::{Attributes, Family, Ipv4Prefix, Net, NextHop};
use bgp_io::bgp_speaker::Event as SpeakerEvent;
use bgp_io::{Event, Input, Io, IoConfig, Speaker};
use daemon_common::report::{Neighbors, Routes, Status};
use daemon_common::{Command, Reply, client};
use tokio::time::timeout;

/// Longer than any step takes; a test that waits so long has failed.
const DEADLINE: Duration = Duration::from_secs(120);
const PROGRAM: &str = env!("CARGO_BIN_EXE_cambric-route-reflector");

const CONFIG: &str = r#"
asn = 64512
router_id = "127.0.0.1"
cluster_id = "127.0.0.99"
listen = ["127.0.0.1:0"]
guard = { enabled = false } # This is no namespace of the test's own.

[[neighbor_range]]
prefix = "127.0.0.0/24"
asn = 64512
limit = 2
route_reflector_client = true
"#;

/// The daemon as a process; killed when dropped.
struct Reflector {
    process: Child,
    directory: tempfile::TempDir,
}

impl Reflector {
    async fn start() -> Self {
        Self::start_on(0).await
    }

    /// Starts a reflector that listens on this port.
    async fn start_on(port: u16) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let config = directory.path().join("rr.toml");
        let control = directory.path().join("rr.sock");
        let keys = CONFIG.replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
        std::fs::write(&config, format!("control = {control:?}\n{keys}")).expect("write");
        let process = start(&config, &[]).expect("the program starts");
        let reflector = Self { process, directory };
        reflector.until("it answers", |_: &Status| true).await;
        reflector
    }

    /// Waits until it has saved exactly these neighbors of ranges.
    async fn remembers(&self, neighbors: &[&str]) {
        let file = self.directory.path().join("rr.restart");
        let written = async {
            loop {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                let named = text
                    .lines()
                    .filter_map(|line| line.strip_prefix("neighbor "));
                if !text.is_empty() && named.eq(neighbors.iter().copied()) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, written).await.expect("it is written");
    }

    /// Starts it again after its end.
    async fn start_again(&mut self) {
        self.process.wait().expect("it has ended");
        self.process = start(&self.config(), &[]).expect("the program starts");
        self.until("it answers", |_: &Status| true).await;
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("rr.toml")
    }

    async fn call(&self, command: Command) -> Result<Reply, client::CallError> {
        client::call(self.directory.path().join("rr.sock"), &command).await
    }

    /// Queries the status until it satisfies `wanted`.
    async fn until(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        let asked = async {
            loop {
                match self.call(Command::Status {}).await {
                    Ok(Reply::Status(status)) if wanted(&status) => return status,
                    _ => tokio::task::yield_now().await,
                }
            }
        };
        timeout(DEADLINE, asked)
            .await
            .unwrap_or_else(|_| panic!("never: {what}"))
    }

    async fn neighbors(&self) -> Neighbors {
        match self.call(Command::Neighbors {}).await {
            Ok(Reply::Neighbors(neighbors)) => neighbors,
            other => panic!("{other:?}"),
        }
    }

    async fn routes(&self) -> Routes {
        let command = Command::Routes {
            prefix: None,
            why: true,
            family: None,
            after: None,
        };
        match self.call(command).await {
            Ok(Reply::Routes(routes)) => routes,
            other => panic!("{other:?}"),
        }
    }

    async fn address(&self) -> SocketAddr {
        let status = self.until("it listens", |_| true).await;
        let listening = status.facts.iter().find(|fact| fact.name == "listening");
        listening
            .expect("in time")
            .value
            .parse()
            .expect("one address")
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = i32::try_from(self.process.id()).expect("a pid");
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("signaled");
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a port that is free on all addresses, with a free successor. Both are below the kernel's
/// ephemeral ports, so that the kernel does not assign them to other sockets.
fn two_ports() -> u16 {
    const PAIRS: u16 = 10_000;
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let process = u16::try_from(std::process::id() % u32::from(PAIRS)).expect("small");
    let is_free = |port| std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
    let mut ports = (0..PAIRS).map(|_| {
        let nth = TRIED.fetch_add(1, Ordering::Relaxed);
        10_000 + 2 * ((process + nth) % PAIRS)
    });
    let free = ports.find(|port| is_free(*port) && is_free(port + 1));
    free.expect("two free ports")
}

fn start(config: &Path, more: &[&str]) -> std::io::Result<Child> {
    command(config, more).spawn()
}

fn command(config: &Path, more: &[&str]) -> Process {
    let mut command = Process::new(PROGRAM);
    command
        .arg("--config")
        .arg(config)
        .args(more)
        .env_remove("CAMBRIC_LOG")
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        .env_remove("WATCHDOG_PID")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Returns the program's output, and whether it succeeded.
fn outcome(config: &Path, more: &[&str]) -> (bool, String) {
    let output = start(config, more)
        .and_then(Child::wait_with_output)
        .expect("it ends");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Returns a client of the reflector on 127.0.0.`host`.
fn client(host: u8, reflector: SocketAddr) -> Io {
    let text = format!(
        "asn = 64512\nrouter_id = \"127.0.0.{host}\"\nlisten = []\n[[neighbor]]\nname = \"rr\"\n\
         address = \"{}\"\nport = {}\nsource = \"127.0.0.{host}\"\nasn = 64512\n",
        reflector.ip(),
        reflector.port()
    );
    let source = Source::new("client.toml", text);
    let (_, intent) = BgpFile::<NoKernel>::read(&source, NextHops::AssumeReachable).expect("good");
    Io::new(
        Speaker::new(intent.speaker, host.into()),
        IoConfig::default(),
    )
    .expect("no sockets")
}

/// Polls clients in turn until `done` returns a value for an event.
async fn drive<T>(
    clients: &mut [&mut Io],
    what: &str,
    mut done: impl FnMut(&Event) -> Option<T>,
) -> T {
    let turns = std::future::poll_fn(|cx| {
        for io in clients.iter_mut() {
            while let Poll::Ready(events) = pin!(io.next()).poll(cx) {
                if let Some(found) = events.iter().find_map(&mut done) {
                    return Poll::Ready(found);
                }
            }
        }
        Poll::Pending
    });
    timeout(DEADLINE, turns)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"))
}

async fn up(clients: &mut [&mut Io]) {
    let mut left = clients.len();
    drive(clients, "all up", |event| {
        left -= usize::from(matches!(event, Event::Speaker(SpeakerEvent::Up { .. })));
        (left == 0).then_some(())
    })
    .await;
}

fn prefix() -> Ipv4Prefix {
    Ipv4Prefix::new(Ipv4Addr::new(10, 65, 0, 1), 32).expect("a prefix")
}

/// Returns the attributes of the route under test, as a client holds them.
fn learned(io: &Io) -> Option<Attributes> {
    let view = io
        .speaker()
        .rib()
        .lookup(Family::IPV4_UNICAST, Net::V4(prefix()))?;
    view.best().map(|path| path.received.clone())
}

#[tokio::test]
async fn routes_are_reflected_between_clients() {
    let reflector = Reflector::start().await;
    let address = reflector.address().await;
    let (mut one, mut two) = (client(2, address), client(3, address));
    up(&mut [&mut one, &mut two]).await;
    // A loopback address is not a valid next hop, so the route has another one.
    let next_hop = Some(NextHop::V4(Ipv4Addr::new(10, 0, 0, 2)));
    let attributes = Attributes {
        local_pref: Some(200),
        next_hop: next_hop.clone(),
        ..Attributes::default()
    };
    one.handle(Input::Local {
        family: Family::IPV4_UNICAST,
        net: Net::V4(prefix()),
        attributes: Some(attributes),
        interface: None,
    });
    let learned = arrival(&mut one, &mut two).await;
    // RFC 4456 §8; and the next hop is not changed (§10).
    let originator = learned.originator_id.map(|id| id.0);
    assert_eq!(originator, Some(Ipv4Addr::new(127, 0, 0, 2)));
    let cluster = learned.cluster_list.first().map(|id| id.0);
    assert_eq!(cluster, Some(Ipv4Addr::new(127, 0, 0, 99)));
    assert_eq!(
        (learned.next_hop, learned.local_pref),
        (next_hop, Some(200))
    );

    let path = reflector.routes().await.routes.remove(0).paths.remove(0);
    let state = path.next_hop_state.as_deref();
    assert_eq!(state, Some("assumed reachable at cost 0"));
}

/// Polls two clients in turn until the second has learned the route under test.
async fn arrival(one: &mut Io, two: &mut Io) -> Attributes {
    let arrived = async {
        loop {
            tokio::select! {
                _ = one.next() => {}
                _ = two.next() => {}
            }
            if let Some(attributes) = learned(two) {
                return attributes;
            }
        }
    };
    timeout(DEADLINE, arrived).await.expect("the route arrives")
}

#[tokio::test]
async fn a_full_range_refuses_and_shows_that_it_did() {
    let reflector = Reflector::start().await;
    let address = reflector.address().await;
    let (mut one, mut two) = (client(2, address), client(3, address));
    up(&mut [&mut one, &mut two]).await;
    let neighbors = reflector.neighbors().await.neighbors;
    let dynamic: Vec<Option<IpAddr>> = neighbors
        .iter()
        .filter(|neighbor| neighbor.dynamic)
        .map(|neighbor| neighbor.address)
        .collect();
    assert_eq!(
        dynamic,
        ["127.0.0.2", "127.0.0.3"].map(|at| at.parse().ok())
    );

    let mut three = client(4, address);
    let asked = async {
        loop {
            three.next().await;
            let peer = three.speaker().peers().next().expect("one peer");
            if let Some((_, DownReason::Received(why))) = &peer.session.stats().last_error {
                return why.to_string();
            }
        }
    };
    let why = timeout(DEADLINE, asked)
        .await
        .expect("the third receives it");
    let text = "Cease/Out of Resources: neighbor_range 127.0.0.0/24 is full: limit = 2";
    assert_eq!(why, text);
    let range = reflector.neighbors().await.ranges.remove(0);
    assert_eq!((range.used, range.limit), (2, 2));
    assert!(range.refused >= 1);
    let noted = |status: &Status| {
        let mut notes = status.notes.iter();
        notes.any(|note| note.contains("127.0.0.0/24 is full: limit = 2"))
    };
    reflector.until("it is noted", noted).await;
}

/// RFC 4486, RFC 9003.
#[tokio::test]
async fn sigterm_sends_administrative_shutdown() {
    let mut reflector = Reflector::start().await;
    let address = reflector.address().await;
    let (mut one, mut two) = (client(2, address), client(3, address));
    up(&mut [&mut one, &mut two]).await;
    reflector.signal(nix::sys::signal::Signal::SIGTERM);
    let mut reasons = Vec::new();
    drive(&mut [&mut one, &mut two], "both receive it", |event| {
        if let Event::Speaker(SpeakerEvent::Down { reason, .. }) = event {
            reasons.push(reason.to_string());
        }
        (reasons.len() == 2).then_some(())
    })
    .await;
    for reason in reasons {
        assert!(reason.contains("Cease/Administrative Shutdown"), "{reason}");
        assert!(reason.contains("route reflector stops"), "{reason}");
    }
    drop((one, two));
    let status = reflector.process.wait().expect("it ends");
    assert!(status.success(), "{status}");
}

// Promise: as bgp-speaker routes_are_deferred_until_all_peers_sent_end_of_rib
/// RFC 4724 and RFC 8538 from end to end: a client retains its routes over SIGKILL and SIGTERM of
/// the reflector, and sees no change; SIGINT ends the retention.
#[tokio::test]
async fn routes_of_clients_survive_a_restart_of_the_reflector() {
    use nix::sys::signal::Signal::{SIGINT, SIGKILL, SIGTERM};
    let address = SocketAddr::from(([127, 0, 0, 1], two_ports()));
    let mut reflector = Reflector::start_on(address.port()).await;
    let (mut one, mut two) = (client(2, address), client(3, address));
    up(&mut [&mut one, &mut two]).await;
    one.handle(Input::Local {
        family: Family::IPV4_UNICAST,
        net: Net::V4(prefix()),
        attributes: Some(Attributes {
            next_hop: Some(NextHop::V4(Ipv4Addr::new(10, 0, 0, 2))),
            ..Attributes::default()
        }),
        interface: None,
    });
    arrival(&mut one, &mut two).await;
    let restart_state = |io: &Io| {
        let peer = io.speaker().peers().next().expect("the reflector");
        peer.params
            .and_then(|p| Some(p.peer_graceful.as_ref()?.restart_state))
    };
    assert_eq!(restart_state(&two), Some(false), "a first start");
    reflector.remembers(&["127.0.0.2", "127.0.0.3"]).await;
    for signal in [SIGKILL, SIGTERM] {
        reflector.signal(signal);
        reflector.start_again().await;
        // Both sessions are lost and re-established, and the second client receives all routes
        // again.
        let (mut back_up, mut whole) = (false, false);
        let back = async {
            while !whole {
                let events = tokio::select! {
                    _ = one.next() => continue,
                    events = two.next() => events,
                };
                assert!(learned(&two).is_some(), "lost over {signal}");
                for event in events {
                    back_up |= matches!(event, Event::Speaker(SpeakerEvent::Up { .. }));
                    let marker = matches!(event, Event::Speaker(SpeakerEvent::EndOfRib { .. }));
                    whole |= back_up && marker;
                }
            }
        };
        timeout(DEADLINE, back).await.expect("it is back");
        assert_eq!(restart_state(&two), Some(true), "after {signal}");
    }
    reflector.signal(SIGINT);
    let gone = async {
        while learned(&two).is_some() {
            two.next().await;
        }
    };
    timeout(DEADLINE, gone).await.expect("forgotten at once");
    reflector.start_again().await;
    up(&mut [&mut two]).await;
    assert_eq!(restart_state(&two), Some(false), "it has forgotten, too");
}

/// A neighbor that a reload moves from a section of its own into a range is awaited after a
/// restart, although its session did not change.
#[tokio::test]
async fn neighbor_configured_from_a_range_is_remembered() {
    let reflector = Reflector::start().await;
    let ranges = std::fs::read_to_string(reflector.config()).expect("read");
    let take = |text: &str| {
        std::fs::write(reflector.config(), text).expect("write");
        reflector.signal(nix::sys::signal::Signal::SIGHUP);
    };
    let named =
        "[[neighbor]]\naddress = \"127.0.0.2\"\nasn = 64512\nroute_reflector_client = true\n";
    let mut one = client(2, reflector.address().await);
    up(&mut [&mut one]).await;
    reflector.remembers(&["127.0.0.2"]).await;
    take(&format!("{ranges}{named}"));
    reflector.remembers(&[]).await;
    take(&ranges);
    reflector.remembers(&["127.0.0.2"]).await;
    let session = one.speaker().peers().next().expect("the reflector");
    assert!(session.params.is_some(), "the session stays up");
}

// Promise: as bgp-config mistakes_are_reported_with_their_place
#[tokio::test]
async fn a_bad_reload_keeps_the_last_good_configuration() {
    let reflector = Reflector::start().await;
    let good = std::fs::read_to_string(reflector.config()).expect("read");
    std::fs::write(reflector.config(), format!("{good}hold_tiem = 9\n")).expect("write");
    reflector.signal(nix::sys::signal::Signal::SIGHUP);
    let status = reflector
        .until("it is refused", |status| status.config_error.is_some())
        .await;
    let error = status.config_error.expect("there");
    assert!(error.contains("did you mean `hold_time`?"), "{error}");
    assert_eq!(reflector.neighbors().await.ranges[0].limit, 2);

    std::fs::write(reflector.config(), good.replace("limit = 2", "limit = 7")).expect("write");
    reflector.signal(nix::sys::signal::Signal::SIGHUP);
    reflector
        .until("it is taken", |status| status.config_error.is_none())
        .await;
    assert_eq!(reflector.neighbors().await.ranges[0].limit, 7);

    std::fs::write(reflector.config(), good.replace("64512", "64513")).expect("write");
    reflector.signal(nix::sys::signal::Signal::SIGHUP);
    let ours = async {
        while reflector.neighbors().await.local_asn != 64513 {
            tokio::task::yield_now().await;
        }
    };
    let ours = timeout(DEADLINE, ours).await;
    ours.expect("another local AS is applied without a restart");
    reflector
        .until("it is taken", |status| status.config_error.is_none())
        .await;
}

#[tokio::test]
async fn key_of_the_start_is_reported_until_it_is_changed_back() {
    let reflector = Reflector::start().await;
    let good = std::fs::read_to_string(reflector.config()).expect("read");
    let json = format!("log_format = \"json\"\n{good}");
    let (first, second) = (json.replace("limit = 2", "limit = 3"), json);
    for (text, limit) in [(first, 3), (second, 2)] {
        std::fs::write(reflector.config(), text).expect("write");
        reflector.signal(nix::sys::signal::Signal::SIGHUP);
        let applied = async {
            while reflector.neighbors().await.ranges[0].limit != limit {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, applied).await.expect("the limit applies");
        let status = reflector
            .until("it is reported", |status| status.config_error.is_some())
            .await;
        let error = status.config_error.expect("there");
        assert_eq!(error, "log_format changed: requires a restart");
    }
    std::fs::write(reflector.config(), good).expect("write");
    reflector.signal(nix::sys::signal::Signal::SIGHUP);
    reflector
        .until("it is as at the start", |status| {
            status.config_error.is_none()
        })
        .await;
}

#[tokio::test]
async fn reflector_rejects_the_fib_command() {
    let reflector = Reflector::start().await;
    let output = reflector
        .call(Command::Fib {})
        .await
        .expect_err("no fib")
        .to_string();
    assert!(output.contains("never writes a route"), "{output}");
}

#[test]
fn check_reports_without_starting() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("rr.toml");
    std::fs::write(&config, CONFIG).expect("write");
    let (good, output) = outcome(&config, &["--check"]);
    assert!(good && output.contains("rr.toml: good"), "{output}");
    std::fs::write(&config, CONFIG.replace("limit", "limti")).expect("write");
    let (good, output) = outcome(&config, &["--check"]);
    assert!(!good && output.contains("rr.toml:11:1"), "{output}");
    assert!(output.contains("did you mean `limit`?"), "{output}");
}

#[test]
fn failed_start_is_reported_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("rr.toml");
    let control = directory.path().join("rr.sock");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = taken.local_addr().expect("an address").port();
    let text = CONFIG.replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    std::fs::write(
        &config,
        format!("log = \"warn\"\ncontrol = {control:?}\n{text}"),
    )
    .expect("write");
    let (good, output) = outcome(&config, &[]);
    assert!(
        !good && output.contains(&format!("127.0.0.1:{port}")),
        "{output}"
    );
    assert!(output.contains("the port is in use"), "{output}");
    // A daemon of root reports that, too.
    let reports = output
        .lines()
        .filter(|line| !line.contains("privileges.incomplete"));
    assert_eq!(reports.count(), 1, "{output}");
    assert!(!control.exists(), "nothing is left behind");
}
