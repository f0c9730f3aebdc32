//! A cursor over received octets with its offset, which never reads past the end.

/// Reads big-endian fields from a slice; every read returns `None` at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    octets: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `octets`, which lie `at` octets into the message.
    pub(crate) const fn new(octets: &'a [u8], at: usize) -> Self {
        Self { octets, at }
    }

    /// Offset of the next octet, counted like the `at` given at the start.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Returns the unread octets.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.octets
    }

    /// Returns whether nothing is left.
    pub(crate) const fn is_empty(&self) -> bool {
        self.octets.is_empty()
    }

    /// The next `len` octets.
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.octets.split_at_checked(len)?;
        self.octets = tail;
        self.at += len;
        Some(head)
    }

    /// The next `N` octets as an array.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.octets.split_first_chunk::<N>()?;
        self.octets = tail;
        self.at += N;
        Some(*head)
    }

    /// Reads a value with several reads, such as a TLV; the position is unchanged if one of them
    /// fails.
    pub(crate) fn whole<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let mut ahead = *self;
        let found = read(&mut ahead)?;
        *self = ahead;
        Some(found)
    }

    /// Reads the same again and again, until a read fails.
    pub(crate) fn each<T>(
        mut self,
        read: impl Fn(&mut Self) -> Option<T>,
    ) -> impl Iterator<Item = T> {
        core::iter::from_fn(move || self.whole(&read))
    }

    /// One octet.
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[octet]| octet)
    }

    /// Two octets, most significant first.
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four octets, most significant first.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }
}
