//! Whether Felix is alive and its host programmed, for probes over HTTP; and the socket for scrapers.

use std::net::SocketAddr;
use std::time::Duration;

use daemon_common::control::{Control, Scrapes};
use daemon_common::health::{HealthServer, Pulse};
use daemon_common::report::Readiness;
use daemon_common::scrape_tls::ScrapeTls;
use fib_sync::Instant;

use crate::agent::Agent;
use crate::calc::{Listening, MAIN_LOOP};
use crate::listener::Listener;
use crate::report;

/// The sockets for probes and scrapers, and the state that probes get.
#[derive(Debug)]
pub(crate) struct Health {
    pulse: Pulse,
    /// By address, and the longest time between two turns.
    socket: Listener<(SocketAddr, Option<Duration>), HealthServer>,
    /// By address, and with the files of TLS.
    scrapes: Listener<(SocketAddr, Option<ScrapeTls>), Scrapes>,
    /// The missing part of TLS for scrapers: metrics are not served.
    metrics_fault: Option<&'static str>,
    unknown_parts: Vec<String>,
    /// The kernel has once had all rules and routes of a datastore that was read in full.
    is_programmed: bool,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self {
            pulse: Pulse::new(),
            socket: Listener::new(),
            scrapes: Listener::new(),
            metrics_fault: None,
            unknown_parts: Vec::new(),
            is_programmed: false,
        }
    }

    /// Records a turn of the main loop.
    pub(crate) fn turned(&mut self, agent: &Agent) {
        self.pulse.beat();
        self.is_programmed = self.is_programmed || agent.waiting_for().is_empty();
    }

    /// Listens where the settings in effect require it. The file's own address for scrapers has
    /// precedence: with `is_scraped`, the settings have none.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        settings: &Listening,
        is_scraped: bool,
        control: &Control,
    ) {
        let metrics = settings.metrics.filter(|_| !is_scraped);
        let (tls, fault) = match &settings.metrics_tls {
            Ok(tls) => (Some(tls.clone()), None),
            Err(missing) => (None, metrics.map(|_| *missing)),
        };
        self.metrics_fault = fault;
        let metrics = metrics.zip(tls);
        self.scrapes.follow(now, metrics, |(address, tls)| {
            control.scrapes(address, tls).map(|(scrapes, _)| scrapes)
        });
        self.unknown_parts.clone_from(&settings.unknown_parts);
        let wanted = settings.health.map(|at| (at, settings.live_within));
        let pulse = &self.pulse;
        self.socket.follow(now, wanted, |(address, within)| {
            let started = control.health(address, pulse.clone(), within);
            started.map(|(server, _)| server)
        });
    }

    /// Returns when the next action is due without an event.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let all = [self.socket.poll_timeout(), self.scrapes.poll_timeout()];
        all.into_iter().flatten().min()
    }

    /// Returns notes for the operator.
    pub(crate) fn notes(&self) -> Vec<String> {
        let parts = self.unknown_parts.iter().map(|name| {
            format!("healthTimeoutOverrides: Felix has no part {name:?}, only {MAIN_LOOP}")
        });
        let problems = [self.socket.problem(), self.scrapes.problem()];
        let problems = problems.into_iter().flatten().map(str::to_owned);
        let fault = self.metrics_fault.iter();
        let fault = fault.map(|missing| format!("metrics are not served: {missing}"));
        problems.chain(fault).chain(parts).collect()
    }

    /// Returns the missing conditions of a programmed host. After it has once been programmed, only
    /// failures count: a change on its way to the kernel is none, and neither is a datastore that is
    /// away, because the last configuration stays in effect.
    pub(crate) fn readiness(&self, agent: &Agent) -> Readiness {
        let missing = match self.is_programmed {
            true => agent.failures(),
            false => agent.waiting_for().iter().map(report::waiting).collect(),
        };
        Readiness {
            missing,
            met: Vec::new(),
        }
    }
}
