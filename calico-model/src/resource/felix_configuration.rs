//! FelixConfiguration: settings of the agent, for all hosts (`default`) or one (`node.<name>`).

use serde::{Deserialize, Serialize};

use super::rule::Port;
use super::{Metadata, Spec};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, or_default};
use crate::validate::{Faults, Invalid, Problem};
use crate::value::duration::GoDuration;

/// Spec of the agent's settings that Felix supports. All others are kept unchanged.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FelixConfigurationSpec {
    /// Prefixes of the names of workload interfaces, comma-separated.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub interface_prefix: String,
    /// The action for packets from a workload to its own host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_endpoint_to_host_action: Option<EndpointToHostAction>,
    /// Interval of the agent's liveness reports; zero for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reporting_interval: Option<GoDuration>,
    /// Time to live of such a report.
    #[serde(
        rename = "reportingTTL",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub reporting_ttl: Option<GoDuration>,
    /// Whether the states of endpoints are reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_reporting_enabled: Option<bool>,
    /// Minimum time between two reports of endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_reporting_delay: Option<GoDuration>,
    /// Interval of comparing the kernel's routes with the wanted ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_refresh_interval: Option<GoDuration>,
    /// Interval of listing the kernel's interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface_refresh_interval: Option<GoDuration>,
    /// Whether IPv6 is set up at all.
    #[serde(
        rename = "ipv6Support",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub ipv6_support: Option<bool>,
    /// The `rtm_protocol` of the agent's routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_route_protocol: Option<u8>,
    /// Minimum severity of logged messages: `Debug`, `Info`, `Warning`, `Error`, `Fatal`.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub log_severity_screen: String,
    /// The address of OpenStack's metadata service, or `None` in any case to disable it.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub metadata_addr: String,
    /// Its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_port: Option<u16>,
    /// Whether workloads may have floating addresses: `Enabled` or `Disabled`.
    #[serde(
        rename = "floatingIPs",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub floating_ips: String,
    /// The IPv4 source address of `natOutgoing`, instead of the address of the outgoing interface.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub nat_outgoing_address: String,
    /// The source ports of `natOutgoing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_port_range: Option<Port>,
    /// Unknown settings.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The action for packets from a workload to its own host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndpointToHostAction {
    /// They are dropped.
    #[serde(alias = "DROP")]
    Drop,
    /// The host's own rules decide.
    #[serde(alias = "RETURN")]
    Return,
    /// They pass.
    #[serde(alias = "ACCEPT")]
    Accept,
}

impl FelixConfigurationSpec {
    /// Returns these settings, with missing ones taken from `base`: a host's own settings override
    /// the default.
    #[must_use]
    pub fn over(self, base: &Self) -> Self {
        let text = |own: String, base: &String| if own.is_empty() { base.clone() } else { own };
        let mut unknown = base.unknown.clone();
        unknown.extend(self.unknown);
        Self {
            interface_prefix: text(self.interface_prefix, &base.interface_prefix),
            default_endpoint_to_host_action: self
                .default_endpoint_to_host_action
                .or(base.default_endpoint_to_host_action),
            reporting_interval: self.reporting_interval.or(base.reporting_interval),
            reporting_ttl: self.reporting_ttl.or(base.reporting_ttl),
            endpoint_reporting_enabled: self
                .endpoint_reporting_enabled
                .or(base.endpoint_reporting_enabled),
            endpoint_reporting_delay: self
                .endpoint_reporting_delay
                .or(base.endpoint_reporting_delay),
            route_refresh_interval: self.route_refresh_interval.or(base.route_refresh_interval),
            interface_refresh_interval: self
                .interface_refresh_interval
                .or(base.interface_refresh_interval),
            ipv6_support: self.ipv6_support.or(base.ipv6_support),
            device_route_protocol: self.device_route_protocol.or(base.device_route_protocol),
            log_severity_screen: text(self.log_severity_screen, &base.log_severity_screen),
            metadata_addr: text(self.metadata_addr, &base.metadata_addr),
            metadata_port: self.metadata_port.or(base.metadata_port),
            floating_ips: text(self.floating_ips, &base.floating_ips),
            nat_outgoing_address: text(self.nat_outgoing_address, &base.nat_outgoing_address),
            nat_port_range: self.nat_port_range.or_else(|| base.nat_port_range.clone()),
            unknown,
        }
    }
}

impl Spec for FelixConfigurationSpec {
    const KIND: Option<Kind> = Some(Kind::FelixConfiguration);

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        if self
            .interface_prefix
            .split(',')
            .any(|prefix| prefix.trim().is_empty())
            && !self.interface_prefix.is_empty()
        {
            let found = self.interface_prefix.clone();
            let expected = "a list of interface prefixes with commas between them";
            faults.push("spec.interfacePrefix", Problem::Form { found, expected });
        }
        faults.0
    }
}
