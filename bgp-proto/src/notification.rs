//! NOTIFICATION: why a session ends (RFC 4271 §4.5, RFC 4486, RFC 8538, RFC 9003).

use alloc::string::String;
use core::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use crate::family::Family;
use crate::header::{MessageKind, put_header};
use crate::limits::{NOTIFICATION_DATA_OCTETS_MAX, SHUTDOWN_TEXT_OCTETS_MAX};
use crate::reader::Reader;

/// Declares the subcodes of one error code, and a function from subcode to name.
macro_rules! codes {
    ($(#[$meta:meta])* $module:ident { $( $constant:ident = $value:literal => $text:literal, )* }) => {
        $(#[$meta])*
        pub mod $module {
            $( #[doc = $text] pub const $constant: u8 = $value; )*

            pub(super) const fn name(value: u8) -> Option<&'static str> {
                match value {
                    $( $value => Some($text), )*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// Error codes (RFC 4271 §4.5, RFC 7313, RFC 9687).
    code {
        MESSAGE_HEADER = 1 => "Message Header Error",
        OPEN_MESSAGE = 2 => "OPEN Message Error",
        UPDATE_MESSAGE = 3 => "UPDATE Message Error",
        HOLD_TIMER_EXPIRED = 4 => "Hold Timer Expired",
        FSM = 5 => "Finite State Machine Error",
        CEASE = 6 => "Cease",
        ROUTE_REFRESH = 7 => "ROUTE-REFRESH Message Error",
        SEND_HOLD_TIMER_EXPIRED = 8 => "Send Hold Timer Expired",
    }
}

codes! {
    /// Subcodes of the message header error (RFC 4271 §6.1).
    header {
        UNSPECIFIC = 0 => "Unspecific",
        CONNECTION_NOT_SYNCHRONIZED = 1 => "Connection Not Synchronized",
        BAD_MESSAGE_LENGTH = 2 => "Bad Message Length",
        BAD_MESSAGE_TYPE = 3 => "Bad Message Type",
    }
}

codes! {
    /// Subcodes of the OPEN message error (RFC 4271 §6.2, RFC 5492, RFC 9234).
    open {
        UNSPECIFIC = 0 => "Unspecific",
        UNSUPPORTED_VERSION_NUMBER = 1 => "Unsupported Version Number",
        BAD_PEER_AS = 2 => "Bad Peer AS",
        BAD_BGP_IDENTIFIER = 3 => "Bad BGP Identifier",
        UNSUPPORTED_OPTIONAL_PARAMETER = 4 => "Unsupported Optional Parameter",
        UNACCEPTABLE_HOLD_TIME = 6 => "Unacceptable Hold Time",
        UNSUPPORTED_CAPABILITY = 7 => "Unsupported Capability",
        ROLE_MISMATCH = 11 => "Role Mismatch",
    }
}

codes! {
    /// Subcodes of the UPDATE message error (RFC 4271 §6.3).
    update {
        UNSPECIFIC = 0 => "Unspecific",
        MALFORMED_ATTRIBUTE_LIST = 1 => "Malformed Attribute List",
        UNRECOGNIZED_WELL_KNOWN_ATTRIBUTE = 2 => "Unrecognized Well-known Attribute",
        MISSING_WELL_KNOWN_ATTRIBUTE = 3 => "Missing Well-known Attribute",
        ATTRIBUTE_FLAGS_ERROR = 4 => "Attribute Flags Error",
        ATTRIBUTE_LENGTH_ERROR = 5 => "Attribute Length Error",
        INVALID_ORIGIN_ATTRIBUTE = 6 => "Invalid ORIGIN Attribute",
        INVALID_NEXT_HOP_ATTRIBUTE = 8 => "Invalid NEXT_HOP Attribute",
        OPTIONAL_ATTRIBUTE_ERROR = 9 => "Optional Attribute Error",
        INVALID_NETWORK_FIELD = 10 => "Invalid Network Field",
        MALFORMED_AS_PATH = 11 => "Malformed AS_PATH",
    }
}

codes! {
    /// Subcodes of the finite state machine error (RFC 6608).
    fsm {
        UNSPECIFIC = 0 => "Unspecific",
        UNEXPECTED_IN_OPEN_SENT = 1 => "Receive Unexpected Message in OpenSent State",
        UNEXPECTED_IN_OPEN_CONFIRM = 2 => "Receive Unexpected Message in OpenConfirm State",
        UNEXPECTED_IN_ESTABLISHED = 3 => "Receive Unexpected Message in Established State",
    }
}

codes! {
    /// Subcodes of Cease (RFC 4486, RFC 8538, RFC 9384).
    cease {
        UNSPECIFIC = 0 => "Unspecific",
        MAXIMUM_PREFIXES_REACHED = 1 => "Maximum Number of Prefixes Reached",
        ADMINISTRATIVE_SHUTDOWN = 2 => "Administrative Shutdown",
        PEER_DECONFIGURED = 3 => "Peer De-configured",
        ADMINISTRATIVE_RESET = 4 => "Administrative Reset",
        CONNECTION_REJECTED = 5 => "Connection Rejected",
        OTHER_CONFIGURATION_CHANGE = 6 => "Other Configuration Change",
        CONNECTION_COLLISION_RESOLUTION = 7 => "Connection Collision Resolution",
        OUT_OF_RESOURCES = 8 => "Out of Resources",
        HARD_RESET = 9 => "Hard Reset",
        BFD_DOWN = 10 => "BFD Down",
    }
}

codes! {
    /// Subcodes of the ROUTE-REFRESH message error (RFC 7313 §5).
    route_refresh {
        INVALID_MESSAGE_LENGTH = 1 => "Invalid Message Length",
    }
}

/// A NOTIFICATION: error code, subcode and data (RFC 4271 §4.5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notification {
    /// Error code; see [`code`].
    pub code: u8,
    /// Subcode; its meaning depends on the code.
    pub subcode: u8,
    /// The data that code and subcode define, often the offending octets.
    pub data: Bytes,
}

impl Notification {
    /// Returns a NOTIFICATION without data.
    pub const fn new(code: u8, subcode: u8) -> Self {
        Self {
            code,
            subcode,
            data: Bytes::new(),
        }
    }

    /// Returns a NOTIFICATION with data, which is cut so that the message fits 4096 octets.
    pub fn with_data(code: u8, subcode: u8, mut data: Bytes) -> Self {
        data.truncate(NOTIFICATION_DATA_OCTETS_MAX);
        Self {
            code,
            subcode,
            data,
        }
    }

    /// Returns a message header error (RFC 4271 §6.1); subcodes in [`header`].
    pub fn message_header(subcode: u8, data: Bytes) -> Self {
        Self::with_data(code::MESSAGE_HEADER, subcode, data)
    }

    /// Returns an OPEN message error (RFC 4271 §6.2); subcodes in [`open`].
    pub fn open_message(subcode: u8, data: Bytes) -> Self {
        Self::with_data(code::OPEN_MESSAGE, subcode, data)
    }

    /// Returns an UPDATE message error (RFC 4271 §6.3); subcodes in [`update`].
    pub fn update_message(subcode: u8, data: Bytes) -> Self {
        Self::with_data(code::UPDATE_MESSAGE, subcode, data)
    }

    /// Returns Hold Timer Expired (RFC 4271 §6.5).
    pub const fn hold_timer_expired() -> Self {
        Self::new(code::HOLD_TIMER_EXPIRED, 0)
    }

    /// Returns Send Hold Timer Expired (RFC 9687).
    pub const fn send_hold_timer_expired() -> Self {
        Self::new(code::SEND_HOLD_TIMER_EXPIRED, 0)
    }

    /// Returns a finite state machine error (RFC 6608); subcodes in [`fsm`].
    pub const fn fsm(subcode: u8) -> Self {
        Self::new(code::FSM, subcode)
    }

    /// Returns a Cease (RFC 4486); subcodes in [`cease`].
    pub const fn cease(subcode: u8) -> Self {
        Self::new(code::CEASE, subcode)
    }

    /// Returns a Cease because the peer has announced more prefixes of a family than it may (RFC
    /// 4486 §4).
    pub fn prefix_limit(family: Family, max: u32) -> Self {
        let mut data = BytesMut::with_capacity(7);
        data.put_u16(family.afi);
        data.put_u8(family.safi);
        data.put_u32(max);
        Self::with_data(code::CEASE, cease::MAXIMUM_PREFIXES_REACHED, data.freeze())
    }

    /// Makes an Out of Resources with a text for the other side's operator, encoded as in a
    /// shutdown (RFC 9003 §2); RFC 4486 does not define the data of this subcode.
    pub fn out_of_resources(text: &str) -> Self {
        Self::communicate(cease::OUT_OF_RESOURCES, text)
    }

    /// Returns an administrative shutdown with a text for the other side's operator (RFC 9003 §2).
    pub fn administrative_shutdown(text: &str) -> Self {
        Self::communicate(cease::ADMINISTRATIVE_SHUTDOWN, text)
    }

    /// Returns an administrative reset with a text for the other side's operator (RFC 9003 §2).
    pub fn administrative_reset(text: &str) -> Self {
        Self::communicate(cease::ADMINISTRATIVE_RESET, text)
    }

    fn communicate(subcode: u8, text: &str) -> Self {
        let mut end = text.len().min(SHUTDOWN_TEXT_OCTETS_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = text.get(..end).unwrap_or_default();
        if text.is_empty() {
            return Self::cease(subcode);
        }
        let mut data = BytesMut::with_capacity(1 + text.len());
        data.put_u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
        data.put_slice(text.as_bytes());
        Self::with_data(code::CEASE, subcode, data.freeze())
    }

    /// Returns the NOTIFICATION that ends a session for good: the reason, wrapped so that a peer
    /// with the N bit does not wait for the sender to restart (RFC 8538 §3).
    pub fn hard_reset(reason: &Self) -> Self {
        let mut data = BytesMut::with_capacity(2 + reason.data.len());
        data.put_u8(reason.code);
        data.put_u8(reason.subcode);
        data.put_slice(&reason.data);
        Self::with_data(code::CEASE, cease::HARD_RESET, data.freeze())
    }

    /// Returns the operator's text in an administrative shutdown or reset (RFC 9003 §2), or one
    /// written in the same way beside [`cease::OUT_OF_RESOURCES`]. Octets that are not UTF-8 become
    /// replacement characters.
    pub fn shutdown_text(&self) -> Option<String> {
        if self.code != code::CEASE {
            return None;
        }
        let mut reader = Reader::new(&self.data, 0);
        let len = usize::from(reader.u8()?);
        let text = reader.take(len)?;
        let speaks = match self.subcode {
            cease::ADMINISTRATIVE_SHUTDOWN | cease::ADMINISTRATIVE_RESET => true,
            // Others may have put something else there.
            cease::OUT_OF_RESOURCES => reader.is_empty() && core::str::from_utf8(text).is_ok(),
            _ => false,
        };
        (speaks && len != 0).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Returns the NOTIFICATION wrapped in a hard reset (RFC 8538 §3).
    pub fn hard_reset_reason(&self) -> Option<Self> {
        if self.code != code::CEASE || self.subcode != cease::HARD_RESET {
            return None;
        }
        Self::parse_bytes(self.data.clone())
    }

    /// Reads the body of a NOTIFICATION. Any code is accepted, also one that no document defines.
    pub fn parse(body: &[u8]) -> Option<Self> {
        Self::parse_bytes(Bytes::copy_from_slice(body))
    }

    fn parse_bytes(mut body: Bytes) -> Option<Self> {
        let &[code, subcode] = body.first_chunk::<2>()?;
        let data = body.split_off(2);
        Some(Self {
            code,
            subcode,
            data,
        })
    }

    /// Appends the whole message, header included.
    pub fn encode(&self, out: &mut BytesMut) {
        let data = self
            .data
            .get(..NOTIFICATION_DATA_OCTETS_MAX)
            .unwrap_or(&self.data);
        put_header(out, MessageKind::Notification, 2 + data.len());
        out.put_u8(self.code);
        out.put_u8(self.subcode);
        out.put_slice(data);
    }

    /// Returns the name of the error code, if a document defines it.
    pub const fn code_name(&self) -> Option<&'static str> {
        code::name(self.code)
    }

    /// Returns the name of the subcode, if a document defines it for this code.
    pub const fn subcode_name(&self) -> Option<&'static str> {
        match self.code {
            code::MESSAGE_HEADER => header::name(self.subcode),
            code::OPEN_MESSAGE => open::name(self.subcode),
            code::UPDATE_MESSAGE => update::name(self.subcode),
            code::FSM => fsm::name(self.subcode),
            code::CEASE => cease::name(self.subcode),
            code::ROUTE_REFRESH => route_refresh::name(self.subcode),
            _ => None,
        }
    }
}

impl fmt::Display for Notification {
    /// "Cease/Administrative Shutdown: text"; numbers where there is no name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code_name() {
            Some(name) => f.write_str(name)?,
            None => write!(f, "code {}", self.code)?,
        }
        match self.subcode_name() {
            Some(name) => write!(f, "/{name}")?,
            None if self.subcode != 0 => write!(f, "/subcode {}", self.subcode)?,
            None => {}
        }
        if let Some(text) = self.shutdown_text() {
            return write!(f, ": {}", text.escape_debug());
        }
        if let Some(reason) = self.hard_reset_reason() {
            return write!(f, ": {reason}");
        }
        Ok(())
    }
}

impl core::error::Error for Notification {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn body(notification: &Notification) -> BytesMut {
        let mut out = BytesMut::new();
        notification.encode(&mut out);
        out.split_off(crate::HEADER_OCTETS)
    }

    #[test]
    fn carries_a_text() {
        let shutdown = Notification::administrative_shutdown("maintenance, back at 10:00");
        assert_eq!(
            shutdown.to_string(),
            "Cease/Administrative Shutdown: maintenance, back at 10:00"
        );
        assert_eq!(Notification::parse(&body(&shutdown)), Some(shutdown));
        let long = "ü".repeat(200);
        let cut = Notification::administrative_shutdown(&long)
            .shutdown_text()
            .unwrap();
        assert_eq!(cut, "ü".repeat(127), "cut at a character, not within one");
        assert_eq!(Notification::administrative_reset("").data.len(), 0);
        let mut lying = Notification::administrative_reset("x");
        lying.data = Bytes::from_static(&[9, b'x']);
        assert_eq!(lying.shutdown_text(), None);
    }

    #[test]
    fn notification_of_a_limit_names_it() {
        let limit = Notification::prefix_limit(Family::IPV6_UNICAST, 1000);
        // covers RFC 4486 §4: AFI, SAFI, upper bound
        assert_eq!(&body(&limit)[..], [6, 1, 0, 2, 1, 0, 0, 3, 232]);
        let full = Notification::out_of_resources("full: limit = 2");
        assert_eq!(full.to_string(), "Cease/Out of Resources: full: limit = 2");
        let other = Notification::with_data(6, 8, Bytes::from_static(b"\x01ab"));
        assert_eq!(
            other.shutdown_text(),
            None,
            "data of another implementation"
        );
    }

    #[test]
    fn notification_with_unknown_code_is_printed() {
        assert_eq!(Notification::new(0, 0).to_string(), "code 0");
        assert_eq!(Notification::new(6, 77).to_string(), "Cease/subcode 77");
        assert_eq!(
            Notification::hold_timer_expired().to_string(),
            "Hold Timer Expired"
        );
        let hard = Notification::with_data(6, 9, Bytes::from_static(&[6, 3]));
        assert_eq!(
            hard.to_string(),
            "Cease/Hard Reset: Cease/Peer De-configured"
        );
        assert_eq!(Notification::parse(&[1]), None);
        let reason = Notification::administrative_shutdown("for good");
        let hard = Notification::hard_reset(&reason);
        assert_eq!((hard.code, hard.subcode), (6, 9));
        assert_eq!(hard.hard_reset_reason(), Some(reason));
    }
}
