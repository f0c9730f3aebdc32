//! A YAML document with the place of every value in it.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Span, Spanned};

/// Line and column, from 1.
pub(super) type Place = (u64, u64);

/// A value and its place.
#[derive(Debug)]
pub(super) struct Tree {
    place: Place,
    /// The place of its text, which for an alias is elsewhere.
    written: Span,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    Scalar(Value),
    List(Vec<Tree>),
    /// With the place of each key.
    Object(Vec<(String, Place, Tree)>),
}

impl Tree {
    /// Replaces fractions and large numbers, which the YAML parser rounds, by their exact text in
    /// `text`.
    pub(super) fn take_exact_numbers(&mut self, text: &str) {
        match &mut self.shape {
            Shape::Scalar(Value::Number(number)) if number.is_f64() => {
                let range = self.written.byte_offset().zip(self.written.byte_len());
                let range = range.and_then(|(from, octets)| {
                    let from = usize::try_from(from).ok()?;
                    Some(from..from.checked_add(usize::try_from(octets).ok()?)?)
                });
                let written = range.and_then(|range| text.get(range)).map(str::trim);
                let rounded = written.filter(|written| !fits_float(written));
                if let Some(exact) = rounded.and_then(|written| written.parse().ok()) {
                    *number = exact;
                }
            }
            Shape::Scalar(_) => {}
            Shape::List(items) => {
                items
                    .iter_mut()
                    .for_each(|item| item.take_exact_numbers(text));
            }
            Shape::Object(fields) => {
                fields
                    .iter_mut()
                    .for_each(|(_, _, tree)| tree.take_exact_numbers(text));
            }
        }
    }

    /// Returns its place.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Returns whether it is empty, as between two separators.
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self.shape, Shape::Scalar(Value::Null))
    }

    /// Returns whether it is an object with the kind of a list.
    pub(super) fn is_list_of_resources(&self) -> bool {
        let Shape::Object(fields) = &self.shape else {
            return false;
        };
        fields.iter().any(|(name, _, tree)| {
            let kind = match &tree.shape {
                Shape::Scalar(Value::String(kind)) => kind.as_str(),
                _ => "",
            };
            name == "kind" && kind.ends_with("List")
        })
    }

    /// Returns its items, if it is a list; otherwise itself.
    pub(super) fn into_list(self) -> Result<Vec<Self>, Self> {
        match self.shape {
            Shape::List(items) => Ok(items),
            shape => Err(Self { shape, ..self }),
        }
    }

    /// Returns the items of an object's field, if that is a list.
    pub(super) fn items(self, field: &str) -> Vec<Self> {
        let Shape::Object(fields) = self.shape else {
            return Vec::new();
        };
        match fields.into_iter().find(|(name, ..)| name == field) {
            Some((
                _,
                _,
                Self {
                    shape: Shape::List(items),
                    ..
                },
            )) => items,
            _ => Vec::new(),
        }
    }

    /// Returns the place of the field with this path, or of the nearest existing parent.
    pub(super) fn place_of(&self, path: &str) -> Place {
        let mut here = (self.place, self);
        for step in path.split(['.', '[']) {
            let next = match &here.1.shape {
                Shape::Object(fields) => fields
                    .iter()
                    .find(|(name, ..)| name == step.trim_end_matches(']'))
                    .map(|(_, place, tree)| (*place, tree)),
                Shape::List(items) => step
                    .trim_end_matches(']')
                    .parse::<usize>()
                    .ok()
                    .and_then(|at| items.get(at))
                    .map(|tree| (tree.place, tree)),
                Shape::Scalar(_) => None,
            };
            match next {
                Some(next) => here = next,
                None => break,
            }
        }
        here.0
    }

    /// Returns the value without places.
    pub(super) fn value(&self) -> Value {
        match &self.shape {
            Shape::Scalar(value) => value.clone(),
            Shape::List(items) => items.iter().map(Self::value).collect(),
            Shape::Object(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, _, tree)| (name.clone(), tree.value()));
                Value::Object(Map::from_iter(fields))
            }
        }
    }
}

/// Returns whether a number has so few digits that a float represents it exactly.
fn fits_float(number: &str) -> bool {
    let digits = number.split(['e', 'E']).next().unwrap_or_default();
    let digits = digits.bytes().filter(u8::is_ascii_digit).count();
    digits <= f64::DIGITS as usize
}

pub(super) fn place(location: Location) -> Place {
    (location.line(), location.column())
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Shape>::deserialize(deserializer)?;
        Ok(Self {
            place: place(spanned.referenced),
            written: spanned.defined.span(),
            shape: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Shape, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a finite number"))?;
        Ok(Shape::Scalar(number.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Shape, E> {
        Ok(Shape::Scalar(value.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<Shape, E> {
        Ok(Shape::Scalar(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<Shape, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        Shape::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Shape::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Shape, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, tree)) = entries.next_entry::<Spanned<String>, Tree>()? {
            fields.push((name.value, place(name.referenced), tree));
        }
        Ok(Shape::Object(fields))
    }
}
