//! Route reflection, RFC 4456, clause by clause: Cambric's reflector between peers of every kind
//! and beside reflectors of every kind.

use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::AttrCode;
use interop_tests::{
    Ground, Kind, Route, Setup, Site, Speaker, Table, as_received, in_ground,
    sender::{Opening, Sender},
    shown_external,
};
use ipnet::{IpNet, Ipv4Net};
use testkit::{OPTIONAL, Update, WELL_KNOWN};

const ASN: u32 = 64512;
const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
/// The CLUSTER_ID of the other reflector, where the two differ.
const OTHER_CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 8, 8, 8);
const IPV4: &[&str] = &["ipv4-unicast"];
const IPV6: &[&str] = &["ipv6-unicast"];

/// The role of a peer towards the reflector.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seat {
    Client,
    NonClient,
    External,
}
use Seat::{Client, External, NonClient};

/// How a route is advertised.
enum Passed {
    /// Not advertised.
    Nothing,
    /// With ORIGINATOR_ID, CLUSTER_LIST, and everything else as it was.
    Reflected,
    /// From an external peer to an internal one, as any speaker advertises it.
    Enters,
    /// To another AS, without ORIGINATOR_ID and CLUSTER_LIST.
    Leaves,
    /// From an external peer to another one.
    Crosses,
}

/// Returns the result of RFC 4456 §6 in both directions, and of RFC 4271 §9.2 in the other cases.
const fn passed(from: Seat, to: Seat) -> Passed {
    match (from, to) {
        (Client, Client | NonClient) => Passed::Reflected,
        (NonClient, Client) => Passed::Reflected,
        (NonClient, NonClient) => Passed::Nothing,
        (External, Client | NonClient) => Passed::Enters,
        (Client | NonClient, External) => Passed::Leaves,
        (External, External) => Passed::Crosses,
    }
}

/// The role of each host: the host's number determines its address and its prefix.
const SEATS: [(u8, Seat); 6] = [
    (2, Client),
    (3, Client),
    (4, NonClient),
    (5, NonClient),
    (6, External),
    (7, External),
];

fn asn(number: u8, seat: Seat) -> u32 {
    match seat {
        External => 64500 + u32::from(number),
        _ => ASN,
    }
}

fn prefix(number: u8) -> IpNet {
    of(Version::V4, number).1
}

/// The address family of the sessions, and of the routes over them.
#[derive(Clone, Copy)]
enum Version {
    V4,
    V6,
}

/// Returns the address of a host and its prefix.
fn of(version: Version, number: u8) -> (IpAddr, IpNet) {
    let (address, net): (IpAddr, String) = match version {
        Version::V4 => (Site::v4(number).into(), format!("10.65.{number}.0/24")),
        Version::V6 => (Site::v6(number).into(), format!("fd65:{number}::/64")),
    };
    (address, net.parse().expect("a prefix"))
}

/// Returns the table that host `number` must hold.
fn expected(kind: Kind, version: Version, (number, seat): (u8, Seat)) -> Table {
    let ours = of(version, 1).0;
    let others = SEATS.iter().filter(|(other, _)| *other != number);
    let routes = others.filter_map(|&(from, source)| {
        let (address, net) = of(version, from);
        let own = Route::via(address);
        let route = match passed(source, seat) {
            Passed::Nothing => return None,
            Passed::Reflected => {
                as_received(kind, own.local_pref(100)).reflected(Site::v4(from), CLUSTER)
            }
            Passed::Enters => {
                let route = own.path(&asn(from, source).to_string()).local_pref(100);
                as_received(kind, route)
            }
            Passed::Leaves => {
                let route = Route::via(ours).path(&ASN.to_string());
                shown_external(kind, route)
            }
            Passed::Crosses => {
                let path = format!("{ASN} {}", asn(from, source));
                shown_external(kind, Route::via(ours).path(&path))
            }
        };
        Some((net, route))
    });
    routes.collect()
}

/// Tests every direction between speakers of one kind.
async fn directions(kind: Kind, version: Version, ground: Ground) {
    let families = match version {
        Version::V4 => IPV4,
        Version::V6 => IPV6,
    };
    let mut reflector = Setup::fabric();
    let with = |setup: Setup, seat: Seat| {
        let seats = SEATS.iter().filter(move |(_, other)| *other == seat);
        seats.fold(setup, |setup, &(number, seat)| {
            setup
                .neighbor(of(version, number).0, asn(number, seat))
                .carrying(families)
        })
    };
    reflector = with(reflector, Client).reflecting(CLUSTER);
    reflector = with(with(reflector, NonClient), External);
    let _reflector = ground.speaker(Kind::Reflector, 1, &reflector).await;
    let mut speakers = vec![];
    for (number, seat) in SEATS {
        let setup = Setup::of(asn(number, seat))
            .neighbor(of(version, 1).0, ASN)
            .carrying(families)
            .announcing(&of(version, number).1.to_string());
        speakers.push((ground.speaker(kind, number, &setup).await, (number, seat)));
    }
    for (speaker, seat) in &speakers {
        speaker.holds(&expected(kind, version, *seat)).await;
    }
    // A withdrawal is sent to every peer that had the route.
    for (speaker, (number, _)) in &speakers[..2] {
        let net = of(version, *number).1;
        speaker.withdraw(net).await.expect("withdrawn");
    }
    for (speaker, seat) in &speakers {
        let mut left = expected(kind, version, *seat);
        left.retain(|net, _| ![of(version, 2).1, of(version, 3).1].contains(net));
        speaker.holds(&left).await;
    }
}

/// Tests the same over IPv4 and over IPv6.
async fn directions_v4(kind: Kind, ground: Ground) {
    directions(kind, Version::V4, ground).await;
}

async fn directions_v6(kind: Kind, ground: Ground) {
    directions(kind, Version::V6, ground).await;
}

/// Opens a scripted client, on host 2 or 3, of a reflector with two clients.
async fn by_hand(ground: &Ground, number: u8) -> (Site, Sender) {
    let site = ground.site(number).await.expect("a host");
    let opening = Opening {
        id: Site::v4(number),
        ..Opening::of(&site, ASN)
    };
    let sender = Sender::open_as(&site, Site::v4(1), &opening).await;
    (site, sender.expect("a session"))
}

fn two_clients() -> Setup {
    let setup = Setup::fabric().neighbor(Site::v4(2), ASN);
    setup.neighbor(Site::v4(3), ASN).reflecting(CLUSTER)
}

const NET: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 65, 2, 0), 24);
const MARK: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 65, 9, 0), 24);

// Promise (BGP): No client receives its own route, whichever way the best path moves.
/// RFC 4456 §6: a client never receives its own route, for any change of the best path.
#[test]
fn nothing_returns_to_its_originator() {
    in_ground(&[], "nothing_returns_to_its_originator", async |ground| {
        let _reflector = ground.speaker(Kind::Reflector, 1, &two_clients()).await;
        let (_, mut one) = by_hand(&ground, 2).await;
        let (_, mut two) = by_hand(&ground, 3).await;
        let preferred = |number, local_pref: u32| {
            let update = Update::via(Site::v4(number));
            let update =
                update.replacing(WELL_KNOWN, AttrCode::LocalPref, &local_pref.to_be_bytes());
            update.announcing(NET)
        };
        // Its route is the only one, then the better, then the worse, then withdrawn.
        one.send(preferred(2, 100)).await.expect("sent");
        two.receives("the route of one", |received| received.has(NET))
            .await;
        assert_eq!(
            two.received.reflection_of(NET),
            (Some(Site::v4(2)), vec![CLUSTER])
        );
        two.send(preferred(3, 50)).await.expect("sent");
        two.send(preferred(3, 200)).await.expect("sent");
        one.receives("the better route of two", |received| received.has(NET))
            .await;
        assert_eq!(
            one.received.reflection_of(NET),
            (Some(Site::v4(3)), vec![CLUSTER])
        );
        two.receives("that its own is the best", |received| !received.has(NET))
            .await;
        let gone = Update::default().withdrawing(NET);
        two.send(&gone).await.expect("sent");
        one.receives("that the better one is gone", |received| !received.has(NET))
            .await;
        two.receives("the route of one again", |received| received.has(NET))
            .await;
        one.send(&gone).await.expect("sent");
        two.receives("that all is gone", |received| !received.has(NET))
            .await;
        // The last route proves that no other message is in flight.
        let mark = Update::via(Site::v4(3)).announcing(MARK);
        two.send(&mark).await.expect("sent");
        one.receives("the mark", |received| received.has(MARK))
            .await;
        // A route may be sent twice: with the initial table, and as a change while that is sent.
        let of = |number: u8| Some(Site::v4(number));
        let (to_one, to_two) = (&one.received.originators, &two.received.originators);
        assert!(to_one.iter().all(|id| *id == of(3)), "{to_one:?}");
        assert!(to_two.iter().all(|id| *id == of(2)), "{to_two:?}");
        assert!(one.received.oddities.is_empty() && two.received.oddities.is_empty());
    });
}

/// RFC 4456 §8: a looped route is not advertised, and the reason is reported; other routes are
/// advertised.
#[test]
fn loops_end_at_import() {
    let ids = |ids: &[Ipv4Addr]| ids.iter().flat_map(Ipv4Addr::octets).collect::<Vec<_>>();
    let ours = Site::v4(1);
    let other = Ipv4Addr::new(10, 7, 7, 7);
    let originator = |id| (AttrCode::OriginatorId, ids(&[id]));
    let clusters = |list: &[Ipv4Addr]| (AttrCode::ClusterList, ids(list));
    let rows = [
        (
            "another's ORIGINATOR_ID",
            vec![originator(other)],
            Ok((other, vec![])),
        ),
        (
            "other clusters",
            vec![originator(other), clusters(&[OTHER_CLUSTER, other])],
            Ok((other, vec![OTHER_CLUSTER, other])),
        ),
        (
            "CLUSTER_LIST without ORIGINATOR_ID",
            vec![clusters(&[OTHER_CLUSTER])],
            Ok((Site::v4(2), vec![OTHER_CLUSTER])),
        ),
        (
            "our ORIGINATOR_ID",
            vec![originator(ours)],
            Err("not eligible: own ORIGINATOR_ID"),
        ),
        (
            "our CLUSTER_ID first",
            vec![originator(other), clusters(&[CLUSTER, other])],
            Err("not eligible: own CLUSTER_ID in CLUSTER_LIST"),
        ),
        (
            "our CLUSTER_ID last",
            vec![
                originator(other),
                clusters(&[other, OTHER_CLUSTER, CLUSTER]),
            ],
            Err("not eligible: own CLUSTER_ID in CLUSTER_LIST"),
        ),
        (
            "our router id as a cluster, which it is not",
            vec![originator(other), clusters(&[ours])],
            Ok((other, vec![ours])),
        ),
    ];
    in_ground(&[], "loops_end_at_import", async |ground| {
        let reflector = ground.speaker(Kind::Reflector, 1, &two_clients()).await;
        let (_, mut from) = by_hand(&ground, 2).await;
        let (_, mut to) = by_hand(&ground, 3).await;
        for (name, attributes, expected) in rows {
            let good = Update::via(Site::v4(2)).announcing(NET);
            from.send(&good).await.expect("sent");
            to.receives("the route as it should be", |received| {
                received.has(NET) && received.reflection_of(NET).1.len() == 1
            })
            .await;
            let update = attributes
                .iter()
                .fold(Update::via(Site::v4(2)), |update, row| {
                    update.with(OPTIONAL, row.0, &row.1)
                });
            from.send(update.announcing(NET)).await.expect("sent");
            match expected {
                Ok((originator, list)) => {
                    let list = [vec![CLUSTER], list].concat();
                    let reflection = (Some(originator), list);
                    to.receives(name, |received| {
                        received.has(NET) && received.reflection_of(NET) == reflection
                    })
                    .await;
                }
                Err(reason) => {
                    to.receives(name, |received| !received.has(NET)).await;
                    let paths = reflector.paths(NET.into()).await;
                    let lost = paths.first().and_then(|path| path.lost.clone());
                    assert_eq!(lost.as_deref(), Some(reason), "{name}");
                }
            }
        }
        reflector.stood(|_| true).await;
    });
}

/// Two clients of two reflectors that peer with each other. Reflectors: Cambric's on host 1, one of
/// `kind` on host 2. Clients: Cambric's on hosts 3 and 4.
struct Pair {
    ours: Speaker,
    theirs: Speaker,
    clients: [Speaker; 2],
}

impl Pair {
    /// Starts the four. `clusters` are those of Cambric's and the other reflector. `both` states
    /// whether each client peers with both reflectors, or the first with Cambric's and the second
    /// with the other.
    async fn start(kind: Kind, ground: &Ground, clusters: [Ipv4Addr; 2], both: bool) -> Self {
        let clients_of = |at: u8| -> Vec<u8> {
            match both {
                true => vec![3, 4],
                false => vec![2 + at],
            }
        };
        let reflector = |at: u8, cluster, other| {
            let setup = clients_of(at)
                .into_iter()
                .fold(Setup::fabric(), |setup, client| {
                    setup.neighbor(Site::v4(client), ASN).carrying(IPV4)
                });
            let setup = setup.reflecting(cluster).without_graceful_restart();
            setup.neighbor(Site::v4(other), ASN).carrying(IPV4)
        };
        let ours = ground
            .speaker(Kind::Reflector, 1, &reflector(1, clusters[0], 2))
            .await;
        let theirs = ground.speaker(kind, 2, &reflector(2, clusters[1], 1)).await;
        let client = async |number: u8| {
            let of = [1, 2]
                .into_iter()
                .filter(|at| clients_of(*at).contains(&number));
            let setup = of.fold(Setup::fabric(), |setup, at| {
                setup.neighbor(Site::v4(at), ASN).carrying(IPV4)
            });
            let setup = setup.announcing(&prefix(number).to_string());
            let setup = setup.without_graceful_restart();
            ground.speaker(Kind::Client, number, &setup).await
        };
        let clients = [client(3).await, client(4).await];
        ours.is_up().await;
        Self {
            ours,
            theirs,
            clients,
        }
    }

    /// Waits until each client holds only the other's route, as `by` reflects it, or no route.
    ///
    /// Known difference: GoBGP removes ORIGINATOR_ID and CLUSTER_LIST towards a non-client, such as
    /// Cambric's reflector. Then nothing identifies the route's origin, and it may win as the route
    /// of a router with a lower id than the client's.
    async fn settle(&self, announced: bool, by: Kind) {
        for (client, other) in self.clients.iter().zip([4, 3]) {
            let route = Route::via(Site::v4(other)).local_pref(100);
            let route = as_received(by, route).reflected(Site::v4(other), CLUSTER);
            let routes = announced.then(|| (prefix(other), route));
            let mend = |_: &IpNet, route: &mut Route| {
                if self.theirs.kind == Kind::Gobgp && route.originator_id == Some(Site::v4(2)) {
                    route.originator_id = Some(Site::v4(other));
                }
            };
            client.holds_as(&routes.into_iter().collect(), mend).await;
        }
    }
}

/// RFC 4456 §7: two reflectors with the same clients and the same CLUSTER_ID drop each other's
/// reflections; either alone is enough.
async fn one_cluster(kind: Kind, ground: Ground) {
    let mut pair = Pair::start(kind, &ground, [CLUSTER, CLUSTER], true).await;
    // Of equal routes the one from the lower router id wins: that of Cambric's reflector.
    pair.settle(true, Kind::Reflector).await;
    for number in [3, 4] {
        let paths = pair.ours.paths(prefix(number)).await;
        let looped = paths.iter().filter(|path| path.neighbor == "n10-0-0-2");
        let lost: Vec<_> = looped.filter_map(|path| path.lost.as_deref()).collect();
        let why = "not eligible: own CLUSTER_ID in CLUSTER_LIST";
        assert!(
            kind == Kind::Gobgp || lost.iter().all(|lost| *lost == why),
            "{paths:?}"
        );
    }
    pair.ours.stop().await.expect("stopped");
    pair.settle(true, kind).await;
    for (client, number) in pair.clients.iter().zip([3, 4]) {
        client.withdraw(prefix(number)).await.expect("withdrawn");
    }
    pair.settle(false, kind).await;
    pair.theirs.holds(&Table::new()).await;
}

/// RFC 4456 §7 and §8: the CLUSTER_LIST of a route that passes two clusters has both, nearest
/// first.
async fn two_clusters(kind: Kind, ground: Ground) {
    let pair = Pair::start(kind, &ground, [CLUSTER, OTHER_CLUSTER], false).await;
    let through = |number: u8, first, second| {
        let route = Route::via(Site::v4(number)).local_pref(100);
        let route = route.reflected(Site::v4(number), first);
        route.reflected(Site::v4(number), second)
    };
    let from_ours = through(3, CLUSTER, OTHER_CLUSTER);
    let from_theirs = match kind {
        // As if the route had no originator: towards a non-client GoBGP removes both attributes.
        Kind::Gobgp => {
            let route = Route::via(Site::v4(4)).local_pref(100);
            route.reflected(Site::v4(2), CLUSTER)
        }
        _ => as_received(kind, through(4, OTHER_CLUSTER, CLUSTER)),
    };
    let [one, two] = &pair.clients;
    two.holds(&Table::from([(prefix(3), from_ours)])).await;
    one.holds(&Table::from([(prefix(4), from_theirs)])).await;
    two.withdraw(prefix(4)).await.expect("withdrawn");
    one.holds(&Table::new()).await;
    let left = Route::via(Site::v4(3)).local_pref(100);
    pair.ours.holds(&Table::from([(prefix(3), left)])).await;
}

/// RFC 4456 §7: a client in a cluster of its own. The CLUSTER_LIST of a route has the cluster that
/// it comes from and then the one that it goes to, if that is another; BIRD as the reflector does
/// the same.
async fn own_clusters(kind: Kind, ground: Ground) {
    let setup = [2, 3, 4]
        .into_iter()
        .fold(Setup::fabric(), |setup, number| {
            let setup = setup.neighbor(Site::v4(number), ASN).carrying(IPV4);
            match number {
                3 => setup.in_cluster(OTHER_CLUSTER),
                _ => setup,
            }
        });
    let setup = setup.reflecting(CLUSTER);
    let setup = setup.neighbor(Site::v4(5), ASN).carrying(IPV4);
    let _reflector = ground.speaker(kind, 1, &setup).await;
    let mut clients = vec![];
    for number in 2..=5 {
        let client = Setup::fabric().neighbor(Site::v4(1), ASN).carrying(IPV4);
        let client = client.announcing(&prefix(number).to_string());
        clients.push(ground.speaker(Kind::Client, number, &client).await);
    }
    // From host, to host, through these clusters.
    let routes: [(u8, u8, &[Ipv4Addr]); 12] = [
        (2, 4, &[CLUSTER]),
        (4, 2, &[CLUSTER]),
        (2, 3, &[OTHER_CLUSTER, CLUSTER]),
        (4, 3, &[OTHER_CLUSTER, CLUSTER]),
        (3, 2, &[CLUSTER, OTHER_CLUSTER]),
        (3, 4, &[CLUSTER, OTHER_CLUSTER]),
        (2, 5, &[CLUSTER]),
        (3, 5, &[OTHER_CLUSTER]),
        (4, 5, &[CLUSTER]),
        (5, 2, &[CLUSTER]),
        (5, 3, &[OTHER_CLUSTER]),
        (5, 4, &[CLUSTER]),
    ];
    for client in &clients {
        let to = routes.iter().filter(|(_, to, _)| *to == client.site.number);
        let expected = to.map(|(from, _, clusters)| {
            let mut route = Route::via(Site::v4(*from)).local_pref(100);
            route.originator_id = Some(Site::v4(*from));
            route.cluster_list = clusters.to_vec();
            (prefix(*from), route)
        });
        client.holds(&expected.collect()).await;
    }
}

/// Tests clients of two reflectors that peer with each other and have clusters of their own: after
/// many changes no speaker keeps a withdrawn route.
async fn no_zombies(kind: Kind, ground: Ground) {
    let pair = Pair::start(kind, &ground, [CLUSTER, OTHER_CLUSTER], true).await;
    let own = Setup::fabric()
        .announcing(&prefix(3).to_string())
        .own
        .remove(0);
    for _ in 0..10 {
        pair.clients[0].withdraw(own.net).await.expect("withdrawn");
        pair.clients[0].announce(&own).await.expect("announced");
    }
    pair.settle(true, Kind::Reflector).await;
    for (client, number) in pair.clients.iter().zip([3, 4]) {
        client.withdraw(prefix(number)).await.expect("withdrawn");
    }
    pair.settle(false, Kind::Reflector).await;
    pair.ours.holds(&Table::new()).await;
    pair.theirs.holds(&Table::new()).await;
    pair.ours.stood(|_| true).await;
}

interop_tests::labs! {
    directions_v4: Bird Gobgp Frr Openbgpd;
    directions_v6: Bird Gobgp Frr Openbgpd;
    one_cluster: Reflector Bird Gobgp Frr Openbgpd;
    two_clusters: Reflector Bird Gobgp Frr Openbgpd;
    own_clusters: Reflector Bird;
    no_zombies: Reflector Bird Gobgp Frr Openbgpd;
}
