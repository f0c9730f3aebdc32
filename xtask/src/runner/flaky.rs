//! Labs that were flaky, over all runs that share a build directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Outcome, Verdict};

/// The file with the number of runs in which each lab was flaky.
const FLAKY: &str = "flaky.json";

/// Counts the flaky labs of a run, and keeps the counts in the directory of the logs.
///
/// # Errors
/// If the file cannot be read or written.
pub(super) fn count(logs: &Path, outcomes: &mut [Outcome]) -> Result<()> {
    let path = logs.join(FLAKY);
    let mut runs: BTreeMap<String, u32> = match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
            println!("{}: {error}: counted from 0", path.display());
            BTreeMap::new()
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let flaky = outcomes
        .iter_mut()
        .filter(|outcome| outcome.verdict == Verdict::Flaky);
    for outcome in flaky {
        let count = runs.entry(outcome.job.name.clone()).or_default();
        *count = count.saturating_add(1);
        outcome.flaky_runs = *count;
    }
    fs::write(&path, serde_json::to_vec_pretty(&runs)?).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::super::{Job, Needs};
    use super::*;

    fn outcome(name: &str, verdict: Verdict) -> Outcome {
        Outcome {
            job: Job {
                name: name.to_owned(),
                needs: Needs::default(),
                command: Vec::new(),
                directory: PathBuf::new(),
                environment: Vec::new(),
            },
            verdict,
            time: Duration::ZERO,
            skipped: None,
            flaky_runs: 0,
        }
    }

    #[test]
    fn failed_lab_has_a_second_run_unless_never_flaky() {
        let mut lab = outcome("one", Verdict::Failed);
        assert!(!lab.has_second_run(), "it is not a lab");
        lab.job.needs.lab = true;
        assert!(lab.has_second_run());
        lab.job.needs.never_flaky = true;
        assert!(!lab.has_second_run());
        lab.verdict = Verdict::Passed;
        lab.job.needs.never_flaky = false;
        assert!(!lab.has_second_run());
    }

    #[test]
    fn flaky_labs_are_counted_over_runs() {
        let logs = std::env::temp_dir().join(format!("xtask-flaky-{}", std::process::id()));
        fs::create_dir_all(&logs).unwrap();
        let run = |verdict| {
            let mut outcomes = [outcome("one", verdict), outcome("two", Verdict::Passed)];
            count(&logs, &mut outcomes).unwrap();
            outcomes.map(|outcome| outcome.flaky_runs)
        };
        assert_eq!(run(Verdict::Flaky), [1, 0]);
        // Other tests keep their count.
        assert_eq!(run(Verdict::Passed), [0, 0]);
        assert_eq!(run(Verdict::Flaky), [2, 0]);
        fs::write(logs.join(FLAKY), "{").unwrap();
        assert_eq!(run(Verdict::Flaky), [1, 0], "a damaged file");
        fs::remove_dir_all(&logs).unwrap();
        let error = count(&logs, &mut []).unwrap_err().to_string();
        assert!(error.contains(FLAKY), "{error}");
    }
}
