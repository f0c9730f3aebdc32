//! BFD: the codec takes any octets.

use bfd::Packet;

/// Decodes any octets; a packet is encoded to octets that decode to the same packet.
pub fn bfd_packet(data: &[u8]) {
    match Packet::decode(data) {
        Ok(packet) => {
            let encoded = packet.encode();
            assert_eq!(Packet::decode(encoded.octets()), Ok(packet));
        }
        Err(invalid) => assert!(!invalid.to_string().is_empty()),
    }
}
