//! The interface of the table to a field of [`Attributes`](crate::Attributes): how one path
//! attribute is read, written, packed and shown.
//!
//! A module of an attribute implements one of two smaller traits for its value: [`Value`] for a
//! value of any length, [`Item`] for one of a fixed length, which can also be in a list. The fields
//! `Option<value>` and `Vec<item>` follow from them.

use alloc::vec::Vec;
use core::fmt;

#[cfg(feature = "strategy")]
use proptest::{collection, option, prelude::*};

use crate::attr::decode::Context;
use crate::attr::pack::{number, octets, put_number, put_octets};
use crate::attr::report::Report;
use crate::fault::FaultKind;
use crate::reader::Reader;

/// A field of a set: one path attribute, or by default its absence.
pub(crate) trait Field: fmt::Debug + Default {
    /// Bits that [`form`](Self::form) takes.
    const BITS: u32 = 1;

    /// Returns which form a packed field has; 0 takes no octets.
    fn form(&self) -> u64;

    /// Returns whether the set has the attribute.
    fn is_present(&self) -> bool {
        self.form() != 0
    }

    /// Returns whether the attribute is sent.
    fn is_sent(&self) -> bool {
        self.is_present()
    }

    /// Reads the attribute's value.
    fn decode(value: &[u8], context: &Context) -> Result<Self, FaultKind>;

    /// Appends the attribute's value. `as4`: AS numbers have four octets.
    fn encode(&self, as4: bool, out: &mut Vec<u8>);

    /// Appends the octets that [`unpack`](Self::unpack) needs beside the form.
    fn pack(&self, out: &mut Vec<u8>);

    /// Reads the octets of [`pack`](Self::pack).
    fn unpack(form: u64, reader: &mut Reader<'_>) -> Option<Self>;

    /// Returns the value for people; without meaning for an absent attribute.
    fn report(&self) -> Report;

    /// Sorts values without an order of their own and removes duplicates.
    fn canonicalize(&mut self) {}

    /// Removes values that are not sent to another AS.
    fn leave_as(&mut self) {}

    /// Returns a strategy for fields, present and absent; AS paths have confederation segments only
    /// on request.
    #[cfg(feature = "strategy")]
    fn strategy(confederations: bool) -> BoxedStrategy<Self>;
}

/// A field of [`RareAttributes`](crate::RareAttributes), of which there is a constant without any.
pub(crate) trait RareField: Field {
    /// The field of a set without the attribute.
    const ABSENT: Self;
}

impl<T: Value + 'static> RareField for Option<T> {
    const ABSENT: Self = None;
}

impl<T: Item + 'static> RareField for Vec<T> {
    const ABSENT: Self = Self::new();
}

/// The value of an attribute that is there or not.
pub(crate) trait Value: fmt::Debug + Sized {
    /// Reads the value.
    fn decode(value: &[u8], context: &Context) -> Result<Self, FaultKind>;

    /// Appends the value. `as4`: AS numbers have four octets.
    fn encode(&self, as4: bool, out: &mut Vec<u8>);

    /// Appends the packed value: as on the wire, with its length in front.
    fn pack(&self, out: &mut Vec<u8>) {
        put_octets(out, |out| self.encode(true, out));
    }

    /// Reads the packed value.
    fn unpack(reader: &mut Reader<'_>) -> Option<Self> {
        Self::decode(octets(reader)?, &Context::PACKED).ok()
    }

    /// Returns the value for people.
    fn report(&self) -> Report;

    /// Makes values.
    #[cfg(feature = "strategy")]
    fn strategy() -> BoxedStrategy<Self>;
}

/// A value of fixed length.
pub(crate) trait Item: fmt::Debug + fmt::Display + Ord + Sized {
    /// An array of octets.
    type Octets: AsRef<[u8]> + for<'a> TryFrom<&'a [u8]>;
    /// Whether a list of them has an order of its own.
    const ORDERED: bool = false;
    /// The most of them that tests put into a list.
    #[cfg(feature = "strategy")]
    const STRATEGY_MAX: usize = 4;

    /// Reads the octets on the wire.
    fn from_octets(octets: Self::Octets) -> Self;

    /// Returns the octets on the wire.
    fn octets(&self) -> Self::Octets;

    /// Returns the value for people.
    fn report(&self) -> Report {
        Report::text(self)
    }

    /// Returns whether it is sent to another AS as an item of a list.
    fn is_transitive(&self) -> bool {
        true
    }

    /// Makes values of any octets.
    #[cfg(feature = "strategy")]
    fn strategy() -> BoxedStrategy<Self> {
        collection::vec(any::<u8>(), size_of::<Self::Octets>())
            .prop_filter_map("length", |octets| {
                let octets = Self::Octets::try_from(octets.as_slice()).ok()?;
                Some(Self::from_octets(octets))
            })
            .boxed()
    }
}

impl<T: Item> Value for T {
    fn decode(value: &[u8], _: &Context) -> Result<Self, FaultKind> {
        let octets = T::Octets::try_from(value).map_err(|_| FaultKind::Length)?;
        Ok(T::from_octets(octets))
    }

    fn encode(&self, _as4: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(self.octets().as_ref());
    }

    fn pack(&self, out: &mut Vec<u8>) {
        self.encode(true, out);
    }

    fn unpack(reader: &mut Reader<'_>) -> Option<Self> {
        let octets = reader.take(size_of::<T::Octets>())?;
        Self::decode(octets, &Context::PACKED).ok()
    }

    fn report(&self) -> Report {
        Item::report(self)
    }

    #[cfg(feature = "strategy")]
    fn strategy() -> BoxedStrategy<Self> {
        <T as Item>::strategy()
    }
}

impl<T: Value + 'static> Field for Option<T> {
    fn form(&self) -> u64 {
        u64::from(self.is_some())
    }

    fn decode(value: &[u8], context: &Context) -> Result<Self, FaultKind> {
        T::decode(value, context).map(Some)
    }

    fn encode(&self, as4: bool, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.encode(as4, out);
        }
    }

    fn pack(&self, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.pack(out);
        }
    }

    fn unpack(form: u64, reader: &mut Reader<'_>) -> Option<Self> {
        if form == 0 {
            return Some(None);
        }
        T::unpack(reader).map(Some)
    }

    fn report(&self) -> Report {
        self.as_ref().map_or(Report::Flag, T::report)
    }

    #[cfg(feature = "strategy")]
    fn strategy(_confederations: bool) -> BoxedStrategy<Self> {
        option::of(T::strategy()).boxed()
    }
}

impl<T: Item + 'static> Field for Vec<T> {
    fn form(&self) -> u64 {
        u64::from(!self.is_empty())
    }

    /// A list has at least one item (RFC 7606 §7.8, §7.10, §7.14, §7.15).
    fn decode(value: &[u8], _: &Context) -> Result<Self, FaultKind> {
        let size = size_of::<T::Octets>();
        if value.is_empty() || !value.len().is_multiple_of(size) {
            return Err(FaultKind::Length);
        }
        Ok(items(value))
    }

    fn encode(&self, _as4: bool, out: &mut Vec<u8>) {
        for item in self {
            out.extend_from_slice(item.octets().as_ref());
        }
    }

    fn pack(&self, out: &mut Vec<u8>) {
        if !self.is_empty() {
            put_number(self.len() as u64, out);
            self.encode(true, out);
        }
    }

    fn unpack(form: u64, reader: &mut Reader<'_>) -> Option<Self> {
        if form == 0 {
            return Some(Self::new());
        }
        let count = usize::try_from(number(reader)?).ok()?;
        let octets = reader.take(count.checked_mul(size_of::<T::Octets>())?)?;
        Some(items(octets))
    }

    fn report(&self) -> Report {
        Report::List(self.iter().map(Item::report).collect())
    }

    fn canonicalize(&mut self) {
        if !T::ORDERED {
            sort_dedup(self);
        }
    }

    fn leave_as(&mut self) {
        if !self.iter().all(T::is_transitive) {
            self.retain(T::is_transitive);
        }
    }

    #[cfg(feature = "strategy")]
    fn strategy(_confederations: bool) -> BoxedStrategy<Self> {
        collection::vec(<T as Item>::strategy(), 0..=T::STRATEGY_MAX).boxed()
    }
}

/// Cuts octets into items; a rest shorter than an item is left out.
fn items<T: Item>(octets: &[u8]) -> Vec<T> {
    let size = size_of::<T::Octets>();
    let mut items = Vec::with_capacity(octets.len() / size);
    let pieces = octets.chunks_exact(size);
    items.extend(
        pieces
            .filter_map(|piece| T::Octets::try_from(piece).ok())
            .map(T::from_octets),
    );
    items
}

/// Sorts and removes duplicates; a canonical list is only read.
pub(super) fn sort_dedup<T: Ord>(items: &mut Vec<T>) {
    if !items.is_sorted_by(|one, two| one < two) {
        items.sort_unstable();
        items.dedup();
    }
}

/// MULTI_EXIT_DISC and LOCAL_PREF.
impl Item for u32 {
    type Octets = [u8; 4];

    fn from_octets(octets: [u8; 4]) -> Self {
        Self::from_be_bytes(octets)
    }

    fn octets(&self) -> [u8; 4] {
        self.to_be_bytes()
    }

    fn report(&self) -> Report {
        Report::Number(u64::from(*self))
    }
}

/// An attribute without a value, like ATOMIC_AGGREGATE.
impl Field for bool {
    fn form(&self) -> u64 {
        u64::from(*self)
    }

    fn decode(value: &[u8], _: &Context) -> Result<Self, FaultKind> {
        if value.is_empty() {
            Ok(true)
        } else {
            Err(FaultKind::Length)
        }
    }

    fn encode(&self, _as4: bool, _: &mut Vec<u8>) {}

    fn pack(&self, _: &mut Vec<u8>) {}

    fn unpack(form: u64, _: &mut Reader<'_>) -> Option<Self> {
        Some(form != 0)
    }

    fn report(&self) -> Report {
        Report::Flag
    }

    #[cfg(feature = "strategy")]
    fn strategy(_confederations: bool) -> BoxedStrategy<Self> {
        any::<Self>().boxed()
    }
}
