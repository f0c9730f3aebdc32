//! Real packets at host endpoints: to the host, of the host, and through it. One rule for each kind of
//! condition at each hook, with packets that match it and do not; then generated datastores.
//!
//! Another table of the kernel translates the addresses of a service. It also sets the bit of the mark that
//! Felix uses, on all packets.

#[path = "hosts/layouts.rs"]
mod layouts;
#[path = "hosts/traffic.rs"]
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rule_audit::Fabric;
use rule_audit::evaluator::HostHook::Forward;
use rule_audit::packet::state;
use serde_json::json;

use super::common::PREFIX;
use super::draw::Draw;
use super::evaluated::{Reached, Services};
use super::wires::{HOST, HOST_ASIDE, addresses};
use super::{Lab, Plan, STORES, Stored, is_long, stores};
use crate::readback::fabric;
use crate::world::{lab, run};
use layouts::LAYOUTS;
pub(super) use traffic::at_link;
use traffic::{SERVICE, any_probe};

/// First packets of connections for each generated datastore.
const DRAWN: usize = 60;
/// Further packets of connections through the host.
const LATER: usize = 8;

/// Returns the service: for each port the address and port of an endpoint.
fn services() -> Services {
    let mut services = Services::new();
    for (is_v6, service) in SERVICE.iter().enumerate() {
        let of_workload = addresses(1)[is_v6].clone();
        let far = ["10.65.2.9", "fd65::2:9"][is_v6].to_owned();
        let side = ["203.0.113.8", "2001:db8:2::8"][is_v6].to_owned();
        let own = HOST[is_v6].to_owned();
        for (port, to, number) in [
            (53, own, 8081),
            (80, of_workload, 8080),
            (81, side, 79),
            (8080, far, 80),
        ] {
            for protocol in [6, 17] {
                let key = (service.parse().unwrap(), protocol, port);
                services.insert(key, (to.parse().unwrap(), number));
            }
        }
    }
    services
}

/// Lets the kernel translate the service, and sets the bit of the mark that Felix uses.
fn translate(services: &Services) {
    for (service, next_hop) in SERVICE.iter().zip(["10.0.0.1", "fd00::1"]) {
        run(&format!("ip route add {service} via {next_hop} dev uplink"));
    }
    run("nft add table inet other");
    for (chain, hook) in [("arriving", "prerouting"), ("own", "output")] {
        let kind = "{ type nat hook HOOK priority -100 ; }".replace("HOOK", hook);
        run(&format!("nft add chain inet other {chain} {kind}"));
        let kind = "{ type filter hook HOOK priority -310 ; }".replace("HOOK", hook);
        run(&format!("nft add chain inet other {chain}-mark {kind}"));
        run(&format!(
            "nft add rule inet other {chain}-mark meta mark set 0x10000"
        ));
        for ((service, protocol, port), (to, number)) in services {
            let protocol = if *protocol == 6 { "tcp" } else { "udp" };
            let (family, to) = match to {
                IpAddr::V4(to) => ("ip", to.to_string()),
                IpAddr::V6(to) => ("ip6", format!("[{to}]")),
            };
            run(&format!(
                "nft add rule inet other {chain} {family} daddr {service} {protocol} dport {port} \
                 dnat {family} to {to}:{number}"
            ));
        }
    }
}

/// Returns the fabric, with the interfaces of the host.
fn located(store: &Stored) -> Fabric {
    let mut fabric = fabric(store);
    let own = |list: [&str; 2]| -> BTreeSet<IpAddr> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    };
    let interfaces = [("uplink", own(HOST)), ("side", own(HOST_ASIDE))];
    let interfaces = interfaces.map(|(name, own)| (name.to_owned(), own));
    fabric.locate(&BTreeMap::from(interfaces));
    fabric
}

/// Adds host endpoints of all kinds to a generated datastore, and gives its policies purposes.
fn add_hosts(store: &mut Stored, draw: &mut Draw) {
    for (key, value) in store.iter_mut() {
        if !key.contains("/globalnetworkpolicies/") {
            continue;
        }
        let purposes: &[&str] = draw.of(&[
            &[][..],
            &["applyOnForward"][..],
            &["preDNAT", "applyOnForward"],
            &["doNotTrack", "applyOnForward"],
        ]);
        for purpose in purposes {
            value["spec"][purpose] = true.into();
        }
        if purposes.contains(&"preDNAT") {
            value["spec"]["types"] = json!(["Ingress"]);
            value["spec"]["egress"] = json!([]);
        }
    }
    let labels = [
        json!({"app": "web"}),
        json!({"app": "db", "x/role": "a"}),
        json!({"x/role": "b-a"}),
        json!({}),
    ];
    let profiles = [
        json!([]),
        json!(["kns.prod"]),
        json!(["projectcalico-default-allow"]),
    ];
    for (name, interface, addresses) in [
        ("a-named", Some("side"), json!([])),
        ("b-addressed", None, json!(HOST)),
        ("c-all", Some("*"), json!([])),
    ] {
        if draw.below(3) == 0 {
            continue;
        }
        let mut spec = json!({"node": "n1", "expectedIPs": addresses,
            "profiles": profiles[draw.below(profiles.len())],
            "ports": [{"name": "http", "protocol": "TCP", "port": 81}]});
        if let Some(interface) = interface {
            spec["interfaceName"] = interface.into();
        }
        let labels = &labels[draw.below(labels.len())];
        let value = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        store.insert(format!("{PREFIX}hostendpoints/{name}"), value);
    }
}

// Promise: as felix generated_policies_decide_about_real_packets
#[test]
fn rules_of_host_endpoints_decide_about_real_packets() {
    lab("rules_of_host_endpoints_decide_about_real_packets", || {
        let mut lab = Lab::new();
        let mut draw = Draw(lab.seed);
        translate(&services());
        for layout in &LAYOUTS {
            let store = layout.store();
            let fabric = located(&store);
            lab.program(&store, &fabric);
            let mut plan = Plan::new(&fabric);
            plan.evaluator.services = services();
            layout.plan(&mut plan, &mut draw);
            let first = plan.cases.clone();
            let through = first.iter().filter(|case| {
                let mut steps = case.verdict.steps.iter();
                case.passes && steps.any(|(reached, _)| is_forwarded(reached))
            });
            for case in through.take(LATER) {
                plan.add_later(case);
            }
            let cases = std::mem::take(&mut plan.cases);
            lab.counts = super::Counts::default();
            lab.check(&cases);
            println!("{}: {:?}", layout.name, lab.counts);
            for target in layout.targets() {
                let kind = format!("{} {:?} {}", target.endpoint, target.hook, target.kind);
                let [missed, hit] = lab.counts.rules[&kind];
                assert!(missed > 0 && hit > 0, "{kind}: {:?}", lab.counts);
            }
            assert!(lab.counts.states.contains_key(&state::ESTABLISHED));
        }
    });
}

fn is_forwarded(reached: &Reached) -> bool {
    matches!(reached, Reached::Host(Forward, _))
}

// Promise: as felix generated_policies_decide_about_real_packets
#[test]
fn generated_host_endpoints_decide_about_real_packets() {
    lab("generated_host_endpoints_decide_about_real_packets", || {
        let mut lab = Lab::new();
        let mut draw = Draw(lab.seed);
        translate(&services());
        let count = STORES[is_long()];
        for mut store in stores(lab.seed, &mut draw, count) {
            add_hosts(&mut store, &mut draw);
            let fabric = located(&store);
            lab.program(&store, &fabric);
            let mut plan = Plan::new(&fabric);
            plan.evaluator.services = services();
            plan.draw_from(DRAWN, || any_probe(&mut draw));
            let cases = std::mem::take(&mut plan.cases);
            lab.check(&cases);
        }
        println!("{:?}", lab.counts);
        assert!(lab.counts.arrived + lab.counts.dropped >= count * DRAWN);
    });
}
