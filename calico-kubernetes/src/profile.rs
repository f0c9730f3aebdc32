//! Namespaces and service accounts as profiles.

use calico_model::{Action, ProfileSpec, Resource, Rule};
use serde_json::Value;

use crate::name::{account_profile, namespace_profile};
use crate::object::{begin, labels};
use crate::report::{Converted, Outcome, Reports};

/// The prefix of labels that endpoints inherit from their namespace.
pub const NAMESPACE_LABELS: &str = "pcns.";

/// The prefix of labels that endpoints inherit from their service account.
pub const ACCOUNT_LABELS: &str = "pcsa.";

/// The label, behind the prefix, with the name of the namespace or service account.
const NAME_LABEL: &str = "projectcalico.org/name";

/// The namespace of a service account without one.
const DEFAULT_NAMESPACE: &str = "default";

/// Converts a Namespace: its labels, and rules that allow everything, which apply to pods that no
/// policy selects.
pub fn namespace(value: &Value) -> Converted<Resource<ProfileSpec>> {
    let (reports, is_valid) = begin("Namespace", value, false);
    if !is_valid {
        return reports.unreadable();
    }
    let allow = vec![Rule::every(Action::Allow)];
    let spec = ProfileSpec {
        ingress: allow.clone(),
        egress: allow,
        ..ProfileSpec::default()
    };
    let name = namespace_profile(&reports.object.name);
    profile(value, &name, spec, NAMESPACE_LABELS, reports)
}

/// Converts a ServiceAccount: its labels, without rules.
pub fn service_account(value: &Value) -> Converted<Resource<ProfileSpec>> {
    let mut value = value.clone();
    let namespace = value.pointer("/metadata/namespace").and_then(Value::as_str);
    if namespace.is_none_or(str::is_empty)
        && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".to_owned(), DEFAULT_NAMESPACE.into());
    }
    let (reports, is_valid) = begin("ServiceAccount", &value, true);
    if !is_valid {
        return reports.unreadable();
    }
    let name = account_profile(&reports.object.namespace, &reports.object.name);
    profile(
        &value,
        &name,
        ProfileSpec::default(),
        ACCOUNT_LABELS,
        reports,
    )
}

/// Adds the labels. Without one of them, a selector could select too much or too little, so an
/// object with an invalid label has no new profile.
fn profile(
    value: &Value,
    name: &str,
    mut spec: ProfileSpec,
    prefix: &str,
    mut reports: Reports,
) -> Converted<Resource<ProfileSpec>> {
    let labels = match labels(value) {
        Ok(labels) => labels,
        Err(fault) => {
            reports.fault(fault, "the profile stays as it is");
            return reports.unreadable();
        }
    };
    let labels = labels.into_iter();
    spec.labels_to_apply = labels
        .map(|(key, value)| (format!("{prefix}{key}"), value))
        .collect();
    let own = reports.object.name.clone();
    spec.labels_to_apply
        .insert(format!("{prefix}{NAME_LABEL}"), own);
    reports.done(Outcome::Resource(Resource::new(name, spec)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stored(resource: Resource<ProfileSpec>) -> Value {
        serde_json::from_slice(&resource.encode().unwrap()).unwrap()
    }

    #[test]
    fn namespace_is_a_profile_that_allows_everything() {
        let labels = json!({"team": "a", "projectcalico.org/name": "other"});
        let found = namespace(&json!({"metadata": {"name": "prod", "labels": labels}}));
        assert_eq!(found.reports, []);
        let wanted = json!({"kind": "Profile", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": "kns.prod"},
            "spec": {"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}],
            "labelsToApply": {"pcns.projectcalico.org/name": "prod", "pcns.team": "a"}}});
        assert_eq!(stored(found.resource().unwrap()), wanted);
    }

    #[test]
    fn service_account_is_a_profile_without_rules() {
        let metadata = json!({"name": "web", "namespace": "prod", "labels": {"a": "x"}});
        let found = service_account(&json!({ "metadata": metadata }));
        let wanted = json!({"kind": "Profile", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": "ksa.prod.web"},
            "spec": {"labelsToApply": {"pcsa.projectcalico.org/name": "web", "pcsa.a": "x"}}});
        assert_eq!(stored(found.resource().unwrap()), wanted);
        let found = service_account(&json!({"metadata": {"name": "web"}}));
        assert_eq!(found.resource().unwrap().metadata.name, "ksa.default.web");
    }

    #[test]
    fn invalid_labels_leave_the_profile_as_it_is() {
        let metadata = json!({"name": "web", "namespace": "prod", "labels": {"a": 7}});
        for found in [
            namespace(&json!({ "metadata": metadata })),
            service_account(&json!({ "metadata": metadata })),
        ] {
            assert_eq!(found.outcome, Outcome::Unreadable);
            assert_eq!(found.reports[0].field, "metadata.labels");
        }
        assert_eq!(namespace(&json!(7)).outcome, Outcome::Unreadable);
        assert_eq!(service_account(&json!([])).outcome, Outcome::Unreadable);
    }
}
