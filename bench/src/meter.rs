//! Resource usage of a daemon and of the rest of the machine.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use netns_lab::usage_of_family;
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{SysconfVar, sysconf};

/// A reading of all meters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// CPU time of the daemon's processes.
    pub daemon: Duration,
    /// CPU time of the load generator.
    pub generator: Duration,
    /// CPU time of the whole machine, all processes included.
    pub machine: Duration,
    /// Largest resident sets of the daemon's processes so far, in octets. Pages of files that they share
    /// count once.
    pub peak_octets: u64,
    /// Their resident sets now.
    pub resident_octets: u64,
}

impl Reading {
    /// Reads the meters of the process `pid`, of all its descendants, and of this process.
    pub fn take(pid: u32) -> Result<Self> {
        let mut reading = Self {
            generator: generator()?,
            machine: machine()?,
            ..Self::default()
        };
        if let Some(used) = usage_of_family(pid) {
            reading.daemon = used.cpu;
            reading.peak_octets = used.peak_octets;
            reading.resident_octets = used.resident_octets;
        }
        Ok(reading)
    }

    /// Returns the CPU time that neither the daemon nor the load generator has used since `before`.
    pub fn foreign_since(&self, before: &Self) -> Duration {
        let all = self.machine.saturating_sub(before.machine);
        let ours = (self.daemon + self.generator).saturating_sub(before.daemon + before.generator);
        all.saturating_sub(ours)
    }
}

/// Returns the CPU time of this process.
pub fn generator() -> Result<Duration> {
    let used = getrusage(UsageWho::RUSAGE_SELF).context("getrusage")?;
    let time = |value: nix::sys::time::TimeVal| {
        Duration::from_micros((value.tv_sec() * 1_000_000 + value.tv_usec()).unsigned_abs())
    };
    Ok(time(used.user_time()) + time(used.system_time()))
}

/// Returns all time except idle and iowait, from the first line of `/proc/stat`.
fn machine() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let numbers = line
        .split_whitespace()
        .skip(1)
        .map(|word| word.parse().unwrap_or(0));
    // user nice system idle iowait irq softirq steal
    let busy: u64 = numbers
        .take(8)
        .enumerate()
        .filter(|(at, _)| !matches!(at, 3 | 4))
        .map(|(_, n)| n)
        .sum();
    let per_second = sysconf(SysconfVar::CLK_TCK)
        .context("CLK_TCK")?
        .unwrap_or(100);
    Ok(Duration::from_millis(
        busy * 1000 / per_second.unsigned_abs(),
    ))
}
