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
        assert!(
            !matches!(example, Value::List(_) | Value::Table(_)),
            "{name}"
        );
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
