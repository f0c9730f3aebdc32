//! Settings of FelixConfiguration, on real interfaces and routes. Needs root and `CAMBRIC_LAB=1`.

use daemon_common::{Command, Reply};
use serde_json::{Value, json};

use crate::metrics::scrape;
use crate::overlay::{fabric, shown};
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

/// A field, and its effect outside of Felix.
struct Row {
    field: &'static str,
    /// Other fields that it needs.
    needs: Value,
    value: Value,
    view: fn(&Host) -> String,
    /// Parts of the view without the field, and with it.
    parts: [&'static str; 2],
}

fn row(
    field: &'static str,
    value: Value,
    view: fn(&Host) -> String,
    parts: [&'static str; 2],
) -> Row {
    Row {
        field,
        needs: json!({}),
        value,
        view,
        parts,
    }
}

/// Returns a row about the page of metrics.
fn of_metrics(
    field: &'static str,
    value: Value,
    view: fn(&Host) -> String,
    parts: [&'static str; 2],
) -> Row {
    Row {
        needs: json!({"prometheusMetricsEnabled": true}),
        ..row(field, value, view, parts)
    }
}

/// Returns the addresses with a page of metrics.
fn pages(host: &Host) -> String {
    let all = ["127.0.0.1:9091", "127.0.0.1:9191", "10.0.0.11:9091"];
    let open = all.into_iter().filter(|at| scrape(host, at).is_some());
    open.collect::<Vec<&str>>().join(" ")
}

/// Returns whether the page of metrics has those of the process.
fn of_process(host: &Host) -> String {
    let Some(page) = scrape(host, "127.0.0.1:9091") else {
        return String::new();
    };
    let mut samples = page.samples();
    let has = samples.any(|(name, _)| name.starts_with("process_"));
    format!("process: {has}")
}

fn filter(_: &Host) -> String {
    run("nft --stateless list table inet cambric-felix")
}

fn device(_: &Host) -> String {
    shown("ip -d link show dev vxlan.calico")
}

fn device_v6(_: &Host) -> String {
    shown("ip -d link show dev vxlan-v6.calico")
}

fn route_v6(_: &Host) -> String {
    format!("{}.", shown("ip -6 route show fd65::1/128").trim())
}

/// Returns whether only nodes may send packets of IP in IP.
fn ipip(host: &Host) -> String {
    let is_guarded = filter(host).contains("l4proto ipencap goto tunnel-to-host");
    format!("guarded: {is_guarded}")
}

fn metric(_: &Host) -> String {
    run("ip -4 route show 10.65.0.1/32")
}

fn level(host: &Host) -> String {
    match host.ask(&Command::Log {}) {
        Reply::Log(log) => log.configured.to_lowercase(),
        other => panic!("{other:?}"),
    }
}

fn rows() -> Vec<Row> {
    let (plain, other) = ("127.0.0.1:9091", "127.0.0.1:9191");
    let process = "prometheusProcessMetricsEnabled";
    vec![
        row("ipv6Support", json!(false), route_v6, ["dev cali1", "."]),
        row(
            "logSeverityScreen",
            json!("Warning"),
            level,
            ["info", "warning"],
        ),
        of_metrics("prometheusMetricsPort", json!(9191), pages, [plain, other]),
        of_metrics(
            "prometheusMetricsHost",
            json!("10.0.0.11"),
            pages,
            [plain, "10.0.0.11:9091"],
        ),
        of_metrics(
            process,
            json!(false),
            of_process,
            ["process: true", "process: false"],
        ),
        row(
            "metadataPort",
            json!(9875),
            filter,
            ["dnat ip to 127.0.0.1:8775", "dnat ip to 127.0.0.1:9875"],
        ),
        row(
            "vxlanVNI",
            json!(4097),
            device,
            ["vxlan id 4096 ", "vxlan id 4097 "],
        ),
        row(
            "ipipEnabled",
            json!(true),
            ipip,
            ["guarded: false", "guarded: true"],
        ),
        row("vxlanMTU", json!(1400), device, ["mtu 1450 ", "mtu 1400 "]),
        row(
            "vxlanMTUV6",
            json!(1390),
            device_v6,
            ["mtu 1430 ", "mtu 1390 "],
        ),
        row(
            "mtuIfacePattern",
            json!("^side"),
            device,
            ["mtu 1450 ", "mtu 1250 "],
        ),
    ]
}

// Promise (Felix): Settings of the datastore are followed while Felix runs, and their removal restores
// the built-in values.
#[test]
fn each_setting_has_its_effect_outside_of_felix() {
    lab("each_setting_has_its_effect_outside_of_felix", || {
        let host = Host::new();
        run("ip link add side mtu 1300 type veth peer name side-far");
        run("ip link set side up");
        let _one = workload(1);
        announce(&host, 1, OPEN);
        fabric(&host, "Always");
        let spec = json!({"orchestrator": "openstack", "workload": "vm", "node": "n1",
            "endpoint": "e", "interfaceName": "tap9", "ipNetworks": ["10.65.0.9/32"]});
        let value =
            json!({"metadata": {"name": "n1-openstack-vm-e", "namespace": "ns"}, "spec": spec});
        host.put(
            &format!("{RESOURCES}workloadendpoints/ns/n1-openstack-vm-e"),
            &value,
        );
        for Row {
            field,
            needs,
            value,
            view,
            parts: [before, after],
        } in rows()
        {
            let has = |part: &str| match part {
                "." => view(&host) == ".",
                part => view(&host).contains(part),
            };
            host.configure(&needs);
            host.until(&format!("{field}: {before}"), || has(before) && !has(after));
            let mut with = needs.clone();
            with[field] = value;
            host.configure(&with);
            host.until(&format!("{field}: {after}"), || has(after) && !has(before));
        }
    });
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
