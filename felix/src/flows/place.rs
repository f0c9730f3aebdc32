//! The names of addresses: endpoints, nodes and network sets of the stored values.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::calc::{Calculator, is_gateway};

/// An end of a flow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A workload endpoint of any host.
    Endpoint {
        /// `namespace/name` of its resource.
        resource: String,
        /// `namespace/workload`.
        workload: String,
    },
    /// A Node.
    Node(String),
    /// A NetworkSet or GlobalNetworkSet, the most specific one: kind and name.
    NetworkSet(String),
    /// Another address that is not public.
    Address(IpAddr),
    /// All other addresses.
    Public,
}

impl Place {
    /// Returns the octets of its names.
    pub(super) const fn octets(&self) -> usize {
        match self {
            Self::Endpoint { resource, workload } => resource.len() + workload.len(),
            Self::Node(name) | Self::NetworkSet(name) => name.len(),
            Self::Address(_) | Self::Public => 0,
        }
    }

    /// Returns whether it is an endpoint, a node or a set with this name.
    pub(super) fn is_called(&self, name: &str) -> bool {
        match self {
            Self::Endpoint { resource, workload } => resource == name || workload == name,
            Self::Node(own) => own == name,
            Self::NetworkSet(own) => own.split_once(' ').is_some_and(|(_, own)| own == name),
            Self::Address(address) => name.parse() == Ok(*address),
            Self::Public => name == PUBLIC,
        }
    }
}

/// The name of [`Place::Public`].
pub(super) const PUBLIC: &str = "public";

/// The places of addresses at one time.
#[derive(Debug)]
pub(super) struct Places {
    /// The addresses of this host, and of all Nodes.
    own: BTreeSet<IpAddr>,
    nodes: BTreeMap<IpAddr, String>,
    /// The places that were looked up.
    known: BTreeMap<IpAddr, Place>,
}

impl Places {
    pub(super) fn new(calculator: &Calculator) -> Self {
        Self {
            own: calculator.all_own_addresses(),
            nodes: calculator.node_addresses(),
            known: BTreeMap::new(),
        }
    }

    /// Returns the place of an address. The cost does not grow with the number of stored endpoints.
    pub(super) fn of(&mut self, calculator: &Calculator, address: IpAddr) -> Place {
        if let Some(place) = self.known.get(&address) {
            return place.clone();
        }
        let place = self.look_up(calculator, address);
        self.known.insert(address, place.clone());
        place
    }

    fn look_up(&self, calculator: &Calculator, address: IpAddr) -> Place {
        let desired = calculator.desired();
        let interface = desired.routes.get(&address);
        if let Some(endpoint) = interface.and_then(|name| desired.interfaces.get(name)) {
            return Place::Endpoint {
                resource: endpoint.resource.clone(),
                workload: endpoint.id.workload.clone(),
            };
        }
        if is_gateway(address) || self.own.contains(&address) {
            return Place::Node(calculator.hostname().to_owned());
        }
        if let Some(endpoint) = calculator.remote_endpoint_at(address) {
            return Place::Endpoint {
                resource: endpoint.resource,
                workload: endpoint.workload,
            };
        }
        if let Some(node) = self.nodes.get(&address) {
            return Place::Node(node.clone());
        }
        match calculator.network_set_at(address) {
            Some(set) => Place::NetworkSet(set),
            None if is_public(address) => Place::Public,
            None => Place::Address(address),
        }
    }
}

/// Returns whether an address is one of the Internet: global unicast (RFC 4291 §2.4), and in IPv4
/// neither private (RFC 1918), nor shared (RFC 6598), nor for another special use.
const fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, second, ..] = v4.octets();
            let is_shared = first == 100 && second & 0xc0 == 64;
            let is_local = v4.is_private() || v4.is_loopback() || v4.is_link_local();
            !(is_shared || is_local || first == 0 || first >= 224)
        }
        IpAddr::V6(v6) => v6.segments()[0] & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_those_of_the_internet() {
        for (text, public) in [
            ("8.8.8.8", true),
            ("2a00::1", true),
            ("10.0.0.1", false),
            ("100.64.0.1", false),
            ("100.128.0.1", true),
            ("169.254.1.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("fd00::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
            ("::1", false),
        ] {
            assert_eq!(is_public(text.parse().unwrap()), public, "{text}");
        }
    }
}
