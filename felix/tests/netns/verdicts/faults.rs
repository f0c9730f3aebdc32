//! A fault at each request of an agent to a real kernel: an error, an error for a request that the kernel
//! has carried out, and the end of the agent. In the end the kernel has the wanted state and nothing else,
//! and in between no packet arrives that neither the old nor the new policies allow. Needs root and
//! `CAMBRIC_LAB=1`.
//!
//! The agent and the parts that act on the kernel are those of the program. Only the loop between them is
//! the test's: it counts the requests. Its time is virtual, so no retry waits.

#[path = "faults/driver.rs"]
mod driver;
#[path = "faults/state.rs"]
mod state;

use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::common::PREFIX;
use super::directed::endpoints;
use super::draw::Draw;
use super::evaluated::Evaluator;
use super::probe::{Probe, Tracked};
use super::wires::{Party, Wires};
use super::{Stored, everyone};
use crate::readback::{fabric, listing};
use crate::world::host::Host;
use crate::world::{lab, run, try_run};
use cambric_felix::apply::conntrack;
use driver::{Fault, Run};
use state::State;

/// Minimum number of requests of each change.
const REQUESTS_MIN: usize = 3;
/// Packets that are sent after an agent has ended.
const PROBES: usize = 12;
/// Packets that are drawn to find them.
const CANDIDATES: usize = 400;

/// A host with workloads, and a change of its datastore.
struct Change {
    wires: Wires,
    runtime: Runtime,
    numbers: u32,
    /// `None`: the host has no state of an earlier agent.
    old: Option<Stored>,
    new: Stored,
    wanted: State,
    /// Packets that neither datastore allows.
    probes: Vec<(Party, Probe)>,
    // Its links exist as long as it.
    _host: Host,
}

/// Returns a datastore with endpoints, a policy, a limit of bandwidth, and an overlay.
fn store(port: u16, nodes: &[u8]) -> Stored {
    let mut store = endpoints();
    let mut put = |key: &str, spec: Value| {
        let name = key.rsplit('/').next().unwrap();
        let value = json!({"metadata": {"name": name}, "spec": spec});
        store.insert(format!("{PREFIX}{key}"), value);
    };
    let rules = json!([{"action": "Allow", "protocol": "TCP", "destination": {"ports": [port]}}]);
    put(
        "globalnetworkpolicies/p",
        json!({"selector": "all()", "types": ["Ingress"], "ingress": rules}),
    );
    put(
        "ippools/a",
        json!({"cidr": "10.66.0.0/16", "vxlanMode": "Always"}),
    );
    for n in nodes {
        put(
            &format!("nodes/n{n}"),
            json!({"bgp": {"ipv4Address": format!("10.0.0.{}/24", 10 + n)},
                "ipv4VXLANTunnelAddr": format!("10.66.{n}.0")}),
        );
    }
    for n in nodes {
        let block = format!("/calico/ipam/v2/host/n{n}/ipv4/block/10.66.{n}.0-26");
        store.insert(block, json!({}));
    }
    let limited = format!("{PREFIX}workloadendpoints/prod/n1-k8s-p1-eth0");
    let limited = store.get_mut(&limited).unwrap();
    limited["spec"]["qosControls"] = json!({"egressBandwidth": 8_000_000});
    store
}

impl Change {
    fn new(old: Option<Stored>, new: Stored) -> Self {
        let host = Host::with(async || {
            std::sync::Arc::new(etcd_lite::Local::empty())
                as std::sync::Arc<dyn calico_store::Store>
        });
        let wires = Wires::new();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        state::clean();
        let mut own = Self {
            wires,
            runtime,
            numbers: 0,
            old,
            new,
            wanted: State::default(),
            probes: Vec::new(),
            _host: host,
        };
        let mut first = Run::new(&own.runtime, &own.new, None);
        first.until_quiet(&own.runtime);
        let report = rule_audit::audit(&fabric(&own.new), &listing());
        assert!(report.is_equal(), "{report:#?}");
        own.wanted = State::read();
        drop(first);
        own.probes = own.denied();
        own
    }

    /// Returns packets that neither datastore allows, and that arrive without rules.
    fn denied(&mut self) -> Vec<(Party, Probe)> {
        let new = fabric(&self.new);
        let old = self.old.as_ref().map(fabric);
        let mut evaluators: Vec<Evaluator<'_>> =
            old.iter().chain([&new]).map(Evaluator::new).collect();
        let exists = |store: &Stored, party: Party| match party {
            Party::Workload(n) => store.keys().any(|key| {
                key.contains("workloadendpoints") && key.contains(&format!("n1-k8s-p{n}-"))
            }),
            _ => true,
        };
        let mut draw = Draw(1);
        let mut all: Vec<(Party, Probe)> = Vec::new();
        for _ in 0..CANDIDATES {
            let (sender, probe) = draw.probe();
            let ends = [sender, Party::of(probe.from), Party::of(probe.to)];
            let mut stores = self.old.iter().chain([&self.new]);
            let is_known = stores.all(|store| ends.iter().all(|end| exists(store, *end)));
            let mut denies = |evaluator: &mut Evaluator<'_>| {
                let verdict = evaluator.verdict(sender, &probe, &Tracked::default());
                verdict.passes == Some(false)
            };
            if is_known && evaluators.iter_mut().all(&mut denies) {
                all.push((sender, probe));
            }
        }
        drop(evaluators);
        run("nft delete table inet cambric-felix");
        let arrived = self.arrived(&all);
        let mut denied: Vec<(Party, Probe)> = all
            .into_iter()
            .zip(arrived)
            .filter_map(|(probe, has_arrived)| has_arrived.then_some(probe))
            .collect();
        assert!(denied.len() >= PROBES, "{} denied packets", denied.len());
        denied.truncate(PROBES);
        denied
    }

    /// Sends packets, and returns which of them arrive. A later one has arrived then.
    fn arrived(&mut self, probes: &[(Party, Probe)]) -> Vec<bool> {
        conntrack::flush(&everyone()).unwrap();
        let first = self.numbers + 1;
        for (number, (sender, probe)) in (first..).zip(probes) {
            self.wires.send(*sender, &probe.octets(number), probe.to);
        }
        self.numbers += u32::try_from(probes.len()).unwrap();
        let arrived = self.wires.arrived();
        let mut numbers = (first..).zip(probes);
        numbers
            .by_ref()
            .map(|(number, (_, probe))| arrived[&Party::of(probe.to)].contains(&number))
            .collect()
    }

    /// Brings the host to the old datastore, and changes it with a fault.
    fn start(&self, fault: Option<(Fault, usize)>) -> Run {
        state::clean();
        match &self.old {
            None => Run::new(&self.runtime, &self.new, fault),
            Some(old) => {
                let mut run = Run::new(&self.runtime, old, None);
                run.until_quiet(&self.runtime);
                run.change(old, &self.new, fault);
                run
            }
        }
    }

    /// Runs an agent until the kernel has the wanted state.
    fn reach(&self, run: &mut Run, at: &str) {
        run.until(&self.runtime, at, || {
            let state = State::read();
            state.difference(&self.wanted)
        });
        let report = rule_audit::audit(&fabric(&self.new), &listing());
        assert!(report.is_equal(), "{at}: {report:#?}");
    }

    /// Repeats the change with a fault at each request.
    fn with_faults(&mut self, fault: Fault) -> usize {
        for number in 1.. {
            let at = format!("{fault:?} at request {number}");
            let mut run = self.start(Some((fault, number)));
            if fault != Fault::Killed {
                self.reach(&mut run, &at);
                if run.requests() < number {
                    return number - 1;
                }
                continue;
            }
            let is_killed = run.until_killed(&self.runtime);
            let requests = run.requests();
            drop(run);
            self.assert_closed(&at);
            let mut next = Run::new(&self.runtime, &self.new, None);
            self.reach(&mut next, &at);
            drop(next);
            self.assert_closed(&at);
            if !is_killed {
                return requests;
            }
        }
        unreachable!("each change ends")
    }

    /// Checks that no denied packet arrives, if there are rules.
    fn assert_closed(&mut self, at: &str) {
        let has_rules = try_run("nft list table inet cambric-felix")
            .status
            .success();
        if !has_rules {
            assert!(self.old.is_none(), "{at}: the rules are removed");
            return;
        }
        let probes = self.probes.clone();
        let arrived = self.arrived(&probes);
        for ((sender, probe), has_arrived) in probes.iter().zip(arrived) {
            assert!(!has_arrived, "{at}: {probe} from {sender:?} arrives");
        }
    }

    fn check(&mut self, requests_min: usize) {
        for fault in Fault::ALL {
            let requests = self.with_faults(fault);
            println!("{fault:?}: {requests} requests");
            assert!(requests >= requests_min, "{requests} requests");
        }
    }
}

// Promise: as felix first_programming_survives_a_fault_at_each_request
#[test]
fn first_start_on_a_kernel_survives_a_fault_at_each_request() {
    lab(
        "first_start_on_a_kernel_survives_a_fault_at_each_request",
        || Change::new(None, store(80, &[1, 2, 3])).check(4 * REQUESTS_MIN),
    );
}

// Promise: as felix first_programming_survives_a_fault_at_each_request
#[test]
fn policy_change_on_a_kernel_survives_a_fault() {
    lab("policy_change_on_a_kernel_survives_a_fault", || {
        let old = store(80, &[1, 2, 3]);
        let mut new = store(443, &[1, 2, 3]);
        let key = format!("{PREFIX}networkpolicies/prod/q");
        let spec = json!({"selector": "app == 'web'", "types": ["Ingress", "Egress"],
            "ingress": [{"action": "Deny", "source": {"selector": "app == 'db'"}}],
            "egress": [{"action": "Allow", "destination": {"nets": ["10.65.0.0/16"]}}]});
        new.insert(key, json!({"metadata": {"name": "q"}, "spec": spec}));
        Change::new(Some(old), new).check(1);
    });
}

// Promise: as felix first_programming_survives_a_fault_at_each_request
#[test]
fn changes_of_all_kinds_on_a_kernel_survive_a_fault() {
    lab("changes_of_all_kinds_on_a_kernel_survive_a_fault", || {
        let old = store(80, &[1, 2, 3]);
        let mut new = store(443, &[1, 2, 4]);
        let endpoint = |n: u8| format!("{PREFIX}workloadendpoints/prod/n1-k8s-p{n}-eth0");
        assert!(new.remove(&endpoint(1)).is_some());
        let other = new.get_mut(&endpoint(2)).unwrap();
        other["spec"]["qosControls"] = json!({"egressBandwidth": 16_000_000});
        Change::new(Some(old), new).check(4 * REQUESTS_MIN);
    });
}

// Promise: as felix first_programming_survives_a_fault_at_each_request
#[test]
fn deleted_endpoint_on_a_kernel_survives_a_fault() {
    lab("deleted_endpoint_on_a_kernel_survives_a_fault", || {
        let old = store(80, &[1, 2, 3]);
        let mut new = old.clone();
        let key = format!("{PREFIX}workloadendpoints/prod/n1-k8s-p1-eth0");
        assert!(new.remove(&key).is_some());
        Change::new(Some(old), new).check(REQUESTS_MIN);
    });
}

// Promise: as felix first_programming_survives_a_fault_at_each_request
#[test]
fn deleted_node_on_a_kernel_survives_a_fault() {
    lab("deleted_node_on_a_kernel_survives_a_fault", || {
        let old = store(80, &[1, 2, 3]);
        let new = store(80, &[1, 2]);
        Change::new(Some(old), new).check(REQUESTS_MIN);
    });
}
