//! The clients for which a reflector waits after a restart: those that choose it.

use super::*;

/// Returns the clients that a reflector waits for, by the names of their nodes.
fn awaited(view: &View, name: &str) -> BTreeSet<String> {
    let ranges = speaker(view, name).ranges.into_iter();
    let awaited = ranges.filter(|range| range.awaited);
    awaited.map(|range| range.name).collect()
}

/// Returns the clients that choose a reflector.
fn choosers(view: &View, at: u8) -> BTreeSet<String> {
    let nodes = (1..=8).map(|node| format!("n{node}"));
    let chosen = format!("Reflector_10_0_1_{at}");
    nodes
        .filter(|node| choice(view, node).contains(&chosen))
        .collect()
}

// Promise: as bgp-speaker unexpected_peer_is_awaited_only_after_it_connects
#[test]
fn clients_that_select_the_reflector_are_awaited() {
    let mut view = registered();
    let key = "/calico/resources/v3/projectcalico.org/bgpconfigurations/node.n3";
    let alone = r#"{"metadata":{"name":"node.n3",
        "annotations":{"cambric.io/reflectors-per-node":"1"}},"spec":{}}"#;
    assert!(view.take(key.as_bytes(), Some(alone.as_bytes())));
    let mut seen = BTreeSet::new();
    for gone in [None, Some(1), Some(2), Some(3)] {
        let mut view = view.clone();
        if let Some(gone) = gone {
            register(&mut view, gone, "draining");
        }
        for at in (1..=3).filter(|at| Some(*at) != gone) {
            let awaited = awaited(&view, &format!("rr{at}"));
            assert_eq!(awaited, choosers(&view, at), "rr{at} without {gone:?}");
            seen.insert(awaited);
        }
    }
    assert!(seen.len() > 3, "{seen:?}");
}

/// A reflector includes itself before it has registered again, and also while it is drained: a node
/// that has not seen the drain yet is still its client.
#[test]
fn reflector_awaits_clients_while_drained_or_unregistered() {
    let mut view = registered();
    let before = choosers(&view, 1);
    assert!((1..8).contains(&before.len()));
    register(&mut view, 1, "draining");
    assert!(put(&mut view, "drain/rr1", "{}"));
    assert_eq!(awaited(&view, "rr1"), before);
    assert!(delete(&mut view, "drain/rr1"));
    assert!(delete(&mut view, "reflector/rr1"));
    view.fleet_mut().forget("rr1");
    assert_eq!(awaited(&view, "rr1"), before);
    // The fewer reflectors are registered, the more clients it expects.
    for at in [2, 3] {
        assert!(delete(&mut view, &format!("reflector/rr{at}")));
        view.fleet_mut().forget(&format!("rr{at}"));
    }
    assert_eq!(awaited(&view, "rr1").len(), 8);
}
