//! The BGP daemon of a host is killed and upgraded again and again while packets flow to and from its
//! neighbors: none is lost, and no neighbor has a failure of BFD.

use std::net::IpAddr;
use std::time::Duration;

use interop_tests::{Bfd, FrrBfd, Ground, Kind, PATIENCE, Setup, Site, Speaker, in_ground};
use netns_lab::{Error, Flow, Pinger, until};

use crate::bfd::{SINGLE, SINGLE_PATIENT, UpSince, learns, one_hop, up_since};
use crate::bfd_frr::FRR_AS;

/// Kills and upgrades of the daemon, by turns: of a short run with a detection time of 30 s, and of a
/// long run with 3 x 300 ms.
const SHORT: (u32, &str) = (4, SINGLE_PATIENT);
const LONG: (u32, &str) = (200, SINGLE);

/// How long the neighbors retain the routes, in seconds.
const RESTART_S: u16 = 120;
const PERIOD: Duration = Duration::from_millis(20);
/// How often each flow sends before the first kill.
const FIRST: u32 = 10;

/// The neighbors of host 1: BIRD, FRR and Cambric.
const NEIGHBORS: [u8; 3] = [2, 3, 4];

/// Returns the address of a workload, and its prefix, in both IP versions.
fn workload(number: u8) -> [(IpAddr, String); 2] {
    let v4 = format!("10.65.{number}.");
    let v6 = format!("fd65:{number}::");
    [(v4, "0/26"), (v6, "/64")].map(|(begin, end)| {
        let address = format!("{begin}1").parse().expect("an address");
        (address, begin + end)
    })
}

fn announcing(setup: Setup, number: u8) -> Setup {
    let [v4, v6] = workload(number).map(|(_, prefix)| prefix);
    setup.announcing(&v4).announcing(&v6)
}

/// Puts a host on the switch; it has the addresses of its workload itself.
async fn site(ground: &Ground, number: u8) -> Site {
    let site = ground.site(number).await.expect("a host");
    let links = site.host.links().expect("links");
    for (address, _) in workload(number) {
        let added = links.add_address("lo", address.into()).await;
        added.expect("an address");
    }
    site
}

/// The neighbors, and what they have seen of BFD.
struct Neighbors {
    bird: Speaker,
    bfdd: FrrBfd,
    _frr: Speaker,
    cambric: Speaker,
    bfd: Bfd,
}

impl Neighbors {
    async fn start(ground: &Ground, bfd: &'static str) -> Self {
        let [two, three, four] = NEIGHBORS.map(|number| site(ground, number));
        let (two, three, four) = (two.await, three.await, four.await);
        let mut bird = announcing(one_hop(1, bfd), 2);
        bird.extra = ["ipv4", "ipv6"]
            .map(|family| format!("protocol kernel {{ {family} {{ export all; }}; }}\n"))
            .concat();
        let bfdd = FrrBfd::start(&three, "").await.expect("bfdd");
        let frr = Setup::of(FRR_AS).neighbor_apart(1, one_hop(1, bfd).asn);
        let frr = frr.restarting_within(RESTART_S).monitored(bfd);
        let frr = announcing(frr, 3);
        let process = Bfd::start(&four).expect("started");
        let cambric = announcing(one_hop(1, bfd), 4);
        let speaker = async |kind, site, setup: &Setup| {
            let started = Speaker::start(kind, site, setup).await;
            started.expect("a speaker")
        };
        Self {
            bird: speaker(Kind::Bird, two, &bird).await,
            _frr: speaker(Kind::Frr, three, &frr).await,
            cambric: speaker(Kind::Client, four, &cambric).await,
            bfdd,
            bfd: process,
        }
    }

    /// Waits until the sessions of BFD are up. Returns what a failure would change.
    async fn seen(&self) -> (UpSince, u64, u64) {
        self.bfdd.has_up(2).await;
        let own = self.bfd.has_up(2).await;
        let downs = own.iter().map(|session| session.downs).sum();
        (up_since(&self.bird).await, self.bfdd.downs().await, downs)
    }

    /// Waits until Cambric has received all routes of host 1 again, and End-of-RIB.
    async fn are_fresh(&self) {
        let fresh = until(PATIENCE, "End-of-RIB of both sessions", async || {
            let neighbors = self.cambric.neighbors().await.neighbors;
            let is_fresh = neighbors
                .iter()
                .all(|one| one.since_s.is_some() && one.stale_for_s.is_none());
            Ok::<_, Error>(
                is_fresh
                    .then_some(())
                    .ok_or_else(|| format!("{neighbors:?}")),
            )
        });
        fresh.await.unwrap_or_else(|error| panic!("{error}"));
        // The routes of host 1 and of the external neighbor.
        learns(&self.cambric, 4).await;
    }
}

/// Starts a flow from the workload of host 1 to each other workload.
async fn flows(pinger: &Pinger) -> Vec<Flow> {
    let mut flows = vec![];
    for (to, _) in NEIGHBORS.into_iter().flat_map(workload) {
        let answered = until(PATIENCE, "routes in both kernels", async || {
            let answer = pinger.ping(to, Duration::from_millis(500)).await;
            Ok::<_, Error>(answer.ok_or_else(|| format!("{to} does not answer")))
        });
        answered.await.unwrap_or_else(|error| panic!("{error}"));
        flows.push(pinger.flow(to, PERIOD));
    }
    flows
}

// Promise (BGP): A BGP daemon that is killed or upgraded loses no packet, and BFD does not fail at its
// neighbors.
#[test]
fn killed_and_upgraded_bgp_daemon_loses_no_packet() {
    if !FrrBfd::is_installed() {
        return;
    }
    let kinds = [Kind::Bird, Kind::Frr];
    in_ground(&kinds, "bfd-restart", async |ground| {
        let is_long = std::env::var_os("CAMBRIC_SOAK").is_some();
        let (rounds, bfd) = if is_long { LONG } else { SHORT };
        let one = site(&ground, 1).await;
        let _process = Bfd::start(&one).expect("started");
        let mut setup = Setup::fabric();
        for number in NEIGHBORS {
            let asn = if number == 3 { FRR_AS } else { setup.asn };
            setup = setup.neighbor_apart(number, asn);
        }
        let setup = setup.restarting_within(RESTART_S).monitored(bfd);
        let mut setup = announcing(setup, 1);
        for neighbor in &mut setup.neighbors {
            neighbor.ttl_security = neighbor.asn == setup.asn;
        }
        let mut one = Speaker::start(Kind::Client, one, &setup)
            .await
            .expect("started");
        let others = Neighbors::start(&ground, bfd).await;
        one.is_up().await;
        learns(&one, 6).await;
        others.are_fresh().await;
        let before = others.seen().await;

        let [(v4, _), (v6, _)] = workload(1);
        let (IpAddr::V4(v4), IpAddr::V6(v6)) = (v4, v6) else {
            panic!("an address of each IP version");
        };
        let pinger = Pinger::open(&one.site.host, v4, v6).expect("a pinger");
        let mut flows = flows(&pinger).await;
        for flow in &mut flows {
            flow.sends(FIRST).await;
        }
        // The routes are in the kernel already.
        setup.own.clear();
        for round in 0..rounds {
            match round % 2 {
                0 => one.kill().await.expect("killed"),
                _ => one.stop().await.expect("stopped"),
            }
            one = one.start_again(&setup).await.expect("started again");
            one.is_up().await;
            learns(&one, 6).await;
            others.are_fresh().await;
            assert_eq!(others.seen().await, before, "round {round}");
        }
        for flow in flows {
            let report = flow.stop().await;
            println!("{rounds} rounds: {report:?}");
            assert_eq!(report.lost(), 0, "{report:?}\n{}", one.log_tail());
        }
    });
}
