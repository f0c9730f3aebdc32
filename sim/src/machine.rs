//! Machines: the state that survives their daemons, and the start of daemons.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bgp_config::Source;
use bgp_speaker::rib::Role;
use bgp_speaker::{Bfd, SpeakerConfig};
use cambric_bgp_client::{KernelConfig, NexthopUse};
use cambric_felix::agent::AgentConfig;
use fib_sync::memory::Kernel;
use fib_sync::{Event, Fib, FibSummary};
use ipnet::IpNet;
use netns_lab::fabric::{MachinePlan, Plan, config};

use crate::agenda::Daemon;
use crate::bfd::Monitor;
use crate::bgp::Bgp;
use crate::chance::Chance;
use crate::felix::Felix;
use crate::host::SimHost;
use crate::limits::TURN_EVENTS;
use crate::options::Options;
use crate::world::SetupError;

/// One machine of the underlay.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
    pub(crate) speaker: SpeakerConfig,
    /// How long its speaker waits for End-of-RIB after a restart.
    pub(crate) restart_wait: Duration,
    /// The file that a BGP daemon leaves while the machine is up: its dynamic neighbors.
    pub(crate) former: Option<BTreeSet<IpAddr>>,
    /// The parts of a node; `None` for a reflector.
    pub(crate) node: Option<NodeParts>,
    pub(crate) bgp: Slot<Bgp>,
    pub(crate) felix: Slot<Felix>,
    pub(crate) bfd: Monitor,
}

/// The parts that only a node has.
pub(crate) struct NodeParts {
    pub(crate) kernel: Rc<RefCell<Kernel>>,
    pub(crate) host: SimHost,
    pub(crate) client: KernelConfig,
    pub(crate) agent: AgentConfig,
}

/// The place of a daemon on its machine.
pub(crate) struct Slot<T> {
    pub(crate) run: Option<T>,
    /// The instant of its next turn, if it is on the agenda.
    pub(crate) due: Option<u64>,
    /// It gets no CPU until then.
    pub(crate) stalled_until: u64,
    /// How often it was started.
    pub(crate) life: u64,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self {
            run: None,
            due: None,
            stalled_until: 0,
            life: 0,
        }
    }
}

impl<T> Slot<T> {
    /// Returns the instant at which its next turn must be added to the agenda, if no earlier turn
    /// is there.
    pub(crate) fn wake(&mut self, at: u64) -> Option<u64> {
        self.run.as_ref()?;
        let at = at.max(self.stalled_until);
        if self.due.is_some_and(|due| due <= at) {
            return None;
        }
        self.due = Some(at);
        Some(at)
    }

    /// Returns whether the turn on the agenda is still valid.
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        let due = self.due == Some(now) && self.run.is_some();
        if due {
            self.due = None;
        }
        due
    }

    /// Stops the program.
    pub(crate) fn kill(&mut self) -> Option<T> {
        self.due = None;
        self.stalled_until = 0;
        self.run.take()
    }
}

impl Machine {
    fn new(
        plan: &MachinePlan,
        mut speaker: SpeakerConfig,
        node: Option<NodeParts>,
        options: &Options,
    ) -> Self {
        let peers = speaker.peers.iter_mut();
        let templates = speaker.ranges.iter_mut().map(|range| &mut range.template);
        for peer in peers.chain(templates) {
            peer.session.hold_time_s = options.hold_time_s;
            peer.bfd = options.bfd.map(|(interval_ms, multiplier)| {
                let mut bfd = Bfd::default();
                (bfd.interval_ms, bfd.multiplier) = (interval_ms, multiplier);
                bfd
            });
            match (options.restart_time_s, &mut peer.session.graceful_restart) {
                (Some(time_s), Some(graceful)) => graceful.time_s = time_s,
                (_, graceful) => *graceful = None,
            }
            if let Some(send) = options.add_path {
                let families = peer.session.families;
                peer.session.add_path_send = families;
                peer.session.add_path_receive = families;
                peer.send_paths = families.iter().map(|family| (family, send)).collect();
            }
        }
        Self {
            name: plan.name.clone(),
            v4: plan.v4,
            v6: plan.v6,
            speaker,
            restart_wait: options.restart_wait,
            former: None,
            node,
            bgp: Slot::default(),
            felix: Slot::default(),
            bfd: Monitor::default(),
        }
    }

    /// Returns its address of this family.
    pub(crate) fn address(&self, ipv6: bool) -> IpAddr {
        match ipv6 {
            true => self.v6.into(),
            false => self.v4.into(),
        }
    }

    /// Returns whether a daemon of it has pending events of its kernel or host.
    pub(crate) fn has_kernel_events(&self, daemon: Daemon) -> bool {
        let Some(node) = &self.node else { return false };
        let attachment = match daemon {
            Daemon::Bgp => self
                .bgp
                .run
                .as_ref()
                .and_then(|bgp| bgp.kernel.as_ref())
                .map(|k| k.attachment),
            Daemon::Felix
                if self.felix.run.is_some()
                    && (node.host.is_busy() || node.host.filter.has_notice()) =>
            {
                return true;
            }
            Daemon::Felix => self.felix.run.as_ref().map(|felix| felix.attachment),
            Daemon::Bfd => None,
        };
        attachment.is_some_and(|attachment| node.kernel.borrow().is_ready(attachment))
    }

    /// Returns the numbers of routes written and deleted, and of tables read, by both daemons.
    /// Repeated attempts to write a route that a foreign route blocks do not count.
    pub(crate) fn kernel_writes(&self) -> (u64, u64, u64) {
        let bgp = self.bgp.run.as_ref().and_then(|bgp| bgp.kernel.as_ref());
        let bgp = bgp.map(|glue| glue.node.reconciler().summary());
        let felix = self
            .felix
            .run
            .as_ref()
            .map(|felix| felix.agent.route_summary());
        let dumps = [bgp, felix]
            .iter()
            .flatten()
            .map(|sum| sum.dumps)
            .min()
            .unwrap_or(0);
        let all = || [bgp, felix].into_iter().flatten();
        let in_vain = |sum: FibSummary| if sum.conflicts > 0 { sum.refused } else { 0 };
        let puts = all().map(|sum| sum.puts.saturating_sub(in_vain(sum))).sum();
        (puts, all().map(|sum| sum.deletes).sum(), dumps)
    }
}

/// Makes the machines of a plan, nodes first, configured by the files of the lab.
pub(crate) fn all(
    plan: &Plan,
    options: &Options,
    chance: &mut Chance,
) -> Result<Vec<Machine>, SetupError> {
    let mut machines = Vec::new();
    for (at, node) in plan.nodes.iter().enumerate() {
        let text = config::bgp_client(plan, at);
        let client = cambric_bgp_client::Config::parse(&Source::new("bgp-client.toml", text))?;
        let mut settings = client.settings.clone();
        if at % 2 == 1 {
            // Half of the hosts share nexthop objects.
            settings.nexthop_objects = NexthopUse::Auto;
        }
        let text = config::felix(plan, at);
        let mut settings = client.settings.clone();
        settings.felix = options.answers.then_some(true);
        let felix = cambric_felix::config::Config::of(&Source::new("felix.toml", text))?;
        let parts = NodeParts {
            kernel: Rc::new(RefCell::new(boot(
                chance.next(),
                [node.net_v4(), node.net_v6()],
            ))),
            host: SimHost::new(chance.fork()),
            client: settings,
            agent: felix.agent,
        };
        machines.push(Machine::new(
            node,
            speaker_of(&client),
            Some(parts),
            options,
        ));
    }
    for (at, reflector) in plan.reflectors.iter().enumerate() {
        let text = config::route_reflector(plan, at);
        let source = Source::new("route-reflector.toml", text);
        let config = cambric_route_reflector::Config::parse(&source)?;
        let mut speaker = speaker_of(&config);
        if options.reflector_clients {
            speaker
                .peers
                .iter_mut()
                .for_each(|peer| peer.role = Role::Client);
        }
        machines.push(Machine::new(reflector, speaker, None, options));
    }
    Ok(machines)
}

/// Returns the speaker of a file without a datastore, such as those of the lab.
fn speaker_of<S: bgp_daemon::Settings>(config: &bgp_daemon::Config<S>) -> SpeakerConfig {
    let intent = config.intent();
    intent.expect("no store is named").speaker.clone()
}

/// The underlay's interface of every node.
pub(crate) const UNDERLAY: &str = "eth0";

/// Makes a kernel in its state after boot: the underlay's interface with the machine's addresses.
pub(crate) fn boot(seed: u64, nets: [IpNet; 2]) -> Kernel {
    let mut kernel = Kernel::new(seed);
    let index = kernel.add_link(UNDERLAY);
    for net in nets {
        kernel.add_address(index, net);
    }
    kernel
}

/// Takes events of a turn from a kernel: rarely all of them.
pub(crate) fn poll_kernel(fib: &mut dyn Fib, chance: &mut Chance) -> Vec<Event> {
    let most = chance.within(1..=TURN_EVENTS as u64) as usize;
    let mut context = Context::from_waker(Waker::noop());
    let mut events = Vec::new();
    while events.len() < most
        && let Poll::Ready(event) = fib.poll_event(&mut context)
    {
        events.push(event);
    }
    events
}
