//! Settings of the packet filter.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::Value;

use super::failsafe::Failsafe;
use super::guard::Control;
use super::host_guard::HostGuard;
use super::values::texts;
use crate::packet::Family;
use crate::ranges::parse_network;

/// The settings that the packet filter depends on. The datastore has most of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Prefixes of the names of workload interfaces.
    pub prefixes: Vec<String>,
    /// Whether packets from workloads to the host pass that policies allow.
    pub to_host: bool,
    /// Whether policies apply to packets of the host to its own workloads.
    pub police_host: bool,
    /// Whether IPv6 addresses of endpoints count.
    pub ipv6: bool,
    /// Whether endpoints may send from their `allowSpoofedSourcePrefixes`.
    pub spoofing: bool,
    /// Whether policies decide about packets of no connection (state INVALID).
    pub takes_invalid: bool,
    /// Address and port of OpenStack's metadata service.
    pub metadata: Option<(Ipv4Addr, u16)>,
    /// The ports that no policy of a host endpoint closes.
    pub failsafe: Failsafe,
    /// The UDP port of VXLAN.
    pub vxlan_port: u16,
    /// Whether VXLAN is in use without a pool that uses it.
    pub vxlan: Option<bool>,
    /// IP in IP is in use or not, whatever the pools are.
    pub ipip: Option<bool>,
    /// Interfaces to which no host endpoint applies: names, and patterns between slashes.
    pub excluded: Vec<String>,
    /// Whether endpoints of all orchestrators have floating addresses.
    pub floating: bool,
    /// The IPv4 source address of packets that leave the pools; `None`: that of the interface.
    pub nat_address: Option<Ipv4Addr>,
    /// Whether packets to nodes keep their source.
    pub nat_spares_nodes: bool,
    /// The only interfaces of packets that get another source: a name, or a prefix with `*`.
    pub nat_interface: Option<String>,
    /// The ports of TCP and UDP packets that get another source.
    pub nat_ports: Option<(u16, u16)>,
    /// Sources of tunnel packets that are not nodes.
    pub tunnel_sources: Vec<(Family, (u128, u128))>,
    /// The control ports in the files of the daemons.
    pub control: Control,
    /// Whether Felix cuts connections that policies forbid.
    pub cuts: bool,
    /// The socket for probes of health.
    pub health: Socket,
    /// The socket for scrapers of metrics.
    pub metrics: Socket,
    /// The correct host guard; `None`: it is not known.
    pub host_guard: Option<HostGuard>,
    /// Tables of other programs, by family and name: their decisions do not make the result unknown.
    pub known_tables: BTreeSet<(String, String)>,
}

/// A socket of Felix that other hosts may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Whether it exists.
    pub is_enabled: bool,
    /// Its address.
    pub address: SocketAddr,
}

impl Socket {
    const fn off(port: u16) -> Self {
        Self {
            is_enabled: false,
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
        }
    }

    /// Applies the fields of a FelixConfiguration.
    fn apply(&mut self, spec: &Value, [enabled, host, port]: [&str; 3]) {
        if let Some(is) = spec[enabled].as_bool() {
            self.is_enabled = is;
        }
        match spec[host].as_str() {
            None => {}
            Some("" | "localhost") => self.address.set_ip(Ipv4Addr::LOCALHOST.into()),
            Some(text) => {
                let address = text.parse();
                self.address
                    .set_ip(address.unwrap_or_else(|_| self.address.ip()));
            }
        }
        let port = spec[port]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok());
        self.address
            .set_port(port.unwrap_or_else(|| self.address.port()));
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefixes: vec!["cali".into(), "tap".into()],
            to_host: false,
            police_host: false,
            ipv6: true,
            spoofing: false,
            takes_invalid: false,
            metadata: Some((Ipv4Addr::LOCALHOST, 8775)),
            failsafe: Failsafe::default(),
            vxlan_port: 4789,
            vxlan: None,
            ipip: None,
            excluded: vec!["kube-ipvs0".into()],
            floating: false,
            nat_address: None,
            nat_spares_nodes: false,
            nat_interface: None,
            nat_ports: None,
            tunnel_sources: Vec::new(),
            control: Control::default(),
            cuts: false,
            health: Socket::off(9099),
            metrics: Socket::off(9091),
            host_guard: None,
            known_tables: BTreeSet::new(),
        }
    }
}

impl Settings {
    /// Returns the sockets that exist.
    pub(super) fn sockets(&self) -> Vec<SocketAddr> {
        let both = [&self.health, &self.metrics].into_iter();
        let enabled = both.filter(|socket| socket.is_enabled);
        enabled.map(|socket| socket.address).collect()
    }

    /// Applies a FelixConfiguration.
    pub(super) fn apply(&mut self, value: &Value) {
        let spec = &value["spec"];
        let text = |field: &str| spec[field].as_str();
        let settings = self;
        if let Some(prefixes) = text("interfacePrefix").filter(|text| !text.is_empty()) {
            settings.prefixes = prefixes
                .split(',')
                .map(|part| part.trim().to_owned())
                .collect();
        }
        if let Some(action) = text("defaultEndpointToHostAction") {
            settings.to_host = !action.eq_ignore_ascii_case("drop");
        }
        if let Some(names) = text("interfaceExclude").filter(|text| !text.trim().is_empty()) {
            let names = names.split(',').map(|part| part.trim().to_owned());
            settings.excluded = names.filter(|part| !part.is_empty()).collect();
        }
        if let Some(ipv6) = spec["ipv6Support"].as_bool() {
            settings.ipv6 = ipv6;
        }
        if let Some(spoofing) = text("workloadSourceSpoofing") {
            settings.spoofing = spoofing.eq_ignore_ascii_case("any");
        }
        if let Some(takes_invalid) = spec["disableConntrackInvalidCheck"].as_bool() {
            settings.takes_invalid = takes_invalid;
        }
        settings.failsafe.apply(spec);
        let fields = ["healthEnabled", "healthHost", "healthPort"];
        settings.health.apply(spec, fields);
        let fields = [
            "prometheusMetricsEnabled",
            "prometheusMetricsHost",
            "prometheusMetricsPort",
        ];
        settings.metrics.apply(spec, fields);
        if let Some(is) = spec["vxlanEnabled"].as_bool() {
            settings.vxlan = Some(is);
        }
        if let Some(is) = spec["ipipEnabled"].as_bool() {
            settings.ipip = Some(is);
        }
        let port = spec["vxlanPort"]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok());
        settings.vxlan_port = port.unwrap_or(settings.vxlan_port);
        if let Some(setting) = text("floatingIPs") {
            settings.floating = setting.eq_ignore_ascii_case("enabled");
        }
        if let Some(address) = text("natOutgoingAddress") {
            settings.nat_address = address.parse().ok();
        }
        if let Some(setting) = text("natOutgoingExclusions") {
            settings.nat_spares_nodes = setting.eq_ignore_ascii_case("ippoolsandhostips");
        }
        if let Some(name) = text("iptablesNATOutgoingInterfaceFilter") {
            let prefix = name.strip_suffix('+').map(|prefix| format!("{prefix}*"));
            let name = prefix.unwrap_or_else(|| name.to_owned());
            settings.nat_interface = (!name.is_empty()).then_some(name);
        }
        match &spec["natPortRange"] {
            Value::Null => {}
            range => settings.nat_ports = ports(range),
        }
        if spec["externalNodesList"].is_array() {
            let sources = texts(&spec["externalNodesList"]);
            let sources = sources.iter().filter_map(|text| parse_network(text));
            settings.tunnel_sources = sources.collect();
        }
        let (address, port) = (text("metadataAddr"), spec["metadataPort"].as_u64());
        if address.is_some_and(|text| text.eq_ignore_ascii_case("none")) {
            settings.metadata = None;
        } else {
            let (own, own_port) = settings.metadata.unwrap_or((Ipv4Addr::LOCALHOST, 8775));
            let address = address.and_then(|text| text.parse().ok()).unwrap_or(own);
            let port = port
                .and_then(|port| u16::try_from(port).ok())
                .unwrap_or(own_port);
            settings.metadata = Some((address, port));
        }
    }
}

/// Reads a range of ports; all ports are no range.
fn ports(value: &Value) -> Option<(u16, u16)> {
    let text = match value.as_u64() {
        Some(number) => number.to_string(),
        None => value.as_str()?.to_owned(),
    };
    let (first, last) = text.split_once(':').unwrap_or((&text, &text));
    Some((first.parse().ok()?, last.parse().ok()?))
}
