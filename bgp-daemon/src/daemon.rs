//! The daemon's state.

use std::time::{Duration, Instant};

use bgp_config::Intent;
use bgp_io::bgp_speaker::RangeUsage;
use bgp_io::rib::Progress;
use bgp_io::{Event, Io, IoConfig, Speaker};
use calico_bgp::Derived;
use calico_store::Update;
use daemon_common::report::{Fact, Status};

use crate::addresses::Addresses;
use crate::fabric::{Fabric, Look};
use crate::guard::HostGuard;
use crate::limits::REMEMBER;
use crate::log::Log;
use crate::memory::{Memory, Pace};
use crate::source::Source;
use crate::{Config, Failure, Program, Settings, begin, report, restart};

/// Everything a daemon owns but its control socket and its signals.
#[derive(Debug)]
pub struct Daemon<P: Program> {
    /// The speaker with its sockets.
    pub io: Io,
    /// What the program adds.
    pub program: P,
    /// The file in force.
    pub(crate) config: Config<P::Settings>,
    /// The store, if it is what says what the speaker is to be.
    pub(crate) source: Option<Source>,
    /// What the speaker is to be.
    pub(crate) intent: Intent,
    /// How far the speaker is on its way to what the store wants.
    fabric: Fabric,
    /// What keeps other users of the host away from its sessions.
    pub(crate) guard: HostGuard,
    /// Why the last reload was not taken, or not whole.
    pub(crate) config_error: Option<String>,
    /// Why the speaker did not become what it was to be, if that is the last it was asked.
    pub(crate) refused: Option<String>,
    /// What the next start is to know.
    pub(crate) memory: Memory,
    /// When that is to be written down.
    pub(crate) remembering: Pace,
    /// What happens, on its way into the log.
    log: Log,
    /// The addresses of the machine, which next hops are checked against.
    addresses: Addresses,
    started: Instant,
    /// When the configuration in force was read.
    pub(crate) configured: Instant,
}

impl<P: Program> Daemon<P> {
    /// Opens what the program needs, listens and starts all sessions of `intent`. Must be called
    /// within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// The program cannot start, or an address cannot be listened on.
    pub(crate) fn new(
        config: Config<P::Settings>,
        intent: Intent,
        source: Option<Source>,
        (fabric, guard): (Fabric, HostGuard),
        seed: u64,
    ) -> Result<Self, Failure<P::Error>> {
        let mut speaker = Speaker::new(intent.speaker.clone(), seed);
        let (memory, former) = Memory::open(&config.control());
        restart::begin(&mut speaker, former, intent.restart_wait, P::FORWARDING);
        let program = P::open(&config.settings, &mut speaker).map_err(Failure::Program)?;
        let listen = intent.listen.clone();
        Ok(Self {
            io: Io::new(speaker, IoConfig { listen })?,
            program,
            config,
            source,
            intent,
            fabric,
            guard,
            config_error: None,
            refused: None,
            memory,
            remembering: Pace::new(REMEMBER),
            log: Log::new(),
            addresses: Addresses::default(),
            started: Instant::now(),
            configured: Instant::now(),
        })
    }

    /// How long there is nothing to do unless something happens.
    pub(crate) fn rest(&self) -> Option<Duration> {
        let source = self.source.as_ref();
        let timers = [
            self.program.poll_timeout(),
            self.remembering.poll_timeout(),
            self.log.poll_timeout(),
            self.fabric.enrol_timeout(),
            self.fabric.poll_timeout(),
            self.addresses.poll_timeout(),
            source.and_then(Source::poll_timeout),
        ];
        let now = self.io.clock().now();
        let rests = timers.into_iter().flatten();
        let rests = rests.map(|at| at.saturating_duration_since(now));
        rests.chain([self.guard.rest()]).min()
    }

    /// Takes note of what a turn of the driver brought.
    pub(crate) fn hear(&mut self, events: &[Event]) {
        let now = self.io.clock().now();
        for event in events {
            self.log.event(now, self.io.speaker(), event);
            if changes_peers(event) {
                self.remembering.want(now);
            }
            if let Event::Speaker(event) = event {
                if matches!(event, bgp_speaker::Event::Up { .. }) {
                    self.addresses.hasten(self.io.clock().now());
                }
                self.fabric.hear(event);
            }
            self.program.hear(event);
        }
    }

    /// Waits for news of the store; for ever where there is none. Cancelling loses nothing.
    pub(crate) async fn store_news(source: &mut Option<Source>) -> Vec<Update> {
        match source {
            Some(source) => source.next().await,
            None => std::future::pending().await,
        }
    }

    /// Takes note of news of the store, and does what it says now.
    pub(crate) fn hear_store(&mut self, updates: Vec<Update>) {
        let source = self.source.as_mut();
        let derived = source.and_then(|source| source.take(updates, &self.fabric));
        if let Some(derived) = derived {
            self.pursue(derived);
        }
    }

    /// Does what the store says now, as far as that can be done at once.
    fn pursue(&mut self, derived: Derived) {
        let config = self.fabric.want(self.io.clock().now(), &derived);
        let (Some(intent), Some(speaker)) = (derived.intent, config) else {
            return; // A node that is gone is left as it was.
        };
        if self.adopt(Intent { speaker, ..intent }) {
            self.program.take_duties(&derived.duties);
        }
    }

    /// Looks how the speaker comes on towards what the store says, and helps it on.
    pub(crate) fn look(&mut self) -> Progress {
        let now = self.io.clock().now();
        if let Some(addresses) = self.addresses.read(now) {
            self.io.speaker_mut().set_addresses(addresses);
        }
        let Some(source) = &mut self.source else {
            return Progress::Done;
        };
        if let Some(derived) = source.look(now, self.io.speaker(), &self.fabric) {
            self.pursue(derived);
        }
        let mut progress = Progress::Done;
        if self.fabric.poll_timeout().is_some_and(|at| at <= now) {
            let look = self.fabric.look(now, self.io.speaker());
            progress = look.progress;
            self.act(look);
        }
        // Clients dial a reflector as soon as it is registered.
        if let Some(wish) = self.fabric.enrol(now, self.io.speaker())
            && self.io.listening().next().is_some()
            && let Some(source) = &mut self.source
        {
            source.enrol(wish);
        }
        progress
    }

    fn act(&mut self, look: Look) {
        for line in &look.news {
            tracing::info!("{line}");
        }
        if let Some(why) = &look.farewell {
            let now = self.io.clock().now();
            self.io.speaker_mut().stop_all(now, why);
        }
        if let Some(speaker) = look.config {
            let intent = self.intent.clone();
            self.adopt(Intent { speaker, ..intent });
        }
    }

    /// Logs what repeated, if it is time; all of it if the daemon `leaves`.
    pub(crate) fn summarize(&mut self, leaves: bool) {
        let now = self.io.clock().now();
        if leaves {
            self.log.finish(now);
        } else if self.log.poll_timeout().is_some_and(|at| at <= now) {
            self.log.look(now);
        }
    }

    /// Notes for the next start which neighbours there are, if that has changed and was not noted
    /// just now.
    pub(crate) fn remember_in_time(&mut self) {
        let at = self.remembering.poll_timeout();
        if at.is_some_and(|at| at <= self.io.clock().now()) {
            self.remember();
        }
    }

    /// Notes for the next start which neighbours there are now.
    pub(crate) fn remember(&mut self) {
        self.remembering.done(self.io.clock().now());
        let addresses = restart::remembered(self.io.speaker());
        if let Err(error) = self.memory.keep(addresses) {
            let path = self.memory.path().display();
            tracing::warn!("{path}: {error}: the next start will not be a graceful restart");
        }
    }

    pub(crate) fn status(&self) -> Status {
        let mut status = Status {
            configured_s: Some(self.configured.elapsed().as_secs()),
            restarting: !self.io.speaker().awaited().is_empty(),
            waiting_for: report::waiting(self.io.speaker()),
            notes: self.notes(),
            config_error: self
                .config_error
                .as_ref()
                .or(self.refused.as_ref())
                .cloned(),
            facts: report::facts(self.io.speaker()),
            tables: Some(report::tables(self.io.speaker()).into()),
            store: self.source.as_ref().map(|source| source.figures().into()),
            ..begin::process::<P>(&self.config, self.started, self.log.summarized())
        };
        if let Some(source) = &self.source {
            status.waiting_for.extend(source.waiting());
            status.facts.push(begin::fact(source));
        }
        status.notes.extend(self.full_ranges());
        status.notes.extend(begin::log_note(&status));
        status.facts.push(begin::log_fact(&status));
        self.program.report(&mut status);
        status.facts.push(self.listening());
        let (fact, notes) = self.guard.report();
        status.facts.push(fact);
        status.notes.extend(notes);
        status.ready = status.waiting_for.is_empty();
        status
    }

    /// What an operator should know of the configuration.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = self.intent.notes.clone();
        notes.extend(self.config.settings.notes());
        notes.extend(self.source.iter().flat_map(Source::notes));
        notes.extend(self.fabric.notes(self.io.clock().now()));
        notes.extend(self.sockets_notes());
        notes
    }

    /// What is missing on the listening sockets.
    fn sockets_notes(&self) -> Vec<String> {
        let unheard = self.io.unheard();
        let mut notes: Vec<String> = unheard
            .map(|address| format!("cannot listen on {address} yet: it is tried again"))
            .collect();
        let (neighbors, ranges): (Vec<_>, Vec<_>) =
            (self.io.keyless()).partition(|(whose, _)| whose.is_neighbor());
        notes.extend(ranges.iter().map(|(_, error)| error.to_string()));
        if let Some((_, error)) = neighbors.first() {
            let count = neighbors.len();
            notes.push(format!(
                "neighbors that are not let in for want of a key: {count}; {error}"
            ));
        }
        notes
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

/// Whether there may be more dynamic neighbours, or fewer, or fewer that are awaited.
const fn changes_peers(event: &Event) -> bool {
    use bgp_io::bgp_speaker::Event as Told;
    matches!(
        event,
        Event::Gone(_) | Event::Speaker(Told::Up { .. } | Told::Selected { .. })
    )
}
