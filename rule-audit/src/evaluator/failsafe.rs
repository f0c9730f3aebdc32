//! The failsafe ports of a host.

use serde_json::Value;

use super::values::protocol_number;
use crate::packet::{Family, protocol};
use crate::ranges::parse_network;

/// The ports of both directions if no list is stored.
const COMMON: [u128; 7] = [179, 2379, 2380, 5473, 6443, 6666, 6667];
const INBOUND: [(u128, u128); 2] = [(protocol::TCP, 22), (protocol::UDP, 68)];
const OUTBOUND: [(u128, u128); 2] = [(protocol::UDP, 53), (protocol::UDP, 67)];

/// The failsafe ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failsafe {
    /// Ports of the host.
    pub inbound: Vec<FailsafePort>,
    /// Ports of others.
    pub outbound: Vec<FailsafePort>,
}

/// A failsafe port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailsafePort {
    /// The protocol.
    pub protocol: u128,
    /// The port.
    pub port: u128,
    /// The addresses of the other end; `None`: all.
    pub net: Option<(Family, (u128, u128))>,
}

impl Default for Failsafe {
    fn default() -> Self {
        let with = |own: [(u128, u128); 2]| {
            let common = COMMON.map(|port| (protocol::TCP, port));
            let ports = own.into_iter().chain(common);
            let ports = ports.map(|(protocol, port)| FailsafePort {
                protocol,
                port,
                net: None,
            });
            ports.collect()
        };
        Self {
            inbound: with(INBOUND),
            outbound: with(OUTBOUND),
        }
    }
}

impl Failsafe {
    /// Applies the lists of a FelixConfiguration. An invalid list has no effect.
    pub(super) fn apply(&mut self, spec: &Value) {
        for (field, own) in [
            ("failsafeInboundHostPorts", &mut self.inbound),
            ("failsafeOutboundHostPorts", &mut self.outbound),
        ] {
            let list = spec[field].as_array();
            let read = list.and_then(|list| list.iter().map(port).collect());
            *own = read.unwrap_or_else(|| std::mem::take(own));
        }
    }
}

fn port(value: &Value) -> Option<FailsafePort> {
    let given = &value["protocol"];
    let protocol = match given.as_str() {
        None if given.is_null() => protocol::TCP,
        Some("") => protocol::TCP,
        _ => protocol_number(given)?,
    };
    let net = value["net"].as_str().filter(|text| !text.is_empty());
    Some(FailsafePort {
        protocol,
        port: u16::try_from(value["port"].as_u64()?).ok()?.into(),
        net: match net {
            Some(text) => Some(parse_network(text)?),
            None => None,
        },
    })
}
