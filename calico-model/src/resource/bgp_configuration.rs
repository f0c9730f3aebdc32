//! BGPConfiguration: BGP settings of the cluster (`default`) or of one node (`node.<name>`).

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Deserializer, Serialize};

use super::bgp_peer::BgpPassword;
use super::{Metadata, Spec};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, empty_as_none, or_default};
use crate::limits::{COMMUNITIES_MAX, PREFIX_ADVERTISEMENTS_MAX, ROUTE_PRIORITY_MAX};
use crate::validate::{Faults, INTERFACE_GLOB, Invalid, LOG_SEVERITY, NAME, Problem};
use crate::value::asn::AsNumber;
use crate::value::community::CommunityValue;
use crate::value::duration::GoDuration;
use crate::value::network::Network;
use crate::value::words::words;

/// The name of the configuration of the whole cluster.
pub const DEFAULT_CONFIGURATION: &str = "default";

/// The default of the cluster's AS number.
pub const DEFAULT_AS_NUMBER: AsNumber = AsNumber(64512);

/// The port of BGP (RFC 4271 §4.2).
pub const BGP_PORT: u16 = 179;

/// The default metric of routes to workloads.
pub const DEFAULT_ROUTE_PRIORITY: u32 = 1024;

/// Spec of BGP settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BgpConfigurationSpec {
    /// Minimum severity of logged messages; `Info` when empty.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub log_severity_screen: String,
    /// Whether all nodes form a full mesh; see [`Self::mesh`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_to_node_mesh_enabled: Option<bool>,
    /// The AS number of nodes without their own; see [`Self::cluster_as`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_number: Option<AsNumber>,
    /// The port that nodes listen on; see [`Self::port`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen_port: Option<u16>,
    /// The addresses on which nodes listen; see [`Self::bind`].
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub bind_mode: Option<BindMode>,
    /// Ranges of Kubernetes services' cluster addresses.
    #[serde(
        rename = "serviceClusterIPs",
        default,
        deserialize_with = "with_cidr",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub service_cluster_ips: Vec<CidrBlock>,
    /// Ranges of Kubernetes services' external addresses.
    #[serde(
        rename = "serviceExternalIPs",
        default,
        deserialize_with = "with_cidr",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub service_external_ips: Vec<CidrBlock>,
    /// Ranges of Kubernetes services' load balancer addresses.
    #[serde(
        rename = "serviceLoadBalancerIPs",
        default,
        deserialize_with = "with_cidr",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub service_load_balancer_ips: Vec<CidrBlock>,
    /// Whether load balancer ranges are advertised as a whole.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub service_load_balancer_aggregation: Option<LoadBalancerAggregation>,
    /// Names for communities.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub communities: Vec<NamedCommunity>,
    /// Communities of routes inside given ranges.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub prefix_advertisements: Vec<PrefixAdvertisement>,
    /// The password of the mesh's sessions, and of sessions with the fabric's reflectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_mesh_password: Option<BgpPassword>,
    /// Restart time of graceful restart in the mesh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_mesh_max_restart_time: Option<GoDuration>,
    /// Interfaces of which the routes are not advertised; `*` matches any characters.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ignored_interfaces: Vec<String>,
    /// The node's IPv4 address for sessions with its workloads.
    #[serde(
        rename = "localWorkloadPeeringIPV4",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub local_workload_peering_ipv4: Option<Ipv4Addr>,
    /// The node's IPv6 address for sessions with its workloads.
    #[serde(
        rename = "localWorkloadPeeringIPV6",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub local_workload_peering_ipv6: Option<Ipv6Addr>,
    /// The routes to other nodes' workloads that BGP programs into the kernel; see
    /// [`Self::programs`].
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub program_cluster_routes: Option<ClusterRoutes>,
    /// The metric of IPv4 routes to workloads; see [`Self::route_priority`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4_normal_route_priority: Option<u32>,
    /// The metric of IPv6 routes to workloads; see [`Self::route_priority`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_normal_route_priority: Option<u32>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

words! {
    /// The addresses on which a node listens for BGP.
    #[derive(Default)]
    BindMode, "one of \"None\" and \"NodeIP\"";
    /// All.
    #[default]
    None "None",
    /// Only its own BGP address.
    NodeIp "NodeIP",
}

words! {
    /// How load balancer addresses are advertised.
    #[derive(Default)]
    LoadBalancerAggregation, "one of \"Enabled\" and \"Disabled\"";
    /// The ranges as a whole.
    #[default]
    Enabled "Enabled",
    /// Each address individually.
    Disabled "Disabled",
}

words! {
    /// The routes to other nodes' workloads that a program installs in the kernel.
    ClusterRoutes,
    "one of \"Enabled\", \"Disabled\", \"EnabledIPIPOnly\" and \"EnabledNoEncapOnly\"";
    /// Routes of pools with IP-in-IP and of pools without encapsulation.
    Enabled "Enabled",
    /// None.
    Disabled "Disabled",
    /// Routes of pools with IP-in-IP.
    EnabledIpipOnly "EnabledIPIPOnly",
    /// Routes of pools without encapsulation.
    EnabledNoEncapOnly "EnabledNoEncapOnly",
}

impl ClusterRoutes {
    /// Returns whether routes of pools with IP-in-IP are installed in the kernel.
    pub const fn ipip(self) -> bool {
        matches!(self, Self::Enabled | Self::EnabledIpipOnly)
    }

    /// Returns whether routes of pools without encapsulation are installed in the kernel.
    pub const fn no_encap(self) -> bool {
        matches!(self, Self::Enabled | Self::EnabledNoEncapOnly)
    }
}

/// A range of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CidrBlock {
    /// The range.
    pub cidr: Network,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Parses ranges. Entries without a range are left out.
fn with_cidr<'de, D: Deserializer<'de>>(json: D) -> Result<Vec<CidrBlock>, D::Error> {
    #[derive(Deserialize)]
    struct Entry {
        #[serde(default, deserialize_with = "empty_as_none")]
        cidr: Option<Network>,
        #[serde(flatten)]
        unknown: Unknown,
    }
    let entries: Vec<Entry> = or_default(json)?;
    let blocks = entries.into_iter().filter_map(|Entry { cidr, unknown }| {
        Some(CidrBlock {
            cidr: cidr?,
            unknown,
        })
    });
    Ok(blocks.collect())
}

/// A name for a community.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCommunity {
    /// The name.
    pub name: String,
    /// The community.
    pub value: CommunityValue,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The communities of routes inside a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixAdvertisement {
    /// The range.
    pub cidr: Network,
    /// Communities: names, or values.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub communities: Vec<String>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl BgpConfigurationSpec {
    /// Returns whether all nodes form a full mesh, which is the default.
    pub fn mesh(&self) -> bool {
        self.node_to_node_mesh_enabled.unwrap_or(true)
    }

    /// Returns the AS number of nodes without their own: 64512 by default.
    pub fn cluster_as(&self) -> AsNumber {
        self.as_number.unwrap_or(DEFAULT_AS_NUMBER)
    }

    /// Returns the port that nodes listen on: 179 by default.
    pub fn port(&self) -> u16 {
        self.own_port().unwrap_or(BGP_PORT)
    }

    /// Returns the port, if it is configured.
    pub fn own_port(&self) -> Option<u16> {
        self.listen_port.filter(|port| *port != 0)
    }

    /// Returns the addresses on which nodes listen: all by default.
    pub fn bind(&self) -> BindMode {
        self.bind_mode.unwrap_or_default()
    }

    /// Returns the routes to other nodes' workloads that BGP installs in the kernel: by default
    /// those of pools without encapsulation.
    pub fn programs(&self) -> ClusterRoutes {
        self.program_cluster_routes
            .unwrap_or(ClusterRoutes::EnabledNoEncapOnly)
    }

    /// Returns the metric of routes to workloads: 1024 by default.
    pub fn route_priority(&self, ipv6: bool) -> u32 {
        match ipv6 {
            false => self.ipv4_normal_route_priority,
            true => self.ipv6_normal_route_priority,
        }
        .unwrap_or(DEFAULT_ROUTE_PRIORITY)
    }

    /// Returns the communities of a prefix advertisement. Names are looked up in `cluster`, the
    /// settings of the whole cluster, too, because those of a node can use them. An unknown name is
    /// returned as error.
    pub fn communities_of<'a>(
        &'a self,
        advertisement: &'a PrefixAdvertisement,
        cluster: &'a Self,
    ) -> impl Iterator<Item = Result<CommunityValue, &'a str>> {
        advertisement.communities.iter().map(|text| {
            if let Ok(community) = text.parse() {
                return Ok(community);
            }
            self.communities
                .iter()
                .chain(&cluster.communities)
                .find(|named| named.name == *text)
                .map(|named| named.value)
                .ok_or(text.as_str())
        })
    }
}

impl Spec for BgpConfigurationSpec {
    const KIND: Option<Kind> = Some(Kind::BgpConfiguration);

    fn validate(&self, metadata: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        faults.form(
            "spec.logSeverityScreen",
            &self.log_severity_screen,
            LOG_SEVERITY,
        );
        if self.listen_port == Some(0) {
            faults.range("spec.listenPort", 0, "1 to 65535");
        }
        if self.as_number == Some(AsNumber(0)) {
            // RFC 7607: AS 0 must not be used.
            faults.push("spec.asNumber", Problem::Unwanted("AS 0 is reserved"));
        }
        for (at, glob) in self.ignored_interfaces.iter().enumerate() {
            let field = format!("spec.ignoredInterfaces[{at}]");
            faults.form(field.clone(), glob, INTERFACE_GLOB);
            if glob == "*" {
                faults.push(field, Problem::Unwanted("it would ignore every interface"));
            }
        }
        for (field, priority) in [
            (
                "spec.ipv4NormalRoutePriority",
                self.ipv4_normal_route_priority,
            ),
            (
                "spec.ipv6NormalRoutePriority",
                self.ipv6_normal_route_priority,
            ),
        ] {
            if priority.is_some_and(|priority| !(1..=ROUTE_PRIORITY_MAX).contains(&priority)) {
                faults.range(field, priority.unwrap_or_default(), "1 to 2147483646");
            }
        }
        self.validate_mesh(&mut faults);
        self.validate_communities(metadata, &mut faults);
        self.validate_scope(metadata, &mut faults);
        faults.0
    }
}

impl BgpConfigurationSpec {
    fn validate_mesh(&self, faults: &mut Faults) {
        // The password does not depend on the mesh: sessions with the fabric's reflectors use it
        // too.
        if !self.mesh() && self.node_mesh_max_restart_time.is_some() {
            let off = Problem::Unwanted("spec.nodeToNodeMeshEnabled is false");
            faults.push("spec.nodeMeshMaxRestartTime", off);
        }
    }

    fn validate_communities(&self, metadata: &Metadata, faults: &mut Faults) {
        faults.at_most("spec.communities", self.communities.len(), COMMUNITIES_MAX);
        let advertisements = &self.prefix_advertisements;
        let most = PREFIX_ADVERTISEMENTS_MAX;
        faults.at_most("spec.prefixAdvertisements", advertisements.len(), most);
        if advertisements.is_empty() && !self.communities.is_empty() {
            let unused = "no entry of spec.prefixAdvertisements uses them";
            faults.push("spec.communities", Problem::Unwanted(unused));
        }
        for (at, named) in self.communities.iter().enumerate() {
            let field = format!("spec.communities[{at}].name");
            faults.required(&field, &named.name);
            faults.form(field, &named.name, NAME);
        }
        for (at, advertisement) in advertisements.iter().enumerate() {
            let field = format!("spec.prefixAdvertisements[{at}]");
            faults.masked(format!("{field}.cidr"), advertisement.cidr);
            if advertisement.communities.is_empty() {
                faults.push(format!("{field}.communities"), Problem::Missing);
            }
            if metadata.name != DEFAULT_CONFIGURATION {
                continue; // Names may be those of the cluster's settings.
            }
            for (at, result) in self.communities_of(advertisement, self).enumerate() {
                if let Err(found) = result {
                    let found = found.to_owned();
                    let expected = "a community or a name in spec.communities";
                    let field = format!("{field}.communities[{at}]");
                    faults.push(field, Problem::Form { found, expected });
                }
            }
        }
    }

    /// Checks the fields that only the settings of the whole cluster can have.
    fn validate_scope(&self, metadata: &Metadata, faults: &mut Faults) {
        if metadata.name == DEFAULT_CONFIGURATION {
            return;
        }
        let only = "only the configuration named \"default\" can have it";
        for (field, there) in [
            (
                "nodeToNodeMeshEnabled",
                self.node_to_node_mesh_enabled.is_some(),
            ),
            ("asNumber", self.as_number.is_some()),
            ("serviceClusterIPs", !self.service_cluster_ips.is_empty()),
            ("serviceExternalIPs", !self.service_external_ips.is_empty()),
            (
                "serviceLoadBalancerIPs",
                !self.service_load_balancer_ips.is_empty(),
            ),
            ("nodeMeshPassword", self.node_mesh_password.is_some()),
            (
                "nodeMeshMaxRestartTime",
                self.node_mesh_max_restart_time.is_some(),
            ),
        ] {
            if there {
                faults.push(format!("spec.{field}"), Problem::Unwanted(only));
            }
        }
    }
}
