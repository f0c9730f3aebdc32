//! The overlay of a host from stored values.

mod ipip;

use serde_json::{Value, json};

use super::*;
use crate::calc::{Calculator, Desired};
use crate::render::TO_HOST;
use crate::work;

const HOST: &str = "n1";
const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

/// Puts a value under a key, or deletes it.
fn put(calculator: &mut Calculator, key: &str, value: &Value) {
    let octets = (!value.is_null()).then(|| value.to_string());
    let key = match key.starts_with('/') {
        true => key.to_owned(),
        false => format!("{PREFIX}{key}"),
    };
    calculator.change(&key, octets.as_ref().map(String::as_bytes));
}

fn node(address: &str, tunnel: &str) -> Value {
    json!({"spec": {"bgp": {"ipv4Address": address}, "ipv4VXLANTunnelAddr": tunnel}})
}

fn pool(cidr: &str, mode: &str) -> Value {
    json!({"spec": {"cidr": cidr, "vxlanMode": mode}})
}

fn block(host: &str, block: &str) -> String {
    format!("/calico/ipam/v2/host/{host}/ipv4/block/{block}")
}

/// Returns a calculator with a VXLAN pool, three nodes, and a block of each.
fn fabric(mode: &str) -> Calculator {
    let mut calculator = Calculator::new(HOST, None);
    put(&mut calculator, "ippools/a", &pool("10.65.0.0/16", mode));
    for (n, subnet) in [(1, 0), (2, 0), (3, 1)] {
        let (name, address) = (format!("n{n}"), format!("10.0.{subnet}.{n}/24"));
        let spec = node(&address, &format!("10.65.{n}.0"));
        put(&mut calculator, &format!("nodes/{name}"), &spec);
        let key = block(&name, &format!("10.65.{n}.0-26"));
        put(&mut calculator, &key, &json!({"state": "confirmed"}));
    }
    calculator.recompute();
    calculator
}

fn endpoint(node: &str, address: &str) -> Value {
    json!({"spec": {"orchestrator": "k8s", "node": node, "pod": "p", "endpoint": "eth0",
        "interfaceName": "cali9", "ipNetworks": [address]}})
}

/// Returns the routes as text.
fn routes(desired: &Desired) -> Vec<String> {
    let routes = desired.overlay.routes.iter();
    let text = |way: &Way| match way {
        Way::Tunnel(end) => format!("tunnel {end}"),
        Way::Ipip(node) => format!("ipip {node}"),
        Way::Direct(node) => format!("via {node}"),
        Way::Blackhole => "blackhole".to_owned(),
    };
    routes
        .map(|(net, way)| format!("{net} {}", text(way)))
        .collect()
}

fn problems(desired: &Desired) -> Vec<String> {
    desired.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn blocks_of_other_nodes_are_reached_through_tunnels() {
    let calculator = fabric("Always");
    let desired = calculator.desired();
    assert_eq!(
        routes(desired),
        [
            "10.65.1.0/26 blackhole",
            "10.65.2.0/26 tunnel 10.65.2.0",
            "10.65.3.0/26 tunnel 10.65.3.0",
        ]
    );
    let DeviceState::Wanted(device) = &desired.overlay.devices[&Family::V4] else {
        panic!("{:?}", desired.overlay.devices);
    };
    assert_eq!(
        (device.name, device.vni, device.port),
        ("vxlan.calico", 4096, 4789)
    );
    assert_eq!(device.local.to_string(), "10.0.0.1");
    assert_eq!(device.address.to_string(), "10.65.1.0");
    assert_eq!(device.mtu, None);
    // The first octets of the name's SHA-1 digest.
    assert_eq!(device.mac.to_string(), "66:40:b3:ea:b6:3f");
    assert_eq!(
        desired.overlay.devices[&Family::V6],
        DeviceState::Unused { vni: 4096 }
    );
    assert_eq!(desired.overlay.ends.len(), 2);
    assert!(problems(desired).is_empty(), "{:?}", problems(desired));
}

#[test]
fn nodes_of_the_own_subnet_are_reached_without_tunnel() {
    let mut calculator = fabric("CrossSubnet");
    assert_eq!(
        routes(calculator.desired()),
        [
            "10.65.1.0/26 blackhole",
            "10.65.2.0/26 via 10.0.0.2",
            "10.65.3.0/26 tunnel 10.65.3.0",
        ]
    );
    put(&mut calculator, "ippools/a", &pool("10.65.0.0/16", "Never"));
    calculator.recompute();
    let overlay = &calculator.desired().overlay;
    assert!(overlay.routes.is_empty() && overlay.ends.is_empty());
    assert_eq!(
        overlay.devices[&Family::V4],
        DeviceState::Unused { vni: 4096 }
    );
}

#[test]
fn change_of_one_node_of_a_thousand_touches_its_own_routes() {
    let mut calculator = fabric("Always");
    put(
        &mut calculator,
        "ippools/a",
        &pool("10.64.0.0/10", "Always"),
    );
    let tunnel = |n: u32| format!("10.{}.{}.0", 66 + n / 250, n % 250);
    for n in 0..1000 {
        let name = format!("m{n}");
        let spec = node(&format!("10.1.{}.{}/24", n / 250, n % 250), &tunnel(n));
        put(&mut calculator, &format!("nodes/{name}"), &spec);
        let key = block(&name, &format!("{}-26", tunnel(n)));
        put(&mut calculator, &key, &json!({}));
    }
    calculator.recompute();
    assert_eq!(calculator.desired().overlay.ends.len(), 1002);
    put(
        &mut calculator,
        "nodes/m1",
        &node("10.1.9.9/24", &tunnel(1)),
    );
    let touched = calculator.recompute().overlay;
    let end: IpAddr = tunnel(1).parse().unwrap();
    assert_eq!(touched.ends, BTreeSet::from([end]));
    assert!(touched.routes.is_empty() && !touched.devices);
    put(&mut calculator, "nodes/m1", &Value::Null);
    let touched = calculator.recompute().overlay;
    assert_eq!((touched.ends.len(), touched.routes.len()), (1, 1));
}

#[test]
fn borrowed_address_has_a_route_to_its_node() {
    let mut calculator = fabric("Always");
    let (two, three) = ("n2-k8s-p-eth0", "n3-k8s-p-eth0");
    let key = |name: &str| format!("workloadendpoints/ns/{name}");
    // In the block of its node, in another one, and in one of this host.
    put(&mut calculator, &key(two), &endpoint("n2", "10.65.2.7/32"));
    calculator.recompute();
    assert_eq!(routes(calculator.desired()).len(), 3);
    put(&mut calculator, &key(two), &endpoint("n2", "10.65.3.7/32"));
    put(
        &mut calculator,
        &key(three),
        &endpoint("n3", "10.65.1.7/32"),
    );
    calculator.recompute();
    let all = routes(calculator.desired());
    assert_eq!(all.len(), 5);
    assert!(
        all.contains(&"10.65.3.7/32 tunnel 10.65.2.0".to_owned()),
        "{all:?}"
    );
    assert!(
        all.contains(&"10.65.1.7/32 tunnel 10.65.3.0".to_owned()),
        "{all:?}"
    );
    // Its node gets the block.
    put(&mut calculator, &block("n3", "10.65.3.0-26"), &Value::Null);
    put(&mut calculator, &block("n2", "10.65.3.0-26"), &json!({}));
    calculator.recompute();
    let all = routes(calculator.desired());
    assert!(
        all.contains(&"10.65.3.0/26 tunnel 10.65.2.0".to_owned()),
        "{all:?}"
    );
    assert!(
        all.contains(&"10.65.3.0/32 tunnel 10.65.3.0".to_owned()),
        "its tunnel: {all:?}"
    );
    assert!(
        !all.contains(&"10.65.3.7/32 tunnel 10.65.2.0".to_owned()),
        "{all:?}"
    );
    for name in [two, three] {
        put(&mut calculator, &key(name), &Value::Null);
    }
    calculator.recompute();
    assert!(
        !routes(calculator.desired())
            .iter()
            .any(|route| route.starts_with("10.65.1.7"))
    );
}

#[test]
fn two_nodes_with_one_tunnel_address_are_reported() {
    let mut calculator = fabric("Always");
    put(
        &mut calculator,
        "nodes/n3",
        &node("10.0.1.3/24", "10.65.2.0"),
    );
    calculator.recompute();
    let key = format!("{PREFIX}nodes/n3");
    let words = "node n2 has the same: no route leads to n3";
    assert_eq!(
        problems(calculator.desired()),
        [format!("{key}: spec.ipv4VXLANTunnelAddr: {words}")]
    );
    let all = routes(calculator.desired());
    assert_eq!(
        all,
        ["10.65.1.0/26 blackhole", "10.65.2.0/26 tunnel 10.65.2.0"]
    );
    put(&mut calculator, "nodes/n2", &Value::Null);
    calculator.recompute();
    assert!(problems(calculator.desired()).is_empty());
    let all = routes(calculator.desired());
    assert!(
        all.contains(&"10.65.3.0/26 tunnel 10.65.2.0".to_owned()),
        "{all:?}"
    );
    // The Ethernet address of the broadcast is no address of a device.
    let spec = json!({"spec": {"bgp": {"ipv4Address": "10.0.1.3/24"},
        "ipv4VXLANTunnelAddr": "10.65.3.0", "vxlanTunnelMACAddr": "ff:ff:ff:ff:ff:ff"}});
    put(&mut calculator, "nodes/n3", &spec);
    calculator.recompute();
    assert_eq!(problems(calculator.desired()).len(), 1);
    assert_eq!(routes(calculator.desired()), ["10.65.1.0/26 blackhole"]);
}

#[test]
fn missing_tunnel_address_of_this_host_is_reported() {
    let mut calculator = fabric("Always");
    let spec = json!({"spec": {"addresses": [{"address": "10.0.0.1", "type": "InternalIP"}]}});
    put(&mut calculator, "nodes/n1", &spec);
    calculator.recompute();
    let overlay = &calculator.desired().overlay;
    let lacks = DeviceState::Lacks("spec.ipv4VXLANTunnelAddr");
    assert_eq!(overlay.devices[&Family::V4], lacks);
    assert!(overlay.ends.is_empty());
    assert_eq!(routes(calculator.desired()), ["10.65.1.0/26 blackhole"]);
    assert_eq!(problems(calculator.desired()).len(), 1);
    put(&mut calculator, "nodes/n1", &Value::Null);
    calculator.recompute();
    let overlay = &calculator.desired().overlay;
    assert_eq!(
        overlay.devices[&Family::V4],
        DeviceState::Lacks("spec.bgp.ipv4Address")
    );
}

#[test]
fn ipv6_overlay_has_its_own_device() {
    let mut calculator = fabric("Always");
    put(&mut calculator, "ippools/six", &pool("fd65::/64", "Always"));
    for n in [1, 2] {
        let spec = json!({"spec": {"bgp": {"ipv6Address": format!("fd00::{n}/64")},
            "ipv6VXLANTunnelAddr": format!("fd65::{n}:0"),
            "vxlanTunnelMACAddrV6": format!("66:00:00:00:00:{n:02x}")}});
        put(&mut calculator, &format!("nodes/n{n}"), &spec);
        let key = format!("/calico/ipam/v2/host/n{n}/ipv6/block/fd65::{n}:0-122");
        put(&mut calculator, &key, &json!({}));
    }
    let settings = json!({"spec": {"vxlanVNI": 77, "vxlanMTUV6": 1400, "vxlanPort": 8472}});
    put(&mut calculator, "felixconfigurations/default", &settings);
    calculator.recompute();
    let desired = calculator.desired();
    let DeviceState::Wanted(device) = &desired.overlay.devices[&Family::V6] else {
        panic!("{:?}", desired.overlay.devices);
    };
    assert_eq!(
        (device.name, device.vni, device.port),
        ("vxlan-v6.calico", 77, 8472)
    );
    assert_eq!(device.mtu, Some(1400));
    let all = routes(desired);
    assert!(
        all.contains(&"fd65::1:0/122 blackhole".to_owned()),
        "{all:?}"
    );
    assert!(
        all.contains(&"fd65::2:0/122 tunnel fd65::2:0".to_owned()),
        "{all:?}"
    );
    let settings = json!({"spec": {"ipv6Support": false}});
    put(&mut calculator, "felixconfigurations/default", &settings);
    calculator.recompute();
    let overlay = &calculator.desired().overlay;
    assert!(!overlay.routes.keys().any(|net| matches!(net, IpNet::V6(_))));
    assert_eq!(
        overlay.devices[&Family::V6],
        DeviceState::Unused { vni: 4096 }
    );
    for bad in [
        json!({"vxlanVNI": 16_777_216}),
        json!({"vxlanMTU": 100}),
        json!({"vxlanMTUV6": 1279}),
    ] {
        let key = format!("{PREFIX}felixconfigurations/default");
        let value = json!({ "spec": bad }).to_string();
        assert!(
            calculator.change(&key, Some(value.as_bytes())).is_some(),
            "{bad}"
        );
    }
}

#[test]
fn affinity_of_another_size_has_no_effect() {
    let mut calculator = fabric("Always");
    let before = routes(calculator.desired());
    // Parts of the block of n2, and a range around all blocks.
    let sizes = ["10.65.2.7-32", "10.65.2.0-27", "10.65.0.0-20"];
    for one in sizes {
        put(&mut calculator, &block("n3", one), &json!({}));
    }
    calculator.recompute();
    assert_eq!(routes(calculator.desired()), before);
    let all = problems(calculator.desired());
    assert_eq!(all.len(), 3, "{all:?}");
    let words = "the pool has blocks of /26: the affinity has no effect";
    let first = format!("{}: {words}", block("n3", sizes[2]));
    assert_eq!(all[0], first);
    for one in sizes {
        put(&mut calculator, &block("n3", one), &Value::Null);
    }
    calculator.recompute();
    assert!(problems(calculator.desired()).is_empty());
    // An address outside such a block has a route of its own.
    let pool = json!({"spec": {"cidr": "10.65.0.0/16", "vxlanMode": "Always", "blockSize": 28}});
    put(&mut calculator, "ippools/a", &pool);
    let key = "workloadendpoints/ns/n2-k8s-p-eth0";
    put(&mut calculator, key, &endpoint("n2", "10.65.2.7/32"));
    calculator.recompute();
    let all = routes(calculator.desired());
    assert!(
        all.contains(&"10.65.2.7/32 tunnel 10.65.2.0".to_owned()),
        "{all:?}"
    );
}

#[test]
fn endpoint_of_the_block_owner_precedes_a_borrower() {
    let mut calculator = fabric("Always");
    let key = |node: &str| format!("workloadendpoints/ns/{node}-k8s-p-eth0");
    let owned = endpoint("n2", "10.65.2.7/32");
    let borrowed = endpoint("n3", "10.65.2.7/32");
    let route = "10.65.2.7/32 tunnel 10.65.3.0".to_owned();
    for owner_is_first in [true, false] {
        let mut both = [("n2", &owned), ("n3", &borrowed)];
        if !owner_is_first {
            both.reverse();
        }
        for (node, value) in both {
            put(&mut calculator, &key(node), value);
            calculator.recompute();
        }
        let all = routes(calculator.desired());
        assert!(!all.contains(&route), "{all:?}");
        // Without the endpoint of the owner the address is borrowed.
        put(&mut calculator, &key("n2"), &Value::Null);
        calculator.recompute();
        let all = routes(calculator.desired());
        assert!(all.contains(&route), "{all:?}");
        put(&mut calculator, &key("n3"), &Value::Null);
        calculator.recompute();
        assert_eq!(routes(calculator.desired()).len(), 3);
    }
}

#[test]
fn block_with_two_owners_is_reported() {
    let mut calculator = fabric("Always");
    let before = routes(calculator.desired());
    let key = block("n3", "10.65.2.0-26");
    put(&mut calculator, &key, &json!({}));
    calculator.recompute();
    assert_eq!(routes(calculator.desired()), before);
    let words = "node n2 has the same block: its packets go to n2";
    assert_eq!(problems(calculator.desired()), [format!("{key}: {words}")]);
    put(&mut calculator, "ippools/a", &pool("10.65.0.0/16", "Never"));
    calculator.recompute();
    assert!(problems(calculator.desired()).is_empty());
    put(
        &mut calculator,
        "ippools/a",
        &pool("10.65.0.0/16", "Always"),
    );
    put(&mut calculator, &key, &Value::Null);
    calculator.recompute();
    assert!(problems(calculator.desired()).is_empty());
    assert_eq!(routes(calculator.desired()), before);
}

#[test]
fn affinity_costs_the_endpoints_of_its_block_only() {
    let mut calculator = fabric("Always");
    for n in 0..2000 {
        let key = format!("workloadendpoints/ns/n2-k8s-p{n}-eth0");
        let address = format!("10.65.{}.{}/32", 100 + n / 200, n % 200);
        put(&mut calculator, &key, &endpoint("n2", &address));
    }
    calculator.recompute();
    work::take();
    put(&mut calculator, &block("n2", "10.65.100.0-26"), &json!({}));
    let touched = calculator.recompute().overlay;
    assert_eq!(touched.routes.len(), 65, "the block, and 64 addresses");
    let steps = work::take();
    assert!((64..=256).contains(&steps), "{steps} steps");
}

#[test]
fn pools_without_encapsulation_have_one_writer_of_routes() {
    let mut calculator = fabric("Never");
    let result = |calculator: &mut Calculator, felix: &str, bgp: &str| {
        let felix = json!({"spec": {"programClusterRoutes": felix}});
        put(calculator, "felixconfigurations/default", &felix);
        let bgp = json!({"spec": {"programClusterRoutes": bgp}});
        put(calculator, "bgpconfigurations/default", &bgp);
        calculator.recompute();
        let desired = calculator.desired();
        (routes(desired), problems(desired).len())
    };
    // bgp-client has the blackholes, and n3 is behind a router.
    let own = vec!["10.65.2.0/26 via 10.0.0.2".to_owned()];
    for (felix, bgp, expected) in [
        ("EnabledIPIPOnly", "EnabledNoEncapOnly", (vec![], 0)),
        ("Enabled", "Disabled", (own.clone(), 0)),
        ("Disabled", "Enabled", (vec![], 0)),
        ("EnabledNoEncapOnly", "EnabledIPIPOnly", (own, 0)),
        ("Enabled", "Enabled", (vec![], 1)),
        ("Disabled", "Disabled", (vec![], 1)),
        ("EnabledNoEncapOnly", "EnabledNoEncapOnly", (vec![], 1)),
        ("EnabledIPIPOnly", "Enabled", (vec![], 1)),
        ("", "EnabledNoEncapOnly", (vec![], 0)),
    ] {
        let found = result(&mut calculator, felix, bgp);
        assert_eq!(found, expected, "{felix} {bgp}");
    }
    let pool = json!({"spec": {"cidr": "10.65.0.0/16", "ipipMode": "Always"}});
    put(&mut calculator, "ippools/a", &pool);
    let ipip = result(&mut calculator, "Enabled", "Disabled");
    // The Node has no address for IP in IP.
    assert_eq!(ipip, (vec![], 1));
    let key = format!("{PREFIX}felixconfigurations/default");
    let wrong = br#"{"spec": {"programClusterRoutes": "Some"}}"#;
    assert!(calculator.change(&key, Some(wrong)).is_some());
}

#[test]
fn vxlan_enabled_overrides_the_pools() {
    let mut calculator = fabric("Always");
    let enabled = |calculator: &mut Calculator, enabled: Value| {
        let settings = json!({"spec": {"vxlanEnabled": enabled}});
        put(calculator, "felixconfigurations/default", &settings);
        calculator.recompute();
        let overlay = &calculator.desired().overlay;
        let has_device = matches!(overlay.devices[&Family::V4], DeviceState::Wanted(_));
        let filters = calculator.desired().rules().chains.contains_key(TO_HOST);
        (
            has_device,
            overlay.routes.len(),
            overlay.ends.len(),
            filters,
        )
    };
    assert_eq!(enabled(&mut calculator, Value::Null), (true, 3, 2, true));
    assert_eq!(enabled(&mut calculator, json!(false)), (false, 0, 0, false));
    assert_eq!(enabled(&mut calculator, json!(true)), (true, 3, 2, true));
    put(&mut calculator, "ippools/a", &pool("10.65.0.0/16", "Never"));
    assert_eq!(enabled(&mut calculator, json!(true)), (true, 0, 2, true));
    assert_eq!(enabled(&mut calculator, Value::Null), (false, 0, 0, false));
}

#[test]
fn routes_lead_to_single_workloads_if_the_source_is_workloads() {
    let mut calculator = fabric("Always");
    let key = "workloadendpoints/ns/n2-k8s-p-eth0";
    put(&mut calculator, key, &endpoint("n2", "10.65.2.7/32"));
    let settings = json!({"spec": {"routeSource": "WorkloadIPs"}});
    put(&mut calculator, "felixconfigurations/default", &settings);
    calculator.recompute();
    let of_workloads = [
        "10.65.2.0/32 tunnel 10.65.2.0",
        "10.65.2.7/32 tunnel 10.65.2.0",
        "10.65.3.0/32 tunnel 10.65.3.0",
    ];
    assert_eq!(routes(calculator.desired()), of_workloads);
    assert!(problems(calculator.desired()).is_empty());
    put(&mut calculator, key, &Value::Null);
    calculator.recompute();
    assert_eq!(routes(calculator.desired()).len(), 2);
    put(
        &mut calculator,
        "felixconfigurations/default",
        &json!({"spec": {}}),
    );
    calculator.recompute();
    assert_eq!(
        routes(calculator.desired())[1],
        "10.65.2.0/26 tunnel 10.65.2.0"
    );
}
