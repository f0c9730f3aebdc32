//! Validation of a resource, field by field.

use std::fmt;

use crate::limits::{INTERFACE_NAME_OCTETS_MAX, LABEL_VALUE_OCTETS_MAX, NAME_OCTETS_MAX};
use crate::value::network::Network;

/// One fault of a resource that is to be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// Path of the field, such as `spec.ipNetworks[1]`.
    pub field: String,
    /// The kind of fault.
    pub problem: Problem,
}

/// A kind of fault of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// It is required and missing.
    Missing,
    /// It is forbidden, for this reason.
    Unwanted(&'static str),
    /// It is reserved: the object exists without being stored and is never written.
    Reserved,
    /// The text does not have the described form.
    Form {
        /// The given value.
        found: String,
        /// The expected form.
        expected: &'static str,
    },
    /// It contradicts another field.
    Mismatch {
        /// The given value.
        found: String,
        /// The value that the other field requires.
        expected: String,
    },
    /// It exceeds the maximum number.
    TooMuch {
        /// The given number.
        found: usize,
        /// The maximum.
        most: usize,
    },
    /// It must be one address (/32 or /128).
    NotHost(String),
    /// It appears twice.
    Duplicate(String),
    /// The resource's kind has no such field.
    UnknownField {
        /// A known field of which it may be a misspelling.
        meant: Option<&'static str>,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("is required"),
            Self::Unwanted(reason) => write!(f, "must not be set: {reason}"),
            Self::Reserved => {
                f.write_str("is reserved: this object exists by itself and cannot be written")
            }
            Self::Form { found, expected } => write!(f, "\"{found}\" is not {expected}"),
            Self::Mismatch { found, expected } => {
                write!(f, "is \"{found}\" but must be \"{expected}\"")
            }
            Self::TooMuch { found, most } => write!(f, "is too long: {found}, at most {most}"),
            Self::NotHost(found) => write!(f, "{found} must be a single address (/32 or /128)"),
            Self::Duplicate(found) => write!(f, "{found} is there twice"),
            Self::UnknownField { meant: Some(meant) } => {
                write!(f, "unknown field; did you mean \"{meant}\"?")
            }
            Self::UnknownField { meant: None } => f.write_str("unknown field"),
        }
    }
}

/// Collects the faults of a resource.
#[derive(Debug, Default)]
pub(crate) struct Faults(pub(crate) Vec<Invalid>);

impl Faults {
    pub(crate) fn push(&mut self, field: impl Into<String>, problem: Problem) {
        self.0.push(Invalid {
            field: field.into(),
            problem,
        });
    }

    /// Requires that the field is not empty.
    pub(crate) fn required(&mut self, field: &str, text: &str) {
        if text.is_empty() {
            self.push(field, Problem::Missing);
        }
    }

    /// Requires that the number does not exceed the limit.
    pub(crate) fn at_most(&mut self, field: &str, found: usize, most: usize) {
        if found > most {
            self.push(field, Problem::TooMuch { found, most });
        }
    }

    /// Requires that the value is in the described range.
    pub(crate) fn range(
        &mut self,
        field: impl Into<String>,
        found: impl fmt::Display,
        expected: &'static str,
    ) {
        let found = found.to_string();
        self.push(field, Problem::Form { found, expected });
    }

    /// Requires that the range has no host bits.
    pub(crate) fn masked(&mut self, field: impl Into<String>, range: Network) {
        let masked = range.0.trunc();
        if masked != range.0 {
            let (found, expected) = (range.to_string(), masked.to_string());
            self.push(field, Problem::Mismatch { found, expected });
        }
    }

    /// Requires that the text has the form; empty text is valid (see [`Self::required`]).
    pub(crate) fn form(&mut self, field: impl Into<String>, text: &str, form: Form) {
        if !text.is_empty() && !(form.holds)(text) {
            self.push(
                field,
                Problem::Form {
                    found: text.to_owned(),
                    expected: form.expected,
                },
            );
        }
    }
}

/// The form of a text.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    holds: fn(&str) -> bool,
    expected: &'static str,
}

impl Form {
    /// Returns whether a text has the form.
    pub(crate) fn holds(self, text: &str) -> bool {
        (self.holds)(text)
    }
}

/// A resource's name: a DNS subdomain.
pub(crate) const NAME: Form = Form {
    holds: |text| text.len() <= NAME_OCTETS_MAX && text.split('.').all(is_name_part),
    expected: "a name: lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit",
};

/// Returns whether a text is the name of a resource: a DNS subdomain.
pub fn is_resource_name(text: &str) -> bool {
    NAME.holds(text)
}

/// A label's key, with an optional `prefix/`.
pub(crate) const LABEL_KEY: Form = Form {
    holds: |text| {
        let (prefix, name) = text.rsplit_once('/').unwrap_or(("ok", text));
        !name.is_empty() && is_label_text(name) && prefix.split('.').all(is_name_part)
    },
    expected: "a label key: letters, digits, '-', '_' and '.', with an optional DNS prefix and '/'",
};

/// A label's value.
pub(crate) const LABEL_VALUE: Form = Form {
    holds: is_label_text,
    expected: "a label value: letters, digits, '-', '_' and '.', at most 63",
};

/// A network interface's name.
pub(crate) const INTERFACE: Form = Form {
    holds: |text| {
        text.len() <= INTERFACE_NAME_OCTETS_MAX
            && text
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"_.-".contains(&c))
            && text != "."
            && text != ".."
    },
    expected: "an interface name: at most 15 letters, digits, '_', '.' and '-'",
};

/// A pattern for names of network interfaces.
pub(crate) const INTERFACE_GLOB: Form = Form {
    holds: |text| {
        text.len() <= INTERFACE_NAME_OCTETS_MAX
            && text
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"_.-*".contains(&c))
    },
    expected: "an interface pattern: at most 15 letters, digits, '_', '.', '-' and '*'",
};

/// The severity of a log message, in any case.
pub(crate) const LOG_SEVERITY: Form = Form {
    holds: |text| {
        ["trace", "debug", "info", "warning", "error", "fatal"]
            .iter()
            .any(|word| text.eq_ignore_ascii_case(word))
    },
    expected: "one of Trace, Debug, Info, Warning, Error and Fatal",
};

/// A use of the addresses of a pool.
pub(crate) const ALLOWED_USE: Form = Form {
    holds: |text| matches!(text, "Workload" | "Tunnel" | "LoadBalancer"),
    expected: "one of Workload, Tunnel and LoadBalancer",
};

/// How addresses of a pool are assigned.
pub(crate) const ASSIGNMENT_MODE: Form = Form {
    holds: |text| matches!(text, "Automatic" | "Manual"),
    expected: "one of Automatic and Manual",
};

fn is_name_part(part: &str) -> bool {
    let edge = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    edge(part.bytes().next())
        && edge(part.bytes().last())
        && part
            .bytes()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
}

fn is_label_text(text: &str) -> bool {
    let edge = |c: Option<u8>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= LABEL_VALUE_OCTETS_MAX
        && edge(text.bytes().next())
        && edge(text.bytes().last())
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
}
