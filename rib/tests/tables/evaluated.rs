//! Usability of paths, its reasons, and their preference.

use std::net::Ipv4Addr;

use bgp_proto::attr::{SegmentKind, TunnelEncapsulation};
use bgp_proto::{AsPath, Asn, AttrCode, Attributes, Community, Net, Prefix, Rare, RouterId};
use rib::{
    Budget, Cursor, Edit, Ineligible, Match, Outcome, PeerId, PrefixRange, Progress, Rib, Rules,
    Term, Then,
};

use crate::{FAMILY, announce, attributes, prefix, rib, settle};

/// RFC 8326: a route with GRACEFUL_SHUTDOWN is used as long as there is no other, from any peer.
#[test]
fn route_with_graceful_shutdown_is_the_last_choice() {
    let mut rib = rib();
    for (peer, hops) in [(1, 1), (2, 3)] {
        announce(
            &mut rib,
            peer,
            &attributes(peer, hops),
            [(1, 0)].into_iter(),
        );
    }
    let best = |rib: &mut Rib| {
        settle(rib);
        let view = rib.lookup(FAMILY, Net::V4(prefix(1))).expect("there");
        let best = view.best().expect("usable");
        let accepted = best.accepted.as_ref().expect("accepted");
        (best.peer.0, accepted.local_pref)
    };
    assert_eq!(best(&mut rib), (1, None));
    let leaving = |peer, hops| Attributes {
        communities: vec![Community::GRACEFUL_SHUTDOWN],
        ..attributes(peer, hops)
    };
    announce(&mut rib, 1, &leaving(1, 1), [(1, 0)].into_iter());
    assert_eq!(best(&mut rib), (2, Some(100)), "an external one");
    announce(&mut rib, 2, &leaving(2, 3), [(1, 0)].into_iter());
    assert_eq!(best(&mut rib), (1, Some(0)), "an internal one, too");
}

#[test]
fn rejected_path_has_the_term_that_rejected_it() {
    let mut rib = rib();
    let term = |name: &str, when, edit, then| Term::new(name.to_owned(), when, edit, then);
    let inside = PrefixRange::inside(Prefix::V4(prefix(1)));
    let rules = Rules::new(
        "to-tor",
        vec![
            term("[1]", vec![], vec![Edit::SetLocalPref(7)], Then::Next),
            term(
                "[2]",
                vec![Match::LocalPref { min: 8, max: 9 }],
                vec![],
                Then::Accept,
            ),
            term(
                "[3]",
                vec![Match::Net([inside].into_iter().collect())],
                vec![],
                Then::Reject,
            ),
        ],
        Outcome::Accept,
    );
    rib.change_peer(PeerId(2), |info| info.import = rules.into());
    announce(&mut rib, 2, &attributes(2, 1), [(1, 0), (2, 0)].into_iter());
    settle(&mut rib);
    let evaluation = |number| {
        let view = rib.lookup(FAMILY, Net::V4(prefix(number))).expect("there");
        let path = view.paths.into_iter().next().expect("a path");
        let evaluation = path.evaluation.expect("by rules");
        (
            path.ineligible,
            evaluation.to_string(),
            evaluation.terms.len(),
        )
    };
    let refused = Some(Ineligible::Policy);
    assert_eq!(evaluation(1), (refused, "to-tor, [3]".to_owned(), 2));
    assert_eq!(evaluation(2), (None, "to-tor, [1]".to_owned(), 1));
}

/// Routes that another AS and identifier accepted are evaluated again, and back again.
#[test]
fn path_with_a_new_local_number_is_rejected() {
    let mut rib = rib();
    announce(&mut rib, 1, &attributes(1, 3), [(1, 0)].into_iter());
    let reflected = Attributes {
        originator_id: Some(RouterId(Ipv4Addr::new(10, 0, 0, 101))),
        ..attributes(2, 1)
    };
    announce(&mut rib, 2, &reflected, [(2, 0)].into_iter());
    rib.announce(FAMILY, Net::V4(prefix(3)), Attributes::default(), None);
    let reasons = |rib: &mut Rib| {
        settle(rib);
        [1, 2, 3].map(|number| {
            let view = rib.lookup(FAMILY, Net::V4(prefix(number)));
            view.expect("there").paths[0].ineligible
        })
    };
    assert_eq!(reasons(&mut rib), [None; 3]);
    let mut cursor = Cursor::default();
    let mut changes_of = |rib: &mut Rib| {
        let mut changes_of = 0;
        while rib.changes(FAMILY, &mut cursor, Budget(64), &mut |_| changes_of += 1)
            == Progress::More
        {}
        changes_of
    };
    assert_eq!(changes_of(&mut rib), 3);
    rib.set_identity(Asn(65_009), RouterId(Ipv4Addr::new(10, 0, 0, 101)));
    let refused = [Some(Ineligible::AsLoop), Some(Ineligible::OwnOriginator)];
    assert_eq!(reasons(&mut rib), [refused[0], refused[1], None]);
    assert_eq!(changes_of(&mut rib), 2, "readers hear of it");
    let was = (Asn(64_512), RouterId(Ipv4Addr::new(10, 0, 0, 100)));
    rib.set_identity(was.0, was.1);
    assert_eq!(reasons(&mut rib), [None; 3]);
    assert_eq!(changes_of(&mut rib), 2);
    rib.set_identity(was.0, was.1);
    settle(&mut rib);
    assert_eq!(changes_of(&mut rib), 0, "the same is nothing new");
}

/// Returns why the only path of prefix 1 cannot be used.
fn refusal(rib: &mut Rib) -> Option<Ineligible> {
    settle(rib);
    rib.lookup(FAMILY, Net::V4(prefix(1))).expect("there").paths[0].ineligible
}

#[test]
fn as_set_is_used_only_where_it_is_allowed() {
    for kind in [SegmentKind::Set, SegmentKind::ConfedSet] {
        let mut rib = rib();
        let segments = [
            (SegmentKind::Sequence, &[Asn(65_001)][..]),
            (kind, &[Asn(65_002), Asn(65_003)][..]),
        ];
        let set = Attributes {
            as_path: AsPath::from_segments(segments),
            ..attributes(2, 1)
        };
        announce(&mut rib, 2, &set, [(1, 0)].into_iter());
        assert_eq!(refusal(&mut rib), Some(Ineligible::AsSet));
        rib.change_peer(PeerId(2), |info| info.as_path.allow_as_sets = true);
        assert_eq!(refusal(&mut rib), None);
    }
}

#[test]
fn route_that_left_by_the_local_as_is_a_loop() {
    let mut rib = rib();
    let back = Attributes {
        as_path: AsPath::sequence(&[Asn(65_001), Asn(64_999)]),
        ..attributes(1, 1)
    };
    announce(&mut rib, 1, &back, [(1, 0)].into_iter());
    assert_eq!(refusal(&mut rib), None);
    rib.change_peer(PeerId(1), |info| info.local_asn = Asn(64_999));
    assert_eq!(refusal(&mut rib), Some(Ineligible::AsLoop));
    rib.change_peer(PeerId(1), |info| info.as_path.own_as_max = 1);
    assert_eq!(refusal(&mut rib), None);
}

#[test]
fn attribute_of_a_domain_is_accepted_where_it_is_allowed() {
    let mut rib = rib();
    let mut set = attributes(1, 1);
    set.rare.tunnel_encapsulation = TunnelEncapsulation::from_octets(&[0, 8, 0, 0]);
    announce(&mut rib, 1, &set, [(1, 0)].into_iter());
    announce(&mut rib, 2, &set, [(2, 0)].into_iter());
    let accepted = |rib: &mut Rib, number| {
        settle(rib);
        let route = rib.lookup(FAMILY, Net::V4(prefix(number))).expect("there");
        let path = &route.paths[0];
        assert_eq!(path.received.rare, set.rare, "received as it was sent");
        path.accepted.clone().expect("accepted").rare
    };
    assert_eq!(accepted(&mut rib, 1), Rare::NONE, "from another AS");
    assert_eq!(accepted(&mut rib, 2), set.rare, "internal");
    let allow = [AttrCode::TunnelEncapsulation];
    rib.change_peer(PeerId(1), |info| info.domain = allow.into_iter().collect());
    assert_eq!(accepted(&mut rib, 1), set.rare, "allowed");
}
