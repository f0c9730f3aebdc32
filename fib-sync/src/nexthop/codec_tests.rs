//! Requests built, and answers recorded from Linux 6.18.

use proptest::prelude::*;

use super::*;

const US: Owner = Owner(119);

/// Answers to `RTM_GETNEXTHOP`, recorded on a little-endian machine.
const RECORDED: [&str; 6] = [
    "02fd77000000000008000100010000000800050003000000080006000a090002",
    "0afd7700040000000800010002000000080005000300000014000600fd090000000000000000000000000002",
    "00007700000000000800010003000000060003000000000014000200010000000200000002000000ff00000008000e0000000080",
    "0200000000000000080001000400000004000400",
    "000000000000000008000100050000000600030001000000140002000100000000000000020000000000000028000c80060001000800000008000200e02e000008000300000000000c000400000000000000000008000e0000000080",
    "02fe00000000000008000100060000000800050003000000",
];

fn octets(hex: &str) -> Vec<u8> {
    let pairs = (0..hex.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn via(gateway: &str) -> Hop {
    Hop::via(gateway.parse().unwrap()).on(3)
}

#[cfg(target_endian = "little")]
#[test]
fn answers_of_the_kernel_are_parsed() {
    let content = RECORDED.map(|hex| parse(&octets(hex)).unwrap());
    let members = vec![Member { id: 1, weight: 3 }, Member { id: 2, weight: 256 }];
    let expected = [
        Nexthop::new(1, US, NexthopContent::Hop(via("10.9.0.2"))),
        Nexthop::new(2, US, NexthopContent::Hop(via("fd09::2").onlink())),
        Nexthop::new(3, US, NexthopContent::Group(members)),
        Nexthop::new(4, Owner(0), NexthopContent::Blackhole),
        Nexthop::new(5, Owner(0), NexthopContent::Other),
        Nexthop::new(6, Owner(0), NexthopContent::Hop(Hop::device(3))),
    ];
    assert_eq!(content, expected);
}

#[cfg(target_endian = "little")]
#[test]
fn octets_cut_anywhere_are_rejected_or_an_object() {
    for hex in RECORDED {
        let all = octets(hex);
        for end in 0..all.len() {
            if let Some(nexthop) = parse(&all[..end]) {
                assert_ne!(nexthop.id, 0);
            }
        }
    }
}

#[test]
fn delete_names_the_number_alone() {
    let message = request(Request::Delete(0x7700_0001), 9).unwrap();
    assert_eq!(message.len(), 32);
    assert_eq!(message[4..6], RTM_DELNEXTHOP.to_ne_bytes());
    assert_eq!(message[8..12], 9_u32.to_ne_bytes());
    assert_eq!(message[28..], 0x7700_0001_u32.to_ne_bytes());
}

#[test]
fn object_without_gateway_or_members_is_not_written() {
    for content in [
        NexthopContent::Hop(Hop::device(3)),
        NexthopContent::Hop(Hop::via("10.0.0.1".parse().unwrap())),
        NexthopContent::Group(Vec::new()),
        NexthopContent::Blackhole,
        NexthopContent::Other,
    ] {
        let nexthop = Nexthop::new(1, US, content);
        assert_eq!(request(Request::Create(&nexthop), 1), None);
    }
}

fn nexthop() -> impl Strategy<Value = Nexthop> {
    let hop =
        (any::<IpAddr>(), any::<u32>(), any::<bool>()).prop_map(|(gateway, index, onlink)| {
            let hop = Hop::via(gateway).on(index);
            NexthopContent::Hop(if onlink { hop.onlink() } else { hop })
        });
    let member = (any::<u32>(), 1..=256_u16).prop_map(|(id, weight)| Member { id, weight });
    let group = prop::collection::vec(member, 1..HOPS_MAX).prop_map(NexthopContent::Group);
    (1..u32::MAX, any::<u8>(), prop_oneof![hop, group])
        .prop_map(|(id, owner, content)| Nexthop::new(id, Owner(owner), content))
}

proptest! {
    #[test]
    fn written_object_reads_the_same(nexthop in nexthop(), sequence in any::<u32>()) {
        let message = request(Request::Create(&nexthop), sequence).unwrap();
        prop_assert_eq!(message.len() % 4, 0);
        prop_assert_eq!(parse(&message[MESSAGE_HEADER..]), Some(nexthop));
    }

    #[test]
    fn any_octets_are_an_object_or_rejected(octets in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(nexthop) = parse(&octets) {
            prop_assert_ne!(nexthop.id, 0);
        }
    }
}
