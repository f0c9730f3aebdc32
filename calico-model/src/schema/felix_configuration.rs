//! FelixConfiguration: the settings that Felix supports, and all others of Calico's.

use serde_json::Value;

use super::Program::Felix;
use super::Shape::{Any, Object};
use super::{Fields, envelope, felix, is_set, no, parts};

/// Words that request nothing, or the built-in behavior.
const NOTHING: [&str; 4] = ["Disabled", "Info", "None", "IPPoolsOnly"];

fn asks(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty() && !NOTHING.contains(&text.as_str()),
        Value::Number(_) => true,
        Value::Array(list) => list.iter().any(asks),
        Value::Object(fields) => fields.values().any(asks),
        other => is_set(other),
    }
}

/// Returns whether a value is set and none of these words, which state what Felix does anyway.
fn differs(value: &Value, words: &[&str]) -> bool {
    let has = |text: &str| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty() && !has(text),
        Value::Bool(flag) => !has(if *flag { "true" } else { "false" }),
        _ => true,
    }
}

macro_rules! settings {
    (
        supported $($supported:literal)*
        stated $($stated:literal [$($word:literal),*] $why:literal)*
        in_part $($part:literal $reason:literal)*
        unsupported $($other:literal)*
    ) => {
        &[
            $(felix($supported, Any),)*
            $(no(Some(Felix), $stated, Any, |value| differs(value, &[$($word),*]), $why),)*
            $(no(Some(Felix), $part, Any, asks, $reason),)*
            $(no(Some(Felix), $other, Any, asks, "the setting is not supported and has no effect"),)*
        ]
    };
}

pub(super) const FELIX_CONFIGURATION: Fields = envelope!(parts("spec", Object(SETTINGS)));

const SETTINGS: Fields = settings! {
    supported
        "defaultEndpointToHostAction"
        "endpointReportingDelay"
        "endpointReportingEnabled"
        "floatingIPs"
        "interfacePrefix"
        "ipv6Support"
        "metadataAddr"
        "metadataPort"
        "natOutgoingAddress"
        "natOutgoingExclusions"
        "natPortRange"
        "openstackRegion"
        "reportingInterval"
        "reportingTTL"
        "allowIPIPPacketsFromWorkloads"
        "allowVXLANPacketsFromWorkloads"
        "externalNodesList"
        "vxlanMTU"
        "vxlanMTUV6"
        "vxlanPort"
        "vxlanVNI"
        "workloadSourceSpoofing"
        "logActionRateLimit"
        "logActionRateLimitBurst"
        "logPrefix"
        "disableConntrackInvalidCheck"
        "serviceLoopPrevention"
        "nftablesFilterDenyAction"
        "interfaceRefreshInterval"
        "iptablesNATOutgoingInterfaceFilter"
        "failsafeInboundHostPorts"
        "failsafeOutboundHostPorts"
        "healthEnabled"
        "healthHost"
        "healthPort"
        "healthTimeoutOverrides"
        "prometheusMetricsCAFile"
        "prometheusMetricsCertFile"
        "prometheusMetricsClientAuth"
        "prometheusMetricsKeyFile"
        "prometheusMetricsEnabled"
        "prometheusMetricsHost"
        "prometheusMetricsPort"
        "flowLogsLocalReporter"
        "vxlanEnabled"
        "dataplaneWatchdogTimeout"
        "deviceRouteSourceAddress"
        "deviceRouteSourceAddressIPv6"
        "endpointStatusPathPrefix"
        "interfaceExclude"
        "ipForwarding"
        "ipsetsRefreshInterval"
        "ipv4NormalRoutePriority"
        "ipv6NormalRoutePriority"
        "logSeverityScreen"
        "mtuIfacePattern"
        "nftablesRefreshInterval"
        "nodeSelector"
        "programClusterRoutes"
        "routeRefreshInterval"
        "routeSource"
        "routeSyncDisabled"
    stated
        "nftablesMode" ["Auto", "Enabled"] "nftables is the only packet filter of Felix"
        "usageReportingEnabled" ["false"] "Felix sends no reports to anyone: this is the behavior of false"
        "removeExternalRoutes" ["false"] "Felix never removes routes of other programs: this is the behavior of false"
        "prometheusGoMetricsEnabled" ["false"] "Felix has no Go runtime, and so no metrics of it: this is the behavior of false"
        "prometheusWireGuardMetricsEnabled" ["false"] "Felix makes no WireGuard devices, and so has no metrics of them"
        "requireMTUFile" ["false"] "Felix reads and writes no file with an MTU: this is the behavior of false"
        "sidecarAccelerationEnabled" ["false"] "Felix has no acceleration of sidecars: this is the behavior of false"
        "debugDisableLogDropping" ["false"] "Felix never waits for the log: this is the behavior of false"
    in_part
        "chainInsertMode" "Felix has base chains of its own in nftables, which no other table can precede or bypass"
        "deviceRouteProtocol" "the key route_protocol of the file of Felix sets the protocol, before the datastore is read"
        "ipipEnabled" "Felix makes no IP in IP device; the packet filter follows the pools with an ipipMode"
        "ipipMTU" "Felix makes no IP in IP device"
        "nftablesFilterAllowAction" "an accepted packet always continues with later chains of other tables, as with Return"
        "nftablesMangleAllowAction" "an accepted packet always continues with later chains of other tables, as with Return"
        "maxIpsetSize" "sets of nftables have no maximum size, as in Calico"
        "routeTableRange" "Felix uses one routing table, which the key route_table of its file sets"
        "routeTableRanges" "Felix uses one routing table, which the key route_table of its file sets"
        "netlinkTimeout" "requests to the kernel have a fixed time limit of 5 seconds"
    unsupported
        "awsSrcDstCheck"
        "bpfAttachType"
        "bpfCTLBLogFilter"
        "bpfConnectTimeLoadBalancing"
        "bpfConnectTimeLoadBalancingEnabled"
        "bpfConntrackLogLevel"
        "bpfConntrackMode"
        "bpfConntrackTimeouts"
        "bpfDSROptoutCIDRs"
        "bpfDataIfacePattern"
        "bpfDisableGROForIfaces"
        "bpfDisableUnprivileged"
        "bpfEnabled"
        "bpfEnforceRPF"
        "bpfExcludeCIDRsFromNAT"
        "bpfExportBufferSizeMB"
        "bpfExtToServiceConnmark"
        "bpfExternalServiceMode"
        "bpfForceTrackPacketsFromIfaces"
        "bpfHostConntrackBypass"
        "bpfHostNetworkedNATWithoutCTLB"
        "bpfIPFragTimeout"
        "bpfIPFragmentReassemblyEnabled"
        "bpfJITHardening"
        "bpfKubeProxyHealthzPort"
        "bpfKubeProxyIptablesCleanupEnabled"
        "bpfKubeProxyMinSyncPeriod"
        "bpfL3IfacePattern"
        "bpfLogFilters"
        "bpfLogLevel"
        "bpfMaglevMaxEndpointsPerService"
        "bpfMaglevMaxServices"
        "bpfMapSizeConntrack"
        "bpfMapSizeConntrackCleanupQueue"
        "bpfMapSizeConntrackScaling"
        "bpfMapSizeIPSets"
        "bpfMapSizeIfState"
        "bpfMapSizeNATAffinity"
        "bpfMapSizeNATBackend"
        "bpfMapSizeNATFrontend"
        "bpfMapSizePerCpuConntrack"
        "bpfMapSizeRoute"
        "bpfOverlayHostSourceIP"
        "bpfPSNATPorts"
        "bpfPolicyDebugEnabled"
        "bpfProfiling"
        "bpfRedirectToPeer"
        "cgroupV2Path"
        "dataplaneDriver"
        "debugHost"
        "debugMemoryProfilePath"
        "debugPort"
        "debugSimulateCalcGraphHangAfter"
        "debugSimulateDataplaneApplyDelay"
        "debugSimulateDataplaneHangAfter"
        "featureDetectOverride"
        "featureGates"
        "flowLogsCollectorDebugTrace"
        "flowLogsFlushInterval"
        "flowLogsGoldmaneServer"
        "flowLogsPolicyEvaluationMode"
        "genericXDPEnabled"
        "goGCThreshold"
        "goMaxProcs"
        "goMemoryLimitMB"
        "iptablesBackend"
        "iptablesFilterAllowAction"
        "iptablesFilterDenyAction"
        "iptablesLockProbeInterval"
        "iptablesMangleAllowAction"
        "iptablesMarkMask"
        "iptablesPostWriteCheckInterval"
        "iptablesRefreshInterval"
        "ipv4ElevatedRoutePriority"
        "ipv6ElevatedRoutePriority"
        "istioAmbientMode"
        "istioDSCPMark"
        "kubeNodePortRanges"
        "liveMigrationRouteConvergenceTime"
        "localSubnetL2Reachability"
        "localSubnetL2ReachabilityRefreshInterval"
        "logDebugFilenameRegex"
        "logFilePath"
        "logSeverityFile"
        "logSeveritySys"
        "nftablesFlowTableDataIfacePattern"
        "nftablesFlowTableOffload"
        "nftablesMarkMask"
        "policySyncPathPrefix"
        "prometheusProcessMetricsEnabled"
        "usageReportingInitialDelay"
        "usageReportingInterval"
        "useInternalDataplaneDriver"
        "windowsManageFirewallRules"
        "wireguardEnabled"
        "wireguardEnabledV6"
        "wireguardHostEncryptionEnabled"
        "wireguardInterfaceName"
        "wireguardInterfaceNameV6"
        "wireguardKeepAlive"
        "wireguardListeningPort"
        "wireguardListeningPortV6"
        "wireguardMTU"
        "wireguardMTUV6"
        "wireguardRoutingRulePriority"
        "wireguardThreadingEnabled"
        "xdpEnabled"
        "xdpRefreshInterval"
};
