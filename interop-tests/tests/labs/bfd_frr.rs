//! BFD with FRR's bfdd: over one hop and several, and its death with and without the C bit.

use std::net::IpAddr;

use interop_tests::{Bfd, FrrBfd, Ground, Kind, Setup, Site, Speaker, in_ground};

use crate::bfd::{SINGLE, learns, stay};

/// The autonomous system of FRR: its bgpd takes a single hop for external peers of its own network.
pub(crate) const FRR_AS: u32 = 64600;

const MULTI: &str = "{ mode = \"multihop\" }";

fn with_frr(name: &str, test: impl AsyncFnOnce(Ground)) {
    if FrrBfd::is_installed() {
        in_ground(&[Kind::Frr], name, test);
    }
}

/// A client with `cambric-bfd` on host 1, and FRR with bfdd on host 2.
struct Pair {
    one: Speaker,
    bfd: Bfd,
    frr: Speaker,
    bfdd: FrrBfd,
}

/// Starts both with a session over each IP version, and waits until BFD is up at both ends.
async fn pair(ground: &Ground, bfd: &'static str, frr: Setup, lines: &str) -> Pair {
    let one = ground.site(1).await.expect("a host");
    let two = ground.site(2).await.expect("a host");
    let process = Bfd::start(&one).expect("started");
    let bfdd = FrrBfd::start(&two, lines).await.expect("started");
    let client = Setup::fabric()
        .neighbor_apart(2, frr.asn)
        .monitored(bfd)
        .restarting_within(120);
    let frr = frr
        .neighbor_apart(1, client.asn)
        .restarting_within(120)
        .announcing("10.65.2.0/26")
        .announcing("fd65:2::/64");
    let one = Speaker::start(Kind::Client, one, &client).await;
    let frr = Speaker::start(Kind::Frr, two, &frr).await;
    let (one, frr) = (one.expect("a client"), frr.expect("FRR"));
    learns(&one, 2).await;
    process.has_up(2).await;
    Pair {
        one,
        bfd: process,
        frr,
        bfdd,
    }
}

// Promise (BGP): Sessions of BFD with FRR's bfdd work over one hop and several, in IPv4 and IPv6.
#[test]
fn bfdd_over_a_single_hop_is_monitored() {
    with_frr("bfdd-single", async |ground| {
        let frr = Setup::of(FRR_AS).monitored(SINGLE);
        let pair = pair(&ground, SINGLE, frr, "").await;
        let shown = pair.bfdd.has_up(2).await;
        assert!(shown.iter().all(|one| !one.is_multihop), "{shown:?}");
        ground.cut(2).await.expect("cut");
        learns(&pair.one, 0).await;
    });
}

/// bgpd takes several hops only for peers outside of its networks: bfdd has the sessions by its own lines.
#[test]
fn bfdd_over_several_hops_is_monitored() {
    with_frr("bfdd-multi", async |ground| {
        let addresses = |number| [IpAddr::from(Site::v4(number)), Site::v6(number).into()];
        let lines = addresses(1).into_iter().zip(addresses(2));
        let lines = lines.map(|(peer, own)| format!(" peer {peer} multihop local-address {own}\n"));
        let lines = format!("bfd\n{}", lines.collect::<String>());
        let pair = pair(&ground, MULTI, Setup::of(FRR_AS), &lines).await;
        let shown = pair.bfdd.has_up(2).await;
        assert!(shown.iter().all(|one| one.is_multihop), "{shown:?}");
        let sessions = pair.bfd.has_up(2).await;
        let is_multi = sessions.iter().all(|session| session.hops == "multi");
        assert!(is_multi, "{sessions:?}");
        ground.cut(2).await.expect("cut");
        learns(&pair.one, 0).await;
    });
}

/// Kills bfdd and bgpd. The connection of BGP ends before the detection time does.
async fn killed(ground: &Ground, frr: Setup) -> Pair {
    let mut pair = pair(ground, SINGLE, frr.monitored(SINGLE), "").await;
    pair.bfdd.has_up(2).await;
    pair.bfdd.kill().await;
    pair.frr.kill().await.expect("killed");
    pair
}

// Promise (BGP): The C bit of FRR decides whether a failed path after its restart ends its routes.
/// Without the C bit the end of its sessions may be that of its control plane (RFC 5882 §4.3.2).
#[test]
fn killed_frr_without_the_c_bit_keeps_its_routes() {
    with_frr("bfdd-kill", async |ground| {
        let pair = killed(&ground, Setup::of(FRR_AS)).await;
        pair.bfd.has_failed(2).await;
        stay(&pair.one, 2).await;
    });
}

/// With the C bit the end of its sessions is the end of its forwarding (RFC 5882 §4.3.1).
#[test]
fn killed_frr_with_the_c_bit_loses_its_routes() {
    with_frr("bfdd-c-bit", async |ground| {
        let pair = killed(&ground, Setup::of(FRR_AS).with_c_bit()).await;
        learns(&pair.one, 0).await;
    });
}
