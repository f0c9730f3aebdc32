//! Modes of single neighbors, and neighbors that are not nodes.

use super::*;

/// The number of a neighbor that is no node.
const SWITCH: usize = 4;

impl Lab {
    /// Creates a lab whose reflector has these settings for a neighbor.
    fn with_rules(mode: OriginMode, of: usize, rules: OriginRules) -> Self {
        Self::with(LOG_ENTRIES_MIN, mode, |config| {
            set(config, of, rules);
        })
    }

    /// Changes the settings of a neighbor.
    fn set(&mut self, of: usize, rules: OriginRules) {
        let now = self.network.now();
        let speaker = self.network.speaker_mut(1);
        let mut config = speaker.config().clone();
        set(&mut config, of, rules);
        self.watch.adopt(now, &config);
        speaker.reconfigure(now, config).expect("a valid change");
        self.run_for_a_second();
    }

    /// Creates a lab with another neighbor, which is no node.
    fn with_switch(mode: OriginMode, is_transit: bool) -> Self {
        let mut lab = Self::with(LOG_ENTRIES_MIN, mode, |config| {
            let mut switch = neighbor(1, SWITCH, Role::Client);
            switch.is_transit = is_transit;
            config.peers.push(switch);
        });
        let mut config = speaker_config(SWITCH);
        config.peers.push(neighbor(SWITCH, 1, Role::Internal));
        let at = address(SWITCH).into();
        lab.network.start(SWITCH, at, config);
        lab.network.advance(Duration::from_secs(20));
        assert_eq!(lab.network.established(1).len(), 3);
        lab.put(
            &format!("{RESOURCES}ippools/pool"),
            Some(r#"{"cidr":"10.65.0.0/16"}"#),
        );
        let services = r#"{"serviceClusterIPs":[{"cidr":"10.96.0.0/12"}]}"#;
        lab.put(
            &format!("{RESOURCES}bgpconfigurations/default"),
            Some(services),
        );
        lab
    }

    /// Lets the switch advertise routes; returns those that are used.
    fn used_of_switch(&mut self, prefixes: &[&str]) -> Vec<String> {
        for prefix in prefixes {
            self.network.announce(SWITCH, prefix);
        }
        self.run_for_a_second();
        let used = prefixes.iter().filter(|prefix| self.used(prefix).is_some());
        used.map(|prefix| (*prefix).to_owned()).collect()
    }
}

fn set(config: &mut SpeakerConfig, of: usize, rules: OriginRules) {
    let mut peers = config.peers.iter_mut();
    let peer = peers.find(|peer| peer.remote == IpAddr::from(address(of)));
    let peer = peer.expect("a neighbor");
    (peer.origin_validation, peer.is_transit) = (rules.mode, rules.is_transit);
}

fn only(mode: OriginMode) -> OriginRules {
    OriginRules {
        mode: Some(mode),
        is_transit: false,
    }
}

// Promise (BGP): The annotation `cambric.io/origin-validation` of a BGPPeer has precedence over the
// mode of the daemon, for the sessions of that BGPPeer only.
#[test]
fn mode_of_a_neighbor_has_precedence_over_the_daemons() {
    for (mode, of, own) in [
        (OriginMode::Off, 3, OriginMode::Enforce),
        (OriginMode::Warn, 3, OriginMode::Enforce),
        (OriginMode::Enforce, 2, OriginMode::Off),
        (OriginMode::Enforce, 2, OriginMode::Warn),
    ] {
        let mut lab = Lab::with_rules(mode, of, only(own));
        lab.begin();
        lab.network.announce(2, "10.65.3.9/32");
        lab.network.announce(3, "10.65.2.9/32");
        lab.run(2 * ORIGIN_WAIT);
        assert_eq!(lab.used("10.65.3.9/32").as_deref(), Some("n2"), "{mode:?}");
        assert_eq!(lab.used("10.65.2.9/32"), None, "{mode:?}");
        assert_eq!((lab.excluded(2), lab.excluded(3)), (0, 1), "{mode:?}");
        let warned = text("10.65.3.9/32", "n2", "a record of node n3");
        let rejected = text("10.65.2.9/32", "n3", "a record of node n2");
        let mut reported = lab.reported();
        reported.sort();
        let expected = match [mode, own].contains(&OriginMode::Warn) {
            true => vec![rejected, warned],
            false => vec![rejected],
        };
        assert_eq!(reported, expected, "{mode:?}");
    }
}

#[test]
fn changed_mode_of_a_neighbor_applies_to_its_routes() {
    let mut lab = Lab::enforcing();
    lab.begin();
    lab.network.announce(3, "10.65.2.9/32");
    lab.run_for_a_second();
    assert_eq!(lab.used("10.65.2.9/32"), None);
    lab.set(3, only(OriginMode::Warn));
    assert_eq!(lab.used("10.65.2.9/32").as_deref(), Some("n3"));
    assert_eq!(lab.excluded(3), 0);
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.watch.figures().unconfirmed, 1, "it is reported");
    lab.set(3, only(OriginMode::Off));
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.used("10.65.2.9/32").as_deref(), Some("n3"));
    let figures = lab.watch.figures();
    assert_eq!((figures.unconfirmed, figures.pending), (0, 0));
    lab.set(3, OriginRules::default());
    assert_eq!((lab.used("10.65.2.9/32"), lab.excluded(3)), (None, 1));
    assert_eq!(lab.network.established(1).len(), 2);
}

#[test]
fn rejected_path_stays_reported_beside_paths_with_warnings() {
    let mut lab = Lab::with_rules(OriginMode::Warn, 3, only(OriginMode::Enforce));
    lab.begin();
    lab.network.announce(3, "10.65.2.9/32");
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.watch.figures().unconfirmed, 1);
    // A change of the same prefix in the log, which does not contain the rejected path.
    lab.network.announce(2, "10.65.2.9/32");
    lab.run(Duration::from_millis(200));
    assert_eq!(lab.used("10.65.2.9/32").as_deref(), Some("n2"));
    assert_eq!(lab.watch.figures().unconfirmed, 1);
}

// Promise (BGP): With origin_validation = "enforce", a neighbor that is no node can advertise no
// prefix inside the pools, the service ranges and the addresses of nodes.
#[test]
fn neighbor_that_is_no_node_has_routes_outside_the_pools() {
    let mut lab = Lab::with_switch(OriginMode::Enforce, false);
    lab.watch.begin(lab.network.now(), Known::Nodes);
    lab.run_for_a_second();
    let inside = [
        "10.65.2.0/26",
        "10.65.9.9/32",
        "10.96.1.0/24",
        "10.0.0.2/32",
    ];
    let outside = ["0.0.0.0/0", "192.0.2.0/24", "10.0.0.0/24", "10.64.0.0/15"];
    assert_eq!(lab.used_of_switch(&inside), [""; 0]);
    assert_eq!(lab.used_of_switch(&outside), outside);
    lab.begin();
    assert_eq!(lab.excluded(SWITCH), 4);
    lab.run(2 * ORIGIN_WAIT);
    let expected = [
        text("10.0.0.2/32", "n4", "a record of node n2"),
        text("10.65.2.0/26", "n4", "in the pool pool"),
        text("10.65.9.9/32", "n4", "in the pool pool"),
        text("10.96.1.0/24", "n4", "in a service range"),
    ];
    let mut reported = lab.reported();
    reported.sort();
    assert_eq!(reported, expected);
    // A pool that is removed is no reason any more, and a new one is.
    lab.put(&format!("{RESOURCES}ippools/pool"), None);
    lab.run(Duration::from_secs(2));
    assert_eq!(lab.excluded(SWITCH), 2);
    let new = Some(r#"{"cidr":"192.0.2.0/24"}"#);
    lab.put(&format!("{RESOURCES}ippools/new"), new);
    lab.run(Duration::from_secs(2));
    assert_eq!((lab.excluded(SWITCH), lab.used("192.0.2.0/24")), (3, None));
}

#[test]
fn neighbor_that_is_no_node_is_reported_with_warn() {
    let mut lab = Lab::with_switch(OriginMode::Warn, false);
    lab.begin();
    assert_eq!(lab.used_of_switch(&["10.65.2.9/32"]), ["10.65.2.9/32"]);
    lab.run(2 * ORIGIN_WAIT);
    let expected = text("10.65.2.9/32", "n4", "in the pool pool");
    assert_eq!(lab.reported(), [expected]);
}

// Promise (BGP): With origin_validation = "enforce" and the annotation `cambric.io/transit` of its
// BGPPeer, a neighbor that is no node can pass on a route that the records confirm for a node in the
// last AS of AS_PATH, and no other one inside the pools.
#[test]
fn transit_neighbor_passes_on_routes_of_nodes_in_their_as() {
    let mut lab = Lab::with_switch(OriginMode::Enforce, true);
    let prefixes = [
        "10.65.2.0/26",
        "10.65.9.0/26",
        "10.65.3.7/32",
        "192.0.2.0/24",
    ];
    // Without the records of workloads, none of them is confirmed.
    lab.watch.begin(lab.network.now(), Known::Nodes);
    lab.run_for_a_second();
    assert_eq!(lab.used_of_switch(&prefixes), ["192.0.2.0/24"]);
    lab.begin();
    let confirmed = ["10.65.2.0/26", "10.65.3.7/32", "192.0.2.0/24"];
    assert_eq!(lab.used_of_switch(&prefixes), confirmed);
    // AS_PATH is empty, so the routes are of the local AS. Node n3 is in another one now.
    let bgp = r#"{"bgp":{"ipv4Address":"10.0.0.3/24","asNumber":64777}}"#;
    lab.put(&format!("{RESOURCES}nodes/n3"), Some(bgp));
    lab.run(Duration::from_secs(2));
    assert_eq!(
        lab.used_of_switch(&prefixes),
        ["10.65.2.0/26", "192.0.2.0/24"]
    );
    // The setting is the operator's: without it the routes are the switch's own.
    lab.set(SWITCH, OriginRules::default());
    assert_eq!(lab.used_of_switch(&prefixes), ["192.0.2.0/24"]);
}

/// A node with the setting stays a node: that is the closed side.
#[test]
fn transit_of_a_node_has_no_effect() {
    let mut lab = Lab::with_rules(
        OriginMode::Enforce,
        3,
        OriginRules {
            mode: None,
            is_transit: true,
        },
    );
    lab.begin();
    lab.network.announce(3, "10.65.2.0/26");
    lab.network.announce(3, "10.65.3.0/26");
    lab.run_for_a_second();
    assert_eq!(lab.used("10.65.2.0/26"), None);
    assert_eq!(lab.used("10.65.3.0/26").as_deref(), Some("n3"));
}
