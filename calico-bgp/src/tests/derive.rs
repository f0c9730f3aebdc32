//! Datastore contents, and the derived peers, policies and duties of a node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bgp_fsm::PeerAs;
use bgp_proto::{Attributes, Family, Net};
use bgp_speaker::PeerConfig;
use ipnet::IpNet;
use proptest::prelude::*;
use rib::{NextHopMode, Policy, Role, RouteContext, Verdict};

use super::*;

mod duties;
mod order;
mod peers;
mod policies;
mod selected;

const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";
/// LOCAL_PREF of a route of metric 1024.
const NORMAL: u32 = 2_147_482_623;

/// Datastore contents: keys below [`PREFIX`], or whole keys, and values.
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

/// Four nodes of a rack, two of them possible reflectors, and one of another subnet and AS.
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

/// Describes a peer in one line: all values that differ from the defaults.
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
    ("/calico/ipam/v2/host/a/ipv4/block/10.67.1.0-26", "{}"),
];
