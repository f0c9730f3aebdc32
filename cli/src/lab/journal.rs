//! The steps of a run: printed as they end, and kept for the summary.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

/// The steps of a run.
#[derive(Debug, Default)]
pub(super) struct Journal {
    steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Step {
    /// Its name in JSON.
    pub(super) name: &'static str,
    /// Whether it succeeded.
    pub(super) good: bool,
    /// Its duration in milliseconds, if that is of interest.
    pub(super) took_ms: Option<f64>,
    /// Its result, in words.
    pub(super) outcome: String,
}

impl Journal {
    /// Records a step that succeeded.
    pub(super) fn good(&mut self, name: &'static str, took: Option<Duration>, outcome: String) {
        self.note(name, true, took, outcome);
    }

    /// Records a step that failed; the run continues, and ends in failure.
    pub(super) fn bad(&mut self, name: &'static str, took: Option<Duration>, outcome: String) {
        self.note(name, false, took, outcome);
    }

    fn note(&mut self, name: &'static str, good: bool, took: Option<Duration>, outcome: String) {
        let took_ms = took.map(|took| took.as_secs_f64() * 1e3);
        let step = Step {
            name,
            good,
            took_ms,
            outcome,
        };
        print_line(&step.line());
        self.steps.push(step);
    }

    /// All steps, in order.
    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns whether all steps succeeded.
    pub(super) fn all_good(&self) -> bool {
        self.steps.iter().all(|step| step.good)
    }

    /// Returns the duration of a step, in words.
    pub(super) fn took(&self, name: &str) -> Option<String> {
        let step = self
            .steps
            .iter()
            .find(|step| step.name == name && step.good)?;
        step.took_ms.map(milliseconds)
    }
}

impl Step {
    fn line(&self) -> String {
        let mark = if self.good { '✓' } else { '✗' };
        let took = self.took_ms.map(milliseconds).unwrap_or_default();
        let mut line = format!("  {mark} {:<11}{took:>9}  ", self.name);
        let mut lines = self.outcome.lines();
        line.push_str(lines.next().unwrap_or_default());
        for more in lines {
            let _ = write!(line, "\n{:25}{more}", "");
        }
        line
    }
}

/// Prints a line. A closed output does not stop the run.
pub(super) fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

/// `412 ms`, `3.21 s`.
pub(super) fn milliseconds(ms: f64) -> String {
    match ms {
        0.0..10.0 => format!("{ms:.1} ms"),
        10.0..1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.2} s", ms / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_step_spoils_the_run_and_has_no_time() {
        let mut journal = Journal::default();
        journal.good(
            "sessions",
            Some(Duration::from_millis(1234)),
            "9 up".to_owned(),
        );
        assert!(journal.all_good());
        journal.bad(
            "moved",
            Some(Duration::from_millis(5)),
            "not yet".to_owned(),
        );
        assert!(!journal.all_good());
        assert_eq!(journal.took("sessions").as_deref(), Some("1.23 s"));
        assert_eq!(journal.took("moved"), None);
    }

    #[test]
    fn times_have_three_figures_or_so() {
        let texts = [0.42, 9.99, 10.4, 999.4, 1000.0].map(milliseconds);
        assert_eq!(texts, ["0.4 ms", "10.0 ms", "10 ms", "999 ms", "1.00 s"]);
    }

    #[test]
    fn further_lines_of_an_outcome_are_indented_below_the_first() {
        let step = Step {
            name: "pings",
            good: false,
            took_ms: None,
            outcome: "a\nb".to_owned(),
        };
        assert_eq!(step.line(), format!("  ✗ pings{:17}a\n{:25}b", "", ""));
    }
}
