//! Reads stored values. A value is taken as a whole or not at all; what is wrong with it names the
//! field.

use std::net::IpAddr;

use model::{EndpointName, Resource, ResourceKey, Spec, WorkloadEndpointSpec};

use super::types::{Endpoint, EndpointId, Problem, is_interface_name};
use crate::limits::INTERFACE_PREFIXES_MAX;

/// What a stored workload endpoint is to this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// One of ours.
    Local(Endpoint),
    /// Another host's, or one without addresses: as if it were not there.
    Absent,
}

/// Reads a resource.
pub(super) fn resource<S: Spec>(key: &str, octets: &[u8]) -> Result<Resource<S>, Problem> {
    Resource::parse(octets).map_err(|error| {
        let field = Some(error.field).filter(|field| !matches!(field.as_str(), "." | "?"));
        Problem::new(key, field.unwrap_or_default(), error.source.to_string())
    })
}

/// Reads a workload endpoint as seen from `hostname`.
pub(super) fn endpoint(
    key: &str,
    resource_key: &ResourceKey,
    octets: &[u8],
    hostname: &str,
) -> Result<Read, Problem> {
    let name: Result<EndpointName, _> = resource_key.name().parse();
    let parsed = match resource::<WorkloadEndpointSpec>(key, octets) {
        Ok(parsed) => parsed,
        // Unreadable, but by its name it is another host's business.
        Err(_) if name.as_ref().is_ok_and(|name| name.node() != hostname) => {
            return Ok(Read::Absent);
        }
        Err(problem) => return Err(problem),
    };
    let spec = parsed.spec;
    if spec.node != hostname || !spec.is_complete() {
        return Ok(Read::Absent);
    }
    let name = name
        .or_else(|_| spec.name())
        .map_err(|error| Problem::new(key, "metadata.name", error.to_string()))?;
    if !is_interface_name(&spec.interface_name) {
        let reason = format!("'{}' is not the name of an interface", spec.interface_name);
        return Err(Problem::new(key, "spec.interfaceName", reason));
    }
    let namespace = resource_key.namespace().unwrap_or_default();
    Ok(Read::Local(Endpoint {
        id: EndpointId {
            orchestrator: name.orchestrator().to_owned(),
            workload: format!("{namespace}/{}", name.workload()),
            endpoint: name.endpoint().to_owned(),
        },
        resource: format!("{namespace}/{}", resource_key.name()),
        addresses: addresses(key, &spec)?,
        interface: spec.interface_name,
        mac: spec.mac,
        profiles: spec.profiles,
    }))
}

fn addresses(key: &str, spec: &WorkloadEndpointSpec) -> Result<Vec<IpAddr>, Problem> {
    let mut addresses = Vec::with_capacity(spec.ip_networks.len());
    for (at, network) in spec.ip_networks.iter().enumerate() {
        let field = format!("spec.ipNetworks[{at}]");
        if !network.is_host() {
            let reason = format!("{network} is not a single address (/32 or /128)");
            return Err(Problem::new(key, field, reason));
        }
        let address = network.address();
        if !can_be_workload(address) {
            let reason = format!("{address} cannot be the address of a workload");
            return Err(Problem::new(key, field, reason));
        }
        addresses.push(address);
    }
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// An address that can be routed to one interface.
fn can_be_workload(address: IpAddr) -> bool {
    let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    let of_link = match address {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !special && !of_link
}

/// A comma separated list of interface prefixes.
pub(crate) fn interface_prefixes(text: &str) -> Result<Vec<String>, String> {
    let mut prefixes: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
    if let Some(bad) = prefixes.iter().find(|prefix| !is_interface_name(prefix)) {
        return Err(format!(
            "'{bad}' cannot be the beginning of an interface name"
        ));
    }
    prefixes.sort_unstable();
    prefixes.dedup();
    match prefixes.len() {
        0..=INTERFACE_PREFIXES_MAX => Ok(prefixes),
        _ => Err(format!(
            "more than {INTERFACE_PREFIXES_MAX} interface prefixes"
        )),
    }
}
