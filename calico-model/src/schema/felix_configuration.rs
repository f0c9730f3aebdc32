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
    ) => {
        &[
            $(felix($supported, Any),)*
            $(no(Some(Felix), $stated, Any, |value| differs(value, &[$($word),*]), $why),)*
            $(no(Some(Felix), $part, Any, asks, $reason),)*
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
        "prometheusProcessMetricsEnabled"
        "flowLogsLocalReporter"
        "vxlanEnabled"
        "dataplaneWatchdogTimeout"
        "deviceRouteSourceAddress"
        "deviceRouteSourceAddressIPv6"
        "endpointStatusPathPrefix"
        "interfaceExclude"
        "ipForwarding"
        "ipipEnabled"
        "ipipMTU"
        "ipsetsRefreshInterval"
        "ipv4NormalRoutePriority"
        "ipv6NormalRoutePriority"
        "logSeverityScreen"
        "mtuIfacePattern"
        "nftablesFlowTableDataIfacePattern"
        "nftablesFlowTableOffload"
        "nftablesMarkMask"
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
        "useInternalDataplaneDriver" ["true"] "Felix itself programs the kernel, and has no interface to another driver: this is the behavior of true"
    in_part
        "chainInsertMode" "Felix has base chains of its own in nftables, which no other table can precede or bypass"
        "deviceRouteProtocol" "the key route_protocol of the file of Felix sets the protocol, before the datastore is read"
        "nftablesFilterAllowAction" "an accepted packet always continues with later chains of other tables, as with Return"
        "nftablesMangleAllowAction" "an accepted packet always continues with later chains of other tables, as with Return"
        "maxIpsetSize" "sets of nftables have no maximum size, as in Calico"
        "routeTableRange" "Felix uses one routing table, which the key route_table of its file sets"
        "routeTableRanges" "Felix uses one routing table, which the key route_table of its file sets"
        "netlinkTimeout" "requests to the kernel have a fixed time limit of 5 seconds"
        "awsSrcDstCheck" "Felix does not use the interface of AWS"
        "bpfAttachType" "Felix has no eBPF data plane"
        "bpfCTLBLogFilter" "Felix has no eBPF data plane"
        "bpfConnectTimeLoadBalancing" "Felix has no eBPF data plane"
        "bpfConnectTimeLoadBalancingEnabled" "Felix has no eBPF data plane"
        "bpfConntrackLogLevel" "Felix has no eBPF data plane"
        "bpfConntrackMode" "Felix has no eBPF data plane"
        "bpfConntrackTimeouts" "Felix has no eBPF data plane"
        "bpfDSROptoutCIDRs" "Felix has no eBPF data plane"
        "bpfDataIfacePattern" "Felix has no eBPF data plane"
        "bpfDisableGROForIfaces" "Felix has no eBPF data plane"
        "bpfDisableUnprivileged" "Felix has no eBPF data plane"
        "bpfEnabled" "Felix has no eBPF data plane"
        "bpfEnforceRPF" "Felix has no eBPF data plane"
        "bpfExcludeCIDRsFromNAT" "Felix has no eBPF data plane"
        "bpfExportBufferSizeMB" "Felix has no eBPF data plane"
        "bpfExtToServiceConnmark" "Felix has no eBPF data plane"
        "bpfExternalServiceMode" "Felix has no eBPF data plane"
        "bpfForceTrackPacketsFromIfaces" "Felix has no eBPF data plane"
        "bpfHostConntrackBypass" "Felix has no eBPF data plane"
        "bpfHostNetworkedNATWithoutCTLB" "Felix has no eBPF data plane"
        "bpfIPFragTimeout" "Felix has no eBPF data plane"
        "bpfIPFragmentReassemblyEnabled" "Felix has no eBPF data plane"
        "bpfJITHardening" "Felix has no eBPF data plane"
        "bpfKubeProxyHealthzPort" "Felix has no eBPF data plane"
        "bpfKubeProxyIptablesCleanupEnabled" "Felix has no eBPF data plane"
        "bpfKubeProxyMinSyncPeriod" "Felix has no eBPF data plane"
        "bpfL3IfacePattern" "Felix has no eBPF data plane"
        "bpfLogFilters" "Felix has no eBPF data plane"
        "bpfLogLevel" "Felix has no eBPF data plane"
        "bpfMaglevMaxEndpointsPerService" "Felix has no eBPF data plane"
        "bpfMaglevMaxServices" "Felix has no eBPF data plane"
        "bpfMapSizeConntrack" "Felix has no eBPF data plane"
        "bpfMapSizeConntrackCleanupQueue" "Felix has no eBPF data plane"
        "bpfMapSizeConntrackScaling" "Felix has no eBPF data plane"
        "bpfMapSizeIPSets" "Felix has no eBPF data plane"
        "bpfMapSizeIfState" "Felix has no eBPF data plane"
        "bpfMapSizeNATAffinity" "Felix has no eBPF data plane"
        "bpfMapSizeNATBackend" "Felix has no eBPF data plane"
        "bpfMapSizeNATFrontend" "Felix has no eBPF data plane"
        "bpfMapSizePerCpuConntrack" "Felix has no eBPF data plane"
        "bpfMapSizeRoute" "Felix has no eBPF data plane"
        "bpfOverlayHostSourceIP" "Felix has no eBPF data plane"
        "bpfPSNATPorts" "Felix has no eBPF data plane"
        "bpfPolicyDebugEnabled" "Felix has no eBPF data plane"
        "bpfProfiling" "Felix has no eBPF data plane"
        "bpfRedirectToPeer" "Felix has no eBPF data plane"
        "cgroupV2Path" "Felix has no eBPF data plane"
        "dataplaneDriver" "Felix itself programs the kernel, and starts no driver"
        "debugHost" "Felix does not have this aid of Calico's developers"
        "debugMemoryProfilePath" "Felix does not have this aid of Calico's developers"
        "debugPort" "Felix does not have this aid of Calico's developers"
        "debugSimulateCalcGraphHangAfter" "Felix does not have this aid of Calico's developers"
        "debugSimulateDataplaneApplyDelay" "Felix does not have this aid of Calico's developers"
        "debugSimulateDataplaneHangAfter" "Felix does not have this aid of Calico's developers"
        "featureDetectOverride" "Felix detects no features: it requests what it needs of the kernel, and reports a refusal"
        "featureGates" "Felix has none of Calico's features with a gate"
        "flowLogsCollectorDebugTrace" "the flow log has no trace of its own: set the level of the log"
        "flowLogsFlushInterval" "the flow log stays on this host, and cambric flows reads it"
        "flowLogsGoldmaneServer" "the flow log stays on this host, and cambric flows reads it"
        "flowLogsPolicyEvaluationMode" "a row has the decision about the first packet of a flow, also after a change of policies"
        "genericXDPEnabled" "Felix does not use XDP"
        "goGCThreshold" "Felix has no Go runtime"
        "goMaxProcs" "Felix has no Go runtime"
        "goMemoryLimitMB" "Felix has no Go runtime"
        "iptablesBackend" "Felix does not use iptables"
        "iptablesFilterAllowAction" "Felix does not use iptables"
        "iptablesFilterDenyAction" "Felix does not use iptables"
        "iptablesLockProbeInterval" "Felix does not use iptables"
        "iptablesMangleAllowAction" "Felix does not use iptables"
        "iptablesMarkMask" "Felix does not use iptables"
        "iptablesPostWriteCheckInterval" "Felix does not use iptables"
        "iptablesRefreshInterval" "Felix does not use iptables"
        "ipv4ElevatedRoutePriority" "a live migration does not change the metric of a route"
        "ipv6ElevatedRoutePriority" "a live migration does not change the metric of a route"
        "istioAmbientMode" "Felix has no rules for workloads in the ambient mode of Istio"
        "istioDSCPMark" "Felix has no rules for workloads in the ambient mode of Istio"
        "kubeNodePortRanges" "Felix has no rules for node ports"
        "liveMigrationRouteConvergenceTime" "a live migration does not change the metric of a route"
        "localSubnetL2Reachability" "Felix answers ARP and neighbor discovery only at workload interfaces"
        "localSubnetL2ReachabilityRefreshInterval" "Felix answers ARP and neighbor discovery only at workload interfaces"
        "logDebugFilenameRegex" "the key log in the file of Felix has directives for parts of the program"
        "logFilePath" "Felix writes its log to standard error only"
        "logSeverityFile" "Felix writes its log to standard error only"
        "logSeveritySys" "Felix writes its log to standard error only"
        "policySyncPathPrefix" "Felix passes no policies to other programs"
        "usageReportingInitialDelay" "Felix sends no reports to anyone"
        "usageReportingInterval" "Felix sends no reports to anyone"
        "windowsManageFirewallRules" "Felix runs on Linux only"
        "wireguardEnabled" "Felix makes no WireGuard devices"
        "wireguardEnabledV6" "Felix makes no WireGuard devices"
        "wireguardHostEncryptionEnabled" "Felix makes no WireGuard devices"
        "wireguardInterfaceName" "Felix makes no WireGuard devices"
        "wireguardInterfaceNameV6" "Felix makes no WireGuard devices"
        "wireguardKeepAlive" "Felix makes no WireGuard devices"
        "wireguardListeningPort" "Felix makes no WireGuard devices"
        "wireguardListeningPortV6" "Felix makes no WireGuard devices"
        "wireguardMTU" "Felix makes no WireGuard devices"
        "wireguardMTUV6" "Felix makes no WireGuard devices"
        "wireguardRoutingRulePriority" "Felix makes no WireGuard devices"
        "wireguardThreadingEnabled" "Felix makes no WireGuard devices"
        "xdpEnabled" "Felix does not use XDP"
        "xdpRefreshInterval" "Felix does not use XDP"
};
