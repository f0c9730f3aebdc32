//! The objects of the server with their history: every write has a revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::resources::{Resource, of_kind};
use super::status::Rejected;

/// Changes that are kept. Older ones expire.
const CHANGES_MAX: usize = 100_000;

/// Resource, namespace and name of an object.
pub(super) type ObjectKey = (Resource, String, String);

/// A change of an object.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) key: ObjectKey,
    pub(super) before: Option<Arc<Value>>,
    pub(super) after: Option<Arc<Value>>,
}

/// All objects.
#[derive(Debug)]
pub(super) struct Objects {
    pub(super) revision: u64,
    /// A watch from an earlier revision has expired.
    pub(super) watchable_from: u64,
    /// A list at an earlier revision has expired.
    pub(super) listable_from: u64,
    current: BTreeMap<ObjectKey, Arc<Value>>,
    changes: Vec<Change>,
    /// The number of UIDs that were given.
    uids: u64,
    /// The part of UIDs that distinguishes servers.
    server: u64,
}

impl Objects {
    pub(super) const fn new(server: u64) -> Self {
        Self {
            revision: 1,
            watchable_from: 1,
            listable_from: 1,
            current: BTreeMap::new(),
            changes: Vec::new(),
            uids: 0,
            server,
        }
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Value> {
        self.current.get(key).map(|object| &**object)
    }

    /// Creates an object with the fields and defaults that the server sets.
    pub(super) fn create(&mut self, key: &ObjectKey, mut object: Value) -> Result<Value, Rejected> {
        let (resource, namespace, name) = key;
        if self.current.contains_key(key) {
            let message = format!("{} \"{name}\" already exists", resource.plural);
            return Err(Rejected::new(409, "AlreadyExists", message));
        }
        let is_missing = |namespace: &str| {
            let of = of_kind("Namespace").map(|of| (of, String::new(), namespace.to_owned()));
            !of.is_some_and(|key| self.current.contains_key(&key))
        };
        if resource.is_namespaced && is_missing(namespace) {
            return Err(Rejected::no_object("namespaces", namespace));
        }
        self.uids += 1;
        let uid = format!("{:08x}-0000-4000-8000-{:012x}", self.server, self.uids);
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(uid);
        metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        defaults(key, &mut object);
        Ok(self.write(key, object))
    }

    /// Replaces an object. A version in it must be the present one.
    pub(super) fn update(
        &mut self,
        key: &ObjectKey,
        mut object: Value,
        is_status: bool,
    ) -> Result<Value, Rejected> {
        let (resource, _, name) = key;
        let Some(before) = self.current.get(key) else {
            return Err(Rejected::no_object(resource.plural, name));
        };
        let given = &object["metadata"]["resourceVersion"];
        if given.is_string() && *given != before["metadata"]["resourceVersion"] {
            let message = format!(
                "Operation cannot be fulfilled on {} \"{name}\": the object has been modified; \
                 please apply your changes to the latest version and try again",
                resource.plural
            );
            return Err(Rejected::new(409, "Conflict", message));
        }
        let given = &object["metadata"]["uid"];
        if given.is_string() && *given != before["metadata"]["uid"] {
            let message = format!(
                "Operation cannot be fulfilled on {} \"{name}\": Precondition failed: UID in \
                 precondition: {given}, UID in object meta: {}",
                resource.plural, before["metadata"]["uid"]
            );
            return Err(Rejected::new(409, "Conflict", message));
        }
        for field in ["uid", "creationTimestamp"] {
            object["metadata"][field] = before["metadata"][field].clone();
        }
        // The status has a path of its own.
        let mut next = Value::clone(before);
        if is_status {
            next["status"] = object["status"].clone();
        } else {
            let status = before["status"].clone();
            next = object;
            match status {
                Value::Null => drop(next.as_object_mut().map(|next| next.remove("status"))),
                status => next["status"] = status,
            }
        }
        defaults(key, &mut next);
        let mut same = next.clone();
        same["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        if same == **before {
            return Ok(same);
        }
        Ok(self.write(key, next))
    }

    pub(super) fn delete(&mut self, key: &ObjectKey) -> Result<Value, Rejected> {
        let (resource, _, name) = key;
        match self.current.get(key).cloned() {
            Some(last) => {
                self.record(key, None);
                let mut last = Arc::unwrap_or_clone(last);
                last["metadata"]["resourceVersion"] = json!(self.revision.to_string());
                Ok(last)
            }
            None => Err(Rejected::no_object(resource.plural, name)),
        }
    }

    fn write(&mut self, key: &ObjectKey, mut object: Value) -> Value {
        object["metadata"]["resourceVersion"] = json!((self.revision + 1).to_string());
        self.record(key, Some(Arc::new(object.clone())));
        object
    }

    fn record(&mut self, key: &ObjectKey, object: Option<Arc<Value>>) {
        self.revision += 1;
        let before = match &object {
            Some(object) => self.current.insert(key.clone(), Arc::clone(object)),
            None => self.current.remove(key),
        };
        self.changes.push(Change {
            revision: self.revision,
            key: key.clone(),
            before,
            after: object,
        });
        if self.changes.len() > CHANGES_MAX {
            let expired = self.changes.remove(0).revision;
            self.watchable_from = self.watchable_from.max(expired);
            self.listable_from = self.listable_from.max(expired);
        }
    }

    /// Returns the objects of a resource at a revision, in the order of their keys.
    pub(super) fn at(&self, resource: Resource, revision: u64) -> BTreeMap<ObjectKey, Arc<Value>> {
        let mut all: BTreeMap<ObjectKey, Arc<Value>> = self
            .current
            .iter()
            .filter(|((of, ..), _)| *of == resource)
            .map(|(key, value)| (key.clone(), Arc::clone(value)))
            .collect();
        let later = self.changes.iter().rev();
        let later = later.take_while(|change| change.revision > revision);
        for change in later.filter(|change| change.key.0 == resource) {
            match &change.before {
                Some(before) => drop(all.insert(change.key.clone(), Arc::clone(before))),
                None => drop(all.remove(&change.key)),
            }
        }
        all
    }

    /// Returns the changes of a resource after a revision.
    pub(super) fn since(&self, resource: Resource, revision: u64) -> Vec<Change> {
        let after = self
            .changes
            .partition_point(|change| change.revision <= revision);
        let changes = self.changes.get(after..).unwrap_or_default().iter();
        let of = changes.filter(|change| change.key.0 == resource);
        of.cloned().collect()
    }

    /// Removes the history: watches and lists of earlier revisions expire.
    pub(super) const fn compact(&mut self) {
        self.watchable_from = self.revision;
        self.listable_from = self.revision;
    }

    /// Goes back to the objects of an earlier revision, as a restored backup does. The revision is that
    /// one plus `bump`.
    pub(super) fn restore(&mut self, revision: u64, bump: u64) {
        while self
            .changes
            .last()
            .is_some_and(|change| change.revision > revision)
        {
            let Some(change) = self.changes.pop() else {
                break;
            };
            match change.before {
                Some(before) => drop(self.current.insert(change.key, before)),
                None => drop(self.current.remove(&change.key)),
            }
        }
        self.revision = revision + bump;
    }
}

/// Sets the fields that the server sets, as recorded from Kubernetes 1.36.
fn defaults((resource, _, name): &ObjectKey, object: &mut Value) {
    object["apiVersion"] = json!(resource.version);
    object["kind"] = json!(resource.kind);
    match resource.kind {
        "Namespace" => {
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
            if object["status"].is_null() {
                object["status"] = json!({"phase": "Active"});
            }
            if object["spec"].is_null() {
                object["spec"] = json!({"finalizers": ["kubernetes"]});
            }
        }
        "NetworkPolicy" => policy_defaults(&mut object["spec"]),
        _ => {}
    }
}

fn policy_defaults(spec: &mut Value) {
    if spec["podSelector"].is_null() {
        spec["podSelector"] = json!({});
    }
    let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    if is_empty(&spec["policyTypes"]) {
        spec["policyTypes"] = match is_empty(&spec["egress"]) {
            true => json!(["Ingress"]),
            false => json!(["Ingress", "Egress"]),
        };
    }
    for direction in ["ingress", "egress"] {
        let rules = spec.get_mut(direction).and_then(Value::as_array_mut);
        let rules = rules.into_iter().flatten();
        let ports = rules.filter_map(|rule| rule.get_mut("ports")?.as_array_mut());
        for port in ports.flatten() {
            if port.is_object() && port["protocol"].is_null() {
                port["protocol"] = json!("TCP");
            }
        }
        if let Some(map) = spec.as_object_mut()
            && map.get(direction).is_some_and(is_empty)
        {
            map.remove(direction);
        }
    }
}

/// Applies a JSON merge patch (RFC 7396).
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (field, value) in patch {
        match (value, target.as_object_mut()) {
            (Value::Null, Some(map)) => drop(map.remove(field)),
            (_, Some(map)) => {
                let inner = map.entry(field).or_insert(Value::Null);
                merge(inner, value);
            }
            (_, None) => {}
        }
    }
}

/// Applies a strategic merge patch. Conditions of a status are merged by their type, and addresses of
/// Nodes likewise; other lists are replaced.
pub(super) fn merge_strategically(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (field, value) in patch {
        let Some(map) = target.as_object_mut() else {
            return;
        };
        if value.is_null() {
            map.remove(field);
            continue;
        }
        let inner = map.entry(field).or_insert(Value::Null);
        match (value, field.as_str()) {
            (Value::Array(items), "conditions" | "addresses") => merge_list(inner, items),
            _ => merge_strategically(inner, value),
        }
    }
}

fn merge_list(target: &mut Value, items: &[Value]) {
    if !target.is_array() {
        *target = json!([]);
    }
    let Some(all) = target.as_array_mut() else {
        return;
    };
    for item in items {
        let same = all.iter().position(|one| one["type"] == item["type"]);
        match (same, item["$patch"] == "delete") {
            (Some(at), true) => drop(all.remove(at)),
            (Some(at), false) => merge_strategically(&mut all[at], item),
            (None, true) => {}
            (None, false) => all.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_patches_follow_the_examples_of_the_rfc() {
        for (target, patch, wanted) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (
                json!([1, 2]),
                json!({"a": "b", "c": null}),
                json!({"a": "b"}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            let mut merged = target.clone();
            merge(&mut merged, &patch);
            assert_eq!(merged, wanted, "{target} {patch}");
        }
    }

    #[test]
    fn strategic_patch_merges_conditions_by_type() {
        let mut node = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "NetworkUnavailable", "status": "True", "reason": "NoRoute"},
        ]}});
        let up = json!({"type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp"});
        merge_strategically(&mut node, &json!({"status": {"conditions": [up]}}));
        let ready = json!({"type": "Ready", "status": "True"});
        assert_eq!(node["status"]["conditions"], json!([ready, up]));
    }
}
