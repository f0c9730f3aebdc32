//! Writing a set of path attributes in canonical form.

use alloc::vec::Vec;

use crate::attr::code::{AttrCode, FLAG_EXTENDED_LENGTH, FLAG_PARTIAL};
use crate::attr::codes::AttrCodes;
use crate::attr::field::Field;
use crate::attr::table::{Attributes, Place, Visitor};

/// The typed attributes of a set that are sent.
struct Sent(AttrCodes);

impl Visitor for Sent {
    #[inline]
    fn field<F: Field>(&mut self, code: AttrCode, _: Place, field: &F) {
        if field.is_sent() {
            self.0.insert(code);
        }
    }
}

impl Attributes {
    /// Appends the set's canonical encoding: attributes in the order of their codes, lengths in the
    /// shortest form, no multiprotocol attributes, NEXT_HOP only if the next hop is an IPv4 one. On
    /// sessions without four-octet AS numbers AS4_PATH and AS4_AGGREGATOR are added if they are
    /// needed (RFC 6793 §4.2.2).
    ///
    /// Unknown attributes are written with their flags: those of another speaker need
    /// [`pass_on`](Self::pass_on) first.
    ///
    /// A set too large for any message gives octets that no [`UpdateWriter`](crate::UpdateWriter)
    /// accepts.
    pub fn encode(&self, as4: bool, out: &mut Vec<u8>) {
        let mut sent = Sent(AttrCodes::NONE);
        self.visit(&mut sent);
        if self.rare.has_room() {
            self.rare.visit(&mut sent);
        }
        if !as4 {
            sent.0.insert(AttrCode::As4Path);
            sent.0.insert(AttrCode::As4Aggregator);
        }
        let mut unknown = self.unknown.iter().peekable();
        for row in sent.0.rows() {
            while let Some(attr) = unknown.next_if(|attr| attr.code < row.code) {
                attr.encode(out);
            }
            if let Some(codec) = &row.codec {
                (codec.encode)(self, as4, out);
            }
        }
        unknown.for_each(|attr| attr.encode(out));
    }

    /// Appends one typed attribute: the flags of its row, Partial if it is set in the attributes.
    pub(crate) fn put(
        &self,
        code: AttrCode,
        flags: u8,
        out: &mut Vec<u8>,
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        let partial = if self.is_partial(code) {
            FLAG_PARTIAL
        } else {
            0
        };
        put_attribute(flags | partial, code, out, value);
    }

    /// Returns whether an attribute has the Partial flag.
    pub(super) fn is_partial(&self, code: AttrCode) -> bool {
        self.rare.has_room() && self.rare.partial.contains(code)
    }
}

/// Appends one attribute; the length gets two octets only if it needs them.
pub(crate) fn put_attribute(
    flags: u8,
    code: AttrCode,
    out: &mut Vec<u8>,
    value: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[flags, code.0, 0]);
    value(out);
    let len = out.len() - start - 3;
    let Some([flags, _, len_field]) = out.get_mut(start..start + 3) else {
        return;
    };
    if let Ok(len) = u8::try_from(len) {
        *len_field = len;
        return;
    }
    *flags |= FLAG_EXTENDED_LENGTH;
    let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    *len_field = high;
    out.insert(start + 3, low);
}
