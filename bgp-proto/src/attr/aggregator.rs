//! AGGREGATOR (RFC 4271 §5.1.7, RFC 6793 §4).

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv4Addr;

#[cfg(feature = "strategy")]
use proptest::prelude::*;

use crate::asn::Asn;
use crate::attr::decode::Context;
use crate::attr::field::Value;
use crate::attr::report::Report;
use crate::fault::FaultKind;
use crate::reader::Reader;

/// The speaker that formed an aggregate route.
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

impl Value for Aggregator {
    fn decode(value: &[u8], context: &Context) -> Result<Self, FaultKind> {
        read(value, context.as4)
    }

    fn encode(&self, as4: bool, out: &mut Vec<u8>) {
        if as4 {
            out.extend_from_slice(&self.asn.0.to_be_bytes());
        } else {
            out.extend_from_slice(&self.asn.two_octet().to_be_bytes());
        }
        out.extend_from_slice(&self.id.octets());
    }

    fn pack(&self, out: &mut Vec<u8>) {
        self.encode(true, out);
    }

    fn unpack(reader: &mut Reader<'_>) -> Option<Self> {
        let asn = Asn(reader.u32()?);
        let id = reader.array::<4>()?.into();
        Some(Self { asn, id })
    }

    fn report(&self) -> Report {
        Report::Fields(vec![
            ("asn", Report::Number(u64::from(self.asn.0))),
            ("id", Report::text(&self.id)),
        ])
    }

    #[cfg(feature = "strategy")]
    fn strategy() -> BoxedStrategy<Self> {
        (crate::strategy::asn(), any::<u32>())
            .prop_map(|(asn, id)| Self { asn, id: id.into() })
            .boxed()
    }
}
