//! The test runner: a process for each test, as many at once as the machine's cores allow, labs in
//! namespaces of their own.
//!
//! `cargo test` runs one executable after the other, though labs mostly sleep. This one builds the
//! same executables, lists the tests of each, and starts them by `xtask/tests.toml`, which states
//! the needs of each test: the longest first, those that measure time alone at the end. A lab that
//! fails is run again, alone; if it passes then, it is reported as FLAKY. The first failure of a
//! test about an attack is final.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result};

mod enclose;
mod find;
mod flaky;
mod needs;
mod properties;
mod report;
mod schedule;
mod seed;

pub use enclose::{enclose, settle};
pub(crate) use find::program;
pub use find::{Executable, build, count, doctests, names};
pub use needs::{Needs, Table};
pub use report::{Stage, Summary};
pub use schedule::{Job, Outcome, Verdict};
pub use seed::{of_tree, random};

/// The profile of tests and of the programs that they start.
pub const PROFILE: &str = "quick";

/// More flaky labs than this in one run fail it.
pub const FLAKY_MAX: usize = 2;

/// Directory of the tests' output, in the build directory.
pub const LOGS: &str = "tests";

/// The common settings of all tests.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The root of the repository.
    pub root: PathBuf,
    /// The build directory.
    pub target: PathBuf,
    /// The seed of all random inputs.
    pub seed: u64,
    /// Whether labs are run, in namespaces of their own. Requires root.
    pub labs: bool,
    /// Whether tests that draw may take minutes each.
    pub is_long: bool,
}

impl Setting {
    /// Reads the settings of this process. Labs are run if it is root.
    pub fn new(root: &Path) -> Self {
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        Self {
            root: root.to_owned(),
            target: root.join(target),
            seed: of_tree(root),
            labs: nix::unistd::geteuid().is_root(),
            is_long: false,
        }
    }

    /// Returns the directory of the programs that tests start.
    pub fn programs(&self) -> PathBuf {
        self.target.join(PROFILE)
    }

    /// Returns the environment variables of a test.
    fn environment(&self) -> Vec<(String, String)> {
        let path = env::var("PATH").unwrap_or_default();
        let mut all = vec![
            (
                "PATH".to_owned(),
                format!("{path}:/usr/sbin:/sbin:/usr/lib/frr"),
            ),
            ("PROPTEST_RNG_SEED".to_owned(), self.seed.to_string()),
            ("CAMBRIC_SEED".to_owned(), self.seed.to_string()),
        ];
        if self.labs {
            all.push(("CAMBRIC_LAB".to_owned(), "1".to_owned()));
        }
        if self.is_long {
            all.push(("CAMBRIC_SOAK".to_owned(), "1".to_owned()));
        }
        all
    }
}

/// Returns a job for each test.
///
/// # Errors
/// If an executable does not list its tests.
pub fn jobs(setting: &Setting, table: &Table, executables: &[Executable]) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    let mut properties = BTreeMap::new();
    for executable in executables {
        let directory = &executable.directory;
        if !properties.contains_key(directory) {
            properties.insert(directory.clone(), properties::of_package(directory)?);
        }
        for test in names(executable)? {
            let name = format!("{}::{test}", executable.name);
            let function = test.rsplit("::").next().unwrap_or(&test);
            let mut needs = table.needs(&name);
            needs.drawn |= properties[directory].contains(function);
            let mut command = vec![executable.path.display().to_string()];
            command.extend(["--exact".to_owned(), test, "--nocapture".to_owned()]);
            jobs.push(Job {
                needs,
                name,
                command,
                directory: executable.directory.clone(),
                environment: setting.environment(),
            });
        }
    }
    Ok(jobs)
}

/// Returns a job for a command that is not a test.
pub fn command(setting: &Setting, table: &Table, name: &str, command: &[&str]) -> Job {
    Job {
        name: name.to_owned(),
        needs: table.needs(name),
        command: command.iter().map(ToString::to_string).collect(),
        directory: setting.root.clone(),
        environment: setting.environment(),
    }
}

/// Runs all jobs: first those that can run in parallel, then those that need the machine alone,
/// then again the labs that have failed.
///
/// # Errors
/// If the directory of the logs cannot be made.
pub fn run(setting: &Setting, mut jobs: Vec<Job>) -> Result<Vec<Outcome>> {
    let logs = setting.target.join(LOGS);
    fs::create_dir_all(&logs).with_context(|| format!("{}", logs.display()))?;
    schedule::recall(&logs, &mut jobs);
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let mut runner = schedule::Runner::new(setting, &logs);
    let (alone, together): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.needs.alone);
    let mut outcomes = runner.run(together, cores as f64);
    for job in alone {
        outcomes.extend(runner.run(vec![job], cores as f64));
    }
    for outcome in &mut outcomes {
        if outcome.has_second_run() {
            println!("again, alone: {}", outcome.job.name);
            let mut again = runner.run(vec![outcome.job.clone()], cores as f64);
            if again
                .pop()
                .is_some_and(|again| again.verdict == Verdict::Passed)
            {
                outcome.verdict = Verdict::Flaky;
            }
        }
    }
    let kept = [
        flaky::count(&logs, &mut outcomes),
        schedule::remember(&logs, &outcomes),
    ];
    // The results of the tests count nevertheless.
    for error in kept.into_iter().filter_map(Result::err) {
        println!("not kept for the next run: {error:#}");
    }
    Ok(outcomes)
}

/// Formats a duration for operators.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:7.1}", time.as_secs_f64())
}
