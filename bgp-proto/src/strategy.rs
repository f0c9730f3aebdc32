//! Proptest strategies for messages and attributes, shared by the tests of all crates above.
//!
//! Their values are valid and canonical: encoding and decoding gives the same value.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::{option, sample};

use crate::attr::{FLAG_OPTIONAL, FLAG_TRANSITIVE};
use crate::open::{
    AddPathMode, BgpRole, Capability, CapabilityCode, ExtendedNextHopEntry, GracefulRestart,
    LongLivedEntry, Open, OrfEntry, OrfMode,
};
use crate::{
    AsPath, Asn, AttrCode, Attributes, FAMILIES, Family, Ipv4Prefix, Ipv6Prefix, NextHop,
    Notification, PeerKind, RawAttribute, RefreshSubtype, RouteRefresh, RouterId, SegmentKind,
    SessionParams,
};

/// Generates AS numbers except 0; numbers of two octets as often as larger ones.
pub fn asn() -> impl Strategy<Value = Asn> + Clone {
    prop_oneof![1..=65_535_u32, 65_536..=u32::MAX, Just(Asn::TRANS.0)].prop_map(Asn)
}

/// Generates BGP identifiers except 0.
pub fn router_id() -> impl Strategy<Value = RouterId> + Clone {
    (1..=u32::MAX).prop_map(RouterId::from)
}

/// Generates IPv4 prefixes of all lengths.
pub fn ipv4_prefix() -> impl Strategy<Value = Ipv4Prefix> + Clone {
    (any::<u32>(), 0..=32_u8).prop_filter_map("length", |(addr, len)| {
        Ipv4Prefix::new(Ipv4Addr::from(addr), len)
    })
}

/// Generates IPv6 prefixes of all lengths.
pub fn ipv6_prefix() -> impl Strategy<Value = Ipv6Prefix> + Clone {
    (any::<u128>(), 0..=128_u8).prop_filter_map("length", |(addr, len)| {
        Ipv6Prefix::new(Ipv6Addr::from(addr), len)
    })
}

/// Families that have a row.
pub fn family() -> impl Strategy<Value = Family> + Clone {
    sample::select(FAMILIES).prop_map(|row| row.family)
}

/// Generates one NLRI of a family as octets, in the family's framing.
pub fn nlri_octets(family: Family) -> BoxedStrategy<Vec<u8>> {
    use crate::Framing;
    let bits = |min: u8, max: u8| {
        (min..=max).prop_flat_map(|bits| {
            vec(any::<u8>(), usize::from(bits).div_ceil(8)).prop_map(move |mut value| {
                if let (spare @ 1..=7, Some(last)) = ((8 - bits % 8) % 8, value.last_mut()) {
                    *last &= 0xff << spare;
                }
                value.insert(0, bits);
                value
            })
        })
    };
    match family.row().map(|row| row.framing) {
        Some(Framing::Ipv4) => bits(0, 32).boxed(),
        Some(Framing::Ipv6) => bits(0, 128).boxed(),
        Some(Framing::Bits { min, max }) => bits(min, max).boxed(),
        Some(Framing::RouteTarget) => prop_oneof![Just(Vec::from([0])), bits(32, 96)].boxed(),
        Some(Framing::TypeLength) => (any::<u8>(), vec(any::<u8>(), 0..60))
            .prop_map(|(kind, mut value)| {
                let len = u8::try_from(value.len()).unwrap_or(0);
                value.splice(0..0, [kind, len]);
                value
            })
            .boxed(),
        Some(Framing::Flowspec) => vec(any::<u8>(), 0..300)
            .prop_map(|mut value| {
                let len = u16::try_from(value.len()).unwrap_or(0);
                let [high, low] = len.to_be_bytes();
                if len < 240 {
                    value.insert(0, low);
                } else {
                    value.splice(0..0, [0xf0 | high, low]);
                }
                value
            })
            .boxed(),
        None => Just(Vec::new()).boxed(),
    }
}

/// Generates AS paths with all kinds of segments; confederation segments only with
/// `confederations`.
pub fn as_path(confederations: bool) -> impl Strategy<Value = AsPath> {
    let kinds = [
        SegmentKind::Sequence,
        SegmentKind::Set,
        SegmentKind::ConfedSequence,
        SegmentKind::ConfedSet,
    ];
    let kinds = kinds
        .get(..if confederations { 4 } else { 2 })
        .unwrap_or_default()
        .to_vec();
    let asns = prop_oneof![9 => vec(asn(), 1..8), 1 => vec(asn(), 250..300)];
    vec((sample::select(kinds), asns), 0..4).prop_map(|segments| {
        AsPath::from_segments(segments.iter().map(|(kind, asns)| (*kind, asns.as_slice())))
    })
}

/// Generates IPv4 addresses that traffic can be sent to.
pub fn ipv4_unicast() -> impl Strategy<Value = Ipv4Addr> + Clone {
    prop_oneof![0x0100_0000..=0x7eff_ffff_u32, 0x8000_0000..=0xdfff_ffff_u32]
        .prop_map(Ipv4Addr::from)
}

/// Generates global IPv6 addresses that traffic can be sent to.
pub fn ipv6_unicast() -> impl Strategy<Value = Ipv6Addr> + Clone {
    (0x2000_u128..0x4000, any::<u128>())
        .prop_map(|(top, rest)| Ipv6Addr::from(top << 112 | rest >> 16))
}

/// Generates IPv6 next hops, with and without a link-local address.
pub fn next_hop_v6() -> impl Strategy<Value = NextHop> {
    let local = any::<u64>().prop_map(|host| Ipv6Addr::from(0xfe80 << 112 | u128::from(host)));
    (ipv6_unicast(), option::of(local))
        .prop_map(|(global, link_local)| NextHop::V6 { global, link_local })
}

fn unknown() -> impl Strategy<Value = RawAttribute> {
    // Transitive and partial, so that they survive being passed on.
    let codes = (1..=255_u8).prop_filter("a code without a row", |code| {
        crate::attr::row(AttrCode(*code)).is_none()
    });
    (codes, vec(any::<u8>(), 0..300)).prop_map(|(code, value)| RawAttribute {
        code: AttrCode(code),
        flags: FLAG_OPTIONAL | FLAG_TRANSITIVE | crate::attr::FLAG_PARTIAL,
        value: value.into_boxed_slice(),
    })
}

/// Sets as they appear on an internal session, canonical, with an IPv4 next hop.
pub fn attributes(confederations: bool) -> impl Strategy<Value = Attributes> {
    let partial = vec(any::<sample::Index>(), 0..4);
    let fields = Attributes::strategy(confederations);
    (fields, vec(unknown(), 0..3), partial).prop_map(|(mut set, mut unknown, partial)| {
        unknown.sort();
        unknown.dedup_by_key(|attr| attr.code);
        set.unknown = unknown;
        let codes: Vec<AttrCode> = set.reports().into_iter().map(|(code, _)| code).collect();
        for index in partial {
            let code = *index.get(&codes);
            if crate::attr::row(code).is_some_and(|row| row.can_be_partial()) {
                set.rare.partial.insert(code);
            }
        }
        set.canonicalize();
        set
    })
}

fn any_family() -> impl Strategy<Value = Family> + Clone {
    prop_oneof![
        9 => family(),
        1 => (any::<u16>(), any::<u8>()).prop_map(|(afi, safi)| Family::new(afi, safi)),
    ]
}

fn text() -> impl Strategy<Value = String> {
    "[a-z0-9ü.-]{0,40}"
}

/// Capabilities of every kind.
pub fn capability() -> impl Strategy<Value = Capability> {
    let flagged = || vec((any_family(), any::<bool>()), 0..4);
    let modes =
        sample::select([AddPathMode::Receive, AddPathMode::Send, AddPathMode::Both].as_slice());
    let graceful = (
        any::<bool>(),
        any::<bool>(),
        0..=GracefulRestart::TIME_S_MAX,
        flagged(),
    )
        .prop_map(|(restart_state, notification, time_s, families)| {
            Capability::GracefulRestart(GracefulRestart {
                restart_state,
                notification,
                time_s,
                families,
            })
        });
    let long_lived = (any_family(), any::<bool>(), 0..1_u32 << 24).prop_map(
        |(family, forwarding, stale_time_s)| LongLivedEntry {
            family,
            forwarding,
            stale_time_s,
        },
    );
    let extended_next_hop =
        any::<[u16; 3]>().prop_map(|[afi, safi, next_hop_afi]| ExtendedNextHopEntry {
            afi,
            safi,
            next_hop_afi,
        });
    let orf_type = (any::<u8>(), any::<u8>().prop_map(OrfMode));
    let orf =
        (any_family(), vec(orf_type, 0..3)).prop_map(|(family, types)| OrfEntry { family, types });
    prop_oneof![
        any_family().prop_map(Capability::MultiProtocol),
        sample::select(
            [
                Capability::RouteRefresh,
                Capability::RouteRefreshPreStandard,
                Capability::ExtendedMessage,
                Capability::EnhancedRouteRefresh,
                Capability::BfdStrictMode,
                Capability::LinkLocalNextHop,
            ]
            .as_slice()
        ),
        vec(orf, 0..3).prop_map(Capability::OutboundRouteFiltering),
        vec(extended_next_hop, 0..3).prop_map(Capability::ExtendedNextHop),
        any::<u8>().prop_map(|role| Capability::Role(BgpRole(role))),
        graceful,
        any::<u32>().prop_map(|asn| Capability::FourOctetAsn(Asn(asn))),
        vec(any::<u8>().prop_map(CapabilityCode), 0..5).prop_map(Capability::DynamicCapability),
        vec((any_family(), modes), 0..4).prop_map(Capability::AddPath),
        vec(long_lived, 0..4).prop_map(Capability::LongLivedGracefulRestart),
        (text(), text()).prop_map(|(hostname, domain)| Capability::Fqdn { hostname, domain }),
        text().prop_map(Capability::SoftwareVersion),
        vec((any_family(), any::<u16>()), 0..4).prop_map(Capability::PathsLimit),
        (140..=255_u8, vec(any::<u8>(), 0..20))
            .prop_map(|(code, data)| Capability::Unknown { code, data }),
    ]
}

/// Generates OPENs, some of them with so many capabilities that RFC 9072 is needed.
pub fn open() -> impl Strategy<Value = Open> {
    let hold_time = prop_oneof![Just(0_u16), 3..=u16::MAX];
    let fields = (
        1..=65_535_u32,
        hold_time,
        router_id(),
        vec(capability(), 0..30),
    );
    fields.prop_map(|(asn, hold_time, id, capabilities)| Open {
        asn: Asn(asn),
        hold_time,
        id,
        capabilities,
    })
}

/// Generates NOTIFICATIONs of any code.
pub fn notification() -> impl Strategy<Value = Notification> {
    (any::<u8>(), any::<u8>(), vec(any::<u8>(), 0..60)).prop_map(|(code, subcode, data)| {
        Notification {
            code,
            subcode,
            data: Bytes::from(data),
        }
    })
}

/// Generates ROUTE-REFRESHs of any family.
pub fn route_refresh() -> impl Strategy<Value = RouteRefresh> {
    (any_family(), any::<u8>()).prop_map(|(family, subtype)| RouteRefresh {
        family,
        subtype: RefreshSubtype(subtype),
    })
}

/// Generates possible results of the negotiation of a session.
pub fn session_params() -> impl Strategy<Value = SessionParams> {
    let families = || vec(family(), 0..8).prop_map(|list| list.into_iter().collect());
    (any::<[bool; 5]>(), families(), families()).prop_map(
        |([internal, as4, extended, next_hop, mapped], families, add_path)| SessionParams {
            kind: if internal {
                PeerKind::Internal
            } else {
                PeerKind::External
            },
            as4,
            families,
            add_path_receive: add_path,
            add_path_send: add_path,
            extended_receive: extended,
            extended_send: extended,
            extended_next_hop: next_hop,
            v4_mapped_next_hop: mapped,
            ..SessionParams::default()
        },
    )
}
