//! AGGREGATOR (RFC 4271 §5.1.7, RFC 6793 §4).

use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv4Addr;

use crate::asn::Asn;
use crate::attr::code::AttrCode;
use crate::attr::decode::{Context, Draft};
use crate::attr::raw::RawAttr;
use crate::attr::set::Attributes;
use crate::fault::FaultKind;
use crate::reader::Reader;

/// Who formed an aggregate route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Aggregator {
    /// AS number of the speaker.
    pub asn: Asn,
    /// BGP identifier of the speaker.
    pub id: Ipv4Addr,
}

impl fmt::Display for Aggregator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.asn, self.id)
    }
}

pub(super) fn decode(
    attr: &RawAttr<'_>,
    context: &Context,
    draft: &mut Draft,
) -> Result<(), FaultKind> {
    draft.attributes.aggregator = Some(read(attr.value, context.as4)?);
    Ok(())
}

/// Reads an aggregator with its AS number in four or two octets.
pub(super) fn read(value: &[u8], as4: bool) -> Result<Aggregator, FaultKind> {
    if value.len() != if as4 { 8 } else { 6 } {
        return Err(FaultKind::Length);
    }
    let mut reader = Reader::new(value, 0);
    let asn = if as4 {
        reader.u32()
    } else {
        reader.u16().map(u32::from)
    };
    let (Some(asn), Some(id)) = (asn, reader.array::<4>()) else {
        return Err(FaultKind::Length);
    };
    // RFC 7607 §2: AS 0 makes the attribute malformed.
    if asn == 0 {
        return Err(FaultKind::Value);
    }
    Ok(Aggregator {
        asn: Asn(asn),
        id: id.into(),
    })
}

pub(super) fn encode(set: &Attributes, as4: bool, out: &mut Vec<u8>) {
    let Some(Aggregator { asn, id }) = set.aggregator else {
        return;
    };
    set.put(AttrCode::Aggregator, out, |out| {
        if as4 {
            out.extend_from_slice(&asn.0.to_be_bytes());
        } else {
            out.extend_from_slice(&asn.two_octet().to_be_bytes());
        }
        out.extend_from_slice(&id.octets());
    });
}
