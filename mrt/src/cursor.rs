//! A cursor over a record's octets that never reads past the end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::Bytes;

/// Reads big-endian fields from shared octets; every read returns `None` at the end.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    octets: Bytes,
    len: usize,
}

impl Cursor {
    pub(crate) fn new(octets: Bytes) -> Self {
        let len = octets.len();
        Self { octets, len }
    }

    /// Returns how many octets have been read.
    pub(crate) fn at(&self) -> usize {
        self.len - self.octets.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    pub(crate) fn peek(&self) -> &[u8] {
        &self.octets
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<Bytes> {
        (len <= self.octets.len()).then(|| self.octets.split_to(len))
    }

    pub(crate) fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.octets)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let array = *self.octets.first_chunk::<N>()?;
        self.take(N)?;
        Some(array)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[octet]| octet)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn ipv4(&mut self) -> Option<Ipv4Addr> {
        self.array::<4>().map(Ipv4Addr::from)
    }

    /// Reads an address of the AFI; `None` also for AFIs without IP addresses.
    pub(crate) fn address(&mut self, afi: u16) -> Option<IpAddr> {
        match afi {
            1 => self.ipv4().map(IpAddr::V4),
            2 => self
                .array::<16>()
                .map(|octets| IpAddr::V6(Ipv6Addr::from(octets))),
            _ => None,
        }
    }

    /// Reads an AS number of four or two octets.
    pub(crate) fn asn(&mut self, as4: bool) -> Option<bgp_proto::Asn> {
        let asn = if as4 {
            self.u32()?
        } else {
            u32::from(self.u16()?)
        };
        Some(bgp_proto::Asn(asn))
    }
}
