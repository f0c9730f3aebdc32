//! The parts of the world: peers, groups, prefixes and attributes by number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp_proto::attr::{SegmentKind, TunnelEncapsulation};
use bgp_proto::{
    AsPath, Asn, AttrCode, AttrCodes, Attributes, ClusterId, Community, ExtendedCommunity, Family,
    Ipv4Prefix, Ipv6Prefix, Net, NextHop, Origin, Prefix, RawAttribute, RouterId,
};
use rib::{GroupRules, InterfaceName, NextHopMode, PeerInfo, Policy, Role, SendPaths};

use crate::events::Variant;
use crate::model::{CLUSTER_ID, LOCAL_ASN, OWN_V4, OWN_V6, ROUTER_ID};
use crate::world::Setup;

/// The common properties of a group's members.
pub type GroupKey = (Role, Option<SendPaths>);

pub fn role_of(peer: u16) -> Role {
    match peer {
        1 | 2 => Role::External,
        3 | 4 => Role::Internal,
        _ => Role::Client,
    }
}

/// Returns the interface of a locally originated route, if it has one.
pub fn interface_of(number: u8) -> Option<InterfaceName> {
    let name = ["cali1", "eth0"].get(usize::from(number))?;
    Some(name.parse().expect("short enough"))
}

/// Returns the local AS number of the session with a peer.
const fn session_asn_of(peer: u16) -> Asn {
    if peer == 2 { Asn(64_699) } else { LOCAL_ASN }
}

/// Returns the subnets of the link to a peer, if it is one hop away: they contain the first next hop
/// of each IP version.
pub fn link_of(peer: u16) -> Option<Vec<Prefix>> {
    let v4 = Prefix::new([10, 9, 0, 0].into(), 31);
    let v6 = Prefix::new([0xfd00, 9, 0, 0, 0, 0, 0, 0].into(), 127);
    (peer == 2).then(|| v4.into_iter().chain(v6).collect())
}

/// Returns the attributes restricted to an administrative domain that a peer of another AS may
/// send.
pub fn domain_of(peer: u16) -> AttrCodes {
    let accepted = (peer == 1).then_some(AttrCode::TunnelEncapsulation);
    accepted.into_iter().collect()
}

/// Returns a peer, or another one that has replaced it.
pub fn info_of(peer: u16, alias: bool, import: &Policy) -> PeerInfo {
    let role = role_of(peer);
    let mut info = PeerInfo {
        role,
        asn: if role == Role::External {
            Asn(64_600 + u32::from(peer))
        } else {
            LOCAL_ASN
        },
        id: RouterId(Ipv4Addr::new(10, 0, 1 + u8::from(alias), 9 - peer as u8)),
        address: IpAddr::V4(Ipv4Addr::new(10, 0, 2, peer as u8)),
        local: Some(IpAddr::V4(OWN_V4)),
        import: match peer {
            2 | 6 => import.clone(),
            4 => Policy::RejectAll,
            _ => Policy::AcceptAll,
        },
        local_asn: session_asn_of(peer),
        as_path: Default::default(),
        cluster_id: CLUSTER_ID,
        domain: domain_of(peer),
        link: link_of(peer),
        origin: rib::OriginRules::default(),
    };
    info.as_path.own_as_max = u8::from(peer == 3 || peer == 5);
    info.as_path.allow_as_sets = peer.is_multiple_of(2);
    // Only one of the two external peers; it means nothing for internal ones.
    info.as_path.enforce_first_as = peer != 2;
    // No limit, one that some paths exceed, and one that a path with an AS_SET just meets.
    info.as_path.length_max = peer.saturating_sub(6);
    info
}

pub fn rules_of(setup: &Setup, (role, send): GroupKey) -> GroupRules {
    GroupRules {
        add_path: send.map(|send| (setup.family, send)).into_iter().collect(),
        role,
        local_asn: LOCAL_ASN,
        peer_asn: if role == Role::External {
            Asn(64_600)
        } else {
            LOCAL_ASN
        },
        next_hop: NextHopMode::Auto,
        own_next_hop_v4: Some(OWN_V4),
        own_next_hop_v6: Some(OWN_V6),
        extended_next_hop: false,
        long_lived: false,
        link_bandwidth: setup.link_bandwidth,
        cluster_id: CLUSTER_ID,
        domain: Default::default(),
        export: if role == Role::Internal {
            setup.export.clone()
        } else {
            Policy::AcceptAll
        },
    }
}

pub fn octets_of(family: Family, net: u8, label: u8) -> Vec<u8> {
    match family {
        Family::IPV4_LABELED_UNICAST => vec![48, 0, label, 0x01, 10, net, 0],
        _ => Vec::new(),
    }
}

/// Returns the destination of a number.
pub fn net_of(family: Family, net: u8, octets: &[u8]) -> Net<'_> {
    match family {
        Family::IPV4_UNICAST => Net::V4(Ipv4Prefix::new([10, net, 0, 0].into(), 24).expect("v4")),
        Family::IPV6_UNICAST => {
            let address = Ipv6Addr::new(0x2001, 0xdb8, net.into(), 0, 0, 0, 0, 0);
            Net::V6(Ipv6Prefix::new(address, 48).expect("v6"))
        }
        _ => Net::Opaque(octets),
    }
}

/// Returns the number of a destination, and its octets if it has any of its own.
pub fn index_of(family: Family, net: Net<'_>) -> (u8, Vec<u8>) {
    match net {
        Net::V4(prefix) => (prefix.addr().octets()[1], Vec::new()),
        Net::V6(prefix) => (prefix.addr().segments()[2] as u8, Vec::new()),
        Net::Opaque(octets) => {
            assert_eq!(
                family.row().expect("row").nlri_octets(octets),
                Some(octets.len())
            );
            (octets[5], octets.to_vec())
        }
    }
}

pub fn address_of(family: Family, next_hop: u8) -> NextHop {
    match family {
        Family::IPV6_UNICAST => NextHop::v6(Ipv6Addr::new(
            0xfd00,
            9,
            0,
            0,
            0,
            0,
            0,
            1 + u16::from(next_hop),
        )),
        _ if next_hop == 3 => NextHop::V4(OWN_V4),
        _ => NextHop::V4(Ipv4Addr::new(10, 9, 0, 1 + next_hop)),
    }
}

/// Returns the AS_PATH of a variant: an external peer prepends its own AS, except in variant 4. The
/// last variant ends with an AS_SET.
fn as_path_of(external: Option<u16>, number: u8) -> AsPath {
    let after: [&[u32]; 7] = match external {
        Some(_) => [
            &[],
            &[65_001],
            &[65_002],
            &[64_512],
            &[65_001],
            &[64_699],
            &[],
        ],
        None => [
            &[],
            &[64_601],
            &[64_601, 65_001],
            &[64_602],
            &[64_602, 64_512],
            &[64_602, 64_699],
            &[64_601],
        ],
    };
    let first = external.filter(|_| number != 4);
    let first = first.map(|peer| 64_600 + u32::from(peer));
    let after = after[usize::from(number)].iter().copied();
    let path: Vec<Asn> = first.into_iter().chain(after).map(Asn).collect();
    let set: &[Asn] = match number {
        6 => &[Asn(64_651), Asn(64_652)],
        _ => &[],
    };
    AsPath::from_segments([
        (SegmentKind::Sequence, path.as_slice()),
        (SegmentKind::Set, set),
    ])
}

fn community_of(number: u8) -> Option<Community> {
    match number {
        0 => Some(Community::NO_EXPORT),
        1 => Some(Community::NO_ADVERTISE),
        2 => Some(Community::NO_EXPORT_SUBCONFED),
        3 => Some(Community::new(64_512, 7)),
        4 => Some(Community::GRACEFUL_SHUTDOWN),
        _ => None,
    }
}

/// Returns ORIGINATOR_ID and CLUSTER_LIST that a reflector has added to a route.
fn reflected_of(number: u8) -> (Option<RouterId>, Vec<ClusterId>) {
    let other = RouterId(Ipv4Addr::new(10, 0, 1, 3));
    match number {
        0 => (Some(ROUTER_ID), Vec::new()),
        1 => (Some(other), vec![CLUSTER_ID]),
        2 => (Some(other), vec![ClusterId(Ipv4Addr::new(2, 2, 2, 2))]),
        _ => (None, Vec::new()),
    }
}

pub fn attributes_of(family: Family, peer: u16, variant: &Variant) -> Attributes {
    let external = (role_of(peer) == Role::External && peer != 0).then_some(peer);
    let (originator_id, cluster_list) = match external {
        None if peer != 0 => reflected_of(variant.reflected),
        _ => (None, Vec::new()),
    };
    let mut attributes = Attributes {
        origin: match variant.origin {
            0 => Origin::Igp,
            _ => Origin::Egp,
        },
        as_path: as_path_of(external, variant.as_path),
        next_hop: Some(address_of(family, variant.next_hop)),
        med: [None, Some(10), Some(20)][usize::from(variant.med)],
        local_pref: match external {
            Some(_) => None,
            None => Some([50, 100, 200][usize::from(variant.local_pref)]),
        },
        communities: community_of(variant.community).into_iter().collect(),
        originator_id,
        cluster_list,
        ..Attributes::default()
    };
    if let 1 | 2 = variant.bandwidth {
        let octets_per_s = 1e6 * (1.0 + f32::from(peer));
        let is_transitive = variant.bandwidth == 1;
        attributes.extended_communities = vec![
            ExtendedCommunity::route_target_as2(1, 1),
            ExtendedCommunity::link_bandwidth(64_601, octets_per_s, is_transitive),
        ];
        attributes.extended_communities.sort_unstable();
    }
    if variant.unknown {
        attributes.rare.otc = Some(Asn(64_601));
        attributes.rare.tunnel_encapsulation = TunnelEncapsulation::from_octets(&[0, 8, 0, 0]);
        attributes.unknown = vec![RawAttribute {
            code: AttrCode(200),
            flags: 0xc0,
            value: vec![peer as u8].into_boxed_slice(),
        }];
    }
    attributes
}
