//! Attributes that few routes have, in one allocation that the others do without.

use alloc::boxed::Box;
use core::cmp::Ordering;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, DerefMut};

use crate::attr::table::RareAttributes;

/// The attributes of a set that few routes have. Reads as [`RareAttributes`]; writing to one makes
/// room for all of them.
#[derive(Clone, Debug, Default)]
pub struct Rare(Option<Box<RareAttributes>>);

static NONE: RareAttributes = RareAttributes::NONE;

impl Rare {
    /// No such attribute.
    pub const NONE: Self = Self(None);

    /// Returns the attributes if there may be any, without making room for them.
    pub(crate) fn get_mut(&mut self) -> Option<&mut RareAttributes> {
        self.0.as_deref_mut()
    }

    /// Returns whether the rare attributes are allocated; without an allocation all are absent.
    pub(crate) const fn has_room(&self) -> bool {
        self.0.is_some()
    }
}

impl Deref for Rare {
    type Target = RareAttributes;

    fn deref(&self) -> &RareAttributes {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Rare {
    fn deref_mut(&mut self) -> &mut RareAttributes {
        self.0.get_or_insert_default()
    }
}

impl From<RareAttributes> for Rare {
    fn from(attributes: RareAttributes) -> Self {
        Self(Some(Box::new(attributes)))
    }
}

impl PartialEq for Rare {
    fn eq(&self, other: &Self) -> bool {
        (!self.has_room() && !other.has_room()) || **self == **other
    }
}

impl Eq for Rare {}

impl PartialOrd for Rare {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rare {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Rare {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
