//! The faults, as the seed draws them.

use calico_store::Revision;
use etcd_lite::Faults;
use std::time::Duration;

use crate::agenda::{At, Daemon};
use crate::life::End;
use crate::net::Sky;
use crate::scenario::Act;
use crate::time::nanos;
use crate::world::World;

/// Longest time that a daemon stays down.
const DOWN_MAX: Duration = Duration::from_secs(200);

/// Longest time that a restart takes.
const RESTART_MAX: Duration = Duration::from_secs(10);

/// Longest time that a path stays cut.
const CUT_MAX: Duration = Duration::from_secs(150);

/// Longest time that a daemon gets no CPU, or a workload's link stays down.
const STALL_MAX: Duration = Duration::from_secs(20);

/// Longest time between the two halves of a change to a workload.
const HALVES_MAX: Duration = Duration::from_secs(2);

impl World {
    /// Causes one fault and schedules the next one.
    pub(crate) fn next_misfortune(&mut self) {
        let pause = self.up_to(self.options.pause);
        self.later(pause, Act::Chaos);
        let options = &self.options;
        let shares: Vec<u64> = (options.churn.iter())
            .chain(&options.crashes)
            .chain(&options.cuts)
            .chain(&options.stalls)
            .chain([&options.lies])
            .chain(&options.policies)
            .copied()
            .collect();
        let all: u64 = shares.iter().sum();
        let mut drawn = self.chance.within(1..=all.max(1));
        let which = shares.iter().position(|share| {
            let here = drawn <= *share;
            drawn = drawn.saturating_sub(*share);
            here
        });
        match which {
            Some(which @ 0..=3) => self.churn(which),
            Some(which @ 4..=7) => self.crash(which - 4),
            Some(8) => self.restart_any(),
            Some(9) => self.cut_any(),
            Some(10) => self.break_any(),
            Some(11) => self.part_all(),
            Some(12) => self.stall_any(),
            Some(13) => self.overrun_any(),
            Some(14) => self.upset_store(),
            Some(15) => self.deafen_any(),
            Some(16) => self.lie_any(),
            Some(17) => self.change_policy(),
            Some(18) => self.restyle_any(),
            Some(19) => self.break_policy(),
            Some(20) => self.tamper_any(),
            _ => {}
        }
    }

    /// Returns a duration up to this, distributed evenly over its orders of magnitude.
    pub(crate) fn up_to(&mut self, most: Duration) -> u64 {
        let most = self.chance.within(1_000_000..=nanos(most).max(1_000_000));
        self.chance.within(1_000..=most)
    }

    pub(crate) fn any_node(&mut self) -> At {
        self.chance.below(self.plan.nodes.len())
    }

    pub(crate) fn any_reflector(&mut self) -> At {
        self.plan.nodes.len() + self.chance.below(self.plan.reflectors.len())
    }

    fn churn(&mut self, which: usize) {
        let halves = (self.up_to(HALVES_MAX), self.up_to(HALVES_MAX));
        let placed = self.placed();
        let some = self.chance.pick(&placed).copied();
        match (which, some) {
            (0, _) => {
                let free = |(_, w): &(usize, &crate::scenario::Workload)| {
                    w.place.is_none() && w.busy_until <= self.now
                };
                let free = self.workloads.iter().enumerate().filter(free);
                let free: Vec<usize> = free.map(|(number, _)| number).collect();
                let to = self.any_node();
                if let Some(workload) = self.chance.pick(&free).copied() {
                    self.place(workload, to, halves);
                }
            }
            (1, Some(workload)) => drop(self.remove(workload, halves)),
            (2, Some(workload)) => {
                let to = self.any_node();
                self.place(workload, to, halves);
            }
            (3, Some(workload)) => {
                if let Some(at) = self.workloads.get(workload).and_then(|w| w.place) {
                    self.set_link(workload, at, false);
                    let later = self.up_to(STALL_MAX);
                    self.later(later, Act::LinkUp { workload, at });
                }
            }
            _ => {}
        }
    }

    fn crash(&mut self, which: usize) {
        let (at, daemon) = match which {
            0 => (self.any_node(), Daemon::Bgp),
            1 => (self.any_node(), Daemon::Felix),
            2 => (self.any_reflector(), Daemon::Bgp),
            _ => {
                let at = self.any_node();
                self.reboot(at);
                for daemon in [Daemon::Bgp, Daemon::Felix] {
                    let later = self.up_to(STALL_MAX);
                    self.later(later, Act::Start(at, daemon));
                }
                return;
            }
        };
        let how = self.chance.pick(&End::ALL).copied();
        let how = how.unwrap_or(End::Killed);
        self.end(at, daemon, how);
        let later = self.up_to(DOWN_MAX);
        self.later(later, Act::Start(at, daemon));
    }

    /// Restarts a BGP daemon, mostly before its neighbors remove its routes.
    fn restart_any(&mut self) {
        let at = self.chance.below(self.machines.len());
        let ends = [End::Restarts, End::Killed];
        let how = self.chance.pick(&ends).copied();
        self.end(at, Daemon::Bgp, how.unwrap_or(End::Killed));
        let later = self.up_to(RESTART_MAX);
        self.later(later, Act::Start(at, Daemon::Bgp));
    }

    /// Cuts several machines off from all others, and restores all paths at one instant.
    fn part_all(&mut self) {
        let machines = self.machines.len() + 1;
        let (some, others): (Vec<At>, Vec<At>) =
            (0..machines).partition(|_| self.chance.strikes(500));
        let later = self.up_to(CUT_MAX);
        for one in &some {
            for other in &others {
                self.net.cut(*one, *other, true);
                self.later(later, Act::Heal(*one, *other));
            }
        }
        let names: Vec<&str> = some.iter().map(|at| self.net.name(*at)).collect();
        let line = format!("cut off from all others: {}", names.join(" "));
        self.log.line(self.now, line);
    }

    /// Cuts the path between two machines, or all paths of one. The datastore counts as a machine.
    fn cut_any(&mut self) {
        let machines = self.machines.len() + 1;
        let one = self.chance.below(machines);
        let whole = self.chance.strikes(300);
        let other = (one + 1 + self.chance.below(machines - 1)) % machines;
        let later = self.up_to(CUT_MAX);
        for at in 0..machines {
            if at != one && (whole || at == other) {
                self.net.cut(one, at, true);
                self.later(later, Act::Heal(one, at));
            }
        }
        let with = if whole {
            "everybody".to_owned()
        } else {
            self.net.name(other).to_owned()
        };
        self.trace(one, &format!("is cut off from {with}"));
    }

    fn break_any(&mut self) {
        let mut sky = Sky {
            now: self.now,
            agenda: &mut self.agenda,
            chance: &mut self.chance,
        };
        if let Some((one, other)) = self.net.break_one(&mut sky) {
            let with = self.net.name(other).to_owned();
            self.trace(one, &format!("a stream with {with} is reset"));
        }
    }

    fn stall_any(&mut self) {
        let at = self.chance.below(self.machines.len());
        let daemon = *self
            .chance
            .pick(&[Daemon::Bgp, Daemon::Felix])
            .unwrap_or(&Daemon::Bgp);
        let length = self.up_to(STALL_MAX);
        self.stall(at, daemon, length);
    }

    fn deafen_any(&mut self) {
        let at = self.chance.below(self.machines.len());
        let length = self.up_to(STALL_MAX);
        self.deafen(at, length);
    }

    fn overrun_any(&mut self) {
        let at = self.any_node();
        let Some(machine) = self.machines.get(at) else {
            return;
        };
        let Some(node) = &machine.node else { return };
        let bgp = machine
            .bgp
            .run
            .as_ref()
            .and_then(|bgp| bgp.kernel.as_ref())
            .map(|k| k.attachment);
        let felix = machine.felix.run.as_ref().map(|felix| felix.attachment);
        for attachment in [bgp, felix].into_iter().flatten() {
            node.kernel.borrow_mut().overrun(attachment);
        }
        self.trace(at, "kernel notifications are lost");
        self.stir(at);
    }

    fn upset_store(&mut self) {
        let core = &mut self.store.core;
        let mut faults = Faults::default();
        let what = match self.chance.below(5) {
            0 => {
                faults.unavailable = true;
                "does not answer"
            }
            1 => {
                faults.stale_by = 3;
                "answers from the past"
            }
            2 => {
                faults.watches_silent = true;
                "watches are silent"
            }
            3 => {
                core.lose_watches();
                "watches are lost"
            }
            _ => {
                let now: Revision = core.header().revision;
                let _ = core.compact(now);
                "is compacted"
            }
        };
        core.set_faults(faults);
        let later = self.up_to(STALL_MAX);
        self.later(later, Act::StoreWell);
        let place = self.store.place;
        self.trace(place, what);
        self.stir_store();
    }
}
