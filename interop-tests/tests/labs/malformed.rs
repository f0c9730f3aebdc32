//! Malformed messages of one client do not affect other peers: each row is a message with an error
//! that RFC 7606 covers, sent by a scripted peer to Cambric's reflector, which has one speaker of
//! every kind as a client. The clients receive only well-formed, canonical routes, and keep their
//! sessions.

use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::AttrCode as Code;
use interop_tests::{
    Ground, Kind, Route, Setup, Site, Speaker, Table, in_ground,
    received::{Attributes, Destination},
    sender::{Opening, Sender},
};
use ipnet::Ipv4Net;
use testkit::{Encode, OPTIONAL, OPTIONAL_TRANSITIVE, Update, WELL_KNOWN};

const ASN: u32 = 64512;
const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const IPV4: &[&str] = &["ipv4-unicast"];
/// Flags of an optional attribute that a speaker on the path did not recognize.
const PARTIAL: u8 = 0xe0;

/// Type, flags and value.
type Attribute = (Code, u8, &'static [u8]);

/// The outcome of a message.
enum Outcome {
    /// No error: the route is advertised like any other, with these attributes added.
    Advertised(&'static [Attribute]),
    /// No error, but the route is looped. RFC 4271 §9.1.2, RFC 4456 §8
    Unused,
    /// The route is advertised without the malformed attribute. RFC 7606 §2
    Discarded,
    /// The route is treated as withdrawn. RFC 7606 §2
    Withdrawn,
    /// The session ends with this NOTIFICATION.
    Reset(u8, u8),
}
use Outcome::{Advertised, Discarded, Reset, Unused, Withdrawn};

impl Outcome {
    /// Returns the action that `cambric show malformed` reports; `None` without an error.
    const fn remedy(&self) -> Option<&'static str> {
        match self {
            Advertised(_) | Unused => None,
            Discarded => Some("attribute discard"),
            Withdrawn => Some("treat-as-withdraw"),
            Reset(..) => Some("session reset"),
        }
    }
}

/// One row: the error, the change that makes a good message erroneous, and the outcome.
type Row = (&'static str, fn(Update) -> Update, Outcome);

/// Messages that do not reset the session.
const BORNE: &[Row] = &[
    // RFC 4271 §5.1.5: a missing LOCAL_PREF is no error, and the route is advertised with one.
    (
        "no LOCAL_PREF",
        |u| u.without(Code::LocalPref),
        Advertised(&[]),
    ),
    ("no ORIGIN", |u| u.without(Code::Origin), Withdrawn),
    ("no AS_PATH", |u| u.without(Code::AsPath), Withdrawn),
    ("no NEXT_HOP", |u| u.without(Code::NextHop), Withdrawn),
    (
        "ORIGIN 5",
        |u| u.replacing(WELL_KNOWN, Code::Origin, &[5]),
        Withdrawn,
    ),
    (
        "ORIGIN of two octets",
        |u| u.replacing(WELL_KNOWN, Code::Origin, &[0, 0]),
        Withdrawn,
    ),
    // RFC 7606 §3 c.
    (
        "ORIGIN with the flags of an optional attribute",
        |u| u.replacing(OPTIONAL_TRANSITIVE, Code::Origin, &[0]),
        Withdrawn,
    ),
    // RFC 7606 §3 g: the first one is used.
    (
        "LOCAL_PREF twice",
        |u| u.with(WELL_KNOWN, Code::LocalPref, &[0, 0, 0, 200]),
        Discarded,
    ),
    (
        "LOCAL_PREF of three octets",
        |u| u.replacing(WELL_KNOWN, Code::LocalPref, &[0, 0, 100]),
        Withdrawn,
    ),
    (
        "MED of three octets",
        |u| u.replacing(OPTIONAL, Code::Med, &[0, 0, 7]),
        Withdrawn,
    ),
    (
        "NEXT_HOP 0.0.0.0",
        |u| u.replacing(WELL_KNOWN, Code::NextHop, &[0; 4]),
        Withdrawn,
    ),
    (
        "NEXT_HOP 127.0.0.1",
        |u| u.replacing(WELL_KNOWN, Code::NextHop, &[127, 0, 0, 1]),
        Withdrawn,
    ),
    (
        "NEXT_HOP of five octets",
        |u| u.replacing(WELL_KNOWN, Code::NextHop, &[10; 5]),
        Withdrawn,
    ),
    (
        "an AS_PATH segment that runs past the end",
        |u| u.replacing(WELL_KNOWN, Code::AsPath, &[2, 2, 0, 0, 0xfd, 0xe9]),
        Withdrawn,
    ),
    (
        "an AS_PATH segment of type 9",
        |u| u.replacing(WELL_KNOWN, Code::AsPath, &[9, 1, 0, 0, 0xfd, 0xe9]),
        Withdrawn,
    ),
    (
        "an empty AS_PATH segment",
        |u| u.replacing(WELL_KNOWN, Code::AsPath, &[2, 0]),
        Withdrawn,
    ),
    // RFC 7607 §2.
    (
        "AS 0 in the AS_PATH",
        |u| u.replacing(WELL_KNOWN, Code::AsPath, &[2, 1, 0, 0, 0, 0]),
        Withdrawn,
    ),
    (
        "our own AS in the AS_PATH",
        |u| u.replacing(WELL_KNOWN, Code::AsPath, &[2, 1, 0, 0, 0xfc, 0]),
        Unused,
    ),
    // RFC 9774 §3.
    (
        "an AS_SET in the AS_PATH",
        |u| u.replacing(WELL_KNOWN, Code::AsPath, &[1, 1, 0, 0, 0xfd, 0xe9]),
        Unused,
    ),
    (
        "ATOMIC_AGGREGATE with a value",
        |u| u.with(WELL_KNOWN, Code::AtomicAggregate, &[1]),
        Discarded,
    ),
    (
        "AGGREGATOR of five octets",
        |u| u.with(OPTIONAL_TRANSITIVE, Code::Aggregator, &[0; 5]),
        Discarded,
    ),
    (
        "COMMUNITIES of three octets",
        |u| u.with(OPTIONAL_TRANSITIVE, Code::Communities, &[1, 2, 3]),
        Withdrawn,
    ),
    (
        "COMMUNITIES out of order and twice",
        |u| {
            u.with(
                OPTIONAL_TRANSITIVE,
                Code::Communities,
                &[0, 9, 0, 9, 0, 1, 0, 1, 0, 9, 0, 9],
            )
        },
        Advertised(&[(
            Code::Communities,
            OPTIONAL_TRANSITIVE,
            &[0, 1, 0, 1, 0, 9, 0, 9],
        )]),
    ),
    (
        "EXTENDED_COMMUNITIES of seven octets",
        |u| u.with(OPTIONAL_TRANSITIVE, Code::ExtendedCommunities, &[0; 7]),
        Withdrawn,
    ),
    (
        "LARGE_COMMUNITIES of eleven octets",
        |u| u.with(OPTIONAL_TRANSITIVE, Code::LargeCommunities, &[0; 11]),
        Withdrawn,
    ),
    (
        "ORIGINATOR_ID of three octets",
        |u| u.with(OPTIONAL, Code::OriginatorId, &[10, 7, 7]),
        Withdrawn,
    ),
    (
        "CLUSTER_LIST of five octets",
        |u| u.with(OPTIONAL, Code::ClusterList, &[10; 5]),
        Withdrawn,
    ),
    (
        "our own ORIGINATOR_ID",
        |u| u.with(OPTIONAL, Code::OriginatorId, &[10, 0, 0, 1]),
        Unused,
    ),
    (
        "our own CLUSTER_ID",
        |u| u.with(OPTIONAL, Code::ClusterList, &[10, 9, 9, 9]),
        Unused,
    ),
    // RFC 6793 §3.
    (
        "AS4_PATH among those who need none",
        |u| {
            u.with(
                OPTIONAL_TRANSITIVE,
                Code::As4Path,
                &[2, 1, 0, 0, 0xfd, 0xe9],
            )
        },
        Discarded,
    ),
    (
        "an unknown well-known attribute",
        |u| u.with(WELL_KNOWN, Code(200), &[1]),
        Withdrawn,
    ),
    (
        "an unknown optional attribute",
        |u| u.with(OPTIONAL, Code(201), &[1]),
        Advertised(&[]),
    ),
    (
        "an unknown transitive attribute",
        |u| u.with(OPTIONAL_TRANSITIVE, Code(202), &[1, 2]),
        Advertised(&[(Code(202), PARTIAL, &[1, 2])]),
    ),
    // RFC 7606 §4.
    (
        "an attribute that runs past the others' end",
        |u| u.with_octets(Code::Communities, &[OPTIONAL_TRANSITIVE, 8, 40, 1, 2, 3, 4]),
        Withdrawn,
    ),
    (
        "an attribute of which only the flags are there",
        |u| u.with_octets(Code::Communities, &[OPTIONAL_TRANSITIVE]),
        Withdrawn,
    ),
];

/// Messages that reset the session.
const FATAL: &[Row] = &[
    // RFC 7606 §5.3: the start of the next prefix cannot be determined.
    (
        "a prefix of 33 bits",
        |u| u.announcing_octets(&[33, 10, 0, 0, 0, 0]),
        Reset(3, 10),
    ),
    (
        "a prefix that is cut off",
        |u| u.announcing_octets(&[24, 10]),
        Reset(3, 10),
    ),
    // RFC 7606 §3 g.
    (
        "MP_REACH_NLRI twice",
        |u| {
            let reach = [0, 1, 1, 4, 10, 0, 0, 2, 0, 24, 10, 66, 0];
            let update = u.with(OPTIONAL, Code::MpReach, &reach);
            update.with(OPTIONAL, Code::MpReach, &reach)
        },
        Reset(3, 1),
    ),
    (
        "MP_REACH_NLRI of two octets",
        |u| u.with(OPTIONAL, Code::MpReach, &[0, 1]),
        Reset(3, 9),
    ),
];

/// Attributes that are discarded from an external peer. RFC 7606 §7.5, §7.9, §7.10
const FROM_OUTSIDE: &[Row] = &[
    (
        "LOCAL_PREF",
        |u| u.with(WELL_KNOWN, Code::LocalPref, &[0, 0, 0, 200]),
        Discarded,
    ),
    (
        "a bad LOCAL_PREF",
        |u| u.with(WELL_KNOWN, Code::LocalPref, &[0]),
        Discarded,
    ),
    (
        "ORIGINATOR_ID",
        |u| u.with(OPTIONAL, Code::OriginatorId, &[10, 7, 7, 7]),
        Discarded,
    ),
    (
        "a bad ORIGINATOR_ID",
        |u| u.with(OPTIONAL, Code::OriginatorId, &[10]),
        Discarded,
    ),
    (
        "CLUSTER_LIST",
        |u| u.with(OPTIONAL, Code::ClusterList, &[10, 9, 9, 9]),
        Discarded,
    ),
    (
        "a bad CLUSTER_LIST",
        |u| u.with(OPTIONAL, Code::ClusterList, &[10]),
        Discarded,
    ),
];

#[test]
fn ebgp_peer_sets_no_ibgp_attributes() {
    in_ground(&[], "ebgp_peer_sets_no_ibgp_attributes", async |ground| {
        const OUTSIDE: u32 = 64513;
        let setup = Setup::fabric().neighbor(Site::v4(3), ASN).carrying(IPV4);
        let setup = setup.reflecting(CLUSTER);
        let setup = setup.neighbor(Site::v4(2), OUTSIDE).carrying(IPV4);
        let reflector = ground.speaker(Kind::Reflector, 1, &setup).await;
        let source = ground.site(2).await.expect("a host");
        let sink = ground.site(3).await.expect("a host");
        let opened = Sender::open(&source, Site::v4(1), OUTSIDE).await;
        let mut from = opened.expect("a session");
        let mut to = session(&sink).await;
        for (row, (name, alter, outcome)) in FROM_OUTSIDE.iter().enumerate() {
            let path = [2, 1, 0, 0, 0xfc, 1];
            let update = Update::via(Site::v4(2)).without(Code::LocalPref);
            let update = update.replacing(WELL_KNOWN, Code::AsPath, &path);
            let message = alter(update.announcing(prefix(row)));
            from.send(&message).await.expect("sent");
            let mut wanted =
                canonical(false, &[(Code::AsPath, WELL_KNOWN, &[2, 1, 0, 0, 0xfc, 1])]);
            wanted.remove(&Code::OriginatorId.0);
            wanted.remove(&Code::ClusterList.0);
            let destination = Destination::v4(prefix(row));
            to.receives(name, |received| {
                received.routes.get(&destination) == Some(&wanted)
            })
            .await;
            kept(&reflector, name, &message.octets(), outcome).await;
        }
        assert!(
            to.received.oddities.is_empty(),
            "{:?}",
            to.received.oddities
        );
    });
}

/// Returns the prefix of a row. One row sets its host bits.
fn prefix(row: usize) -> Ipv4Net {
    let number = u8::try_from(row).expect("a row");
    Ipv4Net::new(Ipv4Addr::new(10, 100 + number, 0, 0), 20).expect("a prefix")
}

fn good(row: usize) -> Update {
    Update::via(Site::v4(2)).announcing(prefix(row))
}

/// Returns the erroneous message with a MED, which distinguishes it from the good one.
fn odd(row: usize, alter: fn(Update) -> Update) -> Update {
    let update = Update::via(Site::v4(2)).with(OPTIONAL, Code::Med, &[0, 0, 0, 7]);
    alter(update.announcing(prefix(row)))
}

/// Opens the session of a host.
async fn session(site: &Site) -> Sender {
    let opening = Opening {
        id: Site::v4(site.number),
        ..Opening::of(site, ASN)
    };
    Sender::insist(site, Site::v4(1), &opening).await
}

/// Returns the attributes of a route as the clients receive it.
fn canonical(med: bool, besides: &[Attribute]) -> Attributes {
    let mut attributes = Attributes::from([
        (Code::Origin.0, (WELL_KNOWN, vec![0])),
        (Code::AsPath.0, (WELL_KNOWN, vec![])),
        (Code::NextHop.0, (WELL_KNOWN, vec![10, 0, 0, 2])),
        (Code::LocalPref.0, (WELL_KNOWN, vec![0, 0, 0, 100])),
        (Code::OriginatorId.0, (OPTIONAL, vec![10, 0, 0, 2])),
        (Code::ClusterList.0, (OPTIONAL, vec![10, 9, 9, 9])),
    ]);
    if med {
        attributes.insert(Code::Med.0, (OPTIONAL, vec![0, 0, 0, 7]));
    }
    for (code, flags, value) in besides {
        attributes.insert(code.0, (*flags, value.to_vec()));
    }
    attributes
}

// Promise (BGP): A malformed UPDATE is not propagated, and is kept for the operator.
#[test]
fn malformed_update_is_not_propagated() {
    let behind = [Kind::Bird, Kind::Gobgp, Kind::Frr, Kind::Openbgpd];
    in_ground(
        &behind,
        "malformed_update_is_not_propagated",
        async |ground| {
            let senders = u8::try_from(FATAL.len()).expect("a few rows");
            let numbers = (2..FATAL_HOST + senders).map(Site::v4);
            let setup = numbers.fold(Setup::fabric(), |setup, peer| {
                setup.neighbor(peer, ASN).carrying(IPV4)
            });
            let reflector = ground
                .speaker(Kind::Reflector, 1, &setup.reflecting(CLUSTER))
                .await;
            let client = Setup::fabric().neighbor(Site::v4(1), ASN).carrying(IPV4);
            let mut others = vec![];
            for (number, kind) in (4..).zip(behind) {
                others.push(ground.speaker(kind, number, &client).await);
            }
            let source = ground.site(2).await.expect("a host");
            let sink = ground.site(3).await.expect("a host");
            let mut to = session(&sink).await;
            // All speakers that are to keep their sessions have one.
            reflector
                .has_up(|neighbor| {
                    let others = others
                        .iter()
                        .map(|other| Site::v4(other.site.number).into());
                    let mut all = others.chain([IpAddr::from(Site::v4(3))]);
                    all.any(|address| neighbor.address == Some(address))
                })
                .await;
            fatal_ones(&ground, &mut to, &reflector).await;
            let expected = borne_ones(&source, &mut to, &reflector).await;
            for other in &others {
                other.holds(&expected).await;
            }
            assert!(
                to.received.oddities.is_empty(),
                "{:?}",
                to.received.oddities
            );
            let fatal: Vec<String> = (FATAL_HOST..FATAL_HOST + senders)
                .map(|number| Site::v4(number).to_string())
                .collect();
            let of_fatal = |address: Option<IpAddr>| {
                address.is_some_and(|address| fatal.contains(&address.to_string()))
            };
            reflector
                .stood(|neighbor| !of_fatal(neighbor.address))
                .await;
        },
    );
}

/// The first host of the senders that lose their sessions.
const FATAL_HOST: u8 = 8;

/// Sends each of these, which resets the sender's session and removes all its routes. A peer that
/// loses a session so has to wait before the next: each row has a sender of its own.
async fn fatal_ones(ground: &Ground, to: &mut Sender, reflector: &Speaker) {
    for ((row, (name, alter, outcome)), number) in FATAL.iter().enumerate().zip(FATAL_HOST..) {
        let source = ground.site(number).await.expect("a host");
        let mut from = session(&source).await;
        from.send(good(row)).await.expect("sent");
        to.receives("a good route", |received| received.has(prefix(row)))
            .await;
        from.send(odd(row, *alter)).await.expect("sent");
        let Reset(code, subcode) = outcome else {
            panic!("{name} is in the wrong table");
        };
        from.receives(name, |received| {
            let notification = received.notification.as_ref();
            notification.is_some_and(|notification| {
                (notification.code, notification.subcode) == (*code, *subcode)
            })
        })
        .await;
        to.receives(name, |received| received.routes.is_empty())
            .await;
        kept(reflector, name, &odd(row, *alter).octets(), outcome).await;
    }
}

/// Asserts that the message is the last of those that are recorded for the operator, octet by octet
/// and with its action; without an error it must not be recorded.
async fn kept(reflector: &Speaker, name: &str, message: &[u8], outcome: &Outcome) {
    let body = message[19..].iter();
    let body: String = body.map(|octet| format!("{octet:02x}")).collect();
    let last = reflector.malformed().await.messages.pop();
    let last = last.filter(|last| last.octets == body);
    let remedy = last.map(|last| last.remedy);
    assert_eq!(remedy.as_deref(), outcome.remedy(), "{name}");
}

/// Sends each message that does not reset the session. Returns the routes that all clients must
/// hold.
async fn borne_ones(source: &Site, to: &mut Sender, reflector: &Speaker) -> Table {
    let mut from = session(source).await;
    let flaps = async || {
        let neighbors = reflector.neighbors().await.neighbors;
        let of = neighbors
            .iter()
            .find(|neighbor| neighbor.name == "n10-0-0-2");
        of.expect("the sender").flaps
    };
    let before = flaps().await;
    let mut expected = Table::new();
    for (row, (name, alter, outcome)) in BORNE.iter().enumerate() {
        let destination = Destination::v4(prefix(row));
        let attributes_at = |to: &Sender| to.received.routes.get(&destination).cloned();
        from.send(good(row)).await.expect("sent");
        to.receives("a good route", |received| received.has(prefix(row)))
            .await;
        assert_eq!(
            attributes_at(to),
            Some(canonical(false, &[])),
            "{name}: the good route"
        );
        from.send(odd(row, *alter)).await.expect("sent");
        match outcome {
            Advertised(_) | Discarded => {
                let besides = match outcome {
                    Advertised(besides) => *besides,
                    _ => &[],
                };
                let wanted = canonical(true, besides);
                to.receives(name, |received| {
                    received.routes.get(&destination) == Some(&wanted)
                })
                .await;
                expected.insert(prefix(row).into(), shown(besides));
            }
            Unused | Withdrawn => {
                to.receives(name, |received| !received.has(prefix(row)))
                    .await
            }
            Reset(..) => panic!("{name} is in the wrong table"),
        }
        kept(reflector, name, &odd(row, *alter).octets(), outcome).await;
    }
    // RFC 4271 §4.3: bits beyond the prefix length are ignored.
    let stray = [20, 10, 99, 0x0f];
    let update = Update::via(Site::v4(2)).announcing_octets(&stray);
    from.send(update).await.expect("sent");
    let net = Ipv4Net::new(Ipv4Addr::new(10, 99, 0, 0), 20).expect("a prefix");
    to.receives("a prefix without stray bits", |received| received.has(net))
        .await;
    expected.insert(
        net.into(),
        Route {
            med: None,
            ..shown(&[])
        },
    );
    assert_eq!(flaps().await, before, "the sender's session");
    // The session stays: its end would remove the routes.
    std::mem::forget(from);
    expected
}

/// Returns the same route as the other programs show it.
fn shown(besides: &[Attribute]) -> Route {
    let mut route = Route::via(Site::v4(2)).local_pref(100);
    route.med = Some(7);
    if besides.iter().any(|(code, ..)| *code == Code::Communities) {
        route.communities = ["1:1", "9:9"].map(str::to_owned).into();
    }
    route.reflected(Site::v4(2), CLUSTER)
}
