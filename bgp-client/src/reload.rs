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
        let mut fixed = self.restart_keys(&config);
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
                if !self.node.set_import(&config.kernel.import) {
                    fixed.push("kernel.import (another table)");
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

    /// Changed keys that only a start reads. Those of the kernel are compared with what is in
    /// force, which an earlier reload may not have changed.
    fn restart_keys(&self, new: &Config) -> Vec<&'static str> {
        let (old_file, new_file) = (&self.config.file, &new.file);
        let (old, new) = (self.node.config(), &new.kernel);
        let listen = |file: &intent::BgpFile<_>| -> Vec<_> {
            file.listen.iter().map(|at| *at.get_ref()).collect()
        };
        let changed = [
            ("listen", listen(old_file) != listen(new_file)),
            ("control", old_file.control != new_file.control),
            ("log", old_file.log != new_file.log),
            ("log_format", old_file.log_format != new_file.log_format),
            ("kernel.install", old.install != new.install),
            ("kernel.table", old.table != new.table),
            ("kernel.metric", old.metric != new.metric),
            ("kernel.protocol", old.owner != new.owner),
            ("kernel.grace", old.grace != new.grace),
            ("kernel.reconcile", old.reconcile != new.reconcile),
        ];
        changed
            .into_iter()
            .filter(|(_, changed)| *changed)
            .map(|(key, _)| key)
            .collect()
    }
}
