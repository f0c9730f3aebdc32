//! Answers on the control socket.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::report;
use bgp_io::bgp_proto::{Family, Notification};
use bgp_io::limits;
use bgp_io::rib::PeerId;
use daemon_common::command::DebugRequest;
use daemon_common::events::{self, Event, Text};
use daemon_common::limits::LOG_LEVEL_FOR;
use daemon_common::report::{
    Cleared, Fact, Limit, Limits, LogState, Neighbors, Refreshed, Settings,
};
use daemon_common::{Command, Reply};

use crate::{Daemon, Driver, Program};

impl<P: Program, D: Driver<P::Settings>> Daemon<P, D> {
    /// Answers one request.
    pub(crate) fn answer(&mut self, command: &Command) -> Reply {
        let (speaker, now) = (self.io.speaker(), self.io.clock().now());
        match command {
            Command::Status {} => Reply::Status(self.status()),
            Command::Neighbors {} => Reply::Neighbors(self.neighbors()),
            Command::Routes {
                prefix,
                why,
                family,
                after,
            } => {
                let (family, after) = (family.as_deref(), after.as_deref());
                match report::routes(speaker, *prefix, *why, family, after) {
                    Ok(mut page) => {
                        self.drivers.locate(&mut page);
                        Reply::Routes(page)
                    }
                    Err(error) => Reply::error(error),
                }
            }
            Command::Lookup { address, why } => {
                let mut found = report::longest_match(speaker, *address, *why);
                self.drivers.locate(&mut found);
                Reply::Routes(found)
            }
            Command::Malformed {} => {
                let unix = SystemTime::now().duration_since(UNIX_EPOCH);
                Reply::Malformed(report::malformed(speaker, now, unix.unwrap_or_default()))
            }
            Command::Limits {} => Reply::Limits(self.limits()),
            Command::Config {} => Reply::Config(self.settings()),
            Command::Refresh { neighbor, family } => self
                .refresh(neighbor, family.as_deref())
                .map_or_else(Reply::error, Reply::Refresh),
            Command::Clear { neighbor } => {
                self.clear(neighbor).map_or_else(Reply::error, Reply::Clear)
            }
            Command::Reload {} => {
                let error = self.reload_with_parent();
                Reply::reloaded(self.config.path.display(), error)
            }
            Command::Readiness {} => Reply::Readiness(self.readiness()),
            Command::Drain { on, until_stop } => self
                .answer_drain(*on, *until_stop)
                .map_or_else(Reply::error, Reply::Drain),
            Command::Debug(request) => self.debug(request).map_or_else(Reply::error, Reply::Log),
            // Listed, so that the compiler asks where a new command belongs.
            other @ (Command::Fib {}
            | Command::Endpoints {}
            | Command::EndpointRules { .. }
            | Command::Packet(_)
            | Command::Rules {}
            | Command::Bfd {}
            | Command::Flows(_)
            | Command::Preview { .. }
            | Command::Events(_)
            | Command::Log {}
            | Command::SetLog(_)) => {
                let own = self.drivers.answer(other);
                own.unwrap_or_else(|| Reply::not_here(P::NAME, other))
            }
        }
    }

    /// Returns the neighbors as the speaker sees them, and those that are down because the kernel
    /// has no TCP-MD5 key for them.
    fn neighbors(&self) -> Neighbors {
        let mut all = report::neighbors(self.io.speaker(), self.io.clock().now());
        let keyless = (self.io.keyless()).filter(|(scope, _)| scope.is_neighbor());
        let keyless: BTreeMap<_, _> = keyless
            .map(|(scope, error)| (scope.address, error))
            .collect();
        for neighbor in all.neighbors.iter_mut().filter(|n| n.since_s.is_none()) {
            let address = neighbor.address;
            if let Some(error) = address.and_then(|address| keyless.get(&address)) {
                neighbor.last_down = Some(error.to_string());
                neighbor.last_error = Some(error.to_string());
                neighbor.last_error_for_s = None;
            }
        }
        self.drivers.annotate(self.io.clock().now(), &mut all);
        all
    }

    /// Returns the applied configuration and its source.
    fn settings(&self) -> Settings {
        let from = |address: Option<IpAddr>| {
            let origin = self.drivers.origin(address);
            origin.unwrap_or_else(|| "the file".to_owned())
        };
        let path = self.config.path.display();
        let source = self.drivers.source().map(|source| format!(" and {source}"));
        let speaker = self.io.speaker();
        let mut settings = report::settings(speaker.config(), &self.listen, &from);
        let memory = speaker.usage().memory.map(|memory| memory.octets_max);
        settings.keys.push(Fact {
            name: "memory_max".to_owned(),
            value: memory.map_or_else(|| "none".to_owned(), |octets| octets.to_string()),
        });
        Settings {
            from: format!("{path}{}", source.unwrap_or_default()),
            notes: self.notes(),
            ..settings
        }
    }

    /// Returns the limits of the speaker, its driver, this process and the program.
    fn limits(&self) -> Limits {
        let mut all = report::limits(self.io.speaker());
        all.extend([
            Limit::new(
                "connections being closed",
                limits::LINGERING_MAX as u64,
                "further ones are closed at once; the neighbor may miss the NOTIFICATION",
            )
            .used(self.io.lingering() as u64),
            Limit::new(
                "control connections",
                daemon_common::limits::CONNECTIONS_MAX as u64,
                "further ones wait",
            ),
        ]);
        all.push(log_lines());
        all.extend(events::limits());
        if let Some((used, limit)) = daemon_common::daemon::open_files() {
            let then = "no further connection is accepted or dialed";
            all.push(Limit::new("open files", limit, then).used(used));
        }
        all.extend(self.drivers.limits());
        Limits { limits: all }
    }

    fn refresh(&mut self, neighbor: &str, family: Option<&str>) -> Result<Refreshed, String> {
        let peer = self.peer(neighbor)?;
        let read = |name: &str| {
            name.parse::<Family>()
                .map_err(|e| format!("'{name}' is {e}"))
        };
        let family = family.map(read).transpose()?;
        let speaker = self.io.speaker_mut();
        let asked = speaker.request_refresh(peer, family);
        let families = asked.map_err(|why| format!("neighbor {neighbor}: {why}"))?;
        Ok(Refreshed {
            neighbor: speaker.peer_name(peer).to_owned(),
            families: families.iter().map(|family| family.to_string()).collect(),
        })
    }

    fn clear(&mut self, neighbor: &str) -> Result<Cleared, String> {
        let peer = self.peer(neighbor)?;
        let name = self.io.speaker().peer_name(peer).to_owned();
        let address = self.io.speaker().peer_config(peer);
        events::emit(Event::SessionCleared {
            neighbor: Text::new(&name),
            address: address.map(|config| config.remote),
        });
        let why = Notification::administrative_reset("cleared by the operator");
        self.io.reset(peer, why);
        Ok(Cleared { neighbor: name })
    }

    fn debug(&mut self, request: &DebugRequest) -> Result<LogState, String> {
        let peer = self.peer(&request.neighbor)?;
        let speaker = self.io.speaker();
        let config = speaker.peer_config(peer);
        let address = config.ok_or("the neighbor was removed")?.remote;
        let time = request.for_s.map_or(LOG_LEVEL_FOR, Duration::from_secs);
        events::debug_neighbor(speaker.peer_name(peer), address, time)?;
        self.io.trace(events::debugged_addresses());
        Ok(daemon_common::log_level::state())
    }

    fn peer(&self, neighbor: &str) -> Result<PeerId, String> {
        let found = report::find(self.io.speaker(), neighbor);
        found.ok_or_else(|| format!("no neighbor {neighbor}"))
    }
}

fn log_lines() -> Limit {
    let log = daemon_common::log::figures();
    let then = "further ones are lost and counted";
    let limit = Limit::new(
        "log lines waiting to be written",
        daemon_common::limits::LOG_LINES_MAX as u64,
        then,
    );
    Limit {
        met: Some(log.lost()),
        ..limit.level(log.waiting, log.peak)
    }
}
