//! How long the kernel keeps a processor from the thread of the highest priority.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::poll::{PollTimeout, poll};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::super::scheduling::schedule;

/// The period of the threads, in milliseconds.
const PERIOD_MS: u16 = 1;

/// A thread on each processor that wakes in each period, with real-time priority. A system call
/// that does not yield delays the thread of its processor.
pub(super) struct Lateness {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Duration>>>,
}

impl Lateness {
    pub(super) fn start() -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let processors = thread::available_parallelism()?.get();
        let start = |processor| {
            let over = over.clone();
            thread::spawn(move || measure(processor, &over))
        };
        Ok(Self {
            threads: (0..processors).map(start).collect(),
            over,
        })
    }

    /// Ends the threads, and returns the longest delay.
    pub(super) fn stop(self) -> Result<Duration> {
        self.over.store(true, Ordering::Relaxed);
        let threads = self.threads.into_iter();
        let delays = threads.map(|thread| thread.join().map_err(|_| anyhow!("it panicked"))?);
        let delays: Vec<Duration> = delays.collect::<Result<_>>()?;
        delays.into_iter().max().context("a processor")
    }
}

fn measure(processor: usize, over: &AtomicBool) -> Result<Duration> {
    let mut processors = CpuSet::new();
    processors.set(processor)?;
    sched_setaffinity(Pid::from_raw(0), &processors)?;
    ensure!(schedule("--fifo", "50")?, "real-time priority is refused");
    let mut longest = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        let due = Instant::now() + Duration::from_millis(u64::from(PERIOD_MS));
        poll(&mut [], PollTimeout::from(PERIOD_MS))?;
        longest = longest.max(Instant::now().saturating_duration_since(due));
    }
    Ok(longest)
}
