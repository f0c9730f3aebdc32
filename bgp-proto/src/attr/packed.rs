//! Path attributes in the fewest octets: their form in the tables.
//!
//! A table has a set for each bundle of routes and reads it only when it announces one of them. A
//! typed set takes over 200 octets and several allocations; a packed one takes one allocation of
//! some 40 octets. Packing is lossless: also data that is never sent on, such as the flags of
//! unknown attributes, is unpacked unchanged. Two sets are equal if and only if their packed octets
//! are equal.
//!
//! The head lists the fields that follow, in the order of the table: a number with the bits of the
//! first field lowest. The bits of rare attributes come last, so that the head of a set without
//! them has no octet more for them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::attr::code::AttrCode;
use crate::attr::codes::AttrCodes;
use crate::attr::field::Field;
use crate::attr::pack::{number, octets, put_number, put_slice};
use crate::attr::table::{Attributes, Builder, Place, RareAttributes, Visitor};
use crate::attr::unknown::RawAttribute;
use crate::id::ClusterId;
use crate::reader::Reader;

/// A set of path attributes in one small allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackedAttributes(Box<[u8]>);

impl PackedAttributes {
    /// Returns the packed form, which can be compared with that of another set. Its layout may
    /// change, so do not store it outside of the process.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }

    /// Returns CLUSTER_LIST, the latest reflector first, without unpacking the set.
    pub fn cluster_list(&self) -> impl Iterator<Item = ClusterId> + '_ {
        // It is the first field of the table.
        let list = || {
            let mut reader = Reader::new(&self.0, 0);
            let is_there = number(&mut reader)? & 1 != 0;
            let count = if is_there { number(&mut reader)? } else { 0 };
            reader.take(4 * usize::try_from(count).ok()?)
        };
        let (ids, _) = list().unwrap_or_default().as_chunks::<4>();
        ids.iter()
            .map(|id| ClusterId::from(u32::from_be_bytes(*id)))
    }

    /// Returns the set.
    pub fn unpack(&self) -> Attributes {
        let Some(set) = unpack(&mut Reader::new(&self.0, 0)) else {
            unreachable!("only a packer makes packed attributes");
        };
        set
    }
}

/// Packs sets, one after the other, in a buffer that it keeps.
#[derive(Debug, Default)]
pub struct Packer {
    octets: Vec<u8>,
}

impl Packer {
    /// Packs a set. The octets stay until the next one is packed.
    pub fn pack(&mut self, set: &Attributes) -> &[u8] {
        self.octets.clear();
        pack(set, &mut self.octets);
        &self.octets
    }

    /// Returns the set that was packed last, as an owned value.
    pub fn keep(&self) -> PackedAttributes {
        PackedAttributes(self.octets.as_slice().into())
    }
}

/// The head of a packed set while it is made: the forms of its fields.
#[derive(Default)]
struct Forms {
    bits: u64,
    used: u32,
}

impl Forms {
    #[inline]
    fn push(&mut self, form: u64, bits: u32) {
        self.bits |= form << self.used;
        self.used += bits;
    }
}

impl Visitor for Forms {
    #[inline]
    fn field<F: Field>(&mut self, _: AttrCode, _: Place, field: &F) {
        self.push(field.form(), F::BITS);
    }
}

struct Fields<'a>(&'a mut Vec<u8>);

impl Visitor for Fields<'_> {
    #[inline]
    fn field<F: Field>(&mut self, _: AttrCode, _: Place, field: &F) {
        field.pack(self.0);
    }
}

fn pack(set: &Attributes, out: &mut Vec<u8>) {
    let partial = set.rare.partial.bits();
    let mut forms = Forms::default();
    set.visit(&mut forms);
    forms.push(u64::from(!set.unknown.is_empty()), 1);
    forms.push(u64::from(partial != 0), 1);
    if set.rare.has_room() {
        set.rare.visit(&mut forms);
    }
    put_number(forms.bits, out);
    set.visit(&mut Fields(out));
    if !set.unknown.is_empty() {
        put_number(set.unknown.len() as u64, out);
        for attr in &set.unknown {
            out.extend_from_slice(&[attr.code.0, attr.flags]);
            put_slice(&attr.value, out);
        }
    }
    if partial != 0 {
        put_number(partial, out);
    }
    if set.rare.has_room() {
        set.rare.visit(&mut Fields(out));
    }
}

/// A packed set while it is read: the forms that are left, and the octets.
struct Packed<'r, 'a> {
    forms: u64,
    reader: &'r mut Reader<'a>,
}

impl Packed<'_, '_> {
    #[inline]
    const fn form(&mut self, bits: u32) -> u64 {
        let form = self.forms & ((1 << bits) - 1);
        self.forms >>= bits;
        form
    }
}

impl Builder for Packed<'_, '_> {
    #[inline]
    fn field<F: Field>(&mut self) -> Option<F> {
        let form = self.form(F::BITS);
        F::unpack(form, self.reader)
    }
}

fn unpack(reader: &mut Reader<'_>) -> Option<Attributes> {
    let forms = number(reader)?;
    let mut packed = Packed { forms, reader };
    let mut set = Attributes::build(&mut packed)?;
    let (has_unknown, is_partial) = (packed.form(1) != 0, packed.form(1) != 0);
    if has_unknown {
        set.unknown = unknown(packed.reader)?;
    }
    if is_partial || packed.forms != 0 {
        let partial = if is_partial {
            number(packed.reader)?
        } else {
            0
        };
        let mut rare = RareAttributes::build(&mut packed)?;
        rare.partial = AttrCodes::from_bits(partial);
        set.rare = rare.into();
    }
    Some(set)
}

fn unknown(reader: &mut Reader<'_>) -> Option<Vec<RawAttribute>> {
    let count = usize::try_from(number(reader)?).ok()?;
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        list.push(RawAttribute {
            code: AttrCode(reader.u8()?),
            flags: reader.u8()?,
            value: octets(reader)?.into(),
        });
    }
    Some(list)
}
