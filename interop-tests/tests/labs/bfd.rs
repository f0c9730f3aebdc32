//! BFD with real processes: a host that is cut off silently loses its routes long before the hold time, and
//! a killed BGP daemon ends no session of BFD.
//!
//! FRR is not tested: its bgpd uses BFD through zebra only, and runs without it here.

use std::net::Ipv4Addr;
use std::time::Duration;

use interop_tests::{Bfd, Ground, Kind, Range, Setup, Site, Speaker, in_ground};
use netns_lab::{Error, until};

const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const V4: &[&str] = &["ipv4-unicast"];

/// Much less than the hold time of 90 s and the restart time of 120 s after it, and much more than the
/// detection time of 0.9 s.
const BOUND: Duration = Duration::from_secs(45);

/// A detection time of 30 s, which no load of the machine exceeds.
const PATIENT: &str = "{ multiplier = 100 }";

/// The values of 3 x 300 ms, for each mode.
const DEFAULT: &str = "true";
const SINGLE: &str = "{ mode = \"single-hop\" }";
const MULTI: &str = "{ mode = \"multihop\" }";

/// Waits until a speaker has learned so many routes; returns the time that it took.
async fn learns(speaker: &Speaker, count: usize) -> Duration {
    let waited = until(BOUND, "routes", async || {
        Ok::<_, Error>(match speaker.learned().await {
            Ok(table) if table.len() == count => Ok(()),
            Ok(table) => Err(format!("{table:?}")),
            Err(silent) => Err(silent),
        })
    });
    let (_, time) = waited.await.unwrap_or_else(|error| panic!("{error}"));
    time
}

async fn start(kind: Kind, site: Site, setup: &Setup) -> Speaker {
    let started = Speaker::start(kind, site, setup).await;
    started.expect("a speaker that starts")
}

/// A client of the reflector on host 1.
fn client(bfd: &'static str) -> Setup {
    let setup = Setup::fabric().neighbor(Site::v4(1), 64512).carrying(V4);
    setup.monitored(bfd)
}

/// A reflector with a range on host 1, and its clients on hosts 2 and 3, all with BFD.
async fn fabric(ground: &Ground, bfd: &'static str) -> ([Speaker; 3], [Bfd; 3]) {
    let sites = [1, 2, 3].map(|number| ground.site(number));
    let [one, two, three] = sites;
    let sites = [one.await, two.await, three.await];
    let [one, two, three] = sites.map(|site| site.expect("a host"));
    let bfds = [&one, &two, &three].map(|site| Bfd::start(site).expect("started"));
    let range = Range {
        prefix: "10.0.0.0/24",
        limit: 10,
        password: None,
    };
    let reflector = Setup::fabric()
        .range(range)
        .reflecting(CLUSTER)
        .monitored(bfd);
    let own = ["10.65.2.0/26", "10.65.3.0/26"].map(|net| client(bfd).announcing(net));
    let one = start(Kind::Reflector, one, &reflector).await;
    let two = start(Kind::Client, two, &own[0]).await;
    let three = start(Kind::Client, three, &own[1]).await;
    let speakers = [one, two, three];
    bfds[0].has_up(2).await;
    learns(&speakers[0], 2).await;
    learns(&speakers[2], 1).await;
    (speakers, bfds)
}

// Promise: as bgp-speaker failed_path_of_a_client_removes_its_routes_at_once
#[test]
fn host_that_is_cut_off_silently_loses_its_routes() {
    in_ground(&[], "bfd-cut", async |ground| {
        let ([reflector, _two, three], _bfds) = fabric(&ground, DEFAULT).await;
        ground.cut(2).await.expect("cut");
        let time = learns(&three, 0).await;
        println!("routes of the host removed after {time:?}");
        learns(&reflector, 1).await;
    });
}

// Promise: as bfd-daemon sessions_continue_without_their_client
#[test]
fn killed_bgp_daemon_is_no_failure_of_bfd() {
    in_ground(&[], "bfd-kill", async |ground| {
        let ([reflector, mut two, three], bfds) = fabric(&ground, PATIENT).await;
        two.kill().await.expect("killed");
        let two = two.start_again(&client(PATIENT)).await.expect("started");
        two.is_up().await;
        learns(&reflector, 2).await;
        learns(&three, 1).await;
        for bfd in &bfds[..2] {
            for session in bfd.sessions().await.expect("an answer") {
                assert_eq!(
                    (session.state.as_str(), session.downs),
                    ("Up", 0),
                    "{session:?}"
                );
            }
        }
    });
}

/// BIRD on host 2 has a session over each IP version with a client on host 1, which cuts it off.
async fn with_bird(ground: &Ground, bfd: &'static str, is_single: bool) {
    let one = ground.site(1).await.expect("a host");
    let two = ground.site(2).await.expect("a host");
    let process = Bfd::start(&one).expect("started");
    let setup = |number: u8| {
        let mut setup = Setup::fabric().neighbor_apart(number, 64512).monitored(bfd);
        for neighbor in &mut setup.neighbors {
            neighbor.ttl_security = is_single;
        }
        setup
    };
    let own = setup(1)
        .announcing("10.65.2.0/26")
        .announcing("fd65:2::/64");
    let one = start(Kind::Client, one, &setup(2)).await;
    let _bird = start(Kind::Bird, two, &own).await;
    learns(&one, 2).await;
    let sessions = process.has_up(2).await;
    let hops = if is_single { "single" } else { "multi" };
    assert!(
        sessions.iter().all(|session| session.hops == hops),
        "{sessions:?}"
    );
    ground.cut(2).await.expect("cut");
    let time = learns(&one, 0).await;
    println!("routes of BIRD removed after {time:?}");
}

#[test]
fn bird_over_a_single_hop_is_monitored() {
    in_ground(&[Kind::Bird], "bfd-single", async |ground| {
        with_bird(&ground, SINGLE, true).await;
    });
}

#[test]
fn bird_over_several_hops_is_monitored() {
    in_ground(&[Kind::Bird], "bfd-multi", async |ground| {
        with_bird(&ground, MULTI, false).await;
    });
}
