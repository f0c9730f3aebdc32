//! The ends of a packet: endpoints by name, and addresses.

use std::net::IpAddr;

use crate::calc::{Calculator, Endpoint, RemoteEndpoint, is_gateway};

/// An end of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place<'c> {
    /// An endpoint of this host.
    Local(&'c Endpoint),
    /// An endpoint of another host.
    Remote(RemoteEndpoint),
    /// This host itself.
    Host(IpAddr),
    /// Any other address.
    Elsewhere(IpAddr),
}

impl<'c> Place<'c> {
    /// Finds an end by an address, or by the name of an endpoint: `namespace/name` of its resource,
    /// its id, `namespace/workload`, or its interface.
    pub(super) fn find(calculator: &'c Calculator, name: &str) -> Result<Self, String> {
        match name.parse() {
            Ok(address) => Ok(Self::at(calculator, address)),
            Err(_) => Self::named(calculator, name),
        }
    }

    /// Returns the end with an address.
    pub(super) fn at(calculator: &'c Calculator, address: IpAddr) -> Self {
        let desired = calculator.desired();
        let interface = desired.routes.get(&address);
        if let Some(endpoint) = interface.and_then(|name| desired.interfaces.get(name)) {
            return Self::Local(endpoint);
        }
        if is_gateway(address) || calculator.is_own_address(address) {
            return Self::Host(address);
        }
        let mut remote = calculator.remote_endpoints();
        match remote.find(|endpoint| endpoint.addresses.contains(&address)) {
            Some(endpoint) => Self::Remote(endpoint),
            None => Self::Elsewhere(address),
        }
    }

    fn named(calculator: &'c Calculator, name: &str) -> Result<Self, String> {
        let placements = calculator.desired().endpoints.values();
        let local: Vec<_> = placements
            .filter(|placement| is_called(&placement.endpoint, name))
            .collect();
        let remote = || {
            let all = calculator.remote_endpoints();
            all.filter(|one| one.resource == name || one.workload == name)
        };
        let resources = || {
            let local = local.iter().map(|one| one.endpoint.resource.clone());
            let all: Vec<String> = local.chain(remote().map(|one| one.resource)).collect();
            all.join(", ")
        };
        match (&*local, remote().next()) {
            ([], None) => Err(format!(
                "there is no endpoint {name}; `cambric show endpoints` lists those of this host"
            )),
            ([], Some(remote)) if resources() == remote.resource => Ok(Self::Remote(remote)),
            ([one], None) => {
                let endpoint = &one.endpoint;
                let holder = calculator.desired().interfaces.get(&endpoint.interface);
                match holder.filter(|holder| holder.id == endpoint.id) {
                    Some(holder) => Ok(Self::Local(holder)),
                    None => {
                        let reason = one.denied.as_deref().unwrap_or("it is not set up");
                        Err(format!("endpoint {name} is rejected: {reason}"))
                    }
                }
            }
            _ => Err(format!(
                "several endpoints are called {name}: {}",
                resources()
            )),
        }
    }

    /// Returns its addresses.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        match self {
            Self::Local(endpoint) => endpoint.addresses.clone(),
            Self::Remote(endpoint) => endpoint.addresses.clone(),
            Self::Host(address) | Self::Elsewhere(address) => vec![*address],
        }
    }

    /// Returns the interface of an endpoint of this host.
    pub(super) fn interface(&self) -> Option<String> {
        match self {
            Self::Local(endpoint) => Some(endpoint.interface.clone()),
            _ => None,
        }
    }
}

/// Returns whether an endpoint has this name.
pub(super) fn is_called(endpoint: &Endpoint, name: &str) -> bool {
    endpoint.resource == name
        || endpoint.interface == name
        || endpoint.id.workload == name
        || endpoint.id.to_string() == name
}
