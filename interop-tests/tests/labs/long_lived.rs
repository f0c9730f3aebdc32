//! Long-lived graceful restart (RFC 9494) with other implementations. A speaker that stays away longer
//! than its restart time keeps its routes in the fabric, as the least preferred ones, until the
//! long-lived stale time has expired too.

use std::net::Ipv4Addr;

use interop_tests::Route;
use interop_tests::{Ground, Kind, PATIENCE, Setup, Site, Speaker, as_received, in_ground, table};
use ipnet::IpNet;
use netns_lab::{Error, until};

const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const V4: &[&str] = &["ipv4-unicast"];
const NET: &str = "10.65.3.1/32";
/// The restart time of every speaker, in seconds: it begins when a speaker is killed.
const RESTART_S: u16 = 2;
/// The long-lived stale time of every speaker, in seconds.
const STALE_S: u32 = 20;

fn setup() -> Setup {
    Setup::fabric()
        .restarting_within(RESTART_S)
        .stale_within(STALE_S)
}

fn reflector() -> Setup {
    let both = setup().neighbor(Site::v4(2), 64512).carrying(V4);
    both.neighbor(Site::v4(3), 64512)
        .carrying(V4)
        .reflecting(CLUSTER)
}

fn client() -> Setup {
    setup().neighbor(Site::v4(1), 64512).carrying(V4)
}

/// Returns whether a route has LLGR_STALE, as each program writes it.
fn is_llgr_stale(route: &Route) -> bool {
    let names = ["65535:6", "llgr-stale", "llgrStale"];
    names.iter().any(|name| route.communities.contains(*name))
}

/// Waits until `holder` has the route with LLGR_STALE, or without, or none.
async fn holds(holder: &Speaker, wanted: Option<bool>) {
    let net: IpNet = NET.parse().expect("a prefix");
    let wait = until(PATIENCE, "the route changes", async || {
        Ok::<_, Error>(match holder.learned().await {
            Ok(found) => match found.get(&net).map(is_llgr_stale) == wanted {
                true => Ok(()),
                false => Err(format!("{:?}\n{}", found.get(&net), holder.log_tail())),
            },
            Err(silent) => Err(silent),
        })
    });
    wait.await.expect("time-bounded");
}

/// Kills a client of `hub` and leaves it away: `holder`, another client, keeps the route for both
/// times.
async fn client_stays_away(hub: Kind, source: Kind, holder: Kind, ground: Ground) {
    let _hub = ground.speaker(hub, 1, &reflector()).await;
    let one = ground.speaker(holder, 2, &client()).await;
    let mut two = ground.speaker(source, 3, &client().announcing(NET)).await;
    let route = Route::via(Site::v4(3)).local_pref(100);
    let route = as_received(source, route.reflected(Site::v4(3), CLUSTER));
    one.holds(&table([(NET, route)])).await;
    two.kill().await.expect("killed");
    holds(&one, Some(true)).await;
    let again = match source {
        Kind::Client => client(), // Its route is still in the kernel.
        _ => client().announcing(NET),
    };
    let mut two = two.start_again(&again).await.expect("started again");
    holds(&one, Some(false)).await;
    two.kill().await.expect("killed");
    holds(&one, Some(true)).await;
    holds(&one, None).await;
}

#[test]
fn absent_client_is_stale_for_bird() {
    in_ground(&[Kind::Bird], "long-lived with Bird", async |ground| {
        client_stays_away(Kind::Reflector, Kind::Client, Kind::Bird, ground).await;
    });
}

#[test]
fn absent_client_is_stale_for_frr() {
    in_ground(&[Kind::Frr], "long-lived with Frr", async |ground| {
        client_stays_away(Kind::Reflector, Kind::Client, Kind::Frr, ground).await;
    });
}

#[test]
fn absent_client_is_stale_for_gobgp() {
    in_ground(&[Kind::Gobgp], "long-lived with Gobgp", async |ground| {
        client_stays_away(Kind::Reflector, Kind::Client, Kind::Gobgp, ground).await;
    });
}

#[test]
fn absent_gobgp_is_stale_for_a_client() {
    in_ground(&[Kind::Gobgp], "long-lived of Gobgp", async |ground| {
        client_stays_away(Kind::Reflector, Kind::Gobgp, Kind::Client, ground).await;
    });
}

#[test]
fn absent_client_of_gobgp_is_stale() {
    in_ground(&[Kind::Gobgp], "long-lived at Gobgp", async |ground| {
        client_stays_away(Kind::Gobgp, Kind::Client, Kind::Client, ground).await;
    });
}

#[test]
fn absent_bird_is_stale_for_a_client() {
    in_ground(&[Kind::Bird], "long-lived of Bird", async |ground| {
        client_stays_away(Kind::Reflector, Kind::Bird, Kind::Client, ground).await;
    });
}

#[test]
fn absent_client_of_bird_is_stale() {
    in_ground(&[Kind::Bird], "long-lived at Bird", async |ground| {
        client_stays_away(Kind::Bird, Kind::Client, Kind::Client, ground).await;
    });
}
