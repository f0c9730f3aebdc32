//! An agent with a host that remembers, beside an in-memory kernel.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use fib_sync::memory::{Kernel, MemoryFib};
use fib_sync::{Fib, Instant, Link};
use model::EndpointState;
use serde_json::json;

use super::super::*;
use crate::apply::{Checked, Neighbour};
use crate::render::{Key, Ruleset, Touched, changes};

pub(super) const HOST: &str = "n1";

/// A host that remembers, and fails on demand.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) rules: Option<Ruleset>,
    /// They were written by this run, not an earlier one.
    pub(super) knows_rules: bool,
    pub(super) writes: usize,
    pub(super) edited: bool,
    pub(super) configured: BTreeMap<u32, usize>,
    pub(super) ipv6: BTreeSet<u32>,
    pub(super) neighbours: BTreeSet<Neighbour>,
    pub(super) forgotten: BTreeSet<IpAddr>,
    /// Addresses whose connections are still to be forgotten, and whether that is put off.
    pub(super) forgetting: BTreeSet<IpAddr>,
    pub(super) forgets_late: bool,
    /// There is always something to prepare, as in a store that never rests.
    pub(super) prepares: bool,
    pub(super) refuse_rules: bool,
    pub(super) refuse_interface: Option<String>,
    pub(super) refuse_host: bool,
    pub(super) hosts: usize,
}

impl Host for Fake {
    fn rules_present(&mut self) -> Result<bool, Failed> {
        Ok(self.rules.is_some())
    }

    fn write_rules(&mut self, wanted: &Ruleset, touched: &Touched) -> Result<(), Failed> {
        if self.refuse_rules {
            return Err(Failed("no nftables".into()));
        }
        let mut rules = match &self.rules {
            Some(rules) if self.knows_rules => rules.clone(),
            _ => Ruleset::default(),
        };
        let steps = changes(&rules, wanted, touched);
        self.writes += usize::from(!steps.is_empty());
        rules.follow(wanted, touched);
        // Who has one of these next does not use it yet.
        let mut in_force = wanted.clone();
        for (name, set) in &mut in_force.sets {
            let held = rules.sets.get(name).map(|set| &set.elements);
            set.elements.retain(|key, _| {
                let put_off = match key {
                    Key::InterfaceIpv4(_, address) => self.forgetting.contains(&(*address).into()),
                    Key::InterfaceIpv6(_, address) => self.forgetting.contains(&(*address).into()),
                    _ => false,
                };
                !put_off || held.is_some_and(|held| held.contains_key(key))
            });
        }
        assert_eq!(rules, in_force, "something was not touched");
        (self.rules, self.knows_rules) = (Some(rules), true);
        Ok(())
    }

    fn prepare_rules(&mut self, _: &Ruleset, _: &Touched) -> bool {
        self.prepares
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
        self.forgetting.extend(addresses);
    }

    fn take_forgotten(&mut self) -> BTreeSet<IpAddr> {
        match self.forgets_late {
            true => BTreeSet::new(),
            false => std::mem::take(&mut self.forgetting),
        }
    }
}

/// An agent with its host, beside an in-memory kernel.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) kernel: Rc<RefCell<Kernel>>,
    pub(super) fib: MemoryFib,
    pub(super) agent: Agent,
    pub(super) host: Fake,
}

impl World {
    pub(super) fn new() -> Self {
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
    pub(super) fn restart(&mut self) {
        self.agent = Agent::new(self.now, AgentConfig::new(HOST));
        self.host.knows_rules = false;
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

    /// Runs until nothing happens any more at this instant.
    pub(super) fn settle(&mut self) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..100 {
            self.agent.turn(self.now, &mut self.host);
            let mut busy = !self.host.forgets_late && !self.host.forgetting.is_empty();
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
                self.now = self.now + Duration::from_millis(1);
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

    pub(super) fn state(&self) -> (EndpointState, Option<String>) {
        let view = self.agent.endpoints().next().expect("an endpoint");
        (view.state, view.reason)
    }

    pub(super) fn guards(&self, interface: &str, address: [u8; 4]) -> bool {
        let key = Key::InterfaceIpv4(interface.into(), address.into());
        let rules = self.host.rules.as_ref().expect("rules");
        rules.sets["sources-ipv4"].elements.contains_key(&key)
    }
}

pub(super) fn key(pod: &str) -> String {
    format!("/calico/resources/v3/projectcalico.org/workloadendpoints/ns/n1-k8s-{pod}-eth0")
}
