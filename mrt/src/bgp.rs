//! The retired type BGP: messages without their header, and state changes (RFC 6396 appendix
//! B.2.1).

use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::{Asn, HEADER_OCTETS, MARKER, MessageKind};
use bytes::{BufMut, Bytes, BytesMut};

use crate::bgp4mp::{Bgp4mpMessage, Session};
use crate::cursor::Cursor;

/// A state transition of a session, of which only the peer is in the record (RFC 6396 appendix
/// B.2.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BgpStateChange {
    /// AS number of the peer.
    pub peer_asn: Asn,
    /// Address of the peer.
    pub peer_address: Ipv4Addr,
    /// State before; see [`StateChange::state_name`](crate::StateChange::state_name).
    pub old: u16,
    /// State after.
    pub new: u16,
}

/// Parses BGP_UPDATE, BGP_OPEN, BGP_NOTIFY or BGP_KEEPALIVE: the message without its header.
pub(crate) fn message(body: &mut Cursor, kind: MessageKind) -> Option<Bgp4mpMessage> {
    let (peer_asn, peer_address) = (body.asn(false)?, body.ipv4()?);
    let (local_asn, local_address) = (body.asn(false)?, body.ipv4()?);
    let session = Session {
        peer_asn,
        local_asn,
        interface: 0,
        peer_address: IpAddr::V4(peer_address),
        local_address: IpAddr::V4(local_address),
    };
    let octets = with_header(kind, body.peek())?;
    Some(Bgp4mpMessage {
        session,
        as4: false,
        add_path: false,
        sent: false,
        octets,
    })
}

pub(crate) fn state_change(body: &mut Cursor) -> Option<BgpStateChange> {
    Some(BgpStateChange {
        peer_asn: body.asn(false)?,
        peer_address: body.ipv4()?,
        old: body.u16()?,
        new: body.u16()?,
    })
}

/// Returns the message with the header that the record leaves out. `None` if its length does not
/// fit into the header.
fn with_header(kind: MessageKind, content: &[u8]) -> Option<Bytes> {
    let len = u16::try_from(HEADER_OCTETS + content.len()).ok()?;
    let mut message = BytesMut::with_capacity(usize::from(len));
    message.put_slice(&MARKER);
    message.put_u16(len);
    message.put_u8(kind.0);
    message.put_slice(content);
    Some(message.freeze())
}

#[cfg(test)]
mod tests {
    use crate::{Entry, Reader};

    /// Peer AS number and address, local AS number and address.
    const ENDS: [u8; 12] = [
        0xfd, 0xe9, 192, 0, 2, 1, // AS 65001 at 192.0.2.1
        0xfd, 0xea, 192, 0, 2, 2, // AS 65002 at 192.0.2.2
    ];

    /// Returns the only entry of a file with a record of this type. Its time is 7.
    fn entry(subtype: u8, body: &[u8]) -> Option<Entry> {
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        let head = [[0, 0, 0, 7], [0, 5, 0, subtype], len].concat();
        let file = [&head, body].concat();
        let record = Reader::new(&file[..]).next().unwrap().unwrap();
        record.entry().ok()
    }

    #[test]
    fn message_of_the_retired_type_gets_its_header_back() {
        // An UPDATE that withdraws 10.0.0.0/8; an OPEN, version 4 to no parameters; Cease.
        let update = [0, 2, 8, 10, 0, 0];
        let open = [4, 0xfd, 0xe9, 0, 90, 192, 0, 2, 1, 0];
        for (subtype, content, len, kind) in [
            (1, &update[..], 25, 2),
            (5, &open[..], 29, 1),
            (6, &[6, 2][..], 21, 3),
            (7, &[][..], 19, 4),
        ] {
            let body = [&ENDS, content].concat();
            let Some(Entry::Message(message)) = entry(subtype, &body) else {
                panic!("subtype {subtype}");
            };
            let header = [&[0xff; 16][..], &[0, len, kind]].concat();
            assert_eq!(message.octets, [&header, content].concat(), "{subtype}");
            let session = message.session;
            let ends = (session.peer_asn.0, session.local_asn.0);
            assert_eq!(ends, (65_001, 65_002));
            assert_eq!(session.peer_address.to_string(), "192.0.2.1");
            assert_eq!(session.local_address.to_string(), "192.0.2.2");
            assert!(!message.as4 && !message.add_path && !message.sent);
        }
    }

    #[test]
    fn state_change_of_the_retired_type_has_the_peer_alone() {
        // From OpenConfirm (5) to Established (6).
        let body = [0xfd, 0xe9, 192, 0, 2, 1, 0, 5, 0, 6];
        let Some(Entry::BgpStateChange(change)) = entry(3, &body) else {
            panic!("a state change");
        };
        assert_eq!((change.peer_asn.0, change.old, change.new), (65_001, 5, 6));
        assert_eq!(change.peer_address.to_string(), "192.0.2.1");
    }

    #[test]
    fn record_without_content_is_unknown_and_short_one_an_error() {
        for subtype in [0, 2, 4, 8] {
            assert_eq!(entry(subtype, &ENDS), Some(Entry::Unknown), "{subtype}");
        }
        for subtype in [1, 3, 5, 6, 7] {
            assert_eq!(entry(subtype, &ENDS[..9]), None, "{subtype}");
        }
    }

    #[test]
    fn content_longer_than_any_message_is_an_error() {
        let longest = [&ENDS[..], &[0; 65_535 - 19]].concat();
        assert!(matches!(entry(1, &longest), Some(Entry::Message(_))));
        let longer = [&longest[..], &[0]].concat();
        assert_eq!(entry(1, &longer), None);
    }
}
