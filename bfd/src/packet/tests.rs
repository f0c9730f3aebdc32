use std::vec::Vec;

use super::*;
use crate::auth::AuthType;

/// A packet as another implementation would write it: Up, P and C bits, multiplier 3.
const UP: [u8; 24] = [
    0x23, 0xe8, 0x03, 0x18, // version 1, neighbor signaled down; Up, P, C; 3; 24 octets
    0x00, 0x00, 0x00, 0x0b, // my discriminator 11
    0x00, 0x00, 0x00, 0x16, // your discriminator 22
    0x00, 0x01, 0x86, 0xa0, // 100,000 µs
    0x00, 0x04, 0x93, 0xe0, // 300,000 µs
    0x00, 0x00, 0xc3, 0x50, // 50,000 µs
];

fn up() -> Packet {
    Packet {
        diagnostic: Diagnostic::NEIGHBOR_SIGNALED_DOWN,
        state: State::Up,
        poll: true,
        is_final: false,
        control_plane_independent: true,
        demand: false,
        detect_multiplier: NonZeroU8::new(3).expect("three"),
        my_discriminator: Discriminator::new(11).expect("not zero"),
        your_discriminator: Discriminator::new(22),
        desired_min_tx_us: 100_000,
        required_min_rx_us: 300_000,
        required_min_echo_rx_us: 50_000,
        auth: None,
    }
}

/// Decodes [`UP`] with these octets instead of its own.
fn decode_with(changes: &[(usize, u8)]) -> Result<Packet, Invalid> {
    let mut octets = UP;
    for (at, octet) in changes {
        octets[*at] = *octet;
    }
    Packet::decode(&octets)
}

#[test]
fn octets_of_each_field_are_those_of_the_rfc() {
    assert_eq!(Packet::decode(&UP), Ok(up()));
    assert_eq!(up().encode().octets(), UP);
    let demanding = Packet {
        state: State::Init,
        poll: false,
        is_final: true,
        control_plane_independent: false,
        demand: true,
        ..up()
    };
    assert_eq!(decode_with(&[(1, 0x92)]), Ok(demanding));
    assert_eq!(demanding.encode().octets()[1], 0x92);
}

#[test]
fn each_rule_of_the_rfc_has_its_own_error() {
    assert_eq!(Packet::decode(&UP[..23]), Err(Invalid::Truncated(23)));
    assert_eq!(decode_with(&[(0, 0x03)]), Err(Invalid::Version(0)));
    assert_eq!(decode_with(&[(0, 0x43)]), Err(Invalid::Version(2)));
    assert_eq!(decode_with(&[(3, 23)]), Err(Invalid::LengthTooSmall(23)));
    let authenticated = decode_with(&[(1, 0xcc), (3, 25)]);
    assert_eq!(authenticated, Err(Invalid::LengthTooSmall(25)));
    let (length, payload) = (25, 24);
    let too_great = Err(Invalid::LengthTooGreat { length, payload });
    assert_eq!(decode_with(&[(3, 25)]), too_great);
    assert_eq!(decode_with(&[(2, 0)]), Err(Invalid::DetectMultiplierZero));
    assert_eq!(decode_with(&[(1, 0xe9)]), Err(Invalid::Multipoint));
    assert_eq!(decode_with(&[(7, 0)]), Err(Invalid::MyDiscriminatorZero));
    for (flags, state) in [(0xc0, State::Up), (0x80, State::Init)] {
        let zero = Err(Invalid::YourDiscriminatorZero(state));
        assert_eq!(decode_with(&[(1, flags), (11, 0)]), zero);
    }
    for flags in [0x40, 0x00] {
        let packet = decode_with(&[(1, flags), (11, 0)]).expect("Down and AdminDown need none");
        assert_eq!(packet.your_discriminator, None);
    }
}

#[test]
fn first_rule_in_the_order_of_the_rfc_is_reported() {
    let mut wrong = [(0, 0), (3, 1), (2, 0), (1, 0xc1), (7, 0), (11, 0)];
    let mut found = Vec::new();
    for at in 0..wrong.len() {
        found.push(decode_with(&wrong[at..]).expect_err("still wrong"));
        wrong[at] = wrong[wrong.len() - 1];
    }
    assert_eq!(
        found,
        [
            Invalid::Version(0),
            Invalid::LengthTooSmall(1),
            Invalid::DetectMultiplierZero,
            Invalid::Multipoint,
            Invalid::MyDiscriminatorZero,
            Invalid::YourDiscriminatorZero(State::Up),
        ]
    );
}

#[test]
fn octets_after_the_length_are_ignored() {
    let longer = [&UP[..], &[0xff; 9]].concat();
    assert_eq!(Packet::decode(&longer), Ok(up()));
}

/// Returns [`UP`] with the A bit and a section.
fn authenticated(section: &[u8]) -> Vec<u8> {
    let mut octets = [&UP[..], section].concat();
    octets[1] |= 0x04;
    octets[3] += u8::try_from(section.len()).expect("a short section");
    octets
}

#[test]
fn sections_of_all_types_are_decoded_and_encoded() {
    let digest = |code, octets: u8| {
        let mut section = Vec::from([code, octets + 8, 9, 0, 1, 2, 3, 4]);
        section.extend(1..=octets);
        section
    };
    let sections = [
        (
            AuthType::SimplePassword,
            Vec::from([1, 6, 9, b'a', b'b', b'c']),
        ),
        (AuthType::KeyedMd5, digest(2, 16)),
        (AuthType::MeticulousKeyedMd5, digest(3, 16)),
        (AuthType::KeyedSha1, digest(4, 20)),
        (AuthType::MeticulousKeyedSha1, digest(5, 20)),
    ];
    for (auth_type, section) in sections {
        let octets = authenticated(&section);
        let packet = Packet::decode(&octets).expect("a valid section");
        let decoded = packet.auth.expect("a section");
        assert_eq!(decoded.auth_type(), auth_type);
        assert_eq!(decoded.key_id(), 9);
        let (sequence, value_at) = match auth_type.has_sequence() {
            true => (0x0102_0304, 8),
            false => (0, 3),
        };
        assert_eq!(decoded.sequence(), sequence);
        assert_eq!(decoded.value().octets(), &section[value_at..]);
        assert_eq!(packet.encode().octets(), octets);
    }
}

#[test]
fn section_with_a_wrong_type_or_length_is_invalid() {
    let decode = |section: &[u8]| Packet::decode(&authenticated(section));
    let md5 = [[2, 24, 9, 0].as_slice(), &[1; 20]].concat();
    assert!(decode(&md5).is_ok());
    for code in [0, 6, 255] {
        let mut other = md5.clone();
        other[0] = code;
        assert_eq!(decode(&other), Err(Invalid::AuthType(code)));
    }
    for length in [0, 2, 8, 23, 25, 255] {
        let mut other = md5.clone();
        other[1] = length;
        assert_eq!(decode(&other), Err(Invalid::AuthLength(length)));
    }
    let sha1 = [[4, 24, 9, 0].as_slice(), &[1; 20]].concat();
    assert_eq!(decode(&sha1), Err(Invalid::AuthLength(24)));
    // A password has 1 to 16 octets, and needs not fill the packet.
    assert_eq!(decode(&[1, 3, 9]), Err(Invalid::AuthLength(3)));
    assert!(decode(&[&[1, 19, 9][..], &[b'p'; 16]].concat()).is_ok());
    let long = [&[1, 20, 9][..], &[b'p'; 17]].concat();
    assert_eq!(decode(&long), Err(Invalid::AuthLength(20)));
    assert_eq!(decode(&[1, 4]), Err(Invalid::AuthLength(4)));
    assert!(decode(&[1, 4, 9, b'p', 0, 0]).is_ok());
}

/// Digests that Python's hashlib has made, with the key "cambric".
const MD5_DIGEST: [u8; 16] = [
    0x42, 0x35, 0xdd, 0x09, 0x36, 0x01, 0xdb, 0xb3, 0x82, 0x12, 0x8f, 0x46, 0x22, 0x30, 0xf0, 0x0e,
];
/// See [`MD5_DIGEST`].
const SHA1_DIGEST: [u8; 20] = [
    0x9e, 0x48, 0xb1, 0xb4, 0xda, 0xed, 0x63, 0xa2, 0x1e, 0x40, 0x30, 0xca, 0x54, 0xcf, 0xf5, 0xbe,
    0x41, 0xc5, 0xfb, 0xf0,
];

#[test]
fn digests_are_those_of_another_implementation() {
    let expected = [
        (AuthType::KeyedMd5, &MD5_DIGEST[..], 48),
        (AuthType::KeyedSha1, &SHA1_DIGEST[..], 52),
    ];
    let key = Secret::new(b"cambric").expect("a short key");
    let other = Secret::new(b"cambrid").expect("a short key");
    for (auth_type, digest, length) in expected {
        let section = AuthSection::unsigned(auth_type, 5, 0x0102_0304, &key);
        let section = section.expect("a short key");
        let packet = Packet {
            diagnostic: Diagnostic::NONE,
            poll: false,
            control_plane_independent: false,
            required_min_echo_rx_us: 0,
            auth: Some(section),
            ..up()
        };
        let octets = packet.encode_signed(&key);
        assert_eq!(octets.octets().len(), length);
        assert_eq!(&octets.octets()[32..], digest);
        let received = Packet::decode(octets.octets()).expect("a valid packet");
        let section = received.auth.expect("a section");
        assert!(section.is_made_by(octets.octets(), &key));
        assert!(!section.is_made_by(octets.octets(), &other));
        for at in 0..length {
            let mut changed = Vec::from(octets.octets());
            changed[at] ^= 1;
            let accepted = Packet::decode(&changed).is_ok_and(|packet| {
                packet
                    .auth
                    .is_some_and(|section| section.is_made_by(&changed, &key))
            });
            assert!(!accepted, "octet {at} is covered");
        }
    }
}
