//! Moves and evictions of workloads, and starts of daemons, under packets to all workloads.

use std::time::Duration;

use crate::agenda::{At, Daemon};
use crate::life::End;
use crate::limits::CONVERGE;
use crate::options::Options;
use crate::plants::Plants;
use crate::scenario::{Act, Failure};
use crate::time::nanos;
use crate::world::World;

/// The longest time between two changes.
const PAUSE: Duration = Duration::from_millis(300);
/// The longest time between the two parts of a change: the link and the endpoint.
const APART: Duration = Duration::from_millis(300);
/// How long a workload that has left still receives packets.
const LEAVING: Duration = Duration::from_millis(500);
/// The longest time for which a daemon does not run.
const DOWN: Duration = Duration::from_secs(2);
/// How long after the start of Felix its node gets and loses no workload.
const STARTED: Duration = Duration::from_secs(1);
/// How long a removed workload is away at least.
const AWAY: Duration = Duration::from_secs(1);

/// The numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handovers {
    /// Moves of workloads to another node.
    pub moves: u64,
    /// Removed workloads.
    pub evictions: u64,
    /// Starts of daemons.
    pub starts: u64,
    /// Packets that arrived.
    pub packets: u64,
}

/// Runs so many moves and evictions, and starts of daemons among them, with packets after each turn of a
/// daemon.
///
/// # Errors
/// A packet to a ready node is lost.
pub fn handovers(
    seed: u64,
    options: &Options,
    plants: Plants,
    (changes, starts): (u64, u64),
) -> Result<Handovers, Failure> {
    let options = Options {
        probes: true,
        ..options.clone()
    };
    let mut world = World::new(seed, options, plants)?;
    world.populate();
    // The daemons of each node start in any order.
    for at in 0..world.machines.len() {
        for daemon in [Daemon::Bgp, Daemon::Felix] {
            let after = world.chance.within(0..=nanos(DOWN));
            world.later(after, Act::Start(at, daemon));
        }
    }
    world.pass(DOWN)?;
    world.agree(CONVERGE)?;
    let mut run = Handovers::default();
    let mut closed_until = vec![0; world.plan.nodes.len()];
    while run.moves + run.evictions < changes || run.starts < starts {
        let pause = world.chance.within(0..=nanos(PAUSE));
        world.pass(Duration::from_nanos(pause))?;
        let left = changes.saturating_sub(run.moves + run.evictions);
        let wants_start = starts.saturating_sub(run.starts);
        let drawn = world.chance.within(1..=(left + wants_start).max(1));
        match drawn > left {
            true => {
                if let Some(down) = world.restart_one(&closed_until) {
                    run.starts += 1;
                    let (at, until) = down;
                    if let Some(closed) = closed_until.get_mut(at) {
                        *closed = until;
                    }
                }
            }
            false => world.hand_over(&closed_until, &mut run),
        }
    }
    world.pass(LEAVING + AWAY)?;
    world.agree(CONVERGE)?;
    world.all_right()?;
    run.packets = world.arrived;
    Ok(run)
}

impl World {
    fn is_open(&self, closed_until: &[u64], at: At) -> bool {
        closed_until.get(at).is_some_and(|until| *until <= self.now)
    }

    /// Ends a daemon of a node, and starts it later. Returns the node, and until when it gets no workload.
    fn restart_one(&mut self, closed_until: &[u64]) -> Option<(At, u64)> {
        let at = self.chance.below(self.plan.nodes.len());
        if !self.is_open(closed_until, at) {
            return None;
        }
        // Workloads that are changing finish first.
        let is_busy = |world: &Self| {
            let mut all = world.workloads.iter();
            all.any(|one| one.busy_until > world.now)
        };
        if is_busy(self) {
            return None;
        }
        let daemon = *self.chance.pick(&[Daemon::Bgp, Daemon::Felix])?;
        let how = *self.chance.pick(&[End::Killed, End::Restarts])?;
        self.end(at, daemon, how);
        let down = self.chance.within(0..=nanos(DOWN));
        self.later(down, Act::Start(at, daemon));
        Some((at, self.now + down + nanos(STARTED)))
    }

    /// Moves, removes or adds a workload.
    fn hand_over(&mut self, closed_until: &[u64], run: &mut Handovers) {
        let workload = self.chance.below(self.workloads.len());
        let to = self.chance.below(self.plan.nodes.len());
        let Some(state) = self.workloads.get(workload) else {
            return;
        };
        let (from, is_busy) = (state.place, state.busy_until > self.now);
        let is_from_open = from.is_none_or(|from| self.is_open(closed_until, from));
        if is_busy || from == Some(to) || !is_from_open || !self.is_open(closed_until, to) {
            return;
        }
        let apart = self.chance.within(0..=nanos(APART));
        let is_eviction = from.is_some() && self.chance.strikes(300);
        let Some(state) = self.workloads.get_mut(workload) else {
            return;
        };
        state.place = (!is_eviction).then_some(to);
        state.busy_until = self.now + apart + nanos(LEAVING + AWAY);
        if !is_eviction {
            state.had_by.insert(to);
            self.later(0, Act::Plug { workload, at: to });
        }
        self.later(
            apart,
            Act::Record {
                workload,
                put: (!is_eviction).then_some(to),
                delete: from,
            },
        );
        if let Some(from) = from {
            let leaves = apart + nanos(LEAVING);
            self.later(leaves, Act::Unplug { workload, at: from });
            match is_eviction {
                true => run.evictions += 1,
                false => run.moves += 1,
            }
        }
    }

    /// Sends packets to the workloads that have changed lately.
    pub(crate) fn probe(&mut self) {
        let all = self.workloads.iter().enumerate();
        let now = self.now;
        let changing = all.filter(|(_, one)| one.busy_until >= now);
        let changing: Vec<usize> = changing.map(|(number, _)| number).collect();
        let (arrived, lost) = crate::oracle::arrival::check(self, &changing);
        self.arrived += arrived;
        if let Some(first) = lost.into_iter().next() {
            self.found.get_or_insert(("arrival", first));
        }
    }
}
