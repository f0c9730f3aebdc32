//! The codec: no octets cause a panic, and each packet decodes to the same packet.

use std::num::NonZeroU8;

use bfd::limits::{HEADER_OCTETS, PACKET_OCTETS_MAX};
use bfd::{AuthSection, AuthType, Diagnostic, Discriminator, Packet, Secret, State};
use proptest::prelude::*;

fn section() -> impl Strategy<Value = AuthSection> {
    let auth_type = prop::sample::select(&AuthType::ALL[..]);
    let value = prop::collection::vec(any::<u8>(), 20);
    (auth_type, any::<u8>(), any::<u32>(), value, 1_usize..=16).prop_map(
        |(auth_type, key_id, sequence, value, password)| {
            let octets = match auth_type {
                AuthType::SimplePassword => password,
                other => other.secret_octets_max(),
            };
            let value = Secret::new(&value[..octets]).expect("a short value");
            AuthSection::new(auth_type, key_id, sequence, value).expect("the right length")
        },
    )
}

prop_compose! {
    fn packet()(
        diagnostic in 0..=Diagnostic::CODE_MAX,
        state in prop::sample::select(&State::ALL[..]),
        flags in any::<[bool; 4]>(),
        detect_multiplier in any::<NonZeroU8>(),
        my_discriminator in any::<Discriminator>(),
        your_discriminator in any::<Option<Discriminator>>(),
        certain in any::<Discriminator>(),
        intervals in any::<[u32; 3]>(),
        auth in prop::option::of(section()),
    ) -> Packet {
        let [poll, is_final, control_plane_independent, demand] = flags;
        let [desired_min_tx_us, required_min_rx_us, required_min_echo_rx_us] = intervals;
        let your_discriminator = match state {
            State::Init | State::Up => Some(your_discriminator.unwrap_or(certain)),
            _ => your_discriminator,
        };
        Packet {
            diagnostic: Diagnostic::from_code(diagnostic).expect("five bits"),
            state,
            poll,
            is_final,
            control_plane_independent,
            demand,
            detect_multiplier,
            my_discriminator,
            your_discriminator,
            desired_min_tx_us,
            required_min_rx_us,
            required_min_echo_rx_us,
            auth,
        }
    }
}

/// Octets that are close to a packet.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((0_usize..60, any::<u8>()), 0..6);
    (packet(), changes, 0_usize..60).prop_map(|(packet, changes, length)| {
        let mut octets = packet.encode().octets().to_vec();
        for (at, octet) in changes {
            if let Some(place) = octets.get_mut(at) {
                *place = octet;
            }
        }
        octets.resize(length.max(20), 0);
        octets
    })
}

proptest! {
    #[test]
    fn packet_decodes_to_the_encoded_packet(packet in packet()) {
        let encoded = packet.encode();
        let octets = encoded.octets();
        prop_assert!((HEADER_OCTETS..=PACKET_OCTETS_MAX).contains(&octets.len()));
        prop_assert_eq!(usize::from(octets[3]), octets.len());
        prop_assert_eq!(Packet::decode(octets), Ok(packet));
        for length in 0..octets.len() {
            prop_assert!(Packet::decode(&octets[..length]).is_err());
        }
    }

    #[test]
    fn any_octets_are_a_packet_or_an_error(octets in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(packet) = Packet::decode(&octets) {
            prop_assert_eq!(Packet::decode(packet.encode().octets()), Ok(packet));
        }
    }

    #[test]
    fn damaged_octets_are_a_packet_or_an_error(octets in damaged()) {
        match Packet::decode(&octets) {
            Ok(packet) => prop_assert_eq!(Packet::decode(packet.encode().octets()), Ok(packet)),
            Err(invalid) => prop_assert!(!invalid.to_string().is_empty()),
        }
    }
}
