//! The results of a command for several resources, in the words of calicoctl.

use std::process::ExitCode;

/// The words of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// The command: `create`.
    pub verb: &'static str,
    /// Its participle: `created`.
    pub done: &'static str,
    /// The state of the resources that it may skip: `existing`.
    pub skipped: &'static str,
}

/// The resources that a command changed, skipped, and failed to change.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// The kind of each resource that was not skipped.
    kinds: Vec<String>,
    done: usize,
    skipped: usize,
}

impl Results {
    /// Counts a resource that was changed, if `is_done`, or else failed.
    pub(super) fn add(&mut self, kind: &str, is_done: bool) {
        self.kinds.push(kind.to_owned());
        self.done += usize::from(is_done);
    }

    /// Counts a resource that needed no change.
    pub(super) fn skip(&mut self) {
        self.skipped += 1;
    }

    /// Prints the results, and returns the exit status of the command.
    pub(super) fn print(&self, words: Words) -> ExitCode {
        println!("{}", self.text(words));
        self.status()
    }

    /// Returns the exit status of the command.
    pub(super) fn status(&self) -> ExitCode {
        match self.done == self.kinds.len() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }

    pub(super) fn text(&self, words: Words) -> String {
        let skipped = format!("Skipped {} {} resource(s)", self.skipped, words.skipped);
        match (self.skipped, self.kinds.len()) {
            (0, _) => self.changed(words),
            (_, 0) => skipped,
            (_, _) => format!("{}\n{skipped}", self.changed(words)),
        }
    }

    fn changed(&self, words: Words) -> String {
        let Words { verb, done, .. } = words;
        let one = self.kinds.first();
        let one = one.filter(|first| self.kinds.iter().all(|kind| kind == *first));
        let what = one.map_or_else(
            || "resource(s)".to_owned(),
            |kind| format!("'{kind}' resource(s)"),
        );
        match (self.done, self.kinds.len()) {
            (0, _) => format!("Failed to {verb} any {what}"),
            (count, all) if count == all => format!("Successfully {done} {count} {what}"),
            (count, all) => format!("Partial success: {done} {count} out of {all} {what}"),
        }
    }
}
