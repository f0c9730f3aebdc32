//! Texts of configuration errors.

use std::io;
use std::ops::Range;

use toml::de::DeTable;

use super::Problem;
use super::hints::{given_words, hint};
use super::keys::{Type, item_type, type_of};
use super::place::{Step, last_key, value_at};

/// How alike two words must be for a suggestion, between 0 and 1.
const ALIKE_MIN: f64 = 0.75;

pub(super) fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "no such file; name one with --config, docs/operate describes its keys".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "not readable for this user; check its owner and mode".to_owned()
        }
        io::ErrorKind::InvalidData => "not UTF-8 text".to_owned(),
        io::ErrorKind::IsADirectory => "a directory, not a file".to_owned(),
        _ => error.to_string(),
    }
}

/// Explains a syntax error, which may be the consequence of one on a line above.
pub(super) fn of_syntax(error: &toml::de::Error) -> Problem {
    let message = error.message().trim().replace('\n', ", ");
    if message.starts_with("duplicate key") {
        let help = "remove one of them; further mistakes are reported when this one is corrected";
        return place(error.span(), message).help(help);
    }
    let help = "look also at the line above for a missing bracket or quotation mark; further \
                mistakes are reported when this one is corrected";
    place(error.span(), message).help(help)
}

/// Explains a value that does not fit its key, at this path of the file.
pub(super) fn of_value(error: &toml::de::Error, root: &DeTable<'_>, path: &[Step]) -> Problem {
    let message = error.message().trim();
    let span = error.span();
    if let Some((key, known)) = unknown_name(message, "field") {
        return place(span, format!("unknown key `{key}`")).suggest(key, &known, "keys");
    }
    if let Some((word, known)) = unknown_name(message, "variant") {
        return place(span, format!("unknown value `{word}`")).suggest(word, &known, "values");
    }
    if let Some(key) = missing(message) {
        let span = span.filter(|_| !path.is_empty());
        return place(span, format!("missing key `{key}`"));
    }
    let Some((key, expected)) = last_key(path).zip(expectation(message)) else {
        return place(span, message.replace('\n', ", "));
    };
    let is_item = matches!(path.last(), Some(Step::Item(_)));
    if is_item && type_of(key) == Some(Type::Section) {
        let message = format!("`{key}` is a single section, without double brackets");
        return place(span, message).help(format!("write `[{key}]`, once"));
    }
    let kind = item_type(type_of(key), is_item || !is_whole(expected));
    let what = if is_item { "an item of " } else { "" };
    let mut words = match (kind, expected) {
        (None | Some(Type::Any | Type::Section), "a sequence") => Type::Sections.words().to_owned(),
        (None | Some(Type::Any), expected) => plain(expected),
        (Some(kind), _) => kind.words().to_owned(),
    };
    let value = value_at(root, path).map(toml::Spanned::get_ref);
    if let (Some(kind), Some(toml::de::DeValue::Integer(_))) = (kind, value)
        && kind.is_number()
        && let Some(most) = greatest(expected)
        && !words.contains("from ")
    {
        words = format!("{words}, from 0 to {most}");
    }
    let problem = place(span, format!("{what}`{key}` is {words}"));
    match value {
        Some(value) => problem.label(given_words(value)).hinted(key, kind, value),
        None => problem,
    }
}

impl Problem {
    /// Adds the remedy for a value that does not fit its type, if there is an obvious one. Words of
    /// the problem itself have precedence.
    pub(super) fn hinted(
        mut self,
        key: &str,
        kind: Option<Type>,
        value: &toml::de::DeValue<'_>,
    ) -> Self {
        let Some(found) = kind.and_then(|kind| hint(key, kind, value)) else {
            return self;
        };
        if let Some(label) = found.label {
            self = self.label(label);
        }
        match found.help {
            Some(help) => self.help(help),
            None => self,
        }
    }

    /// Names the nearest of the known words, if one is near, and all of them.
    #[must_use]
    pub fn suggest(mut self, given: &str, known: &[&str], what: &str) -> Self {
        if let Some(nearest) = nearest(given, known) {
            self = self.label(format!("did you mean `{nearest}`?"));
        }
        match known {
            [] => self,
            _ => self.help(format!("known {what} here: {}", known.join(", "))),
        }
    }
}

fn place(span: Option<Range<usize>>, message: String) -> Problem {
    match span {
        Some(span) => Problem::at(span, message),
        None => Problem::whole(message),
    }
}

/// Returns the name of a missing key.
pub(super) fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// Returns the expected value of an error about a type or a value.
fn expectation(message: &str) -> Option<&str> {
    let (before, expected) = message.rsplit_once(", expected ").unwrap_or((message, ""));
    let is_type = before.starts_with("invalid type") || before.starts_with("invalid value");
    // The standard library's words for texts that are no addresses.
    let is_address = message.starts_with("invalid ") && message.ends_with(" address syntax");
    (is_type && !expected.is_empty() || is_address).then_some(expected)
}

/// Whether the whole value of a key was expected, not an item of its list.
fn is_whole(expected: &str) -> bool {
    expected == "a sequence"
}

/// Returns the greatest number of a type of Rust.
pub(super) fn greatest(expected: &str) -> Option<u64> {
    Some(match expected {
        "u8" => u8::MAX.into(),
        "u16" => u16::MAX.into(),
        "u32" => u32::MAX.into(),
        _ => return None,
    })
}

/// Returns an expected value without names of Rust's types.
pub(super) fn plain(expected: &str) -> String {
    let words = match expected {
        "a boolean" => Type::Flag.words(),
        "a string" => Type::Text.words(),
        "path string" => Type::Path.words(),
        "a JSON number" => "a number",
        "a sequence" => Type::List(&Type::Any).words(),
        "a map" => Type::Section.words(),
        _ if expected.starts_with("struct ") => Type::Section.words(),
        _ if expected.starts_with("u") && greatest(expected).is_some() => {
            let most = greatest(expected).unwrap_or_default();
            return format!("{}, from 0 to {most}", Type::Number.words());
        }
        other => other,
    };
    words.to_owned()
}

/// Serde lists the expected words in one form: "unknown field `x`, expected one of `a`, `b`", with
/// variations for one and two words.
pub(super) fn unknown_name<'m>(message: &'m str, what: &str) -> Option<(&'m str, Vec<&'m str>)> {
    let rest = message
        .strip_prefix("unknown ")?
        .strip_prefix(what)?
        .strip_prefix(" `")?;
    let (word, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2);
    Some((word, known.filter(|word| !word.is_empty()).collect()))
}

fn nearest<'k>(given: &str, known: &[&'k str]) -> Option<&'k str> {
    let given = given.to_lowercase();
    known
        .iter()
        .map(|key| (strsim::jaro_winkler(&given, &key.to_lowercase()), *key))
        .filter(|(alike, _)| *alike >= ALIKE_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, key)| key)
}
