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
    /// Returns the attribute of this type and value. The flags are sent unchanged, except for that
    /// of the length's form, which follows from the value.
    ///
    /// A route of this speaker's own is sent with all its raw attributes, whether they are transitive
    /// or not; a route of another speaker with the transitive ones, marked Partial (RFC 4271 §5). A
    /// type that has a field in [`Attributes`](crate::Attributes) belongs there: sent twice, its
    /// second value is discarded (RFC 7606 §3 g).
    ///
    /// ```
    /// use bgp_proto::attr::{FLAG_OPTIONAL, FLAG_TRANSITIVE};
    /// use bgp_proto::{AttrCode, Attributes, RawAttribute};
    ///
    /// let raw = RawAttribute::new(AttrCode(99), FLAG_OPTIONAL | FLAG_TRANSITIVE, vec![1, 2]);
    /// let attributes = Attributes { unknown: vec![raw], ..Attributes::default() };
    /// let mut octets = Vec::new();
    /// attributes.encode(true, &mut octets);
    /// assert!(octets.ends_with(&[0xc0, 99, 2, 1, 2]));
    /// ```
    pub fn new(code: AttrCode, flags: u8, value: impl Into<Box<[u8]>>) -> Self {
        Self {
            code,
            flags: flags & !FLAG_EXTENDED_LENGTH,
            value: value.into(),
        }
    }

    /// Returns the attribute as it came in a message.
    pub(super) fn of(attr: &RawAttr<'_>) -> Self {
        Self::new(attr.code, attr.flags, attr.value)
    }

    /// Returns whether speakers that do not support the attribute pass it on.
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
