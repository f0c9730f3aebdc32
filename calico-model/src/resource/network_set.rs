//! NetworkSet, GlobalNetworkSet and HostEndpoint: addresses with labels, which rules can select.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Metadata, Spec};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, or_default};
use crate::validate::Invalid;
use crate::value::network::Network;

/// Spec of a set of networks, of a namespace or of the whole cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSetSpec {
    /// The networks.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub nets: Vec<Network>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Spec for NetworkSetSpec {
    const KIND: Option<Kind> = None;

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        Vec::new()
    }
}

/// Spec of an interface of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostEndpointSpec {
    /// The node.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub node: String,
    /// The interface, or `*` for all.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub interface_name: String,
    /// The addresses of the interface for rules.
    #[serde(
        rename = "expectedIPs",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub expected_ips: Vec<IpAddr>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Spec for HostEndpointSpec {
    const KIND: Option<Kind> = Some(Kind::HostEndpoint);

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        Vec::new()
    }
}
