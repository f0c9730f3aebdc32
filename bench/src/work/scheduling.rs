//! Processors and scheduling policies of threads: what runs on machines of its own in a fabric must
//! not wait for the others' time slices here.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::unistd::gettid;

/// Sets the scheduling policy of the calling thread; returns whether the kernel permits it.
///
/// A lower or higher nice value does not do, because it changes only the length of the time slices,
/// of about 3 ms.
pub(super) fn schedule(policy: &str, priority: &str) -> Result<bool> {
    let thread = gettid().to_string();
    let mut chrt = Command::new("chrt");
    chrt.args([policy, "--pid", priority, &thread]);
    let output = chrt.output().context("chrt")?;
    Ok(output.status.success())
}

/// Keeps the calling thread on the first processor.
pub(super) fn thread_on_first_processor() -> Result<()> {
    taskset(&[], &gettid().to_string())
}

/// Keeps all threads of a process on the first processor.
pub(super) fn process_on_first_processor(process: u32) -> Result<()> {
    taskset(&["--all-tasks"], &process.to_string())
}

fn taskset(options: &[&str], task: &str) -> Result<()> {
    let mut taskset = Command::new("taskset");
    taskset.args(options);
    taskset.args(["--cpu-list", "--pid", "0", task]);
    let output = taskset.output().context("taskset")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
