//! Families that Cambric's reflector carries as opaque octets: a route leaves octet for octet as it
//! arrived, and a withdrawal finds its route by the key of the family.
//!
//! Each lab has a source that originates routes, received by scripted peers twice: once directly,
//! once through the reflector. Speakers of the other kinds are clients of the reflector, too, and
//! must understand the routes.
//!
//! Known differences:
//! * Of these families, OpenBGPD 7.7 supports only VPNs, and originates none without an MPLS
//!   interface of OpenBSD. It keeps VPN routes that are withdrawn, also when FRR withdraws them
//!   directly. BIRD 2.0.12 supports VPNs and flow specifications; FRR originates neither flow
//!   specifications nor, without zebra, Ethernet VPN routes. GoBGP originates all, but route
//!   targets only of its own VRFs: a scripted peer sends these.

use std::net::Ipv4Addr;

use bgp_proto::{AttrCode as Code, Family};
use interop_tests::{
    Ground, Kind, PATIENCE, Setup, Site, Speaker, in_ground,
    received::{Attributes, Received},
    sender::{Opening, Sender},
};
use testkit::{OPTIONAL, Update};

const ASN: u32 = 64512;
const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);

const FAMILIES: [Family; 7] = [
    Family::IPV4_VPN,
    Family::IPV6_VPN,
    Family::L2VPN_EVPN,
    Family::IPV4_FLOWSPEC,
    Family::IPV6_FLOWSPEC,
    Family::IPV4_LABELED_UNICAST,
    Family::IPV6_LABELED_UNICAST,
];

/// Returns the families of [`FAMILIES`] that a program supports.
const fn carried(kind: Kind) -> &'static [&'static str] {
    match kind {
        Bird => &["ipv4-vpn", "ipv6-vpn", "ipv4-flowspec", "ipv6-flowspec"],
        Openbgpd => &["ipv4-vpn", "ipv6-vpn"],
        _ => &[
            "ipv4-vpn",
            "ipv6-vpn",
            "l2vpn-evpn",
            "ipv4-flowspec",
            "ipv6-flowspec",
            "ipv4-labeled-unicast",
            "ipv6-labeled-unicast",
        ],
    }
}

/// A route of a source, in the syntax of its program.
struct Origin {
    announce: &'static str,
    withdraw: &'static str,
    /// How other programs show it: the program, the command, and a part of the output.
    shown: &'static [(Kind, &'static str, &'static str)],
}

use Kind::{Bird, Frr, Gobgp, Openbgpd};

const GOBGP: &[Origin] = &[
    Origin {
        announce: "global rib add 10.66.0.0/24 label 100 rd 64512:1 rt 64512:1 -a vpnv4",
        withdraw: "global rib del 10.66.0.0/24 label 100 rd 64512:1 -a vpnv4",
        shown: &[
            (Frr, "show bgp ipv4 vpn", "10.66.0.0/24"),
            (Bird, "show route all table own4", "64512:1 10.66.0.0/24"),
            (Openbgpd, "show rib", "rd 64512:1 10.66.0.0/24"),
        ],
    },
    Origin {
        announce: "global rib add fd66::/64 label 101 rd 64512:1 rt 64512:1 nexthop fd00::2 -a vpnv6",
        withdraw: "global rib del fd66::/64 label 101 rd 64512:1 -a vpnv6",
        shown: &[
            (Frr, "show bgp ipv6 vpn", "fd66::/64"),
            (Bird, "show route all table own6", "64512:1 fd66::/64"),
            (Openbgpd, "show rib", "rd 64512:1 fd66::/64"),
        ],
    },
    Origin {
        announce: "global rib add macadv 02:00:00:00:00:01 10.66.0.5 etag 0 label 1000 \
                   rd 64512:1 rt 64512:1 encap vxlan -a evpn",
        withdraw: "global rib del macadv 02:00:00:00:00:01 10.66.0.5 etag 0 label 1000 \
                   rd 64512:1 -a evpn",
        shown: &[(
            Frr,
            "show bgp l2vpn evpn",
            "[2]:[0]:[48]:[02:00:00:00:00:01]",
        )],
    },
    Origin {
        announce: "global rib add multicast 10.0.0.2 etag 0 rd 64512:1 rt 64512:1 -a evpn",
        withdraw: "global rib del multicast 10.0.0.2 etag 0 rd 64512:1 -a evpn",
        shown: &[(Frr, "show bgp l2vpn evpn", "[3]:[0]:[32]:[10.0.0.2]")],
    },
    Origin {
        announce: "global rib add prefix 10.66.1.0/24 gw 10.0.0.2 etag 0 label 55 rd 64512:1 \
                   rt 64512:1 -a evpn",
        withdraw: "global rib del prefix 10.66.1.0/24 gw 10.0.0.2 etag 0 label 55 rd 64512:1 \
                   -a evpn",
        shown: &[(Frr, "show bgp l2vpn evpn", "[5]:[0]:[24]:[10.66.1.0]")],
    },
    Origin {
        announce: "global rib add esi 10.0.0.2 esi ARBITRARY 11:11:22:22:33:33:44:44:55 \
                   rd 64512:1 rt 64512:1 -a evpn",
        withdraw: "global rib del esi 10.0.0.2 esi ARBITRARY 11:11:22:22:33:33:44:44:55 \
                   rd 64512:1 -a evpn",
        shown: &[(
            Frr,
            "show bgp l2vpn evpn",
            "[4]:[00:11:11:22:22:33:33:44:44:55]",
        )],
    },
    Origin {
        announce: "global rib add match destination 10.66.2.0/24 protocol tcp \
                   destination-port ==80 then discard -a ipv4-flowspec",
        withdraw: "global rib del match destination 10.66.2.0/24 protocol tcp \
                   destination-port ==80 -a ipv4-flowspec",
        shown: &[
            (Frr, "show bgp ipv4 flowspec detail", "10.66.2.0/24"),
            (Bird, "show route all table flows4", "dst 10.66.2.0/24"),
        ],
    },
    Origin {
        announce: "global rib add match destination fd66::/64 then discard -a ipv6-flowspec",
        withdraw: "global rib del match destination fd66::/64 -a ipv6-flowspec",
        shown: &[(Bird, "show route all table flows6", "dst fd66::/64")],
    },
    Origin {
        announce: "global rib add 10.66.3.0/24 102 -a ipv4-mpls",
        withdraw: "global rib del 10.66.3.0/24 102 -a ipv4-mpls",
        shown: &[(Frr, "show bgp ipv4 labeled-unicast", "10.66.3.0/24")],
    },
    Origin {
        announce: "global rib add fd66:3::/64 103 nexthop fd00::2 -a ipv6-mpls",
        withdraw: "global rib del fd66:3::/64 103 -a ipv6-mpls",
        shown: &[(Frr, "show bgp ipv6 labeled-unicast", "fd66:3::/64")],
    },
];

const FRR: &[Origin] = &[
    Origin {
        announce: "configure terminal\nrouter bgp 64512\naddress-family ipv4 vpn\n\
                   network 10.67.0.0/24 rd 64512:2 label 200",
        withdraw: "configure terminal\nrouter bgp 64512\naddress-family ipv4 vpn\n\
                   no network 10.67.0.0/24 rd 64512:2 label 200",
        shown: &[
            (Gobgp, "global rib -a vpnv4", "64512:2:10.67.0.0/24"),
            (Bird, "show route all table own4", "64512:2 10.67.0.0/24"),
            (Openbgpd, "show rib", "rd 64512:2 10.67.0.0/24"),
        ],
    },
    Origin {
        announce: "configure terminal\nrouter bgp 64512\naddress-family ipv6 vpn\n\
                   network fd67::/64 rd 64512:2 label 201",
        withdraw: "configure terminal\nrouter bgp 64512\naddress-family ipv6 vpn\n\
                   no network fd67::/64 rd 64512:2 label 201",
        shown: &[(Gobgp, "global rib -a vpnv6", "64512:2:fd67::/64")],
    },
];

const BIRD: &[Origin] = &[
    Origin {
        announce: "enable own_vpn4",
        withdraw: "disable own_vpn4",
        shown: &[
            (Frr, "show bgp ipv4 vpn", "10.68.0.0/24"),
            (Gobgp, "global rib -a vpnv4", "64512:3:10.68.0.0/24"),
            (Openbgpd, "show rib", "rd 64512:3 10.68.0.0/24"),
        ],
    },
    Origin {
        announce: "enable own_flow4",
        withdraw: "disable own_flow4",
        shown: &[
            (Frr, "show bgp ipv4 flowspec detail", "10.68.2.0/24"),
            (Gobgp, "global rib -a ipv4-flowspec", "10.68.2.0/24"),
        ],
    },
    Origin {
        announce: "enable own_flow6",
        withdraw: "disable own_flow6",
        shown: &[(Gobgp, "global rib -a ipv6-flowspec", "fd68::/64")],
    },
];

/// The same routes in BIRD's configuration, not announced yet.
const BIRD_OWN: &str = "
protocol static own_vpn4 { disabled; vpn4 { table own4; };
  route 64512:3 10.68.0.0/24 via 10.0.0.2 mpls 300 {
    bgp_ext_community.add((rt, 64512, 3)); }; }
protocol static own_flow4 { disabled; flow4 { table flows4; };
  route flow4 { dst 10.68.2.0/24; proto = 6; dport = 80 || > 1023; } {
    bgp_ext_community.add((generic, 0x80060000, 0)); }; }
protocol static own_flow6 { disabled; flow6 { table flows6; };
  route flow6 { dst fd68::/64; next header 17; } {
    bgp_ext_community.add((generic, 0x80060000, 0)); }; }
";

/// Opens a scripted peer of `to` on host `number`.
async fn by_hand(ground: &Ground, number: u8, to: u8, families: &[Family]) -> Sender {
    let site = ground.site(number).await.expect("a host");
    let opening = Opening {
        asn: ASN,
        id: Site::v4(number),
        // GoBGP 3.10 closes a session with hold time 0 at its first UPDATE.
        hold_time: 600,
        families,
    };
    Sender::insist(&site, Site::v4(to), &opening).await
}

/// Returns the attributes as they were before the reflector.
fn unreflected(attributes: &Attributes) -> Attributes {
    let mut attributes = attributes.clone();
    attributes.remove(&Code::OriginatorId.0);
    attributes.remove(&Code::ClusterList.0);
    attributes
}

fn same(direct: &Received, reflected: &Received) -> bool {
    let reflected = reflected.routes.iter();
    let reflected = reflected.map(|(net, attributes)| (net, unreflected(attributes)));
    let direct = direct.routes.iter();
    direct
        .map(|(net, attributes)| (net, attributes.clone()))
        .eq(reflected)
}

/// Tests a reflector on host 1 and the source on host 2; hosts 3 and 4 receive through the
/// reflector and directly.
async fn octet_for_octet(source: Kind, own: &[Origin], ground: Ground) {
    let others: Vec<Kind> = [Gobgp, Frr, Bird, Openbgpd].into_iter().collect();
    let others: Vec<_> = (5..)
        .zip(others.into_iter().filter(|kind| *kind != source))
        .collect();
    let with = |setup: Setup, number: u8, kind: Kind| {
        setup
            .neighbor(Site::v4(number), ASN)
            .carrying(carried(kind))
    };
    let reflector = with(Setup::fabric(), 2, source);
    let reflector = others
        .iter()
        .fold(with(reflector, 3, Gobgp), |setup, (number, kind)| {
            with(setup, *number, *kind)
        });
    let reflector = ground
        .speaker(Kind::Reflector, 1, &reflector.reflecting(CLUSTER))
        .await;
    let mut setup = with(with(Setup::fabric(), 1, source), 4, source);
    if source == Bird {
        setup.extra = BIRD_OWN.to_owned();
    }
    let source = ground.speaker(source, 2, &setup).await;
    let mut behind = vec![];
    for (number, kind) in others {
        let setup = with(Setup::fabric(), 1, kind);
        behind.push(ground.speaker(kind, number, &setup).await);
    }
    let mut reflected = by_hand(&ground, 3, 1, &FAMILIES).await;
    let mut direct = by_hand(&ground, 4, 2, &FAMILIES).await;

    for (at, origin) in own.iter().enumerate() {
        source.command(origin.announce).await.expect("announced");
        direct
            .receives(origin.announce, |received| received.routes.len() == at + 1)
            .await;
        let received = direct.received.clone();
        reflected
            .receives(origin.announce, |reflected| same(&received, reflected))
            .await;
        shown(&behind, origin, true).await;
    }
    for (at, origin) in own.iter().enumerate() {
        source.command(origin.withdraw).await.expect("withdrawn");
        direct
            .receives(origin.withdraw, |received| {
                received.routes.len() == own.len() - at - 1
            })
            .await;
        let received = direct.received.clone();
        reflected
            .receives(origin.withdraw, |reflected| same(&received, reflected))
            .await;
        shown(&behind, origin, false).await;
    }
    assert!(
        reflected.received.oddities.is_empty(),
        "{:?}",
        reflected.received.oddities
    );
    reflector.stood(|_| true).await;
    let neighbors = reflector.neighbors().await.neighbors;
    assert!(neighbors.iter().all(|neighbor| neighbor.faults == 0));
}

/// Waits until all clients of the reflector show the route, or none does.
async fn shown(behind: &[Speaker], origin: &Origin, is: bool) {
    for (kind, question, answer) in origin.shown {
        if *kind == Openbgpd && !is {
            continue; // a known difference
        }
        let speaker = behind.iter().find(|speaker| speaker.kind == *kind);
        let speaker = speaker.expect("one of each kind");
        let what = format!("{kind:?} on {}", origin.announce);
        let found = netns_lab::until(PATIENCE, &what, async || {
            let text = speaker.command(question).await?;
            Ok::<_, netns_lab::Error>(if text.contains(answer) == is {
                Ok(())
            } else {
                Err(text)
            })
        });
        if let Err(error) = found.await {
            panic!("{error}\n{}", speaker.log_tail());
        }
    }
}

const ALL: [Kind; 4] = [Gobgp, Frr, Bird, Openbgpd];

#[test]
fn opaque_families_of_gobgp_are_advertised_unchanged() {
    in_ground(&ALL, "opaque families from GoBGP", async |ground| {
        octet_for_octet(Gobgp, GOBGP, ground).await;
    });
}

#[test]
fn opaque_families_of_frr_are_advertised_unchanged() {
    in_ground(&ALL, "opaque families from FRR", async |ground| {
        octet_for_octet(Frr, FRR, ground).await;
    });
}

#[test]
fn opaque_families_of_bird_are_advertised_unchanged() {
    in_ground(&ALL, "opaque families from BIRD", async |ground| {
        octet_for_octet(Bird, BIRD, ground).await;
    });
}

/// One route of a scripted peer: its description, its announcement, and its withdrawal.
type Row = (
    &'static str,
    Family,
    &'static [u8],
    &'static [u8],
    &'static [u8],
);

const HOP: &[u8] = &[10, 0, 0, 2];
const VPN_HOP: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];

const BY_KEY: &[Row] = &[
    (
        // RFC 8277 §2.4: any label withdraws.
        "a VPN route, withdrawn with label 0x800000",
        Family::IPV4_VPN,
        VPN_HOP,
        &[112, 0, 6, 0x41, 0, 0, 0xfc, 0, 0, 0, 0, 1, 10, 66, 0],
        &[112, 0x80, 0, 0, 0, 0, 0xfc, 0, 0, 0, 0, 1, 10, 66, 0],
    ),
    (
        "a labeled route, withdrawn with label 0",
        Family::IPV4_LABELED_UNICAST,
        HOP,
        &[48, 0, 6, 0x41, 10, 66, 0],
        &[48, 0, 0, 0, 10, 66, 0],
    ),
    (
        // RFC 7432 §7.2: the segment and the labels are not part of the key.
        "a MAC, withdrawn with another segment and another label",
        Family::L2VPN_EVPN,
        HOP,
        &[
            2, 33, 0, 0, 0xfc, 0, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 48, 2, 0,
            0, 0, 0, 1, 0, 0, 6, 0x41,
        ],
        &[
            2, 33, 0, 0, 0xfc, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 48, 2, 0,
            0, 0, 0, 1, 0, 0, 0, 0,
        ],
    ),
    (
        // RFC 8955 §4: no next hop.
        "a flow specification",
        Family::IPV4_FLOWSPEC,
        &[],
        &[8, 1, 24, 10, 66, 0, 3, 0x81, 6],
        &[8, 1, 24, 10, 66, 0, 3, 0x81, 6],
    ),
];

fn reach(family: Family, hop: &[u8], nlri: &[u8]) -> Update {
    let hop_len = u8::try_from(hop.len()).expect("a next hop that fits");
    let head = [&family.afi.to_be_bytes()[..], &[family.safi, hop_len]].concat();
    let value = [&head[..], hop, &[0], nlri].concat();
    let update = Update::via(Site::v4(2)).without(Code::NextHop);
    update.with(OPTIONAL, Code::MpReach, &value)
}

fn unreach(family: Family, nlri: &[u8]) -> Update {
    let value = [&family.afi.to_be_bytes()[..], &[family.safi], nlri].concat();
    Update::default().with(OPTIONAL, Code::MpUnreach, &value)
}

#[test]
fn withdrawals_find_their_route() {
    let name = "withdrawals_find_their_route";
    const NAMES: &[&str] = &[
        "ipv4-vpn",
        "ipv4-labeled-unicast",
        "l2vpn-evpn",
        "ipv4-flowspec",
    ];
    in_ground(&[], name, async |ground| {
        let families: Vec<Family> = NAMES
            .iter()
            .map(|name| name.parse().expect("known"))
            .collect();
        let reflector = Setup::fabric().neighbor(Site::v4(2), ASN).carrying(NAMES);
        let reflector = reflector.neighbor(Site::v4(3), ASN).carrying(NAMES);
        let _reflector = ground
            .speaker(Kind::Reflector, 1, &reflector.reflecting(CLUSTER))
            .await;
        let mut from = by_hand(&ground, 2, 1, &families).await;
        let mut to = by_hand(&ground, 3, 1, &families).await;
        for (name, family, hop, announced, withdrawn) in BY_KEY {
            from.send(reach(*family, hop, announced))
                .await
                .expect("sent");
            to.receives(name, |received| {
                let routes: Vec<_> = received.routes.iter().collect();
                let [(destination, attributes)] = routes[..] else {
                    return false;
                };
                let next_hop = attributes
                    .get(&Code::MpReach.0)
                    .map(|(_, hop)| hop.as_slice());
                destination.nlri == *announced && next_hop.unwrap_or_default() == *hop
            })
            .await;
            from.send(unreach(*family, withdrawn)).await.expect("sent");
            to.receives(name, |received| received.routes.is_empty())
                .await;
        }
        assert!(
            to.received.oddities.is_empty(),
            "{:?}",
            to.received.oddities
        );
    });
}
