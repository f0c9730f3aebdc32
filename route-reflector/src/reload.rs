//! Reading the configuration again while running.

use crate::{Config, Daemon};

impl Daemon {
    /// Reads the file again and takes it over. With any mistake in it, what is in force stays in
    /// force, and the report goes to the log and into the status.
    pub fn reload(&mut self) {
        self.config_error = None;
        match Config::read(&self.config.path) {
            Ok(config) => self.take_over(config),
            Err(report) => self.refuse(report.to_string()),
        }
    }

    fn take_over(&mut self, config: Config) {
        let fixed = self.restart_keys(&config);
        match self.io.reconfigure(config.intent.speaker.clone()) {
            Ok(done) => {
                tracing::info!(
                    added = done.added.len(),
                    removed = done.removed.len(),
                    reset = done.reset.len(),
                    "configuration reloaded"
                );
                for note in &config.intent.notes {
                    tracing::warn!("{note}");
                }
                self.config = config;
            }
            Err(error) => return self.refuse(error.to_string()),
        }
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

    /// Changed keys that only a start reads.
    fn restart_keys(&self, new: &Config) -> Vec<&'static str> {
        let (old, new) = (&self.config.file, &new.file);
        let listen = |file: &intent::BgpFile<_>| -> Vec<_> {
            file.listen.iter().map(|at| *at.get_ref()).collect()
        };
        let changed = [
            ("listen", listen(old) != listen(new)),
            ("control", old.control != new.control),
            ("log", old.log != new.log),
            ("log_format", old.log_format != new.log_format),
        ];
        changed
            .into_iter()
            .filter(|(_, changed)| *changed)
            .map(|(key, _)| key)
            .collect()
    }
}
