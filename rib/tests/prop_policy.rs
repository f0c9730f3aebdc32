//! Asserts that rules evaluate every route as a naive interpreter does.

#![allow(unreachable_pub)]

mod naive;

use bgp_proto::{AsPath, Asn, Attributes, Family, Ipv4Prefix, Net, Prefix, SegmentKind};
use proptest::prelude::*;
use rib::{
    InterfaceGlob, InterfaceName, Match, Outcome, Policy, PrefixRange, PrefixSet, Role,
    RouteContext, Rules, Term, Then, Verdict,
};

fn attributes() -> impl Strategy<Value = Attributes> {
    let segment = (
        prop::sample::select(vec![SegmentKind::Sequence, SegmentKind::Set]),
        prop::collection::vec(prop::sample::select(vec![64_601, 64_602, 65_001]), 1..3),
    );
    (
        prop::collection::vec(segment, 0..3),
        prop::collection::vec(naive::community(), 0..3),
        prop::collection::vec(naive::large(), 0..3),
        prop::option::of(prop::sample::select(vec![50u32, 100, 200])),
    )
        .prop_map(|(segments, communities, large_communities, local_pref)| {
            let segments: Vec<(SegmentKind, Vec<Asn>)> = segments
                .into_iter()
                .map(|(kind, asns)| (kind, asns.into_iter().map(Asn).collect()))
                .collect();
            let segments = segments.iter().map(|(kind, asns)| (*kind, asns.as_slice()));
            let mut attributes = Attributes {
                as_path: AsPath::from_segments(segments),
                communities,
                large_communities,
                local_pref,
                ..Attributes::default()
            };
            attributes.canonicalize();
            attributes
        })
}

fn name() -> impl Strategy<Value = InterfaceName> {
    let names = vec!["cali1", "cali", "cal", "eth0", "eth10", "c"];
    prop::sample::select(names).prop_map(|name| name.parse().expect("short enough"))
}

fn role() -> impl Strategy<Value = Role> {
    prop::sample::select(vec![
        Role::Local,
        Role::External,
        Role::Internal,
        Role::Client,
    ])
}

fn net_of(prefix: Prefix) -> (Family, Net<'static>) {
    match prefix {
        Prefix::V4(prefix) => (Family::IPV4_UNICAST, Net::V4(prefix)),
        Prefix::V6(prefix) => (Family::IPV6_UNICAST, Net::V6(prefix)),
    }
}

proptest! {
    // Promise (BGP): Policy rules do what their definition states.
    #[test]
    fn rules_match_their_definition(
        rules in naive::rules(),
        prefix in naive::prefix(),
        attributes in attributes(),
        source in role(),
        peer in role(),
        interface in prop::option::of(name()),
    ) {
        let (family, net) = net_of(prefix);
        let seen = naive::Seen {
            family, net, attributes: attributes.clone(), source, peer, interface,
        };
        let route = &attributes;
        let context = RouteContext::new(family, net, &route, source, peer).with_interface(interface);
        let wanted = naive::evaluate(&rules, seen);
        let found = match Policy::from(rules).evaluate(&context) {
            Verdict::Accept => Some(attributes),
            Verdict::AcceptWith(edited) => Some(*edited),
            Verdict::Reject => None,
        };
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn a_set_of_prefixes_holds_what_one_of_its_ranges_holds(
        ranges in prop::collection::vec(naive::range(), 0..40),
        prefix in naive::prefix(),
    ) {
        let (_, net) = net_of(prefix);
        let set: PrefixSet = ranges.iter().cloned().collect();
        let one = |range: &PrefixRange| PrefixSet::from_iter([range.clone()]).contains(net);
        prop_assert_eq!(set.contains(net), ranges.iter().any(one));
        let crooked: PrefixSet = ranges.into_iter().rev().collect();
        prop_assert_eq!(set, crooked);
    }

    #[test]
    fn patterns_match_like_a_naive_matcher(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
        let glob = InterfaceGlob::from(pattern.as_str());
        let like = naive::like(pattern.as_bytes(), name.as_bytes());
        prop_assert_eq!(glob.matches(&name), like, "{} {}", pattern, name);
    }
}

fn v4(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn takes(range: &PrefixRange, net: &str) -> bool {
    let net: Ipv4Prefix = net.parse().expect("a prefix");
    PrefixSet::from_iter([range.clone()]).contains(Net::V4(net))
}

#[test]
fn ranges_hold_their_edges() {
    let range = PrefixRange::new(v4("10.65.0.0/16"), 24..=26);
    for (net, within) in [
        ("10.65.0.0/16", false),
        ("10.65.0.0/23", false),
        ("10.65.255.0/24", true),
        ("10.65.255.192/26", true),
        ("10.65.255.192/27", false),
        ("10.66.0.0/24", false),
        ("10.64.0.0/15", false),
    ] {
        assert_eq!(takes(&range, net), within, "{net}");
    }
    let all = PrefixRange::inside(v4("0.0.0.0/0"));
    assert!(takes(&all, "0.0.0.0/0") && takes(&all, "255.255.255.255/32"));
    let default = PrefixRange::equal(v4("0.0.0.0/0"));
    assert!(takes(&default, "0.0.0.0/0") && !takes(&default, "0.0.0.0/1"));
    // Lengths below the prefix's own do not match.
    assert_eq!(
        PrefixRange::new(v4("10.0.0.0/8"), 0..=8),
        PrefixRange::equal(v4("10.0.0.0/8"))
    );
    assert!(!takes(
        &PrefixRange::new(v4("10.0.0.0/8"), 0..=7),
        "10.0.0.0/7"
    ));
    let v6: PrefixSet = [PrefixRange::inside("::/0".parse().expect("a prefix"))]
        .into_iter()
        .collect();
    let Prefix::V4(net) = v4("0.0.0.0/0") else {
        unreachable!("IPv4")
    };
    assert!(!v6.contains(Net::V4(net)) && !v6.contains(Net::Opaque(&[0])));
}

#[test]
fn terms_that_apply_to_a_route_are_reported() {
    let term =
        |name: &str, when: Vec<Match>, then| Term::new(name.to_owned(), when, Vec::new(), then);
    let rules = Rules::new(
        "to-tor",
        vec![
            term("first", Vec::new(), Then::Next),
            term(
                "of others",
                vec![Match::Interface(["cali*".into()].into())],
                Then::Accept,
            ),
            term("second", Vec::new(), Then::Reject),
            term("never", Vec::new(), Then::Accept),
        ],
        Outcome::Accept,
    );
    let attributes = Attributes::default();
    let (family, net) = net_of(v4("10.65.0.0/26"));
    let route = &attributes;
    let context = RouteContext::new(family, net, &route, Role::Local, Role::External);
    let mut matched = Vec::new();
    let verdict = rules.evaluate(&context, &mut |term| matched.push(term.name.clone()));
    assert_eq!(
        (verdict, matched),
        (
            Verdict::Reject,
            vec!["first".to_owned(), "second".to_owned()]
        )
    );
}

#[test]
fn names_of_interfaces_are_short() {
    assert_eq!(
        "cali0123456789a"
            .parse::<InterfaceName>()
            .map(|name| name.to_string()),
        Ok("cali0123456789a".to_owned())
    );
    assert!("cali0123456789ab".parse::<InterfaceName>().is_err());
    assert!("".parse::<InterfaceName>().is_err());
}

/// The ASes of a set have no order.
#[test]
fn as_path_condition_matches_sequences_only() {
    let (one, two) = (Asn(64_601), Asn(64_602));
    let (sequence, set) = (SegmentKind::Sequence, SegmentKind::Set);
    let rules = Rules::new(
        "two",
        vec![Term::new(
            "",
            vec![Match::AsPathPrefix([one, two].into())],
            vec![],
            Then::Accept,
        )],
        Outcome::Reject,
    );
    let policy = Policy::from(rules);
    let cases = [
        (vec![(sequence, vec![one, two])], true),
        (
            vec![(sequence, vec![one]), (sequence, vec![two, one])],
            true,
        ),
        (vec![(sequence, vec![two, one])], false),
        (vec![(set, vec![one, two])], false),
        (vec![(sequence, vec![one]), (set, vec![two])], false),
        (vec![(set, vec![one]), (sequence, vec![one, two])], false),
    ];
    for (segments, matches) in cases {
        let parts = segments.iter().map(|(kind, asns)| (*kind, &asns[..]));
        let attributes = Attributes {
            as_path: AsPath::from_segments(parts),
            ..Attributes::default()
        };
        let (family, net) = net_of(v4("10.65.0.0/16"));
        let (route, role) = (&attributes, Role::External);
        let verdict = policy.evaluate(&RouteContext::new(family, net, &route, role, role));
        let accepted = matches!(verdict, Verdict::Accept);
        assert_eq!(accepted, matches, "{segments:?}");
    }
}
