//! Faults of an UPDATE, and their remedies: one row for each rule.
#![allow(clippy::unwrap_used)] // helpers of tests

mod attributes;
mod multiprotocol;
mod passed_on;

use bgp_proto::{
    Asn, AttrCode, Attributes, Family, FamilySet, Fault, FaultKind, NextHop, PeerKind, Remedy,
    SessionParams, UpdateView,
};

const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
const AS_PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfc, 0];
const NEXT_HOP: &[u8] = &[0x40, 3, 4, 10, 0, 0, 1];
const GOOD: &[&[u8]] = &[ORIGIN, AS_PATH, NEXT_HOP];
const ROUTE: &[u8] = &[24, 10, 1, 2];

fn body(withdrawn: &[u8], attributes: &[&[u8]], nlri: &[u8]) -> Vec<u8> {
    let attributes = attributes.concat();
    let field = |octets: &[u8]| {
        let len = u16::try_from(octets.len()).unwrap();
        [&len.to_be_bytes()[..], octets].concat()
    };
    [field(withdrawn), field(&attributes), nlri.to_vec()].concat()
}

fn session(kind: PeerKind) -> SessionParams {
    SessionParams {
        kind,
        as4: true,
        families: FamilySet::all(),
        ..SessionParams::default()
    }
}

/// All faults of a message: of splitting it, of its attributes and of its routes.
fn faults(body: &[u8], params: &SessionParams) -> Vec<Fault> {
    let (view, mut faults) = UpdateView::parse(body, params).unwrap();
    for batch in view.batches() {
        faults.extend(batch.attrs.map(|attrs| attrs.parse().1).unwrap_or_default());
        faults.extend(batch.unreach.chain(batch.reach).filter_map(Result::err));
    }
    faults
}

fn set(body: &[u8], params: &SessionParams) -> Attributes {
    let (view, _) = UpdateView::parse(body, params).unwrap();
    view.batches()
        .find_map(|batch| batch.attrs)
        .unwrap()
        .parse()
        .0
}

use FaultKind as K;
use PeerKind::{External, Internal};
use Remedy::{AttributeDiscard, ResetSession, TreatAsWithdraw};

// Promise (BGP): An UPDATE with several faults is handled by the most severe one.
#[test]
fn all_faults_are_reported_and_the_worst_decides() {
    let attributes: &[&[u8]] = &[
        ORIGIN,
        AS_PATH,
        NEXT_HOP,
        &[0x40, 6, 1, 0],
        &[0xc0, 8, 1, 0],
        &[0x40, 5, 4, 0, 0, 0, 1],
    ];
    let found = faults(&body(&[], attributes, ROUTE), &session(External));
    let kinds: Vec<_> = found.iter().map(|fault| (fault.attr, fault.kind)).collect();
    assert_eq!(
        kinds,
        [
            (AttrCode::AtomicAggregate, K::Length),
            (AttrCode::Communities, K::Length),
            (AttrCode::LocalPref, K::NotFromExternal),
        ]
    );
    assert_eq!(Fault::worst(&found), Some(TreatAsWithdraw));
    assert_eq!(Fault::worst(&[]), None);
}

#[test]
fn a_discarded_attribute_leaves_the_others() {
    let attributes: &[&[u8]] = &[
        ORIGIN,
        AS_PATH,
        NEXT_HOP,
        &[0x40, 5, 4, 0, 0, 0, 1],
        &[0x80, 4, 4, 0, 0, 0, 7],
    ];
    let body = body(&[], attributes, ROUTE);
    let external = set(&body, &session(External));
    assert_eq!((external.local_pref, external.med), (None, Some(7)));
    let internal = set(&body, &session(Internal));
    assert_eq!((internal.local_pref, internal.med), (Some(1), Some(7)));
}

#[test]
fn an_overrun_withdraws_the_routes() {
    let body = body(&[8, 11], &[ORIGIN, AS_PATH, NEXT_HOP, &[0xc0, 8, 9]], ROUTE);
    let (view, faults) = UpdateView::parse(&body, &session(External)).unwrap();
    assert_eq!(Fault::worst(&faults), Some(TreatAsWithdraw));
    let batches: Vec<_> = view.batches().collect();
    assert_eq!(batches.len(), 1);
    assert!(batches[0].attrs.is_none() && batches[0].reach.is_empty());
    let unreach: Vec<_> = batches[0]
        .unreach
        .clone()
        .map(|n| n.unwrap().net.to_string())
        .collect();
    assert_eq!(unreach, ["11.0.0.0/8", "10.1.2.0/24"]);
}

#[test]
fn bad_attributes_without_routes_end_the_session() {
    // covers RFC 7606 §5.2
    let refused = |attributes: &[&[u8]]| {
        let body = body(&[], attributes, &[]);
        UpdateView::parse(&body, &session(External))
            .err()
            .map(|n| n.subcode)
    };
    assert_eq!(refused(&[ORIGIN, &[0xc0, 8, 9]]), Some(1));
    assert_eq!(refused(&[&[0x40, 1, 1, 9]]), Some(6));
    assert_eq!(
        refused(&[&[0x40, 6, 1, 9]]),
        None,
        "attribute discard stays one"
    );
    assert_eq!(refused(GOOD), None);
    // Some peers send NEXT_HOP 0.0.0.0 with MP_UNREACH_NLRI.
    assert_eq!(
        refused(&[&[0x40, 3, 4, 0, 0, 0, 0], &[0x80, 15, 4, 0, 2, 1, 0]]),
        None
    );
}

#[test]
fn lengths_that_do_not_fit_the_message_end_the_session() {
    for body in [
        &[][..],
        &[0],
        &[0, 0, 0],
        &[0, 1, 0, 0],
        &[0, 0, 0, 1],
        &[0xff, 0xff, 0, 0],
    ] {
        let error = UpdateView::parse(body, &session(External)).unwrap_err();
        assert_eq!((error.code, error.subcode), (3, 1), "{body:?}");
    }
}

#[test]
fn bad_routes() {
    let found = faults(&body(&[33, 0, 0, 0, 0, 0], &[], &[]), &session(External));
    assert_eq!(found, [Fault::new(K::NlriSyntax, AttrCode::None, 2)]);
    assert_eq!(found[0].remedy(), ResetSession);
    assert_eq!(found[0].notification(&[]).subcode, 10);
    // A fault of one opaque family affects no other: labeled unicast with 8 bits.
    let unreach: &[u8] = &[0x80, 15, 5, 0, 1, 4, 8, 10];
    let found = faults(&body(&[], &[unreach], &[]), &session(External));
    assert_eq!(
        found,
        [Fault::new(K::OpaqueNlriSyntax, AttrCode::MpUnreach, 10)]
    );
    assert_eq!(found[0].remedy(), Remedy::DisableFamily);
}

#[test]
fn end_of_rib() {
    let marker = |body: &[u8]| {
        let params = session(External);
        UpdateView::parse(body, &params).unwrap().0.end_of_rib()
    };
    assert_eq!(marker(&[0, 0, 0, 0]), Some(Family::IPV4_UNICAST));
    let six: &[u8] = &[0x80, 15, 3, 0, 2, 1];
    assert_eq!(marker(&body(&[], &[six], &[])), Some(Family::IPV6_UNICAST));
    // The same with the long form of the length.
    assert_eq!(
        marker(&body(&[], &[&[0x90, 15, 0, 3, 0, 2, 1]], &[])),
        Some(Family::IPV6_UNICAST)
    );
    assert_eq!(marker(&body(&[], &[ORIGIN, six], &[])), None);
    assert_eq!(marker(&body(ROUTE, &[], &[])), None);
    assert_eq!(marker(&body(ROUTE, &[six], &[])), None);
    assert_eq!(marker(&body(&[], &[&[0x80, 15, 4, 0, 2, 1, 0]], &[])), None);
}

#[test]
fn withdrawing_twice_is_withdrawing_once() {
    let body = body(&[8, 11], GOOD, ROUTE);
    let (view, _) = UpdateView::parse(&body, &session(External)).unwrap();
    let batch = view.batches().next().unwrap();
    let batch = batch.treated_as_withdraw().treated_as_withdraw();
    assert_eq!((batch.reach.count(), batch.unreach.count()), (0, 2));
}
