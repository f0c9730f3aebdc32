//! A new driver is one file, as [`Probe`] would be, and an entry in a list.

use std::net::SocketAddr;
use std::time::Duration;

use bgp_config::{NextHops, NoKernel, Problems, Source};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use crate::{Daemon, Forwarding, Program};

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
    fn open(_: &Plain, _: &mut Speaker) -> Result<Self, DriverError> {
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

    fn reload(&mut self, _: &Config<Plain>, _: &Intent) -> Vec<&'static str> {
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
    fn open(_: &Plain, _: &mut Speaker) -> Result<Self, DriverError> {
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

    fn reload(&mut self, _: &Config<Plain>, _: &Intent) -> Vec<&'static str> {
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

    const CONTROL_DEFAULT: &'static str = "/nonexistent/control.sock";
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
    let daemon = Daemon::new(config, intent, speaker, drivers).expect("it listens");
    let address = daemon.io.listening().next().expect("one address");
    (daemon, address)
}

#[tokio::test]
async fn busy_driver_starves_no_other_source() {
    let open = |settings: &_, speaker: &mut _| {
        <Tested as Program>::Drivers::open(settings, speaker).expect("opens")
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
    let parting = served.expect("in time").expect("no driver fails");
    // The probe reports that forwarding ends with it.
    assert_eq!(parting, Parting::ForGood);
    outside.await.expect("no panic").expect("a connection");
    let (flood, probe) = &daemon.drivers;
    assert!(probe.seen.iter().copied().eq(0..NUMBERS), "{probe:?}");
    assert!(flood.turns >= NUMBERS, "a number a round: {flood:?}");
}

#[tokio::test]
async fn list_of_drivers_answers_for_all_of_them() {
    let open = |settings: &_, speaker: &mut _| {
        let all = <(Flood, Probe)>::open(settings, speaker).expect("opens");
        (None::<Broken>, Some(all))
    };
    let (mut daemon, _) = daemon(open);
    let keys = daemon.drivers.reload(&config(), &daemon.intent);
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
