//! Parses YAML and JSON into trees.

use std::fmt;

use daemon_common::config::Problem;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Location, Span, Spanned};

use crate::limits::{MANIFEST_DOCUMENTS_MAX, MANIFEST_LEVELS_MAX, MANIFEST_VALUES_MAX};
use crate::syntax;
use crate::tree::{Field, Place, Shape, Tree};

/// The documents of a text, as far as they can be read, and the mistakes of syntax.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) trees: Vec<Tree>,
    pub(super) problems: Vec<Problem>,
}

/// Parses a text. A mistake of syntax in one document does not affect the others.
pub(super) fn parse(text: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let Err(whole) = parsed.part(text, 0, text.len()) else {
        return parsed;
    };
    let parts = parts(text);
    let mut errors = Vec::new();
    for part in parts.into_iter().filter(|part| part.len() < text.len()) {
        errors.extend(parsed.part(text, part.start, part.end).err());
    }
    // The text is one part, or no part has the mistake on its own, such as too many documents.
    if errors.is_empty() {
        errors.push(whole);
    }
    parsed
        .problems
        .extend(errors.into_iter().map(|error| *error));
    parsed
}

/// Returns the places of the documents of a text. A line that begins with `---` separates them
/// wherever it is.
fn parts(text: &str) -> Vec<Place> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        let is_mark = line.strip_prefix("---").is_some_and(|rest| {
            let next = rest.chars().next();
            next.is_none_or(char::is_whitespace)
        });
        if is_mark && at > start {
            parts.push(start..at);
            start = at;
        }
        at += line.len();
    }
    parts.push(start..at);
    parts
}

impl Parsed {
    /// Parses the documents of a part of the text.
    fn part(&mut self, text: &str, start: usize, end: usize) -> Result<(), Box<Problem>> {
        let part = text.get(start..end).unwrap_or_default();
        // Two fields with one name are reported here, with both places.
        let options = serde_saphyr::options! {
            duplicate_keys: DuplicateKeyPolicy::LastWins,
            with_snippet: false,
            budget: serde_saphyr::budget! {
                max_documents: MANIFEST_DOCUMENTS_MAX,
                max_nodes: MANIFEST_VALUES_MAX,
                max_depth: MANIFEST_LEVELS_MAX,
            },
        };
        let raw = serde_saphyr::from_multiple_with_options::<Raw>(part, options)
            .map_err(|error| Box::new(syntax::problem(&error, text, start)))?;
        for raw in raw {
            let mut maker = Maker {
                text,
                base: start,
                problems: &mut self.problems,
            };
            let tree = maker.tree(raw);
            self.trees.push(tree);
        }
        Ok(())
    }
}

/// Makes trees with places of the whole text.
struct Maker<'m> {
    text: &'m str,
    /// The offset of the parsed part.
    base: usize,
    problems: &'m mut Vec<Problem>,
}

impl Maker<'_> {
    fn tree(&mut self, raw: Raw) -> Tree {
        let place = self.place(raw.referenced.span());
        let place = place.unwrap_or_else(|| {
            let (line, column) = (raw.referenced.line(), raw.referenced.column());
            let at = syntax::offset(self.text, self.base, line, column);
            at..at
        });
        let shape = match raw.shape {
            RawShape::Scalar(value) => Shape::Scalar(self.exact(value, raw.defined)),
            RawShape::List(items) => {
                let items = items.into_iter().map(|item| self.tree(item));
                Shape::List(items.enumerate().collect())
            }
            RawShape::Object(fields) => Shape::Object(self.fields(fields)),
        };
        Tree { place, shape }
    }

    fn fields(&mut self, raw: Vec<(Spanned<String>, Raw)>) -> Vec<Field> {
        let mut fields: Vec<Field> = Vec::with_capacity(raw.len());
        let mut known = std::collections::BTreeMap::new();
        for (name, value) in raw {
            let place = self.place(name.referenced.span()).unwrap_or_default();
            let field = Field {
                place: place.clone(),
                value: self.tree(value),
                name: name.value,
            };
            match known.entry(field.name.clone()) {
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(place);
                    fields.push(field);
                }
                std::collections::btree_map::Entry::Occupied(first) => {
                    let problem =
                        Problem::at(place, format!("field `{}` is there twice", field.name));
                    let problem = problem.label("again here");
                    self.problems
                        .push(problem.related(first.get().clone(), "first here"));
                }
            }
        }
        fields
    }

    /// Returns a number as it is written, if the YAML parser rounded it.
    fn exact(&self, value: Value, written: Span) -> Value {
        let Value::Number(number) = &value else {
            return value;
        };
        if !number.is_f64() {
            return value;
        }
        let place = self.place(written);
        let written = place.and_then(|place| self.text.get(place));
        let rounded = written.filter(|written| !fits_float(written));
        let exact = rounded.and_then(|written| written.parse::<Number>().ok());
        exact.map_or(value, Value::Number)
    }

    /// Returns a place of the whole text, without white space at its end.
    fn place(&self, span: Span) -> Option<Place> {
        let start = usize::try_from(span.byte_offset()?).ok()?;
        let octets = usize::try_from(span.byte_len()?).ok()?;
        let start = self.base.checked_add(start)?;
        let written = self.text.get(start..start.checked_add(octets)?)?;
        let first = written.len() - written.trim_start().len();
        let written = written.trim();
        Some(start + first..start + first + written.len())
    }
}

/// Returns whether a number has so few digits that a float represents it exactly.
fn fits_float(number: &str) -> bool {
    let digits = number.split(['e', 'E']).next().unwrap_or_default();
    let digits = digits.bytes().filter(u8::is_ascii_digit).count();
    digits <= f64::DIGITS as usize
}

/// A value with its places as the YAML parser returns them.
struct Raw {
    referenced: Location,
    /// The place of its text, which for an alias is elsewhere.
    defined: Span,
    shape: RawShape,
}

enum RawShape {
    Scalar(Value),
    List(Vec<Raw>),
    Object(Vec<(Spanned<String>, Raw)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<RawShape>::deserialize(deserializer)?;
        Ok(Self {
            referenced: spanned.referenced,
            defined: spanned.defined.span(),
            shape: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for RawShape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = RawShape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<RawShape, E> {
        Ok(RawShape::Scalar(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<RawShape, E> {
        Ok(RawShape::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<RawShape, E> {
        Ok(RawShape::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<RawShape, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not a finite number"))?;
        Ok(RawShape::Scalar(number.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<RawShape, E> {
        Ok(RawShape::Scalar(value.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<RawShape, E> {
        Ok(RawShape::Scalar(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<RawShape, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawShape, D::Error> {
        RawShape::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawShape, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(RawShape::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawShape, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = entries.next_entry::<Spanned<String>, Raw>()? {
            fields.push(entry);
        }
        Ok(RawShape::Object(fields))
    }
}
