//! Words for what went wrong.

use std::io;

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
    if let Some((field, known)) = unknown_field(message) {
        return unknown_key(field, &known, span);
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

fn unknown_key(field: &str, known: &[&str], span: Option<std::ops::Range<usize>>) -> Problem {
    let message = format!("unknown key `{field}`");
    let mut problem = match span {
        Some(span) => Problem::at(span, message),
        None => Problem::whole(message),
    };
    if let Some(nearest) = nearest(field, known) {
        problem = problem.label(format!("did you mean `{nearest}`?"));
    }
    match known {
        [] => problem,
        _ => problem.help(format!("known keys here: {}", known.join(", "))),
    }
}

/// Serde tells the keys it knows in one form of words: "unknown field `x`, expected one of `a`,
/// `b`", with variations for one and two keys.
fn unknown_field(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (field, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2).collect();
    Some((field, known))
}

fn nearest<'k>(field: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|key| (strsim::jaro_winkler(field, key), *key))
        .filter(|(alike, _)| *alike >= ALIKE_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, key)| key)
}
