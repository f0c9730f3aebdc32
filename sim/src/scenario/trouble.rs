//! Troubles of a fabric with BFD, one after the other: each begins in a stable state, and names the routes
//! that must stay and those that must be removed.

use std::time::Duration;

use crate::agenda::{At, Daemon};
use crate::life::End;
use crate::limits::{BFD_AWAY, CONVERGE, MONITORED, OBSERVED, RECOVERED, REMOVED};
use crate::log::Violation;
use crate::options::Options;
use crate::oracle::{dead, fib, kept};
use crate::plants::Plants;
use crate::scenario::{Failure, Outcome};
use crate::time::nanos;
use crate::world::World;

/// A trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// A host is cut off or loses power, silently.
    Death,
    /// The BGP daemon of a host is killed, and the host dies within a second.
    DeathWithoutBgp,
    /// A host dies while the BGP daemon of another machine is away.
    DeathUnseen,
    /// Several hosts lose power at one instant, and one of several reflectors with them.
    Rack,
    /// All reflectors die at one instant.
    Reflectors,
    /// The BGP daemon of a machine is killed, or restarts.
    Restart,
    /// The process of BFD of a machine is killed, and its keeper starts the next one.
    BfdKilled,
    /// The process of BFD of a machine is killed, and its state is lost.
    BfdLost,
    /// The process of BFD of a machine ends for good.
    BfdStopped,
    /// Both processes of a machine are killed at one instant.
    BothKilled,
    /// Packets from one machine to a neighbor are lost, and not those of the other direction.
    OneWay,
    /// A host receives nothing, or sends nothing.
    HalfDead,
    /// A path loses a third of its packets.
    Lossy,
    /// A path is cut and restored repeatedly.
    Flapping,
}

impl Trouble {
    /// All troubles.
    pub const ALL: [Self; 14] = [
        Self::Death,
        Self::DeathWithoutBgp,
        Self::DeathUnseen,
        Self::Rack,
        Self::Reflectors,
        Self::Restart,
        Self::BfdKilled,
        Self::BfdLost,
        Self::BfdStopped,
        Self::BothKilled,
        Self::OneWay,
        Self::HalfDead,
        Self::Lossy,
        Self::Flapping,
    ];
}

/// Longest time for which a BGP daemon is away.
const AWAY_MAX: Duration = Duration::from_secs(10);

/// When the routes of a host that has died while a BGP daemon was away are removed, after its return.
const RETURNED: Duration = Duration::from_secs(1);

/// The same if no session of BFD shows it: when the neighbors have sent their routes.
const RETURNED_INDIRECT: Duration = Duration::from_secs(30);

/// Losses of a lossy path, in thousandths.
const LOSSES: u64 = 333;

/// How often a flapping path is cut, and for how long at most.
const FLAPS: u64 = 10;
const FLAP_MAX: Duration = Duration::from_secs(3);

/// Runs troubles of one seed in this order.
///
/// # Errors
/// An oracle reports a violation.
pub fn troubled(
    seed: u64,
    options: Options,
    plants: Plants,
    troubles: &[Trouble],
) -> Result<Outcome, Failure> {
    let mut world = World::new(seed, options, plants)?;
    world.populate();
    world.start_all();
    let converged = world.agree(CONVERGE)?;
    world.all_monitored()?;
    for trouble in troubles {
        let line = format!("trouble: {trouble:?}");
        world.log.line(world.now, line);
        world.keep_all();
        world.suffer(*trouble)?;
        world.recover()?;
    }
    Ok(Outcome {
        hash: world.hash(),
        events: world.events(),
        converged,
        took: world.now(),
    })
}

impl World {
    fn suffer(&mut self, trouble: Trouble) -> Result<(), Violation> {
        match trouble {
            Trouble::Death => {
                let host = self.any_node();
                self.die(host);
                self.observe()
            }
            Trouble::DeathWithoutBgp => {
                let host = self.any_node();
                self.end(host, Daemon::Bgp, End::Killed);
                self.pass_up_to(Duration::from_secs(1))?;
                self.die(host);
                self.observe()
            }
            Trouble::DeathUnseen => self.die_unseen(),
            Trouble::Rack => {
                let count = self
                    .chance
                    .within(1..=2)
                    .min(self.plan.nodes.len() as u64 - 2);
                for _ in 0..=count {
                    let host = self.any_node();
                    self.die(host);
                }
                if self.plan.reflectors.len() > 1 {
                    let reflector = self.any_reflector();
                    self.die(reflector);
                }
                self.observe()
            }
            Trouble::Reflectors => {
                for reflector in self.plan.nodes.len()..self.machines.len() {
                    self.die(reflector);
                }
                self.observe()
            }
            Trouble::Restart => {
                let at = self.any_machine();
                let how = self.any_restart();
                self.unnoticed(|world| {
                    world.end(at, Daemon::Bgp, how);
                    world.pass_up_to(AWAY_MAX)?;
                    world.start(at, Daemon::Bgp);
                    Ok(())
                })
            }
            Trouble::BfdKilled => {
                let at = self.any_machine();
                self.unnoticed(|world| world.kill_bfd(at))
            }
            Trouble::BothKilled => {
                let at = self.any_machine();
                let how = self.any_restart();
                self.unnoticed(|world| {
                    world.end(at, Daemon::Bgp, how);
                    world.kill_bfd(at)?;
                    world.pass_up_to(AWAY_MAX)?;
                    world.start(at, Daemon::Bgp);
                    Ok(())
                })
            }
            Trouble::BfdStopped => {
                let at = self.any_machine();
                self.unnoticed(|world| {
                    world.end(at, Daemon::Bfd, End::Leaves);
                    let ends_at = world.machines.get(at).map(|machine| machine.bfd.ends_at);
                    let time = ends_at.unwrap_or_default().saturating_sub(world.now);
                    world.pass(Duration::from_nanos(time))?;
                    world.pass_up_to(AWAY_MAX)?;
                    world.start(at, Daemon::Bfd);
                    Ok(())
                })
            }
            Trouble::BfdLost => {
                // Its neighbors cannot distinguish it from a dead host.
                let at = self.any_machine();
                self.except(at);
                self.end(at, Daemon::Bfd, End::Silent);
                self.pass_up_to(AWAY_MAX)?;
                self.start(at, Daemon::Bfd);
                self.pass(OBSERVED)
            }
            Trouble::OneWay => {
                let (one, other) = self.any_neighbors();
                self.net.cut_one_way(one, other, true);
                self.part(one, other);
                self.pass(OBSERVED)
            }
            Trouble::HalfDead => self.half_die(),
            Trouble::Lossy => {
                let (one, other) = self.any_neighbors();
                self.net.lose(one, other, LOSSES);
                self.part(one, other);
                self.pass(OBSERVED)
            }
            Trouble::Flapping => {
                let (one, other) = self.any_neighbors();
                self.part(one, other);
                for _ in 0..FLAPS {
                    for cut in [true, false] {
                        self.net.cut(one, other, cut);
                        self.pass_up_to(FLAP_MAX)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn die_unseen(&mut self) -> Result<(), Violation> {
        let host = self.any_node();
        let others = (0..self.machines.len()).filter(|at| *at != host);
        let others: Vec<At> = others.collect();
        let at = self.chance.pick(&others).copied().unwrap_or_default();
        let how = self.any_restart();
        self.end(at, Daemon::Bgp, how);
        self.pass_up_to(Duration::from_secs(1))?;
        self.die(host);
        // The machine itself cannot delete routes before its daemon is back.
        self.dead.clear();
        self.pass_up_to(AWAY_MAX)?;
        self.start(at, Daemon::Bgp);
        let died = self.now + nanos(RETURNED).max(self.detection() + nanos(REMOVED));
        self.dead.insert(host, died);
        self.returned = Some((at, self.now + nanos(RETURNED_INDIRECT)));
        self.observe()
    }

    /// A host receives nothing or sends nothing: for the others it is dead, and its own routes are of no use.
    fn half_die(&mut self) -> Result<(), Violation> {
        let host = self.any_node();
        let sends = self.chance.strikes(500);
        for other in (0..self.machines.len()).filter(|at| *at != host) {
            let (from, to) = match sends {
                true => (other, host),
                false => (host, other),
            };
            self.net.cut_one_way(from, to, true);
        }
        self.except(host);
        self.trace(host, &format!("is cut off in one direction: sends {sends}"));
        // A host that receives nothing finds the failure first, and reports it.
        let limit = self.now + self.detection() + nanos(REMOVED);
        self.dead.insert(host, limit);
        self.observe()
    }

    /// A machine dies: it is cut off from all others, and may lose its state.
    fn die(&mut self, at: At) {
        for other in (0..=self.machines.len()).filter(|other| *other != at) {
            self.net.cut(at, other, true);
        }
        if self.chance.strikes(500) {
            self.end(at, Daemon::Bfd, End::Silent);
            match at < self.plan.nodes.len() {
                true => self.reboot(at),
                false => self.end(at, Daemon::Bgp, End::Silent),
            }
        }
        self.except(at);
        self.trace(at, "dies");
        let limit = self.now + self.detection() + nanos(REMOVED);
        self.dead.insert(at, limit);
    }

    /// Lets the time of a detection pass, checks that the routes of dead hosts are removed, and that this
    /// lasts.
    fn observe(&mut self) -> Result<(), Violation> {
        let last = self.dead.values().max().copied().unwrap_or(self.now);
        self.pass(Duration::from_nanos(last.saturating_sub(self.now) + 1))?;
        self.check_paths()?;
        self.pass(OBSERVED)?;
        self.check_paths()
    }

    fn check_paths(&self) -> Result<(), Violation> {
        let all = || 0..self.machines.len();
        let late: Vec<String> = all().filter_map(|at| dead::check(self, at)).collect();
        self.expect("dead", &late)?;
        let missing: Vec<String> = all().filter_map(|at| kept::check(self, at)).collect();
        self.expect("kept", &missing)
    }

    /// Runs a trouble that no path fails of.
    fn unnoticed(
        &mut self,
        trouble: impl FnOnce(&mut Self) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let before = self.failures();
        trouble(self)?;
        self.pass(OBSERVED)?;
        self.check_paths()?;
        let failures = self.failures() - before;
        match failures {
            0 => Ok(()),
            _ => {
                let wrong = format!("{failures} paths have failed");
                self.expect("unfailed", &[wrong])
            }
        }
    }

    fn kill_bfd(&mut self, at: At) -> Result<(), Violation> {
        self.end(at, Daemon::Bfd, End::Killed);
        self.pass_up_to(BFD_AWAY)?;
        self.start(at, Daemon::Bfd);
        Ok(())
    }

    /// Ends all troubles, and waits for a stable state.
    fn recover(&mut self) -> Result<(), Violation> {
        self.dead.clear();
        self.returned = None;
        self.kept.clear();
        self.net.heal();
        self.log.line(self.now, "the trouble ends".to_owned());
        self.start_all();
        self.agree(CONVERGE)?;
        self.all_monitored()?;
        self.pass(RECOVERED)?;
        self.all_right()
    }

    /// Waits until every session of BFD is up.
    fn all_monitored(&mut self) -> Result<(), Violation> {
        let end = self.now + nanos(MONITORED);
        while self.unmonitored().is_some() && self.now < end {
            self.pass(Duration::from_millis(100))?;
        }
        match self.unmonitored() {
            None => Ok(()),
            Some(name) => Err(self.violation("sessions", format!("{name}: BFD is not up"))),
        }
    }

    fn unmonitored(&self) -> Option<&str> {
        let nodes = self.plan.nodes.len();
        let mut machines = self.machines.iter();
        let machine = machines.find(|machine| {
            let sessions = match machine.node {
                Some(_) => self.plan.sessions_of_node(),
                None => nodes + self.plan.sessions_of_reflector(),
            };
            !machine.bfd.has_up(sessions)
        })?;
        Some(&machine.name)
    }

    fn failures(&self) -> u64 {
        self.machines.iter().map(|one| one.bfd.failures).sum()
    }

    /// All routes between nodes must stay.
    fn keep_all(&mut self) {
        let owners = fib::owners(self);
        for (net, places) in &owners {
            let Some(owner) = places.keys().next().and_then(|at| self.machines.get(*at)) else {
                continue;
            };
            let gateway = owner.address(net.addr().is_ipv6());
            let others = (0..self.plan.nodes.len()).filter(|at| !places.contains_key(at));
            for at in others.collect::<Vec<_>>() {
                self.kept.entry(at).or_default().push((*net, gateway));
            }
        }
    }

    /// The routes from and to a machine may be removed.
    fn except(&mut self, at: At) {
        for other in 0..self.machines.len() {
            self.except_between(at, other);
        }
    }

    fn except_between(&mut self, one: At, other: At) {
        for (from, to) in [(one, other), (other, one)] {
            let to = self.machines.get(to);
            let addresses = to.map(|to| [to.address(false), to.address(true)]);
            if let Some(kept) = self.kept.get_mut(&from) {
                kept.retain(|(_, gateway)| addresses.is_none_or(|own| !own.contains(gateway)));
            }
        }
    }

    /// The routes between two neighbors may be removed.
    fn part(&mut self, one: At, other: At) {
        let with = self.net.name(other).to_owned();
        self.trace(one, &format!("has a bad path with {with}"));
        self.except_between(one, other);
    }

    fn pass_up_to(&mut self, most: Duration) -> Result<(), Violation> {
        let time = self.up_to(most);
        self.pass(Duration::from_nanos(time))
    }

    fn any_machine(&mut self) -> At {
        self.chance.below(self.machines.len())
    }

    fn any_restart(&mut self) -> End {
        match self.chance.strikes(500) {
            true => End::Killed,
            false => End::Restarts,
        }
    }

    /// Returns two machines with a session, in any order.
    fn any_neighbors(&mut self) -> (At, At) {
        let node = self.any_node();
        let other = match self.options.mesh {
            true => {
                (node + 1 + self.chance.below(self.plan.nodes.len() - 1)) % self.plan.nodes.len()
            }
            false => self.any_reflector(),
        };
        match self.chance.strikes(500) {
            true => (node, other),
            false => (other, node),
        }
    }
}
