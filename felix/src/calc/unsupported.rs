//! Finds the fields of stored values that Felix does not support, so that they are reported: the
//! table is [`calico_model::declared`].

use std::collections::BTreeSet;

use calico_model::{Kind, Program, UnsupportedField, unsupported_fields};
use serde_json::Value;

use super::types::Problem;

/// Returns the set fields of a value without effect that Felix has to report. Fields of rules are
/// reported with the endpoints that use the rules.
pub(super) fn unsupported(key: &str, kind: Kind, octets: &[u8]) -> BTreeSet<Problem> {
    let Ok(value) = serde_json::from_slice::<Value>(octets) else {
        return BTreeSet::new();
    };
    let is_of_rule = |field: &str| {
        ["spec.ingress[", "spec.egress["]
            .iter()
            .any(|list| field.starts_with(list))
    };
    let found = unsupported_fields(kind, &value).into_iter();
    let found = found.filter(|one| one.due == Some(Program::Felix) && !is_of_rule(&one.field));
    if kind == Kind::FelixConfiguration {
        return settings(key, found.collect()).into_iter().collect();
    }
    found
        .map(|one| Problem::new(key, one.field, one.reason))
        .collect()
}

/// Combines those of a FelixConfiguration into one problem: there may be a hundred.
fn settings(key: &str, found: Vec<UnsupportedField>) -> Option<Problem> {
    match &*found {
        [] => None,
        [one] => Some(Problem::new(key, &one.field, &one.reason)),
        all => {
            let names = all.iter().map(|one| one.field.trim_start_matches("spec."));
            let names: Vec<&str> = names.collect();
            let reason = format!("settings without effect: {}", names.join(", "));
            Some(Problem::new(key, "spec", reason))
        }
    }
}
