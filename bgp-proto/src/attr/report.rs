//! Values of path attributes for people and for JSON.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::attr::code::AttrCode;
use crate::attr::field::Field;
use crate::attr::table::{Attributes, Place, RareAttributes, Visitor};

/// The value of a path attribute, for people and for machines that do not have its type.
///
/// As JSON a flag is `true`, and fields are an object. `Display` prints it on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// The attribute is there; it has no value.
    Flag,
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
    /// Values in their order.
    List(Vec<Self>),
    /// Values with names.
    Fields(Vec<(&'static str, Self)>),
}

impl Report {
    /// Returns the text form of a value.
    pub(super) fn text(value: &impl ToString) -> Self {
        Self::Text(value.to_string())
    }

    /// Returns octets as hex digits.
    pub(super) fn hex(octets: &[u8]) -> Self {
        struct Hex<'a>(&'a [u8]);
        impl fmt::Display for Hex<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
            }
        }
        Self::text(&Hex(octets))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("yes"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::List(values) => {
                for (at, value) in values.iter().enumerate() {
                    let open = matches!(value, Self::Fields(_));
                    f.write_str(if at > 0 { " " } else { "" })?;
                    f.write_str(if open { "{" } else { "" })?;
                    write!(f, "{value}")?;
                    f.write_str(if open { "}" } else { "" })?;
                }
                Ok(())
            }
            Self::Fields(fields) => {
                for (at, (name, value)) in fields.iter().enumerate() {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}{name} {value}")?;
                }
                Ok(())
            }
        }
    }
}

/// Collects the values of the attributes that are there.
#[derive(Default)]
struct Reports(Vec<(AttrCode, Report)>);

impl Visitor for Reports {
    fn field<F: Field>(&mut self, code: AttrCode, _: Place, field: &F) {
        if field.is_present() {
            self.0.push((code, field.report()));
        }
    }
}

impl Attributes {
    /// Returns the values of the attributes that have a row in the table, in the order of their
    /// codes.
    pub fn reports(&self) -> Vec<(AttrCode, Report)> {
        let mut reports = Reports::default();
        self.visit(&mut reports);
        self.rare.visit(&mut reports);
        reports.0.sort_by_key(|(code, _)| *code);
        reports.0
    }
}

impl RareAttributes {
    /// Returns the values of the attributes that are there, in the order of their codes.
    pub fn reports(&self) -> Vec<(AttrCode, Report)> {
        let mut reports = Reports::default();
        self.visit(&mut reports);
        reports.0.sort_by_key(|(code, _)| *code);
        reports.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn reports_print_on_one_line() {
        let fields = Report::Fields(vec![
            ("a", Report::Number(1)),
            ("b", Report::hex(&[0, 255])),
        ]);
        assert_eq!(fields.to_string(), "a 1, b 00ff");
        let list = Report::List(vec![fields, Report::Text("x".into()), Report::Flag]);
        assert_eq!(list.to_string(), "{a 1, b 00ff} x yes");
    }
}
