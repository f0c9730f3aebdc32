//! Writes what a node needs in the datastore: its Node, pools, and settings of its Felix.

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use calico_model::{API_VERSION, AsNumber, IpPoolSpec, Kind, Network, NodeSpec, ResourceKey};
use calico_store::resources::{Items, ResourceError, Resources};
use ipnet::IpNet;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::detect::Interface;
use super::settings::{Pool, Settings};

/// The orchestrator in references of a node.
const ORCHESTRATOR: &str = "k8s";

/// The type of addresses of a Node that this program writes, as calico-node does.
const ADDRESS_TYPE: &str = "CalicoNodeIP";

/// The default range of the IPv4 pool, and those in its place if this host has an address in it.
const DEFAULT_RANGE: &str = "192.168.0.0/16";
const OTHER_RANGES: std::ops::RangeInclusive<u8> = 16..=31;

/// The change of the address of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Address {
    Kept,
    Removed,
    Set(Network),
}

/// Writes the Node if it differs. Returns whether it was written.
pub(super) async fn node(
    resources: &Resources,
    settings: &Settings,
    addresses: [Address; 2],
) -> Result<bool> {
    let key = ResourceKey::new(Kind::Node, None, &settings.name)?;
    if settings.refuses_conflicts {
        let nodes = resources.list(Kind::Node, None).await?;
        refuse_conflicts(&nodes, &settings.name, addresses)?;
    }
    let mut is_changed = false;
    let change = |value: &mut Value| {
        let before = value.clone();
        merge(value, settings, addresses);
        is_changed = *value != before;
        is_changed
    };
    match resources.patch(&key, None, change).await {
        Ok(_) => return Ok(is_changed),
        Err(ResourceError::Missing(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let mut value = json!({"kind": Kind::Node.name(), "apiVersion": API_VERSION,
        "metadata": {"name": settings.name}, "spec": {}});
    merge(&mut value, settings, addresses);
    // Another writer may have created it since: the next attempt patches that one.
    resources.create(value).await?;
    Ok(true)
}

/// Returns the stored address of a family of the Node.
pub(super) async fn stored(
    resources: &Resources,
    name: &str,
    ipv6: bool,
) -> Result<Option<Network>> {
    let key = ResourceKey::new(Kind::Node, None, name)?;
    let node = match resources.get(&key).await {
        Ok(node) => node,
        Err(ResourceError::Missing(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(address_of(&node.value["spec"], ipv6))
}

fn address_of(spec: &Value, ipv6: bool) -> Option<Network> {
    let bgp = NodeSpec::deserialize(spec).ok()?.bgp?;
    if ipv6 {
        bgp.ipv6_address
    } else {
        bgp.ipv4_address
    }
}

/// Fails if another Node has one of the addresses.
fn refuse_conflicts(nodes: &Items, own: &str, addresses: [Address; 2]) -> Result<()> {
    for (address, ipv6) in addresses.into_iter().zip([false, true]) {
        let Address::Set(network) = address else {
            continue;
        };
        let mut others = nodes.items.iter().filter(|node| node.key.name() != own);
        let other = others.find(|node| {
            let its = address_of(&node.value["spec"], ipv6);
            its.is_some_and(|its| its.address() == network.address())
        });
        if let Some(other) = other {
            bail!(
                "address {} is also that of Node {}: set IP{} or its autodetection method, or delete \
                 that Node if this host had its name before",
                network.address(),
                other.key.name(),
                if ipv6 { "6" } else { "" },
            );
        }
    }
    Ok(())
}

/// Merges the settings into a Node. Other fields are kept.
fn merge(node: &mut Value, settings: &Settings, addresses: [Address; 2]) {
    let spec = &mut node["spec"];
    for (address, field) in addresses.iter().zip(["ipv4Address", "ipv6Address"]) {
        match address {
            Address::Kept => {}
            Address::Removed => {
                if let Some(bgp) = spec["bgp"].as_object_mut() {
                    bgp.remove(field);
                }
            }
            Address::Set(network) => spec["bgp"][field] = json!(network),
        }
    }
    if let Some(number) = &settings.as_number
        && let Ok(number) = AsNumber::deserialize(&json!(number))
    {
        spec["bgp"]["asNumber"] = json!(number);
    }
    if let Some(name) = &settings.kubernetes {
        let own = json!({"nodeName": name, "orchestrator": ORCHESTRATOR});
        replace(&mut spec["orchRefs"], own, |reference| {
            reference["orchestrator"] == ORCHESTRATOR
        });
    }
    for (address, ipv6) in addresses.iter().zip([false, true]) {
        let is_its = |entry: &Value| {
            let text = entry["address"].as_str().unwrap_or_default();
            entry["type"] == ADDRESS_TYPE && text.contains(':') == ipv6
        };
        match address {
            Address::Kept => {}
            Address::Removed => {
                if let Some(list) = spec["addresses"].as_array_mut() {
                    list.retain(|entry| !is_its(entry));
                }
            }
            Address::Set(network) => {
                let own = json!({"address": network, "type": ADDRESS_TYPE});
                replace(&mut spec["addresses"], own, is_its);
            }
        }
    }
}

/// Replaces the elements of a list that are this program's.
fn replace(list: &mut Value, own: Value, is_own: impl Fn(&Value) -> bool) {
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        let place = list.iter().position(&is_own).unwrap_or(list.len());
        list.retain(|entry| !is_own(entry));
        list.insert(place.min(list.len()), own);
    }
}

/// Returns the families without a pool: IPv4 and IPv6.
pub(super) async fn without_pool(resources: &Resources) -> Result<[bool; 2]> {
    let pools = resources.list(Kind::IpPool, None).await?;
    if let Some((key, error)) = pools.unreadable.first() {
        bail!("{key}: {error}");
    }
    let cidrs = pools.items.iter().filter_map(|pool| {
        let spec = IpPoolSpec::deserialize(&pool.value["spec"]).ok()?;
        spec.cidr
    });
    let mut is_without = [true; 2];
    for cidr in cidrs {
        is_without[usize::from(cidr.address().is_ipv6())] = false;
    }
    Ok(is_without)
}

/// Creates a pool. One that another node has created since is kept.
pub(super) async fn pool(resources: &Resources, pool: &Pool, cidr: Network) -> Result<()> {
    let mut spec = Value::Object(pool.spec.clone());
    spec["cidr"] = json!(cidr);
    let resource = json!({"kind": Kind::IpPool.name(), "apiVersion": API_VERSION,
        "metadata": {"name": pool.name}, "spec": spec});
    match resources.create(resource).await {
        Ok(_) | Err(ResourceError::Exists(_)) => Ok(()),
        Err(error) => Err(error).context(format!("pool {}", pool.name)),
    }
}

/// Returns the default range of IPv4: one in which this host has no address.
pub(super) fn default_range(interfaces: &[Interface]) -> Result<Network> {
    let mut own = interfaces.iter().flat_map(|interface| &interface.addresses);
    let others = OTHER_RANGES.map(|second| format!("172.{second}.0.0/16"));
    let mut ranges = std::iter::once(DEFAULT_RANGE.to_owned())
        .chain(others)
        .filter_map(|range| range.parse::<IpNet>().ok());
    let own: Vec<IpAddr> = own.by_ref().map(Network::address).collect();
    let free = ranges.find(|range| !own.iter().any(|address| range.contains(address)));
    free.map(Network).context(
        "CALICO_IPV4POOL_CIDR: set it, because this host has addresses in all default ranges",
    )
}

/// Lets the policies of workloads decide about their packets to this host, and lets Felix report the
/// endpoints that work: services are announced for these only. Other settings of the host stay.
pub(super) async fn felix(resources: &Resources, name: &str) -> Result<()> {
    let resource = json!({"kind": Kind::FelixConfiguration.name(), "apiVersion": API_VERSION,
        "metadata": {"name": format!("node.{name}")},
        "spec": {"defaultEndpointToHostAction": "Return", "endpointReportingEnabled": true}});
    match resources.create(resource).await {
        Ok(_) | Err(ResourceError::Exists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings() -> Settings {
        let variables = [
            ("NODENAME", "n1"),
            ("CALICO_K8S_NODE_REF", "k1"),
            ("AS", "64512"),
        ];
        let variables: BTreeMap<_, _> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Settings::of(&variables, "").expect("settings")
    }

    #[test]
    fn node_keeps_the_fields_of_other_writers() {
        let own: Network = "10.0.0.1/24".parse().unwrap();
        let mut node = json!({"spec": {"bgp": {"ipv6Address": "fd00::1/64", "routeReflectorClusterID": "1.0.0.1"},
            "orchRefs": [{"nodeName": "x", "orchestrator": "other"}, {"nodeName": "old", "orchestrator": "k8s"}],
            "addresses": [{"address": "fd00::1/64", "type": "CalicoNodeIP"}, {"address": "10.0.0.9", "type": "InternalIP"}],
            "newer": 7}});
        let addresses = [Address::Set(own), Address::Removed];
        merge(&mut node, &settings(), addresses);
        let wanted = json!({"spec": {"bgp": {"ipv4Address": "10.0.0.1/24", "asNumber": 64512, "routeReflectorClusterID": "1.0.0.1"},
            "orchRefs": [{"nodeName": "x", "orchestrator": "other"}, {"nodeName": "k1", "orchestrator": "k8s"}],
            "addresses": [{"address": "10.0.0.9", "type": "InternalIP"}, {"address": "10.0.0.1/24", "type": "CalicoNodeIP"}],
            "newer": 7}});
        assert_eq!(node, wanted);
        merge(&mut node, &settings(), addresses);
        assert_eq!(node, wanted);
        merge(&mut node, &settings(), [Address::Kept; 2]);
        assert_eq!(node, wanted);
    }

    #[test]
    fn default_range_has_no_address_of_the_host() {
        let host = |address: &str| {
            vec![Interface {
                name: "eth0".into(),
                addresses: vec![address.parse().unwrap()],
            }]
        };
        let range = |address: &str| default_range(&host(address)).unwrap().to_string();
        assert_eq!(range("10.0.0.1/24"), "192.168.0.0/16");
        assert_eq!(range("192.168.7.1/24"), "172.16.0.0/16");
    }
}
