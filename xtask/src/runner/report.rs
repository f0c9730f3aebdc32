//! The report at the end of a run.

use std::time::{Duration, Instant};

use super::{FLAKY_MAX, Outcome, Table, Verdict, seconds};

/// How many of the slowest tests are listed.
const SLOWEST: usize = 20;

/// A part of a run, with the time it took.
#[derive(Debug)]
pub struct Stage {
    name: String,
    time: Duration,
    passed: bool,
}

impl Stage {
    /// Prints the name of a part and runs it.
    pub fn run(name: &str, part: impl FnOnce() -> bool) -> Self {
        println!("== {name}");
        let since = Instant::now();
        let passed = part();
        let time = since.elapsed();
        if !passed {
            println!("FAILED {name}");
        }
        Self {
            name: name.to_owned(),
            time,
            passed,
        }
    }
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Summary {
    /// Its parts, in order.
    pub stages: Vec<Stage>,
    /// Its jobs.
    pub outcomes: Vec<Outcome>,
    /// Examples in documentation: passed, failed.
    pub doctests: (usize, usize),
    /// Other reasons to fail.
    pub faults: Vec<String>,
}

impl Summary {
    /// Records tests that were skipped without permission, and rows without a test.
    pub fn check(&mut self, table: &Table) {
        for outcome in &self.outcomes {
            if let Some(why) = &outcome.skipped
                && !table.may_skip(&outcome.job.name)
            {
                self.faults.push(format!("{}: {why}", outcome.job.name));
            }
        }
        let names: Vec<_> = self
            .outcomes
            .iter()
            .map(|outcome| outcome.job.name.as_str())
            .collect();
        for row in table.stale(&names) {
            self.faults
                .push(format!("xtask/tests.toml has a row about no test: {row}"));
        }
    }

    /// Prints stages, the slowest tests, flaky ones, faults, and the count. Returns whether the run
    /// was successful.
    pub fn print(&self) -> bool {
        println!("\nstages");
        for stage in &self.stages {
            let mark = if stage.passed { "" } else { "  FAILED" };
            println!("{} {}{mark}", seconds(stage.time), stage.name);
        }
        println!("\nslowest");
        let mut slow: Vec<_> = self.outcomes.iter().collect();
        slow.sort_by_key(|outcome| std::cmp::Reverse(outcome.time));
        for outcome in slow.into_iter().take(SLOWEST) {
            println!("{} {}", seconds(outcome.time), outcome.job.name);
        }
        let of = |verdict| {
            self.outcomes
                .iter()
                .filter(move |outcome| outcome.verdict == verdict)
        };
        println!();
        of(Verdict::Flaky)
            .for_each(|outcome| println!("FLAKY {}{}", outcome.job.name, often(outcome)));
        of(Verdict::Failed).for_each(|outcome| println!("FAILED {}", outcome.job.name));
        self.faults
            .iter()
            .for_each(|fault| println!("FAULT {fault}"));
        let flaky = of(Verdict::Flaky).count();
        let skipped = self
            .outcomes
            .iter()
            .filter(|outcome| outcome.skipped.is_some())
            .count();
        let failed = of(Verdict::Failed).count() + self.doctests.1;
        let passed = self.outcomes.len() + self.doctests.0 - of(Verdict::Failed).count() - skipped;
        println!("{passed} passed, {failed} failed, {skipped} skipped, {flaky} flaky");
        let stages = self.stages.iter().all(|stage| stage.passed);
        stages && failed == 0 && flaky <= FLAKY_MAX && self.faults.is_empty()
    }
}

/// Returns the remark on a lab that was flaky in an earlier run, too.
fn often(outcome: &Outcome) -> String {
    match outcome.flaky_runs {
        0 | 1 => String::new(),
        runs => format!(", in {runs} runs on this machine: mend it next"),
    }
}
