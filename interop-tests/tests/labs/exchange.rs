//! Routes exchanged with BIRD and GoBGP in every arrangement of a fabric: both ends must hold
//! exactly the routes that the RFCs require.
//!
//! Known differences, each noted where it is expected below:
//! * BIRD gives a route from an external peer LOCAL_PREF 100 on import and shows it; GoBGP and
//!   Cambric show none.
//! * BIRD sends an external peer no MED except one set in the export filter; GoBGP and Cambric send
//!   the MED of the routes that they originate.
//! * GoBGP gives IPv6 routes an IPv4-mapped next hop on an IPv4 session (it has no alternative),
//!   FRR does so without zebra, and OpenBGPD gives them `::1`. Such next hops are unusable for
//!   forwarding and Cambric rejects them: these peers get one session per family.
//! * FRR sends MED 0 where a route has no MED, also in routes that it reflects.
//! * OpenBGPD shows LOCAL_PREF 100 for a route from an external peer, as BIRD does.

use std::net::Ipv4Addr;

use interop_tests::{
    Ground, Kind, PATIENCE, Route, Setup, Site, Speaker, as_received, shown_external, table,
};

const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const FOREIGN_AS: u32 = 64513;

/// Returns a route that a foreign speaker originates as an external peer receives it.
fn as_received_externally(kind: Kind, route: Route) -> Route {
    match kind {
        Kind::Bird => Route { med: None, ..route },
        _ => as_received(kind, route),
    }
}

async fn external(kind: Kind, ground: Ground) {
    let ours = Setup::fabric().peering(kind, 2, FOREIGN_AS);
    let ours = ours.announcing("10.65.1.1/32").announcing("fd65::1/128");
    let theirs = Setup::of(FOREIGN_AS)
        .peering(kind, 1, 64512)
        .announcing("10.70.1.0/24")
        .adorned()
        .announcing("fd70:1::/64")
        .adorned()
        .announcing("10.70.2.0/24");
    let us = ground.speaker(Kind::Client, 1, &ours).await;
    let them = ground.speaker(kind, 2, &theirs).await;
    us.holds(&table([
        (
            "10.70.1.0/24",
            as_received_externally(kind, Route::via(Site::v4(2)).path("64513").adorned()),
        ),
        (
            "fd70:1::/64",
            as_received_externally(kind, Route::via(Site::v6(2)).path("64513").adorned()),
        ),
        (
            "10.70.2.0/24",
            as_received_externally(kind, Route::via(Site::v4(2)).path("64513")),
        ),
    ]))
    .await;
    them.holds(&table([
        (
            "10.65.1.1/32",
            shown_external(kind, Route::via(Site::v4(1)).path("64512")),
        ),
        (
            "fd65::1/128",
            shown_external(kind, Route::via(Site::v6(1)).path("64512")),
        ),
    ]))
    .await;

    // A route that is withdrawn at one end is removed at the other.
    us.withdraw("10.65.1.1/32".parse().expect("a prefix"))
        .await
        .expect("withdrawn");
    them.withdraw("10.70.1.0/24".parse().expect("a prefix"))
        .await
        .expect("withdrawn");
    let kept = shown_external(kind, Route::via(Site::v6(1)).path("64512"));
    them.holds(&table([("fd65::1/128", kept)])).await;
    us.holds(&table([
        (
            "fd70:1::/64",
            as_received_externally(kind, Route::via(Site::v6(2)).path("64513").adorned()),
        ),
        (
            "10.70.2.0/24",
            as_received_externally(kind, Route::via(Site::v4(2)).path("64513")),
        ),
    ]))
    .await;
    installed(&us, &["10.70.2.0/24", "fd70:1::/64"]).await;
}

/// Waits until the kernel of a client holds exactly these BGP routes.
async fn installed(client: &Speaker, nets: &[&str]) {
    let mut wanted: Vec<String> = nets.iter().map(|&net| net.to_owned()).collect();
    wanted.sort();
    let held = netns_lab::until(PATIENCE, "the kernel's routes", async || {
        let routes = client.site.host.links()?.routes().await?;
        let own = routes.iter().filter(|route| route.protocol == 119);
        let mut found: Vec<String> = own.map(|route| route.net.to_string()).collect();
        found.sort();
        let same = found == wanted;
        Ok::<_, netns_lab::Error>(same.then_some(()).ok_or_else(|| format!("{found:?}")))
    });
    held.await.expect("the kernel holds what BGP learned");
}

async fn internal(kind: Kind, ground: Ground) {
    let ours = Setup::fabric().peering(kind, 2, 64512);
    let ours = ours.announcing("10.65.1.1/32").announcing("fd65::1/128");
    let theirs = Setup::fabric()
        .peering(kind, 1, 64512)
        .announcing("10.65.2.1/32")
        .adorned();
    let us = ground.speaker(Kind::Client, 1, &ours).await;
    let them = ground.speaker(kind, 2, &theirs).await;
    let adorned = Route::via(Site::v4(2)).local_pref(100).adorned();
    us.holds(&table([("10.65.2.1/32", adorned)])).await;
    them.holds(&table([
        ("10.65.1.1/32", Route::via(Site::v4(1)).local_pref(100)),
        ("fd65::1/128", Route::via(Site::v6(1)).local_pref(100)),
    ]))
    .await;
}

/// Tests Cambric's reflector between two foreign clients and one of its own.
async fn our_reflector(kind: Kind, ground: Ground) {
    let mut reflector = Setup::fabric();
    for client in [2, 3] {
        reflector = reflector.peering(kind, client, 64512);
    }
    let reflector = reflector.neighbor(Site::v4(4), 64512).reflecting(CLUSTER);
    let client = || Setup::fabric().peering(kind, 1, 64512);
    let own = Setup::fabric().neighbor(Site::v4(1), 64512);
    let one = client()
        .announcing("10.65.2.1/32")
        .adorned()
        .announcing("fd65::2/128");
    let two = client().announcing("10.65.3.1/32");
    let _reflector = ground.speaker(Kind::Reflector, 1, &reflector).await;
    let one = ground.speaker(kind, 2, &one).await;
    let two = ground.speaker(kind, 3, &two).await;
    let own = ground
        .speaker(Kind::Client, 4, &own.announcing("10.65.4.1/32"))
        .await;

    let from = |number| {
        Route::via(Site::v4(number))
            .local_pref(100)
            .reflected(Site::v4(number), CLUSTER)
    };
    let v6 = Route::via(Site::v6(2))
        .local_pref(100)
        .reflected(Site::v4(2), CLUSTER);
    let routes = [
        ("10.65.2.1/32", from(2).adorned()),
        ("fd65::2/128", as_received(kind, v6)),
        ("10.65.3.1/32", as_received(kind, from(3))),
        ("10.65.4.1/32", from(4)),
    ];
    let all_but = |own: &[&str]| {
        table(
            routes
                .clone()
                .into_iter()
                .filter(|(net, _)| !own.contains(net)),
        )
    };
    one.holds(&all_but(&["10.65.2.1/32", "fd65::2/128"])).await;
    two.holds(&all_but(&["10.65.3.1/32"])).await;
    own.holds(&all_but(&["10.65.4.1/32"])).await;

    one.withdraw("10.65.2.1/32".parse().expect("a prefix"))
        .await
        .expect("withdrawn");
    two.holds(&all_but(&["10.65.3.1/32", "10.65.2.1/32"])).await;
    own.holds(&all_but(&["10.65.4.1/32", "10.65.2.1/32"])).await;
}

/// Tests two of Cambric's clients with a foreign reflector.
async fn their_reflector(kind: Kind, ground: Ground) {
    let mut reflector = Setup::fabric();
    for client in [2, 3] {
        reflector = reflector.peering(kind, client, 64512);
    }
    let client = || Setup::fabric().peering(kind, 1, 64512);
    let one = client()
        .announcing("10.65.2.1/32")
        .announcing("fd65::2/128");
    let two = client().announcing("10.65.3.1/32");
    let _reflector = ground
        .speaker(kind, 1, &reflector.reflecting(CLUSTER))
        .await;
    let one = ground.speaker(Kind::Client, 2, &one).await;
    let two = ground.speaker(Kind::Client, 3, &two).await;
    let from = |number| {
        let route = Route::via(Site::v4(number)).local_pref(100);
        as_received(kind, route.reflected(Site::v4(number), CLUSTER))
    };
    let v6 = Route::via(Site::v6(2)).local_pref(100);
    let v6 = as_received(kind, v6.reflected(Site::v4(2), CLUSTER));
    one.holds(&table([("10.65.3.1/32", from(3))])).await;
    two.holds(&table([("10.65.2.1/32", from(2)), ("fd65::2/128", v6)]))
        .await;
    installed(&two, &["10.65.2.1/32", "fd65::2/128"]).await;

    one.withdraw("10.65.2.1/32".parse().expect("a prefix"))
        .await
        .expect("withdrawn");
    installed(&two, &["fd65::2/128"]).await;
}

/// Tests a full mesh of two of Cambric's clients and a foreign speaker.
async fn mesh(kind: Kind, ground: Ground) {
    let ours = |own, other| {
        let setup = Setup::fabric().neighbor(Site::v4(other), 64512);
        setup.peering(kind, 3, 64512).announcing(own)
    };
    let theirs = Setup::fabric().peering(kind, 1, 64512);
    let theirs = theirs.peering(kind, 2, 64512);
    let one = ground
        .speaker(Kind::Client, 1, &ours("10.65.1.1/32", 2))
        .await;
    let two = ground
        .speaker(Kind::Client, 2, &ours("10.65.2.1/32", 1))
        .await;
    let them = ground
        .speaker(kind, 3, &theirs.announcing("10.65.3.1/32"))
        .await;
    let from = |number| Route::via(Site::v4(number)).local_pref(100);
    one.holds(&table([
        ("10.65.2.1/32", from(2)),
        ("10.65.3.1/32", as_received(kind, from(3))),
    ]))
    .await;
    two.holds(&table([
        ("10.65.1.1/32", from(1)),
        ("10.65.3.1/32", as_received(kind, from(3))),
    ]))
    .await;
    them.holds(&table([
        ("10.65.1.1/32", from(1)),
        ("10.65.2.1/32", from(2)),
    ]))
    .await;
}

interop_tests::labs! {
    Bird as bird: external, internal, our_reflector, their_reflector, mesh;
    Gobgp as gobgp: external, internal, our_reflector, their_reflector, mesh;
    Frr as frr: external, internal, our_reflector, their_reflector, mesh;
    Openbgpd as openbgpd: external, internal, our_reflector, their_reflector, mesh;
}
