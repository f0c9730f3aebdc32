//! Sent packets, and their treatment by the kernel.

use std::net::IpAddr;

use cambric_felix::apply::conntrack;

use super::FELIX;
use super::sendable::Exchange;
use super::ways::Arrival;
use crate::verdicts::probe::{Kind, Probe};
use crate::verdicts::wires::{ALL_WORKLOADS, Party, addresses};
use crate::verdicts::{Lab, everyone};
use crate::world::run;

/// Packets with their treatment by the original rules.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) exchange: Exchange,
    /// `None`: the last packet is dropped.
    pub(super) wanted: Option<Arrival>,
    /// How often it is sent to the changed rules: the kernel chooses a port at random.
    pub(super) attempts: u32,
}

/// Addresses and ports of a received packet.
#[derive(Clone, Copy)]
struct Ends {
    from: IpAddr,
    to: IpAddr,
    ports: [u16; 2],
    /// The identifier of an ICMP message.
    identifier: u16,
}

impl Lab {
    /// Returns whether the changed rules treat packets in another way than wanted.
    pub(super) fn is_shown(&mut self, trial: &Trial) -> bool {
        (0..trial.attempts).any(|_| !self.is_treated(trial))
    }

    /// Sends packets after all connections are removed, and returns whether the kernel treats the last one
    /// in the wanted way. No rule of Felix decides about the packets before it: they make its connection.
    pub(super) fn is_treated(&mut self, trial: &Trial) -> bool {
        let mut all = everyone();
        let workloads = (1..=ALL_WORKLOADS).flat_map(addresses);
        all.extend(workloads.map(|one| one.parse::<IpAddr>().unwrap()));
        conntrack::flush(&all).unwrap();
        let Exchange { before, last } = &trial.exchange;
        if !before.is_empty() {
            // Connection tracking stays on, unlike without the table.
            run(&format!("nft add table inet {FELIX} {{ flags dormant ; }}"));
            for message in before {
                let octets = message.octets(self.next_number());
                self.wires.send(message.sender, &octets, message.probe.to);
                self.wires.arrived();
            }
            run(&format!("nft add table inet {FELIX}"));
        }
        let number = self.next_number();
        self.wires
            .send(last.sender, &last.octets(number), last.probe.to);
        let arrived = self.wires.arrived_packets();
        let is_looped = last.sender == Party::Host && Party::of(last.probe.to) == last.sender;
        let mut places = arrived
            .iter()
            .filter(|(place, _)| **place != last.sender || is_looped);
        let found = places.find_map(|(place, packets)| {
            let octets = packets.get(&number)?;
            let is_own = is_of(*place, octets, &last.probe);
            is_own.then(|| (*place, ends(*place, octets)))
        });
        match (found, &trial.wanted) {
            (None, None) => true,
            (Some((place, ends)), Some(wanted)) => {
                place == wanted.receiver && are_ends(ends, wanted, &last.probe)
            }
            _ => false,
        }
    }

    fn next_number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }
}

/// Returns whether the ends of a received packet are the wanted ones; those of IPv6 packets to the host are
/// not received.
fn are_ends(found: Option<Ends>, wanted: &Arrival, probe: &Probe) -> bool {
    let Some(found) = found else {
        return true;
    };
    let [from_port, to_port] = found.ports;
    let is_icmp = matches!(probe.kind, Kind::Icmp(..));
    let is_port = |first: u16, last: u16| match (probe.has_ports(), is_icmp) {
        (true, _) => (first..=last).contains(&from_port),
        (false, true) => (first..=last).contains(&found.identifier),
        (false, false) => true,
    };
    let (to, port) = wanted.to.unwrap_or((probe.to, None));
    let is_source = match wanted.source {
        None => found.from == probe.from && is_port(probe.source_port, probe.source_port),
        Some((first, last)) => found.from != probe.from && is_port(first, last),
    };
    let port = port.unwrap_or(probe.destination_port);
    found.to == to && is_source && (to_port == port || !probe.has_ports())
}

/// Returns whether a received packet has the protocol and type of the sent one, so that it is no error of
/// the host that quotes it. IPv6 packets to the host have no header.
fn is_of(place: Party, octets: &[u8], sent: &Probe) -> bool {
    let (protocol, header) = match octets.first().map(|first| first >> 4) {
        Some(4) => (octets.get(9), 20),
        Some(6) if place != Party::Host => (octets.get(6), 40),
        _ => return place == Party::Host,
    };
    let is_type = match sent.kind {
        Kind::Icmp(kind, _) => octets.get(header) == Some(&kind),
        _ => true,
    };
    protocol == Some(&sent.protocol()) && is_type
}

fn ends(place: Party, octets: &[u8]) -> Option<Ends> {
    let port = |at: usize| {
        let own: [u8; 2] = octets.get(at..at + 2)?.try_into().ok()?;
        Some(u16::from_be_bytes(own))
    };
    match octets.first()? >> 4 {
        4 => {
            let own = |at: usize| -> Option<[u8; 4]> { octets.get(at..at + 4)?.try_into().ok() };
            Some(Ends {
                from: own(12)?.into(),
                to: own(16)?.into(),
                ports: [port(20)?, port(22)?],
                identifier: port(24)?,
            })
        }
        6 if place != Party::Host => {
            let own = |at: usize| -> Option<[u8; 16]> { octets.get(at..at + 16)?.try_into().ok() };
            Some(Ends {
                from: own(8)?.into(),
                to: own(24)?.into(),
                ports: [port(40)?, port(42)?],
                identifier: port(44)?,
            })
        }
        _ => None,
    }
}
