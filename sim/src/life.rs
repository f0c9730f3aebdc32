//! Start, crash, shutdown and stall of daemons; reboot of nodes.

use std::collections::{BTreeMap, BTreeSet};

use bgp_daemon::ready::EndOfRibs;
use bgp_daemon::{Forwarding, restart};
use bgp_speaker::Speaker;
use bgp_speaker::bgp_fsm::Instant;
use cambric_bgp_client::Node;
use cambric_felix::agent::Agent;
use cambric_felix::store::ranges;
use fib_sync::Fib;
use fib_sync::memory::MemoryFib;

use crate::agenda::{At, Daemon};
use crate::bgp::{Bgp, Glue};
use crate::felix::Felix;
use crate::machine::boot;
use crate::origins::Origins;
use crate::paths::Paths;
use crate::reported::Reported;
use crate::reported_routes::ReportedRoutes;
use crate::split::Split;
use crate::store::Follower;
use crate::views::Received;
use crate::world::{Cx, World, cx};

/// The way in which a daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// It is killed: the system closes its sockets.
    Killed,
    /// Its machine is switched off or cut off at once: no peer receives a segment about it.
    Silent,
    /// It shuts down for good, and notifies its neighbors.
    Leaves,
    /// It shuts down for a restart: helpers receive no Cease that ends their retention.
    Restarts,
}

impl End {
    /// All ways.
    pub const ALL: [Self; 4] = [Self::Killed, Self::Silent, Self::Leaves, Self::Restarts];
}

impl World {
    /// Starts every daemon, reflectors first.
    pub fn start_all(&mut self) {
        for at in (0..self.machines.len()).rev() {
            for daemon in [Daemon::Bfd, Daemon::Bgp, Daemon::Felix] {
                self.start(at, daemon);
            }
        }
    }

    /// Returns the index of a machine: nodes first, then reflectors.
    #[must_use]
    pub fn machine(&self, name: &str) -> Option<usize> {
        self.machines
            .iter()
            .position(|machine| machine.name == name)
    }

    /// Starts a daemon unless it runs, or the machine has no daemon of this kind.
    pub fn start(&mut self, at: usize, daemon: Daemon) {
        let started = match daemon {
            Daemon::Bgp => self.start_bgp(at),
            Daemon::Felix => self.start_felix(at),
            Daemon::Bfd => self.start_bfd(at),
        };
        if started == Some(true) {
            self.trace(at, &format!("{daemon:?} starts"));
            self.wake(at, daemon);
        }
    }

    fn start_bgp(&mut self, at: At) -> Option<bool> {
        let seed = self.chance.next();
        let machine = self.machines.get_mut(at)?;
        if machine.bgp.run.is_some() {
            return Some(false);
        }
        machine.bgp.life += 1;
        let mut speaker = Speaker::new(machine.speaker.clone(), seed);
        let forwarding = match machine.node {
            Some(_) => Forwarding::Kernel,
            None => Forwarding::Others,
        };
        let former = machine.former.take();
        restart::begin(&mut speaker, former, machine.restart_wait, forwarding);
        let kernel = machine.node.as_ref().map(|node| {
            let fib = MemoryFib::new(&node.kernel);
            let attachment = fib.attachment();
            let now = Instant(self.now);
            let reported = ReportedRoutes::new(&node.kernel.borrow(), node.client.owner);
            Glue {
                reported,
                node: Node::new(now, node.client.clone(), &mut speaker),
                fib: match &self.wrap {
                    Some(wrap) => wrap(&machine.name, "bgp-client", fib),
                    None => Box::new(Split::new(
                        fib,
                        &node.kernel,
                        (node.client.owner, node.client.table),
                    )),
                },
                attachment,
            }
        });
        let is_reflector = machine.node.is_none();
        let enforces = self.options.lies > 0 && is_reflector;
        let first_token = machine.bgp.life << 32;
        let origins = enforces.then(|| Origins::enforce(at, &mut speaker, seed, first_token));
        if let Some(plant) = &self.plant {
            plant(&machine.name, &mut speaker);
        }
        speaker.start(Instant(self.now));
        machine.bgp.run = Some(Bgp {
            at,
            speaker,
            kernel,
            origins,
            paths: self.options.bfd.map(|_| Paths::new(self.path_plant)),
            partials: BTreeMap::new(),
            blocked: BTreeSet::new(),
            deaf_until: 0,
            paused: BTreeSet::new(),
            since: self.now,
            end_of_ribs: EndOfRibs::new(is_reflector),
            reported: Reported::default(),
            event_plant: self.event_plant,
            route_event_plant: self.route_event_plant,
        });
        Some(true)
    }

    fn start_bfd(&mut self, at: At) -> Option<bool> {
        self.options.bfd?;
        let seed = self.chance.next();
        let machine = self.machines.get_mut(at)?;
        if machine.bfd.slot.run.is_some() {
            return Some(false);
        }
        let address = machine.address(false);
        machine.bfd.start(self.now, at, address, seed);
        if self.bfd_ends_with_client {
            machine.bfd.end_with_client();
        }
        // The BGP daemon connects.
        self.wake(at, Daemon::Bgp);
        Some(true)
    }

    fn start_felix(&mut self, at: At) -> Option<bool> {
        let seed = self.chance.next();
        let machine = self.machines.get_mut(at)?;
        let node = machine.node.as_mut()?;
        if machine.felix.run.is_some() {
            return Some(false);
        }
        node.host.begin_run();
        machine.felix.life += 1;
        let fib = MemoryFib::new(&node.kernel);
        machine.felix.run = Some(Felix {
            agent: Agent::new(Instant(self.now), node.agent.clone()),
            follower: Follower::new(at, ranges(), seed, machine.felix.life << 32),
            attachment: fib.attachment(),
            fib: wrapped(self.wrap.as_ref(), &machine.name, "felix", fib),
            received: self.options.has_policies().then(Received::default),
            update_plant: self
                .update_plant
                .clone()
                .map(|plant| (machine.name.clone(), plant)),
        });
        Some(true)
    }

    /// Ends a daemon.
    pub fn end(&mut self, at: usize, daemon: Daemon, how: End) {
        let Some(machine) = self.machines.get_mut(at) else {
            return;
        };
        match daemon {
            Daemon::Felix => {
                if machine.felix.kill().is_none() {
                    return;
                }
                if let Some(node) = &mut machine.node {
                    if matches!(how, End::Leaves | End::Restarts) {
                        node.host.finish(self.now);
                    }
                    node.host.abandon(self.now);
                }
                self.store.forget(at);
                self.committed(at);
            }
            Daemon::Bgp => {
                let Some(mut bgp) = machine.bgp.kill() else {
                    return;
                };
                // A running daemon writes its file again with every change.
                machine.former = match how {
                    End::Killed | End::Restarts => Some(restart::remembered(&bgp.speaker)),
                    End::Leaves | End::Silent => None,
                };
                let mut cx = cx!(self);
                if matches!(how, End::Leaves | End::Restarts) {
                    bgp.leave(&mut cx, how == End::Restarts);
                }
                machine.bfd.client_ended(cx.now, how == End::Leaves);
                cx.wake(at, Daemon::Bfd);
                let (net, mut sky) = cx.sky();
                net.crash(&mut sky, at, how == End::Silent);
                let wakes = std::mem::take(&mut cx.wakes);
                if bgp.origins.is_some() {
                    self.store.forget(at);
                }
                for (at, daemon) in wakes {
                    self.wake(at, daemon);
                }
            }
            Daemon::Bfd => {
                let mut cx = cx!(self);
                match how {
                    End::Killed | End::Restarts if !self.bfd_forgets => {
                        drop(machine.bfd.slot.kill());
                    }
                    End::Killed | End::Restarts | End::Silent => {
                        drop(machine.bfd.slot.kill());
                        machine.bfd.forget();
                    }
                    End::Leaves => machine.bfd.leave(&mut cx),
                }
                // The BGP daemon notices that its connection is closed.
                self.wake(at, Daemon::Bgp);
            }
        }
        self.trace(at, &format!("{daemon:?} ends: {how:?}"));
    }

    /// Gives a daemon no CPU for so many nanoseconds.
    pub(crate) fn stall(&mut self, at: At, daemon: Daemon, length: u64) {
        let until = self.now + length;
        let Some(machine) = self.machines.get_mut(at) else {
            return;
        };
        let (due, stalled) = match daemon {
            Daemon::Bgp => (&mut machine.bgp.due, &mut machine.bgp.stalled_until),
            Daemon::Felix => (&mut machine.felix.due, &mut machine.felix.stalled_until),
            Daemon::Bfd => {
                let slot = &mut machine.bfd.slot;
                (&mut slot.due, &mut slot.stalled_until)
            }
        };
        *due = None;
        *stalled = until;
        self.trace(at, &format!("{daemon:?} stalls"));
        self.wake(at, daemon);
    }

    /// Stops a BGP daemon from reading its connections for so many nanoseconds; it still writes.
    pub(crate) fn deafen(&mut self, at: At, length: u64) {
        let until = self.now + length;
        let bgp = self.machines.get_mut(at).and_then(|m| m.bgp.run.as_mut());
        if let Some(bgp) = bgp {
            bgp.deaf_until = until;
            self.trace(at, "stops reading");
            self.wake(at, Daemon::Bgp);
        }
    }

    /// Reboots a node: its kernel has no state afterwards. The caller starts the daemons.
    pub(crate) fn reboot(&mut self, at: At) {
        self.end(at, Daemon::Bgp, End::Silent);
        self.end(at, Daemon::Felix, End::Silent);
        let Some(plan) = self.plan.nodes.get(at) else {
            return;
        };
        let kernel = boot(self.chance.next(), [plan.net_v4(), plan.net_v6()]);
        let Some(node) = self.machines.get_mut(at).and_then(|m| m.node.as_mut()) else {
            return;
        };
        *node.kernel.borrow_mut() = kernel;
        node.host.wipe();
        self.trace(at, "boots");
        self.furnish(at);
    }

    /// Adds a line to the trace.
    pub(crate) fn trace(&mut self, at: At, what: &str) {
        let name = self.net.names.get(at).cloned().unwrap_or_default();
        self.log.line(self.now, format!("{name}: {what}"));
    }
}

fn wrapped(
    wrap: Option<&crate::plants::FibWrap>,
    machine: &str,
    daemon: &str,
    fib: MemoryFib,
) -> Box<dyn Fib> {
    match wrap {
        Some(wrap) => wrap(machine, daemon, fib),
        None => Box::new(fib),
    }
}
