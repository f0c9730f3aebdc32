//! The daemon's state, its turns, and its answers on the control socket.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use admin::report::{Fact, Status};
use admin::{Command, Reply};
use bgp_io::rib::Progress;
use bgp_io::{Event, Io, IoConfig, Speaker};
use fib_sync::netlink::{NetlinkConfig, NetlinkFib};
use fib_sync::{Fib, OpError};
use intent::report;

use crate::limits::{FLUSH, TURN_EVENTS_MAX};
use crate::{Config, Failure, Node, log};

/// Everything the daemon owns but its control socket and its signals.
#[derive(Debug)]
pub struct Daemon {
    /// The speaker with its sockets.
    pub io: Io,
    /// The kernel.
    pub fib: NetlinkFib,
    /// What stands between the two.
    pub node: Node,
    /// The configuration in force.
    pub(crate) config: Config,
    /// Why the last reload was not taken, or not whole.
    pub(crate) config_error: Option<String>,
    started: Instant,
}

impl Daemon {
    /// Opens the kernel, listens and starts all sessions. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// The kernel cannot be reached, an address cannot be listened on, or the kernel takes no
    /// TCP-MD5 key.
    pub fn new(config: Config, seed: u64) -> Result<Self, Failure> {
        let netlink = NetlinkConfig {
            tables: config.kernel.tables(),
            ..NetlinkConfig::default()
        };
        let fib = NetlinkFib::open(netlink)?;
        let mut speaker = Speaker::new(config.intent.speaker.clone(), seed);
        let node = Node::new(fib_sync::Instant(0), config.kernel.clone(), &mut speaker);
        let listen = config
            .file
            .listen
            .iter()
            .map(|address| *address.get_ref())
            .collect();
        let io = Io::new(speaker, IoConfig { listen })?;
        let started = Instant::now();
        Ok(Self {
            io,
            fib,
            node,
            config,
            config_error: None,
            started,
        })
    }

    /// The instant of the kernel side: the same clock as the speaker's.
    pub fn now(&self) -> fib_sync::Instant {
        fib_sync::Instant(self.io.clock().now().0)
    }

    /// How long nothing has to be done unless something happens.
    pub fn rest(&self) -> Option<Duration> {
        Some(self.node.poll_timeout()?.since(self.now()))
    }

    /// Takes note of what a turn of the driver brought.
    pub fn hear(&mut self, events: &[Event]) {
        for event in events {
            log::event(self.io.speaker(), event);
            match event {
                Event::Speaker(event) => self.node.session(event),
                Event::Track(track) => self.node.track(*track),
                _ => {}
            }
        }
    }

    /// Takes note of a kernel event, and of those that are there already behind it.
    ///
    /// # Errors
    ///
    /// The connection to the kernel is broken.
    pub fn kernel(&mut self, first: fib_sync::Event) -> Result<(), OpError> {
        let now = self.now();
        let mut next = Some(first);
        for _ in 0..TURN_EVENTS_MAX {
            let Some(event) = next else { return Ok(()) };
            if let fib_sync::Event::Closed(error) = event {
                return Err(error);
            }
            log::kernel(&event);
            self.node.kernel(now, &event);
            next = self.event_at_hand();
        }
        if let Some(event) = next {
            self.node.kernel(now, &event);
        }
        Ok(())
    }

    /// Carries over between speaker and kernel what there is to carry. `More`: call again soon.
    pub fn carry(&mut self) -> Progress {
        while let Some(input) = self.node.poll_input() {
            self.io.handle(input);
        }
        let now = self.now();
        let progress = self.node.read(now, &mut self.io);
        while let Some(command) = self.node.poll_command(now) {
            self.fib.submit(command);
        }
        progress
    }

    /// Deletes all our routes from the kernel.
    pub async fn flush(&mut self) {
        self.node.flush();
        let flushed = tokio::time::timeout(FLUSH, async {
            while !self.node.is_flushed() {
                let now = self.now();
                while let Some(command) = self.node.poll_command(now) {
                    self.fib.submit(command);
                }
                let event = self.fib.event().await;
                if self.kernel(event).is_err() {
                    return;
                }
            }
        });
        if flushed.await.is_err() {
            tracing::warn!("not all kernel routes could be deleted in time");
        }
    }

    /// Answers one request.
    pub fn answer(&self, command: &Command) -> Reply {
        match command {
            Command::Status {} => Reply::Status(self.status()),
            Command::Neighbors {} => {
                Reply::Neighbors(report::neighbors(self.io.speaker(), self.io.clock().now()))
            }
            Command::Routes { prefix, why, after } => {
                let page = report::routes(self.io.speaker(), *prefix, *why, after.as_deref());
                page.map_or_else(Reply::error, Reply::Routes)
            }
            Command::Fib {} => Reply::Fib(crate::report::fib(&self.node)),
            Command::Endpoints {} | Command::Rules {} => {
                Reply::not_here("cambric-bgp-client", command)
            }
        }
    }

    fn event_at_hand(&mut self) -> Option<fib_sync::Event> {
        let mut cx = Context::from_waker(Waker::noop());
        match pin!(self.fib.event()).poll(&mut cx) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }

    fn status(&self) -> Status {
        let mut waiting_for = report::waiting(self.io.speaker());
        waiting_for.extend(crate::report::waiting(&self.node));
        let mut facts = report::facts(self.io.speaker());
        facts.extend(crate::report::facts(&self.node));
        let listening: Vec<String> = self.io.listening().map(|at| at.to_string()).collect();
        facts.push(Fact {
            name: "listening".to_owned(),
            value: listening.join(" "),
        });
        let mut notes = self.config.intent.notes.clone();
        notes.extend(crate::report::notes(&self.node));
        if !self.fib.has_large_buffers() {
            notes.push("netlink receive buffers are small: see CAP_NET_ADMIN".to_owned());
        }
        Status {
            daemon: "cambric-bgp-client".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            resident_kib: admin::daemon::resident_kib(),
            ready: waiting_for.is_empty(),
            waiting_for,
            notes,
            config: self.config.path.display().to_string(),
            config_error: self.config_error.clone(),
            facts,
        }
    }
}
