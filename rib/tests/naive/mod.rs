//! A naive interpreter of rules, and rules to test it with.

use bgp_proto::{
    Asn, Attributes, Community, Family, LargeCommunity, Net, PeerKind, Prefix, SegmentKind,
};
use proptest::prelude::*;
use rib::{Edit, InterfaceName, Match, Outcome, PrefixRange, Role, Rules, Source, Term, Then};

/// A route as input of the interpreter.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    pub family: Family,
    pub net: Net<'a>,
    pub attributes: Attributes,
    pub source: Role,
    pub peer: Role,
    pub interface: Option<InterfaceName>,
}

/// Returns the result of rules for a route: its attributes, or `None`.
pub fn evaluate(rules: &Rules, mut route: Seen<'_>) -> Option<Attributes> {
    for term in &rules.terms {
        if term.when.iter().any(|when| !holds(when, &route)) {
            continue;
        }
        if term.then == Then::Reject {
            return None;
        }
        for change in &term.edit {
            edit(change, &mut route.attributes);
        }
        if term.then == Then::Accept {
            return Some(route.attributes);
        }
    }
    (rules.otherwise == Outcome::Accept).then_some(route.attributes)
}

fn holds(when: &Match, route: &Seen<'_>) -> bool {
    let internal = |role| role == Role::Internal || role == Role::Client;
    let is = |role: Role, kind| match kind {
        PeerKind::External => role == Role::External,
        PeerKind::Internal => internal(role),
    };
    match when {
        Match::Not(other) => !holds(other, route),
        Match::Family(family) => route.family == *family,
        Match::Net(set) => set.ranges().any(|range| in_range(range, route.net)),
        Match::Source(Source::Local) => route.source == Role::Local,
        Match::Source(Source::AnyPeer) => route.source != Role::Local,
        Match::Source(Source::Peer(kind)) => is(route.source, *kind),
        Match::Peer(kind) => is(route.peer, *kind),
        Match::Interface(globs) => route.interface.is_some_and(|name| {
            let mut globs = globs.iter();
            globs.any(|glob| like(glob.as_str().as_bytes(), name.as_str().as_bytes()))
        }),
        Match::Community(community) => route.attributes.communities.contains(community),
        Match::LargeCommunity(large) => route.attributes.large_communities.contains(large),
        Match::AsPathPrefix(asns) => {
            let mut sequence: Vec<Asn> = Vec::new();
            for segment in route.attributes.as_path.segments() {
                if segment.kind != SegmentKind::Sequence {
                    break;
                }
                sequence.extend(segment.asns());
            }
            sequence.starts_with(asns)
        }
        Match::LocalPref { min, max } => {
            let degree = route.attributes.local_pref.unwrap_or(100);
            *min <= degree && degree <= *max
        }
        other => panic!("no naive form of {other:?}"),
    }
}

fn in_range(range: &PrefixRange, net: Net<'_>) -> bool {
    let (Some(net), of) = (net.prefix(), range.prefix()) else {
        return false;
    };
    of.contains(net.addr()) && net.len() >= of.len() && range.lengths().contains(&net.len())
}

pub fn like(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|taken| like(rest, &name[taken..])),
        Some((&wanted, rest)) => name
            .split_first()
            .is_some_and(|(&found, left)| (wanted == b'?' || wanted == found) && like(rest, left)),
    }
}

fn edit(edit: &Edit, attributes: &mut Attributes) {
    match edit {
        Edit::AddCommunity(community) => attributes.communities.push(*community),
        Edit::AddLargeCommunity(large) => attributes.large_communities.push(*large),
        Edit::PrependAsPath(asns) => {
            asns.iter()
                .rev()
                .for_each(|asn| attributes.as_path.prepend(*asn));
        }
        Edit::SetLocalPref(degree) => attributes.local_pref = Some(*degree),
        other => panic!("no naive form of {other:?}"),
    }
    attributes.canonicalize();
}

/// Generates prefixes inside and beside each other, of any length and both versions.
pub fn prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (0..4u8, 0..4u8, 0..=32u8).prop_map(|(one, two, len)| {
        let address = std::net::Ipv4Addr::new(10, one, two << 6, two);
        Prefix::new(address.into(), len)
    });
    let v6 = (0..4u16, 0..=128u8).prop_map(|(one, len)| {
        let address = std::net::Ipv6Addr::new(0x2001, 0xdb8, one, 0, 0, 0, 0, one);
        Prefix::new(address.into(), len)
    });
    prop_oneof![3 => v4, 1 => v6].prop_map(|prefix| prefix.expect("short enough"))
}

pub fn range() -> impl Strategy<Value = PrefixRange> {
    let lengths = prop_oneof![Just((0, 255)), Just((24, 24)), (0..40u8, 0..40u8)];
    (prefix(), lengths).prop_map(|(prefix, (min, max))| PrefixRange::new(prefix, min..=max))
}

pub fn community() -> impl Strategy<Value = Community> {
    (7..10u16).prop_map(|value| Community::new(64_512, value))
}

pub fn large() -> impl Strategy<Value = LargeCommunity> {
    (0..3u32).prop_map(|local1| LargeCommunity {
        global: 64_512,
        local1,
        local2: 1,
    })
}

fn asns() -> impl Strategy<Value = Box<[Asn]>> {
    let asn = prop::sample::select(vec![64_601, 64_602, 65_001, 64_512]);
    prop::collection::vec(asn.prop_map(Asn), 0..3).prop_map(Vec::into_boxed_slice)
}

fn kind() -> impl Strategy<Value = PeerKind> {
    prop::sample::select(vec![PeerKind::External, PeerKind::Internal])
}

fn degree() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0, 50, 99, 100, 101, 200, u32::MAX])
}

fn when() -> impl Strategy<Value = Match> {
    let globs = vec!["*", "cali*", "c?li?*", "eth0", "*0", "?", "*a*i*"];
    let globs = prop::collection::vec(prop::sample::select(globs), 1..3);
    let family = vec![Family::IPV4_UNICAST, Family::IPV6_UNICAST];
    let plain = prop_oneof![
        1 => prop::sample::select(family).prop_map(Match::Family),
        4 => prop::collection::vec(range(), 0..5)
            .prop_map(|ranges| Match::Net(ranges.into_iter().collect())),
        1 => Just(Match::Source(Source::Local)),
        1 => Just(Match::Source(Source::AnyPeer)),
        1 => kind().prop_map(|kind| Match::Source(Source::Peer(kind))),
        1 => kind().prop_map(Match::Peer),
        2 => globs.prop_map(|globs| {
            Match::Interface(globs.into_iter().map(Into::into).collect())
        }),
        2 => community().prop_map(Match::Community),
        1 => large().prop_map(Match::LargeCommunity),
        2 => asns().prop_map(Match::AsPathPrefix),
        2 => (degree(), degree()).prop_map(|(min, max)| Match::LocalPref { min, max }),
    ];
    (plain, prop::bool::weighted(0.3)).prop_map(|(plain, not)| match not {
        true => plain.negated(),
        false => plain,
    })
}

fn change() -> impl Strategy<Value = Edit> {
    prop_oneof![
        community().prop_map(Edit::AddCommunity),
        large().prop_map(Edit::AddLargeCommunity),
        asns().prop_map(Edit::PrependAsPath),
        degree().prop_map(Edit::SetLocalPref),
    ]
}

fn term() -> impl Strategy<Value = Term> {
    (
        prop::collection::vec(when(), 0..3),
        prop::collection::vec(change(), 0..3),
        prop::sample::select(vec![Then::Accept, Then::Reject, Then::Next, Then::Next]),
    )
        .prop_map(|(when, edit, then)| Term::new("", when, edit, then))
}

pub fn rules() -> impl Strategy<Value = Rules> {
    let terms = prop::collection::vec(term(), 0..5);
    let otherwise = prop::sample::select(vec![Outcome::Accept, Outcome::Reject]);
    (terms, otherwise).prop_map(|(terms, otherwise)| Rules::new("some", terms, otherwise))
}
