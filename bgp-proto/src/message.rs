//! A message of any type, decoded.

use alloc::vec::Vec;

use bytes::Bytes;

use crate::fault::Fault;
use crate::frame::message_header;
use crate::header::{HEADER_OCTETS, MessageKind};
use crate::notification::{Notification, header};
use crate::open::Open;
use crate::params::SessionParams;
use crate::refresh::RouteRefresh;
use crate::update::UpdateView;

/// A BGP message (RFC 4271 §4, RFC 2918 §3).
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant)] // most messages are UPDATEs: no allocation for them
pub enum Message<'a> {
    /// OPEN.
    Open(Open),
    /// UPDATE.
    Update {
        /// The message, taken apart in place.
        view: UpdateView<'a>,
        /// Faults in the framing of its attributes; see [`UpdateView::parse`].
        faults: Vec<Fault>,
    },
    /// NOTIFICATION.
    Notification(Notification),
    /// KEEPALIVE.
    Keepalive,
    /// ROUTE-REFRESH.
    RouteRefresh(RouteRefresh),
}

impl<'a> Message<'a> {
    /// Decodes the body of a message, such as that of a [`Frame`](crate::Frame).
    ///
    /// # Errors
    ///
    /// The NOTIFICATION that ends the session (RFC 4271 §6).
    pub fn parse(
        kind: MessageKind,
        body: &'a [u8],
        params: &SessionParams,
    ) -> Result<Self, Notification> {
        match kind {
            MessageKind::Open => Open::parse(body).map(Self::Open),
            MessageKind::Update => {
                UpdateView::parse(body, params).map(|(view, faults)| Self::Update { view, faults })
            }
            MessageKind::Notification => Notification::parse(body)
                .map(Self::Notification)
                .ok_or_else(|| bad_length(body)),
            MessageKind::Keepalive if body.is_empty() => Ok(Self::Keepalive),
            MessageKind::Keepalive => Err(bad_length(body)),
            MessageKind::RouteRefresh => RouteRefresh::parse(body).map(Self::RouteRefresh),
            // RFC 4271 §6.1: the data of this error is the type octet.
            MessageKind(kind) => Err(Notification::message_header(
                header::BAD_MESSAGE_TYPE,
                Bytes::copy_from_slice(&[kind]),
            )),
        }
    }

    /// Returns the type of the message.
    pub const fn kind(&self) -> MessageKind {
        match self {
            Self::Open(_) => MessageKind::Open,
            Self::Update { .. } => MessageKind::Update,
            Self::Notification(_) => MessageKind::Notification,
            Self::Keepalive => MessageKind::Keepalive,
            Self::RouteRefresh(_) => MessageKind::RouteRefresh,
        }
    }
}

/// RFC 4271 §6.1: the data of this error is the length field.
fn bad_length(body: &[u8]) -> Notification {
    let octets = u16::try_from(HEADER_OCTETS + body.len()).unwrap_or(u16::MAX);
    let data = Bytes::copy_from_slice(&octets.to_be_bytes());
    Notification::message_header(header::BAD_MESSAGE_LENGTH, data)
}

/// Decodes the message at the start of `octets` and returns it with its length, header included;
/// `Ok(None)` if it has not arrived in full. Only octets that the message owns are copied.
///
/// A program that reads from a socket cuts messages out of its buffer with
/// [`next_frame`](crate::next_frame) instead, and decodes them with [`Message::parse`].
///
/// # Errors
///
/// The NOTIFICATION that ends the session (RFC 4271 §6).
///
/// ```
/// use bgp_proto::{Message, SessionParams, decode_message};
///
/// let mut octets = vec![0xff; 16];
/// octets.extend([0, 19, 4]);
/// let (message, length) = decode_message(&octets, &SessionParams::default())?.expect("in full");
/// assert!(matches!(message, Message::Keepalive));
/// assert_eq!(length, 19);
/// # Ok::<(), bgp_proto::Notification>(())
/// ```
pub fn decode_message<'a>(
    octets: &'a [u8],
    params: &SessionParams,
) -> Result<Option<(Message<'a>, usize)>, Notification> {
    let Some((kind, length)) = message_header(octets, params.receive_octets_max())? else {
        return Ok(None);
    };
    let Some(body) = octets.get(HEADER_OCTETS..length) else {
        return Ok(None);
    };
    Message::parse(kind, body, params).map(|message| Some((message, length)))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::update::UpdateWriter;
    use crate::{Asn, Family, FamilySet, RouterId};

    fn session() -> SessionParams {
        SessionParams {
            as4: true,
            families: FamilySet::UNICAST,
            ..SessionParams::default()
        }
    }

    /// One message of each type, one after the other.
    fn stream() -> BytesMut {
        let mut out = BytesMut::new();
        let open = Open {
            asn: Asn(64512),
            hold_time: 90,
            id: RouterId([192, 0, 2, 1].into()),
            capabilities: Vec::new(),
        };
        open.encode(&mut out);
        UpdateWriter::keepalive(&mut out);
        UpdateWriter::end_of_rib(&mut out, Family::IPV6_UNICAST);
        RouteRefresh::request(Family::IPV4_UNICAST).encode(&mut out);
        Notification::cease(2).encode(&mut out);
        out
    }

    #[test]
    fn stream_decodes_message_by_message() {
        let (stream, params) = (stream(), session());
        let mut rest = &stream[..];
        let mut kinds = Vec::new();
        while let Some((message, length)) = decode_message(rest, &params).unwrap() {
            if let Message::Update { view, faults } = &message {
                assert_eq!(view.end_of_rib(), Some(Family::IPV6_UNICAST));
                assert!(faults.is_empty());
            }
            kinds.push(message.kind());
            rest = &rest[length..];
        }
        assert!(rest.is_empty());
        assert_eq!(
            kinds.iter().map(|kind| kind.0).collect::<Vec<_>>(),
            [1, 4, 2, 5, 3]
        );
    }

    #[test]
    fn message_that_is_cut_is_not_decoded_yet() {
        let mut out = BytesMut::new();
        UpdateWriter::end_of_rib(&mut out, Family::IPV4_UNICAST);
        for cut in 0..out.len() {
            assert!(decode_message(&out[..cut], &session()).unwrap().is_none());
        }
    }

    #[test]
    fn slice_and_buffer_refuse_the_same_headers() {
        let stream = stream();
        for at in 0..HEADER_OCTETS {
            for octet in [0, 1, 18, 19, 20, 0xff] {
                let mut odd = stream.clone();
                odd[at] = octet;
                let slice = message_header(&odd, 4096);
                let buffer = crate::next_frame(&mut odd.clone(), 4096);
                match (slice, buffer) {
                    (Ok(Some((kind, length))), Ok(Some(frame))) => {
                        assert_eq!(
                            (kind, length),
                            (frame.kind, HEADER_OCTETS + frame.body.len())
                        );
                    }
                    (Ok(Some((_, length))), Ok(None)) => assert!(length > odd.len()),
                    (slice, buffer) => assert_eq!(slice.err(), buffer.err()),
                }
            }
        }
    }

    #[test]
    fn body_without_header_is_checked_for_its_length() {
        let parse = |kind, body: &[u8]| {
            let error = Message::parse(kind, body, &session()).unwrap_err();
            (error.code, error.subcode, error.data.to_vec())
        };
        assert_eq!(
            parse(MessageKind::Keepalive, &[0]),
            (1, 2, [0, 20].to_vec())
        );
        assert_eq!(
            parse(MessageKind::Notification, &[6]),
            (1, 2, [0, 20].to_vec())
        );
        assert_eq!(parse(MessageKind(9), &[]), (1, 3, [9].to_vec()));
    }
}
