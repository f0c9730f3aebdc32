//! Texts of configuration errors.

use std::io;
use std::ops::Range;

use super::Problem;

/// How alike two keys must be for a suggestion, between 0 and 1.
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

/// A TOML or serde error with its place, its key, and a suggestion where one is near.
pub(super) fn of_toml(error: &toml::de::Error, text: &str) -> Problem {
    let message = error.message().trim();
    let span = error.span();
    if let Some((key, known)) = unknown_name(message, "field") {
        return place(span, format!("unknown key `{key}`")).suggest(key, &known, "keys");
    }
    if let Some((word, known)) = unknown_name(message, "variant") {
        return place(span, format!("unknown value `{word}`")).suggest(word, &known, "values");
    }
    let message = message.replace('\n', ", ");
    let Some(span) = span else {
        return Problem::whole(message);
    };
    if span.start == 0 && span.end >= text.trim_end().len() {
        return Problem::whole(message);
    }
    Problem::at(span, message)
}

fn place(span: Option<Range<usize>>, message: String) -> Problem {
    match span {
        Some(span) => Problem::at(span, message),
        None => Problem::whole(message),
    }
}

impl Problem {
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

/// Serde lists the expected words in one form: "unknown field `x`, expected one of `a`, `b`", with
/// variations for one and two words.
fn unknown_name<'m>(message: &'m str, what: &str) -> Option<(&'m str, Vec<&'m str>)> {
    let rest = message
        .strip_prefix("unknown ")?
        .strip_prefix(what)?
        .strip_prefix(" `")?;
    let (word, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2).collect();
    Some((word, known))
}

fn nearest<'k>(field: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|key| (strsim::jaro_winkler(field, key), *key))
        .filter(|(alike, _)| *alike >= ALIKE_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, key)| key)
}
