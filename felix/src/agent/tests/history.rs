//! After any history, an agent reaches the same state as one that starts with the final data.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;

const INTERFACES: [&str; 4] = ["cali1", "cali2", "tap3", "veth4"];
const ADDRESSES: [&str; 4] = [
    "10.65.0.1/32",
    "10.65.0.2/32",
    "10.65.0.3/32",
    "fd65::1/128",
];
const SETTINGS: &str = "/calico/resources/v3/projectcalico.org/felixconfigurations/default";

/// An event.
#[derive(Clone, Debug)]
enum Act {
    Endpoint(usize, usize, Vec<&'static str>),
    Unreadable(usize),
    Gone(usize),
    Settings(bool, &'static str),
    /// An interface appears and is up, with or without carrier.
    Comes(usize, bool),
    /// It goes down, or up again.
    Up(usize, bool),
    Goes(usize),
    Renamed(usize, usize),
    RefuseRules(bool),
    RefuseInterface(bool),
    RefuseRoute(bool),
    /// Connections are deleted late, or at once.
    ForgetLate(bool),
    /// The host carries out nothing, or everything that is queued.
    Stall(bool),
    /// The datastore is unreachable, or was read in full.
    Store(bool),
    Overrun,
    Pass(u64),
}

fn any_act() -> impl Strategy<Value = Act> {
    let interface = || 0..INTERFACES.len();
    let addresses = prop::sample::subsequence(ADDRESSES.to_vec(), 0..=2);
    prop_oneof![
        6 => (0..4_usize, interface(), addresses).prop_map(|(n, i, a)| Act::Endpoint(n, i, a)),
        1 => (0..4_usize).prop_map(Act::Unreadable),
        2 => (0..4_usize).prop_map(Act::Gone),
        1 => (any::<bool>(), prop::sample::select(vec!["cali", "cali,tap", "veth"]))
            .prop_map(|(ipv6, prefixes)| Act::Settings(ipv6, prefixes)),
        4 => (interface(), any::<bool>()).prop_map(|(i, up)| Act::Comes(i, up)),
        2 => (interface(), any::<bool>()).prop_map(|(i, up)| Act::Up(i, up)),
        2 => interface().prop_map(Act::Goes),
        1 => (interface(), interface()).prop_map(|(from, to)| Act::Renamed(from, to)),
        1 => any::<bool>().prop_map(Act::RefuseRules),
        1 => any::<bool>().prop_map(Act::RefuseInterface),
        1 => any::<bool>().prop_map(Act::RefuseRoute),
        1 => any::<bool>().prop_map(Act::ForgetLate),
        2 => any::<bool>().prop_map(Act::Stall),
        1 => any::<bool>().prop_map(Act::Store),
        1 => Just(Act::Overrun),
        2 => (0..40_000_u64).prop_map(Act::Pass),
    ]
}

/// A world, the content of its datastore, and the last reported states of its endpoints.
struct History {
    world: World,
    stored: BTreeMap<String, Option<String>>,
    views: BTreeMap<String, (EndpointState, Option<String>)>,
}

impl History {
    fn new() -> Self {
        Self {
            world: World::new(),
            stored: BTreeMap::new(),
            views: BTreeMap::new(),
        }
    }

    fn change(&mut self, key: &str, value: Option<String>) {
        let octets = value.as_ref().map(String::as_bytes);
        self.world.agent.change(key, octets);
        self.stored.insert(key.to_owned(), value);
    }

    fn link(&self, interface: usize) -> Option<u32> {
        let kernel = self.world.kernel.borrow();
        kernel.link(INTERFACES[interface]).map(|link| link.index)
    }

    /// Removes neighbor entries as the kernel does with a link that goes down.
    fn drop_entries(&mut self, index: u32) {
        let host = &mut self.world.host;
        host.neighbors.retain(|entry| entry.interface != index);
        host.down.insert(index);
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Endpoint(n, interface, addresses) => {
                let pod = format!("p{n}");
                let value = json!({"spec": {
                    "orchestrator": "k8s", "node": HOST, "pod": pod, "endpoint": "eth0",
                    "interfaceName": INTERFACES[*interface], "mac": "aa:bb:cc:00:11:22",
                    "ipNetworks": addresses, "profiles": ["projectcalico-default-allow"],
                }});
                self.change(&key(&pod), Some(value.to_string()));
            }
            Act::Unreadable(n) => self.change(&key(&format!("p{n}")), Some("{".into())),
            Act::Gone(n) => self.change(&key(&format!("p{n}")), None),
            Act::Settings(ipv6, prefixes) => {
                let spec = json!({"ipv6Support": ipv6, "interfacePrefix": prefixes});
                self.change(SETTINGS, Some(json!({ "spec": spec }).to_string()));
            }
            Act::Comes(interface, running) => {
                if self.link(*interface).is_none() {
                    let index = self.world.link(INTERFACES[*interface]);
                    self.world.kernel.borrow_mut().set_carrier(index, *running);
                }
            }
            Act::Up(interface, up) => {
                if let Some(index) = self.link(*interface) {
                    self.world.kernel.borrow_mut().set_link_up(index, *up);
                    match *up {
                        true => drop(self.world.host.down.remove(&index)),
                        false => self.drop_entries(index),
                    }
                }
            }
            Act::Goes(interface) => {
                if let Some(index) = self.link(*interface) {
                    self.world.kernel.borrow_mut().remove_link(index);
                    self.drop_entries(index);
                }
            }
            Act::Renamed(from, to) => {
                if let (Some(index), None) = (self.link(*from), self.link(*to)) {
                    let mut kernel = self.world.kernel.borrow_mut();
                    kernel.rename_link(index, INTERFACES[*to]);
                }
            }
            Act::RefuseRules(refuse) => self.world.host.refuse_rules = *refuse,
            Act::RefuseInterface(refuse) => {
                self.world.host.refuse_interface = refuse.then(|| "no".into());
            }
            Act::RefuseRoute(refuse) => {
                let prefix = ADDRESSES[0].parse().unwrap();
                let mut kernel = self.world.kernel.borrow_mut();
                kernel.refuse(prefix, refuse.then_some(1));
            }
            Act::ForgetLate(late) => self.world.host.forgets_late = *late,
            Act::Stall(stalls) => self.world.host.stalls = *stalls,
            Act::Store(true) => self.world.agent.store_in_sync(),
            Act::Store(false) => self.world.agent.store_unread(),
            Act::Overrun => {
                let attachment = self.world.fib.attachment();
                self.world.kernel.borrow_mut().overrun(attachment);
            }
            Act::Pass(ms) => self.world.pass(Duration::from_millis(*ms)),
        }
        self.world.settle();
        self.check_reports();
    }

    /// Checks that every difference was reported.
    fn check_reports(&mut self) {
        let agent = &mut self.world.agent;
        for id in agent.take_changed_states() {
            match agent.endpoint(&id) {
                Some(view) => self.views.insert(id.to_string(), (view.state, view.reason)),
                None => self.views.remove(&id.to_string()),
            };
        }
        let all = agent.endpoints();
        let all = all.map(|view| (view.id.to_string(), (view.state, view.reason)));
        assert_eq!(self.views, all.collect());
    }

    /// Ends all rejections, and lets the time for retries pass.
    fn calm(&mut self) {
        for act in [
            Act::RefuseRules(false),
            Act::RefuseInterface(false),
            Act::RefuseRoute(false),
            Act::ForgetLate(false),
            Act::Stall(false),
        ] {
            self.act(&act);
        }
        self.world.agent.store_in_sync();
        self.world.pass(Duration::from_secs(300));
        self.check_reports();
    }

    /// Returns the externally visible state, by the names of interfaces.
    fn seen(&self) -> Seen {
        let world = &self.world;
        let name = |index: u32| world.agent.link_name(index).unwrap_or("none").to_owned();
        let routes = world.routes().into_iter();
        let neighbors = world.host.neighbors.iter();
        let unclaimed = world.agent.unclaimed().map(|(name, _)| name.to_owned());
        let views = self.views.iter().map(|(id, (state, reason))| {
            // Whether an interface existed earlier depends on the history.
            let is_missing = |reason: &String| {
                reason.ends_with("does not exist") || reason.contains("has not appeared")
            };
            let missing = reason.as_ref().is_some_and(is_missing);
            let state = if missing { EndpointState::Down } else { *state };
            (id.clone(), state, reason.clone().filter(|_| !missing))
        });
        Seen {
            routes: routes
                .map(|(address, index)| (address, name(index)))
                .collect(),
            neighbors: neighbors
                .map(|entry| (name(entry.interface), entry.address))
                .collect(),
            rules: world.host.rules(),
            unclaimed: unclaimed.collect(),
            views: views.collect(),
            waits: world.agent.waiting_for().len(),
        }
    }
}

#[derive(Debug, PartialEq)]
struct Seen {
    routes: BTreeMap<String, String>,
    neighbors: BTreeSet<(String, IpAddr)>,
    rules: Option<crate::render::Ruleset>,
    unclaimed: Vec<String>,
    views: Vec<(String, EndpointState, Option<String>)>,
    waits: usize,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    // Promise (Felix): After any history, and with any delay of the kernel, Felix reaches the
    // state of a fresh start.
    #[test]
    fn earlier_history_leaves_no_trace(acts in prop::collection::vec(any_act(), 1..40)) {
        let mut old = History::new();
        old.world.in_sync();
        for act in &acts {
            old.act(act);
        }
        // The value before an unparsable one depends on the history as well.
        let unreadable: Vec<String> = old.stored.iter()
            .filter(|(_, value)| value.as_deref() == Some("{"))
            .map(|(key, _)| key.clone())
            .collect();
        for key in unreadable {
            old.change(&key, None);
        }
        old.calm();

        let mut new = History::new();
        for (nth, name) in INTERFACES.iter().enumerate() {
            let link = old.world.kernel.borrow().link(name).cloned();
            if let Some(link) = link {
                new.act(&Act::Comes(nth, link.running));
                new.act(&Act::Up(nth, link.up));
            }
        }
        for (key, value) in &old.stored {
            new.change(key, value.clone());
        }
        new.calm();
        prop_assert_eq!(old.seen(), new.seen());
    }
}
