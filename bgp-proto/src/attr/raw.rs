//! Path attributes as they lie in a message.

use crate::attr::code::{AttrCode, FLAG_EXTENDED_LENGTH};
use crate::reader::Reader;

/// One path attribute, not yet decoded (RFC 4271 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawAttr<'a> {
    /// Flags; see the constants of this module.
    pub flags: u8,
    /// Type code.
    pub code: AttrCode,
    /// The value.
    pub value: &'a [u8],
    /// The complete attribute: flags, type, length and value.
    pub octets: &'a [u8],
    /// Octet offset of the flags.
    pub at: usize,
}

impl<'a> RawAttr<'a> {
    /// Reads one attribute; `None` if it runs past the end.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let (octets, at) = (reader.rest(), reader.at());
        let [flags, code] = reader.array()?;
        let len = if flags & FLAG_EXTENDED_LENGTH == 0 {
            usize::from(reader.u8()?)
        } else {
            usize::from(reader.u16()?)
        };
        let value = reader.take(len)?;
        let octets = octets.get(..reader.at() - at)?;
        Some(Self {
            flags,
            code: AttrCode(code),
            value,
            octets,
            at,
        })
    }

    /// Octet offset of the value.
    pub(crate) const fn value_at(&self) -> usize {
        self.at + self.octets.len() - self.value.len()
    }
}

/// Iterates over the attributes in a run of octets. `Err` is the last item: it has the type code (0
/// if that is cut off, too) and the offset of an attribute that runs past the end.
#[derive(Clone, Debug)]
pub struct RawAttrs<'a> {
    reader: Reader<'a>,
}

impl<'a> RawAttrs<'a> {
    /// Iterates over `octets`, which lie `at` octets into the message's body.
    pub const fn new(octets: &'a [u8], at: usize) -> Self {
        Self {
            reader: Reader::new(octets, at),
        }
    }
}

impl<'a> Iterator for RawAttrs<'a> {
    type Item = Result<RawAttr<'a>, (AttrCode, usize)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let before = self.reader;
        if let Some(attr) = RawAttr::read(&mut self.reader) {
            return Some(Ok(attr));
        }
        self.reader = Reader::new(&[], before.at());
        let code = before
            .rest()
            .get(1)
            .map_or(AttrCode::None, |code| AttrCode(*code));
        Some(Err((code, before.at())))
    }
}
