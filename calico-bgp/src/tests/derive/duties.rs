//! The duties of a node beside its sessions.

use super::policies::evaluated;
use super::*;

#[test]
fn duties_of_a_node() {
    let settings = (
        "bgpconfigurations/default",
        r#"{"metadata":{"name":"default"},"spec":{
        "serviceClusterIPs":[{"cidr":"10.96.0.0/12"}],"serviceExternalIPs":[{"cidr":"203.0.113.7/32"}]}}"#,
    );
    let tor = (
        "bgppeers/tor",
        r#"{"spec":{"node":"a","peerIP":"10.9.0.1","asNumber":64700,"reachableBy":"10.0.0.254"}}"#,
    );
    let mut contents = with(ADDRESSES);
    contents.extend([settings, tor]);
    let Duties {
        blocks,
        services,
        service_routes,
        pools: _,
        gateways,
        programming,
        bfd_timers,
        drain,
    } = of(&contents, "a").duties;
    assert_eq!(bfd_timers, []);
    let texts = |nets: &dyn Fn() -> Vec<String>| nets();
    assert_eq!(
        texts(&|| blocks.iter().map(ToString::to_string).collect()),
        ["10.65.1.0/26", "10.65.1.64/26", "10.65.1.200/32"]
    );
    assert_eq!(
        texts(&|| services.iter().map(ToString::to_string).collect()),
        ["10.96.0.0/12"]
    );
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    assert_eq!(
        gateways,
        BTreeMap::from([(ip("10.9.0.1"), ip("10.0.0.254"))])
    );
    assert!(of(&contents, "b").duties.gateways.is_empty());
    assert_eq!(drain, None);
    assert!(service_routes.is_empty());
    let way = |net: &str| programming.way(net.parse().expect("a prefix"), ip("10.0.1.5"));
    assert_eq!(way("10.65.9.0/26"), Way::Direct);
    assert_eq!(way("0.0.0.0/0"), Way::Direct);
    assert_eq!(way("10.67.9.0/26"), Way::Theirs, "VXLAN is Felix's");
    assert_eq!(
        way("10.68.9.0/26"),
        Way::Theirs,
        "so is IP-in-IP, by default"
    );
    assert_eq!(
        way("10.97.0.0/16"),
        Way::Theirs,
        "services are everybody's own"
    );
}

#[test]
fn pools_use_tunnels_if_the_client_programs_them() {
    let settings = (
        "bgpconfigurations/default",
        r#"{"metadata":{"name":"default"},"spec":{"programClusterRoutes":"EnabledIPIPOnly"}}"#,
    );
    let mut contents = with(ADDRESSES);
    contents.push(settings);
    let programming = of(&contents, "a").duties.programming;
    let way = |net: &str, next_hop: &str| {
        let next_hop = next_hop.parse().expect("an address");
        programming.way(net.parse().expect("a prefix"), next_hop)
    };
    assert_eq!(
        way("10.68.9.0/26", "10.0.0.2"),
        Way::Direct,
        "the same subnet"
    );
    assert!(matches!(
        way("10.68.9.0/26", "10.0.1.5"),
        Way::Tunnel { .. }
    ));
    assert!(matches!(
        way("10.69.9.0/26", "10.0.0.2"),
        Way::Tunnel { .. }
    ));
    assert_eq!(
        way("10.65.9.0/26", "10.0.0.2"),
        Way::Theirs,
        "the other one's"
    );
}

/// Its encapsulation is unknown: Felix may program the routes into it.
#[test]
fn unreadable_new_pool_is_not_programmed() {
    let bad = r#"{"spec":{"cidr":"10.70.1.0/16","vxlanMode":"Sometimes"}}"#;
    let good = r#"{"spec":{"cidr":"10.70.0.0/16","vxlanMode":"Never"}}"#;
    let pool = key("ippools/new");
    let mut view = known(&with(&[("ippools/new", bad)]));
    let way = |view: &View| {
        let derived = derive(view, &host("a"), &Secrets::new());
        assert!(derived.intent.is_some());
        let [net, via] = ["10.70.1.0/26", "10.0.0.9/32"].map(|net| net.parse::<IpNet>());
        let [net, via] = [net.expect("a net"), via.expect("an address")];
        (
            derived.duties.programming.way(net, via.addr()),
            derived.faults.len(),
        )
    };
    assert_eq!(way(&view), (Way::Theirs, 1));
    let moved = bad.replace("10.70.", "10.71.");
    assert!(
        view.take(pool.as_bytes(), Some(moved.as_bytes())),
        "the range is another"
    );
    assert_eq!(way(&view), (Way::Direct, 1));
    assert!(view.take(pool.as_bytes(), Some(good.as_bytes())));
    assert_eq!(way(&view), (Way::Direct, 0));
    assert!(view.take(pool.as_bytes(), Some(bad.as_bytes())));
    assert_eq!(way(&view), (Way::Direct, 1), "the last good value stays");
    assert!(view.take(pool.as_bytes(), None));
    assert_eq!(view, known(NODES));
    for useless in ["{", r#"{"spec":{"cidr":"ten"}}"#, "[]"] {
        assert!(view.take(pool.as_bytes(), Some(useless.as_bytes())));
        assert_eq!(way(&view), (Way::Direct, 1), "a range without a reader");
    }
}

#[test]
fn nodes_with_wireguard_are_reached_by_felix() {
    let node = |name: &str, address: &str| {
        let text = format!(
            r#"{{"spec":{{"bgp":{{"ipv4Address":"{address}/24"}},"wireguard":{{"interfaceIPv4Address":"10.65.0.9"}}}}}}"#
        );
        (format!("nodes/{name}"), text)
    };
    let nodes = [node("a", "10.0.0.1"), node("f", "10.0.0.6")];
    let mut contents = with(&[]);
    contents.extend(
        nodes
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str())),
    );
    let way = |node: &str| {
        let programming = of(&contents, node).duties.programming;
        programming.way(
            "10.65.9.0/26".parse().expect("a prefix"),
            "10.0.0.6".parse().expect("one"),
        )
    };
    assert_eq!(way("a"), Way::Theirs);
    assert_eq!(way("b"), Way::Direct, "it has no WireGuard itself");
}

#[test]
fn drain_is_a_duty_of_a_node_and_no_term_of_its_policies() {
    let mut view = known(&with(ADDRESSES));
    let before = derive(&view, &host("a"), &Secrets::new());
    let key = b"/cambric/v1/drain/a";
    for (value, since) in [(&b"{\"since\":\"noon\"}"[..], "noon"), (b"?", "")] {
        assert!(view.take(key, Some(value)));
        let drained = derive(&view, &host("a"), &Secrets::new());
        assert_eq!(drained.duties.drain.as_deref(), Some(since));
        assert_eq!(drained.intent, before.intent);
        assert_eq!(
            derive(&view, &host("b"), &Secrets::new()).duties.drain,
            None
        );
    }
    assert!(view.take(key, None));
    let reflector = Host {
        reflects: true,
        ..host("a")
    };
    view.take(key, Some(b"{}"));
    let reflector = derive(&view, &reflector, &Secrets::new());
    assert_eq!(reflector.duties.drain, None);
}

#[test]
fn drain_report_is_neither_a_change_nor_a_fault() {
    let mut view = View::of("a");
    let stage = |view: &View| view.fleet().drain_report().map(|report| report.stage);
    for (node, value) in [("b", "{}"), ("b", "?"), ("B/b", "{}"), ("a", "?")] {
        let key = format!("/cambric/v1/drain-report/{node}");
        assert!(!view.take(key.as_bytes(), Some(value.as_bytes())), "{key}");
        assert!(!view.take(key.as_bytes(), None), "{key}");
        assert_eq!(stage(&view), None, "{key}");
    }
    let own = b"/cambric/v1/drain-report/a";
    assert!(!view.take(own, Some(b"{\"stage\":\"all\"}")));
    assert_eq!(stage(&view), Some(calico_model::DrainStage::All));
    assert!(!view.take(own, Some(b"?")));
    assert_eq!(stage(&view), None, "an invalid report is no report");
    assert_eq!(view.faults().count(), 0);
}

/// The settings of services, and the routes of node `a`.
fn serving() -> Vec<(&'static str, &'static str)> {
    let settings = (
        "bgpconfigurations/default",
        r#"{"metadata":{"name":"default"},"spec":{
        "serviceClusterIPs":[{"cidr":"10.96.0.0/12"}],"serviceExternalIPs":[{"cidr":"203.0.113.7/32"}],
        "serviceLoadBalancerAggregation":"Disabled","serviceLoadBalancerIPs":[{"cidr":"192.0.2.0/24"}]}}"#,
    );
    let mut contents = with(ADDRESSES);
    contents.push(settings);
    contents
}

/// Returns the view of node `a`.
fn served(contents: Contents<'_>) -> View {
    let mut view = View::of("a");
    for (short, value) in contents {
        view.take(key(short).as_bytes(), Some(value.as_bytes()));
    }
    view
}

/// Applies the routes of services of node `a`.
fn serve(view: &mut View, routes: &str) -> bool {
    let key = "/cambric/announcements/v1/a/services";
    view.take(key.as_bytes(), Some(routes.as_bytes()))
}

const ROUTES: &str = r#"{"routes":[
    {"address":"10.96.0.10","services":["prod/web"],"med":7},
    {"address":"192.0.2.9","services":["prod/web"],"communities":["64512:300"]},
    {"address":"198.18.0.1","services":["prod/web"]},
    {"address":"203.0.113.7","services":["prod/web"],"peers":["tor"]}]}"#;

#[test]
fn services_of_the_own_key_are_duties() {
    let host = host("a");
    let mut view = served(&serving());
    let derived = |view: &View| derive(view, &host, &Secrets::new());
    let way = |view: &View, net: &str| {
        let programming = derived(view).duties.programming;
        let next_hop = "10.0.1.5".parse().expect("an address");
        programming.way(net.parse().expect("a prefix"), next_hop)
    };
    assert!(derived(&view).duties.service_routes.is_empty());
    assert_eq!(way(&view, "203.0.113.7/32"), Way::Direct);
    assert!(serve(&mut view, ROUTES));
    let duties = derived(&view).duties;
    let nets: Vec<_> = duties
        .service_routes
        .keys()
        .map(ToString::to_string)
        .collect();
    // An address in no range of BGPConfiguration is not announced.
    assert_eq!(nets, ["10.96.0.10/32", "192.0.2.9/32", "203.0.113.7/32"]);
    // Nodes that translate the address do not forward its packets to each other.
    for net in ["10.96.0.10/32", "192.0.2.9/32", "203.0.113.7/32"] {
        assert_eq!(way(&view, net), Way::Theirs, "{net}");
    }
    // An invalid value keeps the routes.
    assert!(serve(&mut view, r#"{"routes":[{"address":"x"}]}"#));
    let invalid = derived(&view);
    assert_eq!(invalid.duties, duties);
    let fault = invalid.faults.first().expect("a fault").to_string();
    assert!(fault.contains("routes[0].address"), "{fault}");
    // The key of another node is not this node's.
    let other = "/cambric/announcements/v1/ab/services";
    assert!(!view.take(other.as_bytes(), Some(br#"{"routes":[]}"#)));
    let label = r#"{"metadata":{"name":"a","labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"true"}},"spec":{"bgp":{"ipv4Address":"10.0.0.1/24"}}}"#;
    let node = "/calico/resources/v3/projectcalico.org/nodes/a";
    assert!(view.take(node.as_bytes(), Some(label.as_bytes())));
    assert!(derived(&view).duties.service_routes.is_empty());
}

#[test]
fn services_are_exported_to_the_peers_they_name() {
    let host = host("a");
    let mut contents = serving();
    contents.push((
        "bgppeers/tor",
        r#"{"spec":{"node":"a","peerIP":"10.9.0.1","asNumber":64700}}"#,
    ));
    contents.push((
        "bgppeers/other",
        r#"{"spec":{"node":"a","peerIP":"10.9.0.2","asNumber":64700}}"#,
    ));
    let mut view = served(&contents);
    let exported = |view: &View, at: &str, net: &str| {
        let derived = derive(view, &host, &Secrets::new());
        let speaker = derived.intent.expect("a speaker").speaker;
        let at: IpAddr = at.parse().expect("an address");
        let mut peers = speaker.peers.iter();
        let peer = peers.find(|peer| peer.remote == at).expect("the peer");
        let own = evaluated(&peer.export, net, Role::Local, None, Attributes::default());
        own.is_some()
    };
    for net in ["192.0.2.9/32", "203.0.113.7/32"] {
        assert!(!exported(&view, "10.9.0.1", net), "{net}");
    }
    assert!(serve(&mut view, ROUTES));
    for (at, net, wanted) in [
        ("10.9.0.1", "10.96.0.10/32", true),
        ("10.9.0.1", "192.0.2.9/32", true),
        ("10.9.0.1", "203.0.113.7/32", true),
        ("10.9.0.2", "192.0.2.9/32", true),
        ("10.9.0.2", "203.0.113.7/32", false),
        ("10.9.0.2", "198.18.0.1/32", false),
    ] {
        assert_eq!(exported(&view, at, net), wanted, "{at} {net}");
    }
    // A name without a BGPPeer is reported.
    assert!(serve(&mut view, &ROUTES.replace("tor", "missing")));
    let faults = derive(&view, &host, &Secrets::new()).faults;
    let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert!(
        faults.iter().any(|fault| fault.contains("missing")),
        "{faults:?}"
    );
}

#[test]
fn pools_of_load_balancers_are_not_pools_of_workloads() {
    let mut contents = with(ADDRESSES);
    contents.push((
        "ippools/balanced",
        r#"{"metadata":{"name":"balanced"},"spec":{"cidr":"192.0.2.0/24","allowedUses":["LoadBalancer"]}}"#,
    ));
    let workloads = of(&contents, "a").duties.workloads();
    let has = |net: &str| workloads.contains(&net.parse().expect("a prefix"));
    assert!(!has("192.0.2.0/24"));
    assert!(has("10.65.1.0/26"));
}
