//! Long-lived graceful restart (RFC 9494) with other implementations. A speaker that stays away longer
//! than its restart time keeps its routes in the fabric, as the least preferred ones, until the
//! long-lived stale time has expired too. Each IP version has its own session.

use std::net::Ipv4Addr;

use interop_tests::Route;
use interop_tests::{Ground, Kind, PATIENCE, Setup, Site, Speaker, as_received, in_ground, table};
use ipnet::IpNet;
use netns_lab::{Error, until};

const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
/// The routes of host 3.
const NETS: [&str; 2] = ["10.65.3.1/32", "fd65:3::1/128"];
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
    let both = setup().neighbor_apart(2, 64512).neighbor_apart(3, 64512);
    both.reflecting(CLUSTER)
}

fn client() -> Setup {
    setup().neighbor_apart(1, 64512)
}

fn announcing() -> Setup {
    NETS.into_iter().fold(client(), Setup::announcing)
}

/// Returns whether a route has LLGR_STALE, as each program writes it.
fn is_llgr_stale(route: &Route) -> bool {
    let names = ["65535:6", "llgr-stale", "llgrStale"];
    names.iter().any(|name| route.communities.contains(*name))
}

/// Waits until `holder` has both routes with LLGR_STALE, or without, or none.
async fn holds(holder: &Speaker, wanted: Option<bool>) {
    let nets = NETS.map(|net| net.parse::<IpNet>().expect("a prefix"));
    let wait = until(PATIENCE, "the routes change", async || {
        Ok::<_, Error>(match holder.learned().await {
            Ok(found) => {
                let is_so = |net: &IpNet| found.get(net).map(is_llgr_stale) == wanted;
                match nets.iter().all(is_so) {
                    true => Ok(()),
                    false => Err(format!("{found:?}\n{}", holder.log_tail())),
                }
            }
            Err(silent) => Err(silent),
        })
    });
    wait.await.expect("time-bounded");
}

/// Kills a client of `hub` and leaves it away: `holder`, another client, keeps the routes for both
/// times.
async fn client_stays_away(hub: Kind, source: Kind, holder: Kind, ground: Ground) {
    let _hub = ground.speaker(hub, 1, &reflector()).await;
    let one = ground.speaker(holder, 2, &client()).await;
    let mut two = ground.speaker(source, 3, &announcing()).await;
    let routes = [Route::via(Site::v4(3)), Route::via(Site::v6(3))].map(|route| {
        let route = route.local_pref(100).reflected(Site::v4(3), CLUSTER);
        as_received(hub, as_received(source, route))
    });
    one.holds(&table(NETS.into_iter().zip(routes))).await;
    two.kill().await.expect("killed");
    holds(&one, Some(true)).await;
    let again = match source {
        Kind::Client => client(), // Its routes are still in the kernel.
        _ => announcing(),
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

#[test]
fn absent_frr_is_stale_for_a_client() {
    in_ground(&[Kind::Frr], "long-lived of Frr", async |ground| {
        client_stays_away(Kind::Reflector, Kind::Frr, Kind::Client, ground).await;
    });
}

#[test]
fn absent_client_of_frr_is_stale() {
    in_ground(&[Kind::Frr], "long-lived at Frr", async |ground| {
        client_stays_away(Kind::Frr, Kind::Client, Kind::Client, ground).await;
    });
}
