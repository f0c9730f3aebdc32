//! Reading the configuration again while running.

use std::time::Instant;

use crate::{Config, Daemon, Program};

impl<P: Program> Daemon<P> {
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
        let done = match self.io.reconfigure(config.intent.speaker.clone()) {
            Ok(done) => done,
            Err(error) => return self.refuse(error.to_string()),
        };
        tracing::info!(
            added = done.added.len(),
            removed = done.removed.len(),
            reset = done.reset.len(),
            "configuration reloaded"
        );
        for note in &config.intent.notes {
            tracing::warn!("{note}");
        }
        fixed.extend(self.program.reload(&config.settings));
        self.config = config;
        self.configured = Instant::now();
        if !fixed.is_empty() {
            let text = format!("{} changed: takes a restart", fixed.join(", "));
            tracing::warn!("{text}");
            self.config_error = Some(text);
        }
    }

    fn refuse(&mut self, why: String) {
        tracing::error!("the configuration is not taken, the last good one stays in force:\n{why}");
        self.config_error = Some(why);
    }
}
