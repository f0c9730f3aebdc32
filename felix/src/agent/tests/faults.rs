//! A fault at each request to the kernel, and a kill at each request: the end is the same as without, and
//! no packet passes in between that neither the old nor the new rules let pass.

use std::collections::BTreeSet;
use std::task::{Context, Poll, Waker};

use fib_sync::{Command, Event, Fib, OpError, TABLE_MAIN};
use serde_json::{Value, json};

use super::*;
use crate::calc::{Bandwidth, TunnelDevice};
use crate::explain::tests::passes_between;
use crate::render::Ruleset;

const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";
/// `ENOBUFS`, `EBUSY`, `EINTR`, `EPERM`.
const ERRORS: [(i32, &str); 4] = [
    (105, "no buffer space available"),
    (16, "device or resource busy"),
    (4, "interrupted system call"),
    (1, "operation not permitted"),
];
/// Rounds until nothing happens any more.
const ROUNDS: usize = 200;
/// Minimum number of requests of each program of a host.
const REQUESTS_MIN: usize = 10;

type Store = BTreeMap<String, Value>;

/// A fault at one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It is answered with an error, and not carried out.
    Refused,
    /// It is answered with an error, but carried out.
    Unanswered,
    /// The agent is killed before it.
    KilledBefore,
    /// The agent is killed after it, without the answer.
    KilledAfter,
}

const FAULTS: [Fault; 4] = [
    Fault::Refused,
    Fault::Unanswered,
    Fault::KilledBefore,
    Fault::KilledAfter,
];

/// The kernel's state that an agent is responsible for. Tunnel devices are named, since their indices may
/// differ.
#[derive(Debug)]
struct State {
    rules: Option<Ruleset>,
    routes: BTreeMap<String, String>,
    neighbors: BTreeSet<Neighbor>,
    tunnels: Vec<TunnelDevice>,
    tunnel_entries: BTreeSet<TunnelEntry>,
    limits: BTreeMap<String, Bandwidth>,
    configured: Vec<u32>,
    forwarding: Option<Forwarding>,
}

impl State {
    fn of(world: &World) -> Self {
        let kernel = world.kernel.borrow();
        let routes = kernel
            .routes()
            .filter(|(key, route)| key.table == TABLE_MAIN && route.protocol == 80);
        let text = |route: &Route| {
            let hop = route.next_hops.first();
            let link = hop.and_then(|hop| kernel.link_by_index(hop.interface?));
            let link = link.map_or("", |link| &*link.name);
            format!("{} {} {link}", route.kind, route.gateways())
        };
        let host = &world.host;
        let entries = host.tunnel_entries.iter().map(|entry| match *entry {
            TunnelEntry::Neighbor(neighbor) => TunnelEntry::Neighbor(Neighbor {
                interface: 0,
                ..neighbor
            }),
            TunnelEntry::Forwarding { mac, node, .. } => TunnelEntry::Forwarding {
                interface: 0,
                mac,
                node,
            },
        });
        Self {
            rules: host.rules(),
            routes: routes
                .map(|(key, route)| (key.prefix.to_string(), text(route)))
                .collect(),
            neighbors: host.neighbors.clone(),
            tunnels: host.tunnels.values().cloned().collect(),
            tunnel_entries: entries.collect(),
            limits: host.limits.clone(),
            configured: host.configured.keys().copied().collect(),
            forwarding: host.forwarding,
        }
    }
}

impl State {
    fn compare(&self, wanted: &Self, at: &str) {
        assert_eq!(self.routes, wanted.routes, "{at}");
        assert_eq!(self.neighbors, wanted.neighbors, "{at}");
        assert_eq!(self.tunnels, wanted.tunnels, "{at}");
        assert_eq!(self.tunnel_entries, wanted.tunnel_entries, "{at}");
        assert_eq!(self.limits, wanted.limits, "{at}");
        assert_eq!(self.configured, wanted.configured, "{at}");
        assert_eq!(self.forwarding, wanted.forwarding, "{at}");
        assert_eq!(self.rules, wanted.rules, "{at}");
    }
}

/// A world in which one request has a fault.
struct Faulty {
    world: World,
    store: Store,
    requests: usize,
    /// The fault, and the number of its request.
    fault: Option<(Fault, usize)>,
}

impl Faulty {
    fn new(store: Store) -> Self {
        let world = World::new();
        world.link("cali1");
        world.link("cali2");
        Self {
            world,
            store,
            requests: 0,
            fault: None,
        }
    }

    /// Gives the agent all values of the datastore.
    fn feed(&mut self) {
        for (key, value) in &self.store {
            let octets = value.to_string();
            self.world.agent.change(key, Some(octets.as_bytes()));
        }
        self.world.agent.store_in_sync();
    }

    /// Changes the datastore of a running agent.
    fn change(&mut self, store: &Store) {
        for key in self.store.keys().filter(|key| !store.contains_key(*key)) {
            self.world.agent.change(key, None);
        }
        for (key, value) in store {
            if self.store.get(key) != Some(value) {
                let octets = value.to_string();
                self.world.agent.change(key, Some(octets.as_bytes()));
            }
        }
        self.store.clone_from(store);
    }

    /// Returns the fault of the next request.
    fn next(&mut self) -> Option<Fault> {
        self.requests += 1;
        let (fault, at) = self.fault?;
        (self.requests == at).then_some(fault)
    }

    fn kill(&mut self) {
        self.world.restart();
        self.feed();
    }

    /// Runs until nothing more happens at this instant, with the fault.
    fn settle(&mut self) {
        for _ in 0..ROUNDS {
            if !self.round() {
                return;
            }
        }
        panic!("never at rest");
    }

    /// Returns whether anything happened. It ends early if the agent is killed.
    fn round(&mut self) -> bool {
        let now = self.world.now;
        let mut is_busy = false;
        self.world.agent.turn(now);
        while let Some((number, command)) = self.world.agent.poll_host_command() {
            is_busy = true;
            let fault = self.next();
            if fault == Some(Fault::KilledBefore) {
                self.kill();
                return true;
            }
            if matches!(command, HostCommand::Forget(_)) {
                self.world.host.submit(number, command);
            } else {
                let event = match fault {
                    Some(Fault::Refused) => refused(command, self.requests),
                    Some(Fault::Unanswered) => {
                        let refused = refused(command.clone(), self.requests);
                        self.world.host.carry_out(command);
                        refused
                    }
                    _ => self.world.host.carry_out(command),
                };
                if fault != Some(Fault::KilledAfter) {
                    self.world.agent.handle_host(now, number, event);
                }
            }
            if fault == Some(Fault::KilledAfter) {
                self.kill();
                return true;
            }
        }
        while let Some((number, event)) = self.world.host.poll_event() {
            self.world.agent.handle_host(now, number, event);
            is_busy = true;
        }
        while let Some(command) = self.world.agent.poll_command(now) {
            is_busy = true;
            match self.next() {
                Some(Fault::KilledBefore) => {
                    self.kill();
                    return true;
                }
                Some(Fault::Refused) => {
                    for event in failed(&command, self.requests) {
                        self.world.agent.handle(now, &event);
                    }
                }
                Some(Fault::Unanswered) => {
                    while let Poll::Ready(event) = self.poll() {
                        self.world.agent.handle(now, &event);
                    }
                    self.world.fib.submit(command.clone());
                    while let Poll::Ready(event) = self.poll() {
                        if !is_answer(&event) {
                            self.world.agent.handle(now, &event);
                        }
                    }
                    for event in failed(&command, self.requests) {
                        self.world.agent.handle(now, &event);
                    }
                }
                Some(Fault::KilledAfter) => {
                    self.world.fib.submit(command);
                    while self.poll().is_ready() {}
                    self.kill();
                    return true;
                }
                None => self.world.fib.submit(command),
            }
        }
        while let Poll::Ready(event) = self.poll() {
            self.world.agent.handle(now, &event);
            is_busy = true;
        }
        is_busy
    }

    fn poll(&mut self) -> Poll<Event> {
        let mut context = Context::from_waker(Waker::noop());
        self.world.fib.poll_event(&mut context)
    }

    /// Lets all retries and checks happen.
    fn recover(&mut self) -> State {
        self.world.pass(RETRY_MAX * 4);
        State::of(&self.world)
    }
}

/// Returns the answer that reports an error.
fn refused(command: HostCommand, number: usize) -> HostEvent {
    let failed = || Failed(ERRORS[number % ERRORS.len()].1.to_owned());
    match command {
        HostCommand::FindRules => HostEvent::RulesFound(Err(failed())),
        HostCommand::WriteRules(_) => HostEvent::RulesWritten(Err(failed())),
        HostCommand::CheckRules => HostEvent::RulesChecked(Err(failed())),
        HostCommand::ConfigureHost(_) => HostEvent::HostConfigured(Err(failed())),
        HostCommand::ConfigureInterface { link, .. } => {
            HostEvent::InterfaceConfigured(link.index, Err(failed()))
        }
        HostCommand::LimitBandwidth { interface, .. } => {
            HostEvent::BandwidthLimited(interface, Err(failed()))
        }
        HostCommand::ListNeighbors => HostEvent::NeighborsListed(Err(failed())),
        HostCommand::PutNeighbor(one) => HostEvent::NeighborPut(one, Err(failed())),
        HostCommand::DeleteNeighbor(one) => HostEvent::NeighborDeleted(one, Err(failed())),
        HostCommand::ConfigureTunnel(device) => {
            HostEvent::TunnelConfigured(device.name, Err(failed()))
        }
        HostCommand::ConfigureIpip(_) => HostEvent::IpipConfigured(Err(failed())),
        HostCommand::ReleaseIpip(_) => HostEvent::IpipReleased(Err(failed())),
        HostCommand::RemoveTunnel { name, .. } => HostEvent::TunnelRemoved(name, Err(failed())),
        HostCommand::ListTunnelEntries(index) => {
            HostEvent::TunnelEntriesListed(index, Err(failed()))
        }
        HostCommand::PutTunnelEntry(entry) => HostEvent::TunnelEntryPut(entry, Err(failed())),
        HostCommand::DeleteTunnelEntry(entry) => {
            HostEvent::TunnelEntryDeleted(entry, Err(failed()))
        }
        HostCommand::ListConnections { .. } => {
            HostEvent::ConnectionsListed(Err(failed()), Duration::ZERO)
        }
        HostCommand::CutConnections { .. } => HostEvent::ConnectionsCut(0, Err(failed())),
        HostCommand::Offload(_) => HostEvent::Offloaded(Err(failed()), false),
        HostCommand::Forget(_) => panic!("it has no answer"),
    }
}

/// Returns the events of a request about routes that fails.
fn failed(command: &Command, number: usize) -> Vec<Event> {
    let error = OpError::new(ERRORS[number % ERRORS.len()].0);
    match command {
        Command::Dump { table, owner } => {
            let (table, owner) = (*table, *owner);
            let complete = false;
            vec![
                Event::DumpStart { table, owner },
                Event::DumpDone {
                    table,
                    owner,
                    complete,
                },
            ]
        }
        Command::Put(key, ..) | Command::Delete(key, _) => {
            vec![Event::Applied(*key, Err(error))]
        }
        Command::Nexthop(_) => panic!("Felix has no nexthop objects"),
    }
}

const fn is_answer(event: &Event) -> bool {
    matches!(
        event,
        Event::DumpStart { .. }
            | Event::DumpRoute(..)
            | Event::DumpDone { .. }
            | Event::Applied(..)
    )
}

/// A datastore with endpoints, a policy, limits of bandwidth, and an overlay.
fn store(endpoints: &[(u8, u8)], port: u16, nodes: &[u32]) -> Store {
    let mut store = Store::new();
    let mut put = |key: String, value: Value| store.insert(format!("{PREFIX}{key}"), value);
    for (n, link) in endpoints {
        let name = format!("n1-k8s-p{n}-eth0");
        let spec = json!({"orchestrator": "k8s", "node": HOST, "pod": format!("p{n}"),
            "endpoint": "eth0", "interfaceName": format!("cali{link}"), "mac": "aa:bb:cc:00:11:22",
            "ipNetworks": [format!("10.65.0.{n}/32"), format!("fd65::{n}/128")],
            "qosControls": {"egressBandwidth": 8000 * u32::from(*n)},
            "profiles": ["projectcalico-default-allow"]});
        let value = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
        put(format!("workloadendpoints/ns/{name}"), value);
    }
    let rules = json!([{"action": "Allow", "protocol": "TCP", "destination": {"ports": [port]}}]);
    let policy = json!({"spec": {"types": ["Ingress"], "ingress": rules}});
    put("globalnetworkpolicies/p".into(), policy);
    let pool = json!({"spec": {"cidr": "10.64.0.0/10", "vxlanMode": "Always"}});
    put("ippools/a".into(), pool);
    for n in nodes {
        let spec = json!({"spec": {"bgp": {"ipv4Address": format!("10.0.0.{n}/16")},
            "ipv4VXLANTunnelAddr": format!("10.66.{n}.0")}});
        put(format!("nodes/n{n}"), spec);
    }
    for n in nodes {
        let block = format!("/calico/ipam/v2/host/n{n}/ipv4/block/10.66.{n}.0-26");
        store.insert(block, json!({}));
    }
    store
}

/// Returns the packets that a filter lets pass between the workloads and another host.
fn passing(rules: &Ruleset) -> BTreeSet<(usize, usize, u8, u8, u16)> {
    let links = [None, Some("cali1"), Some("cali2")];
    let mut all = BTreeSet::new();
    for (input, output) in (0..3).flat_map(|one| (0..3).map(move |other| (one, other))) {
        for (from, to) in (1..=4).flat_map(|one| (1..=4).map(move |other| (one, other))) {
            for port in [80, 443, 22] {
                let address = |n: u8| IpAddr::from([10, 65, 0, n]);
                let ends = (address(from), address(to));
                let chains = ["prerouting", "forward", "forward-to"];
                let passes = chains.iter().all(|chain| {
                    passes_between(rules, chain, (links[input], links[output]), ends, (6, port))
                });
                if passes && (input, output) != (0, 0) {
                    all.insert((input, output, from, to, port));
                }
            }
        }
    }
    all
}

/// Brings a host from one datastore to another, with a fault at each request.
fn compare(old: Option<&Store>, new: &Store) {
    let start = |fault| {
        let mut host = Faulty::new(old.unwrap_or(new).clone());
        if old.is_some() {
            host.feed();
            host.settle();
            host.recover();
        }
        host.world.host.history.clear();
        (host.requests, host.fault) = (0, fault);
        match old {
            Some(_) => host.change(new),
            None => host.feed(),
        }
        host
    };
    let mut host = start(None);
    let before = host.world.host.rules();
    host.settle();
    let requests = host.requests;
    assert!(requests >= REQUESTS_MIN, "{requests} requests");
    let wanted = host.recover();
    let mut allowed = passing(wanted.rules.as_ref().unwrap());
    assert!(!allowed.is_empty());
    allowed.extend(before.iter().flat_map(passing));
    for fault in FAULTS {
        for at in 1..=requests {
            let mut host = start(Some((fault, at)));
            host.settle();
            assert!(
                host.requests >= at,
                "{fault:?} at request {at} of {requests}"
            );
            let state = host.recover();
            state.compare(&wanted, &format!("{fault:?} at request {at} of {requests}"));
            for rules in &host.world.host.history {
                let passing = passing(rules);
                let wrong = passing.difference(&allowed).next();
                assert_eq!(wrong, None, "{fault:?} at request {at} of {requests}");
            }
        }
    }
}

// Promise (Felix): A refused request or a kill at any moment changes nothing in the end, and lets no packet
// pass that neither the old nor the new policies allow.
#[test]
fn first_programming_survives_a_fault_at_each_request() {
    compare(None, &store(&[(1, 1), (2, 2)], 80, &[1, 2, 3]));
}

// Promise: as felix first_programming_survives_a_fault_at_each_request
#[test]
fn change_survives_a_fault_at_each_request() {
    let old = store(&[(1, 1), (2, 2)], 80, &[1, 2, 3]);
    let new = store(&[(2, 1), (3, 2)], 443, &[1, 2, 4]);
    compare(Some(&old), &new);
}

// Promise: as felix first_programming_survives_a_fault_at_each_request
#[test]
fn deletion_survives_a_fault_at_each_request() {
    let old = store(&[(1, 1), (2, 2)], 80, &[1, 2, 3]);
    let mut new = store(&[(2, 2)], 80, &[1]);
    new.retain(|key, _| !key.contains("/ippools/"));
    compare(Some(&old), &new);
}
