//! ICMP echo messages (RFC 792, RFC 4443 §4) for a pinger.

use std::net::IpAddr;

/// Octets of an echo message: type, code, checksum, identifier, sequence number, and a payload of
/// the same size as that of `ping`.
pub(crate) const ECHO_OCTETS: usize = 8 + 56;

const V4_ECHO: u8 = 8;
const V4_ECHO_REPLY: u8 = 0;
const V6_ECHO: u8 = 128;
const V6_ECHO_REPLY: u8 = 129;

/// Returns an echo request to `destination`. The kernel fills in the ICMPv6 checksum.
pub(crate) fn request(destination: IpAddr, identifier: u16, sequence: u16) -> [u8; ECHO_OCTETS] {
    let mut message = [0_u8; ECHO_OCTETS];
    message[0] = if destination.is_ipv4() {
        V4_ECHO
    } else {
        V6_ECHO
    };
    message[4..6].copy_from_slice(&identifier.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    if destination.is_ipv4() {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

/// Returns identifier and sequence number, if this is an echo reply from a raw IPv4 socket (with
/// the IP header).
pub(crate) fn reply_v4(packet: &[u8]) -> Option<(u16, u16)> {
    let header_octets = usize::from(packet.first()? & 0x0f) * 4;
    reply(packet.get(header_octets..)?, V4_ECHO_REPLY)
}

/// Returns identifier and sequence number, if this is an echo reply from a raw ICMPv6 socket.
pub(crate) fn reply_v6(message: &[u8]) -> Option<(u16, u16)> {
    reply(message, V6_ECHO_REPLY)
}

fn reply(message: &[u8], kind: u8) -> Option<(u16, u16)> {
    let [
        first,
        _,
        _,
        _,
        id_high,
        id_low,
        sequence_high,
        sequence_low,
        ..,
    ] = *message
    else {
        return None;
    };
    (first == kind).then(|| {
        (
            u16::from_be_bytes([id_high, id_low]),
            u16::from_be_bytes([sequence_high, sequence_low]),
        )
    })
}

/// Computes the internet checksum (RFC 1071).
fn checksum(octets: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in octets.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sums_to_zero_and_its_answer_is_read() {
        let mut message = request("192.0.2.1".parse().unwrap(), 0x1234, 7);
        assert_eq!(
            checksum(&message),
            0,
            "a message with its checksum sums to all ones"
        );
        message[0] = V4_ECHO_REPLY;
        let mut packet = vec![0x45];
        packet.resize(20, 0);
        packet.extend_from_slice(&message);
        assert_eq!(reply_v4(&packet), Some((0x1234, 7)));
    }

    #[test]
    fn packet_that_is_no_reply_is_ignored() {
        let request = request("2001:db8::1".parse().unwrap(), 1, 2);
        assert_eq!(reply_v6(&request), None);
        assert_eq!(reply_v6(&request[..7]), None);
        assert_eq!(reply_v4(&[]), None);
        assert_eq!(reply_v4(&[0x4f, 0, 0]), None);
    }

    #[test]
    fn checksum_of_an_odd_length_pads_with_zero() {
        assert_eq!(checksum(&[0x01]), !0x0100);
    }
}
