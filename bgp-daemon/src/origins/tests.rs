//! Routes of nodes and their records, in virtual time.

mod enforced;
mod neighbors;

use std::net::IpAddr;
use std::time::Duration;

use bgp_io::bgp_proto::{Family, Net};
use bgp_io::bgp_speaker::SpeakerConfig;
use bgp_io::rib::limits::LOG_ENTRIES_MIN;
use bgp_io::rib::{OriginMode, OriginRules, Role};
use daemon_common::report::{Path, Route};
use testkit::Network;
use testkit::fixture::{address, neighbor, speaker_config};

use super::watch::Suspect;
use super::*;
use crate::limits::{ORIGIN_SCAN_STEP, ORIGIN_SUSPECTS_MAX, ORIGIN_WAIT};

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";

/// A reflector, number 1, with two clients, the nodes `n2` and `n3`, and its records.
struct Lab {
    network: Network,
    watch: OriginWatch,
    reported: Vec<Unconfirmed>,
}

impl Lab {
    fn new() -> Self {
        Self::with_log(LOG_ENTRIES_MIN)
    }

    /// Creates a lab whose reflector keeps so many changes of a small table.
    fn with_log(entries: usize) -> Self {
        Self::with(entries, OriginMode::Warn, |_| {})
    }

    /// Creates a lab with a mode of the daemon, and further configuration of the reflector.
    fn with(entries: usize, mode: OriginMode, change: impl FnOnce(&mut SpeakerConfig)) -> Self {
        let mut network = Network::new(7);
        let mut config = speaker_config(1);
        config.limits.log_entries_min = entries;
        for client in [2, 3] {
            config.peers.push(neighbor(1, client, Role::Client));
            let mut other = speaker_config(client);
            other.peers.push(neighbor(client, 1, Role::Internal));
            network.start(client, address(client).into(), other);
        }
        change(&mut config);
        let mut watch = OriginWatch::new(7, mode);
        watch.adopt(network.now(), &config);
        let records = watch.modes().enforces().then(|| watch.records());
        network.start_with(1, address(1).into(), config, |speaker| {
            if let Some(records) = records {
                speaker.check_origins(Arc::new(records));
            }
        });
        network.advance(Duration::from_secs(20));
        assert_eq!(network.established(1).len(), 2);
        let mut lab = Self {
            network,
            watch,
            reported: Vec::new(),
        };
        for node in [2, 3] {
            let bgp = format!(r#"{{"bgp":{{"ipv4Address":"10.0.0.{node}/24"}}}}"#);
            lab.put(&format!("{RESOURCES}nodes/n{node}"), Some(&bgp));
            lab.block(node, true);
        }
        lab
    }

    fn put(&mut self, key: &str, spec: Option<&str>) {
        let name = key.rsplit('/').next().unwrap_or_default();
        let value = spec.map(|spec| format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{spec}}}"#));
        let value = value.as_ref().map(|value| value.as_bytes());
        self.watch.take(self.network.now(), key.as_bytes(), value);
    }

    fn block(&mut self, node: u8, is_held: bool) {
        let key = format!("/calico/ipam/v2/host/n{node}/ipv4/block/10.65.{node}.0-26");
        let value = is_held.then_some(br#"{"state":"confirmed"}"#.as_slice());
        self.watch.take(self.network.now(), key.as_bytes(), value);
    }

    fn endpoint(&mut self, node: u8, address: &str) {
        let spec = format!(r#"{{"node":"n{node}","ipNetworks":["{address}/32"]}}"#);
        let key = format!("{RESOURCES}workloadendpoints/ns/e-{address}");
        self.put(&key, Some(&spec));
    }

    /// Takes turns for some time.
    fn run(&mut self, time: Duration) {
        let end = self.network.now() + time;
        loop {
            self.network.settle();
            let now = self.network.now();
            self.watch.needs_workloads(self.network.speaker(1));
            let (looked, reported) = self.watch.look(now, self.network.speaker_mut(1));
            self.reported.extend(reported);
            match looked.has_more {
                true => {}
                false if now >= end => return,
                false => self.network.advance(Duration::from_millis(100)),
            }
        }
    }

    fn begin(&mut self) {
        self.watch.begin(self.network.now(), Known::All);
        self.run(Duration::from_secs(1));
    }

    /// Removes the record of an endpoint.
    fn no_endpoint(&mut self, address: &str) {
        self.put(
            &format!("{RESOURCES}workloadendpoints/ns/e-{address}"),
            None,
        );
    }

    /// Returns the node of the path in use to a prefix.
    fn used(&self, prefix: &str) -> Option<String> {
        let speaker = self.network.speaker(1);
        let net = Net::V4(prefix.parse().expect("a prefix"));
        let view = speaker.rib().lookup(Family::IPV4_UNICAST, net)?;
        let best = view.best()?.peer;
        Some(speaker.peer_name(best).to_owned())
    }

    /// Returns the routes that the reflector has advertised to a node.
    fn advertised(&self, node: usize) -> Vec<String> {
        let to = address(node).into();
        self.network.adj_rib_out(1, Family::IPV4_UNICAST, to)
    }

    /// Returns prefix, node and reason of what was reported since the last call.
    fn reported(&mut self) -> Vec<(String, String, String)> {
        let reported = std::mem::take(&mut self.reported).into_iter();
        let texts = reported.map(
            |Unconfirmed {
                 prefix, suspect, ..
             }| {
                let Suspect { node, reason, .. } = suspect;
                (prefix.to_string(), node, reason)
            },
        );
        texts.collect()
    }
}

fn text(prefix: &str, node: &str, reason: &str) -> (String, String, String) {
    (prefix.to_owned(), node.to_owned(), reason.to_owned())
}

// Promise (BGP): A route of a node that no record of the datastore confirms is reported.
#[test]
fn route_of_another_node_is_reported_after_five_seconds() {
    let mut lab = Lab::new();
    lab.begin();
    lab.network.announce(2, "10.65.2.0/26");
    lab.network.announce(3, "10.65.2.9/32");
    lab.network.announce(3, "192.0.2.0/24");
    lab.run(ORIGIN_WAIT - Duration::from_secs(1));
    assert_eq!(lab.reported(), []);
    assert_eq!(lab.watch.figures().pending, 2);
    lab.run(Duration::from_secs(2));
    let expected = [
        text("10.65.2.9/32", "n3", "a record of node n2"),
        text("192.0.2.0/24", "n3", "no record of the node"),
    ];
    assert_eq!(lab.reported(), expected);
    let figures = lab.watch.figures();
    assert_eq!((figures.pending, figures.unconfirmed), (0, 2));
    assert_eq!(figures.reported, [("n3".to_owned(), 2)].into());
    assert!(
        figures
            .note()
            .is_some_and(|note| note.starts_with("2 routes"))
    );
    // Once for each path, and the path stays in use.
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.reported(), []);
    let path = |neighbor: usize| Path {
        neighbor_address: Some(address(neighbor).into()),
        ..Path::default()
    };
    let mut page = Routes {
        routes: vec![Route {
            prefix: "10.65.2.9/32".to_owned(),
            paths: vec![path(2), path(3)],
            ..Route::default()
        }],
        next: None,
    };
    lab.watch.locate(&mut page);
    let reasons = page.routes[0]
        .paths
        .iter()
        .map(|path| path.unconfirmed.as_deref());
    assert_eq!(
        reasons.collect::<Vec<_>>(),
        [None, Some("a record of node n2")]
    );
    lab.network.withdraw(3, "192.0.2.0/24");
    lab.run(Duration::from_secs(1));
    assert_eq!(lab.watch.figures().unconfirmed, 1);
}

#[test]
fn route_is_not_reported_if_its_record_arrives_in_time() {
    let mut lab = Lab::new();
    lab.begin();
    lab.network.announce(3, "10.65.2.9/32");
    lab.run(ORIGIN_WAIT - Duration::from_secs(1));
    lab.endpoint(3, "10.65.2.9");
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.reported(), []);
    assert_eq!(lab.watch.figures().pending, 0);
    // A record that arrives later ends the report.
    lab.network.announce(3, "10.65.2.10/32");
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.reported().len(), 1);
    lab.endpoint(3, "10.65.2.10");
    lab.run(Duration::from_secs(2));
    assert_eq!(lab.watch.figures().unconfirmed, 0);
    assert_eq!(lab.watch.figures().reported["n3"], 1);
}

#[test]
fn removed_record_is_noticed_and_an_invalid_one_is_not() {
    let mut lab = Lab::new();
    lab.network.announce(2, "10.65.2.0/26");
    lab.begin();
    let key = format!("{RESOURCES}nodes/n2");
    lab.put(&key, Some(r#"{"bgp":{"ipv4Address":7}}"#));
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.reported(), []);
    assert_eq!(lab.watch.faults().count(), 1);
    lab.block(2, false);
    lab.run(2 * ORIGIN_WAIT);
    let expected = text("10.65.2.0/26", "n2", "no record of the node");
    assert_eq!(lab.reported(), [expected]);
    lab.block(2, true);
    lab.run(Duration::from_secs(2));
    assert_eq!(lab.watch.figures().unconfirmed, 0);
}

#[test]
fn table_is_read_at_the_start_in_bounded_steps() {
    let mut lab = Lab::new();
    let count = 2 * ORIGIN_SCAN_STEP + 7;
    for number in 0..count {
        let prefix = format!("10.66.{}.{}/32", number / 256, number % 256);
        lab.network.announce(3, &prefix);
    }
    lab.network.advance(Duration::from_secs(1));
    let now = lab.network.now();
    lab.watch.begin(now, Known::All);
    let (looked, _) = lab.watch.look(now, lab.network.speaker_mut(1));
    assert!(looked.has_more);
    assert_eq!(lab.watch.figures().pending, ORIGIN_SCAN_STEP as u64);
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.reported().len(), count);
}

#[test]
fn withdrawal_that_the_log_dropped_ends_a_suspicion() {
    let mut lab = Lab::with_log(3);
    lab.begin();
    for prefix in ["192.0.2.0/24", "198.51.100.0/24"] {
        lab.network.announce(3, prefix);
    }
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(lab.reported().len(), 2);
    assert_eq!(lab.watch.figures().unconfirmed, 2);
    // The log loses the withdrawal because of later changes, before the next turn reads it.
    lab.network.withdraw(3, "192.0.2.0/24");
    for _ in 0..20 {
        lab.network.settle();
        lab.network.announce(2, "10.65.2.0/26");
        lab.network.settle();
        lab.network.withdraw(2, "10.65.2.0/26");
    }
    lab.run(Duration::from_secs(2));
    let figures = lab.watch.figures();
    assert_eq!((figures.pending, figures.unconfirmed), (0, 1));
    assert_eq!(lab.reported(), []);
}

#[test]
fn paths_beyond_the_limit_are_evaluated_when_there_is_room() {
    let mut lab = Lab::new();
    lab.begin();
    let (extra, fewer) = (100, ORIGIN_SUSPECTS_MAX / 4 + 1);
    let prefix = |number: usize| format!("10.66.{}.{}/32", number / 256, number % 256);
    for number in 0..ORIGIN_SUSPECTS_MAX + extra {
        lab.network.announce(3, &prefix(number));
    }
    let held = |lab: &Lab| {
        let figures = lab.watch.figures();
        let is_incomplete = figures
            .note()
            .is_some_and(|note| note.contains("more than this daemon can hold"));
        let held = (figures.pending + figures.unconfirmed) as usize;
        (held, is_incomplete, figures.overflow as usize)
    };
    lab.run(Duration::from_secs(2));
    assert_eq!(held(&lab), (ORIGIN_SUSPECTS_MAX, true, extra));
    // A few free places do not cause another reading of the table.
    lab.network.withdraw(3, &prefix(0));
    lab.run(2 * ORIGIN_WAIT);
    assert_eq!(held(&lab), (ORIGIN_SUSPECTS_MAX - 1, true, extra));
    for number in 1..fewer {
        lab.network.withdraw(3, &prefix(number));
    }
    lab.run(2 * ORIGIN_WAIT);
    let all = ORIGIN_SUSPECTS_MAX + extra - fewer;
    assert_eq!(held(&lab), (all, false, extra));
    assert_eq!(lab.watch.figures().unconfirmed, all as u64);
}

#[test]
fn records_of_workloads_are_needed_for_plain_nodes_only() {
    let mut lab = Lab::new();
    assert!(lab.watch.needs_workloads(lab.network.speaker(1)));
    for node in [2, 3] {
        let id = r#""routeReflectorClusterID":"244.0.0.1""#;
        let bgp = format!(r#"{{"bgp":{{"ipv4Address":"10.0.0.{node}/24",{id}}}}}"#);
        lab.put(&format!("{RESOURCES}nodes/n{node}"), Some(&bgp));
    }
    assert!(!lab.watch.needs_workloads(lab.network.speaker(1)));
}
