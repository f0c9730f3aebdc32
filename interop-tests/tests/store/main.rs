//! Daemons with their whole configuration in the datastore, in Calico's data model.

mod forged;
mod live;
mod moving;
mod origins;
mod tunnel;

use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use daemon_common::report::Status;
use interop_tests::{
    Ground, Kind, Own, Route, Setup, Site, Speaker, Store, Table, in_ground, shown_external, table,
};
use ipnet::IpNet;

/// LOCAL_PREF of routes with the default metric: the greatest metric minus 1024.
const NORMAL: u32 = 2_147_482_623;

/// The limit for slow steps.
const PATIENCE: Duration = Duration::from_secs(30);

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

/// Returns the names of a daemon's neighbors.
async fn names(speaker: &Speaker) -> Vec<String> {
    let neighbors = speaker.neighbors().await.neighbors.into_iter();
    neighbors.map(|neighbor| neighbor.name).collect()
}

/// Starts a daemon whose node is in the datastore, and waits until it runs.
async fn begun(ground: &Ground, kind: Kind, number: u8) -> Speaker {
    let speaker = ground.stored(kind, number).await;
    let listens = |status: &Status| status.facts.iter().any(|fact| fact.name == "listening");
    speaker.reports("that it has begun", listens).await;
    speaker
}

/// Waits until a daemon has exactly these neighbors; returns how long that took.
async fn neighbors_are(speaker: &Speaker, expected: &[&str]) -> Duration {
    let waited = netns_lab::until(PATIENCE, "its neighbors", async || {
        let names = names(speaker).await;
        let are = names == expected;
        Ok::<_, netns_lab::Error>(are.then_some(()).ok_or_else(|| format!("{names:?}")))
    });
    match waited.await {
        Ok(((), took)) => took,
        Err(error) => panic!("{error}\n{}", speaker.log_tail()),
    }
}

/// Adds and deletes nodes beside one that stays.
async fn come_and_go(store: &Store, one: &Speaker) {
    for number in 4..7 {
        let [v4, v6] = [
            format!("Mesh_10_0_0_{number}"),
            format!("Mesh_fd00__{number}"),
        ];
        store.node(number, "").await;
        let all = ["Mesh_10_0_0_2", &v4, "Mesh_fd00__2", &v6];
        let came = neighbors_are(one, &all).await;
        store.delete("nodes", &format!("h{number}")).await;
        let went = neighbors_are(one, &["Mesh_10_0_0_2", "Mesh_fd00__2"]).await;
        println!("a node was there after {came:?}, and gone after {went:?}");
    }
}

#[test]
fn nodes_in_the_store_are_a_mesh() {
    in_ground(&[], "nodes_in_the_store_are_a_mesh", async |ground| {
        let store = ground.store().await.expect("a store");
        let one = ground.stored(Kind::Client, 1).await;
        // It reports why it does not start, and changes nothing.
        let missing = "nodes/h1: this node is not in the store";
        let reports = |wanted: &'static str| {
            move |status: &Status| status.notes.iter().any(|note| note.contains(wanted))
        };
        one.reports("that its node is missing", reports(missing))
            .await;
        store.node(1, "").await;
        store.node(2, "").await;
        one.reports("that it has begun", |status| {
            status.waiting_for != ["the Node of this host in the store"]
        })
        .await;
        let two = begun(&ground, Kind::Client, 2).await;
        neighbors_are(&one, &["Mesh_10_0_0_2", "Mesh_fd00__2"]).await;
        neighbors_are(&two, &["Mesh_10_0_0_1", "Mesh_fd00__1"]).await;
        one.is_up().await;
        let own = |prefix| Own::plain(net(prefix));
        one.announce(&own("10.65.0.1/32")).await.expect("announced");
        one.announce(&own("fd65::1/128")).await.expect("announced");
        let of_one = |text, next_hop| (text, Route::via(next_hop).local_pref(NORMAL));
        let both = table([
            of_one("10.65.0.1/32", Site::v4(1).into()),
            of_one("fd65::1/128", std::net::IpAddr::V6(Site::v6(1))),
        ]);
        two.holds(&both).await;

        // Nodes are added and deleted, and no other session is reset.
        come_and_go(&store, &one).await;
        one.stood(|_| true).await;
        store.node(3, "").await;
        let all = [
            "Mesh_10_0_0_2",
            "Mesh_10_0_0_3",
            "Mesh_fd00__2",
            "Mesh_fd00__3",
        ];
        neighbors_are(&one, &all).await;
        let three = begun(&ground, Kind::Client, 3).await;
        three.is_up().await;
        three.holds(&both).await;

        // An invalid value is reported, and the last valid one stays in effect.
        store
            .put("nodes", "h3", r#"{"spec":{"bgp":{"asNumber":[]}}}"#)
            .await;
        one.reports("a bad value", reports("nodes/h3: spec.bgp.asNumber: "))
            .await;
        one.stood(|_| true).await;

        // The node is deleted.
        store.delete("nodes", "h3").await;
        neighbors_are(&one, &["Mesh_10_0_0_2", "Mesh_fd00__2"]).await;
        neighbors_are(&two, &["Mesh_10_0_0_1", "Mesh_fd00__1"]).await;
        one.stood(|_| true).await;
        two.stood(|_| true).await;

        // Without a datastore everything continues.
        drop(store);
        two.announce(&own("10.65.0.2/32")).await.expect("announced");
        one.holds(&table([(
            "10.65.0.2/32",
            Route::via(Site::v4(2)).local_pref(NORMAL),
        )]))
        .await;
    });
}

/// Waits until the kernel of a host drops packets to unassigned addresses of a block, or no longer
/// does. Neighbors may receive the route earlier.
async fn drops(speaker: &Speaker, block: &str, wanted: bool) {
    let address = Ipv4Addr::from_str(block).expect("an address");
    let address = u32::from_le_bytes(address.octets());
    let line = format!("*\t{address:08X}\t");
    let read = || std::fs::read_to_string("/proc/thread-self/net/route");
    let what = format!("{block} is dropped: {wanted}");
    let waited = netns_lab::until(PATIENCE, &what, async || {
        let routes = speaker.site.host.run(read)?.expect("a table");
        let dropped = routes.lines().any(|route| route.starts_with(&line));
        Ok::<_, netns_lab::Error>((dropped == wanted).then_some(()).ok_or(routes))
    });
    waited.await.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn peering_with_password_advertises_blocks() {
    let name = "peering_with_password_advertises_blocks";
    in_ground(&[Kind::Bird], name, async |ground| {
        let store = ground.store().await.expect("a store");
        store.node(1, "").await;
        store.block(1, "10.65.1.0/26").await;
        let off = r#"{"metadata":{"name":"default"},"spec":{"nodeToNodeMeshEnabled":false}}"#;
        store.put("bgpconfigurations", "default", off).await;
        let peering = r#"{"spec":{"node":"h1","peerIP":"10.0.0.2","asNumber":64700,
            "password":{"secretKeyRef":{"name":"tor","key":"word"}}}}"#;
        store.put("bgppeers", "tor", peering).await;
        let us = begun(&ground, Kind::Client, 1).await;
        let tor = Setup::of(64700).neighbor(Site::v4(1), 64512);
        let tor = tor.carrying(&["ipv4-unicast"]).password("hush");

        // Without the password there is no session, and never one without a password.
        let reports = |status: &Status| {
            let missing = "spec.password: the secret tor/word is not there";
            status.notes.iter().any(|note| note.contains(missing))
        };
        us.reports("that the password is missing", reports).await;
        assert!(us.neighbors().await.neighbors.is_empty());
        std::fs::create_dir(us.site.host.directory().join("tor")).expect("made");
        us.site.save("tor/word", "hush\n");
        let tor = ground.speaker(Kind::Bird, 2, &tor).await;
        neighbors_are(&us, &["Node_10_0_0_2"]).await;
        us.is_up().await;

        // The block, for which the kernel has a blackhole route, is announced, but not the
        // addresses in it; addresses of others' blocks are announced individually.
        for own in ["10.65.1.5/32", "10.65.9.9/32", "192.0.2.1/32"] {
            us.announce(&Own::plain(net(own))).await.expect("announced");
        }
        let route = || shown_external(Kind::Bird, Route::via(Site::v4(1)).path("64512"));
        let borrowed = ("10.65.9.9/32", route());
        tor.holds(&table([("10.65.1.0/26", route()), borrowed.clone()]))
            .await;
        drops(&us, "10.65.1.0", true).await;

        // Pools that are not exported are withdrawn, and announced again, over the same session.
        let kept = r#"{"spec":{"cidr":"10.65.0.0/16","disableBGPExport":true}}"#;
        store.put("ippools", "pool-v4", kept).await;
        tor.holds(&Table::new()).await;
        store
            .put("ippools", "pool-v4", r#"{"spec":{"cidr":"10.65.0.0/16"}}"#)
            .await;
        tor.holds(&table([("10.65.1.0/26", route()), borrowed.clone()]))
            .await;

        // A filter is added, and deleted.
        let filter = r#"{"spec":{"exportV4":[{"cidr":"10.65.9.0/24","matchOperator":"In","action":"Reject"}]}}"#;
        store.put("bgpfilters", "less", filter).await;
        let filtered = peering.replace(r#""asNumber""#, r#""filters":["less"],"asNumber""#);
        store.put("bgppeers", "tor", &filtered).await;
        tor.holds(&table([("10.65.1.0/26", route())])).await;
        store.put("bgppeers", "tor", peering).await;

        // The block is reassigned to another host: addresses in it are announced individually then.
        let key = "/calico/ipam/v2/host/h1/ipv4/block/10.65.1.0-26";
        store.write(key, r#"{"state":"pending"}"#).await;
        tor.holds(&table([("10.65.1.5/32", route()), borrowed]))
            .await;
        drops(&us, "10.65.1.0", false).await;
        us.stood(|_| true).await;
    });
}
