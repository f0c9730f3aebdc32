//! ROUTE-REFRESH (RFC 2918, RFC 7313, RFC 5291).

use bytes::{BufMut, Bytes, BytesMut};

use crate::enums::wire_enum;
use crate::family::Family;
use crate::header::{HEADER_OCTETS, MARKER, MessageKind, put_header};
use crate::notification::{Notification, code, route_refresh};
use crate::reader::Reader;

wire_enum! {
    /// The kind of a ROUTE-REFRESH (RFC 7313 §3.2).
    pub struct RefreshSubtype(u8) {
        /// Requests all routes of the family (RFC 2918).
        Request = 0 => "request",
        /// BoRR: the routes that follow are the complete Adj-RIB-Out (RFC 7313 §4.1).
        Begin = 1 => "begin",
        /// EoRR: the complete Adj-RIB-Out has been sent (RFC 7313 §4.1).
        End = 2 => "end",
    }
}

/// A ROUTE-REFRESH for one family. Entries for outbound route filters (RFC 5291) are read
/// over: that capability is never advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RouteRefresh {
    /// The family of the routes; it need not have a row.
    pub family: Family,
    /// Request, or the border of a refresh.
    pub subtype: RefreshSubtype,
}

impl RouteRefresh {
    /// Makes a request for all routes of `family`.
    pub const fn request(family: Family) -> Self {
        Self {
            family,
            subtype: RefreshSubtype::Request,
        }
    }

    /// Reads the body of a ROUTE-REFRESH.
    ///
    /// # Errors
    ///
    /// A body shorter than four octets, or a BoRR or EoRR with octets after it (RFC 7313 §5); the
    /// data is the complete message.
    pub fn parse(body: &[u8]) -> Result<Self, Notification> {
        Self::read(body).ok_or_else(|| {
            let mut data = BytesMut::with_capacity(HEADER_OCTETS + body.len());
            data.put_slice(&MARKER);
            data.put_u16(u16::try_from(HEADER_OCTETS + body.len()).unwrap_or(u16::MAX));
            data.put_u8(MessageKind::RouteRefresh.0);
            data.put_slice(body);
            let data: Bytes = data.freeze();
            let subcode = route_refresh::INVALID_MESSAGE_LENGTH;
            Notification::with_data(code::ROUTE_REFRESH, subcode, data)
        })
    }

    fn read(body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body, 0);
        let afi = reader.u16()?;
        let subtype = RefreshSubtype(reader.u8()?);
        let family = Family::new(afi, reader.u8()?);
        let border = matches!(subtype, RefreshSubtype::Begin | RefreshSubtype::End);
        (!border || reader.is_empty()).then_some(Self { family, subtype })
    }

    /// Appends the whole message, header included.
    pub fn encode(&self, out: &mut BytesMut) {
        put_header(out, MessageKind::RouteRefresh, 4);
        out.put_u16(self.family.afi);
        out.put_u8(self.subtype.0);
        out.put_u8(self.family.safi);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let refresh = RouteRefresh {
            family: Family::IPV6_UNICAST,
            subtype: RefreshSubtype::Begin,
        };
        let mut out = BytesMut::new();
        refresh.encode(&mut out);
        assert_eq!(&out[16..], [0, 23, 5, 0, 2, 1, 1]);
        assert_eq!(RouteRefresh::parse(&out[19..]), Ok(refresh));
    }

    #[test]
    fn borr_with_trailing_octets_is_rejected() {
        // covers RFC 7313 §5
        let error = RouteRefresh::parse(&[0, 1, 1, 1, 0]).unwrap_err();
        assert_eq!((error.code, error.subcode, error.data.len()), (7, 1, 24));
        // RFC 5291: filters may follow a request.
        assert!(RouteRefresh::parse(&[0, 1, 0, 1, 1, 64, 0, 0]).is_ok());
    }
}
