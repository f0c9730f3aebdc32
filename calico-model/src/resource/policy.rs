//! Policies: the fields that writers set, and their names.
//!
//! Newer writers store a policy under its own name, and repeat the name in an annotation. Older
//! ones stored policies of the tier `default` under `default.<name>`, without the annotation.

use serde_json::{Map, Value, json};

use super::Metadata;

/// The annotation with the policy's own name, as JSON.
pub(super) const NAME_ANNOTATION: &str = "projectcalico.org/metadata";

/// The tier of a policy.
const TIER_LABEL: &str = "projectcalico.org/tier";

/// The default tier of policies.
pub const DEFAULT_TIER: &str = "default";

/// Returns the tier in a policy's spec.
fn tier(spec: &Map<String, Value>) -> &str {
    match spec.get("tier").and_then(Value::as_str) {
        None | Some("") => DEFAULT_TIER,
        Some(tier) => tier,
    }
}

/// Sets the fields of a policy with unparsed rules that a writer must set: its name, its tier, and
/// its directions.
pub(super) fn complete(spec: &mut Map<String, Value>, metadata: &mut Metadata) {
    complete_name(metadata, tier(spec));
    let rules = |spec: &Map<String, Value>, list: &str| {
        let rules = spec.get(list).and_then(Value::as_array);
        rules.is_some_and(|rules| !rules.is_empty())
    };
    let given = rules(spec, "types");
    if !given {
        let types = match (rules(spec, "ingress"), rules(spec, "egress")) {
            (true, true) => json!(["Ingress", "Egress"]),
            (false, true) => json!(["Egress"]),
            (_, false) => json!(["Ingress"]),
        };
        spec.insert("types".into(), types);
    }
}

/// Sets the metadata that a writer must set in every policy: its name and its tier.
pub(super) fn complete_name(metadata: &mut Metadata, tier: &str) {
    let name = json!({ "name": metadata.name }).to_string();
    metadata.annotations.insert(NAME_ANNOTATION.into(), name);
    metadata.labels.insert(TIER_LABEL.into(), tier.to_owned());
}

/// Returns the own name of a policy that is stored under `stored`.
pub(super) fn real_name(stored: &str, annotation: Option<&str>, tier: &str) -> String {
    let annotated: Option<Value> = annotation.and_then(|text| serde_json::from_str(text).ok());
    match annotated.as_ref().and_then(|given| given["name"].as_str()) {
        Some(name) => name.to_owned(),
        None if tier == DEFAULT_TIER => {
            stored.strip_prefix("default.").unwrap_or(stored).to_owned()
        }
        None => stored.to_owned(),
    }
}

/// Sets a stored policy's own name, and removes the annotation that holds it.
pub(super) fn name_for_people(value: &mut Value) {
    let annotations = value.pointer_mut("/metadata/annotations");
    let annotated = annotations
        .and_then(Value::as_object_mut)
        .and_then(|annotations| annotations.remove(NAME_ANNOTATION));
    if value.pointer("/metadata/annotations") == Some(&json!({}))
        && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("annotations");
    }
    let tier = value
        .get("spec")
        .and_then(Value::as_object)
        .map_or(DEFAULT_TIER, tier);
    let name = value["metadata"]["name"].as_str().map(|stored| {
        let annotation = annotated.as_ref().and_then(Value::as_str);
        real_name(stored, annotation, tier)
    });
    let tier = tier.to_owned();
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(name) = name {
        metadata.insert("name".into(), name.into());
    }
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.entry(TIER_LABEL).or_insert(tier.into());
    }
}
