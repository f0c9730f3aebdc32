//! Attributes without a row: carried as octets (RFC 4271 §5).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::attr::code::{AttrCode, FLAG_EXTENDED_LENGTH, FLAG_TRANSITIVE};
use crate::attr::encode::put_attribute;
use crate::attr::raw::RawAttr;

/// A path attribute that is carried unread. Ordered by its code first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RawAttribute {
    /// Type code.
    pub code: AttrCode,
    /// Flags as they came, without the one for the length's form.
    pub flags: u8,
    /// The value.
    pub value: Box<[u8]>,
}

impl RawAttribute {
    pub(super) fn new(attr: &RawAttr<'_>) -> Self {
        let flags = attr.flags & !FLAG_EXTENDED_LENGTH;
        Self {
            code: attr.code,
            flags,
            value: attr.value.into(),
        }
    }

    /// Whether speakers that do not know the attribute pass it on.
    pub const fn is_transitive(&self) -> bool {
        self.flags & FLAG_TRANSITIVE != 0
    }

    /// Appends the attribute with its flags.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let flags = self.flags & !FLAG_EXTENDED_LENGTH;
        put_attribute(flags, self.code, out, |out| {
            out.extend_from_slice(&self.value)
        });
    }
}

impl fmt::Debug for RawAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{:#04x}]=", self.code, self.flags)?;
        self.value
            .iter()
            .try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}
