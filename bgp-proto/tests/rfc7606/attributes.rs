//! Faults of single attributes, and their remedies.

use super::*;

/// Session, attribute beside the valid ones, fault, remedy, and the NOTIFICATION's subcode and data
/// for a reset.
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
        let want = Fault::new(*fault, AttrCode(attribute[1]), at.into());
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
        // RFC 4271 §5.1.2: a speaker of another AS adds its own number.
        (
            [ORIGIN, &[0x40, 2, 0], NEXT_HOP],
            K::Value,
            AttrCode::AsPath,
            11,
        ),
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
        let fault = Fault::new(K::Missing, code, 0);
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
    // Without announced routes no attribute is mandatory.
    assert_eq!(faults(&body(ROUTE, &[], &[]), &session(External)), []);
    assert_eq!(faults(&body(ROUTE, &[ORIGIN], &[]), &session(External)), []);
}
