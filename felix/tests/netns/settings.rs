//! Settings of FelixConfiguration, on real interfaces and routes. Needs root and `CAMBRIC_LAB=1`.

use daemon_common::{Command, Reply};
use serde_json::json;

use crate::world::host::{Host, OPEN, announce, pair, workload};
use crate::world::{lab, pings, run, sysctl};

const SETTING: &str = "ipv4/conf/cali1/proxy_arp";

// Promise (Felix): A changed setting of an interface is restored within
// `interfaceRefreshInterval`.
#[test]
fn interface_settings_are_restored_in_the_interval() {
    lab("interface_settings_are_restored_in_the_interval", || {
        let (host, _one, _two) = pair();
        let is_set = || run(&format!("cat /proc/sys/net/{SETTING}")).trim() == "1";
        host.configure(&json!({"interfaceRefreshInterval": "1s"}));
        for _ in 0..2 {
            host.until("the setting", is_set);
            sysctl(SETTING, "0");
            // By default, this would take longer than the test waits.
            host.until("the setting again", is_set);
        }
    });
}

// Promise (Felix): Settings of routes in the datastore change the kernel's routes without a restart.
#[test]
fn settings_of_routes_are_followed_while_felix_runs() {
    lab("settings_of_routes_are_followed_while_felix_runs", || {
        let host = Host::new();
        let _one = workload(1);
        announce(&host, 1, OPEN);
        host.wait_up("cali1");
        let v4 = || run("ip -4 route show 10.65.0.1/32");
        let v6 = || run("ip -6 route show fd65::1/128");
        host.configure(
            &json!({"ipv4NormalRoutePriority": 700, "ipv6NormalRoutePriority": 701,
            "deviceRouteSourceAddress": "10.0.0.11", "deviceRouteSourceAddressIPv6": "fd00::11"}),
        );
        host.until("metric and source", || {
            let (v4, v6) = (v4(), v6());
            v4.contains("src 10.0.0.11 metric 700")
                && !v4.contains("metric 256")
                && v6.contains("src fd00::11 metric 701")
                && !v6.contains("metric 256")
        });
        assert!(pings("10.65.0.1") && pings("fd65::1"));
        host.wait_up("cali1");
        host.configure(&json!({}));
        host.until("the built-in values", || {
            let (v4, v6) = (v4(), v6());
            v4.contains("metric 256") && !v4.contains("metric 700") && v6.contains("metric 256")
        });
        // Another program has the routes.
        host.configure(&json!({"routeSyncDisabled": true}));
        host.until("the status", || {
            let Reply::Status(status) = host.ask(&Command::Status {}) else {
                return false;
            };
            let mut facts = status.facts.iter();
            facts.any(|fact| fact.value.contains("routeSyncDisabled"))
        });
        run("ip route del 10.65.0.1/32");
        let _two = workload(2);
        announce(&host, 2, OPEN);
        host.wait_up("cali2");
        assert!(v4().is_empty() && run("ip -4 route show 10.65.0.2/32").is_empty());
        host.configure(&json!({}));
        host.until("its routes again", || {
            !v4().is_empty() && !run("ip -4 route show 10.65.0.2/32").is_empty()
        });
    });
}

#[test]
fn forwarding_is_enabled_unless_a_setting_disables_that() {
    lab(
        "forwarding_is_enabled_unless_a_setting_disables_that",
        || {
            let forwards = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
            let mut host = Host::new();
            let _one = workload(1);
            announce(&host, 1, OPEN);
            host.wait_up("cali1");
            assert_eq!(forwards(), "1\n");
            host.configure(&json!({"ipForwarding": "Disabled", "interfaceRefreshInterval": "1s"}));
            host.stop();
            sysctl("ipv4/ip_forward", "0");
            host.start();
            let _two = workload(2);
            announce(&host, 2, OPEN);
            host.wait_up("cali2");
            assert_eq!(forwards(), "0\n", "left as it was");
            host.configure(&json!({"ipForwarding": "Enabled"}));
            host.until("forwarding", || forwards() == "1\n");
        },
    );
}
