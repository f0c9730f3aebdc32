//! Passwords of sessions with reflectors.

use super::*;

/// A node that leaves the mesh for reflectors keeps the mesh password.
#[test]
fn sessions_with_reflectors_have_the_password_of_the_mesh() {
    let mut view = registered();
    let settings = r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false,
        "nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh"}}}}"#;
    let put = |view: &mut View, key: &str, value: &str| {
        let key = format!("/calico/resources/v3/projectcalico.org/{key}");
        assert!(view.take(key.as_bytes(), Some(value.as_bytes())));
    };
    put(&mut view, "bgpconfigurations/default", settings);
    let derived = |view: &View, name: &str, secrets: &Secrets| {
        let reflects = name.starts_with("rr");
        derive(
            view,
            &Host {
                reflects,
                ..host(name)
            },
            secrets,
        )
    };
    let none = Secrets::new();
    let secrets = Secrets::from([(("bgp".into(), "mesh".into()), "word".into())]);
    for (name, peers, ranges) in [("n1", 2, 0), ("rr1", 2, 8)] {
        let without = derived(&view, name, &none);
        let reported: Vec<String> = without.faults.iter().map(Fault::to_string).collect();
        assert!(
            reported.len() == 1
                && reported[0].contains("spec.nodeMeshPassword: the secret bgp/mesh"),
            "{reported:?}"
        );
        assert!(without.chosen.peers.is_empty());
        let speaker = without.intent.expect("a speaker").speaker;
        assert!(
            speaker.peers.is_empty() && speaker.ranges.is_empty(),
            "{name}"
        );

        let with = derived(&view, name, &secrets);
        assert_eq!(with.faults, []);
        assert_eq!(with.chosen.peers.len(), peers);
        let speaker = with.intent.expect("a speaker").speaker;
        assert_eq!((speaker.peers.len(), speaker.ranges.len()), (peers, ranges));
        let templates = speaker.ranges.iter().map(|range| &range.template);
        for peer in speaker.peers.iter().chain(templates) {
            assert_eq!(peer.password, Some("word".into()), "{name} {}", peer.name);
        }
    }
    // A BGPPeer sets its own password, on both sides: no key of a range covers it.
    let peering = r#"{"spec":{"node":"n1","peerSelector":"is == 'rr1'"}}"#;
    put(&mut view, "bgppeers/own", peering);
    let rr1 = r#"{"metadata":{"name":"rr1","labels":{"is":"rr1"}},
        "spec":{"bgp":{"ipv4Address":"10.0.1.1/24"}}}"#;
    put(&mut view, "nodes/rr1", rr1);
    let speaker = derived(&view, "rr1", &secrets)
        .intent
        .expect("a speaker")
        .speaker;
    let n1 = "10.0.0.1".parse().expect("an address");
    let by_hand = speaker.peers.iter().find(|peer| peer.remote == n1);
    assert_eq!(by_hand.expect("the other side of it").password, None);
    assert!(speaker.ranges.iter().all(|range| !range.covers(n1)));
    assert_eq!(speaker.ranges.len(), 7);
}

/// The second line of a secret is another valid key, of peers and of ranges.
#[test]
fn secret_with_two_keys_gives_sessions_both() {
    let mut view = registered();
    let settings = r#"{"metadata":{"name":"default"},"spec":{
        "nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh"}}}}"#;
    let key = "/calico/resources/v3/projectcalico.org/bgpconfigurations/default";
    assert!(view.take(key.as_bytes(), Some(settings.as_bytes())));
    let secrets = Secrets::from([(("bgp".into(), "mesh".into()), "word\nother".into())]);
    let reflector = Host {
        reflects: true,
        ..host("rr1")
    };
    let derived = derive(&view, &reflector, &secrets);
    assert_eq!(derived.faults, []);
    let speaker = derived.intent.expect("a speaker").speaker;
    assert!(!speaker.peers.is_empty() && !speaker.ranges.is_empty());
    let templates = speaker.ranges.iter().map(|range| &range.template);
    for peer in speaker.peers.iter().chain(templates) {
        let keys = (peer.password.as_deref(), peer.second_password.as_deref());
        assert_eq!(keys, (Some("word"), Some("other")), "{}", peer.name);
    }
}

/// A missing password that no session needs is not reported.
#[test]
fn a_password_without_a_session_is_not_asked_for() {
    let mut view = view(&[("a", r#""ipv4Address":"10.0.0.1/24""#)]);
    let settings = r#"{"metadata":{"name":"default"},"spec":{
        "nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh"}}}}"#;
    let key = "/calico/resources/v3/projectcalico.org/bgpconfigurations/default";
    assert!(view.take(key.as_bytes(), Some(settings.as_bytes())));
    assert_eq!(derive(&view, &host("a"), &Secrets::new()).faults, []);
}
