//! Automatic host endpoints: one for each Node of the datastore, with Calico's name, labels and profile.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calico_kubernetes::{HOST_ENDPOINT_SUFFIX, host_endpoint_name};
use calico_model::{
    EncodeError, HostEndpointSpec, Kind, NAME_OCTETS_MAX, NodeSpec, Resource, ResourceKey,
};
use serde_json::json;

use crate::plan::{Change, replace};
use crate::settings::Settings;
use crate::stored::Stored;
use crate::target::Target;

/// The label of all automatic host endpoints. Others are never changed.
const CREATED_BY: (&str, &str) = ("projectcalico.org/created-by", "calico-kube-controllers");

/// The profile of all automatic host endpoints, which allows what no policy denies.
const PROFILE: &str = "projectcalico-default-allow";

/// The type of the addresses of a Node that belong to it alone.
const INTERNAL: &str = "InternalIP";

/// Returns the key of the automatic host endpoint of a Node.
pub(crate) fn key(node: &str) -> Option<Target> {
    let key = ResourceKey::new(Kind::HostEndpoint, None, &host_endpoint_name(node));
    key.ok().map(Target::Resource)
}

/// Returns the key of the Node of an automatic host endpoint. A name with a digest is that of a Node with
/// a long name.
fn node_of(key: &ResourceKey, stored: &Stored) -> Option<ResourceKey> {
    let node = key.name().strip_suffix(HOST_ENDPOINT_SUFFIX)?;
    let node = ResourceKey::new(Kind::Node, None, node).ok()?;
    if stored.get(&node.clone().into()).is_some() {
        return Some(node);
    }
    let is_long = |node: &&ResourceKey| {
        node.name().len() + HOST_ENDPOINT_SUFFIX.len() > NAME_OCTETS_MAX
            && host_endpoint_name(node.name()) == key.name()
    };
    stored.of_kind(Kind::Node).find(is_long).cloned()
}

/// Plans a host endpoint. One that was not created by these controllers is left unchanged.
pub(crate) fn plan(
    key: &ResourceKey,
    settings: &Settings,
    stored: &Stored,
) -> Result<Change, EncodeError> {
    let found = stored.get(&key.clone().into());
    let parsed = found.and_then(|found| Resource::<HostEndpointSpec>::parse(&found.octets).ok());
    let is_own = |endpoint: &Resource<HostEndpointSpec>| {
        let label = endpoint.metadata.labels.get(CREATED_BY.0);
        label.is_some_and(|by| by == CREATED_BY.1)
    };
    let may_change = match (found, &parsed) {
        (None, _) => true,
        (Some(_), Some(endpoint)) => is_own(endpoint),
        (Some(_), None) => false,
    };
    if !may_change || !settings.node {
        return Ok(Change::Nothing);
    }
    let node = node_of(key, stored);
    let node = node.and_then(|node| stored.get(&node.into()));
    match (node, found) {
        (Some(node), _) if settings.host_endpoints => {
            match Resource::<NodeSpec>::parse(&node.octets) {
                Ok(node) => {
                    let wanted = endpoint(&node);
                    let mut next = parsed.clone().unwrap_or_else(|| wanted.clone());
                    // Labels that the Node no longer has are removed.
                    next.metadata.labels = wanted.metadata.labels;
                    next.spec = wanted.spec;
                    replace(next, parsed.as_ref(), found)
                }
                Err(_) => Ok(Change::Nothing),
            }
        }
        (_, Some(found)) => Ok(Change::Delete {
            was: found.revision,
        }),
        (_, None) => Ok(Change::Nothing),
    }
}

fn endpoint(node: &Resource<NodeSpec>) -> Resource<HostEndpointSpec> {
    let name = &node.metadata.name;
    let spec = HostEndpointSpec::default();
    let mut endpoint = Resource::new(&host_endpoint_name(name), spec);
    let labels = &mut endpoint.metadata.labels;
    labels.extend(node.metadata.labels.clone());
    labels.insert(CREATED_BY.0.to_owned(), CREATED_BY.1.to_owned());
    let spec = &mut endpoint.spec;
    spec.node.clone_from(name);
    spec.interface_name = "*".to_owned();
    spec.expected_ips = addresses(&node.spec);
    spec.unknown.insert("profiles".to_owned(), json!([PROFILE]));
    endpoint
}

/// Returns the addresses of a Node in the order of Calico: BGP, tunnels, then internal ones.
fn addresses(spec: &NodeSpec) -> Vec<IpAddr> {
    let bgp = spec.bgp.iter();
    let bgp = bgp.flat_map(|bgp| [bgp.ipv4_address, bgp.ipv6_address]);
    let own = bgp.flatten().map(|network| network.address());
    let internal = spec.addresses.iter();
    let internal = internal.filter(|address| address.source == INTERNAL);
    let internal = internal.filter_map(|address| address.address.parse().ok());
    let mut seen = BTreeSet::new();
    let all = own.chain(spec.tunnel_addresses()).chain(internal);
    all.filter(|address| seen.insert(*address)).collect()
}

#[cfg(test)]
mod tests {
    use calico_store::Revision;

    use super::*;
    use crate::stored::Value;

    #[test]
    fn node_with_the_longest_name_has_a_host_endpoint() {
        let settings = Settings {
            host_endpoints: true,
            ..Settings::read(None, &crate::settings::Variables::default()).settings
        };
        let mut stored = Stored::default();
        let names = ["x", "y"].map(|last| format!("{}{last}", "n".repeat(NAME_OCTETS_MAX - 1)));
        let set = |stored: &mut Stored, key: &ResourceKey, text: String| {
            let value = Value {
                octets: text.into(),
                revision: Revision(1),
            };
            stored.set(key.to_string().as_bytes(), Some(value));
        };
        for name in &names {
            let node = ResourceKey::new(Kind::Node, None, name).expect("a name");
            let text = json!({"metadata": {"name": name}, "spec": {}}).to_string();
            set(&mut stored, &node, text);
        }
        for name in &names {
            let Some(Target::Resource(key)) = key(name) else {
                panic!("{name}");
            };
            let planned = plan(&key, &settings, &stored).expect("a plan");
            let Change::Put { octets, .. } = planned else {
                panic!("{planned:?}");
            };
            let written: serde_json::Value = serde_json::from_slice(&octets).expect("JSON");
            assert_eq!(written["spec"]["node"], json!(name));
            assert_eq!(written["metadata"]["name"], json!(key.name()));
        }
    }
}
