//! Parallel execution of jobs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Needs, Setting, seconds};

/// How many ended processes wait to be handled; the threads of further ones block.
const ENDS_MAX: usize = 16;

/// Interval of checks for due jobs.
const SHORT: Duration = Duration::from_millis(10);

/// How many lines of a failed test are shown.
const LINES_SHOWN: usize = 60;

/// Tests of at least this duration are named when they end.
const NAMED_FROM: Duration = Duration::from_secs(20);

/// The file with the seconds that each test took in the last run.
const SECONDS: &str = "seconds.json";

/// A test, or another command that is run beside the tests.
#[derive(Clone, Debug)]
pub struct Job {
    /// `folder/executable::test`.
    pub name: String,
    /// Its needs.
    pub needs: Needs,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Its working directory.
    pub directory: PathBuf,
    /// Environment variables in addition to those of this process.
    pub environment: Vec<(String, String)>,
}

/// The result of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Success.
    Passed,
    /// An error or a timeout.
    Failed,
    /// An error first; success when it was run again, alone.
    Flaky,
}

/// A job that has ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The job.
    pub job: Job,
    /// Its result.
    pub verdict: Verdict,
    /// How long it took.
    pub time: Duration,
    /// Its reason for having been skipped.
    pub skipped: Option<String>,
    /// In how many runs on this machine it was flaky, including this one.
    pub flaky_runs: u32,
}

impl Outcome {
    /// Returns whether the test is run again: it is a failed lab whose first failure is not final.
    pub(super) fn has_second_run(&self) -> bool {
        self.verdict == Verdict::Failed && self.job.needs.lab && !self.job.needs.never_flaky
    }
}

struct Running {
    job: Job,
    number: usize,
    process: Pid,
    log: PathBuf,
    since: Instant,
    /// It has exceeded its time limit, and was killed.
    late: bool,
}

/// The end of a process: the number of its job, and whether it succeeded.
type End = (usize, bool);

/// Starts jobs and waits for them.
pub(super) struct Runner<'a> {
    setting: &'a Setting,
    logs: &'a Path,
    started: usize,
    ends: (mpsc::SyncSender<End>, mpsc::Receiver<End>),
}

impl<'a> Runner<'a> {
    pub(super) fn new(setting: &'a Setting, logs: &'a Path) -> Self {
        Self {
            setting,
            logs,
            started: 0,
            ends: mpsc::sync_channel(ENDS_MAX),
        }
    }

    /// Runs jobs on so many cores, the longest first. One that needs more than all cores runs
    /// alone.
    pub(super) fn run(&mut self, mut jobs: Vec<Job>, cores: f64) -> Vec<Outcome> {
        jobs.sort_by(|a, b| b.needs.seconds.total_cmp(&a.needs.seconds));
        let (mut running, mut outcomes) = (Vec::<Running>::new(), Vec::new());
        while !jobs.is_empty() || !running.is_empty() {
            let busy: f64 = running.iter().map(|running| running.job.needs.cores).sum();
            let fits = |job: &Job| running.is_empty() || busy + job.needs.cores <= cores;
            if let Some(next) = jobs.iter().position(fits) {
                let job = jobs.remove(next);
                match self.start(&job) {
                    Ok(started) => running.push(started),
                    Err(error) => {
                        println!("FAILED {}: {error}", job.name);
                        outcomes.push(failed(job));
                    }
                }
                continue;
            }
            let next = running.iter().map(Running::left).min();
            match self.ends.1.recv_timeout(next.unwrap_or_default()) {
                Ok((number, well)) => {
                    let ended = running.iter().position(|one| one.number == number);
                    outcomes.extend(ended.map(|at| running.remove(at).outcome(well)));
                }
                Err(_) => running.iter_mut().for_each(Running::end_if_late),
            }
        }
        outcomes
    }

    fn start(&mut self, job: &Job) -> std::io::Result<Running> {
        self.started += 1;
        let name = job.name.replace(['/', ':', ' '], "-");
        let log = self.logs.join(format!("{name}.log"));
        let output = File::create(&log)?;
        let mut command = match self.setting.labs && !job.needs.open {
            true => {
                let mut command = Command::new(super::enclose::THIS);
                command.arg("enclose").args(&job.command);
                command
            }
            false => {
                let mut command = Command::new(&job.command[0]);
                command.args(&job.command[1..]);
                command
            }
        };
        command
            .current_dir(&job.directory)
            .env("CARGO_MANIFEST_DIR", &job.directory)
            .envs(job.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut child = command.spawn()?;
        let number = self.started;
        let process = Pid::from_raw(child.id().cast_signed());
        let ends = self.ends.0.clone();
        thread::spawn(move || {
            let well = child.wait().is_ok_and(|status| status.success());
            // The receiver is dropped once the run is over.
            let _ = ends.send((number, well));
        });
        Ok(Running {
            job: job.clone(),
            number,
            process,
            log,
            since: Instant::now(),
            late: false,
        })
    }
}

fn failed(job: Job) -> Outcome {
    Outcome {
        job,
        verdict: Verdict::Failed,
        time: Duration::ZERO,
        skipped: None,
        flaky_runs: 0,
    }
}

impl Running {
    /// Returns its remaining time. A process that exceeded its limit gets some more time to end.
    fn left(&self) -> Duration {
        let limit = self.job.needs.limit();
        let limit = if self.late { limit * 2 } else { limit };
        limit.saturating_sub(self.since.elapsed()).max(SHORT)
    }

    fn end_if_late(&mut self) {
        if !self.late && self.since.elapsed() >= self.job.needs.limit() {
            self.late = true;
            // It may just have ended by itself.
            let _ = kill(self.process, Signal::SIGKILL);
        }
    }

    /// Returns the outcome.
    fn outcome(self, well: bool) -> Outcome {
        let time = self.since.elapsed();
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // A name that matches no test is a failure.
        let passed = well && !text.contains("\nrunning 0 tests\n");
        let name = &self.job.name;
        if !passed {
            let lines: Vec<_> = text.lines().collect();
            let from = lines.len().saturating_sub(LINES_SHOWN);
            println!("FAILED {name} after {:.1} s", time.as_secs_f64());
            if self.late {
                println!("    not done after {} s", self.job.needs.limit);
            }
            lines[from..].iter().for_each(|line| println!("    {line}"));
        } else if time >= NAMED_FROM {
            println!("{} {name}", seconds(time));
        }
        let skipped = text.lines().find(|line| line.starts_with("skipped: "));
        Outcome {
            verdict: if passed {
                Verdict::Passed
            } else {
                Verdict::Failed
            },
            time,
            skipped: skipped.map(ToOwned::to_owned),
            flaky_runs: 0,
            job: self.job,
        }
    }
}

/// Sets each job's duration from the last run on this machine.
pub(super) fn recall(logs: &Path, jobs: &mut [Job]) {
    let Ok(text) = fs::read(logs.join(SECONDS)) else {
        return;
    };
    let known: BTreeMap<String, f64> = serde_json::from_slice(&text).unwrap_or_default();
    for job in jobs {
        if let Some(seconds) = known.get(&job.name) {
            job.needs.seconds = *seconds;
        }
    }
}

/// Stores the durations for the next run.
pub(super) fn remember(logs: &Path, outcomes: &[Outcome]) -> Result<()> {
    let times = outcomes
        .iter()
        .map(|outcome| (&outcome.job.name, outcome.time.as_secs_f64()));
    let times: BTreeMap<_, _> = times.collect();
    let path = logs.join(SECONDS);
    fs::write(&path, serde_json::to_vec_pretty(&times)?).with_context(|| path.display().to_string())
}
