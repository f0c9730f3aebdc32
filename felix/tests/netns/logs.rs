//! `Log` rules, with real packets. Needs root and `CAMBRIC_LAB=1`.

use serde_json::json;

use crate::world::host::{Host, RESOURCES, workload};
use crate::world::{lab, run};

const CHAIN: &str = "pi-gnp/p";

fn listed(host: &Host, what: &str) {
    host.until(what, || {
        run("nft list table inet cambric-felix").contains(what)
    });
}

// Promise (Felix): A `Log` rule writes lines with `logPrefix`, at most at `logActionRateLimit`.
#[test]
fn log_rule_has_the_prefix_and_the_rate_of_the_settings() {
    lab(
        "log_rule_has_the_prefix_and_the_rate_of_the_settings",
        || {
            let host = Host::new();
            let (_one, two) = (workload(1), workload(2));
            (1..=2).for_each(|n| host.endpoint_with(n, &json!({}), &json!({})));
            let policy = json!({
                "kind": "GlobalNetworkPolicy", "apiVersion": "projectcalico.org/v3",
                "metadata": {"name": "p"},
                "spec": {"ingress": [{"action": "Log"}, {"action": "Allow"}]},
            });
            host.put(&format!("{RESOURCES}globalnetworkpolicies/p"), &policy);
            (1..=2).for_each(|n| host.wait_up(&format!("cali{n}")));
            listed(&host, "log prefix \"calico-packet: \" level info");
            let counts = || [0, 1].map(|at| host.counted(CHAIN, &format!("ingress[{at}]")));
            let ping = || {
                assert!(two.namespace.pings("10.65.0.1") && two.namespace.pings("fd65::1"));
            };
            ping();
            let [logged, allowed] = counts();
            assert!(logged == allowed && allowed >= 2, "{logged} {allowed}");

            // Each ping is a new connection. The first lines are a burst, the next is due in a day.
            let few = json!({"logPrefix": "%t %k %p", "logActionRateLimit": "1/day",
            "logActionRateLimitBurst": 3});
            host.configure(&few);
            listed(&host, "limit rate 1/day burst 3 packets");
            listed(&host, "log prefix \"default gnp p: \" level info");
            (0..5).for_each(|_| ping());
            let [logged, allowed] = counts();
            assert!(logged == 3 && allowed >= 10, "{logged} {allowed}");

            host.configure(&json!({}));
            listed(&host, "log prefix \"calico-packet: \" level info");
            ping();
            let [logged, allowed] = counts();
            assert!(logged == allowed && allowed >= 2, "{logged} {allowed}");
        },
    );
}
