//! The log as a driver: it logs events of sessions and sockets.

use bgp_io::bgp_fsm::Instant;
use bgp_io::{Event, Speaker, StopMode};
use daemon_common::events;
use daemon_common::report::{LogFigures, Neighbors, Status};

use crate::log::Log;
use crate::{Driver, DriverError, Round, Settings, startup};

impl<S: Settings> Driver<S> for Log {
    /// Logs the summaries that are due.
    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        if self.poll_timeout().is_some_and(|at| at <= round.now) {
            self.look(round.now);
        }
        if self.is_trace_over() {
            round.io.trace(events::debugged_addresses());
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.poll_timeout()
    }

    fn observe(&mut self, now: Instant, speaker: &Speaker, event: &Event) {
        self.event(now, speaker, event);
    }

    /// Adds the reason why a neighbor cannot be connected to, as its last error.
    fn annotate(&self, now: Instant, all: &mut Neighbors) {
        for neighbor in &mut all.neighbors {
            let address = neighbor.address;
            if let Some((why, since)) = address.and_then(|address| self.connect_error(address)) {
                neighbor.last_error = Some(format!("cannot connect: {why}"));
                let for_s = now.saturating_duration_since(since).as_secs();
                neighbor.last_error_for_s = Some(for_s);
            }
        }
    }

    fn report(&self, status: &mut Status) {
        let log = LogFigures {
            summarized: self.summarized(),
            ..status.log.as_deref().cloned().unwrap_or_default()
        };
        status.log = Some(log.into());
        status.notes.extend(startup::log_note(status));
        status.facts.push(startup::log_fact(status));
    }

    /// Logs all summaries, also those that are not due.
    fn stopping(&mut self, _: &Speaker, now: Instant, _: StopMode) {
        self.finish(now);
    }
}
