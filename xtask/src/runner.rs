//! The test runner: a process for each test, as many at once as the machine's cores allow, labs in
//! namespaces of their own.
//!
//! `cargo test` runs one executable after the other, though labs mostly sleep. This one builds the
//! same executables, asks each for its tests, and starts them by `xtask/tests.toml`, which says what
//! a test takes: the longest first, those that measure time alone at the end. A lab that fails is
//! run once more, alone; if it passes then, it is called FLAKY.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result};

mod enclose;
mod find;
mod flaky;
mod needs;
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

/// The profile that tests and the programs they start are built with.
pub const PROFILE: &str = "quick";

/// More flaky labs than this in one run fail it.
pub const FLAKY_MAX: usize = 2;

/// Where the output of the tests goes, in the build directory.
pub const LOGS: &str = "tests";

/// What every test is started with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The top of the repository.
    pub root: PathBuf,
    /// The build directory.
    pub target: PathBuf,
    /// What is drawn is drawn from this.
    pub seed: u64,
    /// Whether labs are run, in namespaces of their own. Takes root.
    pub labs: bool,
}

impl Setting {
    /// The setting of this process: labs as root, or where `CAMBRIC_LAB` asks for them.
    pub fn new(root: &Path) -> Self {
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        Self {
            root: root.to_owned(),
            target: root.join(target),
            seed: of_tree(root),
            labs: nix::unistd::geteuid().is_root(),
        }
    }

    /// Where the programs are that tests start.
    pub fn programs(&self) -> PathBuf {
        self.target.join(PROFILE)
    }

    /// The variables of a test.
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
        all
    }
}

/// A job for each test.
///
/// # Errors
/// If an executable does not list its tests.
pub fn jobs(setting: &Setting, table: &Table, executables: &[Executable]) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for executable in executables {
        for test in names(executable)? {
            let name = format!("{}::{test}", executable.name);
            let mut command = vec![executable.path.display().to_string()];
            command.extend(["--exact".to_owned(), test, "--nocapture".to_owned()]);
            jobs.push(Job {
                needs: table.needs(&name),
                name,
                command,
                directory: executable.directory.clone(),
                environment: setting.environment(),
            });
        }
    }
    Ok(jobs)
}

/// A job for a command that is no test.
pub fn command(setting: &Setting, table: &Table, name: &str, command: &[&str]) -> Job {
    Job {
        name: name.to_owned(),
        needs: table.needs(name),
        command: command.iter().map(ToString::to_string).collect(),
        directory: setting.root.clone(),
        environment: setting.environment(),
    }
}

/// Runs all jobs: together, then those that want the machine for themselves, then once more those labs
/// that have failed.
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
        if outcome.verdict == Verdict::Failed && outcome.job.needs.lab {
            println!("once more, alone: {}", outcome.job.name);
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
    // What the tests found counts all the same.
    for error in kept.into_iter().filter_map(Result::err) {
        println!("not kept for the next run: {error:#}");
    }
    Ok(outcomes)
}

/// How long something took, for people.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:7.1}", time.as_secs_f64())
}
