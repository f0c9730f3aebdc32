//! The lists of groups and resources, which kubectl reads first.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::resources::{ALL, Resource};

/// The verbs of every resource.
const VERBS: [&str; 7] = [
    "create", "delete", "get", "list", "patch", "update", "watch",
];

/// The group of reviews of the client's own rights, which are no objects.
const REVIEWS: &str = "authorization.k8s.io/v1";

/// Returns the answer to a path of discovery; `None` for other paths.
pub(super) fn discovery(path: &str, has: impl Fn(Resource) -> bool) -> Option<Value> {
    let all = ALL.iter().copied().filter(|resource| has(*resource));
    let all: Vec<Resource> = all.collect();
    match path.trim_end_matches('/') {
        "/api" => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/apis" => Some(groups(&all)),
        "/api/v1" => Some(resources("v1", &all)),
        path => {
            let version = path.strip_prefix("/apis/")?;
            let is_known = all.iter().any(|resource| resource.version == version);
            (is_known || version == REVIEWS).then(|| resources(version, &all))
        }
    }
}

fn groups(all: &[Resource]) -> Value {
    let versions = all.iter().map(|resource| resource.version);
    let versions: BTreeSet<&str> = versions.chain([REVIEWS]).collect();
    let groups = versions.into_iter().filter_map(|group_version| {
        let (group, version) = group_version.split_once('/')?;
        let version = json!({"groupVersion": group_version, "version": version});
        Some(json!({"name": group, "versions": [version], "preferredVersion": version}))
    });
    json!({
        "kind": "APIGroupList", "apiVersion": "v1", "groups": groups.collect::<Vec<_>>(),
    })
}

fn resources(version: &str, all: &[Resource]) -> Value {
    let of = all.iter().filter(|resource| resource.version == version);
    let row = |resource: &Resource| {
        json!({
            "name": resource.plural, "singularName": resource.kind.to_lowercase(),
            "namespaced": resource.is_namespaced, "kind": resource.kind, "verbs": VERBS,
        })
    };
    let mut rows: Vec<Value> = of.map(row).collect();
    if version == REVIEWS {
        rows.push(json!({
            "name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview",
            "namespaced": false, "kind": "SelfSubjectAccessReview", "verbs": ["create"],
        }));
    }
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": rows,
    })
}
