//! Faults of an UPDATE and their remedies (RFC 7606).

use core::fmt;

use bytes::Bytes;

use crate::attr::{AttrCode, row};
use crate::notification::{Notification, update};

/// The effect of a fault on the routes of its message or on the session, mildest first: of several
/// faults the strongest remedy counts (RFC 7606 §3 h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// The attribute is discarded, the routes are kept (RFC 7606 §2).
    AttributeDiscard,
    /// The routes of the message count as withdrawn (RFC 7606 §2).
    TreatAsWithdraw,
    /// The family is given up for the rest of the session (RFC 7606 §2).
    DisableFamily,
    /// The session ends with a NOTIFICATION (RFC 7606 §2).
    ResetSession,
}

impl Remedy {
    /// Returns the name as RFC 7606 §2 has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttributeDiscard => "attribute discard",
            Self::TreatAsWithdraw => "treat-as-withdraw",
            Self::DisableFamily => "AFI/SAFI disable",
            Self::ResetSession => "session reset",
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// An attribute's header or value runs past the attributes' end (RFC 7606 §4).
    Overrun,
    /// The attribute's length is not one its type allows.
    Length,
    /// The attribute's value is not one its type allows.
    Value,
    /// The optional and transitive flags are not those of the type (RFC 7606 §3 c).
    Flags,
    /// The attribute came twice; only the first counts (RFC 7606 §3 g).
    Duplicate,
    /// A mandatory attribute is not there (RFC 7606 §3 d).
    Missing,
    /// The flags mark the attribute as well-known, but the type is unknown (RFC 4271 §6.3).
    UnrecognizedWellKnown,
    /// The attribute has no place on an external session (RFC 7606 §7.5, §7.9, §7.10).
    NotFromExternal,
    /// The attribute has no place on a session with four-octet AS numbers (RFC 6793 §3).
    NotFromFourOctet,
    /// The next hop is no address that could forward: zero, loopback, multicast, or an
    /// IPv4-mapped one without permission.
    NextHop,
    /// MP_REACH_NLRI or MP_UNREACH_NLRI is too short to be read (RFC 7606 §5.3).
    MpSyntax,
    /// MP_REACH_NLRI or MP_UNREACH_NLRI came twice (RFC 7606 §3 g).
    MpDuplicate,
    /// The length of an MP next hop does not fit its family (RFC 7606 §7.11).
    MpNextHopLength,
    /// The same in a family that is carried unread.
    OpaqueNextHopLength,
    /// A family that was not negotiated, or has no row.
    FamilyNotNegotiated,
    /// A prefix is too long or cut off (RFC 7606 §5.3).
    NlriSyntax,
    /// The same in a family that is carried unread: only that family is given up.
    OpaqueNlriSyntax,
}

impl FaultKind {
    /// Returns a short description for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Overrun => "attribute runs past the end of the attributes",
            Self::Length => "bad attribute length",
            Self::Value => "bad attribute value",
            Self::Flags => "bad attribute flags",
            Self::Duplicate => "attribute appears twice",
            Self::Missing => "mandatory attribute missing",
            Self::UnrecognizedWellKnown => "unrecognized well-known attribute",
            Self::NotFromExternal => "attribute not allowed from an external peer",
            Self::NotFromFourOctet => "attribute not allowed on a four-octet AS session",
            Self::NextHop => "next hop is not a usable address",
            Self::MpSyntax => "multiprotocol attribute cut short",
            Self::MpDuplicate => "multiprotocol attribute appears twice",
            Self::MpNextHopLength | Self::OpaqueNextHopLength => "bad next hop length",
            Self::FamilyNotNegotiated => "family not negotiated",
            Self::NlriSyntax | Self::OpaqueNlriSyntax => "bad NLRI",
        }
    }

    /// Returns a fixed word for machines.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Overrun => "overrun",
            Self::Length => "length",
            Self::Value => "value",
            Self::Flags => "flags",
            Self::Duplicate => "duplicate",
            Self::Missing => "missing",
            Self::UnrecognizedWellKnown => "unrecognized-well-known",
            Self::NotFromExternal => "not-from-external",
            Self::NotFromFourOctet => "not-from-four-octet",
            Self::NextHop => "next-hop",
            Self::MpSyntax => "mp-syntax",
            Self::MpDuplicate => "mp-duplicate",
            Self::MpNextHopLength => "mp-next-hop-length",
            Self::OpaqueNextHopLength => "opaque-next-hop-length",
            Self::FamilyNotNegotiated => "family-not-negotiated",
            Self::NlriSyntax => "nlri-syntax",
            Self::OpaqueNlriSyntax => "opaque-nlri-syntax",
        }
    }
}

/// One fault of an UPDATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// The attribute it is about; [`AttrCode::None`] for the message's own fields.
    pub attr: AttrCode,
    /// Octet offset in the UPDATE's body: of the attribute's flags, or of the NLRI.
    pub at: u16,
}

impl Fault {
    /// Returns a fault at this octet of the UPDATE's body.
    pub fn new(kind: FaultKind, attr: AttrCode, at: usize) -> Self {
        Self {
            kind,
            attr,
            at: u16::try_from(at).unwrap_or(u16::MAX),
        }
    }

    /// Returns the remedy that RFC 7606 requires.
    pub fn remedy(&self) -> Remedy {
        match self.kind {
            FaultKind::Length | FaultKind::Value => match row(self.attr) {
                Some(row) => row.malformed,
                None => Remedy::TreatAsWithdraw,
            },
            FaultKind::Flags => match row(self.attr) {
                Some(row) => row.bad_flags,
                None => Remedy::TreatAsWithdraw,
            },
            FaultKind::Duplicate
            | FaultKind::NotFromExternal
            | FaultKind::NotFromFourOctet
            | FaultKind::FamilyNotNegotiated => Remedy::AttributeDiscard,
            FaultKind::Overrun
            | FaultKind::Missing
            | FaultKind::UnrecognizedWellKnown
            | FaultKind::NextHop => Remedy::TreatAsWithdraw,
            FaultKind::OpaqueNextHopLength | FaultKind::OpaqueNlriSyntax => Remedy::DisableFamily,
            FaultKind::MpSyntax
            | FaultKind::MpDuplicate
            | FaultKind::MpNextHopLength
            | FaultKind::NlriSyntax => Remedy::ResetSession,
        }
    }

    /// Returns the strongest remedy of several faults.
    pub fn worst(faults: &[Self]) -> Option<Remedy> {
        faults.iter().map(Self::remedy).max()
    }

    /// Returns the NOTIFICATION that a session reset for this fault sends (RFC 4271 §6.3). `body`
    /// is the UPDATE's body: errors about an attribute carry its octets back.
    pub fn notification(&self, body: &[u8]) -> Notification {
        let attribute = || self.attribute_octets(body);
        let (subcode, data) = match self.kind {
            FaultKind::Overrun | FaultKind::Duplicate | FaultKind::MpDuplicate => {
                (update::MALFORMED_ATTRIBUTE_LIST, Bytes::new())
            }
            FaultKind::Length => (update::ATTRIBUTE_LENGTH_ERROR, attribute()),
            FaultKind::Value => match self.attr {
                AttrCode::Origin => (update::INVALID_ORIGIN_ATTRIBUTE, attribute()),
                AttrCode::AsPath => (update::MALFORMED_AS_PATH, Bytes::new()),
                AttrCode::NextHop => (update::INVALID_NEXT_HOP_ATTRIBUTE, attribute()),
                _ => (update::OPTIONAL_ATTRIBUTE_ERROR, attribute()),
            },
            FaultKind::Flags => (update::ATTRIBUTE_FLAGS_ERROR, attribute()),
            FaultKind::Missing => {
                let code = Bytes::copy_from_slice(&[self.attr.0]);
                (update::MISSING_WELL_KNOWN_ATTRIBUTE, code)
            }
            FaultKind::UnrecognizedWellKnown => {
                (update::UNRECOGNIZED_WELL_KNOWN_ATTRIBUTE, attribute())
            }
            FaultKind::NextHop if self.attr == AttrCode::NextHop => {
                (update::INVALID_NEXT_HOP_ATTRIBUTE, attribute())
            }
            FaultKind::NlriSyntax | FaultKind::OpaqueNlriSyntax if self.attr == AttrCode::None => {
                (update::INVALID_NETWORK_FIELD, Bytes::new())
            }
            // The offset is that of the NLRI, not of the attribute.
            FaultKind::NlriSyntax | FaultKind::OpaqueNlriSyntax => {
                (update::OPTIONAL_ATTRIBUTE_ERROR, Bytes::new())
            }
            FaultKind::NextHop
            | FaultKind::NotFromExternal
            | FaultKind::NotFromFourOctet
            | FaultKind::MpSyntax
            | FaultKind::MpNextHopLength
            | FaultKind::OpaqueNextHopLength
            | FaultKind::FamilyNotNegotiated => (update::OPTIONAL_ATTRIBUTE_ERROR, attribute()),
        };
        Notification::update_message(subcode, data)
    }

    /// Flags, type, length and value of the attribute at the fault's offset.
    fn attribute_octets(&self, body: &[u8]) -> Bytes {
        let tail = body.get(usize::from(self.at)..).unwrap_or_default();
        let octets = match crate::attr::RawAttr::read(&mut crate::reader::Reader::new(tail, 0)) {
            Some(attr) => attr.octets,
            None => tail,
        };
        Bytes::copy_from_slice(octets)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attr {
            AttrCode::None => write!(f, "{}", self.kind.text())?,
            attr => write!(f, "{attr}: {}", self.kind.text())?,
        }
        write!(f, " at octet {} ({})", self.at, self.remedy())
    }
}

impl core::error::Error for Fault {}
