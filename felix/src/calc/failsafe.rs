//! The failsafe ports: `failsafeInboundHostPorts` and `failsafeOutboundHostPorts`.

use std::net::IpAddr;

use calico_model::{FelixConfigurationSpec, Protocol};
use ipnet::IpNet;
use serde::Deserialize;

use super::fields::field;
use crate::limits::FAILSAFE_PORTS_MAX;
use crate::render::{Failsafe, FailsafePort, PROTOCOLS_WITH_PORTS, TCP};

/// The fields, inbound and outbound.
const FIELDS: [(&str, &str); 2] = [
    ("failsafeInboundHostPorts", "spec.failsafeInboundHostPorts"),
    (
        "failsafeOutboundHostPorts",
        "spec.failsafeOutboundHostPorts",
    ),
];

/// A stored port.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(default)]
    protocol: Option<Protocol>,
    port: u16,
    #[serde(default)]
    net: Option<String>,
}

/// Returns the ports of settings, or the fault: the field, and why. A missing list stands for the
/// default ports, an empty one for none.
pub(super) fn failsafe(spec: &FelixConfigurationSpec) -> Result<Failsafe, (&'static str, String)> {
    let mut failsafe = Failsafe::default();
    let lists = [&mut failsafe.inbound, &mut failsafe.outbound];
    for ((name, place), list) in FIELDS.into_iter().zip(lists) {
        let stored: Option<Vec<Stored>> = field(spec, name).map_err(|reason| (place, reason))?;
        let Some(stored) = stored else {
            continue;
        };
        if stored.len() > FAILSAFE_PORTS_MAX {
            return Err((place, format!("more than {FAILSAFE_PORTS_MAX} ports")));
        }
        let ports: Result<Vec<FailsafePort>, String> = stored.iter().map(port).collect();
        *list = ports.map_err(|reason| (place, reason))?;
    }
    Ok(failsafe)
}

fn port(stored: &Stored) -> Result<FailsafePort, String> {
    let protocol = match &stored.protocol {
        None => TCP,
        Some(Protocol::Name(name)) if name.is_empty() => TCP,
        Some(protocol) => {
            let number = protocol.number();
            let number = number.filter(|number| PROTOCOLS_WITH_PORTS.contains(number));
            number.ok_or_else(|| format!("{protocol} is not TCP, UDP or SCTP"))?
        }
    };
    if stored.port == 0 {
        return Err("0 is not a port".into());
    }
    let net = stored.net.as_deref().filter(|text| !text.is_empty());
    let net = net.map(|text| {
        let net = text.parse::<IpNet>();
        net.or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .map(|net| net.trunc())
            .map_err(|_| format!("'{text}' is neither an address nor a range of addresses"))
    });
    Ok(FailsafePort {
        protocol,
        port: stored.port,
        net: net.transpose()?,
    })
}
