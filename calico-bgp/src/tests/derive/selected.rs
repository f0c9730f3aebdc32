//! Peers of a `peerSelector`: they are added and removed with the labels of nodes.

use std::collections::BTreeSet;

use super::*;

const ALL: Contents<'_> = &[
    NO_MESH,
    (
        "bgppeers/to-rr",
        r#"{"spec":{"peerSelector":"has(route-reflector)","maxRestartTime":"75s",
            "password":{"secretKeyRef":{"name":"bgp","key":"rr"}}}}"#,
    ),
    (
        "bgppeers/tor",
        r#"{"spec":{"nodeSelector":"rack == 'r1'","peerIP":"10.0.0.254","asNumber":64700}}"#,
    ),
];

/// Node c has lost its label.
const MOVED: (&str, &str) = (
    "nodes/c",
    r#"{"metadata":{"labels":{"rack":"r1"}},"spec":{"bgp":{"ipv4Address":"10.0.0.3/24","routeReflectorClusterID":"244.0.0.1"}}}"#,
);

fn at(numbers: &[u8]) -> BTreeSet<IpAddr> {
    let addresses = numbers.iter().map(|number| [10, 0, 0, *number].into());
    addresses.collect()
}

fn secrets() -> Secrets {
    Secrets::from([(("bgp".into(), "rr".into()), "word".into())])
}

fn derived(contents: Contents<'_>, node: &str, before: &Placed) -> Derived {
    derive_after(&known(contents), &host(node), &secrets(), before)
}

/// Returns the placed peers after this derivation.
fn placed(derived: &Derived) -> Placed {
    let chosen = &derived.chosen;
    let by = |at: &IpAddr| chosen.peerings.get(at).cloned();
    chosen.peers.iter().map(|at| (*at, by(at))).collect()
}

#[test]
fn selected_peers_follow_the_fabric_addresses_do_not() {
    let all = with(ALL);
    let of_a = derived(&all, "a", &Placed::new());
    assert_eq!(of_a.faults, []);
    assert_eq!(lines(&of_a).len(), 4);
    assert_eq!(of_a.chosen.peers, at(&[2, 3, 4]), "and not the ToR");
    assert_eq!(of_a.chosen.selecting, at(&[]));
    let of_c = derived(&all, "c", &Placed::new());
    assert_eq!(&of_c.chosen.peers & &at(&[1, 2, 4]), at(&[1, 2, 4]));
    assert!(of_c.chosen.selecting.contains(&IpAddr::from([10, 0, 0, 1])));
    assert!(!of_c.chosen.selecting.contains(&IpAddr::from([10, 0, 0, 2])));
    for derived in [&of_a, &of_c] {
        let by: BTreeSet<&str> = derived
            .chosen
            .peerings
            .values()
            .map(String::as_str)
            .collect();
        assert_eq!(by, ["to-rr"].into());
        let with: BTreeSet<IpAddr> = derived.chosen.peerings.keys().copied().collect();
        assert_eq!(with, derived.chosen.peers);
    }
}

/// On both sides.
#[test]
fn formerly_selected_peer_is_derived_as_before() {
    let more = [ALL, &[MOVED]].concat();
    let (all, moved) = (with(ALL), with(&more));
    for (node, gone) in [("a", [10, 0, 0, 3]), ("c", [10, 0, 0, 1])] {
        let first = derived(&all, node, &Placed::new());
        let second = derived(&moved, node, &placed(&first));
        let gone = IpAddr::from(gone);
        assert!(!second.chosen.peers.contains(&gone), "{node}");
        let former = &second.chosen.former[&gone];
        let line = line(former);
        assert!(line.ends_with("password restart Some(75)"), "{line}");
        assert_eq!(former.password, Some("word".into()));
        assert_eq!(second.chosen.peerings[&gone], "to-rr");
        assert!(second.chosen.hosts.contains(&gone));
        // Without any resource about it the peer is unknown, and its session stays unchanged.
        let others = moved.iter().filter(|(key, _)| *key != "bgppeers/to-rr");
        let without: Vec<_> = others.copied().collect();
        let third = derived(&without, node, &placed(&first));
        assert!(third.chosen.former.is_empty() && third.chosen.peers.is_empty());
        assert!(third.chosen.hosts.contains(&gone));
    }
}

/// A session whose password is missing is impossible, and so is a retained one.
#[test]
fn peer_without_its_password_is_not_kept() {
    let all = with(ALL);
    let before = placed(&derived(&all, "a", &Placed::new()));
    let more = [ALL, &[MOVED]].concat();
    for contents in [all, with(&more)] {
        let view = known(&contents);
        let without = derive_after(&view, &host("a"), &Secrets::new(), &before);
        assert_eq!(lines(&without), ["Node_10_0_0_254 AS64700 external"]);
        assert_eq!(&without.chosen.hosts & &at(&[2, 3, 4]), at(&[]));
        assert!(without.chosen.former.is_empty());
        let expected = "bgppeers/to-rr: spec.password: the secret bgp/rr";
        assert!(without.faults[0].to_string().contains(expected));
    }
}

/// Each end of a session has the limit of the BGPPeer that configures this end.
#[test]
fn prefix_limit_applies_to_one_end_of_a_session() {
    let to_reflectors = (
        "bgppeers/to-rr",
        r#"{"metadata":{"annotations":{"cambric.io/prefix-limit":"500"}},
            "spec":{"peerSelector":"has(route-reflector)"}}"#,
    );
    let from_reflectors = (
        "bgppeers/from-rr",
        r#"{"metadata":{"annotations":{"cambric.io/prefix-limit":"700"}},
            "spec":{"nodeSelector":"has(route-reflector)","peerSelector":"!has(route-reflector)"}}"#,
    );
    let limit = |contents: Contents<'_>, node: &str, peer: [u8; 4]| {
        let derived = of(&with(contents), node);
        assert_eq!(derived.faults, []);
        let peers = derived.intent.expect("a speaker").speaker.peers;
        let found = peers
            .iter()
            .find(|found| found.remote == IpAddr::from(peer));
        prefix_limit(found.expect("a peer"))
    };
    let (a, b, c) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]);
    let one = &[NO_MESH, to_reflectors][..];
    let both = &[NO_MESH, to_reflectors, from_reflectors][..];
    for (contents, of_client) in [(one, 20_000), (both, 700)] {
        assert_eq!(limit(contents, "a", b), 500, "a node receives from b");
        assert_eq!(limit(contents, "b", c), 500, "a reflector is a node, too");
        assert_eq!(limit(contents, "b", a), of_client, "b receives from a");
    }
}
