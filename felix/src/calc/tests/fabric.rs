//! The addresses and ports of the fabric itself: nodes, BGP ports, BGP peers, the datastore.

use super::*;
use crate::render::{Control, TCP, UDP};

fn node(spec: Value) -> Value {
    json!({"kind": "Node", "metadata": {"name": "n"}, "spec": spec})
}

fn ports(control: &Control) -> Vec<u16> {
    let tcp = control.ports.iter().filter(|(of, _)| *of == TCP);
    tcp.map(|(_, port)| *port).collect()
}

#[test]
fn control_ports_follow_the_store_and_end_with_it() {
    let mut calculator = Calculator::new(HOST, None);
    assert_eq!(ports(&calculator.recomputed().control), [179]);
    let n1 = node(json!({
        "bgp": {"ipv4Address": "10.0.0.11/24", "ipv6Address": "fd00::11/64",
            "ipv4IPIPTunnelAddr": "10.65.0.64"},
        "ipv4VXLANTunnelAddr": "10.65.0.65",
        "addresses": [{"address": "192.0.2.11/32"}, {"address": "no address"}],
    }));
    let values = [
        (key("nodes", "n1"), n1),
        (
            key("bgpconfigurations", "default"),
            json!({"spec": {"listenPort": 1790}}),
        ),
        (
            key("bgpconfigurations", "node.n2"),
            json!({"spec": {"listenPort": 1791}}),
        ),
        (
            key("bgppeers", "tor"),
            json!({"spec": {"peerIP": "10.0.0.1", "asNumber": 64512}}),
        ),
        (
            key("bgppeers", "other"),
            json!({"spec": {"peerIP": "[fd00::1]:8179", "asNumber": 64512}}),
        ),
    ];
    for (key, value) in &values {
        assert_eq!(change(&mut calculator, key, Some(value)), None);
    }
    calculator.datastore_at(
        ["10.0.0.254:2379", "127.0.0.1:2380", "[::1]:2381"]
            .map(|at| at.parse().unwrap())
            .into(),
    );
    let control = calculator.recomputed().control;
    assert_eq!(ports(&control), [179, 1790, 1791]);
    let udp = control.ports.iter().filter(|(of, _)| *of == UDP);
    assert_eq!(udp.copied().collect::<Vec<_>>(), [(UDP, 3784), (UDP, 4784)]);
    assert_eq!(control.node_ports, [2380, 2381].into());
    let nodes = [
        "10.0.0.11",
        "10.65.0.64",
        "10.65.0.65",
        "192.0.2.11",
        "fd00::11",
    ];
    assert_eq!(control.nodes, nodes.map(ip).into());
    let services = [("10.0.0.1", 179), ("10.0.0.254", 2379), ("fd00::1", 8179)];
    assert_eq!(
        control.services,
        services.map(|(at, port)| (ip(at), port)).into()
    );
    let set = |name: &str| {
        let set = &calculator.desired().rules().sets[name];
        let keys = set.elements.keys().map(ToString::to_string);
        keys.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(set("control-ports-tcp"), "179 1790-1791");
    assert_eq!(set("control-ports-udp"), "3784 4784");
    assert_eq!(set("control-services-ipv6"), "fd00::1 . 8179");

    // An unparsable value leaves the previous one in effect.
    let bad = json!({"spec": {"listenPort": "many"}});
    assert!(change(&mut calculator, &values[1].0, Some(&bad)).is_some());
    assert_eq!(ports(&calculator.recomputed().control), [179, 1790, 1791]);
    for (key, _) in &values {
        change(&mut calculator, key, None);
    }
    calculator.datastore_at(BTreeSet::new());
    let fresh = Calculator::new(HOST, None).recomputed();
    assert!(calculator.recomputed() == fresh);
}

#[test]
fn same_value_of_the_fabric_is_no_news() {
    let value = node(json!({"bgp": {"ipv4Address": "10.0.0.11/24"}}));
    let mut calculator = calculator_of(&[(key("nodes", "n1"), value.clone())]);
    calculator.recompute();
    change(&mut calculator, &key("nodes", "n1"), Some(&value));
    assert!(!calculator.has_news());
}

#[test]
fn datastore_on_a_node_closes_its_port_on_all_nodes() {
    let value = node(json!({"bgp": {"ipv4Address": "10.0.0.11/24"}}));
    let mut calculator = calculator_of(&[(key("nodes", "n1"), value)]);
    let mut ports_at = |at: &str| {
        let at = at.parse().unwrap();
        calculator.datastore_at([at].into());
        let control = calculator.recomputed().control;
        (control.node_ports, control.services)
    };
    for own in ["127.0.0.1:2379", "0.0.0.0:2379", "[::]:2379", "[::1]:2379"] {
        assert_eq!(ports_at(own), ([2379].into(), [].into()), "{own}");
    }
    let (node, other) = (ip("10.0.0.11"), ip("10.0.0.254"));
    let both = ([2379].into(), [(node, 2379)].into());
    assert_eq!(ports_at("10.0.0.11:2379"), both);
    let single = ([].into(), [(other, 2379)].into());
    assert_eq!(ports_at("10.0.0.254:2379"), single);
    // The node may arrive later than the datastore.
    let value = self::node(json!({"bgp": {"ipv4Address": "10.0.0.254/24"}}));
    change(&mut calculator, &key("nodes", "n2"), Some(&value));
    assert_eq!(calculator.recomputed().control.node_ports, [2379].into());
}

#[test]
fn bgp_settings_of_another_name_close_no_port() {
    let listen = |port: u16| json!({"spec": {"listenPort": port}});
    let mut calculator = calculator_of(&[
        (key("bgpconfigurations", "default"), listen(1790)),
        (key("bgpconfigurations", "node.n2"), listen(1791)),
        (key("bgpconfigurations", "racks"), listen(80)),
    ]);
    let control = calculator.recomputed().control;
    assert_eq!(ports(&control), [179, 1790, 1791]);
}

#[test]
fn registered_reflectors_are_guarded_at_their_port() {
    let at = |name: &str| format!("{}{name}", calico_model::FabricKey::REFLECTORS);
    let value = |port: Value| {
        json!({"asNumber": 64512, "ipv4Address": "10.65.0.9", "ipv6Address": "fd65::9",
            "port": port, "clusterID": "10.65.0.9"})
    };
    let mut calculator = Calculator::new(HOST, None);
    let mut services = |value: Option<&Value>| {
        let problem = change(&mut calculator, &at("r1"), value);
        (calculator.recomputed().control.services, problem.is_some())
    };
    let guarded = |port| [(ip("10.65.0.9"), port), (ip("fd65::9"), port)].into();
    assert_eq!(services(Some(&value(json!(1179)))), (guarded(1179), false));
    // An unparsable value leaves the previous one in effect.
    assert_eq!(services(Some(&json!({"port": 7}))), (guarded(1179), true));
    assert_eq!(services(Some(&value(Value::Null))), (guarded(179), false));
    assert_eq!(services(None), ([].into(), false));
    let read: Vec<_> = crate::store::ranges().collect();
    let prefix = calico_store::KeyRange::prefix(calico_model::FabricKey::REFLECTORS);
    assert!(read.contains(&prefix), "registrations are read");
}

#[test]
fn ports_of_files_are_guarded_with_those_of_resources() {
    let value = node(json!({"bgp": {"ipv4Address": "10.0.0.11/24"}}));
    let mut calculator = calculator_of(&[(key("nodes", "n1"), value)]);
    let neighbors = [
        "10.0.0.1:8179",
        "10.0.0.11:8180",
        "127.0.0.1:8181",
        "[::1]:179",
    ];
    let files = BgpPorts {
        ports: [1790].into(),
        neighbors: neighbors.map(|at| at.parse().unwrap()).into(),
        incomplete: false,
    };
    calculator.bgp_files(files);
    assert!(calculator.has_news());
    let control = calculator.recomputed().control;
    assert_eq!(ports(&control), [179, 1790]);
    assert_eq!(control.node_ports, [8180, 8181].into());
    let services = [("10.0.0.1", 8179), ("10.0.0.11", 8180)];
    assert_eq!(
        control.services,
        services.map(|(at, port)| (ip(at), port)).into()
    );
    assert!(!control.host_is_closed);
    calculator.bgp_files(BgpPorts {
        incomplete: true,
        ..BgpPorts::default()
    });
    assert!(calculator.recomputed().control.host_is_closed);
    calculator.bgp_files(BgpPorts::default());
    assert_eq!(ports(&calculator.recomputed().control), [179]);
}

#[test]
fn ranges_of_services_are_those_of_the_default_settings() {
    let config = |name: &str| key("bgpconfigurations", name);
    let spec = |cidr: &str| {
        json!({"spec": {"serviceClusterIPs": [{ "cidr": cidr }],
            "serviceLoadBalancerIPs": [{"cidr": "fd96::/64"}]}})
    };
    let mut calculator = calculator_of(&[
        (config("default"), spec("10.96.0.0/16")),
        (config("node.x"), spec("10.97.0.0/16")),
    ]);
    let settings = key("felixconfigurations", "default");
    for (word, is_valid, expected) in [
        ("", true, "counter drop"),
        ("Reject", true, "counter reject with icmpx port-unreachable"),
        (
            "Sometimes",
            false,
            "counter reject with icmpx port-unreachable",
        ),
        ("disabled", true, ""),
        ("Drop", true, "counter drop"),
    ] {
        let value = json!({"spec": {"serviceLoopPrevention": word}});
        let fault = change(&mut calculator, &settings, Some(&value));
        assert_eq!(fault.is_none(), is_valid, "{fault:?}");
        let desired = calculator.recomputed();
        let chain = desired.rules().chains.get("service-loops");
        let rules = chain.iter().flat_map(|chain| &chain.rules);
        let texts: Vec<String> = rules.map(rule_text).collect();
        let expected: &[String] = &match expected {
            "" => vec![],
            action => [
                "ip daddr @service-ranges-ipv4",
                "ip6 daddr @service-ranges-ipv6",
            ]
            .map(|to| format!("{to} {action} comment \"service address without translation\""))
            .into(),
        };
        assert_eq!(texts, expected, "{word}");
        let ranges = ["service-ranges-ipv4", "service-ranges-ipv6"].map(|name| {
            let keys = desired.rules().sets[name].elements.keys();
            keys.map(ToString::to_string).collect::<Vec<_>>()
        });
        assert_eq!(ranges, [["10.96.0.0/16"], ["fd96::/64"]]);
    }
    change(&mut calculator, &config("default"), None);
    let desired = calculator.recomputed();
    assert!(!desired.rules().chains.contains_key("service-loops"));
    assert!(!desired.rules().sets.contains_key("service-ranges-ipv4"));
}
