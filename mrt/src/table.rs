//! TABLE_DUMP: the first table format (RFC 6396 §4.2), and the attributes of tables.

use std::net::IpAddr;

use bgp_proto::attr::RawAttrs;
use bgp_proto::{Asn, AttrBlock, AttrCode, Family, Prefix, SessionParams};
use bytes::Bytes;

use crate::cursor::Cursor;

/// A path of a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableDump {
    /// Number of the view.
    pub view: u16,
    /// Counts the records of a table; wraps around.
    pub sequence: u16,
    /// The prefix.
    pub prefix: Prefix,
    /// When the path was received, in seconds since 1970.
    pub originated_s: u32,
    /// Address of the peer.
    pub peer_address: IpAddr,
    /// AS number of the peer.
    pub peer_asn: Asn,
    /// The path attributes; AS numbers of two octets.
    pub attributes: Bytes,
}

impl TableDump {
    /// Parses a record. Its subtype is the AFI.
    pub(crate) fn read(body: &mut Cursor, afi: u16) -> Option<Self> {
        let (view, sequence) = (body.u16()?, body.u16()?);
        let address = body.address(afi)?;
        let prefix = Prefix::new(address, body.u8()?)?;
        let _status = body.u8()?;
        let originated_s = body.u32()?;
        let peer_address = body.address(afi)?;
        let peer_asn = body.asn(false)?;
        let len = body.u16()?;
        let attributes = body.take(usize::from(len))?;
        Some(Self {
            view,
            sequence,
            prefix,
            originated_s,
            peer_address,
            peer_asn,
            attributes,
        })
    }

    /// Returns the family of the prefix.
    pub const fn family(&self) -> Family {
        match self.prefix {
            Prefix::V4(_) => Family::IPV4_UNICAST,
            Prefix::V6(_) => Family::IPV6_UNICAST,
        }
    }
}

/// Returns the path attributes of a table's entry, in a form that can be decoded.
///
/// MP_REACH_NLRI in a table holds only the next hop (RFC 6396 §4.3.4); some writers put the whole
/// attribute there nevertheless. Both forms are accepted.
pub fn table_attributes<'a>(
    attributes: &'a [u8],
    family: Family,
    params: &SessionParams,
) -> AttrBlock<'a> {
    let reach = RawAttrs::new(attributes, 0)
        .map_while(Result::ok)
        .find(|attr| attr.code == AttrCode::MpReach);
    let next_hop = reach.and_then(|attr| next_hop(attr.value));
    AttrBlock::from_octets(attributes, family, next_hop, params)
}

/// Returns the next hop of MP_REACH_NLRI in the short form, otherwise in the full one.
fn next_hop(value: &[u8]) -> Option<&[u8]> {
    let (len, short) = value.split_first()?;
    if usize::from(*len) == short.len() {
        return Some(short);
    }
    let (len, rest) = value.get(3..)?.split_first()?;
    rest.get(..usize::from(*len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_next_hop() {
        assert_eq!(next_hop(&[4, 10, 0, 0, 1]), Some(&[10, 0, 0, 1][..]));
        assert_eq!(
            next_hop(&[0, 1, 1, 4, 10, 0, 0, 1, 0]),
            Some(&[10, 0, 0, 1][..])
        );
        assert_eq!(next_hop(&[0, 1, 1, 9, 10]), None);
        assert_eq!(next_hop(&[]), None);
    }
}
