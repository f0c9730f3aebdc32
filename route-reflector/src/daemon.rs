//! The daemon's state, and its answers on the control socket.

use std::collections::BTreeMap;
use std::time::Instant;

use admin::report::{Fact, Neighbors, Status};
use admin::{Command, Reply};
use bgp_io::bgp_speaker::Refusal;
use bgp_io::{Event, Io, IoConfig, IoError, Speaker};
use intent::report;
use ipnet::IpNet;

use crate::Config;
use crate::log;

/// Everything the daemon owns but its control socket and its signals.
#[derive(Debug)]
pub struct Daemon {
    /// The speaker with its sockets.
    pub io: Io,
    /// The configuration in force.
    pub(crate) config: Config,
    /// Why the last reload was not taken, or not whole.
    pub(crate) config_error: Option<String>,
    /// Connections refused because their range is full.
    refused: BTreeMap<IpNet, u64>,
    started: Instant,
}

impl Daemon {
    /// Listens and starts all sessions. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// An address cannot be listened on, or the kernel takes no TCP-MD5 key.
    pub fn new(config: Config, seed: u64) -> Result<Self, IoError> {
        let speaker = Speaker::new(config.intent.speaker.clone(), seed);
        let listen = config
            .file
            .listen
            .iter()
            .map(|address| *address.get_ref())
            .collect();
        let io = Io::new(speaker, IoConfig { listen })?;
        Ok(Self {
            io,
            config,
            config_error: None,
            refused: BTreeMap::new(),
            started: Instant::now(),
        })
    }

    /// Takes note of what a turn of the driver brought.
    pub fn hear(&mut self, events: &[Event]) {
        for event in events {
            log::event(self.io.speaker(), event);
            if let Event::Refused {
                remote,
                refusal: Refusal::RangeFull { .. },
                ..
            } = event
            {
                let neighbors = self.neighbors();
                let covering = neighbors.ranges.iter().filter_map(|range| range.prefix);
                let covering = covering.filter(|prefix| prefix.contains(&remote.ip()));
                if let Some(range) = covering.max_by_key(IpNet::prefix_len) {
                    *self.refused.entry(range).or_default() += 1;
                }
            }
        }
    }

    /// Answers one request.
    pub fn answer(&self, command: &Command) -> Reply {
        match command {
            Command::Status {} => Reply::Status(self.status()),
            Command::Neighbors {} => Reply::Neighbors(self.neighbors()),
            Command::Routes { prefix, why, after } => {
                let page = report::routes(self.io.speaker(), *prefix, *why, after.as_deref());
                page.map_or_else(Reply::error, Reply::Routes)
            }
            Command::Fib {} => {
                Reply::error("a route reflector never writes a route: it has no fib")
            }
            Command::Endpoints {} | Command::Rules {} => {
                Reply::not_here("cambric-route-reflector", command)
            }
        }
    }

    fn neighbors(&self) -> Neighbors {
        let mut neighbors = report::neighbors(self.io.speaker(), self.io.clock().now());
        for range in &mut neighbors.ranges {
            let refused = range.prefix.and_then(|prefix| self.refused.get(&prefix));
            range.refused = refused.copied().unwrap_or_default();
        }
        neighbors
    }

    fn status(&self) -> Status {
        let waiting_for = report::waiting(self.io.speaker());
        let mut facts = report::facts(self.io.speaker());
        let listening: Vec<String> = self.io.listening().map(|at| at.to_string()).collect();
        facts.push(Fact {
            name: "listening".to_owned(),
            value: listening.join(" "),
        });
        Status {
            daemon: "cambric-route-reflector".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            resident_kib: admin::daemon::resident_kib(),
            ready: waiting_for.is_empty(),
            waiting_for,
            notes: self.notes(),
            config: self.config.path.display().to_string(),
            config_error: self.config_error.clone(),
            facts,
        }
    }

    fn notes(&self) -> Vec<String> {
        let full = self
            .neighbors()
            .ranges
            .into_iter()
            .filter(|range| range.used >= range.limit);
        let full = full.filter_map(|range| {
            let prefix = range.prefix?;
            Some(format!(
                "neighbor_range {prefix} is full: limit = {}",
                range.limit
            ))
        });
        self.config
            .intent
            .notes
            .iter()
            .cloned()
            .chain(full)
            .collect()
    }
}
