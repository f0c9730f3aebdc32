//! Attributes that are passed on: those of two-octet sessions, and unknown ones.

use super::*;

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
    // An aggregator without support of AS4_AGGREGATOR: both attributes are outdated.
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
    let mut set = set(&body, &session(External));
    let known: Vec<_> = set
        .unknown
        .iter()
        .map(|attr| (attr.code.0, attr.flags))
        .collect();
    assert_eq!(known, [(98, 0x80), (99, 0xc0)]);
    let mut out = Vec::new();
    set.encode(true, &mut out);
    let as_it_came = [&GOOD.concat(), local, transitive].concat();
    assert_eq!(out, as_it_came, "flags stay until it is passed on");
    out.clear();
    set.pass_on();
    set.encode(true, &mut out);
    // RFC 4271 §5: Partial is set on the first, the second is removed.
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
