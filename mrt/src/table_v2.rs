//! TABLE_DUMP_V2: peers once, then all paths of a prefix in a record (RFC 6396 §4.3,
//! RFC 8050 §4).

use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::{Asn, Family};
use bytes::Bytes;

use crate::cursor::Cursor;

/// The peers that RIB records refer to (RFC 6396 §4.3.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerIndex {
    /// BGP identifier of the collector.
    pub collector_id: Option<Ipv4Addr>,
    /// Name of the view; often empty.
    pub view: String,
    /// The peers, in the order of their indices.
    pub peers: Vec<Peer>,
}

/// A peer of the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// BGP identifier.
    pub id: Ipv4Addr,
    /// Address.
    pub address: IpAddr,
    /// AS number.
    pub asn: Asn,
}

impl PeerIndex {
    pub(crate) fn read(body: &mut Cursor) -> Option<Self> {
        let collector_id = body.ipv4()?;
        let name_len = body.u16()?;
        let name = body.take(usize::from(name_len))?;
        let count = body.u16()?;
        let peers = (0..count)
            .map(|_| Peer::read(body))
            .collect::<Option<_>>()?;
        let view = String::from_utf8_lossy(&name).into_owned();
        Some(Self {
            collector_id: Some(collector_id),
            view,
            peers,
        })
    }
}

impl Peer {
    /// Parses a peer. The two low bits of the type encode the sizes of address and AS number.
    fn read(body: &mut Cursor) -> Option<Self> {
        let kind = body.u8()?;
        let id = body.ipv4()?;
        let address = body.address(if kind & 1 == 0 { 1 } else { 2 })?;
        let asn = body.asn(kind & 2 != 0)?;
        Some(Self { id, address, asn })
    }
}

/// The record format of a RIB subtype.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RibForm {
    /// The family; in the generic form it is in the record itself.
    family: Option<Family>,
    /// Entries, and in the generic form NLRI, have path identifiers.
    add_path: bool,
}

impl RibForm {
    /// Returns the format of the subtypes of RFC 6396 §4.3 and RFC 8050 §4.
    pub(crate) const fn of(subtype: u16) -> Option<Self> {
        let family = match subtype {
            2 | 8 => Some(Family::IPV4_UNICAST),
            3 | 9 => Some(Family::IPV4_MULTICAST),
            4 | 10 => Some(Family::IPV6_UNICAST),
            5 | 11 => Some(Family::IPV6_MULTICAST),
            6 | 12 => None,
            _ => return None,
        };
        Some(Self {
            family,
            add_path: subtype >= 8,
        })
    }
}

/// All paths of a prefix (RFC 6396 §4.3.2, §4.3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rib {
    /// Counts the records of a table.
    pub sequence: u32,
    /// The family.
    pub family: Family,
    /// The NLRI in the format of a message, without path identifier.
    pub nlri: Bytes,
    /// The paths.
    pub entries: Vec<RibEntry>,
}

/// The path of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RibEntry {
    /// Position of the peer in the [`PeerIndex`].
    pub peer: u16,
    /// When the path was received, in seconds since 1970.
    pub originated_s: u32,
    /// Path identifier, in the forms that have one (RFC 8050 §4).
    pub path_id: Option<u32>,
    /// The path attributes; AS numbers of four octets. See [`crate::table_attributes`].
    pub attributes: Bytes,
}

impl Rib {
    pub(crate) fn read(body: &mut Cursor, form: RibForm) -> Option<Self> {
        let sequence = body.u32()?;
        let mut generic_path_id = None;
        let family = match form.family {
            Some(family) => family,
            None => {
                let afi = body.u16()?;
                let family = Family::new(afi, body.u8()?);
                if form.add_path {
                    generic_path_id = Some(body.u32()?);
                }
                family
            }
        };
        let nlri_len = family.row()?.nlri_octets(body.peek())?;
        let nlri = body.take(nlri_len)?;
        let count = body.u16()?;
        let entries = (0..count).map(|_| RibEntry::read(body, form, generic_path_id));
        let entries = entries.collect::<Option<_>>()?;
        body.is_empty().then_some(Self {
            sequence,
            family,
            nlri,
            entries,
        })
    }
}

impl RibEntry {
    fn read(body: &mut Cursor, form: RibForm, generic_path_id: Option<u32>) -> Option<Self> {
        let peer = body.u16()?;
        let originated_s = body.u32()?;
        // RFC 8050 §4: in the generic form the identifier is in the NLRI.
        let path_id = match (form.add_path, form.family) {
            (true, Some(_)) => Some(body.u32()?),
            _ => generic_path_id,
        };
        let len = body.u16()?;
        let attributes = body.take(usize::from(len))?;
        Some(Self {
            peer,
            originated_s,
            path_id,
            attributes,
        })
    }
}
