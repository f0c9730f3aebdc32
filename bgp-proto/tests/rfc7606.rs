//! What is wrong with an UPDATE, and what is done about it: one row for each rule.
#![allow(clippy::unwrap_used)] // helpers of tests

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

/// Session, attribute beside the good ones, what is wrong, remedy, and the NOTIFICATION's
/// subcode and data if it came to a reset.
type Row<'a> = (PeerKind, &'a [u8], FaultKind, Remedy, u8, &'a [u8]);

const ROWS: &[Row<'_>] = &[
    // RFC 7606 §7.4: MULTI_EXIT_DISC
    (
        External,
        &[0x80, 4, 3, 0, 0, 1],
        K::Length,
        TreatAsWithdraw,
        5,
        &[0x80, 4, 3, 0, 0, 1],
    ),
    // §7.5: LOCAL_PREF
    (
        Internal,
        &[0x40, 5, 1, 9],
        K::Length,
        TreatAsWithdraw,
        5,
        &[0x40, 5, 1, 9],
    ),
    (
        External,
        &[0x40, 5, 4, 0, 0, 0, 9],
        K::NotFromExternal,
        AttributeDiscard,
        9,
        &[0x40, 5, 4, 0, 0, 0, 9],
    ),
    (
        External,
        &[0x40, 5, 1, 9],
        K::NotFromExternal,
        AttributeDiscard,
        9,
        &[0x40, 5, 1, 9],
    ),
    // §7.6: ATOMIC_AGGREGATE
    (
        External,
        &[0x40, 6, 1, 0],
        K::Length,
        AttributeDiscard,
        5,
        &[0x40, 6, 1, 0],
    ),
    // §7.7: AGGREGATOR; 6 octets are of a two-octet session
    (
        External,
        &[0xc0, 7, 6, 0xfc, 0, 10, 0, 0, 1],
        K::Length,
        AttributeDiscard,
        5,
        &[0xc0, 7, 6, 0xfc, 0, 10, 0, 0, 1],
    ),
    // RFC 7607 §2: AS 0
    (
        External,
        &[0xc0, 7, 8, 0, 0, 0, 0, 10, 0, 0, 1],
        K::Value,
        AttributeDiscard,
        9,
        &[0xc0, 7, 8, 0, 0, 0, 0, 10, 0, 0, 1],
    ),
    // §7.8: COMMUNITIES
    (
        External,
        &[0xc0, 8, 3, 1, 2, 3],
        K::Length,
        TreatAsWithdraw,
        5,
        &[0xc0, 8, 3, 1, 2, 3],
    ),
    (
        External,
        &[0xc0, 8, 0],
        K::Length,
        TreatAsWithdraw,
        5,
        &[0xc0, 8, 0],
    ),
    // §7.9: ORIGINATOR_ID
    (
        Internal,
        &[0x80, 9, 5, 1, 2, 3, 4, 5],
        K::Length,
        TreatAsWithdraw,
        5,
        &[0x80, 9, 5, 1, 2, 3, 4, 5],
    ),
    (
        External,
        &[0x80, 9, 4, 1, 2, 3, 4],
        K::NotFromExternal,
        AttributeDiscard,
        9,
        &[0x80, 9, 4, 1, 2, 3, 4],
    ),
    // §7.10: CLUSTER_LIST
    (
        Internal,
        &[0x80, 10, 0],
        K::Length,
        TreatAsWithdraw,
        5,
        &[0x80, 10, 0],
    ),
    (
        External,
        &[0x80, 10, 4, 1, 2, 3, 4],
        K::NotFromExternal,
        AttributeDiscard,
        9,
        &[0x80, 10, 4, 1, 2, 3, 4],
    ),
    // §7.14: EXTENDED_COMMUNITIES
    (
        External,
        &[0xc0, 16, 4, 0, 2, 0, 0],
        K::Length,
        TreatAsWithdraw,
        5,
        &[0xc0, 16, 4, 0, 2, 0, 0],
    ),
    // RFC 6793 §4.1: AS4_PATH and AS4_AGGREGATOR from a four-octet peer
    (
        External,
        &[0xc0, 17, 6, 2, 1, 0, 1, 0, 0],
        K::NotFromFourOctet,
        AttributeDiscard,
        9,
        &[0xc0, 17, 6, 2, 1, 0, 1, 0, 0],
    ),
    (
        External,
        &[0xc0, 18, 8, 0, 1, 0, 0, 1, 2, 3, 4],
        K::NotFromFourOctet,
        AttributeDiscard,
        9,
        &[0xc0, 18, 8, 0, 1, 0, 0, 1, 2, 3, 4],
    ),
    // RFC 8092 §6: LARGE_COMMUNITIES
    (
        External,
        &[0xc0, 32, 8, 0, 0, 0, 1, 0, 0, 0, 2],
        K::Length,
        TreatAsWithdraw,
        5,
        &[0xc0, 32, 8, 0, 0, 0, 1, 0, 0, 0, 2],
    ),
    // §3 c: flags
    (
        Internal,
        &[0x80, 5, 4, 0, 0, 0, 9],
        K::Flags,
        TreatAsWithdraw,
        4,
        &[0x80, 5, 4, 0, 0, 0, 9],
    ),
    (
        External,
        &[0x80, 8, 4, 0, 0, 0, 9],
        K::Flags,
        TreatAsWithdraw,
        4,
        &[0x80, 8, 4, 0, 0, 0, 9],
    ),
    // §3 g: twice
    (
        External,
        &[0x40, 1, 1, 1],
        K::Duplicate,
        AttributeDiscard,
        1,
        &[],
    ),
    // RFC 4271 §6.3: an unknown attribute that calls itself well-known
    (
        External,
        &[0x40, 99, 1, 1],
        K::UnrecognizedWellKnown,
        TreatAsWithdraw,
        2,
        &[0x40, 99, 1, 1],
    ),
    // §4: past the end, in the value and in the head
    (
        External,
        &[0xc0, 8, 8, 0, 0, 0, 1],
        K::Overrun,
        TreatAsWithdraw,
        1,
        &[],
    ),
    (External, &[0xc0, 8], K::Overrun, TreatAsWithdraw, 1, &[]),
    (External, &[0xd0, 8, 0], K::Overrun, TreatAsWithdraw, 1, &[]),
];

#[test]
fn each_fault_has_its_remedy() {
    for (kind, attribute, fault, remedy, subcode, data) in ROWS {
        let body = body(&[], &[ORIGIN, AS_PATH, NEXT_HOP, attribute], ROUTE);
        let found = faults(&body, &session(*kind));
        let at = 4 + u16::try_from(GOOD.concat().len()).unwrap();
        let want = Fault {
            kind: *fault,
            attr: AttrCode(attribute[1]),
            at,
        };
        assert_eq!(found, [want], "{attribute:?}");
        assert_eq!(want.remedy(), *remedy, "{want}");
        let notification = want.notification(&body);
        assert_eq!(
            (notification.code, notification.subcode),
            (3, *subcode),
            "{want}"
        );
        assert_eq!(&notification.data[..], *data, "{want}");
    }
}

#[test]
fn mandatory_attributes_with_bad_values() {
    let zero_as: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0, 0];
    let rows: &[([&[u8]; 3], FaultKind, AttrCode, u8)] = &[
        (
            [&[0x40, 1, 1, 5], AS_PATH, NEXT_HOP],
            K::Value,
            AttrCode::Origin,
            6,
        ),
        (
            [&[0x40, 1, 2, 0, 0], AS_PATH, NEXT_HOP],
            K::Length,
            AttrCode::Origin,
            5,
        ),
        (
            [&[0xc0, 1, 1, 0], AS_PATH, NEXT_HOP],
            K::Flags,
            AttrCode::Origin,
            4,
        ),
        // RFC 7606 §7.2: unknown segment, empty segment, segment cut off, AS 0
        (
            [ORIGIN, &[0x40, 2, 6, 9, 1, 0, 0, 0, 1], NEXT_HOP],
            K::Value,
            AttrCode::AsPath,
            11,
        ),
        (
            [ORIGIN, &[0x40, 2, 2, 2, 0], NEXT_HOP],
            K::Value,
            AttrCode::AsPath,
            11,
        ),
        (
            [ORIGIN, &[0x40, 2, 6, 2, 2, 0, 0, 0, 1], NEXT_HOP],
            K::Value,
            AttrCode::AsPath,
            11,
        ),
        (
            [ORIGIN, &[0x40, 2, 1, 2], NEXT_HOP],
            K::Value,
            AttrCode::AsPath,
            11,
        ),
        ([ORIGIN, zero_as, NEXT_HOP], K::Value, AttrCode::AsPath, 11),
        // RFC 5065 §5: a confederation's segment from outside
        (
            [ORIGIN, &[0x40, 2, 6, 3, 1, 0, 0, 0, 1], NEXT_HOP],
            K::Value,
            AttrCode::AsPath,
            11,
        ),
        (
            [ORIGIN, AS_PATH, &[0x40, 3, 3, 10, 0, 0]],
            K::Length,
            AttrCode::NextHop,
            5,
        ),
        (
            [ORIGIN, AS_PATH, &[0x40, 3, 4, 0, 0, 0, 0]],
            K::NextHop,
            AttrCode::NextHop,
            8,
        ),
        (
            [ORIGIN, AS_PATH, &[0x40, 3, 4, 127, 0, 0, 1]],
            K::NextHop,
            AttrCode::NextHop,
            8,
        ),
        (
            [ORIGIN, AS_PATH, &[0x40, 3, 4, 224, 0, 0, 5]],
            K::NextHop,
            AttrCode::NextHop,
            8,
        ),
        (
            [ORIGIN, AS_PATH, &[0x40, 3, 4, 255, 255, 255, 255]],
            K::NextHop,
            AttrCode::NextHop,
            8,
        ),
    ];
    for (attributes, kind, attr, subcode) in rows {
        let body = body(&[], attributes, ROUTE);
        let found = faults(&body, &session(External));
        assert_eq!(found.len(), 1, "{attributes:?}: {found:?}");
        assert_eq!(
            (found[0].kind, found[0].attr),
            (*kind, *attr),
            "{attributes:?}"
        );
        assert_eq!(found[0].remedy(), TreatAsWithdraw);
        assert_eq!(found[0].notification(&body).subcode, *subcode);
    }
}

#[test]
fn mandatory_attributes_that_are_missing() {
    for (left_out, code) in [
        (0, AttrCode::Origin),
        (1, AttrCode::AsPath),
        (2, AttrCode::NextHop),
    ] {
        let mut attributes = GOOD.to_vec();
        attributes.remove(left_out);
        let body = body(&[], &attributes, ROUTE);
        let fault = Fault {
            kind: K::Missing,
            attr: code,
            at: 0,
        };
        assert_eq!(faults(&body, &session(External)), [fault]);
        assert_eq!(fault.remedy(), TreatAsWithdraw);
        let notification = fault.notification(&body);
        assert_eq!(
            (notification.subcode, &notification.data[..]),
            (3, &[code.0][..])
        );
    }
    // A missing LOCAL_PREF is no fault: RFC 4271 §5 lists it as discretionary.
    assert_eq!(faults(&body(&[], GOOD, ROUTE), &session(Internal)), []);
    // Nothing is mandatory where nothing is announced.
    assert_eq!(faults(&body(ROUTE, &[], &[]), &session(External)), []);
    assert_eq!(faults(&body(ROUTE, &[ORIGIN], &[]), &session(External)), []);
}

#[test]
fn several_faults_are_all_told_and_the_worst_counts() {
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
    assert_eq!(
        found,
        [Fault {
            kind: K::NlriSyntax,
            attr: AttrCode::None,
            at: 2
        }]
    );
    assert_eq!(found[0].remedy(), ResetSession);
    assert_eq!(found[0].notification(&[]).subcode, 10);
    // One opaque family's trouble is its own: labeled unicast with 8 bits.
    let unreach: &[u8] = &[0x80, 15, 5, 0, 1, 4, 8, 10];
    let found = faults(&body(&[], &[unreach], &[]), &session(External));
    assert_eq!(
        found,
        [Fault {
            kind: K::OpaqueNlriSyntax,
            attr: AttrCode::MpUnreach,
            at: 10
        }]
    );
    assert_eq!(found[0].remedy(), Remedy::DisableFamily);
}

fn mp_reach(family: Family, next_hop: &[u8], nlri: &[u8]) -> Vec<u8> {
    let mut value = family.afi.to_be_bytes().to_vec();
    value.extend([family.safi, u8::try_from(next_hop.len()).unwrap()]);
    value.extend(next_hop);
    value.push(0);
    value.extend(nlri);
    [&[0x80, 14, u8::try_from(value.len()).unwrap()][..], &value].concat()
}

const GLOBAL: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const LOOPBACK: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const MAPPED: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
const RD: [u8; 8] = [0; 8];

/// What a next hop in MP_REACH_NLRI comes to.
fn mp_next_hop(
    family: Family,
    next_hop: &[u8],
    params: &SessionParams,
) -> Result<NextHop, FaultKind> {
    let nlri: &[u8] = match family {
        Family::IPV4_VPN | Family::IPV6_VPN => &[88, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        _ => &[0],
    };
    let reach = mp_reach(family, next_hop, nlri);
    let body = body(&[], &[ORIGIN, AS_PATH, &reach], &[]);
    match faults(&body, params)[..] {
        [] => Ok(set(&body, params).next_hop.unwrap()),
        [fault] => Err(fault.kind),
        _ => panic!("one fault at most"),
    }
}

#[test]
fn next_hops_by_family() {
    let plain = session(External);
    let v4 = NextHop::V4([10, 0, 0, 1].into());
    let v6 = NextHop::v6(GLOBAL.into());
    let pair = NextHop::V6 {
        global: GLOBAL.into(),
        link_local: Some(LOCAL.into()),
    };
    let four: &[u8] = &[10, 0, 0, 1];

    let six = Family::IPV6_UNICAST;
    assert_eq!(mp_next_hop(six, &GLOBAL, &plain), Ok(v6.clone()));
    assert_eq!(
        mp_next_hop(six, &[GLOBAL, LOCAL].concat(), &plain),
        Ok(pair.clone())
    );
    assert_eq!(
        mp_next_hop(six, &[GLOBAL, [0; 16]].concat(), &plain),
        Ok(v6.clone())
    );
    let only_local = NextHop::V6 {
        global: [0; 16].into(),
        link_local: Some(LOCAL.into()),
    };
    assert_eq!(
        mp_next_hop(six, &[[0; 16], LOCAL].concat(), &plain),
        Ok(only_local.clone())
    );
    assert_eq!(
        only_local.address(),
        Some(std::net::IpAddr::V6(LOCAL.into()))
    );
    assert!(mp_next_hop(six, &LOCAL, &plain).is_ok());
    assert!(mp_next_hop(six, &[LOCAL, LOCAL].concat(), &plain).is_ok());
    for bad in [[0; 16], LOOPBACK, MAPPED, [0xff; 16]] {
        assert_eq!(mp_next_hop(six, &bad, &plain), Err(K::NextHop), "{bad:?}");
    }
    assert_eq!(
        mp_next_hop(six, &[GLOBAL, GLOBAL].concat(), &plain),
        Err(K::NextHop)
    );
    assert_eq!(mp_next_hop(six, four, &plain), Err(K::MpNextHopLength));
    let mapped = SessionParams {
        v4_mapped_next_hop: true,
        ..plain.clone()
    };
    assert_eq!(
        mp_next_hop(six, &MAPPED, &mapped),
        Ok(NextHop::v6(MAPPED.into()))
    );

    // RFC 8950: only if negotiated.
    let extended = SessionParams {
        extended_next_hop: true,
        ..plain.clone()
    };
    assert_eq!(
        mp_next_hop(Family::IPV4_UNICAST, four, &plain),
        Ok(v4.clone())
    );
    assert_eq!(
        mp_next_hop(Family::IPV4_UNICAST, &GLOBAL, &plain),
        Err(K::MpNextHopLength)
    );
    assert_eq!(
        mp_next_hop(Family::IPV4_UNICAST, &GLOBAL, &extended),
        Ok(v6.clone())
    );

    assert_eq!(
        mp_next_hop(Family::IPV4_VPN, &[&RD, four].concat(), &plain),
        Ok(v4.clone())
    );
    assert_eq!(
        mp_next_hop(Family::IPV6_VPN, &[&RD[..], &GLOBAL].concat(), &plain),
        Ok(v6)
    );
    let both = [&RD[..], &GLOBAL, &RD, &LOCAL].concat();
    assert_eq!(mp_next_hop(Family::IPV6_VPN, &both, &plain), Ok(pair));
    assert_eq!(
        mp_next_hop(Family::IPV4_VPN, four, &plain),
        Err(K::OpaqueNextHopLength)
    );
    assert_eq!(mp_next_hop(Family::ROUTE_TARGET, four, &plain), Ok(v4));
    assert_eq!(
        Fault {
            kind: K::NextHop,
            attr: AttrCode::MpReach,
            at: 4
        }
        .remedy(),
        TreatAsWithdraw
    );
}

#[test]
fn next_hop_beside_mp_reach_is_ignored() {
    let reach = mp_reach(Family::IPV6_UNICAST, &GLOBAL, &[0]);
    let zero: &[u8] = &[0x40, 3, 4, 0, 0, 0, 0];
    let body = body(&[], &[ORIGIN, AS_PATH, zero, &reach], &[]);
    assert_eq!(faults(&body, &session(External)), []);
    assert_eq!(
        set(&body, &session(External)).next_hop,
        Some(NextHop::v6(GLOBAL.into()))
    );
}

#[test]
fn multiprotocol_attributes_that_cannot_be_used() {
    let params = SessionParams {
        families: FamilySet::UNICAST,
        ..session(External)
    };
    let view = |attributes: &[&[u8]]| {
        let body = body(&[], attributes, &[]);
        let (view, faults) = UpdateView::parse(&body, &params).unwrap();
        let batches = view
            .batches()
            .map(|batch| (batch.family, batch.attrs.is_some()))
            .collect();
        (
            faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(),
            batches,
        )
    };
    let six = mp_reach(Family::IPV6_UNICAST, &GLOBAL, &[0]);
    let (ok, none): (Vec<_>, Vec<_>) = (vec![(Family::IPV6_UNICAST, true)], vec![]);
    assert_eq!(view(&[ORIGIN, AS_PATH, &six]), (vec![], ok.clone()));
    let vpn = mp_reach(Family::IPV4_VPN, &[0; 12], &[]);
    assert_eq!(
        view(&[ORIGIN, AS_PATH, &vpn]),
        (vec![K::FamilyNotNegotiated], none.clone())
    );
    let unheard = mp_reach(Family::new(16_388, 71), &[], &[1, 2, 3]);
    assert_eq!(
        view(&[&unheard]),
        (vec![K::FamilyNotNegotiated], none.clone())
    );
    assert_eq!(
        view(&[&[0x80, 14, 3, 0, 2, 1]]),
        (vec![K::MpSyntax], none.clone())
    );
    assert_eq!(view(&[&[0x80, 15, 2, 0, 2]]), (vec![K::MpSyntax], none));
    let withdrawn = vec![(Family::IPV6_UNICAST, false)];
    let twice = view(&[ORIGIN, AS_PATH, &six, &six]);
    assert_eq!(twice, (vec![K::MpDuplicate], withdrawn.clone()));
    let mut flags = six.clone();
    flags[0] = 0xc0;
    assert_eq!(
        view(&[ORIGIN, AS_PATH, &flags]),
        (vec![K::Flags], withdrawn)
    );
    for kind in [K::MpDuplicate, K::MpSyntax, K::MpNextHopLength] {
        assert_eq!(
            Fault {
                kind,
                attr: AttrCode::MpReach,
                at: 0
            }
            .remedy(),
            ResetSession
        );
    }
}

#[test]
fn as4_attributes_of_a_two_octet_session() {
    // covers RFC 6793 §4.2.3
    let params = SessionParams {
        as4: false,
        ..session(External)
    };
    let path = |as_path: &[u8], rest: &[&[u8]]| {
        let as_path = [&[0x40, 2, u8::try_from(as_path.len()).unwrap()], as_path].concat();
        let attributes = [&[ORIGIN, &as_path, NEXT_HOP], rest].concat();
        let body = body(&[], &attributes, ROUTE);
        let set = set(&body, &params);
        (
            set.as_path.to_string(),
            set.aggregator.map(|aggregator| aggregator.asn),
        )
    };
    let trans = [0x5b, 0xa0];
    let two = [&[2, 3, 0, 7][..], &trans, &trans].concat();
    let as4: &[u8] = &[0xc0, 17, 10, 2, 2, 0, 1, 0, 1, 0, 1, 0, 2];
    assert_eq!(path(&two, &[as4]), ("7 65537 65538".into(), None));
    // AS4_PATH longer than AS_PATH is ignored.
    assert_eq!(path(&[2, 1, 0, 7], &[as4]), ("7".into(), None));
    // An aggregator that did not know AS4_AGGREGATOR: both attributes are stale.
    let aggregator: &[u8] = &[0xc0, 7, 6, 0, 9, 10, 0, 0, 1];
    let as4_aggregator: &[u8] = &[0xc0, 18, 8, 0, 1, 0, 9, 10, 0, 0, 1];
    let stale = path(&two, &[aggregator, as4, as4_aggregator]);
    assert_eq!(stale, ("7 23456 23456".into(), Some(Asn(9))));
    let trans_aggregator: &[u8] = &[0xc0, 7, 6, 0x5b, 0xa0, 10, 0, 0, 1];
    let merged = path(&two, &[trans_aggregator, as4, as4_aggregator]);
    assert_eq!(merged, ("7 65537 65538".into(), Some(Asn(65_545))));
    // A set counts one; a sequence is taken in part.
    let with_set = [&[1, 2, 0, 1, 0, 2, 2, 2, 0, 7][..], &trans].concat();
    let as4_one: &[u8] = &[0xc0, 17, 6, 2, 1, 0, 1, 0, 1];
    assert_eq!(path(&with_set, &[as4_one]), ("{1,2} 7 65537".into(), None));
    // Confederation segments have no place in AS4_PATH.
    let confederation: &[u8] = &[0xc0, 17, 12, 3, 1, 0, 0, 0, 1, 2, 1, 0, 1, 0, 1];
    assert_eq!(
        path(&[2, 1, 0x5b, 0xa0], &[confederation]),
        ("65537".into(), None)
    );
    // A broken AS4_PATH is only left out.
    let broken: &[u8] = &[0xc0, 17, 2, 2, 0];
    assert_eq!(path(&[2, 1, 0x5b, 0xa0], &[broken]), ("23456".into(), None));
}

#[test]
fn unknown_attributes_are_passed_on_or_dropped() {
    let transitive: &[u8] = &[0xc0, 99, 2, 1, 2];
    let local: &[u8] = &[0x80, 98, 1, 7];
    let body = body(&[], &[ORIGIN, AS_PATH, NEXT_HOP, local, transitive], ROUTE);
    assert_eq!(faults(&body, &session(External)), []);
    let set = set(&body, &session(External));
    let known: Vec<_> = set
        .unknown
        .iter()
        .map(|attr| (attr.code.0, attr.flags))
        .collect();
    assert_eq!(known, [(98, 0x80), (99, 0xc0)]);
    let mut out = Vec::new();
    set.encode(true, &mut out);
    // RFC 4271 §5: Partial set on the one, the other gone.
    assert_eq!(out, [GOOD.concat(), vec![0xe0, 99, 2, 1, 2]].concat());
}

#[test]
fn a_partial_flag_stays() {
    let body = body(
        &[],
        &[ORIGIN, AS_PATH, NEXT_HOP, &[0xe0, 8, 4, 0, 1, 0, 2]],
        ROUTE,
    );
    let mut out = Vec::new();
    set(&body, &session(External)).encode(true, &mut out);
    assert!(out.ends_with(&[0xe0, 8, 4, 0, 1, 0, 2]));
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
