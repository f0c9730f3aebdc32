//! WorkloadEndpoint: an interface of a workload.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::qos_controls::QosControls;
use super::rule::{Port, Protocol, WITH_PORTS};
use super::{Metadata, Spec, mismatch};
use crate::key::endpoint_name::{EndpointName, EndpointNameError};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, empty_as_none, or_default};
use crate::status::{Region, StatusKey};
use crate::validate::{Faults, INTERFACE, Invalid, Problem};
use crate::value::mac::Mac;
use crate::value::network::Network;

/// Spec of a workload endpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadEndpointSpec {
    /// The orchestrator of the endpoint: `k8s`, `cni`, `libnetwork`, `openstack`, …
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub orchestrator: String,
    /// The workload, if the orchestrator has no more specific field for it.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub workload: String,
    /// The node of the workload.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub node: String,
    /// The container.
    #[serde(
        rename = "containerID",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub container_id: String,
    /// The Kubernetes pod.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub pod: String,
    /// The endpoint within the workload, such as `eth0`.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub endpoint: String,
    /// The Kubernetes service account.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub service_account_name: String,
    /// The workload's addresses, each /32 or /128. Without any, the endpoint counts as missing.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ip_networks: Vec<Network>,
    /// Floating addresses of the workload.
    #[serde(
        rename = "ipNATs",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ip_nats: Vec<IpNat>,
    /// The workload's IPv4 gateway.
    #[serde(
        rename = "ipv4Gateway",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub ipv4_gateway: Option<Ipv4Addr>,
    /// The workload's IPv6 gateway.
    #[serde(
        rename = "ipv6Gateway",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub ipv6_gateway: Option<Ipv6Addr>,
    /// The profiles of which the endpoint inherits rules and labels, in order.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub profiles: Vec<String>,
    /// The interface on the host's side.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub interface_name: String,
    /// The workload's Ethernet address.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub mac: Option<Mac>,
    /// Named ports for rules.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ports: Vec<EndpointPort>,
    /// Further source addresses that the workload may use.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub allow_spoofed_source_prefixes: Vec<Network>,
    /// Limits of its traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_controls: Option<QosControls>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A floating address for one of the workload's addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpNat {
    /// The workload's address.
    #[serde(rename = "internalIP")]
    pub internal_ip: IpAddr,
    /// The floating address.
    #[serde(rename = "externalIP")]
    pub external_ip: IpAddr,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A named port for rules.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPort {
    /// The port's name; a port without one cannot be referenced.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// The protocol: a name such as `"TCP"`, or a number.
    #[serde(default, deserialize_with = "or_default")]
    pub protocol: Value,
    /// The port.
    #[serde(default, deserialize_with = "or_default")]
    pub port: u16,
    /// The host port mapped to it, or 0.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub host_port: u16,
    /// The host address mapped to it, or empty.
    #[serde(
        rename = "hostIP",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub host_ip: String,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl EndpointPort {
    /// Returns the number of its protocol; `None` if it is not TCP, UDP or SCTP.
    pub fn number(&self) -> Option<u8> {
        let protocol = Protocol::deserialize(&self.protocol).ok()?;
        protocol
            .number()
            .filter(|number| WITH_PORTS.contains(number))
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde calls"
)]
const fn is_zero(port: &u16) -> bool {
    *port == 0
}

impl WorkloadEndpointSpec {
    /// Returns the required name of the resource.
    pub fn name(&self) -> Result<EndpointName, EndpointNameError> {
        let workload = match self.orchestrator.as_str() {
            "k8s" => &self.pod,
            "cni" => &self.container_id,
            "libnetwork" => "libnetwork",
            _ => &self.workload,
        };
        EndpointName::new(&self.node, &self.orchestrator, workload, &self.endpoint)
    }

    /// Returns the key of the endpoint's status.
    pub fn status_key(
        &self,
        region: Region,
        namespace: &str,
    ) -> Result<StatusKey, EndpointNameError> {
        Ok(StatusKey::of_workload(region, namespace, &self.name()?))
    }

    /// Returns whether it exists: an endpoint without addresses is treated as deleted.
    pub const fn is_complete(&self) -> bool {
        !self.ip_networks.is_empty()
    }
}

impl Spec for WorkloadEndpointSpec {
    const KIND: Option<Kind> = Some(Kind::WorkloadEndpoint);

    fn validate(&self, metadata: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        faults.required("spec.node", &self.node);
        faults.required("spec.orchestrator", &self.orchestrator);
        faults.required("spec.endpoint", &self.endpoint);
        faults.required("spec.interfaceName", &self.interface_name);
        faults.form("spec.interfaceName", &self.interface_name, INTERFACE);
        match self.name().map(|name| name.to_string()) {
            Ok(expected) if expected != metadata.name => {
                faults.push("metadata.name", mismatch(&metadata.name, &expected));
            }
            Ok(_) => {}
            Err(_)
                if self.node.is_empty()
                    || self.orchestrator.is_empty()
                    || self.endpoint.is_empty() => {}
            Err(error) => faults.push(self.workload_field(), endpoint_name_problem(error)),
        }
        self.validate_addresses(&mut faults);
        self.validate_ports(&mut faults);
        let limits = self.qos_controls.as_ref();
        if let Some((field, found)) = limits.and_then(QosControls::invalid) {
            let expected = "in the range of the limit";
            let problem = Problem::Form { found, expected };
            faults.push(format!("spec.qosControls.{field}"), problem);
        }
        for (at, profile) in self.profiles.iter().enumerate() {
            faults.required(&format!("spec.profiles[{at}]"), profile);
        }
        faults.0
    }

    fn complete(&mut self, _: Kind, metadata: &mut Metadata) {
        if metadata.name.is_empty()
            && let Ok(name) = self.name()
        {
            metadata.name = name.to_string();
        }
        let namespace = metadata.namespace.clone();
        metadata
            .labels
            .insert("projectcalico.org/namespace".into(), namespace);
        metadata.labels.insert(
            "projectcalico.org/orchestrator".into(),
            self.orchestrator.clone(),
        );
    }
}

impl WorkloadEndpointSpec {
    fn validate_addresses(&self, faults: &mut Faults) {
        if self.ip_networks.is_empty() {
            faults.push("spec.ipNetworks", Problem::Missing);
        }
        let mut seen = BTreeSet::new();
        for (at, network) in self.ip_networks.iter().enumerate() {
            let field = format!("spec.ipNetworks[{at}]");
            if !network.is_host() {
                faults.push(field, Problem::NotHost(network.to_string()));
            } else if !seen.insert(network.address()) {
                faults.push(field, Problem::Duplicate(network.to_string()));
            }
        }
        for (at, nat) in self.ip_nats.iter().enumerate() {
            if !seen.contains(&nat.internal_ip) {
                let found = nat.internal_ip.to_string();
                let expected = "one of the addresses in spec.ipNetworks";
                faults.push(
                    format!("spec.ipNATs[{at}].internalIP"),
                    Problem::Form { found, expected },
                );
            }
        }
    }

    fn validate_ports(&self, faults: &mut Faults) {
        for (at, port) in self.ports.iter().enumerate() {
            let field = |name: &str| format!("spec.ports[{at}].{name}");
            if !port.name.is_empty() && !Port::Text(port.name.clone()).is_name() {
                let expected = "letters, digits, '-', '_' and '.', with at least one letter";
                faults.range(field("name"), &port.name, expected);
            }
            if port.number().is_none() {
                faults.range(field("protocol"), &port.protocol, "TCP, UDP or SCTP");
            }
            if port.port == 0 {
                faults.range(field("port"), 0, "a port from 1 to 65535");
            }
        }
    }

    fn workload_field(&self) -> &'static str {
        match self.orchestrator.as_str() {
            "k8s" => "spec.pod",
            "cni" => "spec.containerID",
            _ => "spec.workload",
        }
    }
}

const fn endpoint_name_problem(error: EndpointNameError) -> Problem {
    match error {
        EndpointNameError::Empty => Problem::Missing,
        EndpointNameError::Slash => Problem::Unwanted("'/' cannot be part of a name"),
        EndpointNameError::Dash | EndpointNameError::Parts => {
            Problem::Unwanted("no part of a name begins or ends with '-'")
        }
    }
}
