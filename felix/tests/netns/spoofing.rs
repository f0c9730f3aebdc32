//! Further source addresses of an endpoint, with real packets. Needs root and `CAMBRIC_LAB=1`.

use serde_json::{Value, json};

use crate::world::host::{Host, workload};
use crate::world::{Workload, count_at, count_of, lab, ping, pings, run, sysctl};

/// Adds the address to workload 1 and a route to it, so that answers arrive.
fn own(workload: &Workload, address: &str) {
    workload
        .namespace
        .run(&format!("ip address add {address} dev eth0"));
    run(&format!("ip route add {address} dev cali1"));
}

fn answered(from: &Workload, source: &str, target: &str) -> bool {
    let target = format!("-I {source} {target}");
    from.namespace.within(|| pings(&target))
}

fn dropped(from: &Workload, source: &str, target: &str) -> bool {
    let options = format!("-w 1 -I {source} {target}");
    from.namespace.within(|| !ping(&options))
}

/// Returns the kernel's own check of sources of an interface.
fn filter_of(interface: &str) -> String {
    let value = run(&format!(
        "cat /proc/sys/net/ipv4/conf/{interface}/rp_filter"
    ));
    value.trim().to_owned()
}

fn endpoint(host: &Host, n: u8, prefixes: &Value) {
    let spec = json!({ "allowSpoofedSourcePrefixes": prefixes });
    host.endpoint_with(n, &json!({}), &spec);
}

fn until(host: &Host, what: &str, is_listed: bool) {
    host.until(what, || {
        run("nft list table inet cambric-felix").contains(what) == is_listed
    });
}

// Promise (Felix): A workload sends from prefixes of `allowSpoofedSourcePrefixes` only while
// `workloadSourceSpoofing` is `Any`.
#[test]
fn spoofed_sources_pass_only_as_allowed() {
    lab("spoofed_sources_pass_only_as_allowed", || {
        // Felix disables the kernel's own check of sources where it is needed.
        sysctl("ipv4/conf/default/rp_filter", "1");
        sysctl("ipv4/conf/all/rp_filter", "0");
        let host = Host::new();
        let (one, two) = (workload(1), workload(2));
        for address in [
            "192.0.2.1/32",
            "192.0.2.129/32",
            "fd99::1/128",
            "fd98::1/128",
        ] {
            own(&one, address);
        }
        let prefixes = json!(["192.0.2.0/25", "fd99::/64"]);
        endpoint(&host, 1, &prefixes);
        endpoint(&host, 2, &json!([]));
        (1..=2).for_each(|n| host.wait_up(&format!("cali{n}")));
        assert!(answered(&one, "10.65.0.1", "10.65.0.2"), "its own");
        assert!(dropped(&one, "192.0.2.1", "10.65.0.2"), "disabled");
        assert!(dropped(&one, "fd99::1", "fd65::2"), "disabled");

        host.configure(&json!({"workloadSourceSpoofing": "Any"}));
        until(&host, "192.0.2.0/25", true);
        assert!(answered(&one, "192.0.2.1", "10.65.0.2"));
        assert!(answered(&one, "fd99::1", "fd65::2"));
        assert!(answered(&one, "10.65.0.1", "10.65.0.2"), "its own");
        for (source, target) in [("192.0.2.129", "10.65.0.2"), ("fd98::1", "fd65::2")] {
            assert!(dropped(&one, source, target), "outside the prefixes");
        }
        // The answers to this source have another way.
        one.namespace.run("ip address add 192.0.2.3/32 dev eth0");
        run("ip route add 192.0.2.3/32 dev cali2");
        host.until("the kernel does not check sources", || {
            filter_of("cali1") == "0"
        });
        count_at(&two.namespace, "ip saddr 192.0.2.3");
        host.until(
            "a packet with a source that is routed elsewhere arrives",
            || {
                let _ = dropped(&one, "192.0.2.3", "10.65.0.2");
                count_of(&two.namespace) > 0
            },
        );
        assert_eq!(filter_of("cali2"), "1");
        // The prefixes of one endpoint are not those of another one.
        two.namespace.run("ip address add 192.0.2.2/32 dev eth0");
        run("ip route add 192.0.2.2/32 dev cali2");
        assert!(dropped(&two, "192.0.2.2", "10.65.0.1"));

        endpoint(&host, 1, &json!(["fd99::/64", "0.0.0.0/0"]));
        until(&host, "192.0.2.0/25", false);
        assert!(answered(&one, "192.0.2.129", "10.65.0.2"));
        assert!(dropped(&one, "fd98::1", "fd65::2"));
        host.configure(&json!({"workloadSourceSpoofing": "Disabled"}));
        until(&host, "spoofed-cali1", false);
        assert!(dropped(&one, "192.0.2.1", "10.65.0.2"));
        assert!(dropped(&one, "fd99::1", "fd65::2"));
        host.until("the kernel checks sources as before", || {
            filter_of("cali1") == "1"
        });
    });
}
