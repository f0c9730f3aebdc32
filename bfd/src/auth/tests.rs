use std::vec::Vec;

use super::*;
use crate::packet::Packet;
use crate::table::State;

/// Packets that BIRD 2.0.12 has sent in the state Up: of each type, with the key 5, "cambric".
const BIRD: [(AuthType, &str); 5] = [
    (
        AuthType::SimplePassword,
        "20c403223253eb5f2c8e05720000c3500000c35000000000\
         010a0563616d62726963",
    ),
    (
        AuthType::KeyedMd5,
        "20c403302ec9eeb4f0c23d440000c3500000c35000000000\
         021805008d3153f0b0efc523289d9fa31df46cd584030fe5",
    ),
    (
        AuthType::MeticulousKeyedMd5,
        "20c40330b8f5af1bfd0120290000c3500000c35000000000\
         03180500d109cd22ffee96cb30c07e20384bb2e4b42b17cb",
    ),
    (
        AuthType::KeyedSha1,
        "20c4033459eab45415844d410000c3500000c35000000000\
         041c050031ff2a03d332cad45f0ee1faf1d43252d1b67ae446f3b1c9",
    ),
    (
        AuthType::MeticulousKeyedSha1,
        "20c40334bd637707a91fc74e0000c3500000c35000000000\
         051c0500d8aaac2c133db881d6792370df7349d720ba95dea3df35e1",
    ),
];

fn octets(hex: &str) -> Vec<u8> {
    let digits = (0..hex.len()).step_by(2).map(|at| &hex[at..at + 2]);
    let octets = digits.map(|digits| u8::from_str_radix(digits, 16));
    octets.collect::<Result<_, _>>().expect("hex digits")
}

#[test]
fn packets_of_bird_are_authentic_and_encoded_alike() {
    let key = Secret::new(b"cambric").expect("a short key");
    let other = Secret::new(b"cambrid").expect("a short key");
    for (auth_type, hex) in BIRD {
        let octets = octets(hex);
        let packet = Packet::decode(&octets).expect("a valid packet");
        assert_eq!(packet.state, State::Up);
        assert_eq!(packet.desired_min_tx_us, 50_000);
        let section = packet.auth.expect("a section");
        assert_eq!((section.auth_type(), section.key_id()), (auth_type, 5));
        assert!(section.is_made_by(&octets, &key));
        assert!(!section.is_made_by(&octets, &other));
        assert_eq!(packet.encode().octets(), octets);
        let auth = AuthSection::unsigned(auth_type, 5, section.sequence(), &key).ok();
        let packet = Packet { auth, ..packet };
        let has_key = packet
            .encode()
            .octets()
            .windows(7)
            .any(|window| window == key.octets());
        assert_eq!(has_key, auth_type == AuthType::SimplePassword);
        let signed = packet.encode_signed(&key);
        assert_eq!(signed.octets(), octets);
    }
}

#[test]
fn section_has_the_length_of_its_type() {
    let value = |octets| Secret::new(&[1; 20][..octets]).expect("a short secret");
    for auth_type in AuthType::ALL {
        assert_eq!(AuthType::from_code(auth_type.code()), Some(auth_type));
        let octets_max = auth_type.secret_octets_max();
        let make = |octets| AuthSection::new(auth_type, 1, 2, value(octets));
        assert!(make(octets_max).is_ok());
        assert_eq!(make(octets_max - 1).is_ok(), !auth_type.has_sequence());
        assert_eq!(make(20).is_ok(), octets_max == 20);
        let unsigned = |octets| AuthSection::unsigned(auth_type, 1, 2, &value(octets));
        assert!(unsigned(3).is_ok());
        assert_eq!(unsigned(20).is_ok(), octets_max == 20);
    }
    assert_eq!(AuthType::from_code(0), None);
    assert_eq!(AuthType::from_code(6), None);
}

#[test]
fn digest_covers_octets_after_the_section() {
    let (_, hex) = BIRD[1];
    let mut octets = octets(hex);
    octets.extend([1, 2, 3, 4]);
    octets[3] += 4;
    let key = Secret::new(b"cambric").expect("a short key");
    let digest = Md5::new()
        .chain_update(&octets[..VALUE_AT])
        .chain_update(key.padded(16))
        .chain_update([1, 2, 3, 4])
        .finalize();
    octets[VALUE_AT..VALUE_AT + 16].copy_from_slice(&digest);
    let packet = Packet::decode(&octets).expect("a valid packet");
    let section = packet.auth.expect("a section");
    assert!(section.is_made_by(&octets, &key));
    octets[50] ^= 1;
    assert!(!section.is_made_by(&octets, &key));
}
