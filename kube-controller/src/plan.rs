//! The change of one resource: a comparison of the objects with the stored value.

use bytes::Bytes;
use calico_kubernetes::{ADMIN_TIER, BASELINE_TIER, Outcome, PodEndpoint, tiers};
use calico_model::{
    EncodeError, EndpointSlice, Kind, NodeSpec, Resource, ResourceKey, SliceKey, Spec, TierSpec,
    WorkloadEndpointSpec,
};
use calico_store::Revision;
use calico_store::resources::complete;
use serde_json::{Value as Json, json};

use crate::kinds::Watched;
use crate::object::Wanted;
use crate::objects::{Completeness, Objects};
use crate::stored::{Stored, Value, endpoint_name, pod_of};
use crate::target::Target;

/// The change of a resource in the datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The resource is as it should be, or belongs to another writer.
    Nothing,
    /// Write the value.
    Put {
        /// The value.
        octets: Bytes,
        /// The revision that the stored value must have; zero: there must be none.
        was: Revision,
    },
    /// Delete the resource: its object does not exist.
    Delete {
        /// The revision that the stored value must have.
        was: Revision,
    },
}

/// Returns the change of a resource.
///
/// # Errors
///
/// The resource cannot be written: the reason.
pub fn plan(key: &ResourceKey, objects: &Objects, stored: &Stored) -> Result<Change, String> {
    let found = stored.get(&key.clone().into());
    let planned = match key.kind() {
        Kind::WorkloadEndpoint => endpoint(key, objects, stored, found),
        Kind::Node => node(key, objects, found),
        Kind::Tier => return tier(key, objects, found),
        _ => owned(key, objects, found),
    };
    planned.map_err(|error| error.to_string())
}

/// Plans a profile or a policy.
fn owned(
    key: &ResourceKey,
    objects: &Objects,
    found: Option<&Value>,
) -> Result<Change, EncodeError> {
    let target = Target::from(key.clone());
    let Some(watched) = Watched::owner_of(&target) else {
        return Ok(Change::Nothing);
    };
    let delete = || delete(found);
    let Some(object) = objects.owner(&target) else {
        return Ok(deleted(watched, objects, found));
    };
    match &object.outcome {
        Outcome::Unreadable => Ok(Change::Nothing),
        Outcome::Absent => Ok(delete()),
        Outcome::Resource(Wanted::Profile(profile)) => put(profile, found),
        Outcome::Resource(Wanted::Policy(policy)) => put(policy, found),
        // A policy that has moved to the other tier has another name.
        Outcome::Resource(Wanted::GlobalPolicy(policy)) => match policy.key()? == *key {
            true => put(policy, found),
            false => Ok(delete()),
        },
        Outcome::Resource(_) => Ok(Change::Nothing),
    }
}

/// Returns the change of a key without an object. Only a complete list shows that there is none.
fn deleted(watched: Watched, objects: &Objects, found: Option<&Value>) -> Change {
    match objects.completeness(watched) {
        Completeness::Complete => delete(found),
        Completeness::Unknown | Completeness::Missing => Change::Nothing,
    }
}

fn delete(found: Option<&Value>) -> Change {
    match found {
        Some(found) => Change::Delete {
            was: found.revision,
        },
        None => Change::Nothing,
    }
}

/// Plans the members of a service for Felix. A service without slices has one record without members,
/// with its own name: without a record, the rules with the service are closed.
pub fn plan_slice(key: &SliceKey, objects: &Objects, stored: &Stored) -> Change {
    let target = Target::Slice(key.clone());
    let found = stored.get(&target);
    let members = match objects.owner(&target).map(|object| &object.outcome) {
        Some(Outcome::Resource(Wanted::Slice(slice))) => slice.members.1.clone(),
        Some(Outcome::Unreadable) => return Change::Nothing,
        _ if is_empty_record(key, objects) => EndpointSlice::default(),
        // The record may be that of a service which is not listed yet.
        _ if objects.completeness(Watched::Service) != Completeness::Complete => {
            return Change::Nothing;
        }
        _ => return deleted(Watched::EndpointSlice, objects, found),
    };
    let parsed = found.and_then(|found| EndpointSlice::parse(&found.octets).ok());
    // A service is without slices only if all slices are known.
    let is_known = objects.completeness(Watched::EndpointSlice) == Completeness::Complete;
    match !is_known || parsed.as_ref() == Some(&members) {
        true => Change::Nothing,
        false => Change::Put {
            octets: members.encode().into(),
            was: found.map_or(Revision::ZERO, |found| found.revision),
        },
    }
}

/// Returns whether the key is that of a service without slices.
pub(crate) fn is_empty_record(key: &SliceKey, objects: &Objects) -> bool {
    key.slice == key.service.name
        && objects.service(&key.service).is_some()
        && !objects.has_slices(&key.service)
}

/// Plans a resource of the controller. Its spec is replaced; labels and annotations of others stay.
fn put<S: Spec>(wanted: &Resource<S>, found: Option<&Value>) -> Result<Change, EncodeError> {
    let parsed = found.and_then(|found| Resource::<S>::parse(&found.octets).ok());
    let mut next = match &parsed {
        Some(parsed) => parsed.clone(),
        None => wanted.clone(),
    };
    next.spec = wanted.spec.clone();
    let (metadata, own) = (&mut next.metadata, &wanted.metadata);
    metadata.name.clone_from(&own.name);
    metadata.namespace.clone_from(&own.namespace);
    metadata.labels.extend(own.labels.clone());
    metadata.annotations.extend(own.annotations.clone());
    replace(next, parsed.as_ref(), found)
}

/// Plans a value in place of the stored one, which was parsed before.
pub(crate) fn replace<S: Spec>(
    next: Resource<S>,
    parsed: Option<&Resource<S>>,
    found: Option<&Value>,
) -> Result<Change, EncodeError> {
    let next = next.completed()?;
    if parsed == Some(&next) {
        return Ok(Change::Nothing);
    }
    let octets = match serde_json::from_slice::<Json>(&next.encode()?) {
        Ok(value) => complete(value, &Json::Null).to_string(),
        // A value that was just encoded is JSON.
        Err(error) => unreachable!("{error}"),
    };
    Ok(Change::Put {
        octets: octets.into(),
        was: found.map_or(Revision::ZERO, |found| found.revision),
    })
}

/// Plans a tier of ClusterNetworkPolicies. It is created with the first policy. A stored one belongs to
/// its writer; another order or default action than that of the policies is an error.
fn tier(key: &ResourceKey, objects: &Objects, found: Option<&Value>) -> Result<Change, String> {
    let mut all = tiers().into_iter();
    let wanted = all.find(|tier| tier.metadata.name == key.name());
    let Some(wanted) = wanted.filter(|_| objects.count(Watched::ClusterNetworkPolicy) > 0) else {
        return Ok(Change::Nothing);
    };
    let Some(found) = found else {
        return put(&wanted, None).map_err(|error| error.to_string());
    };
    let stored = Resource::<TierSpec>::parse(&found.octets);
    let stored = stored.map_err(|error| format!("the stored tier is unreadable: {error}"))?;
    let order = |spec: &TierSpec| spec.order.as_ref().and_then(serde_json::Number::as_f64);
    let (spec, wanted) = (&stored.spec, &wanted.spec);
    match order(spec) == order(wanted) && spec.default_action == wanted.default_action {
        true => Ok(Change::Nothing),
        false => Err(format!(
            "the stored tier has another order or default action; ClusterNetworkPolicies need {} and {}",
            json!(wanted.order),
            json!(wanted.default_action),
        )),
    }
}

/// Returns the keys of the tiers.
pub(crate) fn tier_keys() -> impl Iterator<Item = ResourceKey> {
    let names = [ADMIN_TIER, BASELINE_TIER].into_iter();
    names.filter_map(|name| ResourceKey::new(Kind::Tier, None, name).ok())
}

/// Plans the endpoint of a pod. It is never created or deleted: the CNI plugin does both. The value is
/// changed as JSON, so that fields of other writers stay.
fn endpoint(
    key: &ResourceKey,
    objects: &Objects,
    stored: &Stored,
    found: Option<&Value>,
) -> Result<Change, EncodeError> {
    let pod = pod_of(key).and_then(|pod| objects.pod(&pod));
    let (Some(pod), Some(found)) = (pod, found) else {
        return Ok(Change::Nothing);
    };
    if !is_on_node(key, pod, objects, stored) {
        return Ok(Change::Nothing);
    }
    let Ok(mut endpoint) = Resource::<WorkloadEndpointSpec>::parse(&found.octets) else {
        return Ok(Change::Nothing);
    };
    let mut is_changed = pod.update(&mut endpoint);
    let spec = &mut endpoint.spec;
    if spec.ports != pod.ports {
        spec.ports.clone_from(&pod.ports);
        is_changed = true;
    }
    // The plugin adds the profile of the service account only if the runtime names the account.
    let are_own = spec.profiles.iter().all(|name| pod.profiles.contains(name));
    if are_own && spec.profiles != pod.profiles {
        spec.profiles.clone_from(&pod.profiles);
        is_changed = true;
    }
    if !is_changed {
        return Ok(Change::Nothing);
    }
    let spec = &endpoint.spec;
    let fields = [
        ("serviceAccountName", json!(spec.service_account_name)),
        ("ports", json!(spec.ports)),
        ("profiles", json!(spec.profiles)),
    ];
    Ok(patched(found, |value| {
        value["metadata"]["labels"] = json!(endpoint.metadata.labels);
        for (field, new) in fields {
            match new == json!("") || new == json!([]) {
                true => drop(value["spec"].as_object_mut().map(|spec| spec.remove(field))),
                false => value["spec"][field] = new,
            }
        }
    }))
}

/// Returns whether an endpoint is on the node of its pod. An endpoint of an earlier pod with the same
/// name may be left on another node.
fn is_on_node(key: &ResourceKey, pod: &PodEndpoint, objects: &Objects, stored: &Stored) -> bool {
    let Some(name) = endpoint_name(key) else {
        return false;
    };
    let Some(node) = objects.node(&pod.node) else {
        return name.node() == pod.node;
    };
    let spec = ResourceKey::new(Kind::Node, None, name.node()).ok();
    let spec = spec.and_then(|key| stored.get(&key.into()));
    let spec = spec.and_then(|found| Resource::<NodeSpec>::parse(&found.octets).ok());
    node.is(name.node(), &spec.unwrap_or_default().spec)
}

/// Plans the labels of a Node. It is never created or deleted.
fn node(
    key: &ResourceKey,
    objects: &Objects,
    found: Option<&Value>,
) -> Result<Change, EncodeError> {
    let Some(found) = found else {
        return Ok(Change::Nothing);
    };
    let Ok(mut stored) = Resource::<NodeSpec>::parse(&found.octets) else {
        return Ok(Change::Nothing);
    };
    let references = stored.spec.orch_refs.iter();
    let names = references.map(|reference| reference.node_name.as_str());
    let nodes = names
        .chain([key.name()])
        .filter_map(|name| objects.node(name));
    let node = nodes
        .into_iter()
        .find(|node| node.is(key.name(), &stored.spec));
    let is_changed = node.is_some_and(|node| node.merge_labels(&mut stored.metadata));
    if !is_changed {
        return Ok(Change::Nothing);
    }
    Ok(patched(found, |value| {
        value["metadata"]["labels"] = json!(stored.metadata.labels);
        value["metadata"]["annotations"] = json!(stored.metadata.annotations);
    }))
}

/// Changes a stored value. It was read before, so it is an object.
pub(crate) fn patched(found: &Value, change: impl FnOnce(&mut Json)) -> Change {
    let Ok(mut value @ Json::Object(_)) = serde_json::from_slice::<Json>(&found.octets) else {
        return Change::Nothing;
    };
    for part in ["metadata", "spec"] {
        if !value[part].is_object() {
            value[part] = json!({});
        }
    }
    change(&mut value);
    Change::Put {
        octets: value.to_string().into(),
        was: found.revision,
    }
}

#[cfg(test)]
mod tests;
