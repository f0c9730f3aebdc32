//! Staged policies: they are stored, and nothing follows from them but a preview.

use calico_model::{Kind, ResourceKey};
use serde_json::{Map, Value};

use super::calculator::Calculator;
use super::kubernetes;
use super::types::Problem;
use crate::limits::PREVIEW_VALUES_MAX;

/// The effect that a staged policy would have.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// Kind and name of the staged policy.
    pub(crate) name: String,
    /// `Set` or `Delete`.
    pub(crate) action: &'static str,
    /// The stored values with the policy in effect.
    pub(crate) calculator: Calculator,
    /// The key of the enforced policy that it would set or delete.
    pub(crate) key: String,
    /// Whether that policy is enforced now.
    pub(crate) exists: bool,
}

impl Calculator {
    /// Records a staged policy.
    pub(super) fn staged(&mut self, key: &str, value: Option<&[u8]>) {
        match value {
            Some(octets) => self.staged.insert(key.to_owned(), octets.into()),
            None => self.staged.remove(key),
        };
    }

    /// Returns the stored values as they would be with a staged policy in effect. Its name is
    /// `namespace/name`, or the name alone, also with its kind before it. Nothing of this calculator
    /// changes.
    ///
    /// # Errors
    ///
    /// There is no such policy, or it has no effect that can be computed.
    pub(crate) fn trial(&self, name: &str) -> Result<Trial, String> {
        let all = self.staged.iter().filter_map(|(key, staged)| {
            let calico_model::Key::Resource(resource) = key.parse().ok()? else {
                return None;
            };
            Some((resource, &**staged))
        });
        let called: Vec<(ResourceKey, &[u8])> =
            all.filter(|(key, _)| is_called(key, name)).collect();
        let (resource, staged) = match &*called {
            [] => return Err(format!("there is no staged policy {name}")),
            [(resource, staged)] => (resource, staged),
            several => {
                let names: Vec<String> = several.iter().map(|(key, _)| named(key)).collect();
                return Err(format!(
                    "several staged policies are called {name}: {}",
                    names.join(", ")
                ));
            }
        };
        let name = named(resource);
        let mut value: Value = serde_json::from_slice(staged)
            .map_err(|error| format!("{name} is invalid: {error}"))?;
        let action = action(&mut value).map_err(|reason| format!("{name}: {reason}"))?;
        let enforced =
            enforced(resource, &mut value).map_err(|reason| format!("{name}: {reason}"))?;
        let key = enforced.to_string();
        let copied = self.index.members_len() + self.policies.len() + self.profiles.len();
        if copied > PREVIEW_VALUES_MAX {
            return Err(format!(
                "the preview would copy {copied} stored values, more than {PREVIEW_VALUES_MAX}: ask a host \
                 of a smaller cluster, or stage the policy there"
            ));
        }
        let exists = self.policies.contains_key(&key);
        let mut calculator = self.clone();
        let octets = value.to_string();
        let octets = (action == "Set").then_some(octets.as_bytes());
        if let Some(Problem { field, reason, .. }) = calculator.change(&key, octets) {
            return Err(format!("{name} is invalid: {field}: {reason}"));
        }
        if let Some(policy) = calculator.policies.get(&key)
            && !policy.scope.is_for_workloads()
        {
            return Err(format!(
                "{name} has doNotTrack or preDNAT: it applies to host endpoints only, and flows of \
                 these are not evaluated"
            ));
        }
        calculator.recompute();
        Ok(Trial {
            name,
            action,
            calculator,
            key,
            exists,
        })
    }

    /// Returns the endpoints of this host to which a policy applies, and its host endpoints, by name.
    pub(crate) fn endpoints_of(&self, policy: &str) -> Vec<String> {
        let applies = |key: &&String| self.index.used(key).any(|used| used == policy);
        let workloads = self.endpoints.keys().filter(applies);
        let workloads = workloads.filter_map(|key| Some(self.endpoints.get(key)?.resource.clone()));
        let hosts = self.hosts.endpoints.keys().filter(applies);
        let prefix = Kind::HostEndpoint.prefix();
        let hosts = hosts.map(|key| format!("HostEndpoint {}", key.trim_start_matches(&prefix)));
        workloads.chain(hosts).collect()
    }

    /// Returns the problems of a policy, which its endpoints have.
    pub(crate) fn problems_of(&self, policy: &str) -> Vec<String> {
        let problems = self.desired.problems.iter();
        let own = problems.filter(|problem| problem.key == policy);
        own.map(|Problem { field, reason, .. }| format!("{field}: {reason}"))
            .collect()
    }
}

/// Returns kind, namespace and name.
fn named(key: &ResourceKey) -> String {
    let kind = key.kind().name();
    match key.namespace() {
        Some(namespace) => format!("{kind} {namespace}/{}", key.name()),
        None => format!("{kind} {}", key.name()),
    }
}

/// Returns whether a policy has this name: the stored one, or that of users without its tier.
fn is_called(key: &ResourceKey, name: &str) -> bool {
    let own = named(key);
    let without_kind = own.split_once(' ').map_or("", |(_, rest)| rest);
    let stored = key.name();
    let of_users = stored.strip_prefix("default.").unwrap_or(stored);
    let with_namespace = match key.namespace() {
        Some(namespace) => format!("{namespace}/{of_users}"),
        None => of_users.to_owned(),
    };
    [own.as_str(), without_kind, &with_namespace].contains(&name)
}

/// Removes the action of a staged policy, and returns it.
fn action(value: &mut Value) -> Result<&'static str, String> {
    let spec = value.get_mut("spec").and_then(Value::as_object_mut);
    let action = spec.and_then(|spec| spec.remove("stagedAction"));
    match action.as_ref().map(Value::as_str) {
        None | Some(Some("" | "Set")) => Ok("Set"),
        Some(Some("Delete")) => Ok("Delete"),
        Some(Some(other @ ("Learn" | "Ignore"))) => Err(format!(
            "stagedAction {other}: the policy has no effect to preview"
        )),
        _ => {
            let text = action.unwrap_or_default();
            Err(format!(
                "stagedAction {text} is none of Set, Delete, Learn and Ignore"
            ))
        }
    }
}

/// Returns the key of the enforced policy that a staged one would set, and turns the value into it.
fn enforced(staged: &ResourceKey, value: &mut Value) -> Result<ResourceKey, String> {
    let (kind, name) = match staged.kind() {
        Kind::StagedGlobalNetworkPolicy => (Kind::GlobalNetworkPolicy, staged.name().to_owned()),
        Kind::StagedNetworkPolicy => (Kind::NetworkPolicy, staged.name().to_owned()),
        _ => {
            let spec = value.get("spec").cloned().unwrap_or_default();
            value["spec"] = kubernetes::policy(&spec)?;
            (Kind::NetworkPolicy, kubernetes::name(staged.name()))
        }
    };
    if let Some(fields) = value.as_object_mut() {
        rename(fields, kind, &name);
    }
    ResourceKey::new(kind, staged.namespace(), &name).map_err(|error| error.to_string())
}

fn rename(fields: &mut Map<String, Value>, kind: Kind, name: &str) {
    fields.insert("kind".into(), kind.name().into());
    let metadata = fields
        .entry("metadata")
        .or_insert_with(|| Map::new().into());
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("name".into(), name.into());
    }
}
