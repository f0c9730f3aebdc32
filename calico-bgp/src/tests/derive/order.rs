//! The order of updates does not matter.

use super::*;

/// Returns one value of every kind.
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

/// Returns everything that is derived, as text for comparison.
fn picture(view: &View) -> String {
    let nodes = ["a", "b", "e"].map(|node| derive(view, &host(node), &Secrets::new()));
    format!("{nodes:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    // Promise (Datastore): The configuration from the datastore does not depend on the order of
    // updates, and nothing remains of a deleted key.
    /// The same keys derive the same result, in any order and with any deletions and rewrites in
    /// between; a key that is added and deleted leaves no trace.
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
