//! The drain of a node in the daemon's loop.

use std::time::{SystemTime, UNIX_EPOCH};

use bgp_config::Intent;
use calico_model::rfc3339_utc;
use daemon_common::events::emit;
use daemon_common::report::Drain;

use crate::{Daemon, Driver, Program, Settings};

impl<P: Program, D: Driver<P::Settings>> Daemon<P, D> {
    /// Begins the next stage of the drain, if the current one is complete.
    pub(crate) fn look_at_drain(&mut self) {
        if self.drain.look(self.io.clock().now(), self.io.speaker()) {
            self.apply_drain();
        }
        self.report_drain();
    }

    /// Applies the configuration again, with the policies of the current stage.
    pub(crate) fn apply_drain(&mut self) {
        let applied = || self.io.speaker().config().clone();
        let speaker = self.undrained.take().unwrap_or_else(applied);
        self.adopt(Intent {
            speaker,
            listen: self.listen.clone(),
            restart_wait: self.restart_wait,
            notes: self.remarks.clone(),
        });
    }

    /// Emits the events of the drain, and passes its progress to the drivers.
    pub(crate) fn report_drain(&mut self) {
        while let Some(event) = self.drain.poll_event() {
            emit(event);
        }
        let report = self.drain.report();
        self.drivers.drained(report.as_ref());
    }

    /// Begins or ends the drain at a request on the control socket, and returns its progress. A request
    /// until the daemon stops is not stored.
    pub(crate) fn answer_drain(
        &mut self,
        on: Option<bool>,
        until_stop: bool,
    ) -> Result<Drain, String> {
        if P::Settings::REFLECTS {
            let text = "a route reflector is drained by `cambric reflector drain NAME`";
            return Err(text.to_owned());
        }
        if until_stop && on != Some(true) {
            return Err("`until_stop` is only valid with a request to drain".to_owned());
        }
        if let Some(on) = on {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let since = on.then(|| rfc3339_utc(now.unwrap_or_default().as_secs()));
            if !until_stop {
                let kept = self.drain_file.keep(since.as_deref());
                kept.map_err(|error| format!("the request cannot be stored: {error}"))?;
            }
            if self.drain.request(self.io.clock().now(), since) {
                self.apply_drain();
            }
            self.report_drain();
        }
        Ok(Drain {
            drain: self.drain.figures(),
        })
    }
}
