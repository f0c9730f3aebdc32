//! Keys of a neighbor in the annotations of a BGPPeer.

use bgp_speaker::PeerConfig;
use bgp_speaker::keys::{PEER_KEYS, Store, Value};

use super::*;

/// Returns the peer of a BGPPeer with these annotations, and the faults of the node.
fn annotated(annotations: &[(&str, &str)]) -> (PeerConfig, Vec<String>) {
    let mut view = view(&[("a", r#""ipv4Address":"10.0.0.1/24""#)]);
    let entries = annotations.iter();
    let entries: Vec<String> = entries
        .map(|(name, value)| format!(r#""{name}":"{value}""#))
        .collect();
    let annotations = entries.join(",");
    let text = format!(
        r#"{{"metadata":{{"name":"tor","annotations":{{{annotations}}}}},
            "spec":{{"peerIP":"10.0.0.254","asNumber":64700,"keepaliveTime":"7s"}}}}"#
    );
    let key = "/calico/resources/v3/projectcalico.org/bgppeers/tor";
    assert!(view.take(key.as_bytes(), Some(text.as_bytes())));
    let derived = derive(&view, &host("a"), &Secrets::new());
    let faults = derived.faults.iter();
    let faults = faults.map(|fault| format!("{}: {}", fault.field, fault.reason));
    let mut peers = derived.intent.expect("a speaker").speaker.peers;
    (peers.remove(0), faults.collect())
}

#[test]
fn annotation_decides_a_key() {
    let (peer, faults) = annotated(&[
        ("cambric.io/hold-time", "30"),
        ("cambric.io/allow-as-sets", "true"),
        ("example.org/hold-time", "x"),
    ]);
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!(peer.session.hold_time_s, 30);
    assert!(peer.as_path.allow_as_sets);
    assert_eq!(peer.session.keepalive_s, Some(7), "as the fields have it");
}

#[test]
fn every_annotation_takes_the_example_of_its_key() {
    let plain = annotated(&[]).0;
    for key in PEER_KEYS
        .iter()
        .filter(|key| key.store == Store::Annotation)
    {
        let (name, example) = (key.annotation().expect("a name"), (key.example)());
        assert!(!matches!(example, Value::List(_)), "{name}");
        let (peer, faults) = annotated(&[(&name, &example.plain())]);
        assert!(faults.is_empty(), "{faults:?}");
        assert!(key.differs(&plain, &peer), "{name}");
    }
}

#[test]
fn annotation_that_is_refused_is_a_fault() {
    let plain = annotated(&[]).0;
    for (name, value, reason) in [
        ("hold-time", "2", "0 or at least 3 seconds"),
        ("hold-time", "soon", "0 or at least 3 seconds"),
        ("allow-as-sets", "yes", "true or false"),
        ("prefix-limit", "-1", "0 for no limit"),
        ("prefix-limit", "true", "0 for no limit"),
        ("hold-tiem", "30", "no key of a BGPPeer"),
        ("long-lived-stale-time", "3600", "a table of families"),
        (
            "long-lived-stale-time",
            "ipv4-unicast=0",
            "from 1 to 16777215",
        ),
        ("long-lived-stale-time", "ipv5=60", "unknown family"),
        ("password", "x", "no key of a BGPPeer"),
    ] {
        let (peer, faults) = annotated(&[(&format!("cambric.io/{name}"), value)]);
        assert_eq!(peer, plain, "{name}");
        let field = format!("metadata.annotations[cambric.io/{name}]: ");
        assert!(
            faults.len() == 1 && faults[0].starts_with(&field) && faults[0].contains(reason),
            "{faults:?}"
        );
    }
}

#[test]
fn origin_validation_is_set_by_an_annotation_of_the_bgppeer() {
    let (peer, faults) = annotated(&[
        ("cambric.io/origin-validation", "warn"),
        ("cambric.io/transit", "true"),
    ]);
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!(peer.origin_validation, Some(rib::OriginMode::Warn));
    assert!(peer.is_transit);
    let (peer, faults) = annotated(&[("cambric.io/origin-validation", "on")]);
    assert_eq!((peer.origin_validation, faults.len()), (None, 1));
}

/// Both sides of the session are of the BGPPeer, but only its peers can be switches.
#[test]
fn node_with_transit_is_reported_and_validated_as_a_node() {
    let mut view = view(&[
        ("a", r#""ipv4Address":"10.0.0.1/24""#),
        ("b", r#""ipv4Address":"10.0.0.2/24""#),
    ]);
    let text = r#"{"metadata":{"name":"tor","annotations":{"cambric.io/transit":"true",
        "cambric.io/origin-validation":"enforce"}},
        "spec":{"node":"a","peerIP":"10.0.0.2","asNumber":64512}}"#;
    let key = "/calico/resources/v3/projectcalico.org/bgppeers/tor";
    assert!(view.take(key.as_bytes(), Some(text.as_bytes())));
    let mut sides = [("a", 1), ("b", 0)].into_iter().map(|(name, count)| {
        let derived = derive(&view, &host(name), &Secrets::new());
        let faults = derived.faults.iter();
        let faults = faults.filter(|fault| fault.field.contains("transit"));
        assert_eq!(faults.count(), count, "{:?}", derived.faults);
        let peers = derived.intent.expect("a speaker").speaker.peers;
        let remote: IpAddr = match name {
            "a" => "10.0.0.2".parse().expect("an address"),
            _ => "10.0.0.1".parse().expect("an address"),
        };
        let peer = peers.into_iter().find(|peer| peer.remote == remote);
        let peer = peer.expect("the other side");
        (peer.origin_validation, peer.is_transit)
    });
    let mode = Some(rib::OriginMode::Enforce);
    assert_eq!(sides.next(), Some((mode, true)), "the BGPPeer's node");
    assert_eq!(sides.next(), Some((mode, false)), "the reverse side");
}
