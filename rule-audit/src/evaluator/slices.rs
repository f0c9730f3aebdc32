//! The endpoints of Kubernetes services, as a controller stores them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::values::protocol_number;
use crate::limits::SLICE_MEMBERS_MAX;
use crate::packet::{Family, protocol};
use crate::ranges::{Ranges, number};
use crate::space::Row;

/// The prefix of the keys of slices: `<namespace>/<service>/<slice>` follows.
pub const SERVICES: &str = "/cambric/services/v1/";

/// The namespace and the name of a service.
pub(super) type ServiceName = (String, String);

/// The slices of a service.
#[derive(Clone, Debug, Default)]
pub(super) struct Service {
    /// The addresses.
    addresses: Vec<(Family, u128)>,
    /// The addresses with protocol and port.
    ports: Vec<(Family, [u128; 3])>,
    /// Why its members are not known, if so.
    pub(super) fault: Option<String>,
}

impl Service {
    /// Returns the addresses of an IP version.
    pub(super) fn addresses(&self, family: Family) -> Ranges {
        let own = self.addresses.iter().filter(|(of, _)| *of == family);
        Ranges::of(own.map(|(_, address)| (*address, *address)))
    }

    /// Returns the addresses of an IP version, each with protocol and port.
    pub(super) fn rows(&self, family: Family) -> Vec<Row> {
        let own = self.ports.iter().filter(|(of, _)| *of == family);
        own.map(|(_, row)| row.map(|value| (value, value)).into())
            .collect()
    }
}

/// Reads the slices. Keys of another form are ignored.
pub(super) fn services<'s>(
    slices: impl Iterator<Item = (&'s str, Cow<'s, Value>)>,
) -> BTreeMap<ServiceName, Service> {
    let mut all: BTreeMap<ServiceName, Service> = BTreeMap::new();
    for (key, value) in slices {
        let parts: Vec<&str> = key.split('/').collect();
        let [namespace, name, _] = *parts else {
            continue;
        };
        if !parts.iter().all(|part| is_name(part)) {
            continue;
        }
        let service = all.entry((namespace.to_owned(), name.to_owned()));
        let service = service.or_default();
        let Some((addresses, ports)) = slice(&value) else {
            // Felix keeps the last valid value, or closes the rules.
            service.fault = Some(format!("{SERVICES}{key} cannot be read"));
            continue;
        };
        for (family, address) in addresses {
            service.addresses.push((family, address));
            let rows = ports.iter().map(|(protocol, port)| {
                let row = [address, *protocol, *port];
                (family, row)
            });
            service.ports.extend(rows);
        }
    }
    all
}

/// The addresses, and the protocols with their ports.
type Slice = (Vec<(Family, u128)>, Vec<(u128, u128)>);

/// Reads a slice; `None` if a part has another form. Invalid addresses and ports are left out.
fn slice(value: &Value) -> Option<Slice> {
    value.as_object()?;
    let mut addresses = Vec::new();
    for endpoint in list(&value["endpoints"])? {
        endpoint.as_object()?;
        for address in list(&endpoint["addresses"])? {
            let Ok(address) = address.as_str()?.parse::<IpAddr>() else {
                continue;
            };
            let family = if address.is_ipv4() {
                Family::V4
            } else {
                Family::V6
            };
            addresses.push((family, number(address)));
        }
    }
    let mut ports = Vec::new();
    for port in list(&value["ports"])? {
        port.as_object()?;
        let protocol = match &port["protocol"] {
            Value::Null => Some(protocol::TCP),
            Value::String(_) => protocol_number(&port["protocol"]),
            given => Some(u8::try_from(given.as_u64()?).ok()?.into()),
        };
        let number = match &port["port"] {
            Value::Null => continue,
            given => u16::try_from(given.as_u64()?).ok()?,
        };
        let has_ports = [protocol::TCP, protocol::UDP, protocol::SCTP];
        let protocol = protocol.filter(|one| has_ports.contains(one) && number > 0);
        ports.extend(protocol.map(|protocol| (protocol, number.into())));
    }
    let members = addresses.len().saturating_mul(ports.len().max(1));
    (members <= SLICE_MEMBERS_MAX).then_some((addresses, ports))
}

fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Null => Some(&[]),
        value => value.as_array().map(Vec::as_slice),
    }
}

/// Returns whether a text is a DNS subdomain.
fn is_name(text: &str) -> bool {
    let is_inner = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit();
    let is_part = |part: &str| {
        let octets = part.as_bytes();
        let ends = [octets.first(), octets.last()];
        ends.iter().all(|end| end.is_some_and(|one| is_inner(*one)))
            && octets.iter().all(|one| is_inner(*one) || *one == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}
