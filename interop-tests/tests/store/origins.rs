//! Origin validation with `enforce` at a route reflector: a lying node gets no packet, and a workload
//! that moves loses none.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use daemon_common::report::{OriginFigures, Status};
use interop_tests::{Ground, Kind, Site, Speaker, Store, in_ground};
use netns_lab::{Error, Flow, FlowReport, Pinger, until};

use super::{PATIENCE, begun, net};

const REFLECTOR: u8 = 11;
/// The node whose workload sends the pings.
const FROM: u8 = 1;
/// The node of the workload that answers.
const HOME: u8 = 2;
const OTHER: u8 = 3;

/// The address of the workload under test, in the block of its node.
const TO: &str = "10.65.2.9/32";
/// Metrics of a workload's route on its settled node, and on the node where it has just arrived.
const SETTLED: u32 = 1024;
const ARRIVED: u32 = 512;

struct Fabric {
    store: Option<Store>,
    reflector: Speaker,
    nodes: Vec<Speaker>,
    pinger: Pinger,
}

impl Fabric {
    async fn new(ground: &Ground) -> Self {
        let store = ground.store().await.expect("a store");
        let settings = r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false}}"#;
        store.put("bgpconfigurations", "default", settings).await;
        // The label is the operator's record that the node is a route reflector.
        let at = Site::v4(REFLECTOR);
        let name = format!("h{REFLECTOR}");
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"cambric.io/reflector-weight":"1"}}}},
                "spec":{{"bgp":{{"ipv4Address":"{at}/24"}}}}}}"#
        );
        store.put("nodes", &name, &text).await;
        for number in [FROM, HOME, OTHER] {
            store.node(number, "").await;
            store.block(number, &format!("10.65.{number}.0/26")).await;
        }
        let keys = "origin_validation = \"enforce\"\n";
        let reflector = ground.stored_with(Kind::Reflector, REFLECTOR, keys).await;
        let mut nodes = Vec::new();
        for number in [FROM, HOME, OTHER] {
            nodes.push(begun(ground, Kind::Client, number).await);
        }
        for node in &nodes {
            node.is_up().await;
        }
        let from = Ipv4Addr::new(10, 65, FROM, 1);
        let links = nodes[0].site.host.links().expect("links");
        let own = net(&format!("{from}/32"));
        links.add_address("lo", own).await.expect("an address");
        let pinger = Pinger::open(&nodes[0].site.host, from, Site::v6(FROM));
        Self {
            store: Some(store),
            reflector,
            nodes,
            pinger: pinger.expect("a pinger"),
        }
    }

    fn node(&self, number: u8) -> &Speaker {
        &self.nodes[usize::from(number - 1)]
    }

    /// Writes the record of the workload.
    async fn record(&self, node: u8) {
        let text = format!(r#"{{"spec":{{"node":"h{node}","ipNetworks":["{TO}"]}}}}"#);
        let store = self.store.as_ref().expect("a store");
        store.put("workloadendpoints", "ns/w", &text).await;
    }

    /// Lets a node answer for an address, and announce it.
    async fn has(&self, number: u8, address: &str, metric: u32) {
        let links = self.node(number).site.host.links().expect("links");
        let added = links.add_address("lo", net(address)).await;
        added.expect("an address");
        let added = links.add_route_of(net(address), "cali0", metric).await;
        added.expect("a route");
    }

    /// Waits until the reflector has a path from a node, which it uses or does not use.
    async fn receives(&self, address: &str, number: u8, used: bool) {
        let from = Some(IpAddr::V4(Site::v4(number)));
        let what = format!("{address} from node {number}, used: {used}");
        let waited = until(PATIENCE, &what, async || {
            let paths = self.reflector.paths(net(address)).await;
            let mut paths = paths.iter();
            let path = paths.find(|path| path.neighbor_address == from);
            let is_so = path.is_some_and(|path| path.best == used);
            Ok::<_, Error>(is_so.then_some(()).ok_or_else(|| format!("{path:?}")))
        });
        if let Err(error) = waited.await {
            panic!("{error}\n{}", self.reflector.log_tail());
        }
    }

    /// Waits until the reflector has counts.
    async fn counts(&self, what: &str, wanted: impl Fn(&OriginFigures) -> bool) {
        let wanted = |status: &Status| status.origins.as_deref().is_some_and(&wanted);
        self.reflector.reports(what, wanted).await;
    }

    /// Waits until the pings have an answer.
    async fn reaches(&self, address: &str) {
        let to = net(address).addr();
        let waited = until(PATIENCE, "an answer", async || {
            let answer = self.pinger.ping(to, Duration::from_millis(200)).await;
            Ok::<_, Error>(answer.map(drop).ok_or_else(|| "none".to_owned()))
        });
        waited.await.expect("an answer");
    }

    fn pings(&self) -> Flow {
        self.pinger.flow(net(TO).addr(), Duration::from_millis(10))
    }
}

/// Asserts that no ping was lost.
fn whole(report: &FlowReport) {
    assert!(report.sent > 0 && report.lost() == 0, "{report:?}");
}

// Promise: as bgp-daemon route_of_another_node_is_not_used_and_reported
#[test]
fn lying_node_gets_no_packet_and_a_moved_workload_loses_none() {
    let name = "lying_node_gets_no_packet_and_a_moved_workload_loses_none";
    in_ground(&[], name, async |ground| {
        let mut fabric = Fabric::new(&ground).await;
        fabric.record(HOME).await;
        fabric.has(HOME, TO, SETTLED).await;
        fabric.reaches(TO).await;

        // Another node advertises the address; its route would be preferred. It does not answer,
        // so each packet to it would be lost.
        let pings = fabric.pings();
        let links = fabric.node(OTHER).site.host.links().expect("links");
        let lie = links.add_route_of(net(TO), "cali0", ARRIVED).await;
        lie.expect("a route");
        fabric.receives(TO, OTHER, false).await;
        fabric
            .counts("the path is excluded and reported", |figures| {
                figures.excluded.values().sum::<u64>() == 1 && figures.unconfirmed == 1
            })
            .await;
        whole(&pings.stop().await);
        let gone = links.delete_route_of(net(TO), "cali0", ARRIVED).await;
        gone.expect("deleted");

        // The workload moves: it arrives there, then its record changes, then the old node forgets
        // it.
        let pings = fabric.pings();
        fabric.has(OTHER, TO, ARRIVED).await;
        fabric.receives(TO, OTHER, false).await;
        fabric.record(OTHER).await;
        fabric.receives(TO, OTHER, true).await;
        let links = fabric.node(HOME).site.host.links().expect("links");
        let gone = links.delete_route_of(net(TO), "cali0", SETTLED).await;
        gone.expect("deleted");

        // The datastore is away: accepted routes stay, a new one waits.
        fabric.store = None;
        fabric.has(OTHER, "10.65.2.10/32", ARRIVED).await;
        fabric.receives("10.65.2.10/32", OTHER, false).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        fabric.receives(TO, OTHER, true).await;
        fabric.receives("10.65.2.10/32", OTHER, false).await;
        whole(&pings.stop().await);
    });
}
