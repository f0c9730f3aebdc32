//! The memory for an endpoint of another host, a policy and an element of a set, as stated in
//! `docs/numbers.md`: the additional octets for twice as many of them.

#[path = "../../bgp-proto/tests/counting/mod.rs"]
mod counting;

use std::sync::Mutex;

use cambric_felix::calc::Calculator;
use cambric_felix::render::{Ruleset, Touched};
use serde_json::json;

/// Limit for an endpoint of another host with labels that other endpoints share.
const ENDPOINT: usize = 450;

/// Limit for an endpoint with unique labels.
const ENDPOINT_ALONE: usize = 1_400;

/// Limit for an endpoint with shared labels while a pool uses VXLAN.
const ENDPOINT_OF_OVERLAY: usize = 550;

/// Limit for an element of a set, in the index and in the wanted and the written packet filter together.
const ELEMENT: usize = 60;

/// Limit for a policy in use with one rule and one selector, in the same places.
const POLICY: usize = 8_500;

const POOL: &str = "/calico/resources/v3/projectcalico.org/ippools/a";
const PREFIX: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/prod/";
const POLICIES: &str = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/";

/// Returns the octets held for this many endpoints.
fn held(endpoints: usize, labels_of: fn(usize) -> usize, mode: &str) -> usize {
    let before = counting::live();
    let mut calculator = Calculator::new("here", None);
    let pool = json!({"spec": {"cidr": "10.1.0.0/16", "vxlanMode": mode}}).to_string();
    assert_eq!(calculator.change(POOL, Some(pool.as_bytes())), None);
    drop(pool);
    for n in 0..endpoints {
        let key = format!("{PREFIX}node{0}-k8s-web--{n}-eth0", n / 50);
        let value = json!({
            "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": format!("node{0}-k8s-web--{n}-eth0", n / 50), "namespace": "prod",
                "labels": {"app": "web", "pod-template-hash": format!("{:010}", labels_of(n)),
                    "projectcalico.org/namespace": "prod", "projectcalico.org/orchestrator": "k8s"}},
            "spec": {"orchestrator": "k8s", "workload": "", "node": format!("node{}", n / 50),
                "pod": format!("web-{n}"), "endpoint": "eth0", "interfaceName": format!("cali{n}"),
                "ipNetworks": [format!("10.{}.{}.{}/32", 65 + n / 65_536, n / 256 % 256, n % 256)],
                "profiles": ["kns.prod", "ksa.prod.default"]},
        });
        let problem = calculator.change(&key, Some(value.to_string().as_bytes()));
        assert_eq!(problem, None);
    }
    drop(calculator.recompute());
    let held = counting::live().wrapping_sub(before);
    drop(calculator);
    assert_eq!(counting::live(), before, "all is given back");
    held
}

#[test]
fn an_endpoint_of_another_host_costs_little() {
    let _alone = ALONE.lock().unwrap();
    for (labels_of, mode, bound) in [
        ((|n| n / 20) as fn(usize) -> usize, "Never", ENDPOINT),
        (|n| n, "Never", ENDPOINT_ALONE),
        (|n| n / 20, "Always", ENDPOINT_OF_OVERLAY),
    ] {
        let each = (held(8_000, labels_of, mode) - held(4_000, labels_of, mode)) / 4_000;
        println!("{each} octets of at most {bound}");
        assert!(each <= bound, "{each} octets");
    }
}

/// Returns the octets held for policies that an endpoint of this host uses, and of which each selects so
/// many endpoints of other hosts.
fn held_by_policies(policies: usize, members: usize) -> usize {
    let before = counting::live();
    let mut calculator = Calculator::new("here", None);
    let mut put = |key: String, value: serde_json::Value| {
        assert_eq!(
            calculator.change(&key, Some(value.to_string().as_bytes())),
            None
        );
    };
    for n in 0..=members {
        let node = if n == members { "here" } else { "node" };
        let name = format!("{node}-k8s-web--{n}-eth0");
        let value = json!({
            "metadata": {"name": name, "namespace": "prod", "labels": {"app": "web"}},
            "spec": {"orchestrator": "k8s", "node": node, "pod": format!("web-{n}"),
                "endpoint": "eth0", "interfaceName": format!("cali{n}"),
                "ipNetworks": [format!("10.65.{}.{}/32", n / 256, n % 256)]},
        });
        put(format!("{PREFIX}{name}"), value);
    }
    for n in 0..policies {
        let name = format!("p{n}");
        let source = json!({"selector": format!("app == 'web' && !has(a{n})")});
        let value = json!({"metadata": {"name": name}, "spec": {"order": n, "selector": "has(app)",
            "types": ["Ingress"],
            "ingress": [{"action": "Allow", "protocol": "TCP", "source": source,
                "destination": {"ports": [8080]}}]}});
        put(format!("{POLICIES}{name}"), value);
    }
    let touched = calculator.recompute().rules;
    let mut written = Ruleset::default();
    let wanted = calculator.desired().rules();
    written.follow(wanted, &touched, &Touched::default());
    let sets = written.sets.iter();
    let sets = sets.filter(|(name, _)| name.starts_with("cali40s"));
    assert_eq!(sets.count(), policies);
    drop(touched);
    let held = counting::live().wrapping_sub(before);
    drop((calculator, written));
    assert_eq!(counting::live(), before, "all is given back");
    held
}

/// The counted octets are those of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn policy_and_element_of_a_set_cost_little() {
    let _alone = ALONE.lock().unwrap();
    let more = |policies| held_by_policies(policies, 4_000) - held_by_policies(policies, 2_000);
    let element = (more(20) - more(0)) / (20 * 2_000);
    let policy = (held_by_policies(400, 1) - held_by_policies(200, 1)) / 200;
    println!("{element} octets of at most {ELEMENT}, {policy} of at most {POLICY}");
    assert!(element <= ELEMENT, "{element} octets");
    assert!(policy <= POLICY, "{policy} octets");
}
