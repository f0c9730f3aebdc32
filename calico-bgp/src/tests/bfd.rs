//! Sessions of BFD: which peers have one, over how many hops, and with which timers.

use bgp_speaker::{Bfd, BfdMode};
use calico_model::FABRIC_PREFIX;

use super::*;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";

fn put(view: &mut View, place: &str, annotations: &str, spec: &str) {
    let (_, name) = place.rsplit_once('/').expect("a path");
    let text = format!(
        r#"{{"metadata":{{"name":"{name}","annotations":{{{annotations}}}}},"spec":{spec}}}"#
    );
    view.take(
        format!("{RESOURCES}{place}").as_bytes(),
        Some(text.as_bytes()),
    );
}

/// Returns a mesh of so many nodes on one link, the first of which is "n0".
fn mesh(count: usize) -> View {
    let nodes = (0..count).map(|at| {
        let bgp = format!(r#""ipv4Address":"10.0.0.{}/24""#, at + 1);
        (format!("n{at}"), bgp)
    });
    let nodes: Vec<_> = nodes.collect();
    let nodes: Vec<_> = nodes.iter().map(|(name, bgp)| (&**name, &**bgp)).collect();
    view(&nodes)
}

/// Returns the modes of the peers of a node with BFD, and the number of the others.
fn modes(view: &View, name: &str) -> (Vec<BfdMode>, usize) {
    let peers = peers(view, name);
    let modes: Vec<_> = peers.iter().filter_map(|peer| peer.bfd).collect();
    let without = peers.len() - modes.len();
    (modes.into_iter().map(|bfd| bfd.mode).collect(), without)
}

fn derived(view: &View, name: &str) -> (Vec<BfdTimers>, Vec<String>) {
    let derived = derive(view, &host(name), &Secrets::new());
    let faults = derived.faults.iter();
    let faults = faults.map(|fault| format!("{}: {}", fault.field, fault.reason));
    (derived.duties.bfd_timers, faults.collect())
}

// Promise (BGP): Sessions with the route reflectors of the fabric, and those of a mesh of up to 100 nodes,
// have BFD with 3 x 300 ms by default. An annotation of the BGPConfiguration changes this.
#[test]
fn small_mesh_has_bfd_and_a_large_one_has_none() {
    for (count, has_bfd) in [(2, true), (100, true), (101, false)] {
        let mut view = mesh(count);
        let all = count - 1;
        let (modes_of, without) = modes(&view, "n0");
        let expected = if has_bfd { (all, 0) } else { (0, all) };
        assert_eq!((modes_of.len(), without), expected);
        assert!(modes_of.iter().all(|mode| *mode == BfdMode::SingleHop));
        for (given, expected) in [("true", (all, 0)), ("false", (0, all))] {
            let annotation = format!(r#""{FABRIC_BFD_ANNOTATION}":"{given}""#);
            put(&mut view, "bgpconfigurations/default", &annotation, "{}");
            let (modes, without) = modes(&view, "n0");
            assert_eq!((modes.len(), without), expected, "{count} {given}");
        }
    }
}

#[test]
fn annotation_of_the_node_has_precedence() {
    let mut view = mesh(3);
    let annotation = |text: &str| format!(r#""{FABRIC_BFD_ANNOTATION}":"{text}""#);
    put(
        &mut view,
        "bgpconfigurations/default",
        &annotation("false"),
        "{}",
    );
    put(
        &mut view,
        "bgpconfigurations/node.n1",
        &annotation("true"),
        "{}",
    );
    assert_eq!(modes(&view, "n0"), (vec![], 2));
    assert_eq!(modes(&view, "n1"), (vec![BfdMode::SingleHop; 2], 0));
    put(
        &mut view,
        "bgpconfigurations/node.n1",
        &annotation("on"),
        "{}",
    );
    let (_, faults) = derived(&view, "n1");
    let [fault] = &faults[..] else {
        panic!("{faults:?}");
    };
    assert!(fault.contains("neither \"true\" nor \"false\""), "{fault}");
}

/// Each side derives its sessions for itself: the client its peer, and the reflector the range of the client.
#[test]
fn fabric_reflector_and_its_client_agree_on_the_hops() {
    for (client, reflector, mode) in [
        ("10.0.0.1/24", "10.0.0.2/24", BfdMode::SingleHop),
        ("10.0.0.1/24", "10.0.1.2/24", BfdMode::Multihop),
        // Only one side has the other in its subnet.
        ("10.0.0.1/16", "10.0.1.2/24", BfdMode::Multihop),
        ("10.0.0.1/24", "10.0.1.2/16", BfdMode::Multihop),
        ("10.0.0.1", "10.0.0.2", BfdMode::Multihop),
        ("fd00::1/64", "fd00::2/64", BfdMode::SingleHop),
        ("fd00::1/64", "fd00:0:0:1::2/64", BfdMode::Multihop),
        ("fd00::1/48", "fd00:0:0:1::2/64", BfdMode::Multihop),
        ("fd00::1/64", "fd00:0:0:1::2/48", BfdMode::Multihop),
        ("fd00::1", "fd00::2", BfdMode::Multihop),
    ] {
        // The router ID is an IPv4 address in any case.
        let is_ipv6 = client.contains(':');
        let field = if is_ipv6 {
            "ipv6Address"
        } else {
            "ipv4Address"
        };
        let address = |text: &str| format!(r#""{field}":"{text}""#);
        let bare = reflector.split('/').next().expect("an address");
        let registration = format!(
            r#"{{"asNumber":64512,{},"clusterID":"244.0.0.1","state":"active"}}"#,
            address(bare)
        );
        let [client, reflector] =
            [(client, 1), (reflector, 2)].map(|(text, number)| match is_ipv6 {
                true => format!(r#"{},"ipv4Address":"192.0.2.{number}""#, address(text)),
                false => address(text),
            });
        let mut view = view(&[("c", &client), ("rr", &reflector)]);
        let claim = r#"{"reflector":"rr"}"#;
        for (key, value) in [
            ("reflector/rr", &*registration),
            ("cluster/244.0.0.1", claim),
        ] {
            let key = format!("{FABRIC_PREFIX}{key}");
            view.take(key.as_bytes(), Some(value.as_bytes()));
        }
        let speaker = |name: &str| {
            let host = Host {
                reflects: name == "rr",
                ..host(name)
            };
            let derived = derive(&view, &host, &Secrets::new());
            derived.intent.expect("a speaker").speaker
        };
        let peers = speaker("c").peers.into_iter().map(|peer| peer.bfd);
        let ranges = speaker("rr").ranges.into_iter().map(|range| range.template);
        let ranges = ranges.filter(|client| client.remote.is_ipv6() == is_ipv6);
        let ranges = ranges.map(|client| client.bfd);
        let expected = vec![Some(Bfd::default().over(mode))];
        let both: (Vec<_>, Vec<_>) = (peers.collect(), ranges.collect());
        assert_eq!(both, (expected.clone(), expected), "{client} {reflector}");
    }
}

#[test]
fn field_of_calico_requests_bfd_on_a_link() {
    let of = |annotations: &str, spec: &str| {
        let mut view = view(&[
            ("a", r#""ipv4Address":"10.0.0.1/24""#),
            ("b", r#""ipv4Address":"10.0.0.2/24""#),
            ("c", r#""ipv4Address":"10.0.1.2/24""#),
        ]);
        put(
            &mut view,
            "bgpconfigurations/default",
            "",
            r#"{"nodeToNodeMeshEnabled":false}"#,
        );
        put(&mut view, "bgppeers/p", annotations, spec);
        let derived = derive(&view, &host("a"), &Secrets::new());
        let peers = derived.intent.expect("a speaker").speaker.peers;
        let modes = peers.iter().map(|peer| peer.bfd.map(|bfd| bfd.mode));
        let faults = derived.faults.iter().map(|fault| fault.reason.clone());
        (modes.collect::<Vec<_>>(), faults.collect::<Vec<_>>())
    };
    let single = Some(BfdMode::SingleHop);
    let field = r#""failureDetectionMode":"BFDIfDirectlyConnected""#;
    let selected = format!(r#"{{"peerSelector":"all()",{field}}}"#);
    assert_eq!(of("", &selected), (vec![single, None], vec![]));
    let switch = format!(r#"{{"peerIP":"192.0.2.1","asNumber":64700,{field}}}"#);
    assert_eq!(of("", &switch), (vec![single], vec![]));
    let annotation = r#""cambric.io/bfd":"true""#;
    let all = of(annotation, r#"{"peerSelector":"all()"}"#);
    assert_eq!(all, (vec![single, Some(BfdMode::Multihop)], vec![]));
    let none = of(
        "",
        r#"{"peerSelector":"all()","failureDetectionMode":"None"}"#,
    );
    assert_eq!(none, (vec![None, None], vec![]));
    let (modes, faults) = of(annotation, &selected);
    assert_eq!(modes, [single, None]);
    assert_eq!(
        faults,
        ["spec.failureDetectionMode is set, and only one can be"]
    );
}

#[test]
fn timers_are_those_of_the_selected_configurations() {
    let mut view = mesh(2);
    assert_eq!(derived(&view, "n0"), (vec![], vec![]));
    let first = r#"{"interfaces":[{"matchPattern":"eth*","minimumSendInterval":"50ms","minimumRecvInterval":"60ms",
        "idleSendInterval":"2s","multiplier":7},{"matchPattern":"bond0"}]}"#;
    put(&mut view, "bfdconfigurations/a", "", first);
    put(
        &mut view,
        "bfdconfigurations/b",
        "",
        r#"{"nodeSelector":"has(x)","interfaces":[{"matchPattern":"*"}]}"#,
    );
    let timers = |pattern: &str, [send_ms, receive_ms, idle_ms]: [u32; 3], multiplier| BfdTimers {
        pattern: pattern.to_owned(),
        send_ms,
        receive_ms,
        idle_ms,
        multiplier,
    };
    let eth = timers("eth*", [50, 60, 2000], 7);
    // The defaults of Calico.
    let bond = timers("bond0", [100, 10, 60_000], 5);
    assert_eq!(
        derived(&view, "n0"),
        (vec![eth.clone(), bond.clone()], vec![])
    );
    let late = r#"{"interfaces":[{"matchPattern":"eth1","idleSendInterval":"10ms"}],"echo":true}"#;
    put(&mut view, "bfdconfigurations/c", "", late);
    let (found, faults) = derived(&view, "n0");
    assert_eq!(found, [eth, bond, timers("eth1", [100, 10, 1000], 5)]);
    let [unknown, idle, covered] = &faults[..] else {
        panic!("{faults:?}");
    };
    assert!(
        unknown.starts_with("spec.echo: the field is unknown"),
        "{unknown}"
    );
    assert!(
        idle.starts_with("spec.interfaces[0].idleSendInterval: counts as 1s"),
        "{idle}"
    );
    assert!(
        covered.contains("spec.interfaces[0] of a matches"),
        "{covered}"
    );
}

#[test]
fn invalid_timers_leave_the_former_ones_in_effect() {
    let mut view = mesh(2);
    let valid = r#"{"interfaces":[{"matchPattern":"*","multiplier":9}]}"#;
    put(&mut view, "bfdconfigurations/a", "", valid);
    let (before, _) = derived(&view, "n0");
    for invalid in [
        r#"{"interfaces":[{"matchPattern":"*","minimumSendInterval":"1500us"}]}"#,
        r#"{"interfaces":[{"matchPattern":"*","multiplier":256}]}"#,
        r#"{"interfaces":[{"matchPattern":"e*h"}]}"#,
        r#"{"interfaces":[{"multiplier":3}]}"#,
        r#"{"nodeSelector":"has("}"#,
    ] {
        put(&mut view, "bfdconfigurations/a", "", invalid);
        let (after, faults) = derived(&view, "n0");
        assert_eq!(after, before, "{invalid}");
        assert_eq!(faults.len(), 1, "{invalid}: {faults:?}");
    }
}
