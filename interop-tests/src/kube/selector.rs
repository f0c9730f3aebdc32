//! Selectors of labels and fields.

use serde_json::Value;

use super::status::Rejected;

/// A condition on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    Equals(String, String),
    Differs(String, String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Has(String),
    HasNot(String),
}

/// The conditions of a list or a watch; all must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    labels: Vec<Term>,
    fields: Vec<(String, String, bool)>,
}

impl Selector {
    /// Reads the parameters `labelSelector` and `fieldSelector`.
    pub(super) fn new(labels: &str, fields: &str) -> Result<Self, Rejected> {
        let labels = split(labels).into_iter().map(|text| term(&text));
        let fields = split(fields).into_iter().map(|text| field(&text));
        Ok(Self {
            labels: labels.collect::<Result<_, _>>()?,
            fields: fields.collect::<Result<_, _>>()?,
        })
    }

    pub(super) const fn is_any(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"][key].as_str();
        let labels = self.labels.iter().all(|term| match term {
            Term::Equals(key, value) => label(key) == Some(value),
            Term::Differs(key, value) => label(key) != Some(value),
            Term::In(key, values) => {
                label(key).is_some_and(|found| values.iter().any(|value| value == found))
            }
            Term::NotIn(key, values) => {
                label(key).is_none_or(|found| values.iter().all(|value| value != found))
            }
            Term::Has(key) => label(key).is_some(),
            Term::HasNot(key) => label(key).is_none(),
        });
        let fields = self.fields.iter().all(|(path, value, equals)| {
            let pointer = format!("/{}", path.replace('.', "/"));
            let found = object.pointer(&pointer).and_then(Value::as_str);
            (found.unwrap_or_default() == value) == *equals
        });
        labels && fields
    }
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for character in text.chars() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        match (character, depth, parts.last_mut()) {
            (',', 0, _) => parts.push(String::new()),
            (_, _, Some(part)) => part.push(character),
            _ => {}
        }
    }
    let parts = parts.into_iter().map(|part| part.trim().to_owned());
    parts.filter(|part| !part.is_empty()).collect()
}

fn pair(text: &str) -> Option<(String, String, bool)> {
    for (separator, equals) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((key, value)) = text.split_once(separator) {
            return Some((key.trim().to_owned(), value.trim().to_owned(), equals));
        }
    }
    None
}

fn term(text: &str) -> Result<Term, Rejected> {
    let of_set = |separator: &str| {
        let (key, values) = text.split_once(separator)?;
        let values = values.trim().strip_prefix('(')?.strip_suffix(')')?;
        let values = values.split(',').map(|value| value.trim().to_owned());
        Some((key.trim().to_owned(), values.collect()))
    };
    if let Some((key, values)) = of_set(" notin ") {
        return Ok(Term::NotIn(key, values));
    }
    if let Some((key, values)) = of_set(" in ") {
        return Ok(Term::In(key, values));
    }
    if let Some((key, value, equals)) = pair(text) {
        return Ok(match equals {
            true => Term::Equals(key, value),
            false => Term::Differs(key, value),
        });
    }
    match text.strip_prefix('!') {
        Some(key) => Ok(Term::HasNot(key.to_owned())),
        None if text.contains(' ') => {
            let message = format!("unable to parse requirement: found '{text}'");
            Err(Rejected::bad_request(message))
        }
        None => Ok(Term::Has(text.to_owned())),
    }
}

fn field(text: &str) -> Result<(String, String, bool), Rejected> {
    const SUPPORTED: [&str; 4] = [
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "status.phase",
    ];
    match pair(text) {
        Some(pair) if SUPPORTED.contains(&pair.0.as_str()) => Ok(pair),
        Some((name, ..)) => {
            let message = format!("field label not supported: {name}");
            Err(Rejected::bad_request(message))
        }
        None => Err(Rejected::bad_request(format!(
            "invalid selector: '{text}'; can't understand '{text}'"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_match_as_the_api_defines() {
        let pod = json!({"metadata": {"name": "web-0", "labels": {"app": "web", "tier": ""}},
            "spec": {"nodeName": "n1"}});
        for (labels, fields, wanted) in [
            ("", "", true),
            ("app=web", "", true),
            ("app==web,tier=", "", true),
            ("app!=web", "", false),
            ("other!=web", "", true),
            ("app in (db, web)", "", true),
            ("app notin (db, web)", "", false),
            ("other notin (db)", "", true),
            ("app,!other", "", true),
            ("!app", "", false),
            ("", "spec.nodeName=n1", true),
            ("", "spec.nodeName=n2", false),
            ("", "spec.nodeName!=n2,metadata.name=web-0", true),
        ] {
            let selector = Selector::new(labels, fields).expect("a selector");
            assert_eq!(selector.matches(&pod), wanted, "{labels} {fields}");
        }
        assert!(Selector::new("a b c", "").is_err());
        assert!(Selector::new("", "spec.unknown=x").is_err());
    }
}
