//! ORIGIN (RFC 4271 §5.1.1).

use alloc::vec::Vec;
use core::fmt;

#[cfg(feature = "strategy")]
use proptest::prelude::*;

use crate::attr::decode::Context;
use crate::attr::field::Field;
use crate::attr::report::Report;
use crate::fault::FaultKind;
use crate::reader::Reader;

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
    /// Returns the name as RFC 4271 writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Igp => "IGP",
            Self::Egp => "EGP",
            Self::Incomplete => "INCOMPLETE",
        }
    }

    /// The origin of a value on the wire.
    const fn from_octet(octet: u8) -> Option<Self> {
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

/// The form of the packed field is the value: IGP, which most routes have, takes no octet.
impl Field for Origin {
    const BITS: u32 = 2;

    fn form(&self) -> u64 {
        *self as u64
    }

    fn is_present(&self) -> bool {
        true
    }

    fn decode(value: &[u8], _: &Context) -> Result<Self, FaultKind> {
        let [value] = value else {
            return Err(FaultKind::Length);
        };
        Self::from_octet(*value).ok_or(FaultKind::Value)
    }

    fn encode(&self, _as4: bool, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn pack(&self, _: &mut Vec<u8>) {}

    fn unpack(form: u64, _: &mut Reader<'_>) -> Option<Self> {
        Self::from_octet(u8::try_from(form).ok()?)
    }

    fn report(&self) -> Report {
        Report::text(self)
    }

    #[cfg(feature = "strategy")]
    fn strategy(_confederations: bool) -> BoxedStrategy<Self> {
        prop_oneof![Just(Self::Igp), Just(Self::Egp), Just(Self::Incomplete)].boxed()
    }
}
