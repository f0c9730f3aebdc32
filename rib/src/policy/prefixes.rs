//! Sets of prefixes with ranges of lengths.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use bgp_proto::{Net, Prefix};

/// The prefixes inside one prefix with lengths in a range.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixRange {
    prefix: Prefix,
    len_min: u8,
    len_max: u8,
}

impl PrefixRange {
    /// Returns the prefixes that are `prefix` or inside it and have one of these lengths. A range
    /// that begins below the prefix's own length begins there.
    #[must_use]
    pub fn new(prefix: Prefix, lengths: RangeInclusive<u8>) -> Self {
        Self {
            prefix,
            len_min: (*lengths.start()).max(prefix.len()),
            len_max: *lengths.end(),
        }
    }

    /// Returns this prefix alone.
    #[must_use]
    pub fn equal(prefix: Prefix) -> Self {
        Self::new(prefix, prefix.len()..=prefix.len())
    }

    /// Returns this prefix and all inside it.
    #[must_use]
    pub fn inside(prefix: Prefix) -> Self {
        Self::new(prefix, prefix.len()..=u8::MAX)
    }

    /// Returns the prefix that contains all of them.
    #[must_use]
    pub const fn prefix(&self) -> Prefix {
        self.prefix
    }

    /// Returns their lengths.
    #[must_use]
    pub const fn lengths(&self) -> RangeInclusive<u8> {
        self.len_min..=self.len_max
    }

    /// Returns whether it has one prefix only.
    pub(crate) const fn is_single(&self) -> bool {
        self.len_min == self.len_max && self.len_max == self.prefix.len()
    }

    const fn takes(&self, len: u8) -> bool {
        self.len_min <= len && len <= self.len_max
    }
}

/// A set of [`PrefixRange`]s of both IP versions. A lookup needs one search for each length of
/// prefix in the set, independent of the number of prefixes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixSet {
    /// In the order of [`key`].
    ranges: Vec<PrefixRange>,
}

/// Ranges of one length and IP version are adjacent, and those of one prefix also.
fn key(range: &PrefixRange) -> (u8, Prefix, u8, u8) {
    (
        range.prefix.len(),
        range.prefix,
        range.len_min,
        range.len_max,
    )
}

impl FromIterator<PrefixRange> for PrefixSet {
    fn from_iter<I: IntoIterator<Item = PrefixRange>>(ranges: I) -> Self {
        let mut ranges: Vec<PrefixRange> = ranges.into_iter().collect();
        ranges.sort_by_key(key);
        ranges.dedup();
        Self { ranges }
    }
}

impl PrefixSet {
    /// Returns whether a destination is in one of the ranges. One that is not an IP prefix never
    /// is.
    #[must_use]
    pub fn contains(&self, net: Net<'_>) -> bool {
        let Some(prefix) = net.prefix() else {
            return false;
        };
        let mut left = self.ranges.as_slice();
        while let Some(first) = left.first() {
            let len = first.prefix.len();
            if len > prefix.len() {
                return false;
            }
            let same = left.partition_point(|range| range.prefix.len() == len);
            let (of_len, longer) = left.split_at(same);
            left = longer;
            let Some(cover) = Prefix::new(prefix.addr(), len) else {
                continue;
            };
            let at = of_len.partition_point(|range| range.prefix < cover);
            let mut ranges = of_len.iter().skip(at);
            let mut ranges = ranges.by_ref().take_while(|range| range.prefix == cover);
            if ranges.any(|range| range.takes(prefix.len())) {
                return true;
            }
        }
        false
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the ranges, the shortest prefixes first.
    pub fn ranges(&self) -> impl Iterator<Item = &PrefixRange> {
        self.ranges.iter()
    }
}
