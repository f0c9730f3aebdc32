//! The identity of reflectors: cluster IDs and weights.

use super::*;

#[test]
fn a_reflector_waits_for_its_cluster_id_unless_it_is_given_one() {
    let mut view = fabric();
    let waits = derived(&view, "rr1");
    assert!(waits.intent.is_none() && waits.faults.is_empty());
    let router_id = Ipv4Addr::new(10, 0, 1, 1);
    let wish = waits.wish.expect("it wants one");
    assert_eq!(
        wish.cluster,
        ClusterWish::Own {
            router_id,
            held: None,
            avoid: BTreeSet::new()
        }
    );
    assert!(put(&mut view, "cluster/0.0.0.9", r#"{"reflector":"rr1"}"#));
    let held = Some(Ipv4Addr::new(0, 0, 0, 9));
    assert_eq!(
        speaker(&view, "rr1").cluster_id().0,
        Ipv4Addr::new(0, 0, 0, 9)
    );
    let wish = derived(&view, "rr1").wish.expect("it has one");
    let own = ClusterWish::Own {
        router_id,
        held,
        avoid: BTreeSet::new(),
    };
    assert_eq!(wish.cluster, own);

    let value = r#"{"metadata":{"name":"rr1","labels":{"topology.kubernetes.io/zone":"east",
        "cambric.io/reflector-weight":"250"}},"spec":{"bgp":{"ipv4Address":"10.0.1.1/24",
        "asNumber":64999,"routeReflectorClusterID":"0.0.0.1"}}}"#;
    assert!(view.take(format!("{NODES}rr1").as_bytes(), Some(value.as_bytes())));
    let wish = derived(&view, "rr1").wish.expect("it has one");
    assert_eq!(wish.cluster, ClusterWish::Given(Ipv4Addr::new(0, 0, 0, 1)));
    let reported = wish.registration;
    assert_eq!(
        (
            reported.zone.as_str(),
            reported.weight,
            reported.as_number.0
        ),
        ("east", 250, 64999)
    );
    assert_eq!(reported.ipv4_address, Some(router_id));
}

#[test]
fn cluster_ids_of_others_are_avoided() {
    let mut view = registered();
    let [one, two, nine] = [
        Ipv4Addr::new(10, 0, 1, 1),
        Ipv4Addr::new(10, 0, 1, 2),
        Ipv4Addr::new(0, 0, 0, 9),
    ];
    let wish = |view: &View| match derived(view, "rr1").wish.expect("it has one").cluster {
        ClusterWish::Own { held, avoid, .. } => (held, avoid),
        ClusterWish::Given(id) => panic!("{id} was not assigned"),
    };
    let of_others = BTreeSet::from([two, Ipv4Addr::new(10, 0, 1, 3)]);
    assert_eq!(wish(&view), (Some(one), of_others.clone()));
    // Another reflector is registered under the ID, but this one holds the claim.
    let same = r#"{"asNumber":64512,"ipv4Address":"10.0.1.3","clusterID":"10.0.1.1"}"#;
    assert!(put(&mut view, "reflector/rr3", same));
    assert_eq!(wish(&view), (Some(one), BTreeSet::from([two])));
    // The ID is statically configured for a node, on purpose: of two claims the other one is used.
    let given =
        r#"{"spec":{"bgp":{"ipv4Address":"10.0.0.1/24","routeReflectorClusterID":"10.0.1.1"}}}"#;
    assert!(view.take(format!("{NODES}n1").as_bytes(), Some(given.as_bytes())));
    assert_eq!(wish(&view), (Some(one), BTreeSet::from([one, two])));
    let reported = derived(&view, "rr1").faults;
    assert!(
        reported.len() == 1 && reported[0].to_string().contains("gives it up"),
        "{reported:?}"
    );
    assert!(put(&mut view, "cluster/0.0.0.9", r#"{"reflector":"rr1"}"#));
    assert_eq!(wish(&view), (Some(nine), BTreeSet::from([one, two])));
    assert_eq!(speaker(&view, "rr1").cluster_id().0, nine);
}

#[test]
fn invalid_weight_is_reported() {
    let mut view = registered();
    for (text, weight) in [
        ("0", 0),
        ("250", 250),
        ("much", 100),
        ("-1", 100),
        ("4294967296", 100),
    ] {
        let value = format!(
            r#"{{"metadata":{{"name":"rr1","labels":{{"cambric.io/reflector-weight":"{text}"}}}},
                "spec":{{"bgp":{{"ipv4Address":"10.0.1.1/24"}}}}}}"#
        );
        assert!(view.take(format!("{NODES}rr1").as_bytes(), Some(value.as_bytes())));
        let derived = derived(&view, "rr1");
        assert_eq!(
            derived.wish.expect("it has one").registration.weight,
            weight
        );
        let reported: Vec<String> = derived.faults.iter().map(Fault::to_string).collect();
        match text.parse::<u32>() {
            Ok(_) => assert!(reported.is_empty(), "{reported:?}"),
            Err(_) => assert_eq!(
                reported,
                [format!(
                    "{NODES}rr1: metadata.labels[cambric.io/reflector-weight]: \"{text}\" is no \
                     whole number from 0 to 4294967295: the weight is 100"
                )]
            ),
        }
    }
}

/// A host that was a reflector before, and is now an ordinary node.
#[test]
fn node_registered_as_reflector_has_a_note() {
    let mut view = registered();
    let notes = |view: &View, name: &str| {
        let derived = derive(view, &host(name), &Secrets::new());
        let notes = derived.intent.expect("a speaker").notes.into_iter();
        notes
            .filter(|note| note.contains("cambric reflector remove"))
            .collect::<Vec<_>>()
    };
    assert_eq!(notes(&view, "n1").len(), 0);
    let reported = notes(&view, "rr1");
    assert!(
        reported.len() == 1 && reported[0].contains("\"cambric reflector remove rr1\""),
        "{reported:?}"
    );
    assert!(delete(&mut view, "reflector/rr1") && view.fleet_mut().forget("rr1"));
    assert_eq!(
        notes(&view, "rr1"),
        reported,
        "its cluster id is still held"
    );
    let reflector = derived(&view, "rr1").intent.expect("a speaker");
    assert!(!reflector.notes.iter().any(|note| note.contains("remove")));
    assert!(delete(&mut view, "cluster/10.0.1.1"));
    assert_eq!(notes(&view, "rr1").len(), 0);
}
