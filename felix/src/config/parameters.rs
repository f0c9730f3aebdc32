//! The settings of FelixConfiguration that Felix supports outside the datastore: as environment
//! variables with the names of Calico's parameters, or in the configuration file with the names of
//! the resource's fields.

use calico_model::FelixConfigurationSpec;
use serde_json::{Map, Value, json};

use crate::calc::fault;

/// A setting.
#[derive(Debug)]
pub(super) struct Parameter {
    /// Its name as a parameter of Calico's Felix.
    pub(super) name: &'static str,
    /// The field of FelixConfiguration.
    pub(super) field: &'static str,
    form: Form,
}

/// The text format of a parameter.
#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    /// A text in which `none` has no special meaning.
    Verbatim,
    Port,
    Bool,
    /// A number of things.
    Count,
    /// Bits, as a decimal or, after `0x`, a hexadecimal number.
    Mask,
    /// Seconds, possibly with a fraction.
    Seconds,
    /// Comma-separated texts.
    List,
    /// Comma-separated ports with protocols and ranges: `22`, `tcp:22`, `udp:10.0.0.0/8:68`,
    /// `tcp:[fd00::/8]:22`.
    Ports,
    /// Comma-separated times of named parts: `name=90s`.
    Timeouts,
    /// One of these words, in any case.
    Word(&'static [&'static str]),
}

const fn row(name: &'static str, field: &'static str, form: Form) -> Parameter {
    Parameter { name, field, form }
}

pub(super) const PARAMETERS: &[Parameter] = &[
    row(
        "AllowIPIPPacketsFromWorkloads",
        "allowIPIPPacketsFromWorkloads",
        Form::Bool,
    ),
    row(
        "AllowVXLANPacketsFromWorkloads",
        "allowVXLANPacketsFromWorkloads",
        Form::Bool,
    ),
    row(
        "DataplaneWatchdogTimeout",
        "dataplaneWatchdogTimeout",
        Form::Seconds,
    ),
    row(
        "DefaultEndpointToHostAction",
        "defaultEndpointToHostAction",
        Form::Word(&["Drop", "Return", "Accept"]),
    ),
    row(
        "DeviceRouteSourceAddress",
        "deviceRouteSourceAddress",
        Form::Text,
    ),
    row(
        "DeviceRouteSourceAddressIPv6",
        "deviceRouteSourceAddressIPv6",
        Form::Text,
    ),
    row(
        "DisableConntrackInvalidCheck",
        "disableConntrackInvalidCheck",
        Form::Bool,
    ),
    row(
        "EndpointReportingDelaySecs",
        "endpointReportingDelay",
        Form::Seconds,
    ),
    row(
        "EndpointReportingEnabled",
        "endpointReportingEnabled",
        Form::Bool,
    ),
    row(
        "EndpointStatusPathPrefix",
        "endpointStatusPathPrefix",
        Form::Text,
    ),
    row("ExternalNodesCIDRList", "externalNodesList", Form::List),
    row(
        "FailsafeInboundHostPorts",
        "failsafeInboundHostPorts",
        Form::Ports,
    ),
    row(
        "FailsafeOutboundHostPorts",
        "failsafeOutboundHostPorts",
        Form::Ports,
    ),
    row(
        "FloatingIPs",
        "floatingIPs",
        Form::Word(&["Enabled", "Disabled"]),
    ),
    row(
        "FlowLogsLocalReporter",
        "flowLogsLocalReporter",
        Form::Word(&["Enabled", "Disabled"]),
    ),
    row("HealthEnabled", "healthEnabled", Form::Bool),
    row("HealthHost", "healthHost", Form::Text),
    row("HealthPort", "healthPort", Form::Port),
    row(
        "HealthTimeoutOverrides",
        "healthTimeoutOverrides",
        Form::Timeouts,
    ),
    row("InterfaceExclude", "interfaceExclude", Form::Text),
    row("InterfacePrefix", "interfacePrefix", Form::Text),
    row("IpInIpEnabled", "ipipEnabled", Form::Bool),
    row("IpInIpMtu", "ipipMTU", Form::Count),
    row(
        "InterfaceRefreshInterval",
        "interfaceRefreshInterval",
        Form::Seconds,
    ),
    row(
        "IPForwarding",
        "ipForwarding",
        Form::Word(&["Enabled", "Disabled"]),
    ),
    row(
        "IpsetsRefreshInterval",
        "ipsetsRefreshInterval",
        Form::Seconds,
    ),
    row(
        "IptablesNATOutgoingInterfaceFilter",
        "iptablesNATOutgoingInterfaceFilter",
        Form::Text,
    ),
    row(
        "IPv4NormalRoutePriority",
        "ipv4NormalRoutePriority",
        Form::Count,
    ),
    row(
        "IPv6NormalRoutePriority",
        "ipv6NormalRoutePriority",
        Form::Count,
    ),
    row("Ipv6Support", "ipv6Support", Form::Bool),
    row("LogActionRateLimit", "logActionRateLimit", Form::Text),
    row(
        "LogActionRateLimitBurst",
        "logActionRateLimitBurst",
        Form::Count,
    ),
    row("LogPrefix", "logPrefix", Form::Text),
    row("LogSeverityScreen", "logSeverityScreen", Form::Text),
    row("MetadataAddr", "metadataAddr", Form::Verbatim),
    row("MetadataPort", "metadataPort", Form::Port),
    row("MTUIfacePattern", "mtuIfacePattern", Form::Text),
    row(
        "NFTablesFlowTableDataIfacePattern",
        "nftablesFlowTableDataIfacePattern",
        Form::Text,
    ),
    row(
        "NFTablesFlowTableOffload",
        "nftablesFlowTableOffload",
        Form::Word(&["Disabled", "All"]),
    ),
    row("NATOutgoingAddress", "natOutgoingAddress", Form::Text),
    row(
        "NATOutgoingExclusions",
        "natOutgoingExclusions",
        Form::Word(&["IPPoolsOnly", "IPPoolsAndHostIPs"]),
    ),
    row("NATPortRange", "natPortRange", Form::Text),
    row("NftablesMarkMask", "nftablesMarkMask", Form::Mask),
    row(
        "NftablesFilterDenyAction",
        "nftablesFilterDenyAction",
        Form::Word(&["Drop", "Reject"]),
    ),
    row(
        "NftablesRefreshInterval",
        "nftablesRefreshInterval",
        Form::Seconds,
    ),
    row("OpenstackRegion", "openstackRegion", Form::Text),
    row(
        "ProgramClusterRoutes",
        "programClusterRoutes",
        Form::Word(&[
            "Enabled",
            "Disabled",
            "EnabledIPIPOnly",
            "EnabledNoEncapOnly",
        ]),
    ),
    row(
        "PrometheusMetricsCAFile",
        "prometheusMetricsCAFile",
        Form::Text,
    ),
    row(
        "PrometheusMetricsCertFile",
        "prometheusMetricsCertFile",
        Form::Text,
    ),
    row(
        "PrometheusMetricsClientAuth",
        "prometheusMetricsClientAuth",
        Form::Text,
    ),
    row(
        "PrometheusMetricsEnabled",
        "prometheusMetricsEnabled",
        Form::Bool,
    ),
    row("PrometheusMetricsHost", "prometheusMetricsHost", Form::Text),
    row(
        "PrometheusMetricsKeyFile",
        "prometheusMetricsKeyFile",
        Form::Text,
    ),
    row("PrometheusMetricsPort", "prometheusMetricsPort", Form::Port),
    row(
        "PrometheusProcessMetricsEnabled",
        "prometheusProcessMetricsEnabled",
        Form::Bool,
    ),
    row("ReportingIntervalSecs", "reportingInterval", Form::Seconds),
    row("ReportingTTLSecs", "reportingTTL", Form::Seconds),
    row(
        "RouteRefreshInterval",
        "routeRefreshInterval",
        Form::Seconds,
    ),
    row(
        "RouteSource",
        "routeSource",
        Form::Word(&["CalicoIPAM", "WorkloadIPs"]),
    ),
    row("RouteSyncDisabled", "routeSyncDisabled", Form::Bool),
    row(
        "ServiceLoopPrevention",
        "serviceLoopPrevention",
        Form::Word(&["Drop", "Reject", "Disabled"]),
    ),
    row("VXLANEnabled", "vxlanEnabled", Form::Bool),
    row("VXLANMTU", "vxlanMTU", Form::Count),
    row("VXLANMTUV6", "vxlanMTUV6", Form::Count),
    row("VXLANPort", "vxlanPort", Form::Port),
    row("VXLANVNI", "vxlanVNI", Form::Count),
    row(
        "WorkloadSourceSpoofing",
        "workloadSourceSpoofing",
        Form::Word(&["Disabled", "Any"]),
    ),
];

impl Parameter {
    /// Parses the field's value from a text such as an environment variable. `none` means empty, as
    /// in Calico: an empty text, no time, false.
    pub(super) fn read(&self, text: &str) -> Result<Value, String> {
        let none = text.eq_ignore_ascii_case("none");
        match self.form {
            Form::Text if none => Ok("".into()),
            Form::Text | Form::Verbatim => Ok(text.into()),
            Form::Port => text
                .parse::<u16>()
                .map(Value::from)
                .map_err(|_| format!("'{text}' is not a port")),
            Form::Bool => boolean(text).map(Value::Bool),
            Form::Count if none => Ok(0.into()),
            Form::Count => text
                .parse::<u32>()
                .map(Value::from)
                .map_err(|_| format!("'{text}' is not a whole number")),
            Form::List if none || text.is_empty() => Ok(Value::Array(Vec::new())),
            Form::List => Ok(text.split(',').map(str::trim).collect()),
            Form::Ports if none || text.is_empty() => Ok(Value::Array(Vec::new())),
            Form::Ports => text.split(',').map(|one| port(one.trim())).collect(),
            Form::Timeouts if none || text.is_empty() => Ok(Value::Array(Vec::new())),
            Form::Timeouts => text.split(',').map(timeout).collect(),
            Form::Mask => mask(text).map(Value::from),
            Form::Seconds => seconds(text).map(|seconds| format!("{seconds}s").into()),
            Form::Word(words) => words
                .iter()
                .find(|word| word.eq_ignore_ascii_case(text))
                .map(|word| (*word).into())
                .ok_or_else(|| format!("'{text}' is not one of {}", words.join(", "))),
        }
    }
}

/// Parses a port with an optional protocol and range.
fn port(text: &str) -> Result<Value, String> {
    let fault = || format!("'{text}' is not a port such as tcp:22 or udp:10.0.0.0/8:68");
    let (rest, number) = match text.rsplit_once(':') {
        Some((rest, number)) => (Some(rest), number),
        None => (None, text),
    };
    let port: u16 = number.parse().map_err(|_| fault())?;
    let (protocol, net) = match rest.map(|rest| rest.split_once(':').unwrap_or((rest, ""))) {
        None => ("tcp", ""),
        Some((protocol, net)) => (protocol, net),
    };
    let net = match net.strip_prefix('[') {
        Some(net) => net.strip_suffix(']').ok_or_else(fault)?,
        None => net,
    };
    Ok(json!({"protocol": protocol, "net": net, "port": port}))
}

/// Parses bits.
fn mask(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let bits = match digits {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    bits.map_err(|_| format!("'{text}' is not a mask of 32 bits such as 0xffff0000"))
}

/// Parses a boolean in the words that Calico accepts.
fn boolean(text: &str) -> Result<bool, String> {
    match &*text.to_ascii_lowercase() {
        "true" | "1" | "yes" | "y" | "t" => Ok(true),
        "false" | "0" | "no" | "n" | "f" | "none" => Ok(false),
        _ => Err(format!("'{text}' is neither true nor false")),
    }
}

/// Parses the time of a named part.
fn timeout(text: &str) -> Result<Value, String> {
    let (name, timeout) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not a name and a time such as a=90s"))?;
    Ok(json!({"name": name.trim(), "timeout": timeout.trim()}))
}

/// Parses a number of seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let text = if text.eq_ignore_ascii_case("none") {
        "0"
    } else {
        text
    };
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => Err(format!("'{text}' is not a number of seconds")),
    }
}

/// Returns the settings with one field set, if the value is valid.
pub(super) fn setting(field: &str, value: Value) -> Result<FelixConfigurationSpec, String> {
    let spec = Map::from_iter([(field.to_owned(), value)]);
    let spec: FelixConfigurationSpec =
        serde_json::from_value(spec.into()).map_err(|error| error.to_string())?;
    match fault(&spec) {
        Some((_, reason)) => Err(reason),
        None => Ok(spec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calico_model::Standing;

    #[test]
    fn file_settings_are_those_supported_in_the_store() {
        let fields = PARAMETERS.iter().map(|parameter| parameter.field);
        let mut fields: Vec<&str> = fields.collect();
        fields.sort_unstable();
        let declared = calico_model::declared(calico_model::Kind::FelixConfiguration).into_iter();
        let supported = declared.filter(|one| matches!(one.standing, Standing::Supported(_)));
        // A file is for one node.
        let supported = supported.filter(|one| one.path != "spec.nodeSelector");
        let mut paths: Vec<String> = supported.map(|one| one.path).collect();
        paths.sort_unstable();
        let fields = fields.iter().map(|field| format!("spec.{field}"));
        assert_eq!(paths, fields.collect::<Vec<_>>());
    }
}
