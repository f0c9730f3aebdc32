use alloc::vec;

use bgp_proto::attr::{Aigp, TunnelEncapsulation};
use bgp_proto::{AsPath, AttrCode, Community, ExtendedCommunity, Family, RawAttribute};

use super::*;

const OWN_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);
const OWN_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x100);
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
const CLUSTER: ClusterId = ClusterId(Ipv4Addr::new(1, 1, 1, 1));
/// Cost of the received next hop.
const DISTANCE: u32 = 5;
const SOURCE: RouterId = RouterId(Ipv4Addr::new(10, 0, 0, 5));

fn to(role: Role) -> GroupRules {
    GroupRules {
        role,
        local_asn: Asn(64_512),
        peer_asn: if role == Role::External {
            Asn(64_600)
        } else {
            Asn(64_512)
        },
        next_hop: NextHopMode::Auto,
        own_next_hop_v4: Some(OWN_V4),
        own_next_hop_v6: Some(OWN_V6),
        extended_next_hop: false,
        long_lived: false,
        link_bandwidth: None,
        cluster_id: CLUSTER,
        domain: Default::default(),
        export: Policy::AcceptAll,
        add_path: Default::default(),
    }
}

fn exported(attributes: &Attributes, source: Role, rules: &GroupRules) -> Attributes {
    exported_from(attributes, origin(source, CLUSTER), rules)
}

fn exported_from(attributes: &Attributes, origin: Origin, rules: &GroupRules) -> Attributes {
    let row = Family::IPV4_UNICAST.row().expect("row");
    rewrite(attributes.clone(), &origin, rules, row, || DISTANCE)
}

fn origin(role: Role, cluster: ClusterId) -> Origin {
    Origin {
        role,
        id: SOURCE,
        cluster: (role == Role::Client).then_some(cluster),
    }
}

fn route() -> Attributes {
    Attributes {
        as_path: AsPath::sequence(&[Asn(64_700)]),
        next_hop: Some(NextHop::V4(NEAR)),
        med: Some(5),
        ..Attributes::default()
    }
}

/// RFC 4456 §6, all sources against all receivers.
#[test]
fn advertisement_depends_on_source_and_receiver() {
    use Role::{Client, External, Internal, Local};
    let all = [Local, External, Internal, Client];
    for source in all {
        for receiver in [External, Internal, Client] {
            let expected = !(source == Internal && receiver == Internal);
            assert_eq!(
                to(receiver).passes(source, Scope::Everywhere, false),
                expected
            );
            assert!(
                !to(receiver).passes(source, Scope::NoPeer, false),
                "NO_ADVERTISE"
            );
            assert_eq!(
                to(receiver).passes(source, Scope::OwnAs, false),
                expected && receiver != External,
                "NO_EXPORT"
            );
        }
    }
}

/// RFC 9494 §4.3, §4.6
#[test]
fn llgr_stale_routes_are_for_peers_with_the_capability() {
    let mut stale = route();
    stale.communities = vec![Community::LLGR_STALE];
    for receiver in [Role::External, Role::Internal, Role::Client] {
        let mut rules = to(receiver);
        let passes = |rules: &GroupRules| rules.passes(Role::Client, Scope::Everywhere, true);
        assert_eq!(passes(&rules), receiver != Role::External);
        let limited = exported(&stale, Role::Client, &rules);
        if receiver != Role::External {
            assert_eq!(limited.local_pref, Some(0));
            let both = [Community::LLGR_STALE, Community::NO_EXPORT];
            assert_eq!(limited.communities, both);
        }
        rules.long_lived = true;
        assert!(passes(&rules));
        let whole = exported(&stale, Role::Client, &rules);
        assert_eq!(whole.communities, [Community::LLGR_STALE]);
        assert_ne!(whole.local_pref, Some(0));
    }
}

#[test]
fn only_reflected_routes_get_the_reflectors_attributes() {
    for receiver in [Role::Internal, Role::Client] {
        for source in [Role::Local, Role::External, Role::Internal, Role::Client] {
            let exported = exported(&route(), source, &to(receiver));
            let reflected = source.is_internal();
            assert_eq!(
                exported.originator_id,
                reflected.then_some(SOURCE),
                "{source:?}"
            );
            assert_eq!(
                exported.cluster_list.len(),
                usize::from(reflected),
                "{source:?}"
            );
            assert_eq!(
                exported.next_hop,
                Some(NextHop::V4(NEAR)),
                "RFC 4456 §10: kept"
            );
            assert_eq!((exported.local_pref, exported.med), (Some(100), Some(5)));
            assert_eq!(exported.as_path, route().as_path);
        }
    }
}

/// RFC 4456 §7: the source cluster of a route, and the receiving one if that differs.
#[test]
fn a_route_names_the_clusters_it_has_crossed() {
    let other = ClusterId(Ipv4Addr::new(2, 2, 2, 2));
    let from = |role, cluster, rules: GroupRules| {
        exported_from(&route(), origin(role, cluster), &rules).cluster_list
    };
    let client = || to(Role::Client);
    assert_eq!(from(Role::Client, CLUSTER, client()), [CLUSTER]);
    assert_eq!(from(Role::Client, other, client()), [CLUSTER, other]);
    assert_eq!(from(Role::Internal, other, client()), [CLUSTER]);
    assert_eq!(from(Role::Client, other, to(Role::Internal)), [other]);
}

#[test]
fn second_reflector_keeps_originator_and_prepends_itself() {
    let first = RouterId(Ipv4Addr::new(10, 0, 0, 9));
    let cluster = ClusterId(Ipv4Addr::new(2, 2, 2, 2));
    let route = Attributes {
        originator_id: Some(first),
        cluster_list: vec![cluster],
        local_pref: Some(7),
        ..route()
    };
    let rules = to(Role::Client);
    let exported = exported(&route, Role::Internal, &rules);
    assert_eq!(exported.originator_id, Some(first));
    assert_eq!(exported.cluster_list, [rules.cluster_id, cluster]);
    assert_eq!(exported.local_pref, Some(7));
}

#[test]
fn external_peer_gets_only_external_attributes() {
    let route = Attributes {
        local_pref: Some(300),
        originator_id: Some(SOURCE),
        cluster_list: vec![ClusterId(NEAR)],
        extended_communities: vec![
            ExtendedCommunity([0, 2, 0xfc, 0, 0, 0, 0, 1]),
            ExtendedCommunity([0x40, 4, 0, 0, 0, 0, 0, 1]),
        ],
        communities: vec![Community::new(64_512, 1)],
        ..route()
    };
    let out = exported(&route, Role::Client, &to(Role::External));
    assert_eq!(out.as_path, AsPath::sequence(&[Asn(64_512), Asn(64_700)]));
    assert_eq!(out.next_hop, Some(NextHop::V4(OWN_V4)));
    assert_eq!(
        (out.local_pref, out.med, out.originator_id),
        (None, None, None)
    );
    assert!(out.cluster_list.is_empty());
    assert_eq!(out.extended_communities.len(), 1, "RFC 4360 §6");
    assert_eq!(out.communities, route.communities);
    assert_eq!(
        exported(&route, Role::Local, &to(Role::External)).med,
        Some(5),
        "our own word"
    );
}

#[test]
fn next_hop_modes() {
    let row = Family::IPV4_UNICAST.row().expect("row");
    let with = |next_hop, role| GroupRules {
        next_hop,
        ..to(role)
    };
    let own = Some(NextHop::V4(OWN_V4));
    let near = Some(NextHop::V4(NEAR));
    let next_hop = |rules: &GroupRules| exported(&route(), Role::External, rules).next_hop;
    assert_eq!(next_hop(&with(NextHopMode::Own, Role::Client)), own);
    assert_eq!(next_hop(&with(NextHopMode::Keep, Role::External)), near);
    let ours = Attributes {
        next_hop: None,
        ..route()
    };
    for mode in [NextHopMode::Auto, NextHopMode::Own, NextHopMode::Keep] {
        assert_eq!(
            exported(&ours, Role::Local, &with(mode, Role::Client)).next_hop,
            own
        );
    }
    let nameless = GroupRules {
        own_next_hop_v4: None,
        ..to(Role::External)
    };
    assert!(!has_next_hop(
        HopForm::of(route().next_hop.as_ref()),
        &nameless,
        row
    ));
    assert!(has_next_hop(
        HopForm::of(route().next_hop.as_ref()),
        &GroupRules {
            own_next_hop_v4: None,
            ..to(Role::Client)
        },
        row
    ));
    let six = Attributes {
        next_hop: Some(NextHop::v6(OWN_V6)),
        ..route()
    };
    let silent = GroupRules {
        own_next_hop_v4: None,
        ..to(Role::Client)
    };
    assert!(
        !has_next_hop(HopForm::of(six.next_hop.as_ref()), &silent, row),
        "RFC 8950 was not negotiated"
    );
    assert!(has_next_hop(
        HopForm::of(six.next_hop.as_ref()),
        &GroupRules {
            extended_next_hop: true,
            ..silent
        },
        row
    ));
}

#[test]
fn a_link_local_next_hop_stays_on_its_link() {
    let row = Family::IPV6_UNICAST.row().expect("row");
    let link_local = Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1));
    let origin = origin(Role::Client, CLUSTER);
    let with = |global| Attributes {
        next_hop: Some(NextHop::V6 { global, link_local }),
        ..route()
    };
    let out = rewrite(with(OWN_V6), &origin, &to(Role::Client), row, || 0);
    assert_eq!(out.next_hop, Some(NextHop::v6(OWN_V6)));
    let only = with(Ipv6Addr::UNSPECIFIED);
    assert_eq!(
        rewrite(only.clone(), &origin, &to(Role::Client), row, || 0).next_hop,
        only.next_hop
    );
}

#[test]
fn unknown_attributes_go_on_if_they_may() {
    let unknown = |code, flags| RawAttribute {
        code: AttrCode(code),
        flags,
        value: vec![1, 2].into_boxed_slice(),
    };
    let route = Attributes {
        unknown: vec![unknown(200, 0xc0), unknown(201, 0x80)],
        ..route()
    };
    for role in [Role::External, Role::Client] {
        let out = exported(&route, Role::External, &to(role));
        assert_eq!(out.unknown, [unknown(200, 0xe0)], "RFC 4271 §5: Partial");
        let out = exported(&route, Role::Local, &to(role));
        assert_eq!(out.unknown, route.unknown, "our own keep their flags");
    }
}

#[test]
fn attribute_of_a_domain_leaves_the_as_where_it_is_allowed() {
    let tunnel = TunnelEncapsulation::from_octets(&[0, 8, 0, 0]);
    let mut route = route();
    route.rare.tunnel_encapsulation = tunnel.clone();
    route.rare.otc = Some(Asn(64_700));
    let closed = to(Role::External);
    let open = GroupRules {
        domain: [AttrCode::TunnelEncapsulation].into_iter().collect(),
        ..closed.clone()
    };
    for (rules, sent) in [
        (closed, None),
        (open, tunnel.clone()),
        (to(Role::Client), tunnel),
    ] {
        for source in [Role::External, Role::Local, Role::Client] {
            let out = exported(&route, source, &rules);
            assert_eq!(out.rare.tunnel_encapsulation, sent, "{rules:?}");
            assert_eq!(out.rare.otc, route.rare.otc, "no attribute of a domain");
        }
    }
}

#[test]
fn aigp_grows_where_the_next_hop_is_replaced() {
    // covers RFC 7311 §3.3, §3.4.3
    let mut route = route();
    route.rare.aigp = Some(Aigp::new(10));
    let open = |next_hop, role| GroupRules {
        next_hop,
        domain: [AttrCode::Aigp].into_iter().collect(),
        ..to(role)
    };
    let metric = |source, rules: &GroupRules| {
        let out = exported(&route, source, rules);
        out.rare.aigp.as_ref().and_then(Aigp::metric)
    };
    let (auto, own) = (NextHopMode::Auto, NextHopMode::Own);
    assert_eq!(metric(Role::Client, &to(Role::Client)), Some(10), "kept");
    assert_eq!(metric(Role::Client, &open(own, Role::Client)), Some(15));
    assert_eq!(
        metric(Role::External, &to(Role::External)),
        None,
        "disabled"
    );
    assert_eq!(
        metric(Role::External, &open(auto, Role::External)),
        Some(15)
    );
    let mut ours = route.clone();
    ours.next_hop = None;
    let out = exported(&ours, Role::Local, &open(auto, Role::External));
    assert_eq!(out.rare.aigp, ours.rare.aigp, "from here nothing is added");
}

#[test]
fn link_bandwidth_is_that_of_the_own_link() {
    let of = |megabits: u32, is_transitive| {
        ExtendedCommunity::link_bandwidth(64_512, megabits as f32 * 125_000.0, is_transitive)
    };
    let target = ExtendedCommunity::route_target_as2(1, 1);
    let mut received = [of(10, true), of(10, false), target];
    received.sort_unstable();
    let route = Attributes {
        extended_communities: received.to_vec(),
        ..route()
    };
    let with = |role, next_hop, link_bandwidth| GroupRules {
        next_hop,
        link_bandwidth,
        ..to(role)
    };
    let (auto, own) = (NextHopMode::Auto, NextHopMode::Own);
    let sent = |source, rules: &GroupRules| exported(&route, source, rules).extended_communities;
    // The received next hop keeps the received bandwidth.
    assert_eq!(
        sent(Role::External, &with(Role::Client, auto, Some(25))),
        received
    );
    assert_eq!(
        sent(Role::External, &with(Role::Client, own, None)),
        [target]
    );
    for (role, is_transitive) in [(Role::Client, false), (Role::External, true)] {
        let mut expected = [of(25, is_transitive), target];
        expected.sort_unstable();
        assert_eq!(sent(Role::External, &with(role, own, Some(25))), expected);
        assert_eq!(sent(Role::Local, &with(role, own, Some(25))), expected);
    }
    // A locally originated route has the bandwidth that it was given.
    assert_eq!(sent(Role::Local, &with(Role::Client, own, None)), received);
    // Other families lose a received one, and get none.
    let row = Family::ROUTE_TARGET.row().expect("row");
    let source = origin(Role::External, CLUSTER);
    let rules = with(Role::Client, own, Some(25));
    let other = rewrite(route.clone(), &source, &rules, row, || DISTANCE);
    assert_eq!(other.next_hop, Some(NextHop::V4(OWN_V4)));
    assert_eq!(other.extended_communities, [target]);
}
