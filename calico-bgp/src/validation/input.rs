//! The fields of resources that origin validation uses.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bgp_proto::{Asn, Prefix};
use calico_model::{IpNat, Network, NodeSpec, Resource};
use serde::Deserialize;

use super::nodes::Properties;
use crate::fault::Fault;
use crate::reflectors::WEIGHT_LABEL;

/// The annotation of a Node with prefixes that the operator grants to the node, separated by
/// commas.
pub const GRANTS_ANNOTATION: &str = "cambric.io/granted-prefixes";

/// An endpoint: its node, and its addresses with the floating ones.
pub(super) type Endpoint = (String, BTreeSet<IpAddr>);

/// Parses a WorkloadEndpoint. Only some of its fields are read, because there are so many of them.
/// One without addresses counts as missing.
pub(super) fn endpoint(key: &str, octets: &[u8]) -> Result<Option<Endpoint>, Fault> {
    #[derive(Deserialize)]
    struct Whole {
        spec: Spec,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        #[serde(default)]
        node: String,
        #[serde(default)]
        ip_networks: Option<Vec<Network>>,
        #[serde(default, rename = "ipNATs")]
        ip_nats: Option<Vec<IpNat>>,
    }
    let Whole { spec } =
        serde_json::from_slice(octets).map_err(|error| Fault::new(key, "", error.to_string()))?;
    if spec.node.is_empty() {
        return Err(Fault::new(key, "spec.node", "is missing"));
    }
    let networks = spec.ip_networks.unwrap_or_default();
    if networks.is_empty() {
        return Ok(None);
    }
    if let Some(at) = networks.iter().position(|network| !network.is_host()) {
        let field = format!("spec.ipNetworks[{at}]");
        return Err(Fault::new(key, field, "is not a single address"));
    }
    let networks = networks.iter().map(Network::address);
    let floating = spec.ip_nats.unwrap_or_default().into_iter();
    let addresses = networks.chain(floating.map(|nat| nat.external_ip));
    Ok(Some((spec.node, addresses.collect())))
}

/// Returns the properties of a node. Texts in `spec.addresses` that are no IP addresses are no
/// records.
pub(super) fn properties(key: &str, node: &Resource<NodeSpec>) -> Result<Properties, Fault> {
    let (labels, annotations) = (&node.metadata.labels, &node.metadata.annotations);
    let grants = match annotations.get(GRANTS_ANNOTATION) {
        None => BTreeSet::new(),
        Some(text) => grants(text).map_err(|wrong| {
            let field = format!("metadata.annotations[{GRANTS_ANNOTATION}]");
            let reason = format!("\"{wrong}\" is no prefix such as 10.0.0.0/8");
            Fault::new(key, field, reason)
        })?,
    };
    let bgp = node.spec.bgp.as_ref();
    let networks = bgp.map(|bgp| [bgp.ipv4_address, bgp.ipv6_address]);
    let networks = networks.into_iter().flatten().flatten();
    let networks = networks.map(|network| (network.address(), network.0.prefix_len()));
    let networks: BTreeSet<(IpAddr, u8)> = networks.collect();
    let sessions: BTreeSet<IpAddr> = networks.iter().map(|(address, _)| *address).collect();
    let others = node.spec.addresses.iter();
    let others = others.filter_map(|other| other.address.parse::<Network>().ok());
    let others = others.map(|network| network.address());
    let addresses = sessions.iter().copied().chain(others);
    let has_cluster_id = bgp.is_some_and(|bgp| bgp.route_reflector_cluster_id.is_some());
    Ok(Properties {
        addresses: addresses.chain(node.spec.tunnel_addresses()).collect(),
        sessions,
        networks,
        grants,
        asn: bgp.and_then(|bgp| bgp.as_number).map(|asn| Asn(asn.0)),
        reflects: has_cluster_id || labels.contains_key(WEIGHT_LABEL),
    })
}

/// Parses granted prefixes, or returns the text that is none.
fn grants(text: &str) -> Result<BTreeSet<Prefix>, &str> {
    let words = text.split(',').map(str::trim);
    words
        .filter(|word| !word.is_empty())
        .map(|word| word.parse::<Prefix>().map_err(|_| word))
        .collect()
}
