//! The types that a field of an event can have.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use serde_json::Value;
use tracing::field;

use crate::limits::EVENT_TEXT_OCTETS_MAX;

/// Text of an event: at most [`EVENT_TEXT_OCTETS_MAX`] octets, without control characters. Text
/// from a peer or the kernel can neither control a terminal nor break a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(Box<str>);

/// Ends a text that was cut.
const CUT: &str = "…";

impl Text {
    /// Formats a value as the text of an event.
    pub fn new(value: impl fmt::Display) -> Self {
        let mut clean = Clean(String::new());
        // An error means that the rest does not fit.
        if fmt::Write::write_fmt(&mut clean, format_args!("{value}")).is_err() {
            clean.0.push_str(CUT);
        }
        Self(clean.0.into_boxed_str())
    }

    /// Formats a list of names as the text of an event, separated by spaces. The list is read only as
    /// far as there is room.
    pub fn listed<T: fmt::Display>(names: impl IntoIterator<Item = T>) -> Self {
        let mut clean = Clean(String::new());
        for name in names {
            let space = if clean.0.is_empty() { "" } else { " " };
            if fmt::Write::write_fmt(&mut clean, format_args!("{space}{name}")).is_err() {
                clean.0.push_str(CUT);
                break;
            }
        }
        Self(clean.0.into_boxed_str())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Escapes control characters, and rejects texts that are too long.
struct Clean(String);

impl fmt::Write for Clean {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            let before = self.0.len();
            match c {
                c if c.is_control() => self.0.extend(c.escape_default()),
                c => self.0.push(c),
            }
            if self.0.len() > EVENT_TEXT_OCTETS_MAX - CUT.len() {
                self.0.truncate(before);
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

/// A type of a field.
pub(super) trait Field {
    /// The type as the page of events names it.
    const TYPE: &'static str;

    /// Whether the field may be missing.
    const OPTIONAL: bool = false;

    /// The value in JSON; `None` for a missing one.
    fn json(&self) -> Option<Value>;

    /// The value for a log line.
    fn log(&self) -> impl field::Value + '_;

    /// Octets on the heap.
    fn heap_octets(&self) -> usize {
        0
    }

    /// The address of a neighbor, where the field is one.
    fn address(&self) -> Option<IpAddr> {
        None
    }

    /// The prefix of a route, where the field is one.
    fn prefix(&self) -> Option<IpNet> {
        None
    }
}

impl Field for Text {
    const TYPE: &'static str = "text";

    fn json(&self) -> Option<Value> {
        Some(Value::from(self.as_str()))
    }

    fn log(&self) -> impl field::Value + '_ {
        self.as_str()
    }

    fn heap_octets(&self) -> usize {
        self.0.len()
    }
}

impl Field for u64 {
    const TYPE: &'static str = "number";

    fn json(&self) -> Option<Value> {
        Some(Value::from(*self))
    }

    fn log(&self) -> impl field::Value + '_ {
        *self
    }
}

/// Types that are written as text.
macro_rules! displayed {
    ($($of:ty: $name:literal,)+) => {
        $(impl Field for $of {
            const TYPE: &'static str = $name;

            fn json(&self) -> Option<Value> {
                Some(Value::from(self.to_string()))
            }

            fn log(&self) -> impl field::Value + '_ {
                field::display(self)
            }
        })+
    };
}

impl Field for IpAddr {
    const TYPE: &'static str = "address";

    fn json(&self) -> Option<Value> {
        Some(Value::from(self.to_string()))
    }

    fn log(&self) -> impl field::Value + '_ {
        field::display(self)
    }

    fn address(&self) -> Option<IpAddr> {
        Some(*self)
    }
}

impl Field for IpNet {
    const TYPE: &'static str = "prefix";

    fn json(&self) -> Option<Value> {
        Some(Value::from(self.to_string()))
    }

    fn log(&self) -> impl field::Value + '_ {
        field::display(self)
    }

    fn prefix(&self) -> Option<IpNet> {
        Some(*self)
    }
}

displayed! {
    Ipv4Addr: "IPv4 address",
    SocketAddr: "address and port",
}

impl<T: Field> Field for Option<T> {
    const TYPE: &'static str = T::TYPE;
    const OPTIONAL: bool = true;

    fn json(&self) -> Option<Value> {
        self.as_ref().and_then(Field::json)
    }

    fn log(&self) -> impl field::Value + '_ {
        self.as_ref().map(Field::log)
    }

    fn heap_octets(&self) -> usize {
        self.as_ref().map_or(0, Field::heap_octets)
    }

    fn address(&self) -> Option<IpAddr> {
        self.as_ref().and_then(Field::address)
    }

    fn prefix(&self) -> Option<IpNet> {
        self.as_ref().and_then(Field::prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_control_characters_is_escaped() {
        let text = Text::new("down\u{1b}[31m\nup\u{9b}");
        assert_eq!(text.as_str(), "down\\u{1b}[31m\\nup\\u{9b}");
    }

    #[test]
    fn text_that_is_too_long_is_cut_between_characters() {
        let text = Text::new("ä\u{7}".repeat(EVENT_TEXT_OCTETS_MAX));
        assert!(text.as_str().len() <= EVENT_TEXT_OCTETS_MAX);
        assert!(text.as_str().ends_with("ä…") || text.as_str().ends_with("}…"));
        let names = (0..).map(|number| format!("n{number}"));
        let listed = Text::listed(names);
        assert!(listed.as_str().starts_with("n0 n1 n2") && listed.as_str().ends_with('…'));
        assert!(listed.as_str().len() <= EVENT_TEXT_OCTETS_MAX);
        let fits = "x".repeat(EVENT_TEXT_OCTETS_MAX - CUT.len());
        assert_eq!(Text::new(&fits).as_str(), fits);
    }
}
