//! A new driver is one file, as [`Probe`] would be, and an entry in a list.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bgp_config::{NextHops, NoKernel, Problems, Source};
use daemon_common::report::Drain;
use daemon_common::service_manager::ServiceManager;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::node_drain::NodeDrain;
use crate::node_drain::file::DrainFile;
use crate::{Daemon, Forwarding, Privileges, Program};

/// A driver with an external source of events: numbers from a channel.
#[derive(Debug)]
pub(crate) struct Probe {
    sender: mpsc::Sender<u32>,
    receiver: mpsc::Receiver<u32>,
    received: Option<u32>,
    seen: Vec<u32>,
    refused: usize,
    /// When its timer is due; cleared once it was.
    due: Option<Instant>,
}

impl Open<Plain> for Probe {
    fn open(_: &Plain, _: &mut Speaker, _: Option<&Parent>) -> Result<Self, DriverError> {
        let (sender, receiver) = mpsc::channel(1);
        Ok(Self {
            sender,
            receiver,
            received: None,
            seen: Vec::new(),
            refused: 0,
            due: Some(Instant::ZERO + Duration::from_millis(50)),
        })
    }
}

impl Driver<Plain> for Probe {
    async fn wait(&mut self) {
        if self.received.is_none() {
            self.received = self.receiver.recv().await;
        }
    }

    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        self.seen.extend(self.received.take());
        self.due = self.due.filter(|due| round.now < *due);
        if self.seen.len() == NUMBERS as usize && self.refused == 1 && self.due.is_none() {
            round.order(Order::Stop { returns: true });
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn observe(&mut self, _: Instant, _: &Speaker, event: &Event) {
        self.refused += usize::from(matches!(event, Event::Refused { .. }));
    }

    fn reload(&mut self, _: &Config<Plain>) -> Vec<&'static str> {
        vec!["probe"]
    }

    fn answer(&self, command: &Command) -> Option<Reply> {
        matches!(command, Command::Fib {}).then(|| Reply::error("a probe"))
    }

    fn limits(&self) -> Vec<Limit> {
        vec![Limit::new("numbers", 1, "further ones wait")]
    }

    fn notes(&self, _: Instant) -> Vec<String> {
        vec!["probes".to_owned()]
    }

    fn report(&self, status: &mut Status) {
        status.waiting_for.push("numbers".to_owned());
    }

    fn keeps_forwarding(&self) -> bool {
        false
    }

    fn revision(&self) -> Option<u64> {
        Some(7)
    }

    async fn stop(&mut self, _: &Clock) {
        self.receiver.close();
    }
}

/// A driver that is always ready and always has more to do.
#[derive(Debug, Default)]
pub(crate) struct Flood {
    turns: u32,
}

impl Open<Plain> for Flood {
    fn open(_: &Plain, _: &mut Speaker, _: Option<&Parent>) -> Result<Self, DriverError> {
        Ok(Self::default())
    }
}

impl Driver<Plain> for Flood {
    async fn wait(&mut self) {}

    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        self.turns += 1;
        round.more();
        Ok(())
    }

    fn reload(&mut self, _: &Config<Plain>) -> Vec<&'static str> {
        vec!["flood"]
    }
}

/// A driver that fails.
#[derive(Debug)]
struct Broken;

impl Driver<Plain> for Broken {
    fn turn(&mut self, _: &mut Round<'_>) -> Result<(), DriverError> {
        Err("broken".into())
    }
}

const NUMBERS: u32 = 100;

/// An empty section of the configuration file.
#[derive(Debug)]
pub(crate) struct Plain;

impl Settings for Plain {
    type Section = NoKernel;

    const DAEMON: &'static str = "tested";
    const NEXT_HOPS: NextHops = NextHops::AssumeReachable;

    fn check(_: Option<&NoKernel>, _: &mut Problems<'_>) -> Self {
        Self
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

#[derive(Debug)]
pub(crate) struct Tested;

impl Program for Tested {
    const NAME: &'static str = "cambric-tested";
    const ABOUT: &'static str = "Tests drivers";
    const CONFIG_DEFAULT: &'static str = "/nonexistent/tested.toml";
    const FORWARDING: Forwarding = Forwarding::Others;
    const FAREWELL: &'static str = "the test ends";

    type Settings = Plain;
    type Drivers = (Flood, Probe);
    type Duty = ();
}

fn config() -> Config<Plain> {
    let text = "asn = 64512\nrouter_id = \"10.0.0.11\"\nlisten = []\n";
    Config::parse(&Source::new("tested.toml", text)).expect("it is right")
}

/// A daemon with these drivers only, which listens on a free port of the loopback interface.
fn daemon<D: Driver<Plain>>(
    drivers: impl FnOnce(&Plain, &mut Speaker) -> D,
) -> (Daemon<Tested, D>, SocketAddr) {
    let config = config();
    let mut intent = config.intent().expect("all in the file").clone();
    intent.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let mut speaker = Speaker::new(intent.speaker.clone(), 1);
    let drivers = drivers(&config.settings, &mut speaker);
    let (file, _) = DrainFile::open(Path::new("/nonexistent/tested.sock"));
    let drain = (NodeDrain::new(None), file);
    let daemon = Daemon::new(config, intent, speaker, drivers, Privileges::kept(), drain);
    let daemon = daemon.expect("it listens");
    let address = daemon.io.listening().next().expect("one address");
    (daemon, address)
}

#[tokio::test]
async fn busy_driver_starves_no_other_source() {
    let open = |settings: &_, speaker: &mut _| {
        <Tested as Program>::Drivers::open(settings, speaker, None).expect("opens")
    };
    let (mut daemon, address) = daemon(open);
    let sender = daemon.drivers.1.sender.clone();
    let outside = tokio::spawn(async move {
        for number in 0..NUMBERS {
            sender.send(number).await.expect("the probe receives");
        }
        TcpStream::connect(address).await
    });
    let served = timeout(Duration::from_secs(60), daemon.serve()).await;
    let mode = served.expect("in time").expect("no driver fails");
    // The probe reports that forwarding ends with it.
    assert_eq!(mode, StopMode::Permanent);
    outside.await.expect("no panic").expect("a connection");
    let (flood, probe) = &daemon.drivers;
    assert!(probe.seen.iter().copied().eq(0..NUMBERS), "{probe:?}");
    assert!(flood.turns >= NUMBERS, "a number a round: {flood:?}");
}

#[tokio::test]
async fn list_of_drivers_calls_each_driver() {
    let open = |settings: &_, speaker: &mut _| {
        let all = <(Flood, Probe)>::open(settings, speaker, None).expect("opens");
        (None::<Broken>, Some(all))
    };
    let (mut daemon, _) = daemon(open);
    let keys = daemon.drivers.reload(&config());
    assert_eq!(keys, ["flood", "probe"]);
    let Reply::Error { message } = daemon.answer(&Command::Fib {}) else {
        panic!("the probe answers");
    };
    assert_eq!(message, "a probe");
    assert_eq!(daemon.notes().last().map(String::as_str), Some("probes"));
    assert_eq!(daemon.drivers.limits().len(), 1);
    assert!(daemon.status().waiting_for.contains(&"numbers".to_owned()));
    assert!(!daemon.drivers.keeps_forwarding());
    assert_eq!(daemon.drivers.revision(), Some(7));
    assert_eq!(
        daemon.drivers.poll_timeout(),
        Some(Instant::ZERO + Duration::from_millis(50))
    );
    daemon.drivers.stop(&Clock::new()).await;
    let (_, Some((_, probe))) = &daemon.drivers else {
        panic!("they are there");
    };
    assert!(probe.sender.is_closed());
}

#[tokio::test]
async fn driver_that_cannot_go_on_ends_the_daemon() {
    let (mut daemon, _) = daemon(|_: &_, _: &mut _| (Broken,));
    let error = daemon.serve().await.expect_err("it is broken");
    assert_eq!(error.to_string(), "broken");
}

/// Longer than any step takes; a test that waits so long has failed.
const DEADLINE: Duration = Duration::from_secs(60);

/// The time without a ping after which the watchdog would kill the daemon.
const WATCHDOG: Duration = Duration::from_millis(400);

/// A driver whose turn hangs while the test holds its gate, and that stops the daemon once the gate
/// is open for good.
#[derive(Debug)]
struct Hanging {
    gate: Arc<Mutex<Gate>>,
    hangs: SyncSender<()>,
}

#[derive(Debug, Default)]
struct Gate {
    stop: bool,
}

impl Driver<Plain> for Hanging {
    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        let gate = match self.gate.try_lock() {
            Ok(gate) => gate,
            Err(_) => {
                let _ = self.hangs.try_send(());
                self.gate.lock().expect("no panic")
            }
        };
        if gate.stop {
            round.order(Order::Stop { returns: true });
        }
        Ok(())
    }
}

/// A daemon in a thread, and the socket to which it sends pings.
struct Watched {
    socket: UnixDatagram,
    gate: Arc<Mutex<Gate>>,
    hanging: Receiver<()>,
    thread: JoinHandle<()>,
    _directory: TempDir,
}

impl Watched {
    fn start<D: Driver<Plain>>(drivers: impl FnOnce(Hanging) -> D + Send + 'static) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let gate = Arc::new(Mutex::new(Gate::default()));
        let (hangs, hanging) = sync_channel(1);
        let driver = Hanging {
            gate: Arc::clone(&gate),
            hangs,
        };
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let (mut daemon, _) = daemon(|_: &_, _: &mut _| drivers(driver));
                daemon.service_manager = ServiceManager::new(Some(path), Some(WATCHDOG));
                daemon.serve().await.expect("no driver fails");
            });
        });
        Self {
            socket,
            gate,
            hanging,
            thread,
            _directory: directory,
        }
    }

    /// Returns whether a ping arrives within this time.
    fn is_pinged(&self, within: Duration) -> bool {
        self.socket.set_read_timeout(Some(within)).expect("a time");
        let mut message = [0; 512];
        loop {
            match self.socket.recv(&mut message) {
                Ok(octets) if message[..octets].starts_with(b"WATCHDOG=1\n") => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn stop(self) {
        self.gate.lock().expect("no panic").stop = true;
        self.thread.join().expect("no panic");
    }
}

#[test]
fn loop_that_hangs_sends_no_pings_until_it_turns() {
    let daemon = Watched::start(|hanging| (hanging,));
    for ping in 0..3 {
        assert!(daemon.is_pinged(DEADLINE), "ping {ping} of an idle loop");
    }
    let closed = daemon.gate.lock().expect("no panic");
    daemon.hanging.recv_timeout(DEADLINE).expect("a turn");
    // From here on the thread of the loop waits. Earlier pings are in the queue.
    while daemon.is_pinged(Duration::from_millis(1)) {}
    assert!(!daemon.is_pinged(2 * WATCHDOG), "a ping without a turn");
    drop(closed);
    assert!(daemon.is_pinged(DEADLINE), "the loop turns again");
    daemon.stop();
}

#[test]
fn loop_that_is_always_busy_sends_pings() {
    let daemon = Watched::start(|hanging| (Flood::default(), hanging));
    for ping in 0..3 {
        assert!(daemon.is_pinged(DEADLINE), "ping {ping} of a busy loop");
    }
    daemon.stop();
}

#[tokio::test]
async fn drain_until_the_daemon_stops_is_not_stored() {
    let directory = TempDir::new().expect("a directory");
    let control = directory.path().join("tested.sock");
    let (mut daemon, _) = daemon(|_, _| ());
    (daemon.drain_file, _) = DrainFile::open(&control);
    let stage = |drain: Drain| drain.drain.map(|figures| figures.stage);
    let begun = daemon.answer_drain(Some(true), true).expect("an answer");
    assert!(stage(begun).is_some());
    assert_eq!(DrainFile::open(&control).1, None);
    assert!(daemon.answer_drain(None, true).is_err(), "a query");
    assert!(daemon.answer_drain(Some(false), true).is_err(), "an end");
    daemon.answer_drain(Some(true), false).expect("an answer");
    assert!(DrainFile::open(&control).1.is_some());
    daemon.answer_drain(Some(false), false).expect("an answer");
    assert_eq!(DrainFile::open(&control).1, None);
}
