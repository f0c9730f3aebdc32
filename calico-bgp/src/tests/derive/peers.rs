//! The peers of a node.

use super::*;

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
    // The older flag applies to external sessions only.
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
fn global_peering_precedes_others_then_names_decide() {
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
    // Two ports at one address are a conflict.
    let port = (
        "bgppeers/c",
        r#"{"spec":{"node":"a","peerIP":"10.0.0.254:1790","asNumber":64900}}"#,
    );
    let derived = of(&with(&[NO_MESH, global, port]), "a");
    assert_eq!(lines(&derived), expected);
    let expected = "bgppeers/c: spec.peerIP: 10.0.0.254 is a peer already, at another port";
    assert!(
        derived.faults[0].to_string().ends_with(expected),
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
    // The reverse sides of others' BGPPeers; reflectors of the same cluster are not clients.
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
    // Beside the mesh, of which reflectors are not members.
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
    // The reverse side, with each node that has the BGPPeer, and never with itself.
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
fn address_of_the_node_itself_is_no_peer_and_is_reported() {
    for address in ["10.0.0.3", "10.0.0.3:1790"] {
        let of = |spec: &str, node: &str| {
            let peering = format!(r#"{{"spec":{{{spec}"peerIP":"{address}","asNumber":64700}}}}"#);
            let derived = of(&with(&[NO_MESH, ("bgppeers/c", &peering)]), node);
            let faults: Vec<String> = derived.faults.iter().map(Fault::to_string).collect();
            (lines(&derived).len(), faults)
        };
        let (peers, faults) = of(r#""node":"c","#, "c");
        assert_eq!(peers, 0);
        let expected = "/bgppeers/c: spec.peerIP: 10.0.0.3 is an address of this node, which is no peer of itself";
        assert!(
            matches!(&faults[..], [one] if one.ends_with(expected)),
            "{faults:?}"
        );
        // A BGPPeer of several nodes means all the others.
        for spec in ["", r#""nodeSelector":"all()","#] {
            assert_eq!(of(spec, "c"), (0, vec![]), "{spec}");
            assert_eq!(of(spec, "a"), (1, vec![]), "{spec}");
        }
    }
}

// Promise (Datastore): A peer whose TCP-MD5 password cannot be read stays down.
#[test]
fn missing_password_keeps_the_session_down() {
    let tor = r#"{"spec":{"peerIP":"10.0.0.254","asNumber":64700,"password":{"secretKeyRef":{"name":"bgp","key":"tor"}}}}"#;
    let mesh = r#"{"metadata":{"name":"default"},"spec":{"nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh"}}}}"#;
    let mut contents = with(&[]);
    contents.extend([("bgppeers/tor", tor), ("bgpconfigurations/default", mesh)]);
    let view = known(&contents);
    let derived = derive(&view, &host("a"), &Secrets::new());
    assert!(lines(&derived).is_empty(), "{:?}", lines(&derived));
    let faults: Vec<String> = derived.faults.iter().map(Fault::to_string).collect();
    assert!(
        faults[0].contains("bgppeers/tor: spec.password: the secret bgp/tor is not there"),
        "{faults:?}"
    );
    assert!(
        faults[1].contains("default: spec.nodeMeshPassword: the secret bgp/mesh"),
        "{faults:?}"
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
        let faults: Vec<String> = derived.faults.iter().map(Fault::to_string).collect();
        assert!(faults[0].contains("nodeToNodeMeshEnabled"), "{faults:?}");
        assert_eq!(
            faults[1],
            format!(
                "{PREFIX}{settings}: no valid value yet: this node opens no BGP session before \
                 there is one"
            )
        );
        // Settings of another node are no reason to wait.
        let of_b = derive(&view, &host("b"), &Secrets::new());
        assert_eq!(of_b.intent.is_some(), name != "default");
    }
    // This does not apply after an earlier valid value, nor once the invalid one is deleted.
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
        ("kube-master", "25.79.212.8"), // Calico's own test vector.
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
