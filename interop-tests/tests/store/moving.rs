//! A workload moves from one node to another: the route with the better metric is preferred
//! everywhere, on nodes of Cambric and on one with the filters of Calico 3.32 for BIRD.

use std::collections::BTreeSet;
use std::net::IpAddr;

use interop_tests::{Ground, Kind, Route, Setup, Site, Speaker, Store, in_ground};
use netns_lab::{Error, KernelRoute, RouteEventKind, RouteMonitor, until};
use tokio::time::Instant;

use super::{NORMAL, PATIENCE, begun, net};

/// Metrics of a workload's route on its settled node, and on the node where it has just arrived.
const SETTLED: u32 = 1024;
const ARRIVED: u32 = 512;
/// The metric that Cambric's Felix sets.
const OURS: u32 = 256;

/// BIRD derives kernel metrics and LOCAL_PREF from each other.
const CALICO: &str = "protocol direct { ipv4 { import filter { \
     bgp_community.add((65535, 65282)); accept; }; }; interface \"eth*\"; }\n\
     protocol kernel {\n learn; scan time 1; metric 0;\n ipv4 {\n import filter { \
     bgp_local_pref = 2147483647 - krt_metric; accept; };\n export filter { \
     if source != RTS_BGP then reject; krt_metric = 2147483647 - bgp_local_pref; accept; };\n \
     };\n}\n";

/// Returns the routes of a host to one address: by metric, `None` for a workload interface or the
/// gateway.
async fn ways(speaker: &Speaker, to: &str) -> Vec<(u32, Option<IpAddr>)> {
    let links = speaker.site.host.links().expect("links");
    let routes = links.routes().await.expect("routes").into_iter();
    let routes = routes.filter(|route| route.net == net(to));
    let gateway = |route: &KernelRoute| route.hops.first().and_then(|hop| hop.gateway);
    let mut ways: Vec<_> = routes.map(|r| (r.metric, gateway(&r))).collect();
    ways.sort_unstable();
    ways
}

async fn goes(speaker: &Speaker, to: &str, wanted: &[(u32, Option<u8>)]) {
    let via = |host: Option<u8>| host.map(|number| IpAddr::V4(Site::v4(number)));
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(metric, host)| (*metric, via(*host)))
        .collect();
    let what = format!("{to} on host {}", speaker.site.number);
    let waited = until(PATIENCE, &what, async || {
        let found = ways(speaker, to).await;
        let so = found == wanted;
        Ok::<_, Error>(
            so.then_some(())
                .ok_or_else(|| format!("{found:?}, not {wanted:?}")),
        )
    });
    if let Err(error) = waited.await {
        panic!("{error}\n{}", speaker.log_tail());
    }
}

async fn has(speaker: &Speaker, to: &str, metric: u32) {
    let links = speaker.site.host.links().expect("links");
    let added = links.add_route_of(net(to), "cali0", metric);
    added.await.expect("added");
}

async fn has_no_more(speaker: &Speaker, to: &str, metric: u32) {
    let links = speaker.site.host.links().expect("links");
    let deleted = links.delete_route_of(net(to), "cali0", metric);
    deleted.await.expect("deleted");
}

/// Waits until a speaker has learned this route to an address.
async fn receives(speaker: &Speaker, to: &str, wanted: Option<(u8, u32)>) {
    let route = wanted.map(|(from, degree)| Route::via(Site::v4(from)).local_pref(degree));
    let waited = until(PATIENCE, to, async || {
        let table = speaker.learned().await;
        let found = table.map(|table| table.get(&net(to)).cloned());
        let so = found.as_ref() == Ok(&route);
        Ok::<_, Error>(
            so.then_some(())
                .ok_or_else(|| format!("{found:?}, not {route:?}")),
        )
    });
    if let Err(error) = waited.await {
        panic!("{error}\n{}", speaker.log_tail());
    }
}

/// Starts nodes 1 and 2 with Cambric, and node 3 with BIRD; the addresses under test are in a block
/// of node 1.
async fn fabric(ground: &Ground) -> (Store, [Speaker; 3]) {
    let store = ground.store().await.expect("a store");
    for number in 1..=3 {
        store.node(number, "").await;
    }
    store.block(1, "10.65.1.0/26").await;
    let one = begun(ground, Kind::Client, 1).await;
    let two = begun(ground, Kind::Client, 2).await;
    let mut setup = Setup::fabric();
    for number in [1, 2] {
        setup = setup.neighbor(Site::v4(number), 64512);
        setup = setup.carrying(&["ipv4-unicast"]);
    }
    setup.extra = CALICO.to_owned();
    let three = ground.speaker(Kind::Bird, 3, &setup).await;
    receives(&three, "10.65.1.0/26", Some((1, NORMAL))).await;
    (store, [one, two, three])
}

/// Asserts that a host that had a route of this metric to the address has had one without
/// interruption since.
fn was_never_missed(monitor: &RouteMonitor, since: Instant, to: &str, metric: u32) {
    let (events, missed) = monitor.events_since(since);
    assert!(!missed);
    let mut there = BTreeSet::from([metric]);
    for event in &events {
        match &event.kind {
            RouteEventKind::Put(route) if route.net == net(to) => {
                there.insert(route.metric);
            }
            RouteEventKind::Gone(route) if route.net == net(to) => {
                there.remove(&route.metric);
            }
            _ => {}
        }
        assert!(!there.is_empty(), "{events:?}");
    }
    assert!(
        !there.contains(&metric),
        "it has another one now: {events:?}"
    );
}

// Promise (Kernel routes): A workload that moves is preferred on its new node, also by BIRD.
#[test]
fn a_workload_that_moves_is_preferred_where_it_arrives() {
    let name = "a_workload_that_moves_is_preferred_where_it_arrives";
    in_ground(&[Kind::Bird], name, async |ground| {
        let (_store, [one, two, three]) = fabric(&ground).await;
        let moves = "10.65.1.5/32";
        has(&one, moves, SETTLED).await;
        // It arrives at the new node while the old one still has it.
        has(&two, moves, ARRIVED).await;
        receives(&three, moves, Some((2, NORMAL + ARRIVED))).await;
        goes(&three, moves, &[(ARRIVED, Some(2))]).await;
        goes(&one, moves, &[(ARRIVED, Some(2)), (SETTLED, None)]).await;
        goes(&two, moves, &[(ARRIVED, None)]).await;
        // It is settled there: the same route, at another metric, without an interruption.
        has_no_more(&one, moves, SETTLED).await;
        goes(&one, moves, &[(ARRIVED, Some(2))]).await;
        let monitor = RouteMonitor::open(&one.site.host).expect("a monitor");
        let since = Instant::now();
        has(&two, moves, SETTLED).await;
        has_no_more(&two, moves, ARRIVED).await;
        // BIRD 2 keeps the route with the former metric.
        receives(&three, moves, Some((2, NORMAL))).await;
        goes(&one, moves, &[(SETTLED, Some(2))]).await;
        was_never_missed(&monitor, since, moves, ARRIVED);
        has_no_more(&two, moves, SETTLED).await;
        receives(&three, moves, None).await;
        goes(&one, moves, &[]).await;
        // It returns to the node of its block: as long as it has just arrived, it is announced
        // beside the block.
        has(&one, moves, ARRIVED).await;
        receives(&three, moves, Some((1, NORMAL + ARRIVED))).await;
        goes(&two, moves, &[(ARRIVED, Some(1))]).await;
        has(&one, moves, SETTLED).await;
        has_no_more(&one, moves, ARRIVED).await;
        receives(&three, moves, None).await;
        goes(&two, moves, &[]).await;
    });
}

#[test]
fn workload_moved_to_bird_is_preferred_to_its_old_route() {
    let name = "workload_moved_to_bird_is_preferred_to_its_old_route";
    in_ground(&[Kind::Bird], name, async |ground| {
        let (_store, [one, two, three]) = fabric(&ground).await;
        let moves = "10.65.1.6/32";
        // The node that it leaves runs Cambric's Felix.
        has(&one, moves, OURS).await;
        has(&three, moves, ARRIVED).await;
        receives(&two, moves, Some((3, NORMAL + ARRIVED))).await;
        goes(&two, moves, &[(ARRIVED, Some(3))]).await;
        goes(&one, moves, &[(OURS - 1, Some(3)), (OURS, None)]).await;
        has_no_more(&one, moves, OURS).await;
        goes(&one, moves, &[(ARRIVED, Some(3))]).await;
        has(&three, moves, SETTLED).await;
        has_no_more(&three, moves, ARRIVED).await;
        for node in [&one, &two] {
            goes(node, moves, &[(SETTLED, Some(3))]).await;
        }
    });
}
