//! Writes captures, so that tshark can read messages that never were on a wire.

/// A capture of raw IPv4 packets; every message is a TCP connection of its own to port 179.
pub(super) fn capture(messages: &[Vec<u8>]) -> Vec<u8> {
    // Magic, version 2.4, no time offset, longest packet, link type "raw IP".
    let mut out = Vec::new();
    for field in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 262_144, 101] {
        out.extend_from_slice(&field.to_be_bytes());
    }
    for (message, port) in messages.iter().zip(10_000..) {
        let packet = packet(message, port);
        let len = u32::try_from(packet.len()).unwrap();
        for field in [0, 0, len, len] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(&packet);
    }
    out
}

/// IPv4 and TCP headers without options or checksums, and the message.
fn packet(message: &[u8], port: u16) -> Vec<u8> {
    let len = u16::try_from(40 + message.len()).unwrap().to_be_bytes();
    let mut out = vec![0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, 6, 0, 0];
    out.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    out.extend_from_slice(&port.to_be_bytes());
    out.extend_from_slice(&179_u16.to_be_bytes());
    out.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 0x10, 0, 0, 0, 0, 0]);
    out.extend_from_slice(message);
    out
}
