//! Cutting messages out of the octet stream (RFC 4271 §4.1, §6.1, RFC 8654).

use bytes::{Buf, Bytes, BytesMut};

use crate::header::{HEADER_OCTETS, MARKER, MessageKind};
use crate::notification::{Notification, header};

/// One received message: its type and the octets after the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Type of the message; always a known one.
    pub kind: MessageKind,
    /// The octets after the header, a slice of the receive buffer.
    pub body: Bytes,
}

/// Takes the next complete message from `buf`; `Ok(None)` if it has not arrived in full.
///
/// `octets_max` is the longest message the peer may send ([`SessionParams::receive_octets_max`],
/// before that [`MESSAGE_OCTETS_MAX`](crate::MESSAGE_OCTETS_MAX)).
///
/// # Errors
///
/// The NOTIFICATION of RFC 4271 §6.1 that ends the connection; `buf` is unchanged.
///
/// [`SessionParams::receive_octets_max`]: crate::SessionParams::receive_octets_max
pub fn next_frame(buf: &mut BytesMut, octets_max: usize) -> Result<Option<Frame>, Notification> {
    let Some((kind, length)) = message_header(buf, octets_max)? else {
        return Ok(None);
    };
    if buf.len() < length {
        return Ok(None);
    }
    let mut message = buf.split_to(length);
    message.advance(HEADER_OCTETS);
    Ok(Some(Frame {
        kind,
        body: message.freeze(),
    }))
}

/// Reads the header at the start of `octets`: the type of the message and its length, header
/// included. `Ok(None)` if the header has not arrived in full; the body may be missing.
///
/// `octets_max` is that of [`next_frame`].
///
/// # Errors
///
/// The NOTIFICATION of RFC 4271 §6.1 that ends the connection.
#[inline]
pub fn message_header(
    octets: &[u8],
    octets_max: usize,
) -> Result<Option<(MessageKind, usize)>, Notification> {
    let Some((marker, rest)) = octets.split_first_chunk::<16>() else {
        return Ok(None);
    };
    // RFC 4271 §6.1: a wrong marker means that the two ends are out of step.
    if *marker != MARKER {
        return Err(Notification::message_header(
            header::CONNECTION_NOT_SYNCHRONIZED,
            Bytes::new(),
        ));
    }
    let Some(&[high, low, kind]) = rest.first_chunk::<3>() else {
        return Ok(None);
    };
    let len_field = [high, low];
    let len = usize::from(u16::from_be_bytes(len_field));
    let kind = MessageKind(kind);
    let bad_length = || {
        let data = Bytes::copy_from_slice(&len_field);
        Notification::message_header(header::BAD_MESSAGE_LENGTH, data)
    };
    // RFC 4271 §6.1: the minimum is 19 octets, the maximum is that of the session.
    if len < HEADER_OCTETS || len > octets_max {
        return Err(bad_length());
    }
    // RFC 4271 §6.1: the data of this error is the type octet.
    let Some(octets_min) = kind.octets_min() else {
        let data = Bytes::copy_from_slice(&[kind.0]);
        return Err(Notification::message_header(header::BAD_MESSAGE_TYPE, data));
    };
    // RFC 4271 §6.1, RFC 8654 §4: bounds of the type.
    if len < octets_min || len > kind.octets_max(octets_max) {
        return Err(bad_length());
    }
    Ok(Some((kind, len)))
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;

    use super::*;

    fn message(len: u16, kind: u8, body: &[u8]) -> BytesMut {
        let mut buf = BytesMut::new();
        buf.put_slice(&MARKER);
        buf.put_u16(len);
        buf.put_u8(kind);
        buf.put_slice(body);
        buf
    }

    fn refused(mut buf: BytesMut, octets_max: usize) -> (u8, u8, Bytes) {
        let error = next_frame(&mut buf, octets_max).unwrap_err();
        (error.code, error.subcode, error.data)
    }

    #[test]
    fn waits_for_the_whole_message() {
        let whole = message(23, 2, &[0; 4]);
        for cut in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..cut]);
            assert_eq!(next_frame(&mut part, 4096), Ok(None), "{cut} octets");
        }
        let mut two = whole.clone();
        two.extend_from_slice(&message(19, 4, &[]));
        let first = next_frame(&mut two, 4096).unwrap().unwrap();
        assert_eq!((first.kind, first.body.len()), (MessageKind::Update, 4));
        let second = next_frame(&mut two, 4096).unwrap().unwrap();
        assert_eq!(
            (second.kind, second.body.len()),
            (MessageKind::Keepalive, 0)
        );
        assert!(two.is_empty());
    }

    #[test]
    fn invalid_header_has_its_error_subcode() {
        let mut broken = message(19, 4, &[]);
        broken[3] = 0;
        assert_eq!(refused(broken, 4096), (1, 1, Bytes::new()));
        let length = |len: u16, kind| refused(message(len, kind, &[]), 4096);
        assert_eq!(length(18, 4), (1, 2, Bytes::from_static(&[0, 18])));
        assert_eq!(length(4097, 2), (1, 2, Bytes::from_static(&[0x10, 0x01])));
        assert_eq!(length(28, 1), (1, 2, Bytes::from_static(&[0, 28])));
        assert_eq!(length(20, 4), (1, 2, Bytes::from_static(&[0, 20])));
        assert_eq!(length(19, 9), (1, 3, Bytes::from_static(&[9])));
        assert_eq!(
            refused(message(5000, 1, &[]), 65_535).1,
            2,
            "OPEN never grows"
        );
        assert_eq!(next_frame(&mut message(5000, 2, &[]), 65_535), Ok(None));
    }
}
