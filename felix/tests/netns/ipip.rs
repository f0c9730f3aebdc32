//! The device for IP in IP. Needs root and `CAMBRIC_LAB=1`.

use daemon_common::report::Status;
use daemon_common::{Command, Reply};
use serde_json::json;

use crate::overlay::shown;
use crate::world::host::{Host, RESOURCES, pair};
use crate::world::{lab, run, try_run};

fn status(host: &Host) -> Status {
    match host.ask(&Command::Status {}) {
        Reply::Status(status) => status,
        other => panic!("{other:?}"),
    }
}

/// Returns whether the kernel has devices for IP in IP.
fn has_ipip() -> bool {
    let made = try_run("ip link add probe type ipip remote 192.0.2.1 local 192.0.2.2");
    if made.status.success() {
        run("ip link delete probe");
    }
    made.status.success()
}

fn pool(host: &Host, mode: &str) {
    let pool = json!({"spec": {"cidr": "10.66.0.0/16", "ipipMode": mode}});
    host.put(&format!("{RESOURCES}ippools/ipip"), &pool);
}

// Promise (Felix): While a pool uses IP in IP, tunl0 has the tunnel address of the Node and routes to the
// blocks of others. A kernel without such devices is reported, and nothing else is affected.
#[test]
fn ipip_device_is_set_up_or_its_refusal_is_reported() {
    lab("ipip_device_is_set_up_or_its_refusal_is_reported", || {
        let has_ipip = has_ipip();
        let (host, one, _two) = pair();
        for n in 1..=2 {
            let address = if n == 1 { "10.0.0.11" } else { "10.0.0.2" };
            let spec = json!({"spec": {"bgp": {"ipv4Address": format!("{address}/24"),
                "ipv4IPIPTunnelAddr": format!("10.66.{n}.0")}}});
            host.put(&format!("{RESOURCES}nodes/n{n}"), &spec);
            let block = format!("/calico/ipam/v2/host/n{n}/ipv4/block/10.66.{n}.0-26");
            host.put(&block, &json!({"state": "confirmed"}));
        }
        pool(&host, "Always");
        let reported = || {
            let waiting = status(&host).waiting_for;
            let is_of = |one: &&String| one.starts_with("the tunnel device tunl0: ");
            waiting.iter().find(is_of).cloned()
        };
        let route = || shown("ip route show 10.66.2.0/26");
        match has_ipip {
            true => {
                host.until("the route through the device", || {
                    route().contains("via 10.0.0.2 dev tunl0")
                });
                assert!(shown("ip address show dev tunl0").contains("10.66.1.0/32"));
                let link = shown("ip link show dev tunl0");
                assert!(link.contains("mtu 1480") && link.contains(",UP"), "{link}");
                assert_eq!(reported(), None);
            }
            false => {
                host.until("the refusal", || reported().is_some());
                let text = reported().unwrap_or_default();
                assert!(text.contains("module ipip"), "{text}");
                assert_eq!(route(), "");
            }
        }
        assert!(one.namespace.pings("10.65.0.2"));
        pool(&host, "Never");
        host.until("the device is released", || {
            reported().is_none()
                && route().is_empty()
                && !shown("ip address show").contains("10.66.1.0/32")
                && !shown("ip link show up").contains("tunl0")
        });
        assert!(one.namespace.pings("10.65.0.2"));
    });
}
