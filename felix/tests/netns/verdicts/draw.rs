//! Packets by a seed.

use std::net::IpAddr;

use super::probe::{ACK, Kind, Probe, RESET, SYN};
use super::wires::{ASIDE, HOST, Party, WORKLOADS, addresses};

/// Addresses of other hosts, by IP version.
const FAR: [&[&str]; 2] = [
    &[
        "10.65.2.1",
        "10.65.2.2",
        "10.65.2.3",
        "10.65.2.9",
        "192.0.2.7",
        "198.51.100.7",
        "10.0.0.3",
    ],
    &[
        "fd65::2:1",
        "fd65::2:2",
        "fd65::2:3",
        "fd65::2:9",
        "2001:db8::7",
        "2001:db8:1::7",
    ],
];
pub(super) const PORTS: [u16; 14] = [53, 54, 67, 68, 78, 79, 80, 81, 82, 90, 91, 8000, 8080, 8081];
/// Types and codes of ICMP and of ICMPv6.
const MESSAGES: [&[(u8, u8)]; 2] = [
    &[(8, 0), (8, 0), (8, 1), (13, 0), (0, 0)],
    &[(128, 0), (128, 0), (128, 1), (129, 0)],
];

/// Draws values from a seed.
pub(super) struct Draw(pub(super) u64);

impl Draw {
    pub(super) fn below(&mut self, count: usize) -> usize {
        // The generator of Knuth; its high bits are the best ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % count
    }

    pub(super) fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    pub(super) fn address(&mut self, party: Party, is_v6: usize) -> IpAddr {
        let text = match party {
            Party::Workload(n) => addresses(n)[is_v6].clone(),
            Party::Host => HOST[is_v6].to_owned(),
            Party::Far => self.of(FAR[is_v6]).to_owned(),
            Party::Side => self.of(&ASIDE[is_v6]).to_owned(),
        };
        text.parse().unwrap()
    }

    /// Draws a packet between two places, of which at least one is a workload.
    pub(super) fn probe(&mut self) -> (Party, Probe) {
        let workload = Party::Workload(1 + u8::try_from(self.below(WORKLOADS.into())).unwrap());
        let other = match self.below(8) {
            0 => Party::Host,
            1..=3 => Party::Far,
            _ => {
                let n = 1 + u8::try_from(self.below(WORKLOADS.into())).unwrap();
                Party::Workload(n)
            }
        };
        if other == workload {
            return self.probe();
        }
        let (sender, receiver) = match self.below(2) {
            0 => (workload, other),
            _ => (other, workload),
        };
        let is_v6 = self.below(2);
        let from = match (sender, self.below(10)) {
            // A workload may claim another address.
            (Party::Workload(_), 0) => Party::Far,
            _ => sender,
        };
        let kind = match (sender, self.below(12)) {
            // The host would answer the others with an error that ends the connection.
            (Party::Host, 0..=7) => Kind::Udp,
            (_, 0..=2) => Kind::Udp,
            (_, 3..=5) => Kind::Tcp(SYN),
            (_, 6) => Kind::Tcp(self.of(&[ACK, SYN | ACK, RESET])),
            (_, 7) => Kind::OPENING[2],
            (_, 8) => Kind::OPENING[3],
            _ => {
                let (kind, code) = self.of(MESSAGES[is_v6]);
                Kind::Icmp(kind, code)
            }
        };
        let probe = Probe {
            from: self.address(from, is_v6),
            to: self.address(receiver, is_v6),
            kind,
            source_port: match self.below(3) {
                0 => 40_000 + u16::try_from(self.below(20_000)).unwrap(),
                _ => self.of(&PORTS),
            },
            destination_port: self.of(&PORTS),
        };
        // The guard drops all packets to the port of a DHCP client, also answers.
        match [probe.source_port, probe.destination_port].contains(&68) {
            true => self.probe(),
            false => (sender, probe),
        }
    }
}
