//! Choices drawn from the fuzzer's octets.

/// Octets taken from the front; zeros after the end.
pub(crate) struct Octets<'a>(pub(crate) &'a [u8]);

impl<'a> Octets<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn octet(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.octet() & 1 == 1
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.octet(), self.octet()])
    }

    /// Takes up to `octets` of them.
    pub(crate) fn take(&mut self, octets: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(octets.min(self.0.len()));
        self.0 = rest;
        front
    }
}
