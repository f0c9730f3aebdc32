//! Reading of a file with mistakes: each is reported and removed, until the rest fits its type.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use super::Problem;
use super::explain::{missing, of_syntax, of_value};
use super::keys::{Type, type_of};
use super::place::{Lost, Step, path_at, remove, value_at};
use crate::limits::{CONFIG_PROBLEMS_MAX, CONFIG_READ_AGAIN_OCTETS_MAX};

/// The result of reading: the value, as far as the file is valid, and the mistakes.
pub(super) struct Read<T> {
    pub(super) value: Option<T>,
    pub(super) problems: Vec<Problem>,
    pub(super) lost: Lost,
}

/// Reads a text with all mistakes of syntax, keys and types in it.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Read<T> {
    let mut read = Read {
        value: None,
        problems: Vec::new(),
        lost: Lost::default(),
    };
    let (_, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        values(text, &mut read);
        return read;
    }
    let rest = without_bare_values(text, &errors, &mut read);
    let (_, errors) = DeTable::parse_recoverable(&rest);
    if errors.is_empty() {
        values(&rest, &mut read);
        return read;
    }
    // A missing bracket or quotation mark changes the meaning of all that follows.
    read.problems.extend(errors.first().map(of_syntax));
    read
}

/// Reads the values of a text without mistakes of syntax.
fn values<T: DeserializeOwned>(text: &str, read: &mut Read<T>) {
    let (root, _) = DeTable::parse_recoverable(text);
    let (span, mut table) = (root.span(), root.into_inner());
    // The tables in which a key is lost, and that key.
    let mut gaps: Vec<(Vec<Step>, String)> = Vec::new();
    for (header, key) in read.lost.in_sections() {
        let table = header.as_ref().map(|header| path_at(&table, header));
        gaps.push((table.unwrap_or_default(), key.clone()));
    }
    // A daemon that reloads a file does nothing else meanwhile.
    let mut reads = CONFIG_READ_AGAIN_OCTETS_MAX / text.len().max(1);
    while read.problems.len() < CONFIG_PROBLEMS_MAX && reads > 0 {
        reads -= 1;
        let root = toml::Spanned::new(span.clone(), table.clone());
        let error = match T::deserialize(toml::Deserializer::from(root)) {
            Ok(value) => {
                read.value = Some(value);
                return;
            }
            Err(error) => error,
        };
        let place = error.span().filter(|place| *place != span);
        let mut path = place
            .map(|place| path_at(&table, &place))
            .unwrap_or_default();
        // The header of the first of several sections is also the place of all of them.
        while error.message().starts_with("invalid type: sequence")
            && value_at(&table, &path)
                .is_some_and(|value| !matches!(value.get_ref(), DeValue::Array(_)))
        {
            path.pop();
        }
        let missing = missing(error.message().trim());
        let is_known = missing.is_some_and(|key| {
            gaps.iter()
                .any(|(table, lost)| *table == path && lost == key)
        });
        if !is_known {
            read.problems.push(of_value(&error, &table, &path));
        }
        if !remove(&mut table, &path) {
            return;
        }
        // The items behind a removed one have moved.
        if !matches!(path.last(), Some(Step::Item(_))) {
            gaps.extend(gap(&path));
        }
        read.lost.push(path);
    }
}

fn gap(path: &[Step]) -> Option<(Vec<Step>, String)> {
    match path.split_last()? {
        (Step::Key(key), table) => Some((table.to_vec(), key.clone())),
        (Step::Item(_), _) => None,
    }
}

/// Reports the lines of the form `key = value` in which the value is a text without quotation marks,
/// or is missing. Returns the text with spaces in their place, so that the rest can be read.
fn without_bare_values<T>(text: &str, errors: &[toml::de::Error], read: &mut Read<T>) -> String {
    let mut rest = text.to_owned();
    let mut last = None;
    for error in errors {
        let Some(span) = error.span() else { continue };
        let line = line_of(text, span.start);
        if last.as_ref() == Some(&line) {
            continue;
        }
        last = Some(line.clone());
        let Some((key, problem)) = bare_value(text, &line) else {
            continue;
        };
        read.problems.push(problem);
        let header = header_at(text, line.start);
        if let Some(path) = path_of_line(text, &header, &key) {
            read.lost.push(path);
        }
        read.lost.push_in_section(header, key);
        let blank: String = text
            .get(line.clone())
            .unwrap_or_default()
            .chars()
            .map(blank)
            .collect();
        rest.replace_range(line, &blank);
    }
    rest
}

fn blank(c: char) -> &'static str {
    match c.len_utf8() {
        1 => " ",
        2 => "  ",
        3 => "   ",
        _ => "    ",
    }
}

/// Returns the place of the header of the section that a line is in.
fn header_at(text: &str, line: usize) -> Option<Range<usize>> {
    let mut end = line;
    for above in text.get(..line)?.split_inclusive('\n').rev() {
        end -= above.len();
        let header = above.trim();
        if header.starts_with('[') {
            let start = end + (above.len() - above.trim_start().len());
            let length = header.rfind(']').map_or(header.len(), |last| last + 1);
            return Some(start..start + length);
        }
    }
    None
}

/// Returns the path of a key, unless its section is one of several.
fn path_of_line(text: &str, header: &Option<Range<usize>>, key: &str) -> Option<Vec<Step>> {
    let mut path = Vec::new();
    if let Some(header) = header {
        let name = text
            .get(header.clone())?
            .strip_prefix('[')?
            .strip_suffix(']')?;
        if name.starts_with('[') {
            return None;
        }
        path.extend(name.split('.').map(|key| Step::Key(key.trim().to_owned())));
    }
    path.push(Step::Key(key.to_owned()));
    Some(path)
}

/// Explains a line of which the value is a bare word, or missing.
fn bare_value(text: &str, line: &Range<usize>) -> Option<(String, Problem)> {
    let content = text.get(line.clone())?;
    let (name, value) = content.split_once('=')?;
    let key = name.trim();
    let kind = type_of(key)?;
    let value = value.split('#').next().unwrap_or_default();
    if value.contains(['"', '\'', '[', ']', '{', '}', '=']) {
        return None;
    }
    let word = value.trim();
    let start = line.start + name.len() + 1 + (value.len() - value.trim_start().len());
    let span = start..start + word.len();
    if word.is_empty() {
        let span = line.start..line.start + name.trim_end().len();
        let problem = Problem::at(span, format!("`{key}` has no value"));
        return Some((
            key.to_owned(),
            problem.label(format!("it is {}", kind.words())),
        ));
    }
    let problem = Problem::at(span, format!("`{key}` is {}", kind.words()));
    let help = match (kind, word.to_ascii_lowercase().as_str()) {
        (Type::Flag, "true" | "yes" | "on") => format!("write `{key} = true`"),
        (Type::Flag, "false" | "no" | "off") => format!("write `{key} = false`"),
        (kind, _) if kind.is_quoted() => format!("write `{key} = \"{word}\"`"),
        (Type::Seconds, _) => "write the number without a unit".to_owned(),
        (Type::List(_), _) => format!("write `{key} = [\"{word}\"]`"),
        _ => return None,
    };
    let label = match kind {
        Type::Seconds => "this has a unit",
        Type::Flag => "this is another word",
        _ => "the quotation marks are missing",
    };
    let is_unit = kind != Type::Seconds || word.starts_with(|c: char| c.is_ascii_digit());
    is_unit.then(|| (key.to_owned(), problem.label(label).help(help)))
}

/// Returns the line of an octet, without its end.
fn line_of(text: &str, at: usize) -> Range<usize> {
    let at = at.min(text.len());
    let (before, after) = text.as_bytes().split_at(at);
    let is_end = |octet: &u8| *octet == b'\n';
    let start = before.iter().rposition(is_end).map_or(0, |end| end + 1);
    let end = after.iter().position(is_end);
    start..end.map_or(text.len(), |more| at + more)
}
