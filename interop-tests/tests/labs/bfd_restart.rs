//! The BGP daemon, `cambric-bfd`, or both processes of a host are killed and upgraded again and again while
//! packets flow to and from its neighbors: none is lost, and no neighbor has a failure of BFD.
//!
//! The neighbors count the failures: the counters of a process end with it.

use std::collections::BTreeMap;
use std::time::Duration;

use interop_tests::{Bfd, FrrBfd, Ground, Kind, PATIENCE, Setup, Speaker, in_ground};
use netns_lab::{Error, until};
use nix::sys::signal::Signal;

use crate::bfd::{SINGLE, SINGLE_PATIENT, learns, one_hop};
use crate::bfd_frr::FRR_AS;
use crate::workloads::{Flows, announcing, site};

/// Kills and upgrades, by turns: of a short run with a detection time of 30 s, and of a long run with
/// 3 x 300 ms.
const SHORT: (u32, &str) = (4, SINGLE_PATIENT);
const LONG: (u32, &str) = (200, SINGLE);

/// A detection time of 150 ms: a busy machine may need more for a restart.
const SINGLE_SHORT: &str = "{ mode = \"single-hop\", interval_ms = 50 }";
/// How long the neighbors may take to have a session again, before the next kill.
const AGAIN: Duration = Duration::from_secs(2);

/// How long the neighbors retain the routes, in seconds.
const RESTART_S: u16 = 120;

/// The neighbors of host 1: BIRD, FRR and Cambric.
const NEIGHBORS: [u8; 3] = [2, 3, 4];
/// Their sessions, and the routes that host 1 learns: one for each IP version.
const SESSIONS: usize = 2 * NEIGHBORS.len();

/// BIRD computes these times for each answer, from two clocks, so that they differ by a millisecond. A session
/// that has failed is up again at least its detection time later, which is 0.9 s or more where it is asserted.
const SINCE_ERROR: i64 = 500;

/// Since when the sessions of BIRD with BFD are up, in milliseconds of the day, by their neighbors.
#[derive(Debug)]
struct UpSince(BTreeMap<String, i64>);

impl UpSince {
    /// Returns how many of the sessions are not up any more, or again.
    fn failed(&self, later: &Self) -> usize {
        let stays = |(neighbor, since): &(&String, &i64)| {
            let later = later.0.get(*neighbor);
            later.is_some_and(|later| (later - *since).abs() < SINCE_ERROR)
        };
        self.0.len() - self.0.iter().filter(stays).count()
    }
}

/// Returns since when the sessions of BIRD with BFD are up.
async fn up_since(bird: &Speaker) -> UpSince {
    let shown = bird.command("show bfd sessions").await.expect("an answer");
    let rows = shown.lines().map(|line| line.split_whitespace().collect());
    let rows = rows.filter(|row: &Vec<&str>| row.get(2) == Some(&"Up"));
    let since = rows.map(|row| (row[0].to_owned(), milliseconds(row[3])));
    UpSince(since.collect())
}

/// Reads a time of BIRD, `11:52:56.420`.
fn milliseconds(time: &str) -> i64 {
    let digits = time.split([':', '.']);
    let [hours, minutes, seconds, rest] = digits
        .map(|part| part.parse::<i64>().expect("digits"))
        .collect::<Vec<_>>()
        .try_into()
        .unwrap_or_else(|_| panic!("{time} is no time of BIRD"));
    ((hours * 60 + minutes) * 60 + seconds) * 1000 + rest
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

    /// Waits until the sessions of BFD with host 1 are up.
    async fn are_up(&self) {
        self.bfdd.has_up(2).await;
        self.bfd.has_up(2).await;
        let up = until(PATIENCE, "sessions of BIRD", async || {
            let up = up_since(&self.bird).await;
            Ok::<_, Error>(match up.0.len() {
                2 => Ok(()),
                _ => Err(format!("{up:?}")),
            })
        });
        up.await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Returns how often the sessions of FRR and of Cambric went down.
    async fn downs(&self) -> [u64; 2] {
        let own = self.bfd.sessions().await.expect("an answer");
        let own = own.iter().map(|session| session.downs).sum();
        [self.bfdd.downs().await, own]
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

/// The processes of host 1 that end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Bgp,
    Bfd,
    Both,
}

/// Host 1: its BGP daemon, and `cambric-bfd` with a keeper.
struct One {
    speaker: Speaker,
    bfd: Bfd,
    setup: Setup,
}

impl One {
    async fn start(ground: &Ground, bfd: &'static str) -> Self {
        let site = site(ground, 1).await;
        let process = Bfd::start_kept(&site).expect("started");
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
        let speaker = Speaker::start(Kind::Client, site, &setup).await;
        let speaker = speaker.expect("started");
        // From now on the routes are in the kernel.
        setup.own.clear();
        Self {
            speaker,
            bfd: process,
            setup,
        }
    }

    /// Waits until all sessions of both processes are up, and all routes are learned.
    async fn is_up(&self) {
        self.speaker.is_up().await;
        learns(&self.speaker, SESSIONS).await;
        self.bfd.has_up(SESSIONS).await;
    }

    /// Ends processes by SIGKILL, or by SIGTERM as an upgrade does, and has others take their places.
    async fn restarts(mut self, ends: Ends, signal: Signal) -> Self {
        let former = match ends {
            Ends::Bgp => None,
            Ends::Bfd | Ends::Both => Some(self.bfd.signal(signal).await),
        };
        if ends != Ends::Bfd {
            match signal {
                Signal::SIGKILL => self.speaker.kill().await.expect("killed"),
                _ => self.speaker.stop().await.expect("stopped"),
            }
        }
        if let Some(former) = former {
            self.bfd.is_another(former).await;
        }
        if ends != Ends::Bfd {
            let again = self.speaker.start_again(&self.setup).await;
            self.speaker = again.expect("started again");
        }
        self
    }
}

fn is_long() -> bool {
    std::env::var_os("CAMBRIC_SOAK").is_some()
}

/// Runs a lab with host 1 and its neighbors, where all of them are installed.
fn with_neighbors(name: &str, bfd: &'static str, test: impl AsyncFnOnce(One, Neighbors)) {
    if !FrrBfd::is_installed() {
        return;
    }
    in_ground(&[Kind::Bird, Kind::Frr], name, async |ground| {
        let one = One::start(&ground, bfd).await;
        let others = Neighbors::start(&ground, bfd).await;
        one.is_up().await;
        others.are_fresh().await;
        others.are_up().await;
        test(one, others).await;
    });
}

/// Ends processes of host 1 by turns with SIGKILL and SIGTERM, under pings to its neighbors.
fn loses_nothing(name: &str, ends: Ends) {
    let (rounds, bfd) = if is_long() { LONG } else { SHORT };
    with_neighbors(name, bfd, async |mut one, others| {
        let (since, downs) = (up_since(&others.bird).await, others.downs().await);
        let flows = Flows::start(&one.speaker.site.host, 1, &NEIGHBORS).await;
        for round in 0..rounds {
            let signal = match round % 2 {
                0 => Signal::SIGKILL,
                _ => Signal::SIGTERM,
            };
            one = one.restarts(ends, signal).await;
            one.is_up().await;
            others.are_fresh().await;
            others.are_up().await;
            let later = up_since(&others.bird).await;
            assert_eq!(since.failed(&later), 0, "{round}: {since:?} {later:?}");
            assert_eq!(others.downs().await, downs, "round {round}");
        }
        if ends == Ends::Bfd {
            one.speaker.stood(|_| true).await;
        }
        println!("{rounds} rounds of {ends:?}");
        flows.lose_nothing(&one.speaker.log_tail()).await;
    });
}

// Promise (BGP): A BGP daemon that is killed or upgraded loses no packet, and BFD does not fail at its
// neighbors.
#[test]
fn killed_and_upgraded_bgp_daemon_loses_no_packet() {
    loses_nothing("bfd-restart", Ends::Bgp);
}

// Promise: as bfd-daemon killed_process_is_not_noticed_by_the_neighbor
/// With `CAMBRIC_SOAK`, another run counts the failures at 3 x 50 ms, where they are allowed.
#[test]
fn killed_and_upgraded_cambric_bfd_loses_no_packet() {
    loses_nothing("bfd-kept", Ends::Bfd);
    if is_long() {
        failures_at_150_ms();
    }
}

#[test]
fn both_daemons_killed_and_upgraded_lose_no_packet() {
    loses_nothing("bfd-both", Ends::Both);
}

/// Prints how often sessions of the neighbors fail with the shortest detection time.
fn failures_at_150_ms() {
    with_neighbors("bfd-short", SINGLE_SHORT, async |mut one, others| {
        let (rounds, _) = LONG;
        let before = others.downs().await;
        let (mut by_kill, mut by_upgrade) = (0, 0);
        for round in 0..rounds {
            let (signal, failed) = match round % 2 {
                0 => (Signal::SIGKILL, &mut by_kill),
                _ => (Signal::SIGTERM, &mut by_upgrade),
            };
            let since = up_since(&others.bird).await;
            one = one.restarts(Ends::Bfd, signal).await;
            tokio::time::sleep(AGAIN).await;
            *failed += since.failed(&up_since(&others.bird).await);
        }
        let [frr, cambric] = others.downs().await;
        println!(
            "3 x 50 ms, {rounds} rounds: BIRD's failures {by_kill} by kills and {by_upgrade} by upgrades; \
             FRR {}, Cambric {}",
            frr - before[0],
            cambric - before[1]
        );
    });
}
