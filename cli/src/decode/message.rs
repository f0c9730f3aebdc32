//! One BGP message.

use bgp_proto::notification::{code, header, open};
use bgp_proto::{
    Frame, HEADER_OCTETS, MESSAGE_OCTETS_MAX_EXTENDED, Message, MessageKind, Notification, Remedy,
    SessionParams, next_frame,
};
use bytes::BytesMut;

use crate::decode::octets::to_hex;
use crate::decode::schema::{Content, FaultReport, NotificationMessage};
use crate::decode::{open as open_message, update};

/// Decodes the messages in `octets`; the last one may be malformed or truncated.
pub(crate) fn messages(octets: &[u8], params: &SessionParams) -> Vec<Content> {
    let mut buf = BytesMut::from(octets);
    let mut list = Vec::new();
    loop {
        match next_frame(&mut buf, MESSAGE_OCTETS_MAX_EXTENDED) {
            Ok(Some(frame)) => list.push(content(&frame, params)),
            Ok(None) if buf.is_empty() && !list.is_empty() => return list,
            Ok(None) => {
                list.push(cut(&buf));
                return list;
            }
            Err(error) => {
                let kind = buf.get(18).map(|kind| MessageKind(*kind).to_string());
                list.push(malformed(kind, &error));
                return list;
            }
        }
    }
}

fn cut(buf: &[u8]) -> Content {
    Content::Malformed {
        kind: buf.get(18).map(|kind| MessageKind(*kind).to_string()),
        faults: vec![FaultReport {
            at: buf.len(),
            attribute: None,
            fault: "cut",
            text: "message cut off".into(),
            remedy: Remedy::ResetSession.name(),
        }],
    }
}

fn content(frame: &Frame, params: &SessionParams) -> Content {
    let message = match Message::parse(frame.kind, &frame.body, params) {
        Ok(message) => message,
        Err(error) => return malformed(Some(frame.kind.to_string()), &error),
    };
    match message {
        Message::Open(open) => Content::Open(Box::new(open_message::report(&open))),
        Message::Update { view, faults } => {
            match update::report(&view, faults, &frame.body, params) {
                Ok(routes) => Content::Update(Box::new(routes)),
                Err(error) => malformed(Some(frame.kind.to_string()), &error),
            }
        }
        Message::Notification(notification) => Content::Notification(NotificationMessage {
            code: notification.code,
            subcode: notification.subcode,
            text: notification.to_string(),
            data: to_hex(&notification.data),
        }),
        Message::RouteRefresh(refresh) => Content::RouteRefresh {
            family: refresh.family.to_string(),
            subtype: refresh.subtype.to_string(),
        },
        _ => Content::Keepalive,
    }
}

/// A message that ends the session with `error`.
fn malformed(kind: Option<String>, error: &Notification) -> Content {
    Content::Malformed {
        kind,
        faults: vec![FaultReport {
            at: offset(error),
            attribute: None,
            fault: "notification",
            text: error.to_string(),
            remedy: Remedy::ResetSession.name(),
        }],
    }
}

/// Octet offset of the field that an error is about.
const fn offset(error: &Notification) -> usize {
    match (error.code, error.subcode) {
        (code::MESSAGE_HEADER, header::CONNECTION_NOT_SYNCHRONIZED) => 0,
        (code::MESSAGE_HEADER, header::BAD_MESSAGE_TYPE) => 18,
        (code::MESSAGE_HEADER, _) => 16,
        (code::OPEN_MESSAGE, open::BAD_PEER_AS) => HEADER_OCTETS + 1,
        (code::OPEN_MESSAGE, open::UNACCEPTABLE_HOLD_TIME) => HEADER_OCTETS + 3,
        (code::OPEN_MESSAGE, open::BAD_BGP_IDENTIFIER) => HEADER_OCTETS + 5,
        (code::OPEN_MESSAGE, open::UNSUPPORTED_OPTIONAL_PARAMETER) => HEADER_OCTETS + 9,
        _ => HEADER_OCTETS,
    }
}
