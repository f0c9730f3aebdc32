//! Values of keys as an operator writes them, independent of the file's syntax.

use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt, ops::Range};

use bgp_proto::FamilySet;

/// A value. Its text may be a secret: `Debug` shows none of it, `Display` all.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Number(i64),
    /// A text or a word.
    Text(String),
    /// Several values.
    List(Vec<At<Self>>),
    /// Keys with values.
    Table(Vec<(At<String>, At<Self>)>),
}

/// A value with its position in the parsed text. The position does not matter for equality.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Octets of the text; `0..0` without a text.
    pub place: Range<usize>,
}

impl<T> At<T> {
    /// Makes a value with a position.
    pub const fn new(place: Range<usize>, value: T) -> Self {
        Self { value, place }
    }
}

impl<T> From<T> for At<T> {
    fn from(value: T) -> Self {
        Self::new(0..0, value)
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

impl Value {
    /// Makes a list of values.
    pub fn list<V: Into<Self>>(values: impl IntoIterator<Item = V>) -> Self {
        let values = values.into_iter().map(|value| At::from(value.into()));
        Self::List(values.collect())
    }

    /// Makes a table of keys with values.
    pub fn table<K: ToString>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        let entries = entries.into_iter();
        let entries = entries.map(|(key, value)| (At::from(key.to_string()), At::from(value)));
        Self::Table(entries.collect())
    }

    /// Returns the value for reports: texts without quotation marks, lists without brackets,
    /// tables as `key=value`.
    #[must_use]
    pub fn plain(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::List(values) => {
                let values: Vec<String> = values.iter().map(|of| of.value.plain()).collect();
                values.join(" ")
            }
            Self::Table(entries) => {
                let entry = |(key, value): &(At<String>, At<Self>)| {
                    alloc::format!("{}={}", key.value, value.value.plain())
                };
                entries.iter().map(entry).collect::<Vec<_>>().join(" ")
            }
            _ => self.to_string(),
        }
    }

    /// Returns the text, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<FamilySet> for Value {
    fn from(families: FamilySet) -> Self {
        Self::list(families.iter().map(|family| Self::Text(family.to_string())))
    }
}

/// Writes the value in TOML syntax.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => fmt::Display::fmt(flag, f),
            Self::Number(number) => fmt::Display::fmt(number, f),
            Self::Text(text) => quoted(text, f),
            Self::List(values) => {
                f.write_str("[")?;
                for (at, value) in values.iter().enumerate() {
                    f.write_str(if at > 0 { ", " } else { "" })?;
                    fmt::Display::fmt(&value.value, f)?;
                }
                f.write_str("]")
            }
            Self::Table(entries) => {
                f.write_str("{ ")?;
                for (at, (key, value)) in entries.iter().enumerate() {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}{} = {}", key.value, value.value)?;
                }
                f.write_str(" }")
            }
        }
    }
}

fn quoted(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c.is_control() => write!(f, "\\u{:04X}", u32::from(c))?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "Flag({flag})"),
            Self::Number(_) => f.write_str("Number(…)"),
            Self::Text(_) => f.write_str("Text(…)"),
            Self::List(values) => write!(f, "List({} values)", values.len()),
            Self::Table(entries) => write!(f, "Table({} keys)", entries.len()),
        }
    }
}

/// A mistake in the keys of a neighbor, with its position. No message quotes a text that may be a
/// secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalid {
    /// The position.
    pub place: Range<usize>,
    /// A short sentence.
    pub message: String,
    /// The advice.
    pub help: Option<String>,
    /// A short label at the position.
    pub label: Option<String>,
    /// A second position that explains the first.
    pub related: Option<(Range<usize>, String)>,
    /// The unknown word, with the known ones, if that is the mistake.
    pub unknown: Option<Unknown>,
}

/// A word that is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unknown {
    /// The word.
    pub word: String,
    /// The kind of word: `keys` or `values`.
    pub what: &'static str,
    /// The known ones.
    pub known: Vec<&'static str>,
}

impl Invalid {
    /// Makes a mistake at a position.
    pub fn at(place: &Range<usize>, message: impl Into<String>) -> Self {
        Self {
            place: place.clone(),
            message: message.into(),
            help: None,
            label: None,
            related: None,
            unknown: None,
        }
    }

    /// Makes a mistake of an unknown word.
    pub(crate) fn unknown(
        place: &Range<usize>,
        word: &str,
        what: &'static str,
        known: Vec<&'static str>,
    ) -> Self {
        let (one, word) = (what.trim_end_matches('s'), word.to_owned());
        let mut invalid = Self::at(place, alloc::format!("unknown {one} `{word}`"));
        invalid.unknown = Some(Unknown { word, what, known });
        invalid
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        let help = help.into();
        self.help = Some(help).filter(|help| !help.is_empty());
        self
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    pub(crate) fn related(
        mut self,
        place: Option<&Range<usize>>,
        label: impl Into<String>,
    ) -> Self {
        self.related = place.map(|place| (place.clone(), label.into()));
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for Invalid {}
