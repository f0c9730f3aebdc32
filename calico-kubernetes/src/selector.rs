//! Label selectors of Kubernetes as selectors of Calico.

use calico_model::Selector;
use serde_json::Value;

use crate::limits::SELECTOR_OCTETS_MAX;
use crate::object::{is_label_key, is_label_value, list, not, object, texts_of};
use crate::report::{Fault, quoted};

/// The selector of pods: endpoints of other orchestrators and network sets are not pods.
pub(crate) const PODS: &str = "projectcalico.org/orchestrator == 'k8s'";

/// The selector of all namespaces.
const ALL: &str = "all()";

/// A label selector: its readable terms, and the first invalid part.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    path: String,
    terms: Vec<String>,
    octets: usize,
    pub(crate) fault: Option<Fault>,
}

impl Terms {
    /// Returns the selector of pods that all readable terms select.
    pub(crate) fn of_pods(&self) -> String {
        let terms = self.terms.iter().map(String::as_str);
        [PODS]
            .into_iter()
            .chain(terms)
            .collect::<Vec<_>>()
            .join(" && ")
    }

    /// Returns the selector of namespaces that all readable terms select.
    pub(crate) fn of_namespaces(&self) -> String {
        match self.terms.is_empty() {
            true => ALL.to_owned(),
            false => self.terms.join(" && "),
        }
    }

    fn add(&mut self, term: Result<String, Fault>) {
        match term.and_then(|term| self.fits(term)) {
            Ok(term) => self.terms.push(term),
            Err(fault) => {
                self.fault.get_or_insert(fault);
            }
        }
    }
}

impl Terms {
    /// Returns the term if there is room for it.
    fn fits(&mut self, term: String) -> Result<String, Fault> {
        self.octets = self
            .octets
            .saturating_add(term.len())
            .saturating_add(" && ".len());
        match self.octets <= SELECTOR_OCTETS_MAX {
            true => Ok(term),
            false => {
                let reason = format!("the selector has more than {SELECTOR_OCTETS_MAX} octets");
                Err((self.path.clone(), reason))
            }
        }
    }
}

/// Reads a label selector; a missing one selects everything.
pub(crate) fn terms(value: &Value, field: &str) -> Terms {
    let mut found = Terms {
        path: field.to_owned(),
        ..Terms::default()
    };
    if value.is_null() {
        return found;
    }
    if let Err(fault) = object(value, field, &["matchLabels", "matchExpressions"]) {
        found.fault = Some(fault);
    }
    labels(value, field, &mut found);
    let path = format!("{field}.matchExpressions");
    match list(&value["matchExpressions"], &path) {
        Ok(list) => {
            for (at, expression) in list.iter().enumerate() {
                found.add(requirement(expression, &format!("{path}[{at}]")));
            }
        }
        Err(fault) => found.add(Err(fault)),
    }
    found
}

fn labels(value: &Value, field: &str, found: &mut Terms) {
    let path = format!("{field}.matchLabels");
    match texts_of(&value["matchLabels"], &path) {
        Ok(labels) => {
            for (key, value) in labels {
                found.add(equal(&key, &value, &path));
            }
        }
        Err(fault) => found.add(Err(fault)),
    }
}

fn equal(key: &str, value: &str, path: &str) -> Result<String, Fault> {
    checked(key, [value], path)?;
    parsed(format!("{key} == '{value}'"), path)
}

/// Reads an element of `matchExpressions`.
fn requirement(value: &Value, path: &str) -> Result<String, Fault> {
    object(value, path, &["key", "operator", "values"])?;
    let key = value["key"].as_str().unwrap_or_default();
    let field = format!("{path}.values");
    let values = list(&value["values"], &field)?;
    let texts: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
    let texts = texts.ok_or_else(|| (field.clone(), "a value is not text".to_owned()))?;
    checked(key, texts.iter().copied(), path)?;
    let given = format!("'{}'", texts.join("', '"));
    let term = match (value["operator"].as_str(), texts.is_empty()) {
        (Some("In"), false) => format!("{key} in {{ {given} }}"),
        (Some("NotIn"), false) => format!("{key} not in {{ {given} }}"),
        (Some("Exists"), true) => format!("has({key})"),
        (Some("DoesNotExist"), true) => format!("! has({key})"),
        (Some("In" | "NotIn"), true) => return Err((field, "values are required".to_owned())),
        (Some("Exists" | "DoesNotExist"), false) => {
            return Err((field, "the operator has no values".to_owned()));
        }
        _ => {
            let reason = not(&value["operator"], "an operator");
            return Err((format!("{path}.operator"), reason));
        }
    };
    parsed(term, path)
}

fn checked<'t>(
    key: &str,
    values: impl IntoIterator<Item = &'t str>,
    path: &str,
) -> Result<(), Fault> {
    let fault = |text: &str, expected: &str| {
        let reason = format!("{} is not {expected}", quoted(&text.into()));
        Err((path.to_owned(), reason))
    };
    if !is_label_key(key) {
        return fault(key, "the key of a label");
    }
    match values.into_iter().find(|value| !is_label_value(value)) {
        Some(value) => fault(value, "the value of a label"),
        None => Ok(()),
    }
}

/// Returns a term that the reader of selectors accepts.
fn parsed(term: String, path: &str) -> Result<String, Fault> {
    match term.parse::<Selector>() {
        Ok(_) => Ok(term),
        Err(error) => Err((path.to_owned(), error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors_have_the_text_of_calico() {
        let found = terms(
            &json!({
                "matchExpressions": [
                    {"key": "a", "operator": "NotIn", "values": ["x", "y"]},
                    {"key": "b", "operator": "DoesNotExist"},
                    {"key": "c", "operator": "Exists", "values": []},
                    {"key": "d", "operator": "In", "values": ["x", ""]},
                ],
                "matchLabels": {"z": "1", "a.b/c": ""},
            }),
            "spec.podSelector",
        );
        assert_eq!(found.fault, None);
        let own = "a.b/c == '' && z == '1' && a not in { 'x', 'y' } && ! has(b) && has(c) \
            && d in { 'x', '' }";
        assert_eq!(found.of_namespaces(), own);
        let of_pods = format!("projectcalico.org/orchestrator == 'k8s' && {own}");
        assert_eq!(found.of_pods(), of_pods);
        for empty in [json!(null), json!({}), json!({"matchLabels": null})] {
            let found = terms(&empty, "spec.podSelector");
            assert_eq!(found.of_pods(), PODS);
            assert_eq!(found.of_namespaces(), "all()");
        }
    }

    #[test]
    fn invalid_term_is_a_fault_beside_the_valid_ones() {
        let valid = json!({"key": "a", "operator": "Exists"});
        for (expression, field) in [
            (
                json!({"key": "a", "operator": "Gt", "values": ["1"]}),
                ".operator",
            ),
            (json!({"key": "a", "operator": "In"}), ".values"),
            (
                json!({"key": "a", "operator": "Exists", "values": ["x"]}),
                ".values",
            ),
            (
                json!({"key": "a", "operator": "In", "values": [7]}),
                ".values",
            ),
            (
                json!({"key": "a", "operator": "In", "values": "x"}),
                ".values",
            ),
            (json!({"key": "it's", "operator": "Exists"}), ""),
            (
                json!({"key": "a", "operator": "In", "values": ["' || all()"]}),
                "",
            ),
            (json!({"operator": "Exists"}), ""),
            (json!({"key": "a", "operator": "Exists", "new": 7}), ".new"),
            (json!(7), ""),
        ] {
            let found = terms(&json!({"matchExpressions": [expression, valid]}), "s");
            assert_eq!(found.of_namespaces(), "has(a)", "{expression}");
            let wanted = format!("s.matchExpressions[0]{field}");
            assert_eq!(found.fault.unwrap().0, wanted, "{expression}");
        }
        for (selector, field) in [
            (json!([]), "s"),
            (json!({"matchNames": ["x"]}), "s.matchNames"),
            (json!({"matchLabels": {"a": 7}}), "s.matchLabels"),
            (json!({"matchLabels": {"a": "b c"}}), "s.matchLabels"),
            (json!({"matchExpressions": {}}), "s.matchExpressions"),
        ] {
            assert_eq!(terms(&selector, "s").fault.unwrap().0, field, "{selector}");
        }
    }
}
