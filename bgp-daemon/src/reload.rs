//! Reload of the configuration while the daemon runs.

use std::time::Instant;

use bgp_config::Intent;
use daemon_common::events::{self, Event, Text};

use crate::{Config, Daemon, Driver, Parent, Program, memory, privileges};

impl<P: Program, D: Driver<P::Settings>> Daemon<P, D> {
    /// Reads the file again and applies it. If it has a mistake, the last valid configuration is
    /// kept, and the report goes to the log and into the status.
    pub(crate) fn reload(&mut self) {
        self.config_error = None;
        match Config::read(&self.config.path) {
            Ok(config) => self.take_over(config),
            Err(report) => {
                let mut report = report.to_string();
                if self.privileges.is_confined() {
                    report.push_str(privileges::hint(&report));
                }
                self.refuse(report);
            }
        }
    }

    /// Does the same at a command, and returns why the file is not in effect, or a part of it. The
    /// parent reads the file first, as it does before it passes on SIGHUP, since it compares further
    /// commands with the file.
    pub(crate) fn reload_with_parent(&mut self) -> Option<String> {
        let parent = self.privileges.parent();
        let read = parent.map_or(Ok(()), Parent::read_file);
        self.reload();
        // The mistakes are those that this process has read, unless the file has changed since.
        if let (Err(error), None) = (read, &self.config_error) {
            self.config_error = Some(format!("the parent process: {error}: reload again"));
        }
        let is_of_file = self.drivers.source().is_none();
        let refused = self.refused.as_ref().filter(|_| is_of_file);
        self.config_error.as_ref().or(refused).cloned()
    }

    fn take_over(&mut self, mut config: Config<P::Settings>) {
        let notes = config.notes();
        let mut fixed = self.start_keys.changed(&config.start_keys());
        if let (Some(intent), None) = (config.take_intent(), self.drivers.source())
            && !self.adopt(intent)
        {
            return;
        }
        let octets_max = memory::octets_max(&config);
        self.io.speaker_mut().limit_memory(octets_max);
        emit_notes(&notes);
        fixed.extend(self.drivers.reload(&config));
        self.config = config;
        if !fixed.is_empty() {
            let keys = fixed.join(", ");
            events::emit(Event::ConfigRestartRequired {
                keys: Text::new(&keys),
            });
            let text = format!("{keys} changed: requires a restart");
            self.config_error = Some(text);
        }
    }

    /// Applies a configuration to the speaker. Returns false if the speaker rejects it.
    pub(crate) fn adopt(&mut self, intent: Intent) -> bool {
        let drained = self.drain.effective(&intent.speaker);
        let undrained = drained.is_some().then(|| intent.speaker.clone());
        let config = drained.unwrap_or_else(|| intent.speaker.clone());
        let done = match self.io.reconfigure(config) {
            Ok(done) => done,
            Err(error) => {
                let why = error.to_string();
                rejected(&why);
                self.refused = Some(why);
                return false;
            }
        };
        self.refused = None;
        self.undrained = undrained;
        self.drivers.adopted(self.io.clock().now(), &intent);
        if intent.listen != self.listen {
            self.io.listen_on(&intent.listen);
        }
        events::emit(Event::ConfigApplied {
            added: done.added.len() as u64,
            removed: done.removed.len() as u64,
            reset: done.reset.len() as u64,
            keyless: self.io.keyless().count() as u64,
            revision: self.drivers.revision(),
        });
        for name in &done.later {
            events::emit(Event::ConfigDeferred {
                neighbor: Text::new(name),
            });
        }
        self.restart_wait = intent.restart_wait;
        (self.listen, self.remarks) = (intent.listen, intent.notes);
        self.configured = Instant::now();
        true
    }

    fn refuse(&mut self, why: String) {
        rejected(&why);
        self.config_error = Some(why);
    }
}

/// Emits the notes on a valid configuration.
pub(crate) fn emit_notes(notes: &[String]) {
    for note in notes {
        let note = Text::new(note);
        events::emit(Event::ConfigNote { note });
    }
}

/// Emits that a configuration is rejected, and logs the whole report.
fn rejected(why: &str) {
    events::emit(Event::ConfigRejected {
        reason: Text::new(why.lines().next().unwrap_or_default()),
    });
    // The report begins on its own line, so that its marks are below its text.
    tracing::error!(report = %format_args!("\n{why}"), "rejected configuration");
}
