//! Service addresses that no program translates, with real packets. Needs root and `CAMBRIC_LAB=1`.

use serde_json::json;

use crate::outgoing::outside;
use crate::world::host::{RESOURCES, pair};
use crate::world::{count_at, count_of, lab, ping, run};

const CHAIN: &str = "service-loops";
const DROPPED: &str = "service address without translation";

// Promise (Felix): Packets to service addresses that are not translated do not leave the host
// unless `serviceLoopPrevention` is `Disabled`.
#[test]
fn untranslated_packets_to_services_are_not_forwarded() {
    lab("untranslated_packets_to_services_are_not_forwarded", || {
        let (host, one, _two) = pair();
        let outside = outside();
        for (command, addresses) in [
            ("ip", ["10.96.0.1/32", "10.65.0.0/16 via 10.0.0.11"]),
            ("ip -6", ["fd96::1/128", "fd65::/64 via fd00::11"]),
        ] {
            let [address, route] = addresses;
            outside.run(&format!("{command} address add {address} dev lo"));
            outside.run(&format!("{command} route add {route}"));
        }
        run("ip route add 10.96.0.0/16 via 10.0.0.1");
        run("ip -6 route add fd96::/64 via fd00::1");
        let services = ["10.96.0.1", "fd96::1"];
        let reaches_all = || services.iter().all(|to| one.namespace.pings(to));
        let listed = |what: &str| run("nft list table inet cambric-felix").contains(what);
        assert!(reaches_all(), "no ranges of services");

        let ranges = json!({"metadata": {"name": "default"}, "spec": {
            "serviceClusterIPs": [{"cidr": "10.96.0.0/16"}],
            "serviceExternalIPs": [{"cidr": "fd96::/64"}]}});
        host.put(&format!("{RESOURCES}bgpconfigurations/default"), &ranges);
        host.until("both ranges", || {
            listed("ip daddr @service-ranges-ipv4") && listed("ip6 daddr @service-ranges-ipv6")
        });
        for to in services {
            let before = host.counted(CHAIN, DROPPED);
            host.until("a drop", || {
                assert!(
                    !one.namespace.within(|| ping(&format!("-w 1 {to}"))),
                    "{to}"
                );
                // The counter of IPv6 is another one.
                to.contains(':') || host.counted(CHAIN, DROPPED) > before
            });
        }
        assert!(one.namespace.pings("10.0.0.1"), "no service");

        // A translated packet is forwarded.
        run("nft add table ip proxy");
        run("nft add chain ip proxy c { type nat hook prerouting priority -90 ; }");
        run("nft add rule ip proxy c ip daddr 10.96.0.1 dnat to 10.65.0.2");
        assert!(one.namespace.pings("10.96.0.1"));
        run("nft delete table ip proxy");

        host.configure(&json!({"serviceLoopPrevention": "Reject"}));
        host.until("a rejection", || {
            !listed("counter drop comment \"service") && listed("reject")
        });
        for (to, error) in [
            ("10.96.0.1", "icmp type destination-unreachable"),
            ("fd96::1", "icmpv6 type destination-unreachable"),
        ] {
            count_at(&one.namespace, error);
            host.until("an error", || {
                assert!(
                    !one.namespace.within(|| ping(&format!("-w 1 {to}"))),
                    "{to}"
                );
                count_of(&one.namespace) > 0
            });
            one.namespace.run("nft delete table inet t");
        }
        host.configure(&json!({"serviceLoopPrevention": "Disabled"}));
        host.until("no rule", || !listed(DROPPED));
        assert!(reaches_all());
    });
}
