//! Reading the configuration again while running.

use std::time::Instant;

use bgp_config::Intent;

use crate::{Config, Daemon, Driver, Program};

const NOT_TAKEN: &str = "the configuration is not taken, the last good one stays in force";

impl<P: Program, D: Driver<P::Settings>> Daemon<P, D> {
    /// Reads the file again and takes it over. With any mistake in it, what is in force stays in
    /// force, and the report goes to the log and into the status.
    pub(crate) fn reload(&mut self) {
        self.config_error = None;
        match Config::read(&self.config.path) {
            Ok(config) => self.take_over(config),
            Err(report) => self.refuse(report.to_string()),
        }
    }

    fn take_over(&mut self, config: Config<P::Settings>) {
        let mut fixed = self.config.restart_keys(&config);
        if let (Some(intent), None) = (config.intent(), self.drivers.source())
            && !self.adopt(intent.clone())
        {
            return;
        }
        for note in config.notes() {
            tracing::warn!("{note}");
        }
        fixed.extend(self.drivers.reload(&config, &self.intent));
        self.config = config;
        if !fixed.is_empty() {
            let text = format!("{} changed: takes a restart", fixed.join(", "));
            tracing::warn!("{text}");
            self.config_error = Some(text);
        }
    }

    /// Makes the speaker what it is to be from now on. Returns false if it stays what it was.
    pub(crate) fn adopt(&mut self, intent: Intent) -> bool {
        let done = match self.io.reconfigure(intent.speaker.clone()) {
            Ok(done) => done,
            Err(error) => {
                let why = error.to_string();
                tracing::error!("{NOT_TAKEN}:\n{why}");
                self.refused = Some(why);
                return false;
            }
        };
        self.refused = None;
        self.drivers.adopted(self.io.clock().now(), &intent);
        if intent.listen != self.intent.listen {
            self.io.listen_on(&intent.listen);
        }
        tracing::info!(
            added = done.added.len(),
            removed = done.removed.len(),
            reset = done.reset.len(),
            keyless = self.io.keyless().count(),
            "configuration taken over"
        );
        for name in &done.later {
            tracing::info!(
                "neighbor {name}: some of it is in force from its next session on; \
                 `cambric clear` begins one"
            );
        }
        self.intent = intent;
        self.configured = Instant::now();
        true
    }

    fn refuse(&mut self, why: String) {
        tracing::error!("{NOT_TAKEN}:\n{why}");
        self.config_error = Some(why);
    }
}
