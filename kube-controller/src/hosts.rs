//! Automatic host endpoints: one for each Node of the datastore, with Calico's name, labels and profile.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calico_model::{EncodeError, HostEndpointSpec, Kind, NodeSpec, Resource, ResourceKey};
use serde_json::json;

use crate::plan::{Change, replace};
use crate::settings::Settings;
use crate::stored::Stored;
use crate::target::Target;

/// The end of the name of an automatic host endpoint.
const SUFFIX: &str = "-auto-hep";

/// The label of all automatic host endpoints. Others are never changed.
const CREATED_BY: (&str, &str) = ("projectcalico.org/created-by", "calico-kube-controllers");

/// The profile of all automatic host endpoints, which allows what no policy denies.
const PROFILE: &str = "projectcalico-default-allow";

/// The type of the addresses of a Node that belong to it alone.
const INTERNAL: &str = "InternalIP";

/// Returns the key of the automatic host endpoint of a Node; `None` if the name is too long.
pub(crate) fn key(node: &str) -> Option<Target> {
    let key = ResourceKey::new(Kind::HostEndpoint, None, &format!("{node}{SUFFIX}"));
    key.ok().map(Target::Resource)
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
    let node = key.name().strip_suffix(SUFFIX).unwrap_or_default();
    let node = ResourceKey::new(Kind::Node, None, node).ok();
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
    let mut endpoint = Resource::new(&format!("{name}{SUFFIX}"), spec);
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
