//! Recorded changes of the Adj-RIBs-In.

use bgp_proto::{Asn, FamilySet, Net};
use rib::limits::{RECORD_ROUTES_MAX, RECORDED_ROUTES_MAX};
use rib::{DownMode, PeerId, PeerInfo, Rib, Routes, Stage};

use crate::{FAMILY, announce, attributes, info, prefix, rib, settle};

const PEER: PeerId = PeerId(2);

fn recording() -> Rib {
    let mut rib = rib();
    rib.record([Stage::AdjRibInPrePolicy].into());
    rib
}

fn announce_all(rib: &mut Rib, count: u32) {
    let routes = (0..count).map(|number| (number, 0));
    announce(rib, PEER.0, &attributes(PEER.0, 1), routes);
}

/// Takes what was recorded: the announced and the withdrawn routes, and the number of lost ones.
fn take(rib: &mut Rib) -> (usize, usize, u64) {
    let (mut reach, mut unreach) = (0, 0);
    let lost = rib.take_recorded(&mut |routes: Routes| {
        assert_eq!((routes.peer, routes.family), (PEER, FAMILY));
        assert!((1..=RECORD_ROUTES_MAX).contains(&routes.len()));
        match routes.attributes {
            Some(_) => reach += routes.len(),
            None => unreach += routes.len(),
        }
    });
    (reach, unreach, lost)
}

#[test]
fn recorded_routes_are_bounded_and_losses_counted() {
    const EACH: u32 = 7000;
    let mut rib = recording();
    let times = RECORDED_ROUTES_MAX / EACH as usize + 2;
    for _ in 0..times {
        announce_all(&mut rib, EACH);
    }
    let lost = (times * EACH as usize - RECORDED_ROUTES_MAX) as u64;
    assert_eq!(take(&mut rib), (RECORDED_ROUTES_MAX, 0, lost));
    announce_all(&mut rib, 1);
    assert_eq!(take(&mut rib), (1, 0, 0));
}

#[test]
fn end_of_a_session_is_not_recorded_route_by_route() {
    let mut rib = recording();
    announce_all(&mut rib, 100);
    rib.peer_down(PEER, DownMode::Flush);
    settle(&mut rib);
    assert_eq!(take(&mut rib), (100, 0, 0));
    // In the next session, paths that are not sent again are.
    announce_all(&mut rib, 100);
    rib.begin_refresh(PEER, FAMILY);
    announce_all(&mut rib, 60);
    rib.end_refresh(PEER, FAMILY);
    settle(&mut rib);
    assert_eq!(take(&mut rib), (160, 40, 0));
}

#[test]
fn retained_paths_of_another_peer_are_recorded_as_withdrawn() {
    let mut rib = recording();
    announce_all(&mut rib, 100);
    rib.peer_down(
        PEER,
        DownMode::Stale {
            kept: FamilySet::UNICAST,
            long_lived: FamilySet::EMPTY,
        },
    );
    settle(&mut rib);
    assert_eq!(take(&mut rib), (100, 0, 0));
    let other = PeerInfo {
        asn: Asn(64_513),
        ..info(PEER.0)
    };
    rib.peer_up(PEER, other);
    settle(&mut rib);
    assert_eq!(take(&mut rib), (0, 100, 0));
    assert!(rib.lookup(FAMILY, Net::V4(prefix(1))).is_none());
}

#[test]
fn local_routes_are_not_recorded() {
    let mut rib = recording();
    rib.announce(FAMILY, Net::V4(prefix(1)), attributes(PEER.0, 1), None);
    rib.withdraw(FAMILY, Net::V4(prefix(1)));
    assert_eq!(take(&mut rib), (0, 0, 0));
    announce_all(&mut rib, 1);
    rib.stop_recording();
    assert_eq!(take(&mut rib), (0, 0, 0));
}
