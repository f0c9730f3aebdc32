//! Explains errors of serde about fields of a resource, which have no place yet.

use std::net::IpAddr;

use super::Problem;
use super::explain::{greatest, missing, plain, unknown_name};
use super::hints::{Hint, address, flag, wrong_octet};
use super::keys::Type;

impl Problem {
    /// Explains an error of serde about the value of a field, in an operator's words. The place is
    /// added later.
    pub fn of_serde(field: &str, message: &str) -> Self {
        if let Some((word, known)) = unknown_name(message, "variant") {
            return of_word(field, word, &known);
        }
        if let Some((name, known)) = unknown_name(message, "field") {
            let problem = Self::whole(format!("unknown field `{field}.{name}`"));
            return problem.suggest(name, &known, "fields");
        }
        if let Some(name) = missing(message) {
            return Self::whole(format!("`{field}.{name}` is required"));
        }
        if let Some((text, reason)) = text_and_reason(message) {
            return of_text(field, text, reason);
        }
        let given = message.strip_prefix("invalid type: ");
        let given = given.or_else(|| message.strip_prefix("invalid value: "));
        let Some((given, expected)) = given.and_then(|given| given.rsplit_once(", expected "))
        else {
            return Self::whole(format!("`{field}`: {message}"));
        };
        let text = given
            .strip_prefix("string \"")
            .and_then(|text| text.strip_suffix('"'));
        if let (Some(text), Some(known)) = (text, choices(expected)) {
            return of_word(field, text, &known);
        }
        let mut problem = Self::whole(format!("`{field}` is {}", words(expected)));
        if let Some(words) = words_of(given) {
            problem = problem.label(format!("this is {words}"));
        }
        match text {
            Some(text) => problem.with(of_expected(text, expected)),
            None => problem,
        }
    }

    fn with(mut self, hint: Option<Hint>) -> Self {
        let hint = hint.unwrap_or_default();
        if let Some(label) = hint.label {
            self = self.label(label);
        }
        match hint.help {
            Some(help) => self.help(help),
            None => self,
        }
    }
}

/// Returns the words of a description such as `one of "Auto", "Self" and "Keep"`.
pub fn choices(expected: &str) -> Option<Vec<&str>> {
    let list = expected.strip_prefix("one of ")?;
    let words = list.split(", ").flat_map(|part| part.split(" and "));
    Some(words.map(|word| word.trim_matches('"')).collect())
}

fn of_word(field: &str, word: &str, known: &[&str]) -> Problem {
    let problem = Problem::whole(format!("`{field}`: unknown value `{word}`"));
    problem.suggest(word, known, "values")
}

/// Splits a message of the form `"text": reason`.
fn text_and_reason(message: &str) -> Option<(&str, &str)> {
    message.strip_prefix('"')?.rsplit_once("\": ")
}

/// Explains a text that its type does not accept.
fn of_text(field: &str, text: &str, reason: &str) -> Problem {
    let (kind, words) = match reason {
        "invalid IP address syntax" => (Type::Address, "an IPv4 or IPv6 address"),
        "invalid IPv4 address syntax" => (Type::Ipv4, "an IPv4 address"),
        "invalid IPv6 address syntax" => (Type::Ipv6, "an IPv6 address"),
        reason => {
            let Some(expected) = reason.strip_prefix("not ") else {
                return Problem::whole(format!("`{field}`: `{text}`: {reason}"));
            };
            if let Some(known) = choices(expected) {
                return of_word(field, text, &known);
            }
            let problem = Problem::whole(format!("`{field}` is {expected}"));
            return problem.with(network(text));
        }
    };
    Problem::whole(format!("`{field}` is {words}")).with(address(kind, text))
}

/// Returns the remedy for a text in place of another type.
fn of_expected(text: &str, expected: &str) -> Option<Hint> {
    let help = match expected {
        "a boolean" => flag(text).map(str::to_owned),
        _ if greatest(expected).is_some() && text.parse::<u64>().is_ok() => {
            Some(format!("write {text}, without quotation marks"))
        }
        _ => return network(text),
    };
    Some(Hint { label: None, help })
}

/// Returns the reason why a text is no network, if it looks like one.
fn network(text: &str) -> Option<Hint> {
    let (host, length) = text.split_once('/').unwrap_or((text, ""));
    let label = |label: String| {
        Some(Hint {
            label: Some(label),
            help: None,
        })
    };
    if let Some(octet) = wrong_octet(host) {
        return label(format!("{octet} is not from 0 to 255"));
    }
    let most = match host.parse::<IpAddr>().ok()? {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    let is_length = length.parse::<u8>().is_ok_and(|length| length <= most);
    (!length.is_empty() && !is_length)
        .then(|| label(format!("the length is at most /{most}")))
        .flatten()
}

/// Returns an expected type in words that fit YAML and JSON.
fn words(expected: &str) -> String {
    // Brackets and quotation marks belong to TOML.
    plain(expected)
        .replace(" in brackets", "")
        .replace(" in quotation marks", "")
        .replace("a section of keys", "an object with fields")
}

/// Describes the value that an error of serde names.
fn words_of(given: &str) -> Option<String> {
    let words = match given.split([' ', ',']).next()? {
        "string" => "a text",
        "sequence" => "a list",
        "map" => "an object with fields",
        "null" | "unit" => "empty",
        "floating" => "a fraction",
        "number" | "boolean" | "integer" => {
            // In quotation marks, because it may be a secret.
            let quoted = given.split('`').nth(1);
            return Some(quoted.map_or_else(|| "a number".into(), |value| format!("`{value}`")));
        }
        _ => return None,
    };
    Some(words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_serde_are_in_words_of_operators() {
        for (message, words, beside) in [
            (
                "invalid type: string \"x\", expected a boolean",
                "`f` is true or false",
                Some("this is a text"),
            ),
            (
                "invalid type: map, expected a sequence",
                "`f` is a list",
                Some("this is an object with fields"),
            ),
            (
                "invalid value: integer `300`, expected u8",
                "`f` is a whole number, from 0 to 255",
                Some("this is `300`"),
            ),
            (
                "unknown variant `Alway`, expected one of ``, `Always`, `Never`",
                "`f`: unknown value `Alway`",
                Some("did you mean `Always`?"),
            ),
            (
                "\"kep\": not one of \"Auto\", \"Self\" and \"Keep\"",
                "`f`: unknown value `kep`",
                Some("did you mean `Keep`?"),
            ),
            (
                "\"10.0.0.300\": invalid IP address syntax",
                "`f` is an IPv4 or IPv6 address",
                Some("300 is not from 0 to 255"),
            ),
            (
                "\"10.0.0.0/33\": not an address or network",
                "`f` is an address or network",
                Some("the length is at most /32"),
            ),
            ("missing field `g`", "`f.g` is required", None),
            ("odd", "`f`: odd", None),
        ] {
            let problem = Problem::of_serde("f", message);
            assert_eq!(problem.message(), words, "{message}");
            assert_eq!(problem.label.as_deref(), beside, "{message}");
        }
    }
}
