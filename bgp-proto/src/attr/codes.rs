//! Sets of attribute types.

use crate::attr::code::AttrCode;
use crate::attr::table::{Row, TABLE, position};

/// A set of types of path attributes that have a row in the table; others are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttrCodes(u64);

impl AttrCodes {
    /// No type.
    pub const NONE: Self = Self(0);

    fn bit(code: AttrCode) -> u64 {
        position(code).map_or(0, |position| 1 << position)
    }

    /// The set as a number, as [`from_bits`](Self::from_bits) takes it.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Adds a type.
    pub fn insert(&mut self, code: AttrCode) {
        self.0 |= Self::bit(code);
    }

    /// Removes a type.
    pub fn remove(&mut self, code: AttrCode) {
        self.0 &= !Self::bit(code);
    }

    /// Returns the rows of the types, in the order of the codes.
    pub(crate) fn rows(self) -> impl Iterator<Item = &'static Row> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let row = TABLE.get(left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(row)
        })
    }

    /// Returns whether the set has a type.
    pub fn contains(self, code: AttrCode) -> bool {
        self.0 & Self::bit(code) != 0
    }
}

impl FromIterator<AttrCode> for AttrCodes {
    fn from_iter<I: IntoIterator<Item = AttrCode>>(codes: I) -> Self {
        let mut set = Self::NONE;
        codes.into_iter().for_each(|code| set.insert(code));
        set
    }
}
