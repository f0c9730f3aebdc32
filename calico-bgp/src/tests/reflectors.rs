//! Reflectors, their clients and a simultaneous mesh.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::Net;
use bgp_speaker::SpeakerConfig;
use calico_model::ReflectorState;
use ipnet::Ipv4Net;
use rib::{Policy, Role, RouteContext, Verdict};

use super::*;

mod awaited;
mod identity;
mod passwords;

const FABRIC: &str = "/cambric/v1/";

/// Returns eight nodes, n1 to n8, and three reflectors, rr1 to rr3, each in a zone of its own.
fn fabric() -> View {
    let nodes: Vec<(String, String)> = (1..=8)
        .map(|at| {
            (
                format!("n{at}"),
                format!(r#""ipv4Address":"10.0.0.{at}/24","ipv6Address":"fd00::{at}/64""#),
            )
        })
        .chain((1..=3).map(|at| {
            (
                format!("rr{at}"),
                format!(r#""ipv4Address":"10.0.1.{at}/24""#),
            )
        }))
        .collect();
    let nodes: Vec<(&str, &str)> = nodes
        .iter()
        .map(|(n, b)| (n.as_str(), b.as_str()))
        .collect();
    view(&nodes)
}

fn put(view: &mut View, key: &str, value: &str) -> bool {
    view.take(format!("{FABRIC}{key}").as_bytes(), Some(value.as_bytes()))
}

fn delete(view: &mut View, key: &str) -> bool {
    view.take(format!("{FABRIC}{key}").as_bytes(), None)
}

fn register(view: &mut View, at: u8, state: &str) {
    let value = format!(
        r#"{{"asNumber":64512,"ipv4Address":"10.0.1.{at}","clusterID":"10.0.1.{at}","zone":"z{at}","state":"{state}"}}"#
    );
    assert!(put(view, &format!("reflector/rr{at}"), &value));
    put(
        view,
        &format!("cluster/10.0.1.{at}"),
        &format!(r#"{{"reflector":"rr{at}"}}"#),
    );
}

fn registered() -> View {
    let mut view = fabric();
    (1..=3).for_each(|at| register(&mut view, at, "active"));
    view
}

fn derived(view: &View, name: &str) -> Derived {
    let reflects = name.starts_with("rr");
    let host = Host {
        reflects,
        ..host(name)
    };
    derive(view, &host, &Secrets::new())
}

fn speaker(view: &View, name: &str) -> SpeakerConfig {
    let derived = derived(view, name);
    assert_eq!(derived.faults, []);
    derived.intent.expect("a speaker").speaker
}

/// Returns the names of the reflectors that a client peers with.
fn choice(view: &View, name: &str) -> BTreeSet<String> {
    let peers = speaker(view, name).peers.into_iter();
    peers
        .map(|peer| peer.name)
        .filter(|name| name.starts_with("Reflector_"))
        .collect()
}

#[test]
fn a_client_dials_two_reflectors_beside_the_mesh() {
    let mut view = fabric();
    // Without a claim or a registration, a reflector's node is an ordinary node.
    assert_eq!(speaker(&view, "n1").peers.len(), 7 + 3 + 7);
    (1..=3).for_each(|at| register(&mut view, at, "active"));
    let of_n1 = derived(&view, "n1");
    let peers = of_n1.intent.expect("a speaker").speaker.peers;
    let chosen = peers
        .iter()
        .filter(|peer| peer.name.starts_with("Reflector_"));
    let chosen: Vec<_> = chosen.collect();
    assert_eq!(chosen.len(), 2);
    assert_eq!(peers.len(), 7 + 2 + 7, "no reflector is in the mesh");
    for peer in chosen {
        assert!(
            !peer.session.passive && peer.role == Role::Internal,
            "{peer:?}"
        );
        assert_eq!(peer.local, Some("10.0.0.1".parse().expect("an address")));
        assert!(of_n1.chosen.peers.contains(&peer.remote));
    }
    assert!(
        of_n1
            .chosen
            .hosts
            .contains(&"10.0.1.3".parse().expect("an address"))
    );
    let all: BTreeSet<String> = (1..=8)
        .flat_map(|at| choice(&view, &format!("n{at}")))
        .collect();
    assert_eq!(all.len(), 3, "each has an owner");
}

// Promise (BGP): The number of routes that is accepted from a neighbor is limited by default: 20,000
// in each family from a node of the datastore, 2,000,000 from a route reflector or another neighbor.
#[test]
fn node_of_the_store_has_a_lower_prefix_limit() {
    let mut view = registered();
    let own = 64_512;
    let more = r#""cambric.io/prefix-limit":"70""#;
    for (name, peer, asn, annotation) in [
        ("tor", "10.0.0.254", own, ""),
        ("node", "10.0.0.2", own, ""),
        ("node-more", "10.0.0.3", own, more),
        (
            "node-all",
            "10.0.0.4",
            own,
            r#""cambric.io/prefix-limit":"0""#,
        ),
        ("node-port", "10.0.0.5:1790", own, ""),
        ("node-asn", "10.0.0.6", 64_700, ""),
        ("node-own-port", "10.0.0.7:179", own, ""),
        ("reflector", "10.0.1.1", own, more),
    ] {
        let key = format!("/calico/resources/v3/projectcalico.org/bgppeers/{name}");
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","annotations":{{{annotation}}}}},
                "spec":{{"node":"n1","peerIP":"{peer}","asNumber":{asn}}}}}"#
        );
        assert!(view.take(key.as_bytes(), Some(text.as_bytes())));
    }
    for peer in &speaker(&view, "n1").peers {
        let expected = match peer.remote.to_string().as_str() {
            "10.0.0.3" | "10.0.1.1" => 70,
            "10.0.0.4" => {
                assert_eq!(peer.prefix_limits.get(Family::IPV4_UNICAST), None);
                continue;
            }
            "10.0.0.254" | "10.0.1.2" | "10.0.1.3" => 2_000_000,
            // Other speakers at the addresses of nodes.
            "10.0.0.5" | "10.0.0.6" => 2_000_000,
            _ => 20_000, // Nodes, by the mesh and by a BGPPeer.
        };
        assert_eq!(prefix_limit(peer), expected, "{}", peer.name);
    }
    let reflector = speaker(&view, "rr1");
    for peer in &reflector.peers {
        let expected = match peer.name.starts_with("Reflector_") {
            true => 2_000_000,
            false => 20_000, // n1, as the other side of its BGPPeer.
        };
        assert_eq!(prefix_limit(peer), expected, "{}", peer.name);
    }
    assert_eq!(reflector.peers.len(), 3);
    let clients = reflector.ranges.iter();
    let clients = clients.map(|range| prefix_limit(&range.template));
    assert_eq!(clients.collect::<BTreeSet<_>>(), [20_000].into());
}

/// Two of the three reflectors have IPv4 only, one has IPv6 only.
#[test]
fn a_client_chooses_for_each_family_among_those_that_it_reaches() {
    let mut view = fabric();
    (1..=2).for_each(|at| register(&mut view, at, "active"));
    let six = r#"{"asNumber":64512,"ipv6Address":"fd00::1:3","clusterID":"10.0.1.3","zone":"z3",
        "state":"active"}"#;
    assert!(put(&mut view, "reflector/rr3", six));
    let all = ["10_0_1_1", "10_0_1_2", "fd00__1_3"].map(|at| format!("Reflector_{at}"));
    for at in 1..=8 {
        assert_eq!(
            choice(&view, &format!("n{at}")),
            BTreeSet::from(all.clone())
        );
    }
}

/// Retained sessions use the policies and the password of the current datastore.
#[test]
fn former_peers_are_derived_from_the_current_datastore() {
    let mut view = registered();
    let of_n1 = derived(&view, "n1");
    let before: Placed = of_n1.chosen.peers.iter().map(|at| (*at, None)).collect();
    assert!(of_n1.chosen.former.is_empty());
    let after = |view: &View, secrets: &Secrets| {
        let derived = derive_after(view, &host("n1"), secrets, &before);
        (derived.chosen, derived.intent.expect("a speaker").speaker)
    };
    let none = Secrets::new();
    assert!(after(&view, &none).0.former.is_empty(), "all are wanted");

    let key = "/calico/resources/v3/projectcalico.org/bgpconfigurations/default";
    let settings = r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false,
        "asNumber":64999,"nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh"}}}}"#;
    assert!(view.take(key.as_bytes(), Some(settings.as_bytes())));
    assert!(put(&mut view, "drain/rr1", "{}"));
    register(&mut view, 1, "draining");
    let secrets = Secrets::from([(("bgp".into(), "mesh".into()), "word".into())]);
    let (chosen, speaker) = after(&view, &secrets);
    let wanted: BTreeSet<IpAddr> = speaker.peers.iter().map(|peer| peer.remote).collect();
    assert_eq!(wanted, chosen.peers);
    let former: BTreeSet<IpAddr> = chosen.former.keys().copied().collect();
    assert_eq!(former, &of_n1.chosen.peers - &wanted);
    assert!(former.len() >= 14, "the mesh at least");
    for (remote, peer) in &chosen.former {
        assert_eq!((peer.remote, peer.session.local_asn.0), (*remote, 64999));
        assert_eq!(peer.password, Some("word".into()));
        let same_kind = |one: &&PeerConfig| one.remote.is_ipv4() == remote.is_ipv4();
        if let Some(like) = speaker.peers.iter().find(same_kind) {
            assert_eq!((&peer.export, &peer.import), (&like.export, &like.import));
        }
    }
    let mesh = chosen.former.values();
    assert_eq!(
        mesh.filter(|peer| peer.name.starts_with("Mesh_")).count(),
        14
    );
    assert!(
        after(&view, &none).0.former.is_empty(),
        "there is no password"
    );
}

#[test]
fn client_dials_the_configured_number_of_reflectors() {
    let mut view = registered();
    let set = |view: &mut View, name: &str, count: &str| {
        let key = format!("/calico/resources/v3/projectcalico.org/bgpconfigurations/{name}");
        let value = format!(
            r#"{{"metadata":{{"name":"{name}","annotations":{{"cambric.io/reflectors-per-node":"{count}"}}}},"spec":{{}}}}"#
        );
        assert!(view.take(key.as_bytes(), Some(value.as_bytes())));
    };
    let outcome = |view: &View, reflectors: Option<usize>| {
        let host = Host {
            reflectors,
            ..host("n1")
        };
        let derived = derive(view, &host, &Secrets::new());
        let peers = derived.intent.expect("a speaker").speaker.peers;
        let chosen = peers
            .iter()
            .filter(|peer| peer.name.starts_with("Reflector_"));
        let faults: Vec<String> = derived.faults.iter().map(Fault::to_string).collect();
        (chosen.count(), faults)
    };
    assert_eq!(outcome(&view, None), (2, vec![]));
    for (count, wanted) in [("1", 1), ("3", 3), ("8", 3)] {
        set(&mut view, "default", count);
        assert_eq!(outcome(&view, None), (wanted, vec![]));
    }
    set(&mut view, "node.n1", "1");
    assert_eq!(
        outcome(&view, None),
        (1, vec![]),
        "its own setting has precedence"
    );
    assert_eq!(
        outcome(&view, Some(2)),
        (2, vec![]),
        "its machine's first of all"
    );
    for bad in ["0", "9", "many", "-1", ""] {
        set(&mut view, "node.n1", bad);
        let (count, faults) = outcome(&view, None);
        assert_eq!(count, 3, "that of the cluster holds");
        let key = "/calico/resources/v3/projectcalico.org/bgpconfigurations/node.n1";
        assert_eq!(
            faults,
            [format!(
                "{key}: metadata.annotations[cambric.io/reflectors-per-node]: \"{bad}\" is no whole \
                 number from 1 to 8"
            )]
        );
        assert_eq!(outcome(&view, Some(2)), (2, vec![]), "without a fault");
    }
    set(&mut view, "default", "no");
    assert_eq!(outcome(&view, None).0, 2);
}

#[test]
fn a_reflector_accepts_every_node_and_peers_with_the_others() {
    let view = registered();
    let rr1 = speaker(&view, "rr1");
    let others: Vec<_> = rr1
        .peers
        .iter()
        .map(|peer| (peer.name.as_str(), peer.role))
        .collect();
    let internal = Role::Internal;
    assert_eq!(
        others,
        [
            ("Reflector_10_0_1_2", internal),
            ("Reflector_10_0_1_3", internal)
        ]
    );
    let dials = |name: &str| {
        let peers = speaker(&view, name).peers;
        peers.iter().filter(|peer| !peer.session.passive).count()
    };
    assert_eq!(
        dials("rr1") + dials("rr2") + dials("rr3"),
        3,
        "of each pair one dials"
    );
    // The reflector has no IPv6 address itself.
    assert_eq!(rr1.ranges.len(), 8);
    for range in &rr1.ranges {
        assert_eq!((range.limit, range.template.role), (1, Role::Client));
        assert!(!range.covers("10.0.1.2".parse().expect("an address")));
        assert_eq!(
            range.template.local,
            Some("10.0.1.1".parse().expect("an address"))
        );
    }
    assert_eq!(rr1.cluster_id().0, Ipv4Addr::new(10, 0, 1, 1));
}

#[test]
fn draining_reflector_is_not_selected_unless_all_are() {
    let mut view = registered();
    let before: Vec<_> = (1..=8).map(|at| choice(&view, &format!("n{at}"))).collect();
    assert!(put(&mut view, "drain/rr1", "{}"));
    register(&mut view, 1, "draining");
    let gone = "Reflector_10_0_1_1".to_owned();
    for (at, before) in (1..=8).zip(before) {
        let now = choice(&view, &format!("n{at}"));
        assert!(!now.contains(&gone) && now.len() == 2, "{now:?}");
        assert!(
            before.contains(&gone) || now == before,
            "n{at} moves without need"
        );
    }
    // The reflector marks every route with the community.
    let rr1 = speaker(&view, "rr1");
    let templates = rr1.ranges.iter().map(|range| &range.template);
    for peer in rr1.peers.iter().chain(templates) {
        let Policy::Rules(rules) = &peer.export else {
            panic!("{:?}", peer.export);
        };
        assert_eq!(rules.name, "graceful shutdown, own blocks and pools");
        assert!(rules.terms.iter().any(|term| term.name == "farewell"));
    }
    let wish = derived(&view, "rr1").wish.expect("it has one");
    assert_eq!(wish.registration.state, ReflectorState::Draining);

    register(&mut view, 2, "draining");
    register(&mut view, 3, "drained");
    assert!(choice(&view, "n1").is_empty(), "the mesh is there");
    let mut alone = view.clone();
    for at in 2..=8 {
        assert!(alone.take(format!("{NODES}n{at}").as_bytes(), None));
    }
    assert_eq!(choice(&alone, "n1").len(), 2, "better these than none");
    assert_eq!(
        speaker(&view, "rr1").peers.len(),
        1,
        "a drained one takes no sessions"
    );
    assert!(delete(&mut view, "drain/rr1"));
    let rr1 = speaker(&view, "rr1");
    let Policy::Rules(rules) = &rr1.peers[0].export else {
        panic!("{:?}", rr1.peers[0].export);
    };
    assert_eq!(rules.name, "own blocks and pools");
}

#[test]
fn expired_registration_counts_until_it_was_checked() {
    let mut view = registered();
    let before = choice(&view, "n1");
    for at in 1..=3 {
        assert!(delete(&mut view, &format!("reflector/rr{at}")));
    }
    assert!(!view.fleet().is_registered());
    assert_eq!(
        choice(&view, "n1"),
        before,
        "a store that forgot is no reason to move"
    );
    register(&mut view, 2, "active");
    let absent: Vec<&str> = view.fleet().absent().map(|(name, _)| name).collect();
    assert_eq!(absent, ["rr1", "rr3"]);
    assert!(view.fleet_mut().forget("rr1"));
    assert!(!view.fleet_mut().forget("rr1"));
    let now: Vec<String> = choice(&view, "n1").into_iter().collect();
    assert_eq!(now, ["Reflector_10_0_1_2", "Reflector_10_0_1_3"]);
    assert!(
        speaker(&view, "n1")
            .peers
            .iter()
            .all(|peer| peer.name != "Mesh_10_0_1_1"),
        "by its claim it is one"
    );
    assert!(!delete(&mut view, "reflector/rr1"), "nothing new");
}

#[test]
fn invalid_registration_is_reported_and_the_last_valid_kept() {
    let mut view = registered();
    let before = choice(&view, "n1");
    for (key, value, expected) in [
        ("reflector/rr1", r#"{"asNumber":64512}"#, "clusterID"),
        ("cluster/10.0.1.2", "[]", "invalid"),
        ("reflector/RR9", "{}", "the name is that of a host"),
    ] {
        assert!(put(&mut view, key, value));
        let faults = derived(&view, "n1").faults;
        assert_eq!(faults.len(), 1);
        let fault = faults[0].to_string();
        assert!(
            fault.starts_with(&format!("{FABRIC}{key}: ")) && fault.contains(expected),
            "{fault}"
        );
        delete(&mut view, key);
        if key.starts_with("reflector/rr") {
            register(&mut view, 1, "active");
        }
    }
    assert!(!put(&mut view, "things/to/come", "{}"), "another version's");
    assert!(put(&mut view, "cluster/10.0.1.2", r#"{"reflector":"rr2"}"#));
    assert_eq!(choice(&view, "n1"), before);
    assert_eq!(derived(&view, "n1").faults, []);
}

/// The source of its cluster ID does not matter.
#[test]
fn a_reflector_passes_on_the_services_of_others() {
    let mut view = registered();
    let settings = r#"{"metadata":{"name":"default"},"spec":{
        "serviceLoadBalancerAggregation":"Disabled","serviceLoadBalancerIPs":[{"cidr":"192.0.2.0/24"}],
        "serviceExternalIPs":[{"cidr":"198.51.100.7/32"}]}}"#;
    let key = "/calico/resources/v3/projectcalico.org/bgpconfigurations/default";
    assert!(view.take(key.as_bytes(), Some(settings.as_bytes())));
    let given =
        r#"{"spec":{"bgp":{"ipv4Address":"10.0.1.3/24","routeReflectorClusterID":"0.0.0.1"}}}"#;
    assert!(view.take(format!("{NODES}rr3").as_bytes(), Some(given.as_bytes())));
    for (name, passes) in [("rr1", true), ("rr3", true), ("n1", false)] {
        let speaker = derived(&view, name).intent.expect("a speaker").speaker;
        let template = speaker.ranges.first().map(|range| &range.template);
        let peer = template.unwrap_or(&speaker.peers[0]);
        for net in ["192.0.2.9/32", "198.51.100.7/32"] {
            assert_eq!(
                accepts(&peer.export, net, Role::Client),
                passes,
                "{name} {net}"
            );
        }
    }
}

/// Returns whether a policy accepts a route.
fn accepts(policy: &Policy, net: &str, source: Role) -> bool {
    let net: Ipv4Net = net.parse().expect("a prefix");
    let attributes = Box::default();
    let (family, net) = (Family::IPV4_UNICAST, Net::V4(net.into()));
    let route = RouteContext::new(family, net, &attributes, source, Role::Client);
    let verdict = policy.evaluate(&route);
    !matches!(verdict, Verdict::Reject)
}

#[test]
fn the_load_of_a_reflector_changes_nothing() {
    let mut view = registered();
    let with_load = |clients: u32| {
        format!(
            r#"{{"asNumber":64512,"ipv4Address":"10.0.1.1","clusterID":"10.0.1.1","zone":"z1","clients":{clients}}}"#
        )
    };
    assert!(!put(&mut view, "reflector/rr1", &with_load(7)));
    assert!(!put(&mut view, "reflector/rr1", &with_load(900)));
}
