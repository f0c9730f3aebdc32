//! Packets between all places, also to a service that another table of the kernel translates.

use std::net::IpAddr;

use crate::verdicts::draw::{Draw, PORTS};
use crate::verdicts::probe::{EXPERIMENT, Kind, Probe, SYN};
use crate::verdicts::wires::{HOST_ASIDE, HOST_OTHER, Party, WORKLOADS};

/// The addresses of a service, which are not those of a host.
pub(super) const SERVICE: [&str; 2] = ["198.18.0.100", "2001:db8:9::100"];
/// Ports that are sometimes failsafe ports.
const FAILSAFE: [u16; 8] = [22, 179, 2379, 5473, 6443, 6667, 53, 67];
/// Addresses of other hosts that the last rule for forwarded packets allows.
pub(super) const THROUGH: [[&str; 3]; 2] = [
    ["198.51.100.99", "203.0.113.9", "10.65.1.4"],
    ["2001:db8:1::99", "2001:db8:2::9", "fd65::1:4"],
];
/// The kinds of packets that open a connection.
pub(super) const OPENING: [Kind; 8] = [
    Kind::Udp,
    Kind::Tcp(SYN),
    Kind::OPENING[2],
    Kind::Other(EXPERIMENT),
    Kind::Icmp(8, 0),
    Kind::Icmp(8, 1),
    Kind::Icmp(128, 0),
    Kind::Icmp(128, 1),
];

/// Returns the place at the other end of a link.
pub(crate) fn at_link(link: &str) -> Party {
    match link.strip_prefix("cali") {
        Some(n) => Party::Workload(n.parse().unwrap()),
        None if link == "side" => Party::Side,
        None => Party::Far,
    }
}

/// Returns the address of a place that the last rule for forwarded packets allows.
pub(super) fn through(party: Party, is_v6: usize) -> Option<IpAddr> {
    let own = THROUGH[is_v6].map(|text| text.parse::<IpAddr>().unwrap());
    own.into_iter().find(|own| Party::of(*own) == party)
}

/// Draws another place than this one.
pub(super) fn another(party: Party, or_host: bool, draw: &mut Draw) -> Party {
    let drawn = match draw.below(6) {
        0 | 1 => Party::Far,
        2 | 3 => Party::Side,
        4 if or_host => Party::Host,
        _ => Party::Workload(1 + u8::try_from(draw.below(WORKLOADS.into())).unwrap()),
    };
    match drawn == party {
        true => another(party, or_host, draw),
        false => drawn,
    }
}

/// Draws a packet from one place to another.
pub(super) fn draw_probe(sender: Party, receiver: Party, draw: &mut Draw) -> Probe {
    let is_v6 = draw.below(2);
    let mut address = |party: Party| match (party, draw.below(3)) {
        (Party::Host, 0) => HOST_ASIDE[is_v6].parse().unwrap(),
        (Party::Host, 1) => HOST_OTHER[is_v6].parse().unwrap(),
        _ => draw.address(party, is_v6),
    };
    let (from, to) = (address(sender), address(receiver));
    let mut number = || match draw.below(4) {
        0 => 40_000 + u16::try_from(draw.below(20_000)).unwrap(),
        _ => draw.of(&PORTS),
    };
    // The guard closes this port to workloads, and answers of a DHCP client.
    let mut port = || loop {
        let drawn = number();
        if drawn != 68 {
            return drawn;
        }
    };
    let (source_port, destination_port) = (port(), port());
    Probe {
        from,
        to,
        kind: draw.of(&OPENING),
        source_port,
        destination_port,
    }
}

/// Draws a packet that is not only between workloads.
pub(super) fn any_probe(draw: &mut Draw) -> (Party, Probe) {
    let sender = another(Party::Host, false, draw);
    let (sender, receiver) = match draw.below(4) {
        0 => (Party::Host, sender),
        1 => (sender, Party::Host),
        _ => (sender, another(sender, true, draw)),
    };
    let mut probe = draw_probe(sender, receiver, draw);
    if draw.below(8) == 0 {
        probe.to = SERVICE[usize::from(probe.to.is_ipv6())].parse().unwrap();
    }
    let is_of_workload = [sender, receiver]
        .iter()
        .any(|party| matches!(party, Party::Workload(_)));
    if !is_of_workload && draw.below(4) == 0 {
        probe.destination_port = draw.of(&FAILSAFE);
    }
    (sender, probe)
}
