//! Node: a host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::{Metadata, Spec};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, empty_as_none, or_default};
use crate::validate::{Faults, Invalid, Problem};
use crate::value::asn::AsNumber;
use crate::value::mac::Mac;
use crate::value::network::Network;

/// Spec of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSpec {
    /// BGP settings of the node; `None` if it does not run BGP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<NodeBgp>,
    /// Address of its IPv4 VXLAN device.
    #[serde(
        rename = "ipv4VXLANTunnelAddr",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub ipv4_vxlan_tunnel_addr: Option<Ipv4Addr>,
    /// Ethernet address of its IPv4 VXLAN device.
    #[serde(
        rename = "vxlanTunnelMACAddr",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub vxlan_tunnel_mac_addr: Option<Mac>,
    /// Address of its IPv6 VXLAN device.
    #[serde(
        rename = "ipv6VXLANTunnelAddr",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub ipv6_vxlan_tunnel_addr: Option<Ipv6Addr>,
    /// Ethernet address of its IPv6 VXLAN device.
    #[serde(
        rename = "vxlanTunnelMACAddrV6",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub vxlan_tunnel_mac_addr_v6: Option<Mac>,
    /// Names of the node in orchestrators.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub orch_refs: Vec<OrchRef>,
    /// Addresses of its WireGuard devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wireguard: Option<NodeWireguard>,
    /// Its addresses.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub addresses: Vec<NodeAddress>,
    /// Its interfaces.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub interfaces: Vec<NodeInterface>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// BGP settings of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeBgp {
    /// Its AS number; the default is the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_number: Option<AsNumber>,
    /// Its IPv4 address with the mask of its subnet; without a mask, /32.
    #[serde(
        rename = "ipv4Address",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub ipv4_address: Option<Network>,
    /// Its IPv6 address with the mask of its subnet; without a mask, /128.
    #[serde(
        rename = "ipv6Address",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub ipv6_address: Option<Network>,
    /// Address of its IP-in-IP device.
    #[serde(
        rename = "ipv4IPIPTunnelAddr",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub ipv4_ipip_tunnel_addr: Option<Ipv4Addr>,
    /// Its cluster id (RFC 4456 §7); a node with one is a route reflector.
    #[serde(
        rename = "routeReflectorClusterID",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub route_reflector_cluster_id: Option<Ipv4Addr>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The name of a node in an orchestrator.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrchRef {
    /// The orchestrator's name for it.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub node_name: String,
    /// The orchestrator.
    #[serde(default, deserialize_with = "or_default")]
    pub orchestrator: String,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Addresses of a node's WireGuard devices.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeWireguard {
    /// The IPv4 address.
    #[serde(
        rename = "interfaceIPv4Address",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub interface_ipv4_address: Option<Ipv4Addr>,
    /// The IPv6 address.
    #[serde(
        rename = "interfaceIPv6Address",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub interface_ipv6_address: Option<Ipv6Addr>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// An address of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAddress {
    /// The address, with or without a mask.
    pub address: String,
    /// Its type: `CalicoNodeIP`, `InternalIP`, `ExternalIP`.
    #[serde(
        rename = "type",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub source: String,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// An interface of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInterface {
    /// Its name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Its addresses.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub addresses: Vec<IpAddr>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl NodeSpec {
    /// Returns the addresses of its tunnels: IP-in-IP, VXLAN, WireGuard.
    pub fn tunnel_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let wireguard = self.wireguard.as_ref();
        let v4 = [
            self.bgp.as_ref().and_then(|bgp| bgp.ipv4_ipip_tunnel_addr),
            self.ipv4_vxlan_tunnel_addr,
            wireguard.and_then(|wireguard| wireguard.interface_ipv4_address),
        ];
        let v6 = [
            self.ipv6_vxlan_tunnel_addr,
            wireguard.and_then(|wireguard| wireguard.interface_ipv6_address),
        ];
        let v4 = v4.into_iter().flatten().map(IpAddr::V4);
        v4.chain(v6.into_iter().flatten().map(IpAddr::V6))
    }
}

impl Spec for NodeSpec {
    const KIND: Option<Kind> = Some(Kind::Node);

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        let Some(bgp) = &self.bgp else {
            return faults.0;
        };
        if bgp.ipv4_address.is_none() && bgp.ipv6_address.is_none() {
            faults.push("spec.bgp.ipv4Address", Problem::Missing);
        }
        let mut family = |field: &str, address: Option<Network>, v4: bool, expected| {
            if let Some(found) = address.filter(|network| network.address().is_ipv4() != v4) {
                faults.push(
                    field,
                    Problem::Form {
                        found: found.to_string(),
                        expected,
                    },
                );
            }
        };
        family(
            "spec.bgp.ipv4Address",
            bgp.ipv4_address,
            true,
            "an IPv4 address",
        );
        family(
            "spec.bgp.ipv6Address",
            bgp.ipv6_address,
            false,
            "an IPv6 address",
        );
        if bgp.as_number == Some(AsNumber(0)) {
            // RFC 7607: AS 0 must not be used.
            faults.push("spec.bgp.asNumber", Problem::Unwanted("AS 0 is reserved"));
        }
        faults.0
    }
}

/// Returns the cluster id of a node that is a route reflector, otherwise `None`.
pub fn cluster_id(node: &NodeSpec) -> Option<Ipv4Addr> {
    node.bgp
        .as_ref()
        .and_then(|bgp| bgp.route_reflector_cluster_id)
}
