//! ORIGIN (RFC 4271 §5.1.1).

use alloc::vec::Vec;
use core::fmt;

use crate::attr::code::AttrCode;
use crate::attr::decode::{Context, Draft};
use crate::attr::raw::RawAttr;
use crate::attr::set::Attributes;
use crate::fault::FaultKind;

/// Where a route came into BGP; the smaller is preferred (RFC 4271 §9.1.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// From within its AS.
    #[default]
    Igp = 0,
    /// From EGP (RFC 904).
    Egp = 1,
    /// By other means.
    Incomplete = 2,
}

impl Origin {
    /// Name as RFC 4271 writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Igp => "IGP",
            Self::Egp => "EGP",
            Self::Incomplete => "INCOMPLETE",
        }
    }

    /// The origin of a value on the wire.
    pub(super) const fn from_octet(octet: u8) -> Option<Self> {
        match octet {
            0 => Some(Self::Igp),
            1 => Some(Self::Egp),
            2 => Some(Self::Incomplete),
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

pub(super) fn decode(attr: &RawAttr<'_>, _: &Context, draft: &mut Draft) -> Result<(), FaultKind> {
    let [value] = attr.value else {
        return Err(FaultKind::Length);
    };
    draft.attributes.origin = Origin::from_octet(*value).ok_or(FaultKind::Value)?;
    Ok(())
}

pub(super) fn encode(set: &Attributes, _as4: bool, out: &mut Vec<u8>) {
    set.put(AttrCode::Origin, out, |out| out.push(set.origin as u8));
}
