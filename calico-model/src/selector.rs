//! Selectors: expressions over labels, such as `rack == 'r1' && has(calico-rr)`.
//!
//! ```text
//! or      = and { "||" and }
//! and     = unary { "&&" unary }
//! unary   = { "!" } primary
//! primary = "(" or ")" | "all()" | "global()" | "has(" label ")"
//!         | label ( "==" | "!=" | "contains" | "starts with" | "ends with" ) string
//!         | label ( "in" | "not in" ) "{" [ string { "," string } ] "}"
//! ```
//!
//! Labels are letters, digits, `_`, `.`, `/` and `-`; strings are in single or double quotes
//! without escapes; blanks and tabs separate. The empty text selects everything.

mod grammar;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A selector: its original text, and its meaning. The default selects everything.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    text: String,
    expression: Expression,
}

/// The meaning of a selector.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) enum Expression {
    /// Everything.
    #[default]
    All,
    /// Everything too; in a namespace selector, objects without a namespace.
    Global,
    /// Objects with the label.
    Has(String),
    /// Objects of which the label's value satisfies the comparison.
    Compare(String, Operator, String),
    /// Objects with one of the values of the label.
    In(String, BTreeSet<String>),
    /// Objects without the label, or with another value of it.
    NotIn(String, BTreeSet<String>),
    /// The negation of the operand.
    Not(Box<Self>),
    /// The conjunction of the operands, two or more.
    And(Vec<Self>),
    /// The disjunction of the operands, two or more.
    Or(Vec<Self>),
}

/// A comparison of a label's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Operator {
    /// The label exists and is equal.
    Equal,
    /// The label does not exist, or is not equal.
    NotEqual,
    /// The label's value contains the text.
    Contains,
    /// The label's value begins with the text.
    StartsWith,
    /// The label's value ends with the text.
    EndsWith,
}

/// Why a text is not a selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} at octet {at} of the selector")]
pub struct SelectorError {
    /// Offset in the text, in octets.
    pub at: usize,
    /// The expected syntax.
    pub expected: &'static str,
}

impl Selector {
    /// Returns the original text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the same selector on labels with `prefix` before their names. If it selects
    /// everything, or objects without a namespace, the result requires the label `present`. In this
    /// way selectors of namespaces and of service accounts are evaluated on the labels that
    /// endpoints inherit from them.
    #[must_use]
    pub fn under(&self, prefix: &str, present: &str) -> Self {
        let expression = match self.text.trim().is_empty() {
            true => Expression::Has(present.to_owned()),
            false => self.expression.under(prefix, present),
        };
        Self {
            text: expression.to_string(),
            expression,
        }
    }

    /// Returns the conjunction of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let expression = Expression::And(vec![self.expression.clone(), other.expression.clone()]);
        Self {
            text: expression.to_string(),
            expression,
        }
    }

    /// Returns a selector for one of these values of the label.
    pub fn any_of(label: &str, values: impl IntoIterator<Item = String>) -> Self {
        let expression = Expression::In(label.to_owned(), values.into_iter().collect());
        Self {
            text: expression.to_string(),
            expression,
        }
    }

    /// Returns a selector for this value of the label.
    pub fn equal(label: &str, value: &str) -> Self {
        let expression = Expression::Compare(label.to_owned(), Operator::Equal, value.to_owned());
        Self {
            text: expression.to_string(),
            expression,
        }
    }

    /// Returns whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_by(&|label| labels.get(label).map(String::as_str))
    }

    /// Returns necessary conditions, each as a list of alternatives: a label with its value, or
    /// with any value. Every selected object satisfies all of them, but others may too, so they
    /// only preselect candidates. The result is empty if there are none, as for `!has(a)`.
    pub fn conditions(&self) -> Vec<Vec<(&str, Option<&str>)>> {
        self.expression.conditions()
    }

    /// Returns whether an object is selected of which `value_of` returns the labels' values.
    pub fn matches_by<'a>(&self, value_of: &dyn Fn(&str) -> Option<&'a str>) -> bool {
        self.expression.holds(value_of)
    }
}

impl Expression {
    fn under(&self, prefix: &str, present: &str) -> Self {
        let label = |name: &String| format!("{prefix}{name}");
        let each = |operands: &[Self]| operands.iter().map(|o| o.under(prefix, present)).collect();
        match self {
            Self::All => Self::Has(present.to_owned()),
            Self::Global => Self::Not(Box::new(Self::Has(present.to_owned()))),
            Self::Has(name) => Self::Has(label(name)),
            Self::Compare(name, operator, text) => {
                Self::Compare(label(name), *operator, text.clone())
            }
            Self::In(name, values) => Self::In(label(name), values.clone()),
            Self::NotIn(name, values) => Self::NotIn(label(name), values.clone()),
            Self::Not(operand) => Self::Not(Box::new(operand.under(prefix, present))),
            Self::And(operands) => Self::And(each(operands)),
            Self::Or(operands) => Self::Or(each(operands)),
        }
    }

    fn shortest_condition(&self) -> Option<Vec<(&str, Option<&str>)>> {
        self.conditions().into_iter().min_by_key(Vec::len)
    }

    fn conditions(&self) -> Vec<Vec<(&str, Option<&str>)>> {
        match self {
            Self::Has(label) => vec![vec![(label, None)]],
            Self::Compare(label, Operator::Equal, value) => vec![vec![(label, Some(value))]],
            Self::Compare(
                label,
                Operator::Contains | Operator::StartsWith | Operator::EndsWith,
                _,
            ) => vec![vec![(label, None)]],
            Self::In(label, values) => {
                let values = values.iter();
                vec![
                    values
                        .map(|value| (label.as_str(), Some(value.as_str())))
                        .collect(),
                ]
            }
            Self::And(operands) => operands.iter().flat_map(Self::conditions).collect(),
            Self::Or(operands) => {
                let all: Option<Vec<_>> = operands.iter().map(Self::shortest_condition).collect();
                all.map(|all| all.concat()).into_iter().collect()
            }
            Self::All
            | Self::Global
            | Self::NotIn(..)
            | Self::Not(_)
            | Self::Compare(_, Operator::NotEqual, _) => Vec::new(),
        }
    }

    fn holds<'a>(&self, value_of: &dyn Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::All | Self::Global => true,
            Self::Has(label) => value_of(label).is_some(),
            Self::Compare(label, operator, text) => operator.holds(value_of(label), text),
            Self::In(label, values) => value_of(label).is_some_and(|value| values.contains(value)),
            Self::NotIn(label, values) => {
                value_of(label).is_none_or(|value| !values.contains(value))
            }
            Self::Not(operand) => !operand.holds(value_of),
            Self::And(operands) => operands.iter().all(|operand| operand.holds(value_of)),
            Self::Or(operands) => operands.iter().any(|operand| operand.holds(value_of)),
        }
    }
}

impl Operator {
    fn holds(self, value: Option<&str>, text: &str) -> bool {
        match self {
            Self::Equal => value == Some(text),
            Self::NotEqual => value != Some(text),
            Self::Contains => value.is_some_and(|value| value.contains(text)),
            Self::StartsWith => value.is_some_and(|value| value.starts_with(text)),
            Self::EndsWith => value.is_some_and(|value| value.ends_with(text)),
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Contains => "contains",
            Self::StartsWith => "starts with",
            Self::EndsWith => "ends with",
        }
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Ok(Self {
            expression: grammar::read(text)?,
            text: text.to_owned(),
        })
    }
}

/// Selectors are equal when they have the same meaning in the same order, whatever their text.
impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.expression == other.expression
    }
}

impl Eq for Selector {}

/// Written with its original text, so that a rewrite changes nothing.
impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Formats the canonical text, from which Calico's set ids are computed: one blank around
/// operators, double quotes, sets in order, every `&&` and `||` in parentheses.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(f)
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all()"),
            Self::Global => f.write_str("global()"),
            Self::Has(label) => write!(f, "has({label})"),
            Self::Compare(label, operator, text) => {
                write!(f, "{label} {} {}", operator.text(), Quoted(text))
            }
            Self::In(label, values) => set(f, label, "in", values),
            Self::NotIn(label, values) => set(f, label, "not in", values),
            Self::Not(operand) => write!(f, "!{operand}"),
            Self::And(operands) => joined(f, operands, " && "),
            Self::Or(operands) => joined(f, operands, " || "),
        }
    }
}

fn set(
    f: &mut fmt::Formatter<'_>,
    label: &str,
    word: &str,
    values: &BTreeSet<String>,
) -> fmt::Result {
    write!(f, "{label} {word} {{")?;
    for (at, value) in values.iter().enumerate() {
        let comma = if at > 0 { ", " } else { "" };
        write!(f, "{comma}{}", Quoted(value))?;
    }
    f.write_str("}")
}

fn joined(f: &mut fmt::Formatter<'_>, operands: &[Expression], word: &str) -> fmt::Result {
    f.write_str("(")?;
    for (at, operand) in operands.iter().enumerate() {
        if at > 0 {
            f.write_str(word)?;
        }
        write!(f, "{operand}")?;
    }
    f.write_str(")")
}

/// A string in the kind of quotes that it does not contain.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = if self.0.contains('"') { '\'' } else { '"' };
        write!(f, "{quote}{}{quote}", self.0)
    }
}
