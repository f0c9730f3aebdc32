//! The outcome of `cambric apply` for each resource.

use std::process::ExitCode;

use anyhow::Result;
use calico_manifests::Document;
use calico_store::resources::Outcome;
use serde_json::{Map, Value};

use super::input::{kind_of, namespace_in, text};
use super::notes;
use super::results::{Results, Words};

/// One line of the output.
struct Line {
    kind: String,
    namespace: Option<String>,
    name: String,
    word: &'static str,
    revision: Option<String>,
    error: Option<String>,
}

impl Line {
    fn new(value: &Value, outcome: &Outcome) -> Self {
        let (revision, error) = match outcome {
            Outcome::Applied(applied) => (Some(applied.item.revision.to_string()), None),
            Outcome::Refused(error) => (None, Some(error.to_string())),
            Outcome::Unknown(error) => (
                None,
                Some(format!("{error}: it may be written or not; apply it again")),
            ),
            Outcome::NotWritten => (None, None),
        };
        Self {
            kind: value["kind"].as_str().unwrap_or_default().to_owned(),
            namespace: namespace_in(value),
            name: text(&value["metadata"]["name"]).unwrap_or_default(),
            word: word(outcome),
            revision,
            error,
        }
    }

    /// Returns it in the words of kubectl, with the namespace: `ippool/default created`.
    fn text(&self) -> String {
        let kind = self.kind.to_ascii_lowercase();
        match &self.namespace {
            Some(namespace) => format!("{kind}/{namespace}/{} {}", self.name, self.word),
            None => format!("{kind}/{} {}", self.name, self.word),
        }
    }

    fn json(self) -> Value {
        let optional = [
            ("namespace", self.namespace),
            ("resourceVersion", self.revision),
            ("error", self.error),
        ];
        let mut fields = Map::new();
        fields.insert("kind".into(), self.kind.into());
        fields.insert("name".into(), self.name.into());
        fields.insert("effect".into(), self.word.into());
        for (name, value) in optional {
            fields.extend(value.map(|value| (name.to_owned(), Value::String(value))));
        }
        Value::Object(fields)
    }
}

/// Returns the word for an outcome.
const fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Applied(applied) => applied.effect.word(),
        Outcome::Refused(_) => "refused",
        Outcome::Unknown(_) => "unknown",
        Outcome::NotWritten => "not written",
    }
}

/// Prints the outcomes, and returns the exit status of the command.
pub(super) fn print(
    documents: &[Document],
    values: &[Value],
    outcomes: &[Outcome],
    words: Words,
    is_json: bool,
) -> Result<ExitCode> {
    let mut results = Results::default();
    let mut list = Vec::new();
    for ((document, value), outcome) in documents.iter().zip(values).zip(outcomes) {
        let line = Line::new(value, outcome);
        if let Outcome::Applied(applied) = outcome {
            notes::report_written(document, applied.item.key.kind(), &applied.item.value);
        }
        if let Some(error) = &line.error {
            eprintln!("cambric: {}", document.fault(".", error.clone()));
        }
        let kind = kind_of(document).map_or("resource", calico_model::Kind::name);
        results.add(kind, matches!(outcome, Outcome::Applied(_)));
        match is_json {
            true => list.push(line.json()),
            false => println!("{}", line.text()),
        }
    }
    if is_json {
        println!("{}", serde_json::to_string_pretty(&list)?);
        return Ok(results.status());
    }
    Ok(results.print(words))
}

#[cfg(test)]
mod tests {
    use calico_store::Error;
    use serde_json::json;

    use super::*;

    #[test]
    fn outcome_has_the_words_of_kubectl() {
        let set = json!({"kind": "NetworkSet", "metadata": {"name": 7, "namespace": "prod"}});
        let line = Line::new(&set, &Outcome::NotWritten);
        assert_eq!(line.text(), "networkset/prod/7 not written");
        let pool = json!({"kind": "IPPool", "metadata": {"name": "default"}});
        let refused = Outcome::Refused(Error::NoSpace.into());
        let line = Line::new(&pool, &refused);
        assert_eq!(line.text(), "ippool/default refused");
        assert_eq!(
            line.json(),
            json!({"kind": "IPPool", "name": "default", "effect": "refused",
                "error": "the store: the store is full"})
        );
    }
}
