use super::*;
use crate::{Asn, Family, Notification, RouterId};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use bytes::BytesMut;

fn open(capabilities: Vec<Capability>) -> Open {
    Open {
        asn: Asn(64_512),
        hold_time: 90,
        id: RouterId::from([10, 0, 0, 1]),
        capabilities,
    }
}

fn body(open: &Open) -> Vec<u8> {
    let mut out = BytesMut::new();
    open.encode(&mut out);
    out.split_off(crate::HEADER_OCTETS).to_vec()
}

fn every_capability() -> Vec<Capability> {
    let (v4, v6) = (Family::IPV4_UNICAST, Family::IPV6_UNICAST);
    vec![
        Capability::MultiProtocol(v4),
        Capability::MultiProtocol(Family::new(16_388, 71)),
        Capability::RouteRefresh,
        Capability::RouteRefreshPreStandard,
        Capability::OutboundRouteFiltering(vec![OrfEntry {
            family: v4,
            types: vec![(64, OrfMode::Both)],
        }]),
        Capability::ExtendedNextHop(vec![ExtendedNextHopEntry {
            afi: 1,
            safi: 1,
            next_hop_afi: 2,
        }]),
        Capability::ExtendedMessage,
        Capability::Role(BgpRole::Customer),
        Capability::GracefulRestart(GracefulRestart {
            restart_state: true,
            notification: true,
            time_s: 120,
            families: vec![(v4, true), (v6, false)],
        }),
        Capability::FourOctetAsn(Asn(4_200_000_000)),
        Capability::DynamicCapability(vec![CapabilityCode::MultiProtocol, CapabilityCode(99)]),
        Capability::AddPath(vec![(v4, AddPathMode::Both), (v6, AddPathMode::Receive)]),
        Capability::EnhancedRouteRefresh,
        Capability::LongLivedGracefulRestart(vec![LongLivedEntry {
            family: v4,
            forwarding: true,
            stale_time_s: 86_400,
        }]),
        Capability::Fqdn {
            hostname: "node1".into(),
            domain: "example".into(),
        },
        Capability::BfdStrictMode,
        Capability::SoftwareVersion("cambric/0.1".into()),
        Capability::PathsLimit(vec![(v4, 8)]),
        Capability::LinkLocalNextHop,
        Capability::Unknown {
            code: 200,
            data: vec![1, 2, 3],
        },
    ]
}

#[test]
fn round_trips_every_capability() {
    let open = open(every_capability());
    assert_eq!(Open::parse(&body(&open)), Ok(open));
}

#[test]
fn uses_the_extended_form_when_it_must() {
    // covers RFC 9072 §2
    let many: Vec<_> = (0..60)
        .map(|index| Capability::Unknown {
            code: 200,
            data: vec![index; 9],
        })
        .collect();
    let open = open(many);
    let octets = body(&open);
    assert_eq!(octets[9..14], [255, 255, 0x02, 0x97, 2]);
    assert_eq!(Open::parse(&octets), Ok(open));
}

#[test]
fn plain_form_holds_up_to_253_octets() {
    // 253 octets of capabilities fit, 254 do not.
    for (len, extended) in [(251, false), (252, true)] {
        let open = open(vec![Capability::Unknown {
            code: 200,
            data: vec![7; len],
        }]);
        let octets = body(&open);
        assert_eq!(octets[10] == 255, extended, "{len}");
        assert_eq!(Open::parse(&octets), Ok(open));
    }
}

#[test]
fn accepts_one_parameter_for_each_capability() {
    let octets = [
        4, 0xfc, 0x00, 0, 180, 10, 0, 0, 4, 22, //
        2, 6, 1, 4, 0, 1, 0, 1, // MP ipv4-unicast
        2, 2, 128, 0, // old route refresh
        2, 2, 71, 0, // LLGR without families
        2, 4, 64, 2, 0x80, 0, // GR, R set, no families
    ];
    let open = Open::parse(&octets).unwrap();
    assert_eq!(
        open.capabilities,
        [
            Capability::MultiProtocol(Family::IPV4_UNICAST),
            Capability::RouteRefreshPreStandard,
            Capability::LongLivedGracefulRestart(vec![]),
            Capability::GracefulRestart(GracefulRestart {
                restart_state: true,
                ..GracefulRestart::default()
            }),
        ]
    );
}

#[test]
fn unreadable_capability_is_kept_as_unknown() {
    let octets = [
        4, 0xfc, 0, 0, 90, 10, 0, 0, 4, 9, 2, 7, 65, 2, 0, 1, 2, 1, 0,
    ];
    let open = Open::parse(&octets).unwrap();
    assert_eq!(
        open.capabilities,
        [
            Capability::Unknown {
                code: 65,
                data: vec![0, 1]
            },
            Capability::Unknown {
                code: 2,
                data: vec![0]
            },
        ]
    );
    assert_eq!(
        open.capabilities[0].to_string(),
        "four-octet-asn (code 65, 0001)"
    );
    // RFC 7911 §4: a mode out of range makes the capability not understood.
    let octets = [4, 0xfc, 0, 0, 90, 10, 0, 0, 4, 8, 2, 6, 69, 4, 0, 1, 1, 4];
    assert!(matches!(
        Open::parse(&octets).unwrap().capabilities[..],
        [Capability::Unknown { code: 69, .. }]
    ));
}

#[test]
fn refuses_with_the_right_subcode() {
    let good = [4, 0xfc, 0, 0, 90, 10, 0, 0, 4, 0];
    assert!(Open::parse(&good).is_ok());
    let refused = |change: fn(&mut Vec<u8>)| {
        let mut octets = good.to_vec();
        change(&mut octets);
        let Notification {
            code,
            subcode,
            data,
        } = Open::parse(&octets).unwrap_err();
        assert_eq!(code, 2);
        (subcode, data.to_vec())
    };
    assert_eq!(refused(|o| o[0] = 5), (1, vec![0, 4]));
    assert_eq!(refused(|o| (o[1], o[2]) = (0, 0)), (2, vec![]));
    assert_eq!(refused(|o| o[5..9].fill(0)), (3, vec![]));
    assert_eq!(refused(|o| o[4] = 2), (6, vec![]));
    assert_eq!(refused(|o| o[9] = 1), (0, vec![]), "length beyond the end");
    assert_eq!(
        refused(|o| o.truncate(9)),
        (0, vec![]),
        "no parameter length"
    );
    assert_eq!(
        refused(|o| (o[9] = 2, o.extend([1, 0])).1),
        (4, vec![]),
        "authentication"
    );
    assert_eq!(
        refused(|o| (o[9] = 3, o.extend([2, 1, 65])).1),
        (0, vec![]),
        "cut capability"
    );
}

#[test]
fn open_has_families_and_four_octet_asn() {
    let none = open(vec![]);
    assert_eq!(none.families().collect::<Vec<_>>(), [Family::IPV4_UNICAST]);
    assert_eq!(none.real_asn(), Asn(64_512));
    let six = open(vec![
        Capability::MultiProtocol(Family::IPV6_UNICAST),
        Capability::FourOctetAsn(Asn(70_000)),
    ]);
    assert_eq!(six.families().collect::<Vec<_>>(), [Family::IPV6_UNICAST]);
    assert_eq!(six.real_asn(), Asn(70_000));
}

#[test]
fn prints_every_capability() {
    let printed: Vec<_> = every_capability().iter().map(ToString::to_string).collect();
    let want = [
        "multiprotocol ipv4-unicast",
        "multiprotocol afi-16388-safi-71",
        "route-refresh",
        "route-refresh-pre-standard",
        "outbound-route-filtering ipv4-unicast,64=both",
        "extended-next-hop afi-1-safi-1=afi-2",
        "extended-message",
        "role customer",
        "graceful-restart 120s restarted notification ipv4-unicast=forwarding ipv6-unicast",
        "four-octet-asn 4200000000",
        "dynamic-capability multiprotocol 99",
        "add-path ipv4-unicast=both ipv6-unicast=receive",
        "enhanced-route-refresh",
        "long-lived-graceful-restart ipv4-unicast=86400s,forwarding",
        "fqdn node1.example",
        "bfd-strict-mode",
        "software-version cambric/0.1",
        "paths-limit ipv4-unicast=8",
        "link-local-next-hop",
        "unknown (code 200, 010203)",
    ];
    assert_eq!(printed, want);
}
