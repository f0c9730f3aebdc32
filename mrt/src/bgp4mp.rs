//! BGP4MP: messages and state changes (RFC 6396 §4.4, appendix B; RFC 8050 §3).

use std::net::IpAddr;

use bgp_proto::{Asn, Family};
use bytes::Bytes;

use crate::cursor::Cursor;

/// The two ends of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Session {
    /// AS number of the peer.
    pub peer_asn: Asn,
    /// AS number of the collector.
    pub local_asn: Asn,
    /// Interface index; 0 if unknown.
    pub interface: u16,
    /// Address of the peer.
    pub peer_address: IpAddr,
    /// Address of the collector.
    pub local_address: IpAddr,
}

impl Session {
    pub(crate) fn read(body: &mut Cursor, as4: bool) -> Option<Self> {
        let (peer_asn, local_asn) = (body.asn(as4)?, body.asn(as4)?);
        let interface = body.u16()?;
        let afi = body.u16()?;
        let (peer_address, local_address) = (body.address(afi)?, body.address(afi)?);
        Some(Self {
            peer_asn,
            local_asn,
            interface,
            peer_address,
            local_address,
        })
    }
}

/// A BGP message and its session: BGP4MP_MESSAGE and its variants. See
/// [`bgp_proto::decode_message`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bgp4mpMessage {
    /// The session.
    pub session: Session,
    /// Whether AS numbers in the message have four octets.
    pub as4: bool,
    /// Whether NLRI carry path identifiers (RFC 8050 §3).
    pub add_path: bool,
    /// Whether the collector sent it rather than received it.
    pub sent: bool,
    /// The whole message, header included.
    pub octets: Bytes,
}

/// A state transition of a session (RFC 6396 §4.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateChange {
    /// The session.
    pub session: Session,
    /// State before; see [`StateChange::state_name`].
    pub old: u16,
    /// State after.
    pub new: u16,
}

impl StateChange {
    /// Returns the name of a state's number (RFC 6396 §4.4.1).
    pub const fn state_name(state: u16) -> Option<&'static str> {
        match state {
            1 => Some("Idle"),
            2 => Some("Connect"),
            3 => Some("Active"),
            4 => Some("OpenSent"),
            5 => Some("OpenConfirm"),
            6 => Some("Established"),
            _ => None,
        }
    }
}

pub(crate) fn state_change(body: &mut Cursor, as4: bool) -> Option<StateChange> {
    let session = Session::read(body, as4)?;
    Some(StateChange {
        session,
        old: body.u16()?,
        new: body.u16()?,
    })
}

/// A path of a prefix in the retired format of BGP4MP_ENTRY (RFC 6396 appendix B.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableEntry {
    /// The session.
    pub session: Session,
    /// Number of the view.
    pub view: u16,
    /// Always 1.
    pub status: u16,
    /// When the path was last changed, in seconds since 1970.
    pub changed_s: u32,
    /// The family.
    pub family: Family,
    /// The next hop in the format of MP_REACH_NLRI.
    pub next_hop: Bytes,
    /// The NLRI: length in bits and prefix.
    pub nlri: Bytes,
    /// The path attributes; AS numbers of two octets.
    pub attributes: Bytes,
}

impl TableEntry {
    pub(crate) fn read(body: &mut Cursor) -> Option<Self> {
        let session = Session::read(body, false)?;
        let (view, status, changed_s) = (body.u16()?, body.u16()?, body.u32()?);
        let afi = body.u16()?;
        let family = Family::new(afi, body.u8()?);
        let next_hop_len = body.u8()?;
        let next_hop = body.take(usize::from(next_hop_len))?;
        let nlri_len = family.row()?.nlri_octets(body.peek())?;
        let nlri = body.take(nlri_len)?;
        let attributes_len = body.u16()?;
        let attributes = body.take(usize::from(attributes_len))?;
        Some(Self {
            session,
            view,
            status,
            changed_s,
            family,
            next_hop,
            nlri,
            attributes,
        })
    }
}

/// Parses a snapshot: the number of the view, and the name of the file.
pub(crate) fn snapshot(body: &mut Cursor) -> Option<(u16, String)> {
    let view = body.u16()?;
    let name = body.rest();
    let name = name.split(|octet| *octet == 0).next().unwrap_or_default();
    Some((view, String::from_utf8_lossy(name).into_owned()))
}
