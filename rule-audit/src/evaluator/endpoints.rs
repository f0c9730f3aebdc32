//! The workload endpoints of a host.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::members::{effective, labels_of_host, own_labels};
use super::settings::Settings;
use super::values::{Labels, texts};
use crate::packet::Family;
use crate::ranges::parse_network;

/// A workload endpoint of the host, or a host endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `<namespace>/<name>` of the resource.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Why it cannot be compared, if so.
    pub fault: Option<String>,
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) profiles: Vec<String>,
    pub(super) is_openstack: bool,
    /// Floating addresses, each with the address of the endpoint.
    pub(super) floating: Vec<(IpAddr, IpAddr)>,
    /// Further source addresses.
    pub(super) spoofed: Vec<(Family, (u128, u128))>,
}

impl Endpoint {
    /// Returns whether addresses of its packets are translated for it.
    pub fn is_translated(&self) -> bool {
        self.is_openstack || !self.floating.is_empty()
    }
}

/// The fault of a host endpoint until [`Fabric::locate`](super::Fabric::locate) finds its interfaces.
pub(super) const UNLOCATED: &str = "its interfaces depend on the addresses of the host";
/// The fault of all host endpoints of a host that excludes interfaces by a pattern.
pub(super) const PATTERNS: &str = "patterns of interfaceExclude are not evaluated";

/// Reads a host endpoint. Its name differs from that of each workload endpoint.
pub(super) fn host_endpoint(
    name: &str,
    value: &Value,
    inherited: &BTreeMap<String, Labels>,
) -> Endpoint {
    let spec = &value["spec"];
    let profiles = texts(&spec["profiles"]);
    let listed = spec["profiles"].as_array().map_or(0, Vec::len);
    let interface = spec["interfaceName"].as_str().unwrap_or_default();
    let expected = texts(&spec["expectedIPs"]);
    let addresses = expected.iter();
    let fault = match interface {
        "" => Some(UNLOCATED),
        _ if listed != profiles.len() => Some("its profiles are unreadable"),
        _ => None,
    };
    Endpoint {
        name: format!("host endpoint {name}"),
        interface: interface.to_owned(),
        addresses: addresses.filter_map(|text| text.parse().ok()).collect(),
        fault: fault.map(str::to_owned),
        namespace: String::new(),
        labels: effective(labels_of_host(value), &profiles, inherited),
        profiles,
        is_openstack: false,
        floating: Vec::new(),
        spoofed: Vec::new(),
    }
}

pub(super) fn endpoint(
    name: &str,
    namespace: &str,
    value: &Value,
    settings: &Settings,
    inherited: &BTreeMap<String, Labels>,
) -> Endpoint {
    let spec = &value["spec"];
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let mut fault = None;
    let mut addresses = Vec::new();
    for network in texts(&spec["ipNetworks"]) {
        let single = parse_network(&network).filter(|(_, (first, last))| first == last);
        match single {
            Some((family, (number, _))) => {
                if family == Family::V4 || settings.ipv6 {
                    addresses.push(crate::ranges::address(family, number));
                }
            }
            None => fault = Some(format!("{network} is not one address")),
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    let spoofed = texts(&spec["allowSpoofedSourcePrefixes"]);
    let spoofed = spoofed.iter().filter_map(|text| parse_network(text));
    let is_openstack = text("orchestrator") == "openstack";
    let mut floating = Vec::new();
    if is_openstack || settings.floating {
        for nat in spec["ipNATs"].as_array().into_iter().flatten() {
            let address = |field: &str| nat[field].as_str()?.parse::<IpAddr>().ok();
            match (address("externalIP"), address("internalIP")) {
                (Some(outside), Some(inside)) => {
                    // Felix translates to addresses of the endpoint only.
                    if outside.is_ipv4() == inside.is_ipv4() && addresses.contains(&inside) {
                        floating.push((outside, inside));
                    }
                }
                _ => fault = Some("one of its ipNATs is unreadable".to_owned()),
            }
        }
    }
    let profiles = texts(&spec["profiles"]);
    let interface = text("interfaceName");
    let mut prefixes = settings.prefixes.iter();
    if !prefixes.any(|prefix| interface.starts_with(&**prefix)) {
        fault = Some(format!("{interface} is no workload interface"));
    }
    Endpoint {
        name: name.to_owned(),
        interface,
        addresses,
        fault,
        namespace: namespace.to_owned(),
        labels: effective(own_labels(namespace, value), &profiles, inherited),
        profiles,
        is_openstack,
        floating,
        spoofed: spoofed.collect(),
    }
}
