//! Views, counters and rejections of the tables.

mod confirmed;
mod evaluated;
mod link;
mod recorded;
mod room;

use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::{
    AsPath, Asn, Attributes, EncodeParams, Family, FamilySet, Ipv4Prefix, Net, NextHop, Nlri,
    NlriIter, PeerKind, Remedy, RouteBatch, RouterId, SessionParams, UpdateView, UpdateWriter,
};
use bytes::BytesMut;
use rib::limits::PATHS_PER_PEER_MAX;
use rib::{
    Budget, Cursor, Dependence, DownMode, Ineligible, Ingested, PathLimit, PeerId, PeerInfo,
    Policy, Progress, Rib, RibConfig, RibStats, Role, Step,
};

const FAMILY: Family = Family::IPV4_UNICAST;

fn prefix(number: u32) -> Ipv4Prefix {
    Ipv4Prefix::host(Ipv4Addr::from(0x0a41_0000 + number))
}

fn rib() -> Rib {
    let config = RibConfig::new(Asn(64_512), RouterId(Ipv4Addr::new(10, 0, 0, 100)));
    let mut rib = Rib::new(config, 1);
    for peer in 1..=4 {
        rib.peer_up(PeerId(peer), info(peer));
    }
    rib
}

fn info(peer: u16) -> PeerInfo {
    let address = Ipv4Addr::new(10, 0, 0, peer as u8);
    PeerInfo {
        role: [Role::Internal, Role::External][usize::from(peer == 1)],
        asn: if peer == 1 { Asn(65_001) } else { Asn(64_512) },
        id: RouterId(address),
        address: IpAddr::V4(address),
        local: Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 100))),
        import: if peer == 4 {
            Policy::RejectAll
        } else {
            Policy::AcceptAll
        },
        local_asn: Asn(64_512),
        as_path: Default::default(),
        cluster_id: Default::default(),
        domain: Default::default(),
        link: None,
        origin: rib::OriginRules::default(),
    }
}

fn attributes(peer: u16, hops: usize) -> Attributes {
    let mut path = vec![Asn(65_001)];
    path.resize(hops.max(1), Asn(65_009));
    Attributes {
        as_path: AsPath::sequence(&path),
        next_hop: Some(NextHop::V4(Ipv4Addr::new(10, 0, 9, peer as u8))),
        local_pref: (peer != 1).then_some(100),
        ..Attributes::default()
    }
}

fn params(peer: u16) -> SessionParams {
    SessionParams {
        local_asn: Asn(64_512),
        peer_asn: info(peer).asn,
        kind: if peer == 1 {
            PeerKind::External
        } else {
            PeerKind::Internal
        },
        as4: true,
        families: FamilySet::UNICAST,
        add_path_receive: FamilySet::UNICAST,
        ..SessionParams::default()
    }
}

fn announce(
    rib: &mut Rib,
    peer: u16,
    attributes: &Attributes,
    routes: impl Iterator<Item = (u32, u32)>,
) -> Ingested {
    let encode = EncodeParams {
        as4: true,
        add_path: true,
        octets_max: 65_535,
    };
    let mut block = Vec::new();
    attributes.encode(true, &mut block);
    let next_hop = attributes.next_hop.clone().expect("next hop");
    let mut out = BytesMut::new();
    let mut writer = UpdateWriter::reach(&mut out, FAMILY, &block, &next_hop, &encode);
    for (number, path_id) in routes {
        writer
            .push(&Nlri {
                path_id,
                net: Net::V4(prefix(number)),
            })
            .expect("room");
    }
    writer.finish();
    let params = params(peer);
    let (view, _) = UpdateView::parse(&out[19..], &params).expect("parses");
    let batch = view.batches().next().expect("one batch");
    rib.ingest(PeerId(peer), &batch)
}

fn settle(rib: &mut Rib) {
    while rib.decide(Budget(64)) != Progress::Done {}
}

#[test]
fn every_path_has_the_step_at_which_it_lost() {
    let mut rib = rib();
    announce(&mut rib, 1, &attributes(1, 2), [(1, 0)].into_iter());
    announce(&mut rib, 2, &attributes(2, 2), [(1, 0)].into_iter());
    announce(&mut rib, 3, &attributes(3, 3), [(1, 0)].into_iter());
    announce(&mut rib, 3, &attributes(3, 4), [(1, 7)].into_iter());
    announce(&mut rib, 4, &attributes(4, 1), [(1, 0)].into_iter());
    let own = Attributes {
        next_hop: Some(NextHop::V4(Ipv4Addr::new(10, 0, 0, 100))),
        ..attributes(3, 1)
    };
    announce(&mut rib, 3, &own, [(1, 8)].into_iter());
    settle(&mut rib);
    let view = rib.lookup(FAMILY, Net::V4(prefix(1))).expect("there");
    let shown: Vec<_> = view
        .paths
        .iter()
        .map(|path| (path.peer.0, path.path_id, path.lost, path.ineligible))
        .collect();
    assert_eq!(
        shown,
        [
            (1, 0, None, None),
            (2, 0, Some(Step::EbgpOverIbgp), None),
            (3, 0, Some(Step::AsPathLength), None),
            (3, 7, Some(Step::AsPathLength), None),
            (3, 8, Some(Step::Ineligible), Some(Ineligible::OwnNextHop)),
            (4, 0, Some(Step::Ineligible), Some(Ineligible::Policy)),
        ]
    );
    assert!(view.best().is_some_and(|best| best.best && best.multipath));
    assert_eq!(
        view.paths[5].accepted, None,
        "received and accepted are kept apart"
    );
    assert_eq!(view.paths[5].received.as_path.length(), 1);
    assert_eq!(rib.prefixes(FAMILY).count(), 1);
    let counters = rib.counters(PeerId(3), FAMILY);
    assert_eq!(
        (counters.paths, counters.accepted, counters.ineligible),
        (3, 3, 1)
    );
    assert_eq!(rib.counters(PeerId(4), FAMILY).accepted, 0);
}

#[test]
fn our_own_route_beats_all_others_and_gives_way_when_withdrawn() {
    let mut rib = rib();
    announce(&mut rib, 1, &attributes(1, 1), [(1, 0)].into_iter());
    rib.announce(FAMILY, Net::V4(prefix(1)), Attributes::default(), None);
    settle(&mut rib);
    let best = |rib: &Rib| {
        let view = rib.lookup(FAMILY, Net::V4(prefix(1)))?;
        Some(view.best()?.peer)
    };
    assert_eq!(best(&rib), Some(PeerId::LOCAL));
    let view = rib.lookup(FAMILY, Net::V4(prefix(1))).expect("there");
    assert_eq!(view.paths[1].lost, Some(Step::Local));
    rib.withdraw(FAMILY, Net::V4(prefix(1)));
    settle(&mut rib);
    assert_eq!(best(&rib), Some(PeerId(1)));
}

#[test]
fn a_peer_may_have_so_many_paths_for_a_prefix_and_no_more() {
    let mut rib = rib();
    let many = PATHS_PER_PEER_MAX as u32 + 5;
    let done = announce(
        &mut rib,
        2,
        &attributes(2, 1),
        (0..many).map(|path_id| (1, path_id)),
    );
    assert_eq!((done.reach, done.refused), (PATHS_PER_PEER_MAX as u32, 5));
    let done = announce(&mut rib, 3, &attributes(3, 1), [(1, 0)].into_iter());
    assert_eq!(
        (done.reach, done.refused),
        (1, 0),
        "another peer has room of its own"
    );
    let again = announce(&mut rib, 2, &attributes(2, 2), [(1, 0)].into_iter());
    assert_eq!(
        (again.reach, again.refused),
        (1, 0),
        "what is there may change"
    );
    assert_eq!(
        rib.counters(PeerId(2), FAMILY).paths,
        PATHS_PER_PEER_MAX as u32
    );
}

#[test]
fn peers_that_go_while_others_are_swept_are_swept_too() {
    let mut rib = rib();
    for peer in [1, 2, 3] {
        announce(
            &mut rib,
            peer,
            &attributes(peer, 1),
            (0..400).map(|number| (number, 0)),
        );
    }
    settle(&mut rib);
    rib.peer_down(PeerId(1), DownMode::Flush);
    assert_eq!(rib.decide(Budget(1)), Progress::More);
    rib.peer_down(PeerId(2), DownMode::Flush);
    assert!(!rib.is_settled(PeerId(1)) && !rib.is_settled(PeerId(2)));
    settle(&mut rib);
    assert!(rib.is_settled(PeerId(1)) && rib.is_settled(PeerId(2)));
    assert_eq!(rib.stats().paths, 400);
    for number in 0..400 {
        let view = rib.lookup(FAMILY, Net::V4(prefix(number))).expect("there");
        assert_eq!(view.best().map(|best| best.peer), Some(PeerId(3)));
    }
    rib.peer_down(PeerId(3), DownMode::Flush);
    settle(&mut rib);
    rib.trim(FAMILY, &[]);
    assert_eq!(rib.stats(), RibStats::default());
}

#[test]
fn a_peer_that_is_down_is_out_of_the_running_before_it_is_swept() {
    let mut rib = rib();
    for peer in [1, 2] {
        announce(
            &mut rib,
            peer,
            &attributes(peer, 1),
            (0..100).map(|number| (number, 0)),
        );
    }
    settle(&mut rib);
    rib.peer_down(PeerId(1), DownMode::Flush);
    let view = rib.lookup(FAMILY, Net::V4(prefix(99))).expect("there");
    let gone = view
        .paths
        .iter()
        .find(|path| path.peer == PeerId(1))
        .expect("not swept yet");
    assert_eq!(gone.ineligible, Some(Ineligible::PeerDown));
    assert_eq!(view.best().map(|best| best.peer), Some(PeerId(2)));
}

#[test]
fn hundreds_of_refreshes_without_an_end_do_no_harm() {
    let mut rib = rib();
    announce(
        &mut rib,
        2,
        &attributes(2, 1),
        (0..10).map(|number| (number, 0)),
    );
    for _ in 0..700 {
        rib.begin_refresh(PeerId(2), FAMILY);
    }
    announce(
        &mut rib,
        2,
        &attributes(2, 1),
        (0..3).map(|number| (number, 0)),
    );
    let view = rib.lookup(FAMILY, Net::V4(prefix(5))).expect("there");
    assert!(view.paths[0].awaits_refresh && !view.paths[0].stale);
    rib.end_refresh(PeerId(2), FAMILY);
    settle(&mut rib);
    assert_eq!(rib.counters(PeerId(2), FAMILY).paths, 3);
}

#[test]
fn announced_without_attributes_means_withdrawn() {
    let mut rib = rib();
    announce(&mut rib, 1, &attributes(1, 1), [(1, 0), (2, 0)].into_iter());
    let octets = [0, 0, 0, 0, 32, 10, 65, 0, 1];
    let reach = NlriIter::new(FAMILY, true, &octets, 0);
    let unreach = NlriIter::new(FAMILY, true, &[], 0);
    let mut batch = RouteBatch::new(FAMILY, None, reach, unreach);
    let done = rib.ingest(PeerId(1), &batch);
    assert_eq!((done.reach, done.unreach, done.remedy), (0, 1, None));
    assert!(rib.lookup(FAMILY, Net::V4(prefix(1))).is_none());
    assert!(rib.lookup(FAMILY, Net::V4(prefix(2))).is_some());
    batch.reach = NlriIter::new(FAMILY, true, &octets[..7], 0);
    assert_eq!(
        rib.ingest(PeerId(1), &batch).remedy,
        Some(Remedy::ResetSession)
    );
}

#[test]
fn meaningless_request_changes_nothing() {
    let mut rib = rib();
    let nowhere = Family::new(9999, 9);
    rib.announce(nowhere, Net::V4(prefix(1)), Attributes::default(), None);
    rib.announce(
        Family::IPV6_UNICAST,
        Net::V4(prefix(1)),
        Attributes::default(),
        None,
    );
    rib.withdraw(FAMILY, Net::V4(prefix(1)));
    rib.peer_down(PeerId::LOCAL, DownMode::Flush);
    rib.peer_up(PeerId::LOCAL, info(1));
    rib.peer_up(PeerId(u16::MAX), info(1));
    rib.peer_down(
        PeerId(77),
        DownMode::Stale {
            kept: FamilySet::UNICAST,
            long_lived: FamilySet::EMPTY,
        },
    );
    let done = announce(&mut rib, 1, &attributes(1, 1), [(1, 0)].into_iter());
    assert_eq!(done.reach, 1);
    let mut cursor = Cursor::initial();
    let progress = rib.changes(nowhere, &mut cursor, Budget(1), &mut |_| {
        panic!("nothing there")
    });
    assert_eq!(progress, Progress::Done);
    let stranger = Rib::ingest(
        &mut rib,
        PeerId(50),
        &RouteBatch::new(
            FAMILY,
            None,
            NlriIter::new(FAMILY, false, &[], 0),
            NlriIter::new(FAMILY, false, &[8, 10], 0),
        ),
    );
    assert_eq!(stranger, Ingested::default());
}

#[test]
fn a_limit_refuses_what_is_new_and_takes_what_is_known() {
    let mut rib = rib();
    let limit = |max, refuse| Some(PathLimit::new(max, refuse));
    rib.limit_paths(PeerId(1), FAMILY, limit(3, true));
    let done = announce(&mut rib, 1, &attributes(1, 2), (0..5).map(|n| (n, 0)));
    assert_eq!((done.reach, done.limited, done.exceeded), (3, 2, false));
    // Existing paths may change, and withdrawals make room.
    let done = announce(&mut rib, 1, &attributes(1, 1), (1..4).map(|n| (n, 0)));
    assert_eq!((done.reach, done.limited), (2, 1));
    // Another path of a prefix counts, too, and another peer has its own count.
    let done = announce(&mut rib, 1, &attributes(1, 1), [(0, 7)].into_iter());
    assert_eq!(done.limited, 1);
    let done = announce(&mut rib, 2, &attributes(2, 1), (0..9).map(|n| (n, 0)));
    assert_eq!((done.reach, done.limited), (9, 0));
    let counters = rib.counters(PeerId(1), FAMILY);
    assert_eq!((counters.paths, counters.limited), (3, 4));
    settle(&mut rib);
    assert_eq!(
        rib.stats().prefixes,
        9,
        "no slot is left behind by a refusal"
    );

    rib.limit_paths(PeerId(2), FAMILY, limit(9, false));
    let done = announce(&mut rib, 2, &attributes(2, 2), [(0, 0)].into_iter());
    assert!(!done.exceeded, "as many as it may");
    let done = announce(&mut rib, 2, &attributes(2, 2), [(10, 0)].into_iter());
    assert!(done.exceeded && done.reach == 1, "noted, not refused");
}

#[test]
fn paths_of_a_closed_session_do_not_count_to_the_limit() {
    let mut rib = rib();
    let refuse = true;
    rib.limit_paths(PeerId(1), FAMILY, Some(PathLimit::new(3, refuse)));
    announce(&mut rib, 1, &attributes(1, 2), (0..3).map(|n| (n, 0)));
    settle(&mut rib);
    rib.peer_down(PeerId(1), DownMode::Flush);
    // Back at once, before anything is swept: one prefix from before, others new.
    let done = announce(
        &mut rib,
        1,
        &attributes(1, 2),
        [2, 3, 4, 5].map(|n| (n, 0)).into_iter(),
    );
    assert_eq!((done.reach, done.limited), (3, 1));
    settle(&mut rib);
    assert_eq!(rib.counters(PeerId(1), FAMILY).paths, 3);
    assert_eq!(rib.stats().prefixes, 3);
}

/// Returns whether some prefix is usable through these peers only, searched in steps of this size.
fn depends(rib: &Rib, peers: &[u16], step: u32) -> bool {
    let peers = peers.iter().map(|peer| PeerId(*peer)).collect();
    let mut place = 0;
    loop {
        match rib.depend(FAMILY, &peers, place, Budget(step)) {
            Dependence::At(_) => return true,
            Dependence::None => return false,
            Dependence::More(next) => {
                assert!(next > place, "it comes to an end");
                place = next;
            }
        }
    }
}

#[test]
fn peers_that_are_the_only_source_of_a_prefix_are_found() {
    let mut rib = rib();
    announce(&mut rib, 1, &attributes(1, 1), (0..50).map(|n| (n, 0)));
    announce(&mut rib, 2, &attributes(2, 2), (0..50).map(|n| (n, 0)));
    announce(&mut rib, 3, &attributes(3, 3), [(50, 0)].into_iter());
    // Rejected by policy: present, but not usable.
    announce(&mut rib, 4, &attributes(4, 1), [(50, 0)].into_iter());
    settle(&mut rib);
    for step in [1, 7, 1000] {
        assert!(!depends(&rib, &[1], step), "2 has all that 1 has");
        assert!(depends(&rib, &[1, 2], step), "both at once");
        assert!(
            depends(&rib, &[3], step),
            "the routes of 4 are not accepted"
        );
        assert!(!depends(&rib, &[4], step), "nothing comes by way of it");
        assert!(!depends(&rib, &[], step));
    }
    // The paths of an ended session do not count as usable, retained ones do.
    rib.peer_down(
        PeerId(2),
        DownMode::Stale {
            kept: FamilySet::UNICAST,
            long_lived: FamilySet::EMPTY,
        },
    );
    assert!(!depends(&rib, &[1], 7));
    rib.stale_expired(PeerId(2));
    assert!(depends(&rib, &[1], 7));
    // The locally originated route remains usable.
    for number in 0..50 {
        rib.announce(FAMILY, Net::V4(prefix(number)), attributes(9, 1), None);
    }
    assert!(!depends(&rib, &[1], 7));
}
