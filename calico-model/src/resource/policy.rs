//! Policies: what writers put into them, and what they are called.
//!
//! Newer writers store a policy under the name that people use, and say so in an annotation. Older
//! ones stored those of the tier `default` under `default.<name>`, without the annotation.

use serde_json::{Map, Value, json};

use super::Metadata;

/// Holds the name that people use, as JSON.
pub(super) const NAME_ANNOTATION: &str = "projectcalico.org/metadata";

/// The tier of a policy.
const TIER_LABEL: &str = "projectcalico.org/tier";

/// The tier of policies that name none.
pub const DEFAULT_TIER: &str = "default";

/// The tier that a policy's spec names.
fn tier(spec: &Map<String, Value>) -> &str {
    match spec.get("tier").and_then(Value::as_str) {
        None | Some("") => DEFAULT_TIER,
        Some(tier) => tier,
    }
}

/// What a writer puts into a policy whose rules are not known here: its name, its tier, and which
/// directions it is for.
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

/// What a writer puts into every policy: its name and its tier.
pub(super) fn complete_name(metadata: &mut Metadata, tier: &str) {
    let name = json!({ "name": metadata.name }).to_string();
    metadata.annotations.insert(NAME_ANNOTATION.into(), name);
    metadata.labels.insert(TIER_LABEL.into(), tier.to_owned());
}

/// The name that people use of a policy that is stored under `stored`.
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

/// Gives a stored policy the name that people use, and takes the annotation away that holds it.
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
