//! The memory for an endpoint of another host, as stated in `docs/numbers.md`: the additional
//! octets for twice as many endpoints.

#[path = "../../bgp-proto/tests/counting/mod.rs"]
mod counting;

use cambric_felix::calc::Calculator;
use serde_json::json;

/// Limit for an endpoint of another host with labels that other endpoints share.
const ENDPOINT: usize = 450;

/// Limit for an endpoint with unique labels.
const ENDPOINT_ALONE: usize = 1_400;

/// Limit for an endpoint with shared labels while a pool uses VXLAN.
const ENDPOINT_OF_OVERLAY: usize = 550;

const POOL: &str = "/calico/resources/v3/projectcalico.org/ippools/a";
const PREFIX: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/prod/";

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
