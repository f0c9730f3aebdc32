use std::net::IpAddr;
use std::time::Duration;

use bgp_proto::{Asn, Family, FamilySet};
use bgp_speaker::PeerConfig;
use rib::NextHops;

use crate::*;

mod annotations;
mod bfd;
mod derive;
mod reflectors;
mod unsupported;

const NODES: &str = "/calico/resources/v3/projectcalico.org/nodes/";

fn host(name: &str) -> Host {
    Host {
        name: name.to_owned(),
        families: [Family::IPV4_UNICAST, Family::IPV6_UNICAST]
            .into_iter()
            .collect::<FamilySet>(),
        multipath_max: 1,
        next_hops: NextHops::Track,
        restart_wait: Duration::from_secs(90),
        reflects: false,
        reflectors: None,
        registration_ttl: Duration::from_secs(15),
        absence_wait: Duration::from_secs(60),
    }
}

/// Returns a view of nodes: their names, and the content of their `spec.bgp`.
fn view(nodes: &[(&str, &str)]) -> View {
    let mut view = View::default();
    for (name, bgp) in nodes {
        let spec = match *bgp {
            "" => String::new(),
            bgp => format!(r#""bgp":{{{bgp}}}"#),
        };
        let text = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{{spec}}}}}"#);
        assert!(view.take(format!("{NODES}{name}").as_bytes(), Some(text.as_bytes())));
    }
    view
}

fn peers(view: &View, name: &str) -> Vec<PeerConfig> {
    let derived = derive(view, &host(name), &Secrets::new());
    assert_eq!(derived.faults, []);
    derived.intent.expect("a speaker").speaker.peers
}

/// Returns the prefix limit of a peer.
fn prefix_limit(peer: &PeerConfig) -> u32 {
    let family = peer.session.families.iter().next().expect("a family");
    let limit = peer.prefix_limits.get(family);
    limit.expect("a limit").max
}

#[test]
fn a_mesh_is_every_other_node_that_reflects_nothing() {
    let view = view(&[
        (
            "a",
            r#""ipv4Address":"10.0.0.10/24","ipv6Address":"fd00::10/64""#,
        ),
        ("b", r#""ipv4Address":"10.0.0.9/24","asNumber":"1.1""#),
        (
            "c",
            r#""ipv4Address":"10.0.0.11","ipv6Address":"fd00::11/64""#,
        ),
        (
            "rr",
            r#""ipv4Address":"10.0.0.1/24","routeReflectorClusterID":"244.0.0.1""#,
        ),
        ("mute", ""),
    ]);
    let fault = |peer: &PeerConfig| {
        let families: Vec<Family> = peer.session.families.iter().collect();
        (
            peer.name.clone(),
            peer.session.passive,
            peer.local,
            families,
        )
    };
    let local = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
    let [v4, v6] = [vec![Family::IPV4_UNICAST], vec![Family::IPV6_UNICAST]];
    let of_a = peers(&view, "a");
    // As text, "10.0.0.9" is the greatest.
    assert_eq!(
        of_a.iter().map(fault).collect::<Vec<_>>(),
        [
            (
                "Mesh_10_0_0_11".to_owned(),
                true,
                local("10.0.0.10"),
                v4.clone()
            ),
            ("Mesh_10_0_0_9".to_owned(), true, local("10.0.0.10"), v4),
            ("Mesh_fd00__11".to_owned(), true, local("fd00::10"), v6),
        ]
    );
    assert_eq!(of_a[1].role, rib::Role::External);
    assert_eq!(
        of_a[1].session.peer_asn,
        bgp_fsm::PeerAs::Exactly(Asn(65537))
    );
    assert_eq!(of_a[0].role, rib::Role::Internal);
    assert!(peers(&view, "rr").is_empty(), "a reflector is in no mesh");
}

/// Of each pair exactly one dials, whatever the addresses.
#[test]
fn one_of_each_pair_dials() {
    let nodes: Vec<(String, String)> = (1..40)
        .map(|i| {
            (
                format!("n{i}"),
                format!(r#""ipv4Address":"10.0.{}.{i}/24""#, i % 3),
            )
        })
        .collect();
    let nodes: Vec<(&str, &str)> = nodes
        .iter()
        .map(|(n, b)| (n.as_str(), b.as_str()))
        .collect();
    let view = view(&nodes);
    for (name, _) in &nodes {
        for peer in peers(&view, name) {
            let other = peers(
                &view,
                &format!(
                    "n{}",
                    peer.remote
                        .to_string()
                        .rsplit('.')
                        .next()
                        .expect("an octet")
                ),
            );
            let back = other
                .iter()
                .find(|back| Some(back.remote) == peer.local)
                .expect("a pair");
            assert_ne!(
                peer.session.passive, back.session.passive,
                "{name} and {}",
                back.name
            );
        }
    }
}

#[test]
fn invalid_value_is_reported_and_the_last_valid_kept() {
    let mut known = view(&[
        ("a", r#""ipv4Address":"10.0.0.1/24""#),
        ("b", r#""ipv4Address":"10.0.0.2/24""#),
    ]);
    let good = known.clone();
    let key = format!("{NODES}b");
    for (value, expected) in [
        ("{", "EOF"),
        (
            r#"{"spec":{"bgp":{"ipv4Address":"x"}}}"#,
            "spec.bgp.ipv4Address: \"x\"",
        ),
        (
            r#"{"spec":{"bgp":{"asNumber":0,"ipv4Address":"10.0.0.3"}}}"#,
            "spec.bgp.asNumber: must not be set: AS 0",
        ),
    ] {
        assert!(
            known.take(key.as_bytes(), Some(value.as_bytes())),
            "{value}"
        );
        assert!(
            !known.take(key.as_bytes(), Some(value.as_bytes())),
            "nothing new"
        );
        let derived = derive(&known, &host("a"), &Secrets::new());
        let peers = derived.intent.expect("as before").speaker.peers;
        assert_eq!(peers[0].name, "Mesh_10_0_0_2");
        let fault = derived.faults[0].to_string();
        assert!(
            fault.starts_with(&format!("{key}: ")) && fault.contains(expected),
            "{fault}"
        );
    }
    let value = r#"{"spec":{"bgp":{"ipv4Address":"10.0.0.2/24"}}}"#;
    assert!(known.take(key.as_bytes(), Some(value.as_bytes())));
    assert_eq!(known, good);
    assert!(known.take(key.as_bytes(), None));
    assert_eq!(known, view(&[("a", r#""ipv4Address":"10.0.0.1/24""#)]));
}

#[test]
fn missing_node_derives_no_speaker() {
    let derived = derive(&view(&[("a", "")]), &host("b"), &Secrets::new());
    assert!(derived.intent.is_none());
    assert_eq!(
        derived.faults[0].to_string(),
        format!("{NODES}b: this node is not in the store")
    );
    let derived = derive(&view(&[("a", "")]), &host("a"), &Secrets::new());
    assert!(derived.intent.is_none());
    assert_eq!(derived.faults[0].field, "spec.bgp.ipv4Address");
}
