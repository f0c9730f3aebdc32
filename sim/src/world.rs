//! The world: machines, the network between them, and the agenda of future events.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use calico_store::Revision;
use fib_sync::{Event as KernelEvent, Route, RouteKey};
use ipnet::IpNet;
use netns_lab::fabric::Plan;

use crate::agenda::{Agenda, At, Daemon, Event};
use crate::bgp::ephemeral;
use crate::chance::Chance;
use crate::limits::{COMMITS_PER_AUDIT, COMMITS_PER_SAMPLE, EVENTS_MAX, TURN_GAP};
use crate::log::{Log, Violation};
use crate::machine::Machine;
use crate::net::{Net, Sky};
use crate::options::Options;
use crate::oracle;
use crate::plants::{
    EventPlant, FibWrap, PathPlant, Plants, RouteEventPlant, SpeakerPlant, UpdatePlant,
};
use crate::policies::Policies;
use crate::store::Store;
use crate::table::Table;
use crate::time::nanos;

/// A fabric under simulation.
pub struct World {
    pub(crate) now: u64,
    pub(crate) seed: u64,
    pub(crate) plan: Plan,
    pub(crate) machines: Vec<Machine>,
    pub(crate) store: Store,
    /// The network between all of them.
    pub net: Net,
    pub(crate) agenda: Agenda,
    pub(crate) chance: Chance,
    pub(crate) log: Log,
    /// Foreign routes in each node's kernel.
    pub(crate) foreign: Vec<BTreeMap<RouteKey, Route>>,
    pub(crate) wrap: Option<FibWrap>,
    pub(crate) plant: Option<SpeakerPlant>,
    pub(crate) event_plant: Option<EventPlant>,
    pub(crate) route_event_plant: Option<RouteEventPlant>,
    pub(crate) update_plant: Option<UpdatePlant>,
    pub(crate) path_plant: Option<PathPlant>,
    pub(crate) bfd_forgets: bool,
    pub(crate) bfd_ends_with_client: bool,
    /// Dead machines, with the instant after which no kernel may have a route through them.
    pub(crate) dead: BTreeMap<At, u64>,
    /// The machine that has just returned, and the instant until which only its own sessions of BFD show that
    /// a host is dead: then its reflectors and other neighbors have sent their routes.
    pub(crate) returned: Option<(At, u64)>,
    /// The learned routes of each machine that must stay: their destinations and gateways.
    pub(crate) kept: BTreeMap<At, Vec<(IpNet, IpAddr)>>,
    pub(crate) blind: &'static [&'static str],
    /// Whether a kernel, a link or the datastore has changed since the last comparison.
    pub(crate) changed: bool,
    /// The violation found by an oracle that checks continuously.
    pub(crate) found: Option<(&'static str, String)>,
    /// Whether the chaos phase is active.
    pub(crate) chaos: bool,
    pub(crate) options: Options,
    /// Packets that arrived.
    pub(crate) arrived: u64,
    /// The present lies.
    pub(crate) lies: Vec<crate::scenario::Lie>,
    /// The state of each workload in the scenario.
    pub(crate) workloads: Vec<crate::scenario::Workload>,
    /// The policies of the scenario.
    pub(crate) policies: Policies,
    /// The packet filters that were equal to the policies of a revision, by machine.
    pub(crate) audited: RefCell<BTreeMap<At, (Table, Revision)>>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("seed", &self.seed)
            .field("now", &self.now)
            .field("machines", &self.machines.len())
            .finish_non_exhaustive()
    }
}

/// A reason why a world cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The size is not supported.
    #[error(transparent)]
    Shape(#[from] netns_lab::fabric::ShapeError),
    /// A daemon rejects its configuration.
    #[error("{0}")]
    Config(#[from] bgp_config::Report),
}

/// The parts of a world that a daemon's turn uses.
pub(crate) struct Cx<'w> {
    pub(crate) now: u64,
    pub(crate) net: &'w mut Net,
    pub(crate) agenda: &'w mut Agenda,
    pub(crate) chance: &'w mut Chance,
    pub(crate) log: &'w mut Log,
    pub(crate) plan: &'w Plan,
    pub(crate) wakes: Vec<(At, Daemon)>,
    pub(crate) changed: bool,
}

impl Cx<'_> {
    /// Returns the network, and the parts that it needs.
    pub(crate) fn sky(&mut self) -> (&mut Net, Sky<'_>) {
        let sky = Sky {
            now: self.now,
            agenda: self.agenda,
            chance: self.chance,
        };
        (self.net, sky)
    }

    /// Schedules a turn of a daemon soon.
    pub(crate) fn wake(&mut self, at: At, daemon: Daemon) {
        self.wakes.push((at, daemon));
    }

    /// Records an event of a kernel.
    pub(crate) fn saw_kernel(&mut self, event: &KernelEvent) {
        if let KernelEvent::Applied(key, result) = event {
            self.changed = true;
            self.log.note(self.now, (key, result.is_ok()));
        }
    }

    /// Adds a line to the trace.
    pub(crate) fn trace(&mut self, at: At, what: &str) {
        let name = self.net.names.get(at).cloned().unwrap_or_default();
        self.log.line(self.now, format!("{name}: {what}"));
    }

    /// Returns the machine of an address.
    pub(crate) fn machine_of(&self, address: IpAddr) -> Option<At> {
        let machines = self.plan.nodes.iter().chain(&self.plan.reflectors);
        let of = |m: &netns_lab::fabric::MachinePlan| {
            IpAddr::V4(m.v4) == address || IpAddr::V6(m.v6) == address
        };
        machines.enumerate().find(|(_, m)| of(m)).map(|(at, _)| at)
    }

    /// Returns the IPv4 address of a machine.
    pub(crate) fn address(&self, at: At) -> IpAddr {
        let mut machines = self.plan.nodes.iter().chain(&self.plan.reflectors);
        machines
            .nth(at)
            .map_or_else(|| IpAddr::from([0; 4]), |m| m.v4.into())
    }
}

/// Borrows the parts of a world except its machines, for a daemon's turn.
macro_rules! cx {
    ($world:expr) => {
        Cx {
            now: $world.now,
            net: &mut $world.net,
            agenda: &mut $world.agenda,
            chance: &mut $world.chance,
            log: &mut $world.log,
            plan: &$world.plan,
            wakes: Vec::new(),
            changed: false,
        }
    };
}

impl World {
    /// Makes a world in which nothing runs yet.
    ///
    /// # Errors
    /// The size is not supported, or a daemon rejects its configuration.
    pub fn new(seed: u64, options: Options, plants: Plants) -> Result<Self, SetupError> {
        let mut chance = Chance::new(seed);
        let plan = options.plan()?;
        let mut machines = crate::machine::all(&plan, &options, &mut chance)?;
        for machine in &mut machines {
            if let Some(plant) = plants.config {
                plant(&machine.name, &mut machine.speaker);
            }
            if let Some(node) = &mut machine.node {
                node.host.is_abrupt = options.has_policies();
                node.host.filter.comparison = plants.comparison;
                let plant = plants.rules.clone();
                node.host.plant = plant.map(|plant| (machine.name.clone(), plant));
            }
        }
        let mut net = Net::default();
        net.tap = plants.wire;
        net.names = machines
            .iter()
            .map(|machine| machine.name.clone())
            .collect();
        net.names.push("store".to_owned());
        Ok(Self {
            now: 0,
            seed,
            store: Store::new(machines.len()),
            net,
            agenda: Agenda::new(chance.fork()),
            log: Log::default(),
            foreign: vec![BTreeMap::new(); plan.nodes.len()],
            wrap: plants.fib,
            plant: plants.speaker,
            event_plant: plants.event,
            route_event_plant: plants.route_event,
            update_plant: plants.update,
            path_plant: plants.path,
            bfd_forgets: plants.bfd_forgets,
            bfd_ends_with_client: plants.bfd_ends_with_client,
            dead: BTreeMap::new(),
            returned: None,
            kept: BTreeMap::new(),
            blind: plants.blind,
            changed: true,
            found: None,
            chaos: false,
            arrived: 0,
            lies: Vec::new(),
            workloads: Vec::new(),
            policies: Policies::new(seed),
            audited: RefCell::default(),
            plan,
            machines,
            chance,
            options,
        })
    }

    /// Returns the virtual time.
    #[must_use]
    pub const fn now(&self) -> Duration {
        Duration::from_nanos(self.now)
    }

    /// Returns the hash of all events, which differs if any event differs.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.log.hash()
    }

    /// Returns the number of events so far.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.log.events()
    }

    /// Lets a duration pass.
    ///
    /// # Errors
    /// An oracle that checks continuously reports a violation.
    pub fn pass(&mut self, time: Duration) -> Result<(), Violation> {
        let end = self.now + nanos(time);
        while self.step(end)? {}
        self.now = end;
        Ok(())
    }

    /// Processes the next event, if there is one by `end`.
    pub(crate) fn step(&mut self, end: u64) -> Result<bool, Violation> {
        let Some((at, event)) = self.agenda.pop(end) else {
            return Ok(false);
        };
        self.now = self.now.max(at);
        self.happen(event);
        if self.log.events() > EVENTS_MAX {
            return Err(self.violation("rest", "something goes round in circles".to_owned()));
        }
        match self.found.take() {
            Some((oracle, what)) => Err(self.violation(oracle, what)),
            None => Ok(true),
        }
    }

    /// Returns a violation that an oracle has found, with its circumstances.
    #[must_use]
    pub fn violation(&self, oracle: &'static str, what: String) -> Violation {
        Violation {
            seed: self.seed,
            nodes: self.options.nodes,
            at: self.now,
            oracle,
            what,
            trace: self.log.trace(),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn(at, daemon) => self.turn(at, daemon),
            Event::Dial {
                from,
                to,
                peer,
                token,
            } => self.dial(from, to, peer, token),
            Event::Dialed {
                from,
                peer,
                token,
                stream,
            } => self.dialed(from, peer, token, stream),
            Event::Arrive { stream, side } => {
                let mut sky = Sky {
                    now: self.now,
                    agenda: &mut self.agenda,
                    chance: &mut self.chance,
                };
                if let Some(at) = self.net.arrive(&mut sky, stream, side) {
                    self.wake(at, Daemon::Bgp);
                }
            }
            Event::Ask(question) => {
                if !self.net.is_cut(question.at, self.store.place) {
                    let answer = self.store.ask(question);
                    self.answer(answer);
                    self.stir_store();
                }
            }
            Event::Answer(answer) => self.answered(answer),
            Event::Watch { at, feed, token } => self.watch(at, feed, token),
            Event::Packet(packet) => self.packet(packet),
            Event::Act(act) => self.act(act),
        }
    }

    fn turn(&mut self, at: At, daemon: Daemon) {
        let Some(machine) = self.machines.get_mut(at) else {
            return;
        };
        let mut cx = cx!(self);
        let timeout = match daemon {
            Daemon::Bgp if machine.bgp.is_due(self.now) => {
                let (bgp, monitor) = (&mut machine.bgp.run, &mut machine.bfd);
                bgp.as_mut().and_then(|bgp| {
                    bgp.turn(&mut cx, monitor);
                    bgp.timeout(self.now)
                })
            }
            Daemon::Felix if machine.felix.is_due(self.now) => {
                let (felix, node) = (&mut machine.felix.run, &mut machine.node);
                felix.as_mut().zip(node.as_mut()).and_then(|(felix, node)| {
                    felix.turn(&mut cx, &mut node.host);
                    felix.timeout(self.now, &node.host)
                })
            }
            Daemon::Bfd if machine.bfd.slot.is_due(self.now) => machine.bfd.turn(&mut cx),
            _ => return,
        };
        cx.log.note(self.now, (at, daemon));
        let (wakes, changed) = (std::mem::take(&mut cx.wakes), cx.changed);
        self.after(at, wakes, changed);
        if daemon == Daemon::Felix {
            self.committed(at);
        }
        if self.options.probes {
            self.probe();
        }
        if let Some(timeout) = timeout {
            self.wake_at(at, daemon, timeout.max(self.now + nanos(TURN_GAP)));
        }
    }

    /// Checks the packet filter of a node, if it was written.
    pub(crate) fn committed(&mut self, at: At) {
        let node = self.machines.get_mut(at).and_then(|m| m.node.as_mut());
        let Some(node) = node.filter(|_| self.options.has_policies()) else {
            return;
        };
        let has_committed = node.host.take_commit();
        let writes = node.host.filter.writes;
        if let Some(rejected) = node.host.filter.rejected.take()
            && !self.blind.contains(&"kernel")
        {
            let wrong = format!("{}: the kernel rejects {rejected}", self.net.name(at));
            self.found.get_or_insert(("kernel", wrong));
        }
        if !has_committed {
            return;
        }
        self.log.note(self.now, (at, writes));
        let drawn = self.policies.chance.next();
        if drawn.is_multiple_of(COMMITS_PER_SAMPLE)
            && let Some(wrong) = oracle::closed::check(self, at)
            && !self.blind.contains(&"closed")
        {
            self.found.get_or_insert(("closed", wrong));
        }
        if drawn.is_multiple_of(COMMITS_PER_AUDIT)
            && let Some(wrong) = oracle::rules::check_commit(self, at)
            && !self.blind.contains(&"rules")
        {
            self.found.get_or_insert(("rules", wrong));
        }
    }

    /// Handles the consequences of a turn.
    fn after(&mut self, at: At, wakes: Vec<(At, Daemon)>, changed: bool) {
        for (at, daemon) in wakes {
            self.wake(at, daemon);
        }
        if changed {
            self.changed = true;
            if let Some(wrong) = oracle::foreign::check(self, at) {
                self.found.get_or_insert(("foreign", wrong));
            }
            for oracle in ["dead", "kept"] {
                let wrong = match oracle {
                    "dead" => oracle::dead::check(self, at),
                    _ => oracle::kept::check(self, at),
                };
                if let Some(wrong) = wrong.filter(|_| !self.blind.contains(&oracle)) {
                    self.found.get_or_insert((oracle, wrong));
                }
            }
            if let Some(wrong) = oracle::lies::check(self, at) {
                self.found.get_or_insert(("lies", wrong));
            }
            if let Some(wrong) = oracle::guarded::check(self, at) {
                self.found.get_or_insert(("guarded", wrong));
            }
        }
        self.stir(at);
    }

    /// Schedules a turn of a daemon soon.
    pub(crate) fn wake(&mut self, at: At, daemon: Daemon) {
        let soon = self.now + self.chance.within(1_000..=200_000);
        self.wake_at(at, daemon, soon);
    }

    fn wake_at(&mut self, at: At, daemon: Daemon, instant: u64) {
        let Some(machine) = self.machines.get_mut(at) else {
            return;
        };
        let due = match daemon {
            Daemon::Bgp => machine.bgp.wake(instant),
            Daemon::Felix => machine.felix.wake(instant),
            Daemon::Bfd => machine.bfd.slot.wake(instant),
        };
        if let Some(due) = due {
            self.agenda.push(due, Event::Turn(at, daemon));
        }
    }

    /// Wakes the daemons of a machine with pending kernel events.
    pub(crate) fn stir(&mut self, at: At) {
        for daemon in [Daemon::Bgp, Daemon::Felix] {
            if self
                .machines
                .get(at)
                .is_some_and(|machine| machine.has_kernel_events(daemon))
            {
                self.wake(at, daemon);
            }
        }
    }

    fn dial(&mut self, from: At, to: At, peer: bgp_speaker::rib::PeerId, token: u64) {
        if self.net.is_cut(from, to) || self.net.is_cut(to, from) {
            return; // no answer; the dialing side times out by itself
        }
        let Some(machine) = self.machines.get_mut(to) else {
            return;
        };
        let mut cx = cx!(self);
        let ends = (
            SocketAddr::new(cx.address(to), 179),
            SocketAddr::new(
                cx.address(from),
                ephemeral(u32::try_from(token).unwrap_or(0)),
            ),
        );
        let stream = machine
            .bgp
            .run
            .as_mut()
            .map(|bgp| bgp.accept(&mut cx, from, ends));
        let wakes = std::mem::take(&mut cx.wakes);
        let delay = self.now + self.net.delay(&mut self.chance);
        self.agenda.push(
            delay,
            Event::Dialed {
                from,
                peer,
                token,
                stream,
            },
        );
        self.after(to, wakes, false);
        self.wake(to, Daemon::Bgp);
    }

    fn dialed(
        &mut self,
        from: At,
        peer: bgp_speaker::rib::PeerId,
        token: u64,
        stream: Option<u32>,
    ) {
        let ours = self.net.dialed(from, peer, token);
        let Some(machine) = self.machines.get_mut(from) else {
            return;
        };
        let mut cx = cx!(self);
        match (&mut machine.bgp.run, ours) {
            (Some(bgp), true) => bgp.dialed(&mut cx, peer, stream),
            _ => {
                if let Some(stream) = stream {
                    let (net, mut sky) = cx.sky();
                    net.abandon(&mut sky, stream);
                }
            }
        }
        let wakes = std::mem::take(&mut cx.wakes);
        self.after(from, wakes, false);
        self.wake(from, Daemon::Bgp);
    }

    fn answer(&mut self, answer: Option<crate::store::Answer>) {
        if let Some(answer) = answer {
            let at = self.now + self.net.delay(&mut self.chance);
            self.agenda.push(at, Event::Answer(answer));
        }
    }

    fn answered(&mut self, answer: crate::store::Answer) {
        let at = answer.at;
        let opened = answer.opened();
        if self.net.is_cut(at, self.store.place) {
            return;
        }
        let now = Duration::from_nanos(self.now);
        let felix = self
            .machines
            .get_mut(at)
            .and_then(|machine| machine.felix.run.as_mut());
        match felix {
            Some(felix) => {
                if felix.follower.answer(now, answer) {
                    self.wake(at, Daemon::Felix);
                }
            }
            None => self.answered_reflector(at, answer),
        }
        if let Some((feed, token)) = opened {
            self.store.opened(at, feed, token);
            self.stir_store();
        }
    }

    fn answered_reflector(&mut self, at: At, answer: crate::store::Answer) {
        let now = Duration::from_nanos(self.now);
        let bgp = self.machines.get_mut(at).and_then(|m| m.bgp.run.as_mut());
        let origins = bgp.and_then(|bgp| bgp.origins.as_mut());
        if origins.is_some_and(|origins| origins.follower.answer(now, answer)) {
            self.wake(at, Daemon::Bgp);
        }
    }

    /// Schedules a check of every watch of the datastore.
    pub(crate) fn stir_store(&mut self) {
        self.store
            .stir(self.now, &self.net, &mut self.agenda, &mut self.chance);
    }

    fn watch(&mut self, at: At, feed: usize, token: u64) {
        if self.net.is_cut(at, self.store.place) {
            let again = self.now + nanos(Duration::from_secs(1));
            return self.agenda.push(again, Event::Watch { at, feed, token });
        }
        if let Some(answer) = self.store.look(at, feed, token) {
            self.answered(answer);
            self.stir_store();
        }
    }
}

pub(crate) use cx;
