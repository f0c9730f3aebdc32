//! Daemons whose whole configuration is in the store, in Calico's data model.

use std::time::{Duration, Instant};

use admin::report::Status;
use interop_tests::{Ground, Kind, Own, Route, Site, Speaker, in_ground, table};
use ipnet::IpNet;

/// LOCAL_PREF of routes that nobody has given another: what is left of the greatest metric, 1024 off.
const NORMAL: u32 = 2_147_482_623;

/// From a write to the store until the daemon does as it says.
const LIVE: Duration = Duration::from_millis(100);

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

/// The names of a daemon's neighbours.
async fn names(speaker: &Speaker) -> Vec<String> {
    let neighbors = speaker.neighbors().await.neighbors.into_iter();
    neighbors.map(|neighbor| neighbor.name).collect()
}

/// Starts a daemon whose node is in the store, and waits until it has begun.
async fn begun(ground: &Ground, kind: Kind, number: u8) -> Speaker {
    let speaker = ground.stored(kind, number).await;
    let listens = |status: &Status| status.facts.iter().any(|fact| fact.name == "listening");
    speaker.reports("that it has begun", listens).await;
    speaker
}

/// Waits until a daemon's neighbours are these; returns how long that took.
async fn neighbors_are(speaker: &Speaker, expected: &[&str]) -> Duration {
    let begun = Instant::now();
    while names(speaker).await != expected {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{:?}\n{}",
            names(speaker).await,
            speaker.log_tail()
        );
        tokio::task::yield_now().await;
    }
    begun.elapsed()
}

#[test]
fn nodes_in_the_store_are_a_mesh() {
    in_ground(&[], "nodes_in_the_store_are_a_mesh", async |ground| {
        let store = ground.store().await.expect("a store");
        let one = ground.stored(Kind::Client, 1).await;
        // It says why it does not begin, and touches nothing.
        let missing = "nodes/h1: this node is not in the store";
        let told = |wanted: &'static str| {
            move |status: &Status| status.notes.iter().any(|note| note.contains(wanted))
        };
        one.reports("that its node is missing", told(missing)).await;
        store.node(1, "").await;
        store.node(2, "").await;
        one.reports("that it has begun", |status| {
            status.waiting_for != ["the store to say what this node is"]
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

        // A node comes: its neighbours are there at once, and nobody else's session ends.
        store.node(3, "").await;
        let all = [
            "Mesh_10_0_0_2",
            "Mesh_10_0_0_3",
            "Mesh_fd00__2",
            "Mesh_fd00__3",
        ];
        let took = neighbors_are(&one, &all).await;
        assert!(took < LIVE, "{took:?}");
        let three = begun(&ground, Kind::Client, 3).await;
        three.is_up().await;
        three.holds(&both).await;

        // A value that nobody can read is told, and the last good one stays.
        store
            .put("nodes", "h3", r#"{"spec":{"bgp":{"asNumber":[]}}}"#)
            .await;
        one.reports("a bad value", told("nodes/h3: spec.bgp.asNumber: "))
            .await;
        one.stood(|_| true).await;

        // It goes.
        store.delete("nodes", "h3").await;
        let took = neighbors_are(&one, &["Mesh_10_0_0_2", "Mesh_fd00__2"]).await;
        assert!(took < LIVE, "{took:?}");
        one.stood(|_| true).await;
        two.stood(|_| true).await;

        // Without a store everything goes on.
        drop(store);
        two.announce(&own("10.65.0.2/32")).await.expect("announced");
        one.holds(&table([(
            "10.65.0.2/32",
            Route::via(Site::v4(2)).local_pref(NORMAL),
        )]))
        .await;
    });
}
