//! The vocabulary of endpoints.

use std::fmt;
use std::net::IpAddr;

use calico_model::Mac;

use crate::limits::INTERFACE_NAME_OCTETS_MAX;

/// What a workload endpoint is called within its host. Ordered as Calico orders them: of two
/// endpoints with one interface or one address the lower one wins.
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

/// A workload endpoint of this host, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// What it is called.
    pub id: EndpointId,
    /// `namespace/name` of its resource.
    pub resource: String,
    /// The host side interface.
    pub interface: String,
    /// The container that it is of; empty if it is none's.
    pub container_id: String,
    /// The workload's Ethernet address, if known.
    pub mac: Option<Mac>,
    /// Its addresses, sorted, each once.
    pub addresses: Vec<IpAddr>,
    /// The profiles it names, in order.
    pub profiles: Vec<String>,
    /// Addresses outside, each with the address of its own that it stands for.
    pub floating: Vec<(IpAddr, IpAddr)>,
}

impl Endpoint {
    /// What leads to it: its addresses, and those outside that stand for them.
    pub fn routes(&self) -> impl Iterator<Item = IpAddr> {
        let outside = self.floating.iter().map(|(outside, _)| *outside);
        self.addresses.iter().copied().chain(outside)
    }

    /// The neighbour entry of an address.
    pub fn mac_of(&self, address: IpAddr) -> Option<Mac> {
        self.mac.filter(|_| self.addresses.contains(&address))
    }
}

/// A value of the store that cannot be followed, or not in full.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The store's key.
    pub key: String,
    /// The field, as a path (`spec.ipNetworks[1]`); empty for the value as a whole.
    pub field: String,
    /// What is wrong with it, and what is done instead.
    pub reason: String,
}

impl Problem {
    /// A problem of one field.
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

    /// What is wrong, without the key.
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

/// Whether `name` can be the name of an interface and stand in a rule.
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
