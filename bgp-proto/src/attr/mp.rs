//! MP_REACH_NLRI and MP_UNREACH_NLRI (RFC 4760 §3, §4).

use crate::attr::raw::RawAttr;
use crate::family::Family;
use crate::fault::FaultKind;
use crate::reader::Reader;

/// The content of MP_REACH_NLRI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MpReach<'a> {
    pub(crate) family: Family,
    pub(crate) next_hop: &'a [u8],
    pub(crate) nlri: &'a [u8],
    /// Octet offset of the NLRI.
    pub(crate) nlri_at: usize,
    /// Octet offset of the attribute.
    pub(crate) at: usize,
}

impl<'a> MpReach<'a> {
    pub(crate) fn read(attr: &RawAttr<'a>) -> Result<Self, FaultKind> {
        let mut reader = Reader::new(attr.value, attr.value_at());
        Self::fields(&mut reader, attr.at).ok_or(FaultKind::MpSyntax)
    }

    fn fields(reader: &mut Reader<'a>, at: usize) -> Option<Self> {
        let afi = reader.u16()?;
        let family = Family::new(afi, reader.u8()?);
        let next_hop_len = usize::from(reader.u8()?);
        let next_hop = reader.take(next_hop_len)?;
        let _reserved = reader.u8()?;
        Some(Self {
            family,
            next_hop,
            nlri: reader.rest(),
            nlri_at: reader.at(),
            at,
        })
    }
}

/// The content of MP_UNREACH_NLRI.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MpUnreach<'a> {
    pub(crate) family: Family,
    pub(crate) nlri: &'a [u8],
    /// Octet offset of the NLRI.
    pub(crate) nlri_at: usize,
}

impl<'a> MpUnreach<'a> {
    pub(crate) fn read(attr: &RawAttr<'a>) -> Result<Self, FaultKind> {
        let mut reader = Reader::new(attr.value, attr.value_at());
        Self::fields(&mut reader).ok_or(FaultKind::MpSyntax)
    }

    fn fields(reader: &mut Reader<'a>) -> Option<Self> {
        let afi = reader.u16()?;
        let family = Family::new(afi, reader.u8()?);
        Some(Self {
            family,
            nlri: reader.rest(),
            nlri_at: reader.at(),
        })
    }
}
