//! The parts that all objects have, and the reading of JSON without assumptions about its form.

use std::collections::BTreeMap;

use calico_model::{LABEL_VALUE_OCTETS_MAX, is_resource_name};
use serde_json::{Map, Value};

use crate::report::{Fault, ObjectName, Reports, quoted};

/// Labels or annotations.
pub(crate) type Labels = BTreeMap<String, String>;

/// Reads the name of an object, and its namespace if its kind has namespaces. Without a valid name
/// nothing can be written, which is reported.
pub(crate) fn begin(kind: &'static str, value: &Value, is_namespaced: bool) -> (Reports, bool) {
    let metadata = &value["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
    let namespace = match is_namespaced {
        true => text("namespace"),
        false => String::new(),
    };
    let name = text("name");
    let mut fields = vec![("name", is_resource_name(&name))];
    if is_namespaced {
        fields.push(("namespace", is_resource_name(&namespace)));
    }
    let mut reports = Reports::new(ObjectName {
        kind,
        namespace,
        name,
    });
    let mut is_valid = true;
    for (field, _) in fields.iter().filter(|(_, is_name)| !is_name) {
        let found = quoted(&metadata[field]);
        let field = format!("metadata.{field}");
        reports.add(field, format!("{found} is not a name; nothing is written"));
        is_valid = false;
    }
    (reports, is_valid)
}

/// Reads the labels of an object.
pub(crate) fn labels(value: &Value) -> Result<Labels, Fault> {
    let labels = texts_of(&value["metadata"]["labels"], "metadata.labels")?;
    let invalid = labels
        .iter()
        .find(|(key, value)| !is_label_key(key) || !is_label_value(value));
    match invalid {
        Some((key, value)) => {
            let reason = format!(
                "{} is not a label",
                quoted(&format!("{key}={value}").into())
            );
            Err(("metadata.labels".to_owned(), reason))
        }
        None => Ok(labels),
    }
}

/// Reads the annotations of an object.
pub(crate) fn annotations(value: &Value) -> Result<Labels, Fault> {
    texts_of(&value["metadata"]["annotations"], "metadata.annotations")
}

/// Reads an object whose values are texts.
pub(crate) fn texts_of(value: &Value, field: &str) -> Result<Labels, Fault> {
    let fault = |value: &Value| (field.to_owned(), format!("{} is not text", quoted(value)));
    let object = match value {
        Value::Null => return Ok(Labels::new()),
        Value::Object(object) => object,
        other => return Err((field.to_owned(), not(other, "an object"))),
    };
    let texts = object.iter().map(|(key, value)| match value.as_str() {
        Some(text) => Ok((key.clone(), text.to_owned())),
        None => Err(fault(value)),
    });
    texts.collect()
}

/// Returns the elements of a list; none if it is missing.
pub(crate) fn list<'v>(value: &'v Value, field: &str) -> Result<&'v [Value], Fault> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(list) => Ok(list),
        other => Err((field.to_owned(), not(other, "a list"))),
    }
}

/// Returns the object if it has no other fields than these. Fields that are null count as missing.
pub(crate) fn object<'v>(
    value: &'v Value,
    field: &str,
    known: &[&str],
) -> Result<&'v Map<String, Value>, Fault> {
    let Value::Object(object) = value else {
        return Err((field.to_owned(), not(value, "an object")));
    };
    match unknown(object, known) {
        Some(name) => Err((format!("{field}.{name}"), "the field is unknown".to_owned())),
        None => Ok(object),
    }
}

/// Returns the first field that is not one of these.
pub(crate) fn unknown<'v>(object: &'v Map<String, Value>, known: &[&str]) -> Option<&'v String> {
    let mut set = object.iter().filter(|(_, value)| !value.is_null());
    let found = set.find(|(name, _)| !known.contains(&name.as_str()));
    found.map(|(name, _)| name)
}

/// Returns the reason for a value of another form.
pub(crate) fn not(found: &Value, expected: &str) -> String {
    format!("{} is not {expected}", quoted(found))
}

/// Returns whether a text is the key of a label.
pub(crate) fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.rsplit_once('/').unwrap_or(("prefix", text));
    !name.is_empty() && is_label_value(name) && is_resource_name(prefix)
}

/// Returns whether a text is the value of a label.
pub(crate) fn is_label_value(text: &str) -> bool {
    let octets = text.as_bytes();
    let is_edge = |octet: Option<&u8>| octet.is_none_or(u8::is_ascii_alphanumeric);
    text.len() <= LABEL_VALUE_OCTETS_MAX
        && is_edge(octets.first())
        && is_edge(octets.last())
        && octets
            .iter()
            .all(|octet| octet.is_ascii_alphanumeric() || b"-_.".contains(octet))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn object_without_a_valid_name_is_reported() {
        let value = json!({"metadata": {"name": "web", "namespace": "prod"}});
        let (reports, is_valid) = begin("Pod", &value, true);
        assert!(is_valid);
        assert_eq!(reports.object.to_string(), "Pod prod/web");
        for value in [json!({}), json!(7), json!({"metadata": {"name": "A/b"}})] {
            let (reports, is_valid) = begin("Pod", &value, true);
            assert!(!is_valid);
            let found = reports.unreadable::<()>().reports;
            assert_eq!(found.len(), 2, "{value}");
            assert_eq!(found[0].field, "metadata.name");
        }
    }

    #[test]
    fn labels_have_the_form_of_kubernetes() {
        let of = |labels: Value| labels_of(&labels);
        fn labels_of(labels: &Value) -> bool {
            super::labels(&json!({"metadata": {"labels": labels}})).is_ok()
        }
        for valid in [json!(null), json!({"a.b/c-d_e": "", "z": "1.x_Y"})] {
            assert!(of(valid.clone()), "{valid}");
        }
        let long = "a".repeat(64);
        for invalid in [
            json!([]),
            json!({"a": 7}),
            json!({"a": null}),
            json!({"": "x"}),
            json!({"/a": "x"}),
            json!({"A/a": "x"}),
            json!({"a": "it's"}),
            json!({"a": "-x"}),
            json!({ "a": long }),
        ] {
            assert!(!of(invalid.clone()), "{invalid}");
        }
    }
}
