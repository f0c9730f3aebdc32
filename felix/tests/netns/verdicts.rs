//! Real packets under generated policies, against an evaluation of the datastore that shares no code with
//! Felix. Needs root and `CAMBRIC_LAB=1`.
//!
//! A packet that does not arrive is recognized by a later one that does: see [`wires`].

#[path = "verdicts/changed.rs"]
mod changed;
#[path = "verdicts/directed.rs"]
mod directed;
#[path = "verdicts/draw.rs"]
mod draw;
#[path = "verdicts/evaluated.rs"]
mod evaluated;
#[path = "verdicts/faults.rs"]
mod faults;
#[path = "verdicts/guarded.rs"]
mod guarded;
#[path = "verdicts/hosts.rs"]
mod hosts;
#[path = "verdicts/probe.rs"]
mod probe;
#[path = "verdicts/wires.rs"]
mod wires;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cambric_felix::apply::conntrack;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rule_audit::packet::state;
use serde_json::json;

use crate::readback::{Stored, common, fabric, program_as};
use crate::world::host::{Host, mac};
use crate::world::{lab, run, try_run};
use directed::Directed;
use draw::Draw;
use evaluated::{Evaluator, Verdict};
use probe::{Kind, Probe, Tracked, Tuple, reverse};
use wires::{ASIDE, HOST, HOST_ASIDE, HOST_OTHER, Party, WORKLOADS, Wires, addresses, wait_up};

/// Number of generated datastores in a run of all tests, and in a long run.
const STORES: [usize; 2] = [8, 60];
/// First packets of connections for each of them.
const FIRST_PACKETS: usize = 40;
/// Packets that are drawn for them, so that each rule decides about some.
const CANDIDATES: usize = 3000;
/// First packets with the same decisions, as long as there are others.
const SAME_DECISIONS: usize = 2;
/// Packets that the queues of the kernel contain at the same time.
const BATCH: usize = 50;

/// A packet that is sent, and its correct treatment.
#[derive(Clone, Debug)]
struct Case {
    sender: Party,
    probe: Probe,
    verdict: Verdict,
    passes: bool,
    /// The kind of the rule that it is about, and whether this rule matches.
    rule: Option<(String, bool)>,
}

/// The packets for one datastore.
struct Plan<'f> {
    evaluator: Evaluator<'f>,
    tracked: Tracked,
    used: BTreeSet<Tuple>,
    cases: Vec<Case>,
}

impl<'f> Plan<'f> {
    fn new(fabric: &'f rule_audit::Fabric) -> Self {
        Self {
            evaluator: Evaluator::new(fabric),
            tracked: Tracked::default(),
            used: BTreeSet::new(),
            cases: Vec::new(),
        }
    }

    /// Returns the case of the first packet of a connection, unless there was a packet of this connection
    /// already, or both treatments are correct.
    fn case(&mut self, sender: Party, probe: &Probe) -> Option<Case> {
        let is_used = self.tuples(probe).any(|tuple| self.used.contains(&tuple));
        let case = (!is_used).then(|| self.next(sender, probe));
        case.flatten()
    }

    /// Returns the connection of a packet, before and after the translation of its destination.
    fn tuples(&self, probe: &Probe) -> impl Iterator<Item = Tuple> + use<> {
        let both = [Some(*probe), self.evaluator.translated(probe)];
        let both = both.into_iter().flatten();
        both.map(|probe| probe.tuple().canonical(reverse(&probe)))
    }

    /// Returns the case of a packet in the present state of its connection.
    fn next(&mut self, sender: Party, probe: &Probe) -> Option<Case> {
        let verdict = self.evaluator.verdict(sender, probe, &self.tracked);
        let passes = verdict.passes?;
        Some(Case {
            sender,
            probe: *probe,
            verdict,
            passes,
            rule: None,
        })
    }

    fn add(&mut self, case: Case) {
        let tuples = self.tuples(&case.probe);
        self.used.extend(tuples);
        if case.passes && case.verdict.state != state::UNTRACKED {
            self.tracked.add(&case.probe);
        }
        self.cases.push(case);
    }

    /// Adds the answer to a packet, and the packet after it.
    fn add_later(&mut self, first: &Case) {
        let (sender, receiver) = (first.sender, first.verdict.receiver);
        // The host answers by itself.
        let answers_itself = sender == Party::Host && !matches!(first.probe.kind, Kind::Udp);
        let is_claimed = Party::of(first.probe.from) != sender;
        let is_translated = self.evaluator.translated(&first.probe).is_some();
        if receiver == Party::Host || answers_itself || is_claimed || is_translated {
            return;
        }
        let Some(answer) = first.probe.answer() else {
            return;
        };
        let Some(case) = self.next(receiver, &answer) else {
            return;
        };
        let goes_on = first.passes && case.passes;
        self.add(case);
        if goes_on && let Some(case) = self.next(sender, &first.probe.later()) {
            self.add(case);
        }
    }

    /// Draws packets that different rules decide about.
    fn draw_from(&mut self, count: usize, mut draw: impl FnMut() -> (Party, Probe)) {
        let mut decisions: BTreeMap<_, usize> = BTreeMap::new();
        let mut others = Vec::new();
        let mut left = count;
        for _ in 0..CANDIDATES {
            let (sender, probe) = draw();
            let Some(case) = self.case(sender, &probe) else {
                continue;
            };
            let key = (case.passes, format!("{:?}", case.verdict.steps));
            let count = decisions.entry(key).or_default();
            *count += 1;
            if *count > SAME_DECISIONS {
                others.push(case);
            } else if left > 0 {
                left -= 1;
                self.add(case.clone());
                self.add_later(&case);
            }
        }
        for case in others {
            // A connection of the packets above may be the same.
            let again = self.case(case.sender, &case.probe);
            if let (Some(case), true) = (again, left > 0) {
                left -= 1;
                self.add(case);
            }
        }
        assert_eq!(left, 0, "too few different packets were drawn");
    }
}

/// The number of packets that arrived, and of those that did not.
#[derive(Debug, Default)]
struct Counts {
    arrived: usize,
    dropped: usize,
    /// By the kind of the rule: not matched, matched.
    rules: BTreeMap<String, [usize; 2]>,
    /// By state.
    states: BTreeMap<u128, usize>,
}

/// The world, with the datastore that Felix has programmed.
struct Lab {
    host: Host,
    wires: Wires,
    stored: Stored,
    numbers: u32,
    counts: Counts,
    seed: u64,
}

impl Lab {
    fn new() -> Self {
        let seed = std::env::var("CAMBRIC_SEED");
        let seed = seed.map_or(1, |text| text.parse().expect("a number"));
        println!("CAMBRIC_SEED={seed}");
        let host = Host::new();
        let wires = Wires::new();
        Self {
            host,
            wires,
            stored: Stored::new(),
            numbers: 0,
            counts: Counts::default(),
            seed,
        }
    }

    /// Programs a datastore, and removes all connections.
    fn program(&mut self, store: &Stored, fabric: &rule_audit::Fabric) {
        program_as(&self.host, &self.stored, store, fabric);
        wait_up(&self.host);
        // The kernel has published all sets when another transaction is done.
        try_run("nft --check add table inet published");
        conntrack::flush(&everyone()).unwrap();
        self.stored.clone_from(store);
    }

    /// Sends all packets, and compares their treatment.
    fn check(&mut self, cases: &[Case]) {
        for batch in cases.chunks(BATCH) {
            let first = self.numbers;
            for (number, case) in (first..).zip(batch) {
                self.wires
                    .send(case.sender, &case.probe.octets(number), case.probe.to);
            }
            self.numbers += u32::try_from(batch.len()).unwrap();
            let arrived = self.wires.arrived();
            for numbers in arrived.values() {
                let late = numbers.iter().find(|number| **number < first);
                assert_eq!(
                    late, None,
                    "a packet arrived behind the last one of its batch"
                );
            }
            for (number, case) in (first..).zip(batch) {
                let own = &arrived[&case.verdict.receiver];
                let (passes, wanted) = (own.contains(&number), case.passes);
                assert_eq!(passes, wanted, "{}", self.explain(case));
                self.count(case);
            }
        }
    }

    fn count(&mut self, case: &Case) {
        match case.passes {
            true => self.counts.arrived += 1,
            false => self.counts.dropped += 1,
        }
        *self.counts.states.entry(case.verdict.state).or_default() += 1;
        if let Some((kind, is_hit)) = &case.rule {
            let counts = self.counts.rules.entry(kind.clone()).or_default();
            counts[usize::from(*is_hit)] += 1;
        }
    }

    fn explain(&self, case: &Case) -> String {
        let stored = serde_json::to_string_pretty(&self.stored).unwrap();
        let rules = run("nft --stateless list table inet cambric-felix");
        format!(
            "whether the packet arrives\nCAMBRIC_SEED={}\n{}\n{case:#?}\n{stored}\n{rules}",
            self.seed, case.probe
        )
    }
}

/// Returns addresses of which each connection has one.
fn everyone() -> BTreeSet<IpAddr> {
    let own = (1..=WORKLOADS).flat_map(addresses);
    let others = [&HOST[..], &HOST_ASIDE, &HOST_OTHER, &ASIDE.concat()].concat();
    let all = own.chain(others.into_iter().map(str::to_owned));
    all.map(|address| address.parse().unwrap()).collect()
}

/// Returns 1 in a run of `make soak`, otherwise 0.
fn is_long() -> usize {
    usize::from(std::env::var("CAMBRIC_SOAK").is_ok())
}

/// Returns generated datastores. The link-layer addresses of the workloads are known, so that no packet
/// waits for them.
fn stores(seed: u64, draw: &mut Draw, count: usize) -> Vec<Stored> {
    let mut octets = [0; 32];
    octets[..8].copy_from_slice(&seed.to_be_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &octets);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = common::store();
    let stores = (0..count).map(|_| {
        let mut store = strategy.new_tree(&mut runner).unwrap().current();
        let endpoints = store
            .values_mut()
            .filter(|value| value["spec"]["node"] == common::NODE);
        for endpoint in endpoints.filter(|value| value["spec"]["ipNetworks"].is_array()) {
            let name = endpoint["spec"]["interfaceName"].as_str().unwrap();
            let n = name.trim_start_matches("cali").parse().unwrap();
            endpoint["spec"]["mac"] = mac(n).into();
            if draw.below(2) == 0 {
                endpoint["spec"]["allowSpoofedSourcePrefixes"] =
                    json!(["192.0.2.0/24", "2001:db8::/64"]);
            }
        }
        let spec = json!({
            "defaultEndpointToHostAction": draw.of(&["Drop", "Accept", "Return"]),
            "workloadSourceSpoofing": draw.of(&["Disabled", "Any"]),
        });
        let key = format!("{}felixconfigurations/default", common::PREFIX);
        store.insert(key, json!({"metadata": {"name": "default"}, "spec": spec}));
        store
    });
    stores.collect()
}

// Promise (Felix): Real packets meet the decision that an independent evaluation of the stored policies
// makes.
#[test]
fn generated_policies_decide_about_real_packets() {
    lab("generated_policies_decide_about_real_packets", || {
        let mut lab = Lab::new();
        let mut draw = Draw(lab.seed);
        let count = STORES[is_long()];
        for store in stores(lab.seed, &mut draw, count) {
            let fabric = fabric(&store);
            lab.program(&store, &fabric);
            let mut plan = Plan::new(&fabric);
            plan.draw_from(FIRST_PACKETS, || draw.probe());
            let cases = std::mem::take(&mut plan.cases);
            lab.check(&cases);
        }
        println!("{:?}", lab.counts);
        assert!(lab.counts.arrived + lab.counts.dropped >= count * FIRST_PACKETS);
    });
}

// Promise: as felix generated_policies_decide_about_real_packets
#[test]
fn conditions_decide_about_packets_that_match_or_not() {
    lab("conditions_decide_about_packets_that_match_or_not", || {
        let mut lab = Lab::new();
        let mut draw = Draw(lab.seed);
        for is_egress in [false, true] {
            let directed = Directed::new(is_egress);
            let fabric = fabric(&directed.store);
            lab.program(&directed.store, &fabric);
            let mut plan = Plan::new(&fabric);
            directed.plan(&mut plan, &mut draw);
            let cases = std::mem::take(&mut plan.cases);
            lab.counts = Counts::default();
            lab.check(&cases);
            println!("{:?}", lab.counts);
            for kind in directed.kinds() {
                let [missed, hit] = lab.counts.rules[kind];
                assert!(missed > 0 && hit > 0, "{kind}: {:?}", lab.counts);
            }
        }
    });
}
