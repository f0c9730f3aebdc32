//! Admission of sessions: neighbors by range up to a limit, TCP-MD5 keys of neighbors and of ranges
//! (RFC 2385), and GTSM (RFC 5082), with speakers of every kind.

use std::net::Ipv4Addr;

use interop_tests::{
    Ground, Kind, PATIENCE, Range, Route, Setup, Site, Speaker, Table, as_received, in_ground,
    sender::{Opening, Sender},
};
use ipnet::{IpNet, Ipv4Net};
use testkit::Update;

const ASN: u32 = 64512;
const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const IPV4: &[&str] = &["ipv4-unicast"];
const IPV6: &[&str] = &["ipv6-unicast"];

const RANGE: Range = Range {
    prefix: "10.0.0.0/24",
    limit: 2,
    password: None,
};
const FULL: &str = "neighbor_range 10.0.0.0/24 is full: limit = 2";

/// Opens a session from a host of the range.
async fn by_hand(ground: &Ground, number: u8) -> std::io::Result<Sender> {
    let site = ground.site(number).await.expect("a host");
    let opening = Opening {
        id: Site::v4(number),
        ..Opening::of(&site, ASN)
    };
    Sender::open_as(&site, Site::v4(1), &opening).await
}

/// Returns how a program logs the NOTIFICATION to a peer over the limit. RFC 9003 has texts for
/// other subcodes only: FRR logs this one in hex, BIRD its first 16 octets, OpenBGPD the subcode
/// alone, and GoBGP only its transition to Idle.
const fn turned_away(kind: Kind) -> &'static str {
    match kind {
        Kind::Bird => "peer0: Received: Out of Resources: ",
        Kind::Gobgp => r#""new":"BGP_FSM_IDLE","old":"BGP_FSM_OPENSENT""#,
        Kind::Frr => {
            "received from neighbor 10.0.0.1 6/8 (Cease/Out of Resources) 46 bytes 2d 6e 65"
        }
        Kind::Openbgpd => "received notification: Cease, resource exhaustion",
        Kind::Client | Kind::Reflector => FULL,
    }
}

/// Tests that a peer over the limit receives the reason, and is accepted once there is room.
async fn the_one_too_many(kind: Kind, ground: Ground) {
    let mut setup = Setup::fabric().range(RANGE);
    setup.cluster_id = Some(CLUSTER);
    let reflector = ground.speaker(Kind::Reflector, 1, &setup).await;
    let mut stays = by_hand(&ground, 2).await.expect("a session");
    let leaves = by_hand(&ground, 3).await.expect("a session");
    let refused = by_hand(&ground, 4).await.expect_err("there is no room");
    let text = refused.to_string();
    assert_eq!(
        text,
        format!("NOTIFICATION 6/8 (Cease/Out of Resources: {FULL})")
    );

    let client = Setup::fabric().neighbor(Site::v4(1), ASN).carrying(IPV4);
    let guest = ground.speaker(kind, 5, &client).await;
    guest.writes(turned_away(kind)).await;
    let ranges = reflector.neighbors().await.ranges;
    assert!(ranges[0].refused >= 2, "{ranges:?}");
    assert_eq!((ranges[0].used, ranges[0].limit), (2, 2));

    drop(leaves);
    if kind == Kind::Openbgpd {
        // Otherwise it would wait idle for half a minute, and for a minute if there is still no
        // room.
        let left = netns_lab::until(PATIENCE, "the one that leaves is gone", async || {
            let up = established(&reflector).await;
            let gone = !up.contains(&Site::v4(3).to_string());
            Ok::<_, netns_lab::Error>(gone.then_some(()).ok_or_else(|| format!("{up:?}")))
        });
        left.await.expect("gone");
        let again = guest.command("neighbor 10.0.0.1 clear").await;
        again.expect("it accepts the command to try again");
    }
    let net = Ipv4Net::new(Ipv4Addr::new(10, 65, 2, 0), 24).expect("a prefix");
    let update = Update::via(Site::v4(2)).announcing(net);
    stays.send(&update).await.expect("sent");
    let route = Route::via(Site::v4(2)).local_pref(100);
    let route = route.reflected(Site::v4(2), CLUSTER);
    guest.holds(&Table::from([(IpNet::from(net), route)])).await;
}

/// Waits until a TCP counter of the host increases.
async fn counted(site: &Site, counter: &str) {
    let waited = netns_lab::until(PATIENCE, counter, async || {
        let counted = site.tcp_counter(counter) > 0;
        Ok::<_, netns_lab::Error>(counted.then_some(()).ok_or_else(|| "0".to_owned()))
    });
    waited.await.expect("packets are dropped");
}

async fn established(reflector: &Speaker) -> Vec<String> {
    let neighbors = reflector.neighbors().await.neighbors.into_iter();
    let up = neighbors.filter(|neighbor| neighbor.state == "Established");
    up.map(|neighbor| neighbor.address.expect("an address").to_string())
        .collect()
}

/// Tests that the right key is accepted, as a neighbor's and as a range's, over IPv4 and IPv6; a
/// wrong key and a missing one never are.
async fn keys(kind: Kind, ground: Ground) {
    let keyed = |prefix| Range {
        prefix,
        limit: 10,
        password: Some("of-the-range"),
    };
    let mut setup = Setup::fabric()
        .neighbor(Site::v4(2), ASN)
        .carrying(IPV4)
        .password("its-own")
        .reflecting(CLUSTER)
        .range(keyed("10.0.0.0/24"))
        .range(keyed("fd00::/64"));
    setup.graceful_restart = false;
    let reflector = ground.speaker(Kind::Reflector, 1, &setup).await;
    let client = |number: u8| {
        let setup = Setup::fabric().neighbor(Site::v4(1), ASN).carrying(IPV4);
        setup.announcing(&format!("10.65.{number}.0/24"))
    };
    let v6 = Setup::fabric()
        .neighbor(Site::v6(1), ASN)
        .carrying(IPV6)
        .password("of-the-range")
        .announcing("fd65::/64");
    let wrong = [
        ground
            .speaker(kind, 5, &client(5).password("of-nobody"))
            .await,
        ground.speaker(kind, 6, &client(6)).await,
        // The key of the range does not apply to a neighbor within it that has a key of its own.
    ];
    let one = ground
        .speaker(kind, 2, &client(2).password("its-own"))
        .await;
    let two = ground
        .speaker(kind, 3, &client(3).password("of-the-range"))
        .await;
    let _three = ground.speaker(kind, 4, &v6).await;
    let reflected = |number| {
        let route = as_received(kind, Route::via(Site::v4(number)).local_pref(100));
        let net: IpNet = format!("10.65.{number}.0/24").parse().expect("a prefix");
        (net, route.reflected(Site::v4(number), CLUSTER))
    };
    one.holds(&Table::from([reflected(3)])).await;
    two.holds(&Table::from([reflected(2)])).await;
    let up = netns_lab::until(PATIENCE, "three sessions", async || {
        let up = established(&reflector).await;
        Ok::<_, netns_lab::Error>(
            (up.len() == 3)
                .then_some(())
                .ok_or_else(|| format!("{up:?}")),
        )
    });
    up.await.expect("three sessions");
    counted(&reflector.site, "TCPMD5Failure").await;
    counted(&reflector.site, "TCPMD5NotFound").await;
    let mut up = established(&reflector).await;
    up.sort();
    assert_eq!(up, ["10.0.0.2", "10.0.0.3", "fd00::4"]);
    for stranger in wrong {
        stranger.holds(&Table::new()).await;
    }
}

/// RFC 5082: a peer on the link has a session, a peer that may be farther away has none.
async fn ttl_security(kind: Kind, ground: Ground) {
    let secured = |setup: Setup, number: u8| {
        let setup = setup.neighbor(Site::v4(number), ASN);
        setup.carrying(IPV4).ttl_security()
    };
    let setup = [2, 3, 4].into_iter().fold(Setup::fabric(), secured);
    let client = |number: u8| {
        let setup = secured(Setup::fabric(), 1);
        setup.announcing(&format!("10.65.{number}.0/24"))
    };
    // Both listen before any speaker dials: OpenBGPD may not answer on a connection that it accepts
    // while it starts.
    let one = ground.speaker(kind, 2, &client(2)).await;
    let two = ground.speaker(kind, 3, &client(3)).await;
    let reflector = ground
        .speaker(Kind::Reflector, 1, &setup.reflecting(CLUSTER))
        .await;
    // This peer sends with the default TTL of a socket.
    let site = ground.site(4).await.expect("a host");
    let opening = Opening::of(&site, ASN);
    // The reflector resets the connection, before or after the OPEN is written.
    let _far = Sender::dial(&site, Site::v4(1).into(), &opening).await;
    let reflected = |number| {
        let route = as_received(kind, Route::via(Site::v4(number)).local_pref(100));
        let net: IpNet = format!("10.65.{number}.0/24").parse().expect("a prefix");
        (net, route.reflected(Site::v4(number), CLUSTER))
    };
    one.holds(&Table::from([reflected(3)])).await;
    two.holds(&Table::from([reflected(2)])).await;
    reflector
        .writes("address=10.0.0.4 reason=\"TTL security: TTL 64, at least 255 expected\"")
        .await;
    let mut up = established(&reflector).await;
    up.sort();
    assert_eq!(up, ["10.0.0.2", "10.0.0.3"]);
}

/// When the kernel's memory limit for keys is reached, only the neighbors whose keys are not
/// installed are rejected. The remedy is reported, and these neighbors connect once it is applied.
#[test]
fn too_many_keys_for_the_kernel() {
    in_ground(&[], "too_many_keys_for_the_kernel", async |ground| {
        let site = ground.site(1).await.expect("a host");
        if site.host.sysctl("net/core/optmem_max", "8192").is_err() {
            println!("skipped: this kernel has net.core.optmem_max for the whole machine only");
            return;
        }
        let many = (2..=250).fold(Setup::fabric(), |setup, number| {
            setup.neighbor(Site::v4(number), ASN).password("secret")
        });
        let started = Speaker::start(Kind::Reflector, site, &many.reflecting(CLUSTER)).await;
        let reflector = started.expect("a process");
        let client = Setup::fabric().neighbor(Site::v4(1), ASN).carrying(IPV4);
        let client = client.password("secret");
        let first = ground.speaker(Kind::Client, 2, &client).await;
        first
            .reports("its session is up", |status| status.ready)
            .await;
        // The kernel accepts the connection, since it has no key for this address.
        let refused = by_hand(&ground, 250).await;
        refused.expect_err("its connection is not signed");
        let no_key = "address=10.0.0.250 reason=\"no key: ";
        reflector.writes(no_key).await;
        let neighbors = reflector.neighbors().await.neighbors.into_iter();
        let why: Vec<String> = neighbors
            .filter(|neighbor| neighbor.address == Some(Site::v4(250).into()))
            .filter_map(|neighbor| neighbor.last_down)
            .collect();
        let is_full = |why: &String| {
            why.contains("the kernel has no room for the password of neighbor 10.0.0.250")
                && why.contains("net.core.optmem_max from 8192 to ")
        };
        assert!(matches!(&why[..], [why] if is_full(why)), "{why:?}");
        let room = reflector.site.host.sysctl("net/core/optmem_max", "131072");
        room.expect("it was set before");
        reflector
            .writes("event=\"password.installed\" of=\"neighbor 10.0.0.250\"")
            .await;
        assert_eq!(established(&reflector).await, ["10.0.0.2"]);
    });
}

interop_tests::labs! {
    the_one_too_many: Client Bird Gobgp Frr Openbgpd;
    keys: Client Bird Gobgp Frr Openbgpd;
    ttl_security: Client Bird Gobgp Frr Openbgpd;
}
