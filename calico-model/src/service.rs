//! The endpoints of Kubernetes services, which are the members of `services` in rules.
//!
//! A controller copies each EndpointSlice of a service to a key below [`SERVICES_PREFIX`]: its
//! `endpoints` and its `ports`, in their own form. Calico's components and the BGP daemons never
//! read these keys.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fabric::{FabricValueError, parse};
use crate::lenient::{Unknown, or_default};
use crate::resource::rule::Protocol;
use crate::validate::NAME;
use crate::value::json_octets;

/// Prefix of the endpoints of all services.
pub const SERVICES_PREFIX: &str = "/cambric/services/v1/";

/// The number of TCP, the default of a slice's port.
const TCP: u8 = 6;

/// A service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The key of a part of a service's endpoints: `<prefix><namespace>/<service>/<slice>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceKey {
    /// The service.
    pub service: ServiceName,
    /// The name of the slice.
    pub slice: String,
}

impl fmt::Display for SliceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SERVICES_PREFIX}{}/{}", self.service, self.slice)
    }
}

/// A text that is not the key of a slice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a key of the form {SERVICES_PREFIX}<namespace>/<service>/<slice>")]
pub struct SliceKeyError;

impl FromStr for SliceKey {
    type Err = SliceKeyError;

    fn from_str(text: &str) -> Result<Self, SliceKeyError> {
        let rest = text.strip_prefix(SERVICES_PREFIX).ok_or(SliceKeyError)?;
        let mut names = rest.split('/').map(str::to_owned);
        let mut next = || names.next().filter(|name| NAME.holds(name));
        let (Some(namespace), Some(name), Some(slice)) = (next(), next(), next()) else {
            return Err(SliceKeyError);
        };
        match names.next() {
            Some(_) => Err(SliceKeyError),
            None => Ok(Self {
                service: ServiceName { namespace, name },
                slice,
            }),
        }
    }
}

/// A part of a service's endpoints. Each port belongs to each address.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    /// The endpoints.
    #[serde(default, deserialize_with = "or_default")]
    pub endpoints: Vec<SliceEndpoint>,
    /// Their ports.
    #[serde(default, deserialize_with = "or_default")]
    pub ports: Vec<SlicePort>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// An endpoint of a slice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceEndpoint {
    /// Its addresses.
    #[serde(default, deserialize_with = "or_default")]
    pub addresses: Vec<String>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A port of a slice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlicePort {
    /// The protocol; TCP without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The number. A port without one is no member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// An invalid part of a slice: its field, and the reason.
pub type InvalidPart = (String, String);

impl EndpointSlice {
    /// Parses a stored value.
    ///
    /// # Errors
    ///
    /// The value is invalid; the field is named.
    pub fn parse(octets: &[u8]) -> Result<Self, FabricValueError> {
        parse(octets)
    }

    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        json_octets(self)
    }

    /// Returns the valid addresses, and the first invalid one.
    pub fn addresses(&self) -> (Vec<IpAddr>, Option<InvalidPart>) {
        let mut invalid = None;
        let mut found = Vec::new();
        for (at, endpoint) in self.endpoints.iter().enumerate() {
            for (place, text) in endpoint.addresses.iter().enumerate() {
                match text.parse() {
                    Ok(address) => found.push(address),
                    Err(_) => {
                        invalid.get_or_insert_with(|| {
                            let field = format!("endpoints[{at}].addresses[{place}]");
                            (field, format!("'{text}' is not an address"))
                        });
                    }
                }
            }
        }
        (found, invalid)
    }

    /// Returns the valid ports, each with the number of its protocol, and the first invalid one.
    pub fn ports(&self) -> (Vec<(u8, u16)>, Option<InvalidPart>) {
        let mut invalid = None;
        let mut found = Vec::new();
        for (at, port) in self.ports.iter().enumerate() {
            let Some(number) = port.port else {
                continue;
            };
            let (field, reason) = match &port.protocol {
                _ if number == 0 => ("port", "0 is not a port".to_owned()),
                None => {
                    found.push((TCP, number));
                    continue;
                }
                Some(protocol) => match protocol.number_with_ports() {
                    Some(protocol) => {
                        found.push((protocol, number));
                        continue;
                    }
                    None => ("protocol", format!("{protocol} is not TCP, UDP or SCTP")),
                },
            };
            invalid.get_or_insert_with(|| (format!("ports[{at}].{field}"), reason));
        }
        (found, invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_a_slice_has_three_names() {
        let text = "/cambric/services/v1/prod/web/web-x7k2p";
        let key: SliceKey = text.parse().unwrap();
        assert_eq!(key.service.to_string(), "prod/web");
        assert_eq!(key.slice, "web-x7k2p");
        assert_eq!(key.to_string(), text);
        for bad in [
            "",
            "/cambric/services/v1/",
            "/cambric/services/v1/prod/web",
            "/cambric/services/v1/prod/web/a/b",
            "/cambric/services/v1/prod//a",
            "/cambric/services/v1/Prod/web/a",
            "/cambric/v1/prod/web/a",
        ] {
            assert_eq!(bad.parse::<SliceKey>(), Err(SliceKeyError), "{bad}");
        }
    }

    #[test]
    fn slice_has_the_form_of_kubernetes() {
        let text = r#"{"addressType": "IPv4", "endpoints": [
            {"addresses": ["10.65.0.7", "www.example"], "conditions": {"ready": true}},
            {"addresses": ["fd65::7"]}, {"addresses": null}],
            "ports": [{"name": "http", "port": 8080}, {"protocol": "UDP", "port": 53},
            {"protocol": "SCTP", "port": null}, {"protocol": "ICMP", "port": 7},
            {"protocol": "TCP", "port": 0}]}"#;
        let slice = EndpointSlice::parse(text.as_bytes()).unwrap();
        let (addresses, invalid) = slice.addresses();
        let wanted: Vec<IpAddr> = ["10.65.0.7", "fd65::7"]
            .map(|at| at.parse().unwrap())
            .into();
        assert_eq!(addresses, wanted);
        let (field, reason) = invalid.unwrap();
        assert_eq!(field, "endpoints[0].addresses[1]");
        assert_eq!(reason, "'www.example' is not an address");
        let (ports, invalid) = slice.ports();
        assert_eq!(ports, [(6, 8080), (17, 53)]);
        let (field, reason) = invalid.unwrap();
        assert_eq!(
            (&*field, &*reason),
            ("ports[3].protocol", "ICMP is not TCP, UDP or SCTP")
        );
        let again = EndpointSlice::parse(&slice.encode()).unwrap();
        assert_eq!(again, slice);
        assert_eq!(again.unknown["addressType"], "IPv4");
        for empty in ["{}", r#"{"endpoints": null, "ports": null}"#] {
            let slice = EndpointSlice::parse(empty.as_bytes()).unwrap();
            assert_eq!(slice, EndpointSlice::default());
        }
        assert!(EndpointSlice::parse(b"[]").is_err());
    }
}
