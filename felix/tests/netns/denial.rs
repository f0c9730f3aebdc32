//! The action for denied packets, with real packets. Needs root and `CAMBRIC_LAB=1`.

use serde_json::json;

use crate::world::host::{RESOURCES, pair};
use crate::world::{count_at, count_of, lab, ping, run};

// Promise (Felix): The sender of a denied packet gets an error if `nftablesFilterDenyAction` is
// `Reject`.
#[test]
fn denied_packets_are_rejected_only_if_configured() {
    lab("denied_packets_are_rejected_only_if_configured", || {
        let (host, one, two) = pair();
        let policy = json!({"metadata": {"name": "p"}, "spec": {"ingress": [{"action": "Deny"}]}});
        host.put(&format!("{RESOURCES}globalnetworkpolicies/p"), &policy);
        let listed = |what: &str| run("nft list table inet cambric-felix").contains(what);
        host.until("the policy", || listed("drop comment \"ingress[0]\""));
        let is_answered = |to: &str| two.namespace.within(|| ping(&format!("-w 1 {to}")));
        let both = [
            ("10.65.0.1", "icmp type destination-unreachable"),
            ("fd65::1", "icmpv6 type destination-unreachable"),
        ];
        for (to, error) in both {
            count_at(&two.namespace, error);
            let before = host.counted("pi-gnp/p", "ingress[0]");
            host.until("a drop", || {
                assert!(!is_answered(to));
                host.counted("pi-gnp/p", "ingress[0]") > before
            });
            assert_eq!(count_of(&two.namespace), 0);
            two.namespace.run("nft delete table inet t");
        }
        host.configure(&json!({"nftablesFilterDenyAction": "Reject"}));
        host.until("rejection", || listed("reject comment \"ingress[0]\""));
        for (to, error) in both {
            count_at(&two.namespace, error);
            host.until("an error", || {
                assert!(!is_answered(to));
                count_of(&two.namespace) > 0
            });
            two.namespace.run("nft delete table inet t");
        }
        // Packets of the host itself pass.
        assert!(ping("-w 5 10.65.0.1"));
        drop(one);
    });
}
