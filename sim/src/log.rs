//! The events of a run: a hash over all of them, and the last lines for a report.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::limits::TRACE_LINES;

/// The log of a run.
#[derive(Debug, Default)]
pub(crate) struct Log {
    hash: Fnv,
    events: u64,
    lines: VecDeque<(u64, String)>,
}

impl Log {
    /// Adds an event to the hash.
    pub(crate) fn note(&mut self, now: u64, what: impl Hash) {
        self.events += 1;
        now.hash(&mut self.hash);
        what.hash(&mut self.hash);
    }

    /// Adds an event with a line for the trace.
    pub(crate) fn line(&mut self, now: u64, line: String) {
        self.note(now, &line);
        if self.lines.len() >= TRACE_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back((now, line));
    }

    /// Returns the hash, which differs if any event differs.
    pub(crate) fn hash(&self) -> u64 {
        self.hash.finish()
    }

    pub(crate) const fn events(&self) -> u64 {
        self.events
    }

    /// Returns the last lines.
    pub(crate) fn trace(&self) -> String {
        let lines = self.lines.iter();
        lines
            .map(|(at, line)| format!("  {:>12} {line}\n", seconds(*at)))
            .collect()
    }
}

/// Formats an instant as seconds.
pub(crate) fn seconds(at: u64) -> String {
    format!("{:.6}", Duration::from_nanos(at).as_secs_f64())
}

/// 64-bit FNV-1a: the same on every machine and in every build.
#[derive(Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.0 = (self.0 ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}

/// A violation that an oracle has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// How many nodes it has.
    pub nodes: u16,
    /// The virtual time, in nanoseconds.
    pub at: u64,
    /// The oracle.
    pub oracle: &'static str,
    /// The violation.
    pub what: String,
    /// The preceding events.
    pub trace: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "reproduce with: CAMBRIC_SIM_SEED={} CAMBRIC_SIM_NODES={} cargo test -p cambric-sim --test seeds",
            self.seed, self.nodes
        )?;
        writeln!(
            f,
            "{} at {} s: {}",
            self.oracle,
            seconds(self.at),
            self.what
        )?;
        write!(f, "events before:\n{}", self.trace)
    }
}

impl std::error::Error for Violation {}
