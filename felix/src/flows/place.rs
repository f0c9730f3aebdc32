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

/// Returns the places of addresses. The cost grows with the number of stored endpoints, nodes and
/// networks, not with its product with that of the addresses.
pub(crate) fn places(
    calculator: &Calculator,
    addresses: BTreeSet<IpAddr>,
) -> BTreeMap<IpAddr, Place> {
    let mut places = BTreeMap::new();
    let desired = calculator.desired();
    let own = calculator.all_own_addresses();
    let is_own = |address| is_gateway(address) || own.contains(&address);
    let mut left = addresses;
    left.retain(|address| {
        let interface = desired.routes.get(address);
        let endpoint = interface.and_then(|name| desired.interfaces.get(name));
        let place = match endpoint {
            Some(endpoint) => Some(Place::Endpoint {
                resource: endpoint.resource.clone(),
                workload: endpoint.id.workload.clone(),
            }),
            None => is_own(*address).then(|| Place::Node(calculator.hostname().to_owned())),
        };
        let is_left = place.is_none();
        places.extend(place.map(|place| (*address, place)));
        is_left
    });
    if left.is_empty() {
        return places;
    }
    for endpoint in calculator.remote_endpoints_at(&left) {
        for address in endpoint.addresses.iter().filter(|own| left.contains(own)) {
            places.entry(*address).or_insert_with(|| Place::Endpoint {
                resource: endpoint.resource.clone(),
                workload: endpoint.workload.clone(),
            });
        }
    }
    for (address, node) in calculator.nodes_at(&left) {
        places.entry(address).or_insert(Place::Node(node));
    }
    left.retain(|address| !places.contains_key(address));
    for (address, set) in calculator.network_sets_at(&left) {
        places.insert(address, Place::NetworkSet(set));
    }
    for address in left {
        let other = match is_public(address) {
            true => Place::Public,
            false => Place::Address(address),
        };
        places.entry(address).or_insert(other);
    }
    places
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
