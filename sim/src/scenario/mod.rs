//! A run: a phase of chaos in which only safety is checked, then a phase of calm in which nothing
//! goes wrong any more and everything must become right.

mod act;
mod chaos;
mod workload;

use std::time::Duration;

use crate::limits::{ADDED, COMPARE_EVERY, CONVERGE, IDLE, SETTLE, WITHDRAWN};
use crate::log::Violation;
use crate::net::nanos;
use crate::options::Options;
use crate::oracle::{fib, forwarding, idle::Writes, sessions, withdrawn};
use crate::plants::Plants;
use crate::world::{SetupError, World};

pub(crate) use act::Act;
pub use workload::Workload;

/// Endpoints that are withdrawn, and moved, at the end of the calm.
const LAST_CHANGES: usize = 2;

/// Why a run is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An oracle says so.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// It could not begin.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// A run that is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// A number that is another one if anything happened otherwise.
    pub hash: u64,
    /// Events that happened.
    pub events: u64,
    /// From the beginning of the calm until every kernel agreed with the store.
    pub converged: Duration,
    /// Virtual time in all.
    pub took: Duration,
}

/// Runs one seed.
///
/// # Errors
/// An oracle says that something is wrong.
pub fn run(seed: u64, options: Options, plants: Plants) -> Result<Outcome, Failure> {
    let chaos = options.chaos;
    let mut world = World::new(seed, options, plants)?;
    world.populate();
    world.start_all();
    if !chaos.is_zero() {
        world.begin_chaos();
        world.pass(chaos)?;
    }
    world.begin_calm();
    let converged = world.agree(CONVERGE)?;
    world.come_to_rest()?;
    world.last_changes()?;
    Ok(Outcome {
        hash: world.hash(),
        events: world.events(),
        converged,
        took: world.now(),
    })
}

impl World {
    /// Lets time pass until every kernel agrees with the store and every session is up; returns
    /// how long that took.
    ///
    /// # Errors
    /// It takes longer than `most`.
    pub fn agree(&mut self, most: Duration) -> Result<Duration, Violation> {
        let begin = self.now;
        let end = begin + nanos(most);
        let mut compared = begin;
        self.changed = true;
        loop {
            let more = self.step(end)?;
            if self.changed && (self.now - compared >= nanos(COMPARE_EVERY) || !more) {
                compared = self.now;
                let wrong = fib::check(self);
                // Sessions come up without a change to any kernel, if nothing is to be routed.
                self.changed = !wrong.is_empty() || !sessions::check(self).is_empty();
                if !self.changed {
                    return Ok(Duration::from_nanos(self.now - begin));
                }
                if !more {
                    return Err(self.wrong("fib", &[wrong, sessions::check(self)].concat()));
                }
            }
            if !more {
                return Err(self.violation("fib", "nothing changed any more".to_owned()));
            }
        }
    }

    /// Lets what is left over run out; then all must be right, and stay so with nothing written.
    fn come_to_rest(&mut self) -> Result<(), Violation> {
        self.pass(SETTLE)?;
        self.all_right()?;
        let before = Writes::of(self);
        self.pass(IDLE)?;
        self.expect("idle", &before.since(&Writes::of(self)))?;
        self.all_right()
    }

    /// What holds at rest.
    pub(crate) fn all_right(&self) -> Result<(), Violation> {
        self.expect("fib", &fib::check(self))?;
        self.expect("forwarding", &forwarding::check(self))?;
        self.expect("sessions", &sessions::check(self))
    }

    /// In calm, changes reach every kernel in no time.
    fn last_changes(&mut self) -> Result<(), Violation> {
        for _ in 0..LAST_CHANGES {
            let nets = self.withdraw_any();
            self.pass(WITHDRAWN)?;
            self.expect("withdrawn", &withdrawn::check(self, &nets))?;
            self.move_any();
            self.pass(ADDED)?;
            self.all_right()?;
        }
        Ok(())
    }

    pub(crate) fn expect(&self, oracle: &'static str, wrong: &[String]) -> Result<(), Violation> {
        match wrong {
            [] => Ok(()),
            _ => Err(self.wrong(oracle, wrong)),
        }
    }

    fn wrong(&self, oracle: &'static str, wrong: &[String]) -> Violation {
        let shown = wrong.iter().take(8).map(|line| format!("\n  {line}"));
        let what = format!("{} wrong:{}", wrong.len(), shown.collect::<String>());
        self.violation(oracle, what)
    }
}
