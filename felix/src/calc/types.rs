//! The data types of endpoints.

use std::fmt;
use std::net::IpAddr;

use calico_model::{Kind, Mac, Severity};
use ipnet::IpNet;

use super::bandwidth::Bandwidth;
use crate::limits::INTERFACE_NAME_OCTETS_MAX;
use crate::render::Qos;

/// The id of a workload endpoint within its host. Ordered as in Calico: of two endpoints with the
/// same interface or address the lower one gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId {
    /// `k8s`, `openstack`, …
    pub orchestrator: String,
    /// `<namespace>/<workload>`.
    pub workload: String,
    /// `eth0`, a port's id, …
    pub endpoint: String,
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}/{}",
            self.orchestrator, self.workload, self.endpoint
        )
    }
}

/// A valid workload endpoint of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// `namespace/name` of its resource.
    pub resource: String,
    /// The host side interface.
    pub interface: String,
    /// Its container; empty without one.
    pub container_id: String,
    /// The workload's Ethernet address, if known.
    pub mac: Option<Mac>,
    /// Its addresses, sorted and unique.
    pub addresses: Vec<IpAddr>,
    /// The profiles it names, in order.
    pub profiles: Vec<String>,
    /// Floating addresses, each with the endpoint's own address that it is translated to.
    pub floating: Vec<(IpAddr, IpAddr)>,
    /// Further source addresses that it may use.
    pub spoofed: Vec<IpNet>,
    /// Limits of its packets and connections.
    pub qos: Qos,
    /// Limits of its bandwidth.
    pub bandwidth: Bandwidth,
    /// Fields of limits without effect, each with the reason.
    pub(crate) idle_limits: Vec<(&'static str, &'static str)>,
}

impl Endpoint {
    /// Returns the addresses routed to it: its own, and its floating ones.
    pub fn routes(&self) -> impl Iterator<Item = IpAddr> {
        let outside = self.floating.iter().map(|(outside, _)| *outside);
        self.addresses.iter().copied().chain(outside)
    }

    /// Returns the MAC address for the neighbor entry of an address.
    pub(crate) fn mac_of(&self, address: IpAddr) -> Option<Mac> {
        self.mac.filter(|_| self.addresses.contains(&address))
    }
}

/// A valid host endpoint of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostEndpoint {
    pub(crate) applies_to: AppliesTo,
    /// The profiles that it names, in order.
    pub(crate) profiles: Vec<String>,
}

/// The interfaces of a host endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AppliesTo {
    /// All that no other host endpoint applies to.
    All,
    /// The one with this name.
    Named(String),
    /// The interfaces with one of these addresses.
    Holders(Vec<IpAddr>),
}

/// A policy or profile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ListName {
    /// A policy, by key.
    Policy(String),
    /// A profile, by name.
    Profile(String),
}

/// A port of an endpoint with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamedPort {
    pub(crate) name: String,
    pub(crate) protocol: u8,
    pub(crate) port: u16,
}

/// A stored value that is not applied, or not in full.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The key in the datastore.
    pub key: String,
    /// The field, as a path (`spec.ipNetworks[1]`); empty for the value as a whole.
    pub field: String,
    /// The problem, and the measure taken.
    pub reason: String,
}

impl Problem {
    /// Returns a problem of one field.
    pub fn new(
        key: impl Into<String>,
        field: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            key: key.into(),
            field: field.into(),
            reason: reason.into(),
        }
    }

    /// Returns how serious the problem is.
    pub fn severity(&self) -> Severity {
        // The first part of a key that names a kind.
        let kind = self.key.split('/').find_map(Kind::from_plural);
        kind.map_or(Severity::Other, |kind| Severity::of(kind, &self.reason))
    }

    /// Returns the problem without the key.
    pub fn what(&self) -> String {
        match self.field.is_empty() {
            true => self.reason.clone(),
            false => format!("{}: {}", self.field, self.reason),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.what())
    }
}

/// Returns whether `name` is valid as the name of an interface and in a rule.
pub fn is_interface_name(name: &str) -> bool {
    let allowed = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
    (1..=INTERFACE_NAME_OCTETS_MAX).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names() {
        for good in ["cali1", "tap12ab-34_c.d"] {
            assert!(is_interface_name(good), "{good}");
        }
        for bad in [
            "",
            "..",
            "cali/1",
            "cali 1",
            "cali\"",
            "cali123456789012",
            "cali*",
        ] {
            assert!(!is_interface_name(bad), "{bad}");
        }
    }
}
