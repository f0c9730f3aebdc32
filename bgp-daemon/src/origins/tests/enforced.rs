//! The mode `enforce`: unconfirmed paths are not used.

use super::*;

impl Lab {
    pub(super) fn enforcing() -> Self {
        Self::with(LOG_ENTRIES_MIN, OriginMode::Enforce, |_| {})
    }

    pub(super) fn run_for_a_second(&mut self) {
        self.run(Duration::from_secs(1));
    }

    /// Returns how many paths of a node the tables exclude.
    pub(super) fn excluded(&self, node: usize) -> u64 {
        let excluded = crate::report::excluded(self.network.speaker(1));
        excluded
            .get(&format!("n{node}"))
            .copied()
            .unwrap_or_default()
    }
}

// Promise (BGP): With origin_validation = "enforce", a route of a node to the workload of another node
// is not used and not advertised, and the other node's route stays in use.
#[test]
fn route_of_another_node_is_not_used_and_reported() {
    let mut lab = Lab::enforcing();
    lab.endpoint(2, "10.65.2.9");
    lab.begin();
    lab.network.announce(2, "10.65.2.0/26");
    lab.network.announce(2, "10.65.2.9/32");
    lab.run_for_a_second();
    assert_eq!(lab.used("10.65.2.9/32").as_deref(), Some("n2"));
    let before = lab.advertised(3);
    lab.network.announce(3, "10.65.2.9/32");
    lab.network.announce(3, "10.65.2.10/32");
    lab.run_for_a_second();
    assert_eq!(lab.used("10.65.2.9/32").as_deref(), Some("n2"));
    assert_eq!(lab.used("10.65.2.10/32"), None);
    assert_eq!(lab.advertised(3), before);
    let pending = lab.watch.figures().pending;
    assert_eq!((lab.excluded(2), lab.excluded(3), pending), (0, 2, 2));
    lab.run(ORIGIN_WAIT);
    let expected = [
        text("10.65.2.9/32", "n3", "a record of node n2"),
        text("10.65.2.10/32", "n3", "a record of node n2"),
    ];
    assert_eq!(lab.reported(), expected);
    // Withdrawn paths do not count any more, although the log has no change of them.
    lab.network.withdraw(3, "10.65.2.9/32");
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.excluded(3), 1);
    assert_eq!(lab.watch.figures().unconfirmed, 1);
    assert_eq!(lab.used("10.65.2.9/32").as_deref(), Some("n2"));
}

// Promise (BGP): With origin_validation = "enforce", a route that arrives before its record is used
// when the record arrives, and is not used any more when the record is deleted.
#[test]
fn route_is_used_as_long_as_it_has_a_record() {
    let mut lab = Lab::enforcing();
    lab.begin();
    lab.network.announce(3, "10.65.2.9/32");
    lab.run_for_a_second();
    assert_eq!(lab.used("10.65.2.9/32"), None);
    lab.endpoint(3, "10.65.2.9");
    lab.run_for_a_second();
    assert_eq!(lab.used("10.65.2.9/32").as_deref(), Some("n3"));
    assert_eq!(lab.advertised(2).len(), 1);
    assert_eq!(lab.watch.figures().pending, 0);
    lab.no_endpoint("10.65.2.9");
    lab.run_for_a_second();
    assert_eq!(lab.used("10.65.2.9/32"), None);
    assert_eq!(lab.advertised(2).len(), 0);
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.reported().len(), 1);
}

#[test]
fn route_follows_the_record_of_a_moved_endpoint() {
    let mut lab = Lab::enforcing();
    lab.endpoint(2, "10.66.0.9");
    lab.begin();
    for node in [2, 3] {
        lab.network.announce(node, "10.66.0.9/32");
    }
    lab.run_for_a_second();
    assert_eq!(lab.used("10.66.0.9/32").as_deref(), Some("n2"));
    lab.endpoint(3, "10.66.0.9");
    lab.run_for_a_second();
    assert_eq!(lab.used("10.66.0.9/32").as_deref(), Some("n3"));
    assert_eq!((lab.excluded(2), lab.excluded(3)), (1, 0));
    // A block of the other node does not take it back, an invalid value does not either.
    let key = format!("{RESOURCES}workloadendpoints/ns/e-10.66.0.9");
    lab.put(&key, Some(r#"{"node":"n2","ipNetworks":["10.66.0.9/8"]}"#));
    lab.run_for_a_second();
    assert_eq!(lab.used("10.66.0.9/32").as_deref(), Some("n3"));
}

#[test]
fn record_of_a_block_confirms_all_routes_inside_it() {
    let mut lab = Lab::enforcing();
    lab.begin();
    lab.block(2, false);
    lab.network.announce(2, "10.65.2.0/26");
    lab.network.announce(2, "10.65.2.17/32");
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.excluded(2), 2);
    lab.block(2, true);
    lab.run(Duration::from_secs(2));
    assert_eq!(lab.excluded(2), 0);
    assert_eq!(lab.used("10.65.2.17/32").as_deref(), Some("n2"));
    assert_eq!(lab.watch.figures().unconfirmed, 0);
}

#[test]
fn no_route_is_used_before_the_records_are_read() {
    let mut lab = Lab::enforcing();
    lab.network.announce(2, "10.65.2.0/26");
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!((lab.used("10.65.2.0/26"), lab.excluded(2)), (None, 1));
    // The records of nodes alone do not confirm routes of nodes.
    let now = lab.network.now();
    lab.watch.begin(now, Known::Nodes);
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!((lab.used("10.65.2.0/26"), lab.excluded(2)), (None, 1));
    assert_eq!(lab.reported(), [], "no record is missing yet");
    lab.begin();
    assert_eq!(lab.used("10.65.2.0/26").as_deref(), Some("n2"));
    assert_eq!(lab.watch.figures().pending, 0);
}

#[test]
fn reflector_is_believed_when_the_nodes_are_known() {
    let mut lab = Lab::enforcing();
    let id = r#""routeReflectorClusterID":"244.0.0.1""#;
    let bgp = format!(r#"{{"bgp":{{"ipv4Address":"10.0.0.2/24",{id}}}}}"#);
    lab.put(&format!("{RESOURCES}nodes/n2"), Some(&bgp));
    lab.network.announce(2, "192.0.2.0/24");
    lab.run_for_a_second();
    assert_eq!(lab.used("192.0.2.0/24"), None);
    let now = lab.network.now();
    lab.watch.begin(now, Known::Nodes);
    lab.run_for_a_second();
    // It has a block, so its own routes would have to be confirmed; n2's block is removed.
    lab.block(2, false);
    lab.run(Duration::from_secs(2));
    assert_eq!(lab.used("192.0.2.0/24").as_deref(), Some("n2"));
    lab.block(2, true);
    lab.run(Duration::from_secs(2));
    assert_eq!(lab.used("192.0.2.0/24"), None);
}

#[test]
fn many_routes_are_used_and_excluded_in_bounded_steps() {
    let mut lab = Lab::enforcing();
    lab.begin();
    let count = 2 * ORIGIN_SCAN_STEP + 7;
    let address = |number: usize| format!("10.66.{}.{}", number / 256, number % 256);
    for number in 0..count {
        lab.network.announce(3, &format!("{}/32", address(number)));
    }
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(
        (lab.excluded(3), lab.reported().len()),
        (count as u64, count)
    );
    for number in 0..count {
        lab.endpoint(3, &address(number));
    }
    let now = lab.network.now();
    let (looked, _) = lab.watch.look(now, lab.network.speaker_mut(1));
    assert!(looked.has_more && looked.has_read);
    assert_eq!(lab.excluded(3), (count - ORIGIN_SCAN_STEP) as u64);
    lab.run_for_a_second();
    assert_eq!((lab.excluded(3), lab.advertised(2).len()), (0, count));
    for number in 0..count {
        lab.no_endpoint(&address(number));
    }
    lab.run_for_a_second();
    assert_eq!(
        (lab.excluded(3), lab.advertised(2).len()),
        (count as u64, 0)
    );
}
