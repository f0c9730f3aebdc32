//! A run: a chaos phase in which only safety is checked, then a calm phase without faults in which
//! the whole state must become correct.

mod act;
mod chaos;
mod draw;
mod handover;
mod liar;
mod policy;
mod trouble;
mod workload;

use std::time::Duration;

use crate::agenda::Daemon;
use crate::felix::Felix;
use crate::life::End;
use crate::limits::{
    ADDED, COMPARE_EVERY, COMPARE_SHARE, CONVERGE, FORGOTTEN, IDLE, SETTLE, WITHDRAWN,
};
use crate::log::Violation;
use crate::options::Options;
use crate::oracle::{
    empty, events, fib, forwarding, idle::Writes, rules, sent, sessions, withdrawn,
};
use crate::plants::Plants;
use crate::time::nanos;
use crate::world::{SetupError, World};

pub(crate) use act::Act;
pub(crate) use draw::is_broken;
pub use handover::{Handovers, handovers};
pub(crate) use policy::stored;
pub use trouble::{Trouble, troubled};
pub(crate) use workload::Lie;
pub use workload::Workload;

/// Endpoints that are withdrawn, and moved, at the end of the calm.
const LAST_CHANGES: usize = 2;

/// A reason why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An oracle reports a violation.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// The world cannot be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// The result of a successful run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The hash of all events, which differs if any event differs.
    pub hash: u64,
    /// The number of events.
    pub events: u64,
    /// The time from the beginning of the calm until every kernel agreed with the datastore.
    pub converged: Duration,
    /// The total virtual time.
    pub took: Duration,
}

/// Runs one seed.
///
/// # Errors
/// An oracle reports a violation.
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

/// Starts a whole fabric at once in the network conditions of its options. Returns how long until
/// every kernel agrees with the datastore, and then until a withdrawn endpoint is removed from
/// every kernel.
///
/// # Errors
/// One of these does not happen in time.
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
    /// Lets time pass until every kernel agrees with the datastore and every session is
    /// established; returns how long that took.
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

    /// Runs until the state may have changed, and a little further: the longer it takes, the less
    /// often everything is compared.
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

    /// Lets remaining timers expire; then the state must be correct, and stay so without a write.
    fn come_to_rest(&mut self) -> Result<(), Violation> {
        self.pass(SETTLE)?;
        self.all_right()?;
        let before = Writes::of(self);
        self.pass(IDLE)?;
        self.expect("idle", &before.since(&Writes::of(self)))?;
        self.all_right()
    }

    /// Checks the conditions of a stable state.
    pub(crate) fn all_right(&self) -> Result<(), Violation> {
        self.expect("fib", &fib::check(self))?;
        self.expect("forwarding", &forwarding::check(self))?;
        self.expect("sessions", &sessions::check(self))?;
        self.expect("events", &events::check(self))?;
        self.expect("rules", &rules::check(self))?;
        self.expect("sent", &sent::check(self))
    }

    /// Checks that changes during calm reach every kernel within the limits.
    fn last_changes(&mut self) -> Result<(), Violation> {
        for _ in 0..LAST_CHANGES {
            let nets = self.withdraw_any();
            self.pass(WITHDRAWN)?;
            self.expect("withdrawn", &withdrawn::check(self, &nets))?;
            self.move_any();
            if self.options.has_policies() {
                self.change_policy();
                self.restyle_any();
            }
            self.pass(ADDED)?;
            self.all_right()?;
        }
        Ok(())
    }

    /// Ends all BGP daemons except one, each in its own way.
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
                what.push_str(&format!("\n  {} reports: {complaint}", machine.name));
            }
        }
        self.violation(oracle, what)
    }
}
