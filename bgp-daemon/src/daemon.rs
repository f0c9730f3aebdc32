//! The daemon's state.

use std::time::{Duration, Instant};

use admin::report::{Fact, Status};
use bgp_io::bgp_speaker::RangeUsage;
use bgp_io::{Event, Io, IoConfig, Speaker};
use intent::report;

use crate::limits::REMEMBER;
use crate::memory::Memory;
use crate::{Config, Failure, Program, log, restart};

/// Everything a daemon owns but its control socket and its signals.
#[derive(Debug)]
pub struct Daemon<P: Program> {
    /// The speaker with its sockets.
    pub io: Io,
    /// What the program adds.
    pub program: P,
    /// The configuration in force.
    pub(crate) config: Config<P::Settings>,
    /// Why the last reload was not taken, or not whole.
    pub(crate) config_error: Option<String>,
    /// What the next start is to know.
    pub(crate) memory: Memory,
    /// When that is to be written down.
    remember_at: Option<bgp_io::bgp_fsm::Instant>,
    started: Instant,
    /// When the configuration in force was read.
    pub(crate) configured: Instant,
}

impl<P: Program> Daemon<P> {
    /// Opens what the program needs, listens and starts all sessions. Must be called within a
    /// Tokio runtime.
    ///
    /// # Errors
    ///
    /// The program cannot start, an address cannot be listened on, or the kernel takes no TCP-MD5
    /// key.
    pub fn new(config: Config<P::Settings>, seed: u64) -> Result<Self, Failure<P::Error>> {
        let mut speaker = Speaker::new(config.intent.speaker.clone(), seed);
        let (memory, former) = Memory::open(&config.control());
        let wait = config.intent.restart_wait;
        restart::begin(&mut speaker, former, wait, P::FORWARDING);
        let program = P::open(&config.settings, &mut speaker).map_err(Failure::Program)?;
        let listen = config.file.listen.iter().map(|at| *at.get_ref()).collect();
        Ok(Self {
            io: Io::new(speaker, IoConfig { listen })?,
            program,
            config,
            config_error: None,
            memory,
            remember_at: None,
            started: Instant::now(),
            configured: Instant::now(),
        })
    }

    /// How long there is nothing to do unless something happens.
    pub(crate) fn rest(&self) -> Option<Duration> {
        let timers = [self.program.poll_timeout(), self.remember_at];
        let at = timers.into_iter().flatten().min()?;
        Some(at.saturating_duration_since(self.io.clock().now()))
    }

    /// Takes note of what a turn of the driver brought.
    pub(crate) fn hear(&mut self, events: &[Event]) {
        for event in events {
            log::event(self.io.speaker(), event);
            if changes_peers(event) && self.remember_at.is_none() {
                self.remember_at = Some(self.io.clock().now() + REMEMBER);
            }
            self.program.hear(event);
        }
    }

    /// Notes for the next start which neighbours there are, if that has changed a while ago.
    pub(crate) fn remember_in_time(&mut self) {
        if self
            .remember_at
            .is_some_and(|at| at <= self.io.clock().now())
        {
            self.remember();
        }
    }

    /// Notes for the next start which neighbours there are now.
    pub(crate) fn remember(&mut self) {
        self.remember_at = None;
        let addresses = restart::remembered(self.io.speaker());
        if let Err(error) = self.memory.keep(addresses) {
            let path = self.memory.path().display();
            tracing::warn!("{path}: {error}: the next start will not be a graceful restart");
        }
    }

    pub(crate) fn status(&self) -> Status {
        let mut status = Status {
            daemon: P::NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            configured_s: Some(self.configured.elapsed().as_secs()),
            restarting: !self.io.speaker().awaited().is_empty(),
            resident_kib: admin::daemon::resident_kib(),
            ready: false,
            waiting_for: report::waiting(self.io.speaker()),
            notes: self.config.intent.notes.clone(),
            config: self.config.path.display().to_string(),
            config_error: self.config_error.clone(),
            facts: report::facts(self.io.speaker()),
        };
        status.notes.extend(self.full_ranges());
        self.program.report(&mut status);
        status.facts.push(self.listening());
        status.ready = status.waiting_for.is_empty();
        status
    }

    fn listening(&self) -> Fact {
        let listening: Vec<String> = self.io.listening().map(|at| at.to_string()).collect();
        Fact {
            name: "listening".to_owned(),
            value: listening.join(" "),
        }
    }

    fn full_ranges(&self) -> Vec<String> {
        let ranges = self.io.speaker().usage().ranges.into_iter();
        let full = ranges.filter(|range| range.peers.now >= usize::from(range.limit));
        full.map(|range| {
            let RangeUsage { prefix, limit, .. } = range;
            format!("neighbor_range {prefix} is full: limit = {limit}")
        })
        .collect()
    }
}

/// Whether there may be more dynamic neighbours, or fewer.
const fn changes_peers(event: &Event) -> bool {
    use bgp_io::bgp_speaker::Event as Told;
    matches!(event, Event::Gone(_) | Event::Speaker(Told::Up { .. }))
}
