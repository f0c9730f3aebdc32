//! BFD with real processes: a host that is cut off silently loses its routes long before the hold time, and
//! a killed BGP daemon ends no session of BFD.

use std::net::Ipv4Addr;
use std::time::Duration;

use interop_tests::{Bfd, Ground, Kind, Range, Setup, Site, Speaker, in_ground};
use netns_lab::{Error, until};

use crate::workloads::{Flows, announcing, site};

const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const V4: &[&str] = &["ipv4-unicast"];

/// Much less than the hold time of 90 s and the restart time of 120 s after it, and much more than the
/// detection time of 0.9 s.
const BOUND: Duration = Duration::from_secs(45);

/// From the return of a daemon to the removal of routes: at most 1 s, and more on a busy machine.
const RETURN: Duration = Duration::from_secs(5);

/// How long routes are watched that must stay: a daemon learns a failure within milliseconds.
const WATCH: Duration = Duration::from_secs(4);

/// A detection time of 30 s, which no load of the machine exceeds.
const PATIENT: &str = "{ multiplier = 100 }";

/// The values of 3 x 300 ms, for each mode.
const DEFAULT: &str = "true";
pub(crate) const SINGLE: &str = "{ mode = \"single-hop\" }";
const MULTI: &str = "{ mode = \"multihop\" }";

/// The same detection time of 30 s over a single hop.
pub(crate) const SINGLE_PATIENT: &str = "{ mode = \"single-hop\", multiplier = 100 }";

/// A detection time of 6 s: far above the delays of a machine, and far below [`BOUND`].
pub(crate) const SINGLE_MEDIUM: &str = "{ mode = \"single-hop\", multiplier = 20 }";

/// Waits until a speaker has learned so many routes; returns the time that it took.
pub(crate) async fn learns(speaker: &Speaker, count: usize) -> Duration {
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

/// Asserts that a speaker keeps so many routes, which no neighbor would send again, after BFD has failed.
pub(crate) async fn stay(speaker: &Speaker, count: usize) {
    tokio::time::sleep(WATCH).await;
    learns(speaker, count).await;
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

/// A client of two reflectors, with a session over each IP version.
fn client_of_both(number: u8, bfd: &'static str) -> Setup {
    let setup = Setup::fabric()
        .neighbor_apart(1, 64512)
        .neighbor_apart(2, 64512);
    announcing(setup.restarting_within(120).monitored(bfd), number)
}

// Promise (BGP): If all route reflectors of a host are cut off at once, it keeps its routes to other hosts.
#[test]
fn reflectors_cut_off_together_lose_no_packet() {
    in_ground(&[], "bfd-reflectors", async |ground| {
        let mut reflector = Setup::fabric();
        for prefix in ["10.0.0.0/24", "fd00::/64"] {
            reflector = reflector.range(Range {
                prefix,
                limit: 10,
                password: None,
            });
        }
        let reflector = reflector.reflecting(CLUSTER).restarting_within(120);
        let reflector = reflector.monitored(SINGLE_MEDIUM);
        let mut reflectors = vec![];
        for number in [1, 2] {
            let site = ground.site(number).await.expect("a host");
            let bfd = Bfd::start(&site).expect("started");
            reflectors.push((bfd, start(Kind::Reflector, site, &reflector).await));
        }
        let mut clients = vec![];
        for number in [3, 4] {
            let site = site(&ground, number).await;
            let bfd = Bfd::start(&site).expect("started");
            let own = client_of_both(number, SINGLE_MEDIUM);
            clients.push((bfd, start(Kind::Client, site, &own).await));
        }
        for (bfd, client) in &clients {
            bfd.has_up(4).await;
            client.is_up().await;
            learns(client, 2).await;
        }
        let flows = Flows::start(&clients[0].1.site.host, 3, &[4]).await;
        for number in [1, 2] {
            ground.cut(number).await.expect("cut");
        }
        for (bfd, client) in &clients {
            bfd.has_failed(4).await;
            let ended = until(BOUND, "the end of all sessions", async || {
                let neighbors = client.neighbors().await.neighbors;
                let is_up = neighbors.iter().any(|one| one.state == "Established");
                Ok::<_, Error>(match is_up {
                    true => Err(format!("{neighbors:?}")),
                    false => Ok(()),
                })
            });
            ended.await.unwrap_or_else(|error| panic!("{error}"));
        }
        for (_, client) in &clients {
            stay(client, 2).await;
        }
        flows.lose_nothing(&clients[0].1.log_tail()).await;
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

// Promise: as bfd-daemon packets_on_the_other_port_are_named_with_the_remedy
#[test]
fn bird_with_the_other_mode_is_named_with_the_remedy() {
    for (bfd, is_single, port) in [(SINGLE, false, "4784"), (MULTI, true, "3784")] {
        in_ground(&[Kind::Bird], "bfd-port", async |ground| {
            let one = ground.site(1).await.expect("a host");
            let two = ground.site(2).await.expect("a host");
            let process = Bfd::start(&one).expect("started");
            let own = |number: u8| {
                let mut setup = Setup::fabric().neighbor_apart(number, 64512);
                for neighbor in &mut setup.neighbors {
                    neighbor.ttl_security = is_single;
                }
                setup.monitored(bfd)
            };
            let net = "10.65.2.0/26";
            let one = start(Kind::Client, one, &own(2)).await;
            let _bird = start(Kind::Bird, two, &own(1).announcing(net)).await;
            // BGP does not wait for BFD.
            learns(&one, 1).await;
            // BIRD has a session over each IP version.
            let named = until(BOUND, "problems", async || {
                let sessions = process.sessions().await.unwrap_or_default();
                let problems = sessions.iter().filter_map(|one| one.problem.as_deref());
                let port = format!("UDP port {port}");
                let named = problems.filter(|problem| problem.contains(&port));
                Ok::<_, Error>(match named.count() {
                    2 => Ok(()),
                    _ => Err(format!("{sessions:?}")),
                })
            });
            let (_, time) = named.await.unwrap_or_else(|error| panic!("{error}"));
            println!("the other port is named after {time:?}");
        });
    }
}

/// Starts BIRD on host 2 and a client with a keeper of BFD on host 1, each with a session over each IP version.
async fn kept_with_bird(ground: &Ground, bfd: &'static str) -> (Speaker, Bfd, Speaker) {
    let two = ground.site(2).await.expect("a host");
    kept_with(Kind::Bird, ground, two, bfd).await
}

async fn kept_with(
    kind: Kind,
    ground: &Ground,
    two: Site,
    bfd: &'static str,
) -> (Speaker, Bfd, Speaker) {
    let one = ground.site(1).await.expect("a host");
    let process = Bfd::start_kept(&one).expect("started");
    let own = one_hop(1, bfd)
        .announcing("10.65.2.0/26")
        .announcing("fd65:2::/64");
    let one = start(Kind::Client, one, &one_hop(2, bfd)).await;
    let neighbor = start(kind, two, &own).await;
    learns(&one, 2).await;
    process.has_up(2).await;
    (one, process, neighbor)
}

/// Returns the setup of a host with sessions over one hop with a neighbor, and graceful restart.
pub(crate) fn one_hop(number: u8, bfd: &'static str) -> Setup {
    let setup = Setup::fabric()
        .neighbor_apart(number, 64512)
        .restarting_within(120);
    let mut setup = setup.monitored(bfd);
    for neighbor in &mut setup.neighbors {
        neighbor.ttl_security = true;
    }
    setup
}

// Promise (BGP): A neighbor without the C bit that is killed restarts: its routes stay, also BIRD's.
/// BFD of BIRD ends with BGP, and its connections end before the detection time does. From then on nothing
/// distinguishes a restart from a dead host, so its routes stay for the restart time.
#[test]
fn killed_bird_keeps_its_routes_for_the_restart_time() {
    in_ground(&[Kind::Bird], "bfd-bird-kill", async |ground| {
        let (one, process, mut bird) = kept_with_bird(&ground, SINGLE_MEDIUM).await;
        let sessions = process.has_up(2).await;
        let is_independent = sessions.iter().any(|one| one.remote_independent);
        assert!(!is_independent, "{sessions:?}");
        bird.kill().await.expect("killed");
        process.has_failed(2).await;
        stay(&one, 2).await;
        ground.cut(2).await.expect("cut");
        stay(&one, 2).await;
    });
}

// Promise: as bgp-speaker neighbor_that_failed_before_the_restart_is_not_awaited
/// The neighbor is Cambric: BIRD does not set the C bit, so that its failure may be a restart (RFC 5882 §4.3.2).
#[test]
fn neighbor_that_dies_while_bgp_is_away_loses_its_routes() {
    in_ground(&[], "bfd-away", async |ground| {
        let two = ground.site(2).await.expect("a host");
        let _other = Bfd::start(&two).expect("started");
        let (mut one, process, _two) = kept_with(Kind::Client, &ground, two, SINGLE_MEDIUM).await;
        dies_while_bgp_is_away(
            &ground,
            &mut one,
            &process,
            &["10.65.2.0/26", "fd65:2::/64"],
        )
        .await;
        let again = one_hop(2, SINGLE_MEDIUM);
        let _one = one.start_again(&again).await.expect("started");
        loses_routes(&process).await;
    });
}

/// The daemon that returns has no peer for a neighbor of a range.
#[test]
fn range_neighbor_that_dies_while_bgp_is_away_loses_its_routes() {
    in_ground(&[], "bfd-range", async |ground| {
        let [one, two] = [1, 2].map(|number| ground.site(number));
        let (one, two) = (one.await.expect("a host"), two.await.expect("a host"));
        let process = Bfd::start_kept(&one).expect("started");
        let _other = Bfd::start(&two).expect("started");
        let range = Range {
            prefix: "10.0.0.0/24",
            limit: 10,
            password: None,
        };
        let setup = Setup::fabric().range(range).reflecting(CLUSTER);
        let setup = setup.restarting_within(120).monitored(SINGLE_MEDIUM);
        let own = client(SINGLE_MEDIUM).restarting_within(120);
        let mut one = start(Kind::Client, one, &setup).await;
        let _two = start(Kind::Client, two, &own.announcing("10.65.2.0/26")).await;
        process.has_up(1).await;
        dies_while_bgp_is_away(&ground, &mut one, &process, &["10.65.2.0/26"]).await;
        let _one = one.start_again(&setup).await.expect("started");
        loses_routes(&process).await;
    });
}

fn has_routes(routes: &str) -> bool {
    ["10.65.2.0/26", "fd65:2::/64"]
        .iter()
        .any(|net| routes.contains(net))
}

/// Kills the daemon on host 1 once it has installed these routes, and cuts off host 2, until BFD has found it.
async fn dies_while_bgp_is_away(
    ground: &Ground,
    one: &mut Speaker,
    process: &Bfd,
    routes_of_two: &[&str],
) {
    let installed = until(BOUND, "kernel routes", async || {
        let routes = process.routes().await;
        let all = routes_of_two.iter().all(|net| routes.contains(net));
        Ok::<_, Error>(if all { Ok(()) } else { Err(routes) })
    });
    installed.await.expect("the routes");
    one.kill().await.expect("killed");
    ground.cut(2).await.expect("cut");
    process.has_failed(routes_of_two.len()).await;
    assert!(has_routes(&process.routes().await), "kept for the restart");
}

async fn loses_routes(process: &Bfd) {
    let removed = until(RETURN, "no kernel routes", async || {
        let routes = process.routes().await;
        Ok::<_, Error>(if has_routes(&routes) {
            Err(routes)
        } else {
            Ok(())
        })
    });
    let (_, time) = removed.await.expect("no routes");
    println!("routes of the dead neighbor removed after {time:?}");
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

// Promise (BGP): Sessions with BIRD work with each type of authentication that BIRD has.
#[test]
fn bird_with_keys_is_monitored() {
    for auth in [
        "simple",
        "keyed-md5",
        "meticulous-keyed-md5",
        "keyed-sha1",
        "meticulous-keyed-sha1",
    ] {
        in_ground(&[Kind::Bird], "bfd-auth", async |ground| {
            let one = ground.site(1).await.expect("a host");
            let two = ground.site(2).await.expect("a host");
            let process = Bfd::start(&one).expect("started");
            let own = one_hop(1, SINGLE_PATIENT).announcing("10.65.2.0/26");
            let client = one_hop(2, SINGLE_PATIENT).authenticated(auth);
            let one = start(Kind::Client, one, &client).await;
            let _bird = start(Kind::Bird, two, &own.authenticated(auth)).await;
            learns(&one, 1).await;
            for session in process.has_up(2).await {
                let shown = session.authentication.unwrap_or_default();
                assert!(shown.ends_with(", 1 key"), "{auth}: {shown}");
            }
        });
    }
}
