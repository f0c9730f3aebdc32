//! Reads fields in either byte order; every read returns `None` at the end.

/// The rest of some octets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) rest: &'a [u8],
    /// Whether fields are big-endian.
    big: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(rest: &'a [u8], big: bool) -> Self {
        Self { rest, big }
    }

    /// Returns a cursor over a packet: network byte order.
    pub(crate) const fn network(rest: &'a [u8]) -> Self {
        Self::new(rest, true)
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*array)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[octet]| octet)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        let octets = self.array()?;
        Some(match self.big {
            true => u16::from_be_bytes(octets),
            false => u16::from_le_bytes(octets),
        })
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let octets = self.array()?;
        Some(match self.big {
            true => u32::from_be_bytes(octets),
            false => u32::from_le_bytes(octets),
        })
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        let octets = self.array()?;
        Some(match self.big {
            true => i64::from_be_bytes(octets),
            false => i64::from_le_bytes(octets),
        })
    }
}
