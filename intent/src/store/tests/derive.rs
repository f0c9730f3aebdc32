//! What is derived from what: store contents and the peers, policies and duties of a node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bgp_fsm::PeerAs;
use bgp_proto::{Attributes, Family, Net};
use bgp_speaker::PeerConfig;
use ipnet::IpNet;
use proptest::prelude::*;
use rib::{NextHopMode, Policy, Role, RouteContext, Verdict};

use super::*;

const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";
/// LOCAL_PREF of a route of metric 1024.
const NORMAL: u32 = 2_147_482_623;

/// Store contents: keys below [`PREFIX`], or whole ones, and values.
type Contents<'a> = &'a [(&'a str, &'a str)];

fn key(short: &str) -> String {
    match short.starts_with('/') {
        true => short.to_owned(),
        false => format!("{PREFIX}{short}"),
    }
}

fn known(contents: Contents<'_>) -> View {
    let mut view = View::default();
    for (short, value) in contents {
        view.take(key(short).as_bytes(), Some(value.as_bytes()));
    }
    view
}

/// Four nodes of a rack, two of which can be reflectors, and one of another subnet and AS.
const NODES: Contents<'_> = &[
    (
        "nodes/a",
        r#"{"metadata":{"labels":{"rack":"r1"}},"spec":{"bgp":{"ipv4Address":"10.0.0.1/24"}}}"#,
    ),
    (
        "nodes/b",
        r#"{"metadata":{"labels":{"rack":"r1","route-reflector":""}},"spec":{"bgp":{"ipv4Address":"10.0.0.2/24","routeReflectorClusterID":"244.0.0.1"}}}"#,
    ),
    (
        "nodes/c",
        r#"{"metadata":{"labels":{"rack":"r1","route-reflector":""}},"spec":{"bgp":{"ipv4Address":"10.0.0.3/24","routeReflectorClusterID":"244.0.0.1"}}}"#,
    ),
    (
        "nodes/d",
        r#"{"metadata":{"labels":{"rack":"r2","route-reflector":""}},"spec":{"bgp":{"ipv4Address":"10.0.0.4/24","routeReflectorClusterID":"244.0.0.2"}}}"#,
    ),
    (
        "nodes/e",
        r#"{"metadata":{"labels":{"rack":"r2"}},"spec":{"bgp":{"ipv4Address":"10.0.1.5/24","ipv6Address":"fd00::5/64","asNumber":64600}}}"#,
    ),
];

const NO_MESH: (&str, &str) = (
    "bgpconfigurations/default",
    r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false}}"#,
);

fn with<'a>(more: Contents<'a>) -> Vec<(&'a str, &'a str)> {
    NODES.iter().chain(more).copied().collect()
}

fn of(contents: Contents<'_>, node: &str) -> Derived {
    derive(&known(contents), &host(node), &Secrets::new())
}

/// A peer in a line: what is not as it is by default.
fn line(peer: &PeerConfig) -> String {
    let mut words = vec![peer.name.clone()];
    let PeerAs::Exactly(asn) = peer.session.peer_asn else {
        panic!("a number");
    };
    words.push(format!("AS{asn}"));
    if peer.session.local_asn.0 != 64512 {
        words.push(format!("as AS{}", peer.session.local_asn));
    }
    words.push(match peer.role {
        Role::Client => "client".to_owned(),
        Role::Internal => "internal".to_owned(),
        Role::External => "external".to_owned(),
        Role::Local => unreachable!("no peer is ourselves"),
    });
    let mut when = |there: bool, word: String| {
        if there {
            words.push(word);
        }
    };
    when(peer.port != 179, format!("port {}", peer.port));
    when(peer.session.passive, "passive".to_owned());
    when(peer.local.is_none(), "any source".to_owned());
    when(
        peer.next_hop == NextHopMode::Own,
        "next hop self".to_owned(),
    );
    when(
        peer.next_hop == NextHopMode::Keep,
        "next hop keep".to_owned(),
    );
    when(peer.password.is_some(), "password".to_owned());
    let graceful = peer
        .session
        .graceful_restart
        .as_ref()
        .map(|graceful| graceful.time_s);
    when(graceful != Some(120), format!("restart {graceful:?}"));
    if let Some(hops) = peer.ttl_security_hops {
        when(true, format!("{hops} hops"));
    }
    if let Some(seconds) = peer.session.keepalive_s {
        words.push(format!("keepalive {seconds}"));
    }
    words.join(" ")
}

fn lines(derived: &Derived) -> Vec<String> {
    let intent = derived.intent.as_ref().expect("a speaker");
    intent.speaker.peers.iter().map(line).collect()
}

#[track_caller]
fn peers_are(more: Contents<'_>, node: &str, expected: &[&str]) {
    let derived = of(&with(more), node);
    assert_eq!(derived.faults, []);
    assert_eq!(lines(&derived), expected);
}

#[test]
fn peerings_of_all_nodes() {
    let tor = (
        "bgppeers/tor",
        r#"{"spec":{"peerIP":"10.0.0.254","asNumber":64700}}"#,
    );
    peers_are(
        &[NO_MESH, tor],
        "a",
        &["Global_10_0_0_254 AS64700 external"],
    );
    peers_are(
        &[tor],
        "a",
        &[
            "Global_10_0_0_254 AS64700 external",
            "Mesh_10_0_1_5 AS64600 external passive",
        ],
    );
    peers_are(&[NO_MESH], "a", &[]);
}

#[test]
fn every_field_of_a_peering_counts() {
    let all = r#"{"spec":{"node":"a","peerIP":"10.0.0.254:1790","asNumber":64700,
        "localASNumber":64611,"sourceAddress":"None","nextHopMode":"Self","maxRestartTime":"1m15s",
        "ttlSecurity":1,"keepaliveTime":"20s"}}"#;
    let expected = "Node_10_0_0_254_port_1790 AS64700 as AS64611 external port 1790 any source \
                    next hop self restart Some(75) 1 hops keepalive 20";
    peers_are(&[NO_MESH, ("bgppeers/tor", all)], "a", &[expected]);
    peers_are(&[NO_MESH, ("bgppeers/tor", all)], "b", &[]);
    // The older flag counts on external sessions only.
    for (asn, expected) in [
        (64700, "Global_10_0_0_254 AS64700 external next hop keep"),
        (64512, "Global_10_0_0_254 AS64512 internal"),
    ] {
        let text = format!(
            r#"{{"spec":{{"peerIP":"10.0.0.254","asNumber":{asn},"keepOriginalNextHop":true}}}}"#
        );
        peers_are(&[NO_MESH, ("bgppeers/tor", &text)], "a", &[expected]);
    }
}

#[test]
fn a_peering_of_all_goes_before_one_of_some_and_the_first_name_before_others() {
    let global = (
        "bgppeers/z-global",
        r#"{"spec":{"peerIP":"10.0.0.254","asNumber":64700}}"#,
    );
    let some = (
        "bgppeers/a-some",
        r#"{"spec":{"nodeSelector":"rack == 'r1'","peerIP":"10.0.0.254","asNumber":64800}}"#,
    );
    let other = (
        "bgppeers/b-some",
        r#"{"spec":{"node":"a","peerIP":"10.0.0.254","asNumber":64900}}"#,
    );
    let expected = ["Global_10_0_0_254 AS64700 external"];
    peers_are(&[NO_MESH, global, some, other], "a", &expected);
    peers_are(
        &[NO_MESH, some, other],
        "a",
        &["Node_10_0_0_254 AS64800 external"],
    );
    peers_are(
        &[NO_MESH, other],
        "a",
        &["Node_10_0_0_254 AS64900 external"],
    );
    peers_are(&[NO_MESH, some], "e", &[]);
    // Two ports of one address cannot both be had.
    let port = (
        "bgppeers/c",
        r#"{"spec":{"node":"a","peerIP":"10.0.0.254:1790","asNumber":64900}}"#,
    );
    let derived = of(&with(&[NO_MESH, global, port]), "a");
    assert_eq!(lines(&derived), expected);
    let told = "bgppeers/c: spec.peerIP: 10.0.0.254 is a peer already, at another port";
    assert!(
        derived.faults[0].to_string().ends_with(told),
        "{:?}",
        derived.faults
    );
}

#[test]
fn reflectors_by_cluster_id() {
    let to_reflectors = (
        "bgppeers/to-rr",
        r#"{"spec":{"nodeSelector":"!has(route-reflector)","peerSelector":"has(route-reflector)"}}"#,
    );
    let reflectors = (
        "bgppeers/rr-rr",
        r#"{"spec":{"nodeSelector":"has(route-reflector)","peerSelector":"has(route-reflector)"}}"#,
    );
    let all: Contents<'_> = &[NO_MESH, to_reflectors, reflectors];
    peers_are(
        all,
        "a",
        &[
            "Node_10_0_0_2 AS64512 internal",
            "Node_10_0_0_3 AS64512 internal",
            "Node_10_0_0_4 AS64512 internal",
        ],
    );
    // The other sides of the peerings of others; those of our own cluster are no clients.
    peers_are(
        all,
        "b",
        &[
            "Node_10_0_0_1 AS64512 client",
            "Node_10_0_0_3 AS64512 internal",
            "Node_10_0_0_4 AS64512 client",
            "Node_10_0_1_5 AS64600 external",
        ],
    );
    let cluster = |node: &str| {
        let derived = of(&with(all), node);
        derived.intent.expect("a speaker").speaker.cluster_id
    };
    assert_eq!(cluster("b").map(|id| id.0), Some([244, 0, 0, 1].into()));
    assert_eq!(cluster("a"), None);
    // Beside the mesh, which reflectors are not in.
    peers_are(
        &[to_reflectors],
        "a",
        &[
            "Mesh_10_0_1_5 AS64600 external passive",
            "Node_10_0_0_2 AS64512 internal",
            "Node_10_0_0_3 AS64512 internal",
            "Node_10_0_0_4 AS64512 internal",
        ],
    );
    let manual = (
        "bgppeers/to-rr",
        r#"{"spec":{"nodeSelector":"rack == 'r1'","peerSelector":"rack == 'r2'","reversePeering":"Manual"}}"#,
    );
    peers_are(&[NO_MESH, manual], "d", &[]);
    peers_are(
        &[NO_MESH, manual],
        "a",
        &[
            "Node_10_0_0_4 AS64512 internal",
            "Node_10_0_1_5 AS64600 external",
        ],
    );
}

#[test]
fn the_address_of_a_node_is_that_node() {
    let ports: Contents<'_> = &[
        (
            "bgpconfigurations/default",
            r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false,"listenPort":1179}}"#,
        ),
        (
            "bgpconfigurations/node.c",
            r#"{"metadata":{"name":"node.c"},"spec":{"listenPort":2179}}"#,
        ),
        ("bgppeers/c", r#"{"spec":{"peerIP":"10.0.0.3"}}"#),
    ];
    peers_are(
        ports,
        "a",
        &["Global_10_0_0_3_port_2179 AS64512 internal port 2179 passive"],
    );
    peers_are(
        ports,
        "d",
        &["Global_10_0_0_3_port_2179 AS64512 client port 2179"],
    );
    // The other side, with each of those that have it, and never with itself.
    peers_are(
        ports,
        "c",
        &[
            "Node_10_0_0_1_port_1179 AS64512 client port 1179",
            "Node_10_0_0_2_port_1179 AS64512 internal port 1179",
            "Node_10_0_0_4_port_1179 AS64512 client port 1179",
            "Node_10_0_1_5_port_1179 AS64600 external port 1179",
        ],
    );
    let listen = |node: &str| of(&with(ports), node).intent.expect("a speaker").listen[0].port();
    assert_eq!((listen("a"), listen("c")), (1179, 2179));
}

#[test]
fn a_password_that_is_missing_keeps_the_session_down() {
    let tor = r#"{"spec":{"peerIP":"10.0.0.254","asNumber":64700,"password":{"secretKeyRef":{"name":"bgp","key":"tor"}}}}"#;
    let mesh = r#"{"metadata":{"name":"default"},"spec":{"nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh"}}}}"#;
    let mut contents = with(&[]);
    contents.extend([("bgppeers/tor", tor), ("bgpconfigurations/default", mesh)]);
    let view = known(&contents);
    let derived = derive(&view, &host("a"), &Secrets::new());
    assert!(lines(&derived).is_empty(), "{:?}", lines(&derived));
    let told: Vec<String> = derived.faults.iter().map(Fault::to_string).collect();
    assert!(
        told[0].contains("bgppeers/tor: spec.password: the secret bgp/tor is not there"),
        "{told:?}"
    );
    assert!(
        told[1].contains("default: spec.nodeMeshPassword: the secret bgp/mesh"),
        "{told:?}"
    );
    assert_eq!(view.secrets().len(), 2);
    let mut secrets = Secrets::new();
    for name in ["tor", "mesh"] {
        secrets.insert(("bgp".into(), name.into()), "word".into());
    }
    let derived = derive(&view, &host("a"), &secrets);
    assert_eq!(derived.faults, []);
    assert_eq!(
        lines(&derived),
        [
            "Global_10_0_0_254 AS64700 external password",
            "Mesh_10_0_1_5 AS64600 external passive password",
        ]
    );
}

#[test]
fn settings_that_were_never_readable_are_waited_for() {
    let good = r#"{"metadata":{"name":"default"},"spec":{"nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh"}}}}"#;
    let bad = r#"{"spec":{"nodeToNodeMeshEnabled":"perhaps"}}"#;
    for name in ["default", "node.a"] {
        let settings = format!("bgpconfigurations/{name}");
        let view = known(&with(&[(&settings, bad)]));
        let derived = derive(&view, &host("a"), &Secrets::new());
        assert!(derived.intent.is_none(), "{name}");
        assert_eq!(derived.duties, Duties::default());
        let told: Vec<String> = derived.faults.iter().map(Fault::to_string).collect();
        assert!(told[0].contains("nodeToNodeMeshEnabled"), "{told:?}");
        assert_eq!(
            told[1],
            format!(
                "{PREFIX}{settings}: no value of it has been readable: \
                 this node waits for one before it speaks BGP"
            )
        );
        // What is said of another node is no reason to wait.
        let of_b = derive(&view, &host("b"), &Secrets::new());
        assert_eq!(of_b.intent.is_some(), name != "default");
    }
    // Not so with a good value before it, nor when the bad one is gone.
    let settings = ("bgpconfigurations/default", bad);
    let mut view = known(&with(&[("bgpconfigurations/default", good), settings]));
    let secrets = Secrets::from([(("bgp".into(), "mesh".into()), "word".into())]);
    let derived = derive(&view, &host("a"), &secrets);
    assert_eq!(
        lines(&derived),
        ["Mesh_10_0_1_5 AS64600 external passive password"]
    );
    assert_eq!(derived.faults.len(), 1);
    view = known(&with(&[settings]));
    assert!(view.take(key(settings.0).as_bytes(), None));
    assert_eq!(
        lines(&derive(&view, &host("a"), &secrets)),
        ["Mesh_10_0_1_5 AS64600 external passive"]
    );
}

#[test]
fn a_node_without_ipv4_takes_its_router_id_from_its_name() {
    let v6 = r#"{"spec":{"bgp":{"ipv6Address":"fd00::1/64"}}}"#;
    for (name, id) in [
        ("kube-master", "25.79.212.8"), // Calico's own vector.
        ("n13", "212.245.13.237"),      // Not 244, which would be a multicast address.
    ] {
        let derived = of(&with(&[(&format!("nodes/{name}"), v6)]), name);
        assert_eq!(derived.faults, []);
        assert_eq!(lines(&derived), ["Mesh_fd00__5 AS64600 external passive"]);
        let speaker = derived.intent.expect("a speaker").speaker;
        assert_eq!(speaker.router_id.0.to_string(), id);
        assert_eq!(speaker.own_next_hop_v4, None);
        assert_eq!(speaker.peers[0].session.local_id, speaker.router_id);
    }
}

/// Pools, blocks and services.
const ADDRESSES: Contents<'_> = &[
    ("ippools/pool", r#"{"spec":{"cidr":"10.65.0.0/16"}}"#),
    (
        "ippools/kept",
        r#"{"spec":{"cidr":"10.66.0.0/16","disableBGPExport":true}}"#,
    ),
    (
        "ippools/vxlan",
        r#"{"spec":{"cidr":"10.67.0.0/16","vxlanMode":"Always"}}"#,
    ),
    (
        "ippools/ipip",
        r#"{"spec":{"cidr":"10.68.0.0/16","ipipMode":"CrossSubnet"}}"#,
    ),
    (
        "ippools/ipip-always",
        r#"{"spec":{"cidr":"10.69.0.0/16","ipipMode":"Always"}}"#,
    ),
    (
        "/calico/ipam/v2/host/a/ipv4/block/10.65.1.0-26",
        r#"{"state":"confirmed"}"#,
    ),
    ("/calico/ipam/v2/host/a/ipv4/block/10.65.1.64-26", "{}"),
    (
        "/calico/ipam/v2/host/a/ipv4/block/10.65.1.128-26",
        r#"{"state":"pending"}"#,
    ),
    ("/calico/ipam/v2/host/a/ipv4/block/10.65.1.200-32", ""),
    ("/calico/ipam/v2/host/b/ipv4/block/10.65.2.0-26", "{}"),
];

/// What a policy makes of a route; `None` if it does not pass.
fn judged(
    policy: &Policy,
    net: &str,
    source: Role,
    interface: Option<&str>,
    attributes: Attributes,
) -> Option<Attributes> {
    let prefix: IpNet = net.parse().expect("a prefix");
    let IpNet::V4(v4) = prefix else {
        panic!("IPv4 here");
    };
    let attributes = Box::new(attributes);
    let route = RouteContext {
        family: Family::IPV4_UNICAST,
        net: Net::V4(v4.into()),
        attributes: &attributes,
        source,
        peer: Role::Internal,
        interface: interface.map(|name| name.parse().expect("a name")),
    };
    match policy.judge(&route) {
        Verdict::Accept => Some(*attributes),
        Verdict::AcceptWith(edited) => Some(*edited),
        Verdict::Reject => None,
    }
}

fn export(derived: &Derived, at: usize) -> Policy {
    let intent = derived.intent.as_ref().expect("a speaker");
    intent.speaker.peers[at].export.clone()
}

#[test]
fn what_is_announced() {
    let tor = (
        "bgppeers/tor",
        r#"{"spec":{"peerIP":"10.0.0.253","asNumber":64512}}"#,
    );
    let external = (
        "bgppeers/z",
        r#"{"spec":{"peerIP":"10.0.0.254","asNumber":64700}}"#,
    );
    let mut contents = with(ADDRESSES);
    contents.extend([NO_MESH, tor, external]);
    let derived = of(&contents, "a");
    assert_eq!(derived.faults, []);
    let [internal, external] = [export(&derived, 0), export(&derived, 1)];
    let own = |policy: &Policy, net: &str, interface: Option<&str>| {
        judged(policy, net, Role::Local, interface, Attributes::default())
    };
    for (net, passes) in [
        ("10.65.1.0/26", true),   // an own block
        ("10.65.1.5/32", false),  // within it
        ("10.65.1.64/26", true),  // confirmed without a word
        ("10.65.1.130/32", true), // asked for, not had: an address as any other of the pool
        ("10.65.1.200/32", true), // a block of one address
        ("10.65.2.7/32", true),   // borrowed from another's
        ("10.66.1.1/32", false),  // a pool that is kept
        ("10.67.1.1/32", true),   // of whatever encapsulation
        ("192.0.2.1/32", false),  // of no pool
        ("0.0.0.0/0", false),
    ] {
        assert_eq!(own(&internal, net, None).is_some(), passes, "{net}");
        assert_eq!(own(&external, net, None).is_some(), passes, "{net}");
    }
    let told = own(&internal, "10.65.1.0/26", None).expect("announced");
    assert_eq!(told.local_pref, Some(NORMAL));
    // Tunnels of Felix's are told to other AS only, and some to nobody.
    for (interface, inside, outside) in [
        ("vxlan.calico", false, true),
        ("wireguard.cali", false, true),
        ("tunl0", false, true),
        ("bpfin.cali", false, false),
        ("cali1234", true, true),
    ] {
        let passes = |policy| own(policy, "10.65.2.7/32", Some(interface)).is_some();
        assert_eq!(
            (passes(&internal), passes(&external)),
            (inside, outside),
            "{interface}"
        );
    }
    // Learned with a better metric than normal: a workload that is moving.
    let learned = |local_pref| {
        let attributes = Attributes {
            local_pref: Some(local_pref),
            ..Attributes::default()
        };
        judged(&external, "10.65.1.5/32", Role::Internal, None, attributes)
    };
    assert!(learned(NORMAL).is_none() && learned(100).is_none());
    assert_eq!(
        learned(NORMAL + 512).expect("passed on").local_pref,
        Some(NORMAL + 512)
    );
}

#[test]
fn communities_by_prefix() {
    let settings = r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false,
        "communities":[{"name":"big","value":"64512:4:9"}],
        "prefixAdvertisements":[{"cidr":"10.65.0.0/16","communities":["big","64512:120"]},
                                {"cidr":"10.67.0.0/16","communities":["nobody"]}]}}"#;
    let tor = (
        "bgppeers/tor",
        r#"{"spec":{"peerIP":"10.0.0.253","asNumber":64512}}"#,
    );
    let mut contents = with(ADDRESSES);
    contents.extend([("bgpconfigurations/default", settings), tor]);
    // The whole of what is wrong stays away: the settings are those of before, if there are any.
    let derived = of(&contents, "a");
    assert!(
        derived.faults[0].field.contains("prefixAdvertisements[1]"),
        "{:?}",
        derived.faults
    );
    let good = settings.replace("nobody", "64512:7");
    contents.retain(|(key, _)| *key != "bgpconfigurations/default");
    contents.push(("bgpconfigurations/default", &good));
    let derived = of(&contents, "a");
    assert_eq!(derived.faults, []);
    let policy = export(&derived, 0);
    let own = |net| judged(&policy, net, Role::Local, None, Attributes::default()).expect("told");
    let block = own("10.65.1.0/26");
    assert_eq!(block.communities.len(), 1);
    assert_eq!(block.large_communities.len(), 1);
    assert_eq!(own("10.67.0.1/32").communities.len(), 1);
    assert_eq!(own("10.68.0.1/32").communities.len(), 0);
}

#[test]
fn filters_come_first_and_the_rest_is_as_without() {
    let tor = (
        "bgppeers/tor",
        r#"{"spec":{"peerIP":"10.0.0.253","asNumber":64512,"filters":["one","two","none"]}}"#,
    );
    let one = (
        "bgpfilters/one",
        r#"{"spec":{
        "exportV4":[{"cidr":"10.65.1.0/24","matchOperator":"In","prefixLength":{"min":32},"action":"Accept",
                     "operations":[{"addCommunity":{"value":"64611:77"}},{"prependASPath":{"prefix":[64611,64612]}}]},
                    {"source":"RemotePeers","action":"Reject"}],
        "importV4":[{"cidr":"0.0.0.0/0","matchOperator":"Equal","action":"Reject"},
                    {"priority":900,"action":"Reject"}]}}"#,
    );
    let two = (
        "bgpfilters/two",
        r#"{"spec":{
        "exportV4":[{"cidr":"10.65.0.0/16","matchOperator":"NotIn","action":"Reject"},{"interface":"eth*","action":"Reject"}],
        "importV4":[{"cidr":"10.99.0.0/16","matchOperator":"In","action":"Accept","operations":[{"setPriority":{"value":900}}]}]}}"#,
    );
    let mut contents = with(ADDRESSES);
    contents.extend([NO_MESH, tor, one, two]);
    let derived = of(&contents, "a");
    assert!(
        derived.faults[0]
            .to_string()
            .ends_with("bgpfilters/none: a peering names it, and it is not there")
    );
    assert_eq!(derived.faults.len(), 1);
    let policy = export(&derived, 0);
    let own = |net, interface| judged(&policy, net, Role::Local, interface, Attributes::default());
    let inside = own("10.65.1.5/32", None).expect("the filter says so");
    assert_eq!(inside.communities.len(), 1);
    assert_eq!(inside.as_path.to_string(), "64611 64612");
    assert!(
        own("10.65.1.0/26", None).is_some(),
        "the default goes on after the filters"
    );
    assert!(own("10.67.1.1/32", None).is_none());
    assert!(own("10.65.2.7/32", Some("eth7")).is_none());
    let learned = judged(
        &policy,
        "10.65.2.7/32",
        Role::Client,
        None,
        Attributes::default(),
    );
    assert!(learned.is_none());
    let import = derived.intent.as_ref().expect("a speaker").speaker.peers[0]
        .import
        .clone();
    let taken = |net, local_pref| {
        let attributes = Attributes {
            local_pref: Some(local_pref),
            ..Attributes::default()
        };
        judged(&import, net, Role::Internal, None, attributes).map(|it| it.local_pref)
    };
    assert_eq!(taken("0.0.0.0/0", 100), None);
    assert_eq!(taken("10.1.0.0/16", 2_147_483_647 - 900), None);
    assert_eq!(taken("10.99.1.0/24", 100), Some(Some(2_147_483_647 - 900)));
    assert_eq!(taken("10.1.0.0/16", 100), Some(Some(100)));
    // A filter that nobody can evaluate lets nothing pass.
    let odd = (
        "bgpfilters/two",
        r#"{"spec":{"exportV4":[{"moonPhase":"full","action":"Accept"}]}}"#,
    );
    contents.retain(|(key, _)| *key != "bgpfilters/two");
    contents.push(odd);
    let derived = of(&contents, "a");
    assert_eq!(export(&derived, 0), Policy::RejectAll);
    assert!(
        derived
            .faults
            .iter()
            .any(|fault| fault.field == "spec.exportV4[0].moonPhase")
    );
}

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
        gateways,
        programming,
    } = of(&contents, "a").duties;
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
fn pools_with_tunnels_when_they_are_ours() {
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

/// Who knows what its encapsulation is: routes into it may be Felix's.
#[test]
fn a_pool_that_was_never_readable_is_left_to_felix() {
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
        assert_eq!(
            way(&view),
            (Way::Direct, 1),
            "a range that nobody can have read"
        );
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

/// Something of everything.
fn everything() -> Vec<(String, String)> {
    let rest: Contents<'_> = &[
        (
            "bgpconfigurations/default",
            r#"{"metadata":{"name":"default"},"spec":{"serviceClusterIPs":[{"cidr":"10.96.0.0/12"}],"listenPort":1179}}"#,
        ),
        (
            "bgpconfigurations/node.b",
            r#"{"metadata":{"name":"node.b"},"spec":{"listenPort":2179}}"#,
        ),
        (
            "bgppeers/global",
            r#"{"spec":{"peerIP":"10.0.0.254","asNumber":64700,"filters":["one"]}}"#,
        ),
        (
            "bgppeers/some",
            r#"{"spec":{"nodeSelector":"rack == 'r1'","peerSelector":"has(route-reflector)"}}"#,
        ),
        ("bgppeers/bad", r#"{"spec":{"peerIP":"nowhere"}}"#),
        (
            "bgpfilters/one",
            r#"{"spec":{"exportV4":[{"action":"Reject"}]}}"#,
        ),
        ("/cambric/v1/drain/a", "{}"),
        ("/calico/ipam/v2/host/a/ipv4/block/10.65.7.0-26", "no json"),
    ];
    let all = NODES.iter().chain(ADDRESSES).chain(rest);
    all.map(|(short, value)| (key(short), (*value).to_owned()))
        .collect()
}

/// All that is derived, to compare.
fn picture(view: &View) -> String {
    let nodes = ["a", "b", "e"].map(|node| derive(view, &host(node), &Secrets::new()));
    format!("{nodes:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// In whatever order, with whatever deleted and put again meanwhile, the same keys are the same
    /// picture; and what is added and deleted again leaves no trace.
    #[test]
    fn the_order_of_updates_does_not_matter(
        order in Just(everything()).prop_shuffle(),
        passing in proptest::collection::vec(any::<bool>(), 40),
        extra in 0..12_usize,
    ) {
        let mut straight = View::default();
        for (key, value) in everything() {
            straight.take(key.as_bytes(), Some(value.as_bytes()));
        }
        let mut other = View::default();
        for ((key, value), again) in order.iter().zip(passing) {
            other.take(key.as_bytes(), Some(value.as_bytes()));
            if again {
                other.take(key.as_bytes(), None);
                other.take(key.as_bytes(), Some(value.as_bytes()));
            }
        }
        prop_assert_eq!(&other, &straight);
        prop_assert_eq!(picture(&other), picture(&straight));
        let passing = [
            (format!("{PREFIX}nodes/x{extra}"), r#"{"spec":{"bgp":{"ipv4Address":"10.0.9.9/24"}}}"#),
            (format!("{PREFIX}bgppeers/x{extra}"), r#"{"spec":{"peerIP":"10.0.9.8","asNumber":1}}"#),
            (format!("{PREFIX}ippools/x{extra}"), r#"{"spec":{"cidr":"10.70.0.0/16"}}"#),
            (format!("/calico/ipam/v2/host/a/ipv4/block/10.65.8.{}-32", extra * 4), "{}"),
        ];
        for (key, value) in &passing {
            prop_assert!(other.take(key.as_bytes(), Some(value.as_bytes())));
        }
        prop_assert_ne!(picture(&other), picture(&straight));
        for (key, _) in &passing {
            prop_assert!(other.take(key.as_bytes(), None));
        }
        prop_assert_eq!(&other, &straight);
    }
}
