//! Settings of FelixConfiguration, on real interfaces and routes. Needs root and `CAMBRIC_LAB=1`.

use daemon_common::{Command, Reply};
use serde_json::json;

use crate::world::host::{Host, OPEN, RESOURCES, announce, pair, workload};
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

fn metric(_: &Host) -> String {
    run("ip -4 route show 10.65.0.1/32")
}

// Promise (Felix): A FelixConfiguration with a `nodeSelector` applies to the nodes that it selects.
#[test]
fn settings_of_selected_nodes_change_the_kernel() {
    lab("settings_of_selected_nodes_change_the_kernel", || {
        let host = Host::new();
        let _one = workload(1);
        announce(&host, 1, OPEN);
        host.wait_up("cali1");
        let label = |rack: &str| {
            let value = json!({"metadata": {"name": "n1", "labels": {"rack": rack}},
                "spec": {"bgp": {"ipv4Address": "10.0.0.11/24"}}});
            host.put(&format!("{RESOURCES}nodes/n1"), &value);
        };
        let racks = |selector: &str| {
            let spec = json!({"nodeSelector": selector, "ipv4NormalRoutePriority": 702});
            let key = format!("{RESOURCES}felixconfigurations/racks");
            host.put(&key, &json!({"metadata": {"name": "racks"}, "spec": spec}));
        };
        let has = |number: u32| metric(&host).contains(&format!("metric {number}"));
        let only = |what: &str, wanted: u32, other: u32| {
            host.until(what, || has(wanted) && !has(other));
        };
        racks("rack == 'r1'");
        label("r2");
        only("another rack", 256, 702);
        label("r1");
        only("the rack", 702, 256);
        racks("rack == 'r3'");
        only("another selector", 256, 702);
        racks("has(rack)");
        only("any rack", 702, 256);
        host.delete(&format!("{RESOURCES}felixconfigurations/racks"));
        only("no such settings", 256, 702);

        // Felix's bit of the mark is fixed: a mask without it is reported, and has no effect.
        let problems = || {
            let Reply::Status(status) = host.ask(&Command::Status {}) else {
                return String::new();
            };
            format!("{status:?}")
        };
        host.configure(
            &json!({"nftablesMarkMask": 0xfffe_0000_u32, "ipv4NormalRoutePriority": 703}),
        );
        host.until("the report", || {
            problems().contains("spec.nftablesMarkMask")
        });
        assert!(has(256), "{}", metric(&host));
        host.configure(&json!({"nftablesMarkMask": 0x1_0000, "ipv4NormalRoutePriority": 703}));
        only("a mask with the bit", 703, 256);
        host.until("no report", || {
            !problems().contains("spec.nftablesMarkMask")
        });
    });
}
