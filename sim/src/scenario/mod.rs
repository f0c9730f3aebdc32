//! A run: a phase of chaos in which only safety is checked, then a phase of calm in which nothing
//! goes wrong any more and everything must become right.

mod act;
mod chaos;
mod workload;

use std::time::Duration;

use crate::agenda::Daemon;
use crate::felix::Felix;
use crate::life::End;
use crate::limits::{
    ADDED, COMPARE_EVERY, COMPARE_SHARE, CONVERGE, FORGOTTEN, IDLE, SETTLE, WITHDRAWN,
};
use crate::log::Violation;
use crate::net::nanos;
use crate::options::Options;
use crate::oracle::{empty, fib, forwarding, idle::Writes, sent, sessions, withdrawn};
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
    world.leave_one_alone()?;
    Ok(Outcome {
        hash: world.hash(),
        events: world.events(),
        converged,
        took: world.now(),
    })
}

/// A fabric that is started at once in the weather of its options: how long until every kernel
/// agrees with the store, and then until a withdrawn endpoint has left every kernel.
///
/// # Errors
/// It does not come to that.
pub fn converge(seed: u64, options: Options) -> Result<(Duration, Duration), Failure> {
    let mut world = World::new(seed, options, Plants::default())?;
    world.net.weather = world.options.weather;
    world.populate();
    world.start_all();
    let begun = world.agree(CONVERGE)?;
    world.withdraw_any();
    world.pass(Duration::from_nanos(1))?;
    let withdrawn = world.agree(CONVERGE)?;
    Ok((begun, withdrawn))
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
        let mut agrees = false;
        self.changed = true;
        loop {
            if std::mem::take(&mut self.changed) {
                agrees = fib::check(self).is_empty();
            }
            if agrees && sessions::check(self).is_empty() {
                return Ok(Duration::from_nanos(self.now - begin));
            }
            if self.now >= end {
                self.expect("fib", &fib::check(self))?;
                self.expect("sessions", &sessions::check(self))?;
            }
            self.run_a_while(begin, end, agrees)?;
        }
    }

    /// Goes on until something that matters may have changed, and a little further: the longer it
    /// takes, the less often all is compared.
    fn run_a_while(&mut self, begin: u64, end: u64, short: bool) -> Result<(), Violation> {
        while !self.changed && !short {
            if !self.step(end)? {
                self.now = end;
                return Ok(());
            }
        }
        let pause = nanos(COMPARE_EVERY).max((self.now - begin) / COMPARE_SHARE);
        let soon = end.min(self.now + pause);
        while self.step(soon)? {}
        self.now = soon;
        Ok(())
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
        self.expect("sessions", &sessions::check(self))?;
        self.expect("sent", &sent::check(self))
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

    /// All BGP daemons but one end, each in its own way.
    fn leave_one_alone(&mut self) -> Result<(), Violation> {
        let alone = self.chance.below(self.machines.len());
        for at in (0..self.machines.len()).filter(|at| *at != alone) {
            let how = self.chance.pick(&End::ALL).copied();
            self.end(at, Daemon::Bgp, how.unwrap_or(End::Killed));
        }
        self.pass(FORGOTTEN)?;
        self.expect("empty", &empty::check(self, alone))
    }

    pub(crate) fn expect(&self, oracle: &'static str, wrong: &[String]) -> Result<(), Violation> {
        match wrong {
            [] => Ok(()),
            _ if self.blind.contains(&oracle) => Ok(()),
            _ => Err(self.wrong(oracle, wrong)),
        }
    }

    fn wrong(&self, oracle: &'static str, wrong: &[String]) -> Violation {
        let shown = wrong.iter().take(8).map(|line| format!("\n  {line}"));
        let mut what = format!("{} wrong:{}", wrong.len(), shown.collect::<String>());
        for machine in &self.machines {
            let complaints = machine.felix.run.as_ref().map(Felix::complaints);
            for complaint in complaints.into_iter().flatten() {
                what.push_str(&format!("\n  {} says: {complaint}", machine.name));
            }
        }
        self.violation(oracle, what)
    }
}
