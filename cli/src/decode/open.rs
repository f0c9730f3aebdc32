//! OPEN messages.

use bgp_proto::Open;
use bgp_proto::open::VERSION;

use crate::decode::octets::to_hex;
use crate::decode::schema::{CapabilityReport, OpenMessage};

/// Returns the report of an OPEN, with each capability as text and as octets.
pub(crate) fn report(open: &Open) -> OpenMessage {
    let capabilities = open.capabilities.iter().map(|capability| {
        let mut octets = Vec::new();
        capability.encode(&mut octets);
        CapabilityReport {
            code: capability.code().0,
            name: capability.code().name(),
            text: capability.to_string(),
            value: to_hex(octets.get(2..).unwrap_or_default()),
        }
    });
    OpenMessage {
        version: VERSION,
        asn: open.asn.0,
        hold_time: open.hold_time,
        id: open.id.0,
        capabilities: capabilities.collect(),
    }
}
