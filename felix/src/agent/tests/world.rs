//! An agent with a stateful fake host and an in-memory kernel.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use calico_model::EndpointState;
use fib_sync::memory::{Kernel, MemoryFib};
use fib_sync::{Command, Fib, Instant, Route, TABLE_MAIN, Tunnel};
use serde_json::json;

use super::super::*;
use crate::calc::{Bandwidth, IpipDevice, TunnelDevice};
use crate::render::tests::Kernel as Tables;
use crate::render::{Change, Key, Ruleset, guards_ipip};

pub(super) const HOST: &str = "n1";

/// A fake host with state, which fails on demand.
#[derive(Default)]
pub(super) struct Fake {
    /// The packet filter.
    pub(super) tables: Tables,
    /// Transactions that changed anything.
    pub(super) writes: usize,
    /// All packet filters that were in effect.
    pub(super) history: Vec<Ruleset>,
    pub(super) edited: bool,
    /// The packet filter cannot be listed, for this reason or because of concurrent writes.
    pub(super) refuse_check: Option<&'static str>,
    pub(super) doubts_check: bool,
    /// The packet filter has no record.
    pub(super) lacks_record: bool,
    /// Listings of the packet filter.
    pub(super) checks: usize,
    pub(super) configured: BTreeMap<u32, usize>,
    pub(super) ipv6: BTreeSet<u32>,
    pub(super) neighbors: BTreeSet<Neighbor>,
    pub(super) forgotten: BTreeSet<IpAddr>,
    /// Addresses with connections still to be deleted, and whether that is delayed.
    pub(super) forgetting: BTreeSet<IpAddr>,
    pub(super) forgets_late: bool,
    pub(super) refuse_rules: bool,
    pub(super) refuse_interface: Option<String>,
    pub(super) refuse_host: bool,
    pub(super) hosts: usize,
    pub(super) forwarding: Option<Forwarding>,
    /// It carries out no command for now.
    pub(super) stalls: bool,
    /// Interfaces that are down or removed, and accept no neighbor entries.
    pub(super) down: BTreeSet<u32>,
    /// The VXLAN devices that were configured, each with its index, and how often.
    pub(super) tunnels: BTreeMap<u32, TunnelDevice>,
    pub(super) tunnel_entries: BTreeSet<TunnelEntry>,
    /// Commands that wrote or removed an entry of a VXLAN device.
    pub(super) tunnel_writes: usize,
    pub(super) refuse_tunnel_entry: bool,
    /// The device for IP in IP as it was set up last, and how often with another value.
    pub(super) ipip: Option<IpipDevice>,
    pub(super) ipip_writes: usize,
    pub(super) refuse_ipip: bool,
    /// The packet filter at the last release of the device guarded it.
    pub(super) ipip_was_guarded: bool,
    pub(super) refuse_mtu: bool,
    /// The limits of bandwidth in effect, by interface, and the commands that changed or checked them.
    pub(super) limits: BTreeMap<String, Bandwidth>,
    pub(super) limit_writes: usize,
    pub(super) refuse_limits: bool,
    /// Tracked connections, those that were cut, and how often they were listed.
    pub(super) connections: Vec<Connection>,
    pub(super) cut: Vec<Connection>,
    /// Cut connections with an end at this host, and commands to cut.
    pub(super) cut_of_host: Vec<Connection>,
    pub(super) cut_commands: u32,
    /// The source port of connections that cannot be cut.
    pub(super) refuse_cut_of: Option<u16>,
    pub(super) connection_listings: usize,
    pub(super) refuse_connections: bool,
    /// The interfaces of offloaded connections, and the number of writes.
    pub(super) offloaded: BTreeSet<String>,
    pub(super) offloads: u32,
    pub(super) refuse_offload: bool,
    /// A refused write leaves the former table.
    pub(super) keep_offload_table: bool,
    /// Commands about bandwidth in this turn, and the most in one.
    pub(super) limits_in_turn: usize,
    pub(super) limits_in_turn_max: usize,
    kernel: Option<Rc<RefCell<Kernel>>>,
    queue: VecDeque<(u64, HostCommand)>,
}

impl Fake {
    /// Returns the rules in effect.
    pub(super) fn rules(&self) -> Option<Ruleset> {
        self.tables.0.clone()
    }

    /// Returns the commands that are not carried out.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn submit(&mut self, number: u64, command: HostCommand) {
        self.limits_in_turn += usize::from(matches!(command, HostCommand::LimitBandwidth { .. }));
        self.limits_in_turn_max = self.limits_in_turn_max.max(self.limits_in_turn);
        match command {
            HostCommand::Forget(addresses) => {
                self.forgotten.extend(&addresses);
                self.forgetting.extend(addresses);
            }
            command => self.queue.push_back((number, command)),
        }
    }

    /// Carries out the next command. Connections are deleted once there is none.
    pub(super) fn poll_event(&mut self) -> Option<(u64, HostEvent)> {
        if self.stalls {
            return None;
        }
        if let Some((number, command)) = self.queue.pop_front() {
            return Some((number, self.carry_out(command)));
        }
        if self.forgets_late || self.forgetting.is_empty() {
            return None;
        }
        let forgotten = std::mem::take(&mut self.forgetting);
        Some((0, HostEvent::Forgotten(forgotten)))
    }

    /// Carries out a command, and returns its answer.
    pub(super) fn carry_out(&mut self, command: HostCommand) -> HostEvent {
        let refused = |reason: &str| Failed(reason.into());
        match command {
            HostCommand::FindRules => HostEvent::RulesFound(Ok(self.tables.0.is_some())),
            HostCommand::WriteRules(steps) => {
                HostEvent::RulesWritten(self.write(&steps).map_err(refused))
            }
            HostCommand::CheckRules => {
                self.checks += 1;
                let refused = self.refuse_check.map(refused);
                HostEvent::RulesChecked(refused.map_or_else(|| Ok(self.check()), Err))
            }
            HostCommand::ConfigureHost(_) if self.refuse_host => {
                HostEvent::HostConfigured(Err(refused("read-only")))
            }
            HostCommand::ConfigureHost(wanted) => {
                self.hosts += 1;
                self.forwarding = Some(wanted);
                HostEvent::HostConfigured(Ok(()))
            }
            HostCommand::ConfigureInterface { link, ipv6, .. } => {
                let outcome = match &self.refuse_interface {
                    Some(reason) => Err(refused(reason)),
                    None => Ok(()),
                };
                if outcome.is_ok() {
                    *self.configured.entry(link.index).or_default() += 1;
                    self.ipv6.extend(ipv6.then_some(link.index));
                }
                HostEvent::InterfaceConfigured(link.index, outcome)
            }
            HostCommand::LimitBandwidth { interface, .. } if self.refuse_limits => {
                let reason = refused("a foreign queueing discipline");
                HostEvent::BandwidthLimited(interface, Err(reason))
            }
            HostCommand::LimitBandwidth {
                interface,
                bandwidth,
            } => {
                self.limit_writes += 1;
                match bandwidth.is_unlimited() {
                    true => self.limits.remove(&interface),
                    false => self.limits.insert(interface.clone(), bandwidth),
                };
                HostEvent::BandwidthLimited(interface, Ok(()))
            }
            HostCommand::ListNeighbors => {
                let listed = self.neighbors.iter().copied().collect();
                HostEvent::NeighborsListed(Ok(listed))
            }
            HostCommand::PutNeighbor(neighbor) if self.down.contains(&neighbor.interface) => {
                HostEvent::NeighborPut(neighbor, Err(refused("the network is down")))
            }
            HostCommand::PutNeighbor(neighbor) => {
                let place = |n: &Neighbor| (n.interface, n.address);
                self.neighbors.retain(|n| place(n) != place(&neighbor));
                self.neighbors.insert(neighbor);
                HostEvent::NeighborPut(neighbor, Ok(()))
            }
            HostCommand::DeleteNeighbor(neighbor) => {
                self.neighbors.remove(&neighbor);
                HostEvent::NeighborDeleted(neighbor, Ok(()))
            }
            HostCommand::ConfigureTunnel(device) => {
                let name = device.name;
                let (index, readdressed) = self.tunnel(device);
                let mtu = match self.refuse_mtu {
                    true => Err(refused("MTU 9000: Invalid argument")),
                    false => Ok(()),
                };
                let done = Configured {
                    index,
                    readdressed,
                    mtu,
                };
                HostEvent::TunnelConfigured(name, Ok(done))
            }
            HostCommand::RemoveTunnel { name, vni } => {
                let is_it = |device: &TunnelDevice| device.name == name && device.vni == vni;
                let all = self.tunnels.iter();
                let found = all
                    .filter(|(_, device)| is_it(device))
                    .map(|(index, _)| *index);
                for index in found.collect::<Vec<_>>() {
                    self.remove_tunnel(index);
                }
                HostEvent::TunnelRemoved(name, Ok(()))
            }
            HostCommand::ConfigureIpip(_) if self.refuse_ipip => {
                HostEvent::IpipConfigured(Err(refused("Operation not supported")))
            }
            HostCommand::ConfigureIpip(device) => {
                let done = Configured {
                    index: self.ipip(&device),
                    readdressed: true,
                    mtu: Ok(()),
                };
                self.ipip_writes += usize::from(self.ipip.as_ref() != Some(&device));
                self.ipip = Some(device);
                HostEvent::IpipConfigured(Ok(done))
            }
            HostCommand::ReleaseIpip(own) => {
                let kernel = self.kernel.clone().expect("a kernel");
                let mut kernel = kernel.borrow_mut();
                let index = kernel.link("tunl0").expect("it has addresses").index;
                for address in own {
                    kernel.remove_address(index, address.into());
                }
                if !kernel.addresses().any(|at| at.interface == index) {
                    kernel.set_link_up(index, false);
                }
                self.ipip = None;
                let rules = self.tables.0.as_ref();
                self.ipip_was_guarded = rules.is_some_and(guards_ipip);
                HostEvent::IpipReleased(Ok(()))
            }
            HostCommand::ListTunnelEntries(index) => {
                let entries = self.tunnel_entries.iter().copied();
                let on = entries.filter(|entry| entry.interface() == index);
                HostEvent::TunnelEntriesListed(index, Ok(on.collect()))
            }
            HostCommand::PutTunnelEntry(entry) if self.refuse_tunnel_entry => {
                HostEvent::TunnelEntryPut(entry, Err(refused("no buffer space")))
            }
            HostCommand::PutTunnelEntry(entry) => {
                self.tunnel_writes += 1;
                self.tunnel_entries.insert(entry);
                HostEvent::TunnelEntryPut(entry, Ok(()))
            }
            HostCommand::DeleteTunnelEntry(entry) => {
                self.tunnel_writes += 1;
                self.tunnel_entries.remove(&entry);
                HostEvent::TunnelEntryDeleted(entry, Ok(()))
            }
            HostCommand::ListConnections { wanted, mark } => {
                self.connection_listings += 1;
                let is_of = |one: &&Connection| wanted.has(one);
                let left = self
                    .connections
                    .iter()
                    .filter(|one| !self.cut.contains(one));
                let listed = left.filter(is_of).cloned().collect();
                assert_eq!(mark, 4);
                let listed = match self.refuse_connections {
                    true => Err(refused("no connection tracking")),
                    false => Ok(listed),
                };
                HostEvent::ConnectionsListed(listed, Duration::from_millis(1))
            }
            HostCommand::Offload(interfaces) => {
                self.offloads += 1;
                self.offloaded = interfaces;
                let outcome = match self.refuse_offload && !self.offloaded.is_empty() {
                    true => Err(refused("no flowtables")),
                    false => Ok(()),
                };
                let may_exist = self.keep_offload_table || outcome.is_ok();
                HostEvent::Offloaded(outcome, may_exist)
            }
            HostCommand::CutConnections {
                connections,
                of_host,
                ..
            } => {
                self.cut_commands += 1;
                self.cut_of_host.extend(of_host.iter().cloned());
                let all = connections.into_iter().chain(of_host);
                let refused_port = self.refuse_cut_of;
                let is_cut = |one: &Connection| one.ports.map(|(port, _)| port) != refused_port;
                let (cut, left): (Vec<_>, Vec<_>) = all.partition(is_cut);
                let outcome = match left.is_empty() {
                    true => Ok(()),
                    false => Err(refused("the mark is refused")),
                };
                let count = cut.len() as u64;
                self.cut.extend(cut);
                HostEvent::ConnectionsCut(count, outcome)
            }
            HostCommand::Forget(_) => unreachable!("it is never queued"),
        }
    }

    /// Creates or keeps a VXLAN device in the kernel. Returns its index, and whether its address has
    /// changed: then the kernel removes its entries.
    fn tunnel(&mut self, device: TunnelDevice) -> (u32, bool) {
        let mut all = self.tunnels.iter();
        let present = all.find(|(_, present)| present.name == device.name);
        if let Some((index, present)) = present.map(|(index, present)| (*index, present.clone())) {
            if present == device {
                return (index, false);
            }
            let address = device.address;
            if (TunnelDevice { address, ..present }) == device {
                self.tunnels.insert(index, device);
                self.tunnel_entries
                    .retain(|entry| entry.interface() != index);
                return (index, true);
            }
            self.remove_tunnel(index);
        }
        let kernel = self.kernel.clone().expect("a kernel");
        let mut kernel = kernel.borrow_mut();
        let index = kernel.add_link(device.name);
        kernel.set_tunnel(index, Some(Tunnel::Vxlan { port: device.port }));
        kernel.set_link_up(index, true);
        kernel.set_carrier(index, true);
        self.tunnels.insert(index, device);
        (index, true)
    }

    /// Sets up the kernel's device for IP in IP. Returns its index.
    fn ipip(&mut self, device: &IpipDevice) -> u32 {
        let kernel = self.kernel.clone().expect("a kernel");
        let mut kernel = kernel.borrow_mut();
        let present = kernel.link("tunl0").map(|link| link.index);
        if let Some(index) = present.filter(|_| self.ipip.as_ref() == Some(device)) {
            return index;
        }
        let index = present.unwrap_or_else(|| {
            let index = kernel.add_link("tunl0");
            kernel.set_tunnel(index, Some(Tunnel::Ipip));
            index
        });
        kernel.set_link_up(index, true);
        kernel.set_carrier(index, true);
        kernel.add_address(index, IpAddr::from(device.address).into());
        index
    }

    /// Removes a VXLAN device with its entries, as any program can.
    pub(super) fn remove_tunnel(&mut self, index: u32) {
        self.tunnels.remove(&index);
        self.tunnel_entries
            .retain(|entry| entry.interface() != index);
        let kernel = self.kernel.clone().expect("a kernel");
        kernel.borrow_mut().remove_link(index);
    }

    fn write(&mut self, steps: &[Change]) -> Result<(), &'static str> {
        let replaces = steps.first() == Some(&Change::AddTable);
        if self.refuse_rules {
            return Err("no nftables");
        }
        if self.edited && !replaces {
            return Err("another program has changed the table");
        }
        self.edited = false;
        let before = self.rules();
        steps.iter().for_each(|step| self.tables.take(step));
        let after = self.rules();
        if before != after {
            self.writes += 1;
            self.history.extend(after);
        }
        Ok(())
    }

    fn check(&self) -> Checked {
        match (&self.tables.0, self.edited) {
            _ if self.doubts_check => Checked::Doubtful,
            (_, true) => Checked::Changed,
            (None, false) => Checked::Nothing,
            (Some(_), false) if self.lacks_record => Checked::Unrecorded,
            (Some(_), false) => Checked::Intact,
        }
    }
}

/// An agent with its host, and an in-memory kernel.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) kernel: Rc<RefCell<Kernel>>,
    pub(super) fib: MemoryFib,
    pub(super) agent: Agent,
    pub(super) host: Fake,
    /// Full reads of the routing table.
    pub(super) dumps: usize,
}

impl World {
    pub(super) fn new() -> Self {
        let kernel = Rc::new(RefCell::new(Kernel::new(1)));
        let now = Instant(0);
        Self {
            now,
            fib: MemoryFib::new(&kernel),
            agent: Agent::new(now, AgentConfig::new(HOST)),
            host: Fake {
                kernel: Some(Rc::clone(&kernel)),
                ..Fake::default()
            },
            kernel,
            dumps: 0,
        }
    }

    /// Kills the agent and starts it again; host and kernel stay.
    pub(super) fn restart(&mut self) {
        self.agent = Agent::new(self.now, AgentConfig::new(HOST));
        self.host.queue.clear();
        self.fib = MemoryFib::new(&self.kernel);
    }

    pub(super) fn link(&self, name: &str) -> u32 {
        let mut kernel = self.kernel.borrow_mut();
        let index = kernel.add_link(name);
        kernel.set_link_up(index, true);
        kernel.set_carrier(index, true);
        index
    }

    pub(super) fn endpoint(&mut self, pod: &str, interface: &str, addresses: &[&str]) {
        let value = json!({"spec": {
            "orchestrator": "k8s", "node": HOST, "pod": pod, "endpoint": "eth0",
            "interfaceName": interface, "mac": "aa:bb:cc:00:11:22", "ipNetworks": addresses,
            "profiles": ["projectcalico-default-allow"],
        }});
        self.agent
            .change(&key(pod), Some(value.to_string().as_bytes()));
    }

    /// Runs until nothing more happens at this instant.
    pub(super) fn settle(&mut self) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..100 {
            let mut busy = self.turn();
            while let std::task::Poll::Ready(event) = self.fib.poll_event(&mut context) {
                self.agent.handle(self.now, &event);
                busy = true;
            }
            if !busy {
                self.compare_rules();
                return;
            }
        }
        panic!("never at rest");
    }

    /// Performs one turn of the agent and of its host. Returns whether anything happened.
    pub(super) fn turn(&mut self) -> bool {
        self.host.limits_in_turn = 0;
        self.agent.turn(self.now);
        let mut busy = false;
        while let Some((number, command)) = self.agent.poll_host_command() {
            self.host.submit(number, command);
            busy = true;
        }
        while let Some((number, event)) = self.host.poll_event() {
            self.agent.handle_host(self.now, number, event);
            busy = true;
        }
        while let Some(command) = self.agent.poll_command(self.now) {
            self.dumps += usize::from(matches!(
                command,
                Command::Dump {
                    table: TABLE_MAIN,
                    ..
                }
            ));
            self.fib.submit(command);
            busy = true;
        }
        busy
    }

    /// Checks that the rules are in effect if the agent reports so.
    fn compare_rules(&self) {
        if self.agent.rules_in_sync() && !self.agent.keeps_rules() && !self.host.edited {
            let wanted = self.agent.desired().rules();
            assert_eq!(self.host.rules().as_ref(), Some(wanted));
        }
    }

    /// Advances the time, from one deadline to the next.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let next = self
                .agent
                .poll_timeout()
                .filter(|at| *at <= end)
                .unwrap_or(end);
            self.now = next.max(self.now);
            if self.now >= end {
                break;
            }
            if next <= self.now {
                self.settle();
                self.now += Duration::from_millis(1);
            }
        }
        self.settle();
    }

    pub(super) fn in_sync(&mut self) {
        self.agent.store_in_sync();
        self.settle();
    }

    pub(super) fn routes(&self) -> BTreeMap<String, u32> {
        let kernel = self.kernel.borrow();
        let routes = kernel
            .routes()
            .filter(|(key, route)| key.table == TABLE_MAIN && route.protocol == 80);
        let on = |route: &Route| route.next_hops.first()?.interface;
        routes
            .filter_map(|(key, route)| Some((key.prefix.to_string(), on(route)?)))
            .collect()
    }

    pub(super) fn state(&self) -> (EndpointState, Option<String>) {
        let view = self.agent.endpoints().next().expect("an endpoint");
        (view.state, view.reason)
    }

    pub(super) fn guards(&self, interface: &str, address: [u8; 4]) -> bool {
        let key = Key::InterfaceIpv4(interface.into(), address.into());
        let rules = self.host.rules().expect("rules");
        rules.sets["sources-ipv4"].elements.contains_key(&key)
    }
}

pub(super) fn key(pod: &str) -> String {
    format!("/calico/resources/v3/projectcalico.org/workloadendpoints/ns/n1-k8s-{pod}-eth0")
}
