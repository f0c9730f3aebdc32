//! The header of every message (RFC 4271 §4.1, RFC 8654).

use bytes::{BufMut, BytesMut};

use crate::enums::wire_enum;

/// Octets of the message header (RFC 4271 §4.1).
pub const HEADER_OCTETS: usize = 19;
/// The marker that every message begins with (RFC 4271 §4.1).
pub const MARKER: [u8; 16] = [0xff; 16];
/// Longest message without RFC 8654, header included, in octets.
pub const MESSAGE_OCTETS_MAX: usize = 4096;
/// Longest message with RFC 8654, header included, in octets.
pub const MESSAGE_OCTETS_MAX_EXTENDED: usize = 65_535;

wire_enum! {
    /// The type of a message (RFC 4271 §4.1, RFC 2918).
    pub struct MessageKind(u8) {
        /// OPEN.
        Open = 1 => "OPEN",
        /// UPDATE.
        Update = 2 => "UPDATE",
        /// NOTIFICATION.
        Notification = 3 => "NOTIFICATION",
        /// KEEPALIVE.
        Keepalive = 4 => "KEEPALIVE",
        /// ROUTE-REFRESH (RFC 2918).
        RouteRefresh = 5 => "ROUTE-REFRESH",
    }
}

impl MessageKind {
    /// Returns the length of the shortest message of this type, header included, in octets; `None`
    /// for unknown types.
    pub const fn octets_min(self) -> Option<usize> {
        match self {
            Self::Open => Some(29),
            Self::Update => Some(23),
            Self::Notification => Some(21),
            Self::Keepalive => Some(19),
            Self::RouteRefresh => Some(23),
            _ => None,
        }
    }

    /// Longest message of this type where UPDATEs may have `octets_max` octets: OPEN and
    /// KEEPALIVE never grow (RFC 8654 §4), and a KEEPALIVE is only its header.
    pub(crate) const fn octets_max(self, octets_max: usize) -> usize {
        match self {
            Self::Open => MESSAGE_OCTETS_MAX,
            Self::Keepalive => HEADER_OCTETS,
            _ => octets_max,
        }
    }
}

/// Appends the header of a message of `body_octets` octets.
pub(crate) fn put_header(out: &mut BytesMut, kind: MessageKind, body_octets: usize) {
    let len = u16::try_from(HEADER_OCTETS + body_octets).unwrap_or(u16::MAX);
    debug_assert!(HEADER_OCTETS + body_octets <= MESSAGE_OCTETS_MAX_EXTENDED);
    out.put_slice(&MARKER);
    out.put_u16(len);
    out.put_u8(kind.0);
}
