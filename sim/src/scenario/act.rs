//! Changes of the world that a scenario makes, one at a time.

use etcd_lite::Faults;
use fib_sync::memory;

use crate::agenda::{At, Daemon};
use crate::world::World;

/// One change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// Draws a fault, and schedules the next one.
    Chaos,
    /// A workload's link appears on a node.
    Plug { workload: usize, at: At },
    /// The workload's link is removed.
    Unplug { workload: usize, at: At },
    /// Writes a workload's endpoint for one node and deletes it for another.
    Record {
        workload: usize,
        put: Option<At>,
        delete: Option<At>,
    },
    /// A workload's link goes up.
    LinkUp { workload: usize, at: At },
    /// Starts a daemon.
    Start(At, Daemon),
    /// Restores the path between two machines.
    Heal(At, At),
    /// Ends a datastore fault.
    StoreWell,
    /// Ends the oldest lie of a node about a workload.
    Confess { workload: usize, liar: At },
}

/// Interval between two attempts to write to a datastore that does not answer.
const TRY_AGAIN: u64 = 1_000_000_000;

impl World {
    pub(crate) fn act(&mut self, act: Act) {
        match act {
            Act::Chaos => {
                if self.chaos {
                    self.next_misfortune();
                }
            }
            Act::Plug { workload, at } => self.plug(workload, at, true),
            Act::Unplug { workload, at } => self.plug(workload, at, false),
            Act::Record {
                workload,
                put,
                delete,
            } => {
                if !self.record(workload, put, delete) {
                    self.later(TRY_AGAIN, act);
                    if let Some(state) = self.workloads.get_mut(workload) {
                        state.busy_until = self.now + TRY_AGAIN + 1;
                    }
                }
            }
            Act::LinkUp { workload, at } => self.set_link(workload, at, true),
            Act::Start(at, daemon) => self.start(at, daemon),
            Act::Heal(one, other) => self.net.cut(one, other, false),
            Act::Confess { workload, liar } => self.confess(workload, liar),
            Act::StoreWell => {
                self.store.core.set_faults(Faults::default());
                self.stir_store();
            }
        }
    }

    fn plug(&mut self, workload: usize, at: At, plug: bool) {
        self.change_link(workload, at, |kernel, name, index| match (index, plug) {
            (None, true) => drop(kernel.add_link(name)),
            (Some(index), false) => kernel.remove_link(index),
            _ => {}
        });
    }

    /// Sets a workload's link down or up.
    pub(crate) fn set_link(&mut self, workload: usize, at: At, up: bool) {
        self.change_link(workload, at, |kernel, _, index| {
            if let Some(index) = index {
                kernel.set_link_up(index, up);
            }
        });
    }

    /// Changes a workload's link by its name and, if it exists, its index.
    fn change_link(
        &mut self,
        workload: usize,
        at: At,
        change: impl FnOnce(&mut memory::Kernel, &str, Option<u32>),
    ) {
        let workload = self.workloads.get(workload);
        let node = self.machines.get(at).and_then(|m| m.node.as_ref());
        let Some((workload, node)) = workload.zip(node) else {
            return;
        };
        let (name, mut kernel) = (workload.plan.host_link(), node.kernel.borrow_mut());
        let index = kernel.link(&name).map(|link| link.index);
        change(&mut kernel, &name, index);
        drop(kernel);
        self.changed = true;
        self.stir(at);
    }

    /// Enables the faults of the options.
    pub(crate) fn begin_chaos(&mut self) {
        self.chaos = true;
        self.net.weather = self.options.weather;
        let (kernel, host) = (self.options.kernel_faults, self.options.host_faults);
        self.set_faults(memory::Faults::all(kernel), host);
        self.later(0, Act::Chaos);
    }

    /// Ends all faults, and starts all daemons.
    pub(crate) fn begin_calm(&mut self) {
        self.chaos = false;
        self.confess_all();
        self.net.weather = crate::net::Weather::default();
        self.net.heal();
        self.set_faults(memory::Faults::default(), 0);
        self.store.core.set_faults(Faults::default());
        self.mend_policies();
        self.stir_store();
        for workload in 0..self.workloads.len() {
            if let Some(at) = self.workloads.get(workload).and_then(|w| w.place) {
                self.set_link(workload, at, true);
            }
        }
        self.log.line(self.now, "calm begins".to_owned());
        self.start_all();
    }

    fn set_faults(&mut self, kernel: memory::Faults, host: u64) {
        for node in self
            .machines
            .iter_mut()
            .filter_map(|machine| machine.node.as_mut())
        {
            node.kernel.borrow_mut().set_faults(kernel);
            node.host.fails = host;
        }
    }
}
