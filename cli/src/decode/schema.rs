//! The output, field by field. `docs/operate/decode.md` describes it for users.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::attr::Report;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// One object: its place and its content.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    /// Number of the message or record, from 1.
    pub(crate) message: u64,
    #[serde(flatten)]
    pub(crate) place: Place<'a>,
    #[serde(flatten)]
    pub(crate) content: Content,
}

/// The place of an object.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Place<'a> {
    /// Octet offset of the MRT record or the captured packet, after decompression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    /// Number of the text line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<u64>,
    /// Other fields of the text line.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) fields: BTreeMap<&'a str, &'a str>,
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) microseconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<End>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) local: Option<End>,
    /// Sender and receiver of a captured message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<Socket>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<Socket>,
    /// The collector sent the message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) sent: bool,
}

/// One end of a TCP connection.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Socket {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

/// One end of a session.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct End {
    pub(crate) address: IpAddr,
    pub(crate) asn: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<Ipv4Addr>,
}

/// The content of an object.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING-KEBAB-CASE")]
pub(crate) enum Content {
    Open(Box<OpenMessage>),
    Update(Box<Routes>),
    Notification(NotificationMessage),
    Keepalive,
    RouteRefresh {
        family: String,
        subtype: String,
    },
    /// A message that could not be decoded at all.
    Malformed {
        /// The type octet, if the header was read.
        #[serde(skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        faults: Vec<FaultReport>,
    },
    StateChange {
        old: String,
        new: String,
    },
    PeerIndex {
        #[serde(skip_serializing_if = "Option::is_none")]
        collector: Option<Ipv4Addr>,
        view: String,
        peers: Vec<End>,
    },
    /// A path of a table.
    Rib(Box<RibPath>),
    Snapshot {
        view: u16,
        file: String,
    },
    /// An MRT record of an unsupported type.
    Record {
        kind: u16,
        subtype: u16,
    },
    /// Octets that a capture lacks.
    Lost {
        octets: u32,
    },
    /// Captured octets that belong to no whole message.
    Skipped {
        octets: u64,
    },
    /// The file, or a line of it, is invalid.
    Error {
        error: String,
    },
}

/// An OPEN.
#[derive(Debug, Serialize)]
pub(crate) struct OpenMessage {
    pub(crate) version: u8,
    /// The two-octet field.
    pub(crate) asn: u32,
    pub(crate) hold_time: u16,
    pub(crate) id: Ipv4Addr,
    pub(crate) capabilities: Vec<CapabilityReport>,
}

/// A capability.
#[derive(Debug, Serialize)]
pub(crate) struct CapabilityReport {
    pub(crate) code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<&'static str>,
    /// The whole capability as text for people.
    pub(crate) text: String,
    /// The value in hex.
    pub(crate) value: String,
}

/// A NOTIFICATION.
#[derive(Debug, Serialize)]
pub(crate) struct NotificationMessage {
    pub(crate) code: u8,
    pub(crate) subcode: u8,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) data: String,
}

/// The content of an UPDATE, as it was sent.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Routes {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) reach: Vec<Reach>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unreach: Vec<Unreach>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_of_rib: Option<String>,
    #[serde(skip_serializing_if = "AttributeReport::is_empty")]
    pub(crate) attributes: AttributeReport,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) faults: Vec<FaultReport>,
}

/// A path of a table.
#[derive(Debug, Serialize)]
pub(crate) struct RibPath {
    /// Number of the path in its record, from 0.
    pub(crate) entry: usize,
    pub(crate) sequence: u32,
    /// When the path was received, in seconds since 1970.
    pub(crate) originated: u32,
    #[serde(flatten)]
    pub(crate) routes: Routes,
}

/// Announced destinations of one family.
#[derive(Debug, Serialize)]
pub(crate) struct Reach {
    pub(crate) family: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_hop: Option<String>,
    /// Link-local address beside a global next hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) link_local: Option<String>,
    pub(crate) nlri: Vec<NlriReport>,
}

/// Withdrawn destinations of one family.
#[derive(Debug, Serialize)]
pub(crate) struct Unreach {
    pub(crate) family: String,
    pub(crate) nlri: Vec<NlriReport>,
}

/// A destination.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NlriReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prefix: Option<String>,
    /// The octets of an NLRI of an opaque family, in hex.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) opaque: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path_id: Option<u32>,
}

/// Path attributes by their names in the RFCs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct AttributeReport {
    /// Attributes with a row in the codec's table, in its order.
    pub(crate) typed: Vec<(&'static str, Report)>,
    /// Unknown attributes, and malformed ones.
    pub(crate) unknown: Vec<UnknownReport>,
}

impl AttributeReport {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Serialize for AttributeReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.typed {
            map.serialize_entry(name, value)?;
        }
        if !self.unknown.is_empty() {
            map.serialize_entry("unknown", &self.unknown)?;
        }
        map.end()
    }
}

/// An attribute as octets.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct UnknownReport {
    pub(crate) code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<&'static str>,
    pub(crate) flags: String,
    pub(crate) value: String,
}

/// A fault in a message.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FaultReport {
    /// Octet offset from the beginning of the message, its header included; in a table from
    /// the beginning of the attributes.
    pub(crate) at: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attribute: Option<String>,
    /// A constant word.
    pub(crate) fault: &'static str,
    /// The same as text for people.
    pub(crate) text: String,
    /// The remedy that RFC 7606 requires.
    pub(crate) remedy: &'static str,
}
