//! The answers of the daemon on its control socket.

use calico_store::Status;
use daemon_common::control::Request;
use daemon_common::report::StoreFigures;
use daemon_common::{Command, Reply};
use fib_sync::Instant;

use super::Daemon;
use crate::clock::unix_ms;
use crate::report::{self, DAEMON, Process};

impl Daemon {
    /// Returns the status of the datastore for reports.
    fn store_figures(&self) -> StoreFigures {
        StoreFigures {
            in_sync: self.store_status == Status::InSync,
            away: self.store_status == Status::Lost,
            unready: matches!(self.store_status, Status::Unready(_)),
            snapshot_age_s: self.snapshot_age_s,
            revision: self.follower.revision().map(|revision| revision.0),
            answered_s: self.follower.last_answer().map(|ago| ago.as_secs()),
            bad_values: self.agent.desired().refused as u64,
            registered: None,
        }
    }

    /// Returns why the datastore, or a part of it, cannot be read now.
    fn store_troubles(&self) -> Vec<String> {
        let mut troubles = self.follower.troubles();
        troubles.extend(self.addresses.problems());
        troubles
    }

    /// Answers a request of the control socket.
    pub(super) fn answer(&mut self, request: Request) {
        let reply = match &request.command {
            Command::Reload {} => {
                self.reload();
                Reply::reloaded(self.config.path.display(), self.config_error.clone())
            }
            Command::Endpoints {} => Reply::Endpoints(report::endpoints(
                &self.agent,
                &self.config.agent.hostname,
                self.clock.now(),
            )),
            Command::EndpointRules { endpoint } => report::endpoint_rules(&self.agent, endpoint),
            Command::Packet(query) => report::packet(&self.agent, query),
            Command::Flows(query) => {
                let now = || self.clock.now();
                let calculator = self.agent.calculator();
                Reply::Flows(self.flows.answer(now, unix_ms(), calculator, query))
            }
            Command::Preview { policy } => {
                let now = || self.clock.now();
                let calculator = self.agent.calculator();
                let has_flows = self.flows.is_wanted();
                let table = self.flows.table(now, unix_ms(), calculator);
                report::preview(&self.agent, policy, table, has_flows)
            }
            Command::Rules {} => Reply::Rules(report::rules(&self.agent, &mut self.host)),
            Command::Fib {} => Reply::Fib(report::fib(&self.agent)),
            Command::Status {} => {
                let process = Process {
                    uptime_s: self
                        .clock
                        .now()
                        .saturating_duration_since(Instant(0))
                        .as_secs(),
                    config: self.config.path.display().to_string(),
                    config_error: self.config_error.clone(),
                    store: self.store_figures(),
                    store_troubles: self.store_troubles(),
                    bgp_file_problems: self.bgp_files.problems().collect(),
                    socket_notes: self.health.notes(),
                    counts: self.counts,
                    flows_problem: self.flows.problem(),
                    flow_figures: self.flows.is_wanted().then(|| self.flows.figures()),
                    files_problem: self.files.problem().map(str::to_owned),
                };
                Reply::Status(report::status(&self.agent, &mut self.host, process))
            }
            Command::Readiness {} => Reply::Readiness(self.health.readiness(&self.agent)),
            // Listed, so that the compiler asks where a new command belongs.
            other @ (Command::Neighbors {}
            | Command::Routes { .. }
            | Command::Lookup { .. }
            | Command::Malformed {}
            | Command::Limits {}
            | Command::Config {}
            | Command::Bfd {}
            | Command::Events(_)
            | Command::Log {}
            | Command::SetLog(_)
            | Command::Debug(_)
            | Command::Refresh { .. }
            | Command::Clear { .. }
            | Command::Drain { .. }) => Reply::not_here(DAEMON, other),
        };
        request.reply(reply);
    }
}
