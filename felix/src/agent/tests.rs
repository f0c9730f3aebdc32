use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use datastore::Unready;
use fib_sync::memory::{Kernel, MemoryFib};
use fib_sync::{Fib, Instant, Link, Owner, Route, RouteKey};
use model::EndpointState;
use serde_json::json;

use super::*;
use crate::apply::{Checked, GATEWAY_IPV4, GATEWAY_IPV6, Neighbour};
use crate::render::{Key, Ruleset};

mod feedback;

const HOST: &str = "n1";

/// A host that remembers, and fails on demand.
#[derive(Default)]
struct Fake {
    rules: Option<Ruleset>,
    writes: usize,
    edited: bool,
    configured: BTreeMap<u32, usize>,
    ipv6: BTreeSet<u32>,
    neighbours: BTreeSet<Neighbour>,
    forgotten: BTreeSet<IpAddr>,
    refuse_rules: bool,
    refuse_interface: Option<String>,
    refuse_host: bool,
    hosts: usize,
}

impl Host for Fake {
    fn rules_present(&mut self) -> Result<bool, Failed> {
        Ok(self.rules.is_some())
    }

    fn write_rules(&mut self, wanted: &Ruleset) -> Result<(), Failed> {
        if self.refuse_rules {
            return Err(Failed("no nftables".into()));
        }
        self.writes += 1;
        self.rules = Some(wanted.clone());
        Ok(())
    }

    fn check_rules(&mut self) -> Result<Checked, Failed> {
        match std::mem::take(&mut self.edited) {
            true => Ok(Checked::Healed),
            false => Ok(Checked::Intact),
        }
    }

    fn configure(&mut self, _: bool) -> Result<(), Failed> {
        if self.refuse_host {
            return Err(Failed("read-only".into()));
        }
        self.hosts += 1;
        Ok(())
    }

    fn configure_interface(&mut self, link: &Link, ipv6: bool) -> Result<(), Failed> {
        if let Some(reason) = &self.refuse_interface {
            return Err(Failed(reason.clone()));
        }
        *self.configured.entry(link.index).or_default() += 1;
        if ipv6 {
            self.ipv6.insert(link.index);
        }
        Ok(())
    }

    fn neighbours(&mut self) -> Result<Vec<Neighbour>, Failed> {
        Ok(self.neighbours.iter().copied().collect())
    }

    fn put_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), Failed> {
        self.neighbours
            .retain(|n| (n.interface, n.address) != (neighbour.interface, neighbour.address));
        self.neighbours.insert(*neighbour);
        Ok(())
    }

    fn delete_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), Failed> {
        self.neighbours.remove(neighbour);
        Ok(())
    }

    fn forget(&mut self, addresses: &BTreeSet<IpAddr>) {
        self.forgotten.extend(addresses);
    }
}

/// An agent with its host, beside an in-memory kernel.
struct World {
    now: Instant,
    kernel: Rc<RefCell<Kernel>>,
    fib: MemoryFib,
    agent: Agent,
    host: Fake,
}

impl World {
    fn new() -> Self {
        let kernel = Rc::new(RefCell::new(Kernel::new(1)));
        let now = Instant(0);
        Self {
            now,
            fib: MemoryFib::new(&kernel),
            agent: Agent::new(now, AgentConfig::new(HOST)),
            host: Fake::default(),
            kernel,
        }
    }

    /// The agent dies and is started again; host and kernel stay.
    fn restart(&mut self) {
        self.agent = Agent::new(self.now, AgentConfig::new(HOST));
        self.fib = MemoryFib::new(&self.kernel);
    }

    fn link(&self, name: &str) -> u32 {
        let mut kernel = self.kernel.borrow_mut();
        let index = kernel.add_link(name);
        kernel.set_link_up(index, true);
        kernel.set_carrier(index, true);
        index
    }

    fn endpoint(&mut self, pod: &str, interface: &str, addresses: &[&str]) {
        let value = json!({"spec": {
            "orchestrator": "k8s", "node": HOST, "pod": pod, "endpoint": "eth0",
            "interfaceName": interface, "mac": "aa:bb:cc:00:11:22", "ipNetworks": addresses,
            "profiles": ["projectcalico-default-allow"],
        }});
        self.agent
            .change(&key(pod), Some(value.to_string().as_bytes()));
    }

    /// Runs until nothing happens any more at this instant.
    fn settle(&mut self) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..100 {
            self.agent.turn(self.now, &mut self.host);
            let mut busy = false;
            while let Some(command) = self.agent.poll_command(self.now) {
                self.fib.submit(command);
                busy = true;
            }
            while let std::task::Poll::Ready(event) = self.fib.poll_event(&mut context) {
                self.agent.handle(self.now, &event);
                busy = true;
            }
            if !busy {
                return;
            }
        }
        panic!("never at rest");
    }

    /// Lets time pass, from one deadline to the next.
    fn pass(&mut self, time: Duration) {
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
                self.now = self.now + Duration::from_millis(1);
            }
        }
        self.settle();
    }

    fn in_sync(&mut self) {
        self.agent.store_in_sync();
        self.settle();
    }

    fn routes(&self) -> BTreeMap<String, u32> {
        let kernel = self.kernel.borrow();
        let routes = kernel.routes().filter(|(_, route)| route.protocol == 80);
        routes
            .map(|(key, route)| {
                (
                    key.prefix.to_string(),
                    route.next_hops[0].interface.unwrap(),
                )
            })
            .collect()
    }

    fn state(&self) -> (EndpointState, Option<String>) {
        let view = self.agent.endpoints().next().expect("an endpoint");
        (view.state, view.reason)
    }

    fn guards(&self, interface: &str, address: [u8; 4]) -> bool {
        let key = Key::InterfaceIpv4(interface.into(), address.into());
        let rules = self.host.rules.as_ref().expect("rules");
        rules.sets["sources-ipv4"].elements.contains_key(&key)
    }
}

fn key(pod: &str) -> String {
    format!("/calico/resources/v3/projectcalico.org/workloadendpoints/ns/n1-k8s-{pod}-eth0")
}

#[test]
fn an_endpoint_before_its_interface_and_after() {
    for interface_first in [true, false] {
        let mut world = World::new();
        let mut index = 0;
        if interface_first {
            index = world.link("cali1");
        }
        world.endpoint("a", "cali1", &["10.65.0.1/32", "fd65::1/128"]);
        world.in_sync();
        if !interface_first {
            assert_eq!(world.routes(), BTreeMap::new());
            let (state, reason) = world.state();
            assert_eq!(state, EndpointState::Down);
            assert_eq!(reason.as_deref(), Some("interface cali1 does not exist"));
            index = world.link("cali1");
            world.settle();
        }
        let routes = [
            ("10.65.0.1/32".to_owned(), index),
            ("fd65::1/128".to_owned(), index),
        ];
        assert_eq!(world.routes(), routes.into());
        assert_eq!(world.host.neighbours.len(), 2);
        assert!(world.host.ipv6.contains(&index));
        assert_eq!(world.state(), (EndpointState::Up, None));
        assert_eq!(world.agent.waiting_for(), []);
    }
}

#[test]
fn routes_have_the_metric_and_protocol_asked_for() {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    let key = RouteKey::new(254, "10.65.0.1/32".parse().unwrap(), 256, 0);
    assert_eq!(
        world
            .kernel
            .borrow()
            .route(&key)
            .map(|route| route.protocol),
        Some(80)
    );
}

#[test]
fn before_the_store_is_read_nothing_passes_and_nothing_is_touched() {
    let mut world = World::new();
    let index = world.link("cali1");
    let stale = RouteKey::new(254, "10.65.0.9/32".parse().unwrap(), 256, 0);
    world
        .kernel
        .borrow_mut()
        .add_route(stale, Route::device(Owner(80), index))
        .unwrap();
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.pass(Duration::from_secs(300));
    let rules = world.host.rules.clone().expect("the closed rules");
    assert!(rules.sets["workloads"].elements.is_empty());
    assert_eq!(world.routes(), [("10.65.0.9/32".to_owned(), index)].into());
    assert_eq!(world.agent.waiting_for()[0], Waiting::Store);
}

#[test]
fn a_restart_leaves_rules_and_routes_in_force_and_then_removes_strays() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.link("cali2");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.endpoint("b", "cali2", &["10.65.0.2/32"]);
    world.in_sync();
    let rules = world.host.rules.clone();
    assert_eq!(world.routes().len(), 2);
    world.restart();
    world.pass(Duration::from_secs(60));
    assert_eq!(
        world.host.rules, rules,
        "rules stay while the store is not read"
    );
    assert_eq!(world.routes().len(), 2);
    // b went while the agent was dead.
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    assert!(world.guards("cali1", [10, 65, 0, 1]) && !world.guards("cali2", [10, 65, 0, 2]));
    assert_eq!(world.routes().len(), 2, "strays have some grace");
    world.pass(Duration::from_secs(11));
    assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), index)].into());
    assert_eq!(world.host.neighbours.len(), 1, "the entry of b is gone");
}

#[test]
fn an_endpoint_that_goes_takes_everything_with_it_at_once() {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32", "fd65::1/128"]);
    world.in_sync();
    world.agent.change(&key("a"), None);
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
    assert!(world.host.neighbours.is_empty());
    assert!(!world.guards("cali1", [10, 65, 0, 1]));
    let gone: Vec<IpAddr> = world.host.forgotten.iter().copied().collect();
    assert_eq!(
        gone,
        [
            "10.65.0.1".parse::<IpAddr>().unwrap(),
            "fd65::1".parse().unwrap()
        ]
    );
    assert_eq!(world.agent.endpoints().count(), 0);
}

#[test]
fn no_route_leads_to_an_interface_that_the_rules_do_not_guard() {
    let mut world = World::new();
    world.link("cali1");
    world.in_sync();
    world.host.refuse_rules = true;
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
    let (state, reason) = world.state();
    assert_eq!(state, EndpointState::Down);
    assert!(reason.unwrap().contains("no nftables"));
    world.host.refuse_rules = false;
    world.pass(Duration::from_secs(1));
    assert_eq!(world.state(), (EndpointState::Up, None));
}

#[test]
fn a_failed_setting_keeps_the_endpoint_down_and_is_tried_again() {
    let mut world = World::new();
    world.link("cali1");
    world.host.refuse_interface = Some("sysctl net.x = 1: Read-only file system".into());
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    assert_eq!(world.routes(), BTreeMap::new());
    let (state, reason) = world.state();
    assert_eq!(state, EndpointState::Down);
    assert!(reason.unwrap().ends_with("Read-only file system"));
    world.pass(Duration::from_secs(60));
    world.host.refuse_interface = None;
    world.pass(Duration::from_secs(30));
    assert_eq!(world.state(), (EndpointState::Up, None));
}

#[test]
fn an_interface_that_goes_down_and_comes_up_is_set_up_anew() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32", "fd65::1/128"]);
    world.in_sync();
    assert_eq!(world.host.configured[&index], 1);
    world.kernel.borrow_mut().set_link_up(index, false);
    // The kernel drops entries with the link.
    world.host.neighbours.clear();
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
    assert_eq!(world.state().1.as_deref(), Some("interface cali1 is down"));
    assert!(
        world.host.forgotten.is_empty(),
        "the addresses are still the endpoint's"
    );
    assert!(world.guards("cali1", [10, 65, 0, 1]), "rules stay");
    world.kernel.borrow_mut().set_link_up(index, true);
    world.settle();
    assert_eq!(world.host.configured[&index], 2);
    assert_eq!((world.routes().len(), world.host.neighbours.len()), (2, 2));
}

#[test]
fn a_replaced_interface_is_a_new_one() {
    let mut world = World::new();
    let old = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.kernel.borrow_mut().remove_link(old);
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
    let new = world.link("cali1");
    world.settle();
    assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), new)].into());
    world.kernel.borrow_mut().rename_link(new, "other");
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
}

#[test]
fn the_gateways_address_is_given_back() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["fd65::1/128"]);
    world.in_sync();
    let gateway = ipnet::IpNet::new(GATEWAY_IPV6.into(), 64).unwrap();
    world.kernel.borrow_mut().add_address(index, gateway);
    world.settle();
    world.kernel.borrow_mut().remove_address(index, gateway);
    world.settle();
    assert_eq!(world.host.configured[&index], 2);
}

#[test]
fn a_host_that_does_not_forward_is_said_and_tried_again() {
    let mut world = World::new();
    world.host.refuse_host = true;
    world.in_sync();
    assert_eq!(
        world.agent.waiting_for(),
        [Waiting::Host("read-only".into())]
    );
    world.host.refuse_host = false;
    world.pass(Duration::from_secs(1));
    assert_eq!(world.agent.waiting_for(), []);
    assert_eq!(world.host.hosts, 1);
    // The gateway's address on `lo` is given back.
    let gateway = ipnet::IpNet::new(GATEWAY_IPV4.into(), 32).unwrap();
    let lo = world.link("lo");
    world.kernel.borrow_mut().add_address(lo, gateway);
    world.settle();
    world.kernel.borrow_mut().remove_address(lo, gateway);
    world.settle();
    assert_eq!(world.host.hosts, 2);
}

#[test]
fn an_overrun_makes_no_gap_and_everything_is_looked_at_again() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.host.neighbours.clear();
    let attachment = world.fib.attachment();
    world.kernel.borrow_mut().overrun(attachment);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.host.configured[&index], 2);
    assert_eq!((world.routes().len(), world.host.neighbours.len()), (1, 1));
}

#[test]
fn an_address_that_moves_between_interfaces_is_forgotten_and_routed_anew() {
    let mut world = World::new();
    world.link("cali1");
    let second = world.link("cali2");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.endpoint("a", "cali2", &["10.65.0.1/32"]);
    world.settle();
    assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), second)].into());
    assert!(world.guards("cali2", [10, 65, 0, 1]) && !world.guards("cali1", [10, 65, 0, 1]));
    assert_eq!(world.host.forgotten.len(), 1);
}

#[test]
fn a_foreign_edit_is_counted() {
    let mut world = World::new();
    world.in_sync();
    world.host.edited = true;
    world.pass(Duration::from_secs(11));
    assert_eq!(world.agent.foreign_edits(), 1);
}

#[test]
fn what_a_store_tells_by_and_by_counts_when_all_of_it_is_there() {
    for (lost, from_snapshot) in [(true, false), (false, false), (false, true)] {
        let mut world = World::new();
        let tell = |world: &mut World| {
            world.endpoint("a", "cali1", &["10.65.0.1/32"]);
            world.endpoint("b", "cali2", &["10.65.0.2/32"]);
        };
        world.link("cali1");
        world.link("cali2");
        tell(&mut world);
        world.in_sync();
        let (rules, routes) = (world.host.rules.clone(), world.routes());
        assert_eq!(routes.len(), 2);
        if from_snapshot {
            world.restart();
            tell(&mut world);
            world.agent.store_restored();
            world.settle();
        }
        // Away, or another one in its place.
        match lost {
            true => world.agent.store_unread(),
            false => world.agent.store_unready(Unready::Silent),
        }
        for gone in [&key("a"), &key("b")] {
            world.agent.change(gone, None);
            world.settle();
        }
        world.pass(Duration::from_secs(600));
        assert_eq!(world.routes(), routes);
        assert_eq!(world.host.rules, rules);
        let waits = world.agent.waiting_for().first().cloned();
        assert_eq!(
            waits,
            (!lost).then_some(Waiting::StoreReady(Unready::Silent))
        );

        world.endpoint("a", "cali1", &["10.65.0.1/32"]);
        world.in_sync();
        world.pass(Duration::from_secs(600));
        assert_eq!(
            world.routes().into_keys().collect::<Vec<_>>(),
            ["10.65.0.1/32"]
        );
        assert_eq!(world.agent.waiting_for(), []);
    }
}

#[test]
fn on_a_bare_host_a_snapshot_sets_endpoints_up() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.agent.store_restored();
    world.settle();
    assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), index)].into());
    assert!(world.guards("cali1", [10, 65, 0, 1]));
    assert_eq!(world.agent.waiting_for(), [Waiting::Store]);
    world.in_sync();
    assert_eq!(world.agent.waiting_for(), []);
}

#[test]
fn nothing_is_removed_on_the_strength_of_a_snapshot() {
    let mut world = World::new();
    let indices = ["cali1", "cali2", "cali3"].map(|name| world.link(name));
    for (nth, id) in ["a", "b", "c"].into_iter().enumerate() {
        world.endpoint(
            id,
            &format!("cali{}", nth + 1),
            &[&format!("10.65.0.{}/32", nth + 1)],
        );
    }
    world.in_sync();
    let (rules, routes) = (world.host.rules.clone(), world.routes());
    let neighbours = world.host.neighbours.clone();
    assert_eq!((routes.len(), neighbours.len()), (3, 3));

    // The snapshot knows one of the three.
    world.restart();
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.agent.store_restored();
    world.pass(Duration::from_secs(600));
    assert_eq!(world.host.rules, rules);
    assert_eq!(world.routes(), routes);
    assert_eq!(world.host.neighbours, neighbours);

    // The store is read: what it does not hold goes.
    world.endpoint("b", "cali2", &["10.65.0.2/32"]);
    world.in_sync();
    world.pass(Duration::from_secs(600));
    assert_eq!(
        world.routes(),
        [
            ("10.65.0.1/32".to_owned(), indices[0]),
            ("10.65.0.2/32".to_owned(), indices[1]),
        ]
        .into()
    );
    assert_eq!(world.host.neighbours.len(), 2);
    assert!(!world.guards("cali3", [10, 65, 0, 3]));
}

#[test]
fn an_interface_that_comes_back_while_the_store_is_away_gets_its_route_again() {
    let mut world = World::new();
    let index = world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.restart();
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.agent.store_restored();
    world.settle();
    world.kernel.borrow_mut().remove_link(index);
    world.settle();
    assert_eq!(world.routes(), BTreeMap::new());
    let index = world.link("cali1");
    world.settle();
    assert_eq!(world.routes(), [("10.65.0.1/32".to_owned(), index)].into());
}

#[test]
fn idle_means_idle() {
    let mut world = World::new();
    world.link("cali1");
    world.endpoint("a", "cali1", &["10.65.0.1/32"]);
    world.in_sync();
    world.pass(Duration::from_secs(20));
    let (writes, puts) = (world.host.writes, world.agent.route_summary().puts);
    world.pass(Duration::from_secs(600));
    assert_eq!(
        (world.host.writes, world.agent.route_summary().puts),
        (writes, puts)
    );
}
