use super::*;
use crate::Asn;
use alloc::string::ToString;
use alloc::vec::Vec;

fn path(text: &str) -> AsPath {
    text.parse().unwrap()
}

#[test]
fn length_counts_as_the_decision_process_does() {
    // covers RFC 4271 §9.1.2.2 a, RFC 5065 §5.3
    let rows = [
        ("", 0),
        ("1 2 3", 3),
        ("1 {2,3,4} 5", 3),
        ("(65001 65002) 1 2", 2),
        ("[1,2]", 0),
    ];
    for (text, length) in rows {
        assert_eq!(path(text).length(), length, "{text}");
    }
}

#[test]
fn as_path_has_first_and_origin_as() {
    let rows = [
        ("", None, None),
        ("1 2 3", Some(1), Some(3)),
        ("{1,2} 3", None, Some(3)),
        ("(65001) 1 {2,3}", Some(1), None),
    ];
    for (text, first, origin) in rows {
        assert_eq!(path(text).first_as(), first.map(Asn), "{text}");
        assert_eq!(path(text).origin_as(), origin.map(Asn), "{text}");
    }
    assert!(path("1 {2,3}").contains(Asn(3)) && !path("1 {2,3}").contains(Asn(4)));
}

#[test]
fn prepending_joins_or_begins_a_segment() {
    let mut joined = path("2 3");
    joined.prepend(Asn(1));
    assert_eq!(joined, path("1 2 3"));
    let mut before_set = path("{2,3}");
    before_set.prepend(Asn(1));
    assert_eq!(before_set.to_string(), "1 {2,3}");
    let mut empty = AsPath::empty();
    empty.prepend(Asn(1));
    assert_eq!(empty, path("1"));

    let asns: Vec<_> = (1..=255).map(Asn).collect();
    let mut full = AsPath::sequence(&asns);
    assert_eq!(full.segments().count(), 1);
    full.prepend(Asn(1000));
    assert_eq!((full.segments().count(), full.length()), (2, 256));
    assert_eq!(
        (full.first_as(), full.origin_as()),
        (Some(Asn(1000)), Some(Asn(255)))
    );
}

#[test]
fn confederations_are_left_behind() {
    assert_eq!(
        path("(65001 65002) 1 [65003] 2").without_confederations(),
        path("1 2")
    );
}

#[test]
fn a_path_is_two_words() {
    assert_eq!(size_of::<AsPath>(), 16);
}

#[test]
fn sets_are_canonical_only_when_asked() {
    let communities = [
        crate::Community(2),
        crate::Community(1),
        crate::Community(2),
    ];
    let mut set = Attributes {
        communities: communities.to_vec(),
        ..Attributes::default()
    };
    set.canonicalize();
    assert_eq!(set.communities, [crate::Community(1), crate::Community(2)]);
}

#[test]
fn samples_are_read_written_and_found_malformed() {
    use samples::{attribute, decoded, encoded, fault, shown};
    let med = attribute(0x80, 4, &[0, 0, 0, 9]);
    let set = decoded(&med);
    assert_eq!((set.med, encoded(&set)), (Some(9), med));
    assert_eq!(shown(&set), "", "no rare attribute");
    let short = attribute(0x80, 4, &[0, 0, 9]);
    let wanted = (crate::FaultKind::Length, crate::Remedy::TreatAsWithdraw);
    assert_eq!(fault(&short), wanted);
}

#[test]
fn sets_without_rare_attributes_pay_nothing_for_them() {
    let mut set = Attributes {
        local_pref: Some(100),
        next_hop: Some(NextHop::V4([10, 0, 0, 1].into())),
        communities: [crate::Community(7)].to_vec(),
        large_communities: [crate::LargeCommunity::new(1, 2, 3)].to_vec(),
        ..Attributes::default()
    };
    let mut packer = Packer::default();
    let octets = packer.pack(&set).to_vec();
    // Two octets of head, AS_PATH, NEXT_HOP, LOCAL_PREF, a list of one, a list of one.
    assert_eq!(octets.len(), 2 + 1 + 4 + 4 + (1 + 4) + (1 + 12));
    // An empty allocation equals an absent one.
    set.rare = RareAttributes::default().into();
    assert_eq!(packer.pack(&set), octets);
    assert_eq!(packer.keep().unpack(), set);
    assert_eq!(size_of::<Rare>(), size_of::<usize>());
}

#[test]
fn lengths_take_two_octets_only_when_they_must() {
    for (count, head) in [(63, &[0xc0, 8, 252][..]), (64, &[0xd0, 8, 1, 0])] {
        let communities = (0..count).map(crate::Community).collect();
        let set = Attributes {
            communities,
            ..Attributes::default()
        };
        let mut out = Vec::new();
        set.encode(true, &mut out);
        let start = out.len() - count as usize * 4 - head.len();
        assert_eq!(&out[start..start + head.len()], head, "{count} communities");
    }
}

#[test]
fn two_octet_session_gets_as4_attributes() {
    // covers RFC 6793 §4.2.2
    let aggregator = Some(Aggregator {
        asn: Asn(70_000),
        id: [10, 0, 0, 1].into(),
    });
    let set = Attributes {
        as_path: path("(65001) 7 70000"),
        aggregator,
        ..Attributes::default()
    };
    let mut out = Vec::new();
    set.encode(false, &mut out);
    let attributes: Vec<_> = RawAttrs::new(&out, 0).map(Result::unwrap).collect();
    let of = |code: AttrCode| {
        attributes
            .iter()
            .find(|attr| attr.code == code)
            .map(|attr| attr.value)
    };
    assert_eq!(
        of(AttrCode::AsPath),
        Some(&[3, 1, 0xfd, 0xe9, 2, 2, 0, 7, 0x5b, 0xa0][..])
    );
    assert_eq!(
        of(AttrCode::As4Path),
        Some(&[2, 2, 0, 0, 0, 7, 0, 1, 0x11, 0x70][..])
    );
    assert_eq!(
        of(AttrCode::Aggregator),
        Some(&[0x5b, 0xa0, 10, 0, 0, 1][..])
    );
    assert_eq!(
        of(AttrCode::As4Aggregator),
        Some(&[0, 1, 0x11, 0x70, 10, 0, 0, 1][..])
    );

    let small = Attributes {
        as_path: path("7 8"),
        ..Attributes::default()
    };
    let mut out = Vec::new();
    small.encode(false, &mut out);
    let codes: Vec<_> = RawAttrs::new(&out, 0)
        .map(|attr| attr.unwrap().code)
        .collect();
    assert_eq!(codes, [AttrCode::Origin, AttrCode::AsPath]);
}
