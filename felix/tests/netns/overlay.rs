//! The VXLAN overlay between namespaces as hosts. Needs root and `CAMBRIC_LAB=1`.

use daemon_common::command::EventQuery;
use daemon_common::{Command, Reply};
use serde_json::json;

use crate::encapsulation::dropped_as;
use crate::world::host::{Host, OPEN, RESOURCES};
use crate::world::packet;
use crate::world::{Namespace, Workload, count_at, count_of, lab, run, sysctl};

const POOL: &str = "10.65.0.0/16";
const MAC: &str = "66:00:00:00:00:02";

/// Writes this host's Node, the Node `n2` at the far end of the uplink, a VXLAN pool for each family,
/// and a block of each node.
pub(crate) fn fabric(host: &Host, mode: &str) {
    for (name, cidr) in [("v4", POOL), ("v6", "fd65::/64")] {
        let pool = json!({"spec": {"cidr": cidr, "vxlanMode": mode}});
        host.put(&format!("{RESOURCES}ippools/{name}"), &pool);
    }
    for (n, v4) in [(1, "10.0.0.11"), (2, "10.0.0.2")] {
        let v6 = if n == 1 { "fd00::11" } else { "fd00::2" };
        let mac = (n == 2).then_some(MAC);
        let spec = json!({"spec": {
            "bgp": {"ipv4Address": format!("{v4}/24"), "ipv6Address": format!("{v6}/64")},
            "ipv4VXLANTunnelAddr": format!("10.65.{n}.0"), "vxlanTunnelMACAddr": mac,
            "ipv6VXLANTunnelAddr": format!("fd65::{n}:0"), "vxlanTunnelMACAddrV6": mac,
        }});
        host.put(&format!("{RESOURCES}nodes/n{n}"), &spec);
        for block in [
            format!("ipv4/block/10.65.{n}.0-26"),
            format!("ipv6/block/fd65::{n}:0-122"),
        ] {
            let state = json!({"state": "confirmed"});
            host.put(&format!("/calico/ipam/v2/host/n{n}/{block}"), &state);
        }
    }
}

/// Returns a text that `ip` prints, or an empty one if it fails.
pub(crate) fn shown(command: &str) -> String {
    let output = crate::world::try_run(command);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn mac_of(device: &str) -> String {
    let text = shown(&format!("ip link show dev {device}"));
    let mut words = text
        .split_whitespace()
        .skip_while(|word| *word != "link/ether");
    words.nth(1).unwrap_or_default().to_owned()
}

/// Creates node `n2` with statically configured devices, and a workload behind it: 10.65.2.7 and
/// fd65::2:7.
fn far_node() -> Namespace {
    let far = Namespace::new();
    far.take("far", "eth0");
    let (mac_v4, mac_v6) = (mac_of("vxlan.calico"), mac_of("vxlan-v6.calico"));
    far.within(|| {
        sysctl("ipv4/ip_forward", "1");
        sysctl("ipv6/conf/all/forwarding", "1");
        for command in [
            "ip link set eth0 up",
            "ip address add 10.0.0.1/24 dev eth0",
            "ip address add 10.0.0.2/24 dev eth0",
            "ip address add fd00::2/64 dev eth0 nodad",
            "ip link add v4 type vxlan id 4096 dstport 4789 local 10.0.0.2 nolearning",
            "ip link add v6 type vxlan id 4096 dstport 4789 local fd00::2 nolearning",
            &format!("ip link set v4 address {MAC}"),
            &format!("ip link set v6 address {MAC}"),
            "ip link set v4 mtu 1450 up",
            "ip link set v6 mtu 1430 up",
            "ip address add 10.65.2.0/32 dev v4",
            "ip address add fd65::2:0/128 dev v6 nodad",
            &format!("ip neighbor add 10.65.1.0 lladdr {mac_v4} dev v4"),
            &format!("ip neighbor add fd65::1:0 lladdr {mac_v6} dev v6"),
            &format!("bridge fdb add {mac_v4} dev v4 dst 10.0.0.11"),
            &format!("bridge fdb add {mac_v6} dev v6 dst fd00::11"),
            "ip route add 10.65.1.0/26 via 10.65.1.0 dev v4 onlink",
            "ip route add fd65::1:0/122 via fd65::1:0 dev v6 onlink",
            "ip address add 10.65.2.7/32 dev lo",
            "ip address add fd65::2:7/128 dev lo nodad",
        ] {
            run(command);
        }
    });
    far
}

/// Returns whether device, entries and routes of the overlay are there.
fn is_set_up() -> bool {
    let v4 = shown("ip route show 10.65.2.0/26");
    let v6 = shown("ip -6 route show fd65::2:0/122");
    let forwarding = |device: &str| shown(&format!("bridge fdb show dev {device}")).contains(MAC);
    let neighbor = |device: &str| shown(&format!("ip neighbor show dev {device}")).contains(MAC);
    let devices = ["vxlan.calico", "vxlan-v6.calico"];
    v4.contains("via 10.65.2.0 dev vxlan.calico")
        && v6.contains("via fd65::2:0 dev vxlan-v6.calico")
        && devices
            .iter()
            .all(|device| forwarding(device) && neighbor(device))
}

/// Creates a host with the overlay, a workload on it, and the far node.
pub(crate) fn hosts() -> (Host, Workload, Namespace) {
    let host = Host::new();
    fabric(&host, "Always");
    let (v4, v6) = ("10.65.1.7", "fd65::1:7");
    let one = Workload::new("cali1", "02:00:00:00:00:01", Some(v4), Some(v6));
    let networks = ["10.65.1.7/32", "fd65::1:7/128"];
    host.endpoint("w1", "cali1", Some("02:00:00:00:00:01"), &networks, OPEN);
    host.wait_up("cali1");
    host.until("the overlay is set up", is_set_up);
    let far = far_node();
    (host, one, far)
}

// Promise (Felix): Workloads of two hosts in a VXLAN pool reach each other through tunnels of the
// hosts, with the addresses of the workloads.
#[test]
fn workloads_reach_each_other_through_vxlan() {
    lab("workloads_reach_each_other_through_vxlan", || {
        let (_host, one, far) = hosts();
        count_at(&far, "ip saddr 10.65.1.7");
        far.run("nft add chain inet t outer { type filter hook input priority -1 ; }");
        far.run("nft add rule inet t outer udp dport 4789 counter");
        assert!(one.namespace.pings("10.65.2.7"));
        assert!(one.namespace.pings("fd65::2:7"));
        assert!(count_of(&far) > 0, "not masqueraded");
        let listed = far.run("nft list chain inet t outer");
        assert!(!listed.contains("packets 0 "), "{listed}");
        assert!(far.pings("10.65.1.7") && far.pings("fd65::1:7"));
        // A full packet of the inner MTU arrives without fragments.
        let large = "-M do -s 1422 10.65.2.7";
        assert!(far.within(|| shown("ip link show dev v4").contains("mtu 1450")));
        assert!(
            one.namespace
                .within(|| crate::world::ping(&format!("-w 5 {large}")))
        );
        // An address of the own block without an endpoint is in no loop.
        assert!(shown("ip route show 10.65.1.0/26").contains("blackhole"));
    });
}

#[test]
fn removed_parts_of_the_overlay_are_made_again() {
    lab("removed_parts_of_the_overlay_are_made_again", || {
        let (mut host, one, far) = hosts();
        for command in [
            format!("bridge fdb del {MAC} dev vxlan.calico dst 10.0.0.2"),
            "ip neighbor del 10.65.2.0 dev vxlan.calico".to_owned(),
            "ip route del 10.65.2.0/26".to_owned(),
            "ip link set vxlan.calico down".to_owned(),
        ] {
            run(&command);
            host.until(&format!("repaired: {command}"), is_set_up);
        }
        let foreign = "02:00:00:00:00:77";
        run(&format!(
            "bridge fdb add {foreign} dev vxlan.calico dst 192.0.2.7"
        ));
        host.until("the foreign entry is removed", || {
            !shown("bridge fdb show dev vxlan.calico").contains(foreign)
        });
        let before = mac_of("vxlan.calico");
        run("ip link del vxlan.calico");
        host.until("the device is made again", is_set_up);
        assert_eq!(mac_of("vxlan.calico"), before);
        // Another program's device of the same name is replaced.
        host.stop();
        run("ip link del vxlan.calico");
        run("ip link add vxlan.calico type vxlan id 9 dstport 4790 local 10.0.0.11");
        host.start();
        host.until("the other device is replaced", || {
            is_set_up() && shown("ip -d link show dev vxlan.calico").contains("id 4096")
        });
        assert!(one.namespace.pings("10.65.2.7") && far.pings("10.65.1.7"));
    });
}

#[test]
fn vxlan_of_no_node_reaches_no_workload() {
    lab("vxlan_of_no_node_reaches_no_workload", || {
        let (host, one, far) = hosts();
        count_at(&one.namespace, "udp dport 9");
        let words = "tunnel of no node";
        let mac = mac_of("vxlan.calico");
        // From an address of the far host that no Node has, with the source of its workload.
        let datagram = [&[0, 9, 0, 9, 0, 16, 0, 0][..], &[0; 8]].concat();
        let ip = |text: &str| text.parse().unwrap();
        let inner = packet::packet(ip("10.65.2.7"), ip("10.65.1.7"), 17, &datagram);
        let payload = crate::encapsulation::vxlan_of(4096, 4789, &mac, &inner);
        let send = |source: &str| {
            let outer = packet::packet(ip(source), ip("10.0.0.11"), 17, &payload);
            far.within(|| packet::send(&outer, ip("10.0.0.11")).unwrap());
        };
        let dropped = dropped_as(&host, words);
        host.until("packets of another address are dropped", || {
            send("10.0.0.1");
            dropped_as(&host, words) >= dropped + 3
        });
        assert_eq!(count_of(&one.namespace), 0);
        host.until("packets of the node arrive", || {
            send("10.0.0.2");
            count_of(&one.namespace) > 0
        });
    });
}

#[test]
fn overlay_follows_nodes_and_pools() {
    lab("overlay_follows_nodes_and_pools", || {
        let (mut host, one, _far) = hosts();
        // After a restart, what an earlier run has left of a deleted node is removed.
        host.stop();
        host.delete(&format!("{RESOURCES}nodes/n2"));
        host.start();
        host.until("entries of the node are removed", || {
            let left = shown("bridge fdb show dev vxlan.calico");
            let routes = shown("ip route show 10.65.2.0/26");
            !left.contains(MAC) && routes.is_empty()
        });
        fabric(&host, "CrossSubnet");
        host.until("the node of the subnet is reached directly", || {
            shown("ip route show 10.65.2.0/26").contains("via 10.0.0.2 dev uplink")
        });
        fabric(&host, "Never");
        host.until("nothing of the overlay is left", || {
            let links = shown("ip link show type vxlan");
            let routes = shown("ip route show 10.65.2.0/26") + &shown("ip route show 10.65.1.0/26");
            links.is_empty() && routes.is_empty()
        });
        host.wait_up("cali1");
        drop(one);
    });
}

#[test]
fn changed_tunnel_address_keeps_routes_and_entries() {
    lab("changed_tunnel_address_keeps_routes_and_entries", || {
        let (host, one, _far) = hosts();
        // The kernel would remove it with the last address of the device, and Felix does not make it
        // again.
        run("ip route add 198.51.100.0/24 dev vxlan.calico");
        let spec = json!({"spec": {
            "bgp": {"ipv4Address": "10.0.0.11/24", "ipv6Address": "fd00::11/64"},
            "ipv4VXLANTunnelAddr": "10.65.1.1", "ipv6VXLANTunnelAddr": "fd65::1:1",
        }});
        host.put(&format!("{RESOURCES}nodes/n1"), &spec);
        host.until("the devices have other addresses", || {
            let all = shown("ip address show dev vxlan.calico")
                + &shown("ip address show dev vxlan-v6.calico");
            let new = ["10.65.1.1/32", "fd65::1:1/128"];
            let old = ["10.65.1.0/32", "fd65::1:0/128"];
            new.iter().all(|one| all.contains(one)) && !old.iter().any(|one| all.contains(one))
        });
        let route = shown("ip route show 198.51.100.0/24");
        assert!(route.contains("dev vxlan.calico"), "{route}");
        host.until("the overlay is set up", is_set_up);
        drop(one);
    });
}

/// Returns whether an address behind the far node does not answer.
fn is_cut_off(one: &Workload, address: &str) -> bool {
    one.namespace.is_cut_off(address)
}

// Promise (Felix): `routeSource: WorkloadIPs` leads the routes of an overlay to single workloads: other addresses
// of a remote block are unreachable.
#[test]
fn route_source_leads_to_workloads_or_to_blocks() {
    lab("route_source_leads_to_workloads_or_to_blocks", || {
        let (host, one, far) = hosts();
        far.run("ip address add 10.65.2.8/32 dev lo");
        let remote = json!({
            "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": "n2-k8s-w2-eth0", "namespace": "ns"},
            "spec": {"orchestrator": "k8s", "node": "n2", "pod": "w2", "endpoint": "eth0",
                "interfaceName": "cali9", "ipNetworks": ["10.65.2.7/32"], "profiles": OPEN},
        });
        let key = format!("{RESOURCES}workloadendpoints/ns/n2-k8s-w2-eth0");
        host.put(&key, &remote);
        assert!(one.namespace.pings("10.65.2.7") && one.namespace.pings("10.65.2.8"));
        let block = || shown("ip route show 10.65.2.0/26");
        let single = || shown("ip route show 10.65.2.7");
        host.configure(&json!({"routeSource": "WorkloadIPs"}));
        host.until("a route to the workload only", || {
            block().is_empty() && single().contains("via 10.65.2.0 dev vxlan.calico")
        });
        assert!(one.namespace.pings("10.65.2.7"));
        assert!(
            is_cut_off(&one, "10.65.2.8"),
            "no endpoint has this address"
        );
        host.configure(&json!({}));
        host.until("a route to the block only", || {
            single().is_empty() && block().contains("via 10.65.2.0 dev vxlan.calico")
        });
        assert!(one.namespace.pings("10.65.2.7") && one.namespace.pings("10.65.2.8"));
    });
}

// Promise (Felix): `vxlanEnabled` decides about VXLAN for IPv4, whatever the pools are.
#[test]
fn vxlan_enabled_overrides_the_pools() {
    lab("vxlan_enabled_overrides_the_pools", || {
        let (host, one, _far) = hosts();
        let has_device = |name: &str| !shown(&format!("ip link show dev {name}")).is_empty();
        assert!(one.namespace.pings("10.65.2.7") && one.namespace.pings("fd65::2:7"));
        host.configure(&json!({"vxlanEnabled": false}));
        host.until("no device for IPv4", || !has_device("vxlan.calico"));
        assert!(is_cut_off(&one, "10.65.2.7"), "no tunnel");
        assert!(one.namespace.pings("fd65::2:7"), "IPv6 follows the pools");
        host.configure(&json!({}));
        host.until("the overlay is set up", is_set_up);
        assert!(one.namespace.pings("10.65.2.7"));
        fabric(&host, "Never");
        host.until("no pool has VXLAN", || {
            !has_device("vxlan.calico") && !has_device("vxlan-v6.calico")
        });
        host.configure(&json!({"vxlanEnabled": true}));
        host.until("a device for IPv4", || has_device("vxlan.calico"));
        assert!(!has_device("vxlan-v6.calico"));
    });
}

// Promise (Felix): A changed MTU of a tunnel device is reported, and running workloads keep theirs.
#[test]
fn changed_mtu_is_reported_and_not_set_at_workloads() {
    lab("changed_mtu_is_reported_and_not_set_at_workloads", || {
        let (host, one, _far) = hosts();
        let device = || shown("ip link show dev vxlan.calico");
        let workload = || {
            let inside = one.namespace.within(|| shown("ip link show dev eth0"));
            assert!(inside.contains(" mtu "), "{inside}");
            shown("ip link show dev cali1") + &inside
        };
        let (device_before, workload_before) = (device(), workload());
        assert!(device_before.contains("mtu 1450 "), "{device_before}");
        let events = || {
            let query = EventQuery {
                name: Some("interface.mtu_changed".to_owned()),
                ..EventQuery::default()
            };
            let Reply::Events(page) = host.ask(&Command::Events(query)) else {
                return 0;
            };
            let fields = page.events.into_iter().map(|event| event.fields);
            let own = fields.filter(|own| own["interface"] == "vxlan.calico" && own["mtu"] == 1410);
            own.count()
        };
        assert_eq!(events(), 0);
        host.configure(&json!({"vxlanMTU": 1410}));
        host.until("the MTU of the device", || device().contains("mtu 1410 "));
        host.until("the event", || events() == 1);
        assert_eq!(workload(), workload_before);
        assert!(one.namespace.pings("10.65.2.7"));
    });
}
