//! Settings: FelixConfiguration `default`, overridden by `node.<hostname>`, overridden by the
//! host's own.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use calico_model::{
    ClusterRoutes, EndpointFile, EndpointToHostAction, FelixConfigurationSpec, GoDuration, Port,
    Region,
};
use ipnet::IpNet;
use serde_json::Value;

use super::failsafe::failsafe;
use super::fields::{at, choice, field};
use super::listening::{Listening, listening};
use super::mark::{MARK_MASK, mark_mask};
use super::offload::{Offload, offload};
use super::pattern::{Excluded, Pattern, excluded, uplinks};
use super::read::interface_prefixes;
use super::routing::{Routing, routing};
use super::types::is_interface_name;
use crate::limits::{
    INTERFACE_REFRESH, INTERFACE_REFRESH_MIN, IPV4_MTU_MIN, IPV6_MTU_MIN, LOG_BURST, LOG_RATE_MAX,
    MTU_MAX, RULES_CHECK, RULES_CHECK_MIN, VXLAN_VNI_MAX,
};
use crate::render::{
    Denial, Encapsulation, Failsafe, Family, LogSettings, LoopPrevention, Outgoing, Period, Rate,
    Through, ToHostAction, VXLAN_PORT,
};

/// Default interface prefixes.
pub const INTERFACE_PREFIXES: [&str; 2] = ["cali", "tap"];

/// Default of the pools without VXLAN whose routes Felix installs (as in Calico).
const CLUSTER_ROUTES: ClusterRoutes = ClusterRoutes::EnabledIpipOnly;

/// Default VXLAN network identifier (as in Calico).
const VXLAN_VNI: u32 = 4096;

/// The levels of the log (as in Calico).
const LOG_LEVELS: [&str; 6] = ["Trace", "Debug", "Info", "Warning", "Error", "Fatal"];

/// Default address and port of OpenStack's metadata service.
const METADATA: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 8775);

/// The settings in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Prefixes of the names of workload interfaces, sorted.
    pub interface_prefixes: Vec<String>,
    /// The action for workload traffic to the host itself.
    pub to_host: ToHostAction,
    /// Whether workloads have IPv6 at all.
    pub ipv6: bool,
    /// Interval of the agent's liveness reports; zero: none.
    pub reporting_interval: Duration,
    /// Time to live of such a report.
    pub reporting_ttl: Duration,
    /// Whether states of endpoints are reported.
    pub endpoint_reporting: bool,
    /// Minimum time between two reports of endpoints.
    pub endpoint_reporting_delay: Duration,
    /// The region of the reports' keys.
    pub region: Region,
    /// Address and port of OpenStack's metadata service, if there is one.
    pub metadata: Option<(Ipv4Addr, u16)>,
    /// Whether workloads of any orchestrator may have floating addresses, not only OpenStack's.
    pub floating_ips: bool,
    /// Whether endpoints may use the further source addresses that they name.
    pub source_spoofing: bool,
    /// Source translation for destinations outside all pools.
    pub outgoing: Outgoing,
    /// The encapsulation that workloads may use, and the port of VXLAN.
    pub encapsulation: Encapsulation,
    /// The tunnel devices of this host.
    pub overlay: OverlaySettings,
    /// The interfaces whose MTU counts for VXLAN devices; `None`: those with the built-in names.
    pub uplinks: Option<Pattern>,
    /// Sources of tunnels that are not nodes.
    pub tunnel_sources: Vec<IpNet>,
    /// The lines of `Log` rules.
    pub log: LogSettings,
    /// Whether policies also apply to packets that are part of no connection.
    pub takes_invalid: bool,
    /// The action for packets to services that are not translated.
    pub service_loops: LoopPrevention,
    /// The action for packets that policies and profiles deny.
    pub denial: Denial,
    /// Interval of checking the settings of interfaces; `None`: never.
    pub interface_refresh: Option<Duration>,
    /// The ports of the host that no policy closes.
    pub failsafe: Failsafe,
    /// The interfaces to which no host endpoint applies.
    pub excluded: Excluded,
    /// The sockets for probes.
    pub listening: Listening,
    /// Routes and forwarding.
    pub routing: Routing,
    /// Interval of comparing the packet filter with the written one; `None`: never.
    pub rules_check: Option<Duration>,
    /// Directory of the status files of endpoints; `None`: no files.
    pub endpoint_files: Option<PathBuf>,
    /// The level of the log, if one is set.
    pub log_level: Option<String>,
    /// The bits of the mark of packets that Felix may use.
    pub mark_mask: u32,
    /// The connections that are offloaded to the kernel; `None`: none.
    pub offload: Option<Offload>,
    /// Whether the first packets of connections are collected.
    pub flow_log: bool,
}

impl Settings {
    /// Returns the settings of a spec.
    pub fn new(spec: &FelixConfigurationSpec) -> Self {
        let or = |given: Option<GoDuration>, built_in| {
            given.map_or_else(|| Duration::from_secs(built_in), |duration| duration.0)
        };
        let to_host = spec.default_endpoint_to_host_action;
        let refresh = spec.interface_refresh_interval;
        let refresh = refresh.map_or(INTERFACE_REFRESH, |refresh| refresh.0);
        Self {
            interface_prefixes: prefixes(spec),
            to_host: match to_host.unwrap_or(EndpointToHostAction::Drop) {
                EndpointToHostAction::Drop => ToHostAction::Drop,
                EndpointToHostAction::Return => ToHostAction::Return,
                EndpointToHostAction::Accept => ToHostAction::Accept,
            },
            ipv6: spec.ipv6_support.unwrap_or(true),
            reporting_interval: or(spec.reporting_interval, 30),
            reporting_ttl: or(spec.reporting_ttl, 90),
            endpoint_reporting: spec.endpoint_reporting_enabled.unwrap_or(false),
            endpoint_reporting_delay: or(spec.endpoint_reporting_delay, 1),
            region: region(spec).unwrap_or_default(),
            metadata: metadata(spec).unwrap_or(Some(METADATA)),
            floating_ips: spec.floating_ips.eq_ignore_ascii_case("enabled"),
            source_spoofing: source_spoofing(spec).unwrap_or_default(),
            outgoing: outgoing(spec).unwrap_or_default(),
            encapsulation: encapsulation(spec).unwrap_or_default(),
            overlay: overlay(spec).unwrap_or_default(),
            uplinks: uplinks(spec).unwrap_or_default(),
            tunnel_sources: tunnel_sources(spec).unwrap_or_default(),
            log: log(spec).unwrap_or_default(),
            takes_invalid: takes_invalid(spec).unwrap_or_default(),
            service_loops: service_loops(spec).unwrap_or_default(),
            denial: denial(spec).unwrap_or_default(),
            interface_refresh: Some(refresh).filter(|refresh| !refresh.is_zero()),
            failsafe: failsafe(spec).unwrap_or_default(),
            excluded: excluded(spec).unwrap_or_default(),
            listening: listening(spec).unwrap_or_default(),
            routing: routing(spec).unwrap_or_default(),
            rules_check: rules_check(spec).unwrap_or(Some(RULES_CHECK)),
            endpoint_files: endpoint_files(spec).unwrap_or_default(),
            log_level: log_level(spec).unwrap_or_default(),
            mark_mask: mark_mask(spec).unwrap_or(MARK_MASK),
            offload: offload(spec).unwrap_or_default(),
            flow_log: flow_log(spec).unwrap_or_default(),
        }
    }

    /// Returns whether an interface is a workload interface.
    pub(crate) fn is_workload_interface(&self, name: &str) -> bool {
        self.interface_prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix.as_str()))
    }
}

/// The parameters of the tunnel devices of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlaySettings {
    /// The VXLAN network identifier.
    pub vni: u32,
    /// VXLAN for IPv4 is used or not, whatever the pools are; `None`: as the pools.
    pub enabled: Option<bool>,
    /// The pools without VXLAN to whose blocks on other nodes Felix installs routes.
    pub cluster_routes: ClusterRoutes,
    /// Routes lead to single workloads, not to blocks.
    pub by_workload: bool,
    /// The device for IP in IP is used or not, whatever the pools are; `None`: as the pools.
    pub ipip: Option<bool>,
    /// Its MTU; `None`: it follows from the uplinks.
    pub ipip_mtu: Option<u32>,
    mtu_v4: Option<u32>,
    mtu_v6: Option<u32>,
}

impl OverlaySettings {
    /// Returns the MTU of the device of a family; `None`: it follows from the uplinks.
    pub const fn mtu(self, family: Family) -> Option<u32> {
        match family {
            Family::V4 => self.mtu_v4,
            Family::V6 => self.mtu_v6,
        }
    }
}

impl Default for OverlaySettings {
    fn default() -> Self {
        Self {
            vni: VXLAN_VNI,
            enabled: None,
            cluster_routes: CLUSTER_ROUTES,
            by_workload: false,
            ipip: None,
            ipip_mtu: None,
            mtu_v4: None,
            mtu_v6: None,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new(&FelixConfigurationSpec::default())
    }
}

/// Returns the fault of settings: the field, and why.
pub(crate) fn fault(spec: &FelixConfigurationSpec) -> Option<(&'static str, String)> {
    if !spec.interface_prefix.is_empty()
        && let Err(reason) = interface_prefixes(&spec.interface_prefix)
    {
        return Some(("spec.interfacePrefix", reason));
    }
    if let Some(refresh) = spec.interface_refresh_interval
        && !refresh.0.is_zero()
        && refresh.0 < INTERFACE_REFRESH_MIN
    {
        let reason = format!(
            "less than {} s; 0 means never",
            INTERFACE_REFRESH_MIN.as_secs()
        );
        return Some(("spec.interfaceRefreshInterval", reason));
    }
    if let Err(reason) = metadata(spec) {
        return Some(("spec.metadataAddr", reason));
    }
    if let Err((field, reason)) = outgoing(spec) {
        return Some((field, reason));
    }
    if let Err((field, reason)) = encapsulation(spec) {
        return Some((field, reason));
    }
    if let Err((field, reason)) = overlay(spec) {
        return Some((field, reason));
    }
    if let Err(reason) = uplinks(spec) {
        return Some(("spec.mtuIfacePattern", reason));
    }
    if let Err(reason) = excluded(spec) {
        return Some(("spec.interfaceExclude", reason));
    }
    if let Err(found) = routing(spec) {
        return Some(found);
    }
    if let Err(found) = rules_check(spec) {
        return Some(found);
    }
    if let Err(found) = endpoint_files(spec) {
        return Some(found);
    }
    if let Err(reason) = log_level(spec) {
        return Some(("spec.logSeverityScreen", reason));
    }
    if let Err(reason) = tunnel_sources(spec) {
        return Some(("spec.externalNodesList", reason));
    }
    if let Err((field, reason)) = log(spec) {
        return Some((field, reason));
    }
    if let Err((field, reason)) = listening(spec) {
        return Some((field, reason));
    }
    if let Err(reason) = denial(spec) {
        return Some(("spec.nftablesFilterDenyAction", reason));
    }
    if let Err(reason) = service_loops(spec) {
        return Some(("spec.serviceLoopPrevention", reason));
    }
    if let Err(found) = failsafe(spec) {
        return Some(found);
    }
    if let Err(found) = mark_mask(spec) {
        return Some(found);
    }
    if let Err(found) = offload(spec) {
        return Some(found);
    }
    if let Err(reason) = takes_invalid(spec) {
        return Some(("spec.disableConntrackInvalidCheck", reason));
    }
    if let Err(reason) = flow_log(spec) {
        return Some(("spec.flowLogsLocalReporter", reason));
    }
    if let Err(reason) = source_spoofing(spec) {
        return Some(("spec.workloadSourceSpoofing", reason));
    }
    match region(spec) {
        Err(reason) => Some(("spec.openstackRegion", reason)),
        Ok(_) => None,
    }
}

fn outgoing(spec: &FelixConfigurationSpec) -> Result<Outgoing, (&'static str, String)> {
    let address = match &*spec.nat_outgoing_address {
        "" => None,
        text => Some(text.parse().map_err(|_| {
            let reason = format!("'{text}' is not an IPv4 address");
            ("spec.natOutgoingAddress", reason)
        })?),
    };
    let ports = match &spec.nat_port_range {
        None => None,
        Some(Port::Text(text)) if text.is_empty() => None,
        Some(port) => {
            let range = port.range().ok_or_else(|| {
                let reason = format!("'{port}' is neither a port nor a range such as 1024:65535");
                ("spec.natPortRange", reason)
            })?;
            // In Calico a range that ends with 0 is no range.
            (*range.end() > 0).then(|| ((*range.start()).max(1), *range.end()))
        }
    };
    let at = "spec.natOutgoingExclusions";
    let exclusions = choice(
        spec,
        "natOutgoingExclusions",
        ["IPPoolsOnly", "IPPoolsAndHostIPs"],
    );
    Ok(Outgoing {
        address,
        ports,
        spares_nodes: exclusions.map_err(|reason| (at, reason))?,
        through: through(spec)
            .map_err(|reason| ("spec.iptablesNATOutgoingInterfaceFilter", reason))?,
    })
}

/// Returns the outgoing interfaces of translated packets: a name, or `eth+` for a prefix.
fn through(spec: &FelixConfigurationSpec) -> Result<Option<Through>, String> {
    let text: String = field(spec, "iptablesNATOutgoingInterfaceFilter")?.unwrap_or_default();
    let (name, is_prefix) = match text.strip_suffix('+') {
        Some(prefix) => (prefix, true),
        None => (text.as_str(), false),
    };
    match (name, is_prefix) {
        // Every interface.
        ("", _) => Ok(None),
        _ if !is_interface_name(name) => Err(format!(
            "'{text}' is neither the name of an interface nor a prefix of names such as eth+"
        )),
        (name, true) => Ok(Some(Through::Prefix(name.to_owned()))),
        (name, false) => Ok(Some(Through::Named(name.to_owned()))),
    }
}

fn denial(spec: &FelixConfigurationSpec) -> Result<Denial, String> {
    let rejects = choice(spec, "nftablesFilterDenyAction", ["Drop", "Reject"])?;
    Ok(match rejects {
        true => Denial::Reject,
        false => Denial::Drop,
    })
}

fn service_loops(spec: &FelixConfigurationSpec) -> Result<LoopPrevention, String> {
    let text: String = field(spec, "serviceLoopPrevention")?.unwrap_or_default();
    let all = [
        ("", LoopPrevention::Drop),
        ("drop", LoopPrevention::Drop),
        ("reject", LoopPrevention::Reject),
        ("disabled", LoopPrevention::Disabled),
    ];
    let known = all
        .into_iter()
        .find(|(word, _)| word.eq_ignore_ascii_case(&text));
    known
        .map(|(_, prevention)| prevention)
        .ok_or_else(|| format!("'{text}' is not Drop, Reject or Disabled"))
}

fn takes_invalid(spec: &FelixConfigurationSpec) -> Result<bool, String> {
    let found: Option<bool> = field(spec, "disableConntrackInvalidCheck")?;
    Ok(found.unwrap_or_default())
}

fn source_spoofing(spec: &FelixConfigurationSpec) -> Result<bool, String> {
    choice(spec, "workloadSourceSpoofing", ["Disabled", "Any"])
}

fn flow_log(spec: &FelixConfigurationSpec) -> Result<bool, String> {
    choice(spec, "flowLogsLocalReporter", ["Disabled", "Enabled"])
}

fn log(spec: &FelixConfigurationSpec) -> Result<LogSettings, (&'static str, String)> {
    let at = "spec.logPrefix";
    let prefix: Option<String> = field(spec, "logPrefix").map_err(|reason| (at, reason))?;
    let prefix = prefix.filter(|prefix| !prefix.is_empty());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%: /_-".contains(c);
    if let Some(prefix) = prefix.as_ref().filter(|text| !text.chars().all(is_plain)) {
        let reason = format!("'{prefix}' has characters other than letters, digits, '%: /_-'");
        return Err((at, reason));
    }
    let at = "spec.logActionRateLimitBurst";
    let burst: Option<u32> =
        field(spec, "logActionRateLimitBurst").map_err(|reason| (at, reason))?;
    // In Calico, 0 leaves the burst to nft.
    let burst = burst.filter(|burst| *burst > 0).unwrap_or(LOG_BURST);
    if burst > LOG_RATE_MAX {
        return Err((at, format!("{burst} is more than {LOG_RATE_MAX}")));
    }
    let at = "spec.logActionRateLimit";
    let rate: Option<String> = field(spec, "logActionRateLimit").map_err(|reason| (at, reason))?;
    let rate = rate.filter(|text| !text.is_empty()).map(|text| {
        let rate = rate_of(&text, burst);
        rate.ok_or_else(|| {
            let reason = format!(
                "'{text}' is not a rate such as 10/second, with a number up to {LOG_RATE_MAX} and \
                 second, minute, hour or day"
            );
            (at, reason)
        })
    });
    let mut log = LogSettings {
        rate: rate.transpose()?,
        ..LogSettings::default()
    };
    log.prefix = prefix.unwrap_or(log.prefix);
    Ok(log)
}

fn rate_of(text: &str, burst: u32) -> Option<Rate> {
    let (packets, period) = text.split_once('/')?;
    let is_number = packets.bytes().all(|c| c.is_ascii_digit()) && !packets.starts_with('0');
    let packets = packets.parse().ok().filter(|_| is_number)?;
    Some(Rate {
        packets,
        per: Period::ALL.into_iter().find(|one| one.name() == period)?,
        burst,
    })
    .filter(|rate| rate.packets <= LOG_RATE_MAX)
}

fn encapsulation(spec: &FelixConfigurationSpec) -> Result<Encapsulation, (&'static str, String)> {
    let is = |place: &'static str, name: &str| {
        let found = field::<bool>(spec, name).map_err(|reason| (place, reason))?;
        Ok::<bool, (&'static str, String)>(found.unwrap_or(false))
    };
    let port = field::<u16>(spec, "vxlanPort").map_err(|reason| ("spec.vxlanPort", reason))?;
    Ok(Encapsulation {
        vxlan_port: port.filter(|port| *port > 0).unwrap_or(VXLAN_PORT),
        // Both are set by pools.
        ipip: false,
        vxlan: false,
        allows_vxlan: is(
            "spec.allowVXLANPacketsFromWorkloads",
            "allowVXLANPacketsFromWorkloads",
        )?,
        allows_ipip: is(
            "spec.allowIPIPPacketsFromWorkloads",
            "allowIPIPPacketsFromWorkloads",
        )?,
    })
}

fn overlay(spec: &FelixConfigurationSpec) -> Result<OverlaySettings, (&'static str, String)> {
    let at = "spec.vxlanVNI";
    let vni: Option<u32> = field(spec, "vxlanVNI").map_err(|reason| (at, reason))?;
    let vni = vni.filter(|vni| *vni > 0).unwrap_or(VXLAN_VNI);
    if vni > VXLAN_VNI_MAX {
        return Err((at, format!("{vni} is more than {VXLAN_VNI_MAX}")));
    }
    let mtu = |at: &'static str, name: &str, least: u32| {
        let mtu: Option<u32> = field(spec, name).map_err(|reason| (at, reason))?;
        // 0: automatic.
        let mtu = mtu.filter(|mtu| *mtu > 0);
        match mtu.filter(|mtu| *mtu < least || *mtu > MTU_MAX) {
            Some(mtu) => Err((at, format!("{mtu} is not between {least} and {MTU_MAX}"))),
            None => Ok(mtu),
        }
    };
    Ok(OverlaySettings {
        vni,
        enabled: self::at(spec, "spec.vxlanEnabled")?,
        cluster_routes: cluster_routes(spec)?,
        by_workload: choice(spec, "routeSource", ["CalicoIPAM", "WorkloadIPs"])
            .map_err(|reason| ("spec.routeSource", reason))?,
        ipip: self::at(spec, "spec.ipipEnabled")?,
        ipip_mtu: mtu("spec.ipipMTU", "ipipMTU", IPV4_MTU_MIN)?,
        mtu_v4: mtu("spec.vxlanMTU", "vxlanMTU", IPV4_MTU_MIN)?,
        mtu_v6: mtu("spec.vxlanMTUV6", "vxlanMTUV6", IPV6_MTU_MIN)?,
    })
}

fn cluster_routes(spec: &FelixConfigurationSpec) -> Result<ClusterRoutes, (&'static str, String)> {
    let place = "spec.programClusterRoutes";
    let text: Option<String> = at(spec, place)?;
    match text.filter(|text| !text.is_empty()) {
        None => Ok(CLUSTER_ROUTES),
        Some(_) => Ok(at(spec, place)?.unwrap_or(CLUSTER_ROUTES)),
    }
}

/// Returns the interval of comparing the packet filter. Rules and sets are compared together, at the
/// shorter of the two intervals that Calico has.
fn rules_check(spec: &FelixConfigurationSpec) -> Result<Option<Duration>, (&'static str, String)> {
    let places = ["spec.nftablesRefreshInterval", "spec.ipsetsRefreshInterval"];
    let mut set = Vec::new();
    for place in places {
        let Some(GoDuration(interval)) = at(spec, place)? else {
            continue;
        };
        if !interval.is_zero() && interval < RULES_CHECK_MIN {
            let least = RULES_CHECK_MIN.as_secs();
            return Err((place, format!("less than {least} s; 0 means never")));
        }
        set.push(interval);
    }
    match set.is_empty() {
        true => Ok(Some(RULES_CHECK)),
        false => Ok(set.into_iter().filter(|interval| !interval.is_zero()).min()),
    }
}

/// Returns the directory of the status files of endpoints.
fn endpoint_files(
    spec: &FelixConfigurationSpec,
) -> Result<Option<PathBuf>, (&'static str, String)> {
    let place = "spec.endpointStatusPathPrefix";
    let path: Option<PathBuf> = at(spec, place)?;
    match path {
        None => Ok(Some(EndpointFile::PATH_PREFIX.into())),
        Some(path) if path.as_os_str().is_empty() => Ok(None),
        Some(path) if path.is_absolute() => Ok(Some(path)),
        Some(path) => Err((
            place,
            format!("'{}' is not an absolute path", path.display()),
        )),
    }
}

/// Returns the level of the log, in Calico's words.
fn log_level(spec: &FelixConfigurationSpec) -> Result<Option<String>, String> {
    let level = spec.log_severity_screen.as_str();
    let known = LOG_LEVELS
        .iter()
        .find(|word| word.eq_ignore_ascii_case(level));
    match known {
        None if level.is_empty() => Ok(None),
        None => Err(format!("'{level}' is not one of {}", LOG_LEVELS.join(", "))),
        Some(word) => Ok(Some((*word).to_owned())),
    }
}

fn tunnel_sources(spec: &FelixConfigurationSpec) -> Result<Vec<IpNet>, String> {
    let texts: Vec<String> = field(spec, "externalNodesList")?.unwrap_or_default();
    let sources = texts.iter().map(|text| {
        let net = text.parse::<IpNet>();
        net.or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .map_err(|_| format!("'{text}' is neither an address nor a range of addresses"))
    });
    sources.collect()
}

fn prefixes(spec: &FelixConfigurationSpec) -> Vec<String> {
    let built_in = || INTERFACE_PREFIXES.map(str::to_owned).into();
    match spec.interface_prefix.as_str() {
        "" => built_in(),
        text => interface_prefixes(text).unwrap_or_else(|_| built_in()),
    }
}

fn region(spec: &FelixConfigurationSpec) -> Result<Region, String> {
    match spec.unknown.get("openstackRegion") {
        None | Some(Value::Null) => Ok(Region::None),
        Some(Value::String(name)) => Region::new(name).map_err(|error| error.to_string()),
        Some(other) => Err(format!("{other} is not a name")),
    }
}

fn metadata(spec: &FelixConfigurationSpec) -> Result<Option<(Ipv4Addr, u16)>, String> {
    let port = spec.metadata_port.unwrap_or(METADATA.1);
    match &*spec.metadata_addr {
        "" => Ok(Some((METADATA.0, port))),
        none if none.eq_ignore_ascii_case("none") => Ok(None),
        text => match text.parse() {
            Ok(address) => Ok(Some((address, port))),
            Err(_) => Err(format!("'{text}' is neither an IPv4 address nor \"None\"")),
        },
    }
}
