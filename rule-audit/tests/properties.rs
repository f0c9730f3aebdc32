//! The evaluator against a plain evaluation of the same JSON for single packets.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
mod naive;

use std::net::IpAddr;

use common::{NODE, store};
use proptest::prelude::*;
use rule_audit::Fabric;
use rule_audit::evaluator::{Hook, Spec};
use rule_audit::packet::{Family, Field, Packet};
use rule_audit::ranges::number;
use rule_audit::space::{Outcome, Space};

/// Addresses inside and outside of the generated networks, by place.
const ADDRESSES: [[&str; 2]; 9] = [
    ["10.65.1.1", "fd65::1:1"],
    ["10.65.1.2", "fd65::1:2"],
    ["10.65.1.4", "fd65::1:4"],
    ["10.65.2.1", "fd65::2:1"],
    ["10.65.2.3", "fd65::2:3"],
    ["10.65.2.9", "fd65::2:99"],
    ["192.0.2.7", "2001:db8::7"],
    ["10.0.0.3", "2001:db9::"],
    ["198.51.100.7", "fe80::1"],
];

fn packet() -> impl Strategy<Value = naive::Packet> {
    let address = || prop::sample::select((0..ADDRESSES.len()).collect::<Vec<_>>());
    let port = || prop::sample::select(vec![0_u16, 53, 78, 79, 80, 81, 90, 91, 8080, 65535]);
    let protocol = prop::sample::select(vec![6_u8, 6, 17, 132, 1, 58, 47, 4]);
    let icmp = (prop::sample::select(vec![0_u8, 8, 128]), 0..2_u8);
    (
        any::<bool>(),
        address(),
        address(),
        protocol,
        port(),
        port(),
        icmp,
    )
        .prop_map(|(is_v6, from, to, protocol, source_port, port, icmp)| {
            let at =
                |place: usize| -> IpAddr { ADDRESSES[place][usize::from(is_v6)].parse().unwrap() };
            naive::Packet {
                source: at(from),
                destination: at(to),
                protocol,
                ports: [source_port, port],
                icmp,
            }
        })
}

fn converted(packet: &naive::Packet) -> Packet {
    let family = match packet.source {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    };
    Packet::new(family)
        .with(Field::Source, number(packet.source))
        .with(Field::Destination, number(packet.destination))
        .with(Field::Protocol, packet.protocol.into())
        .with(Field::SourcePort, packet.ports[0].into())
        .with(Field::DestinationPort, packet.ports[1].into())
        .with(Field::IcmpType, packet.icmp.0.into())
        .with(Field::IcmpCode, packet.icmp.1.into())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn evaluator_decides_as_a_plain_evaluation_does(
        store in store(),
        packets in prop::collection::vec(packet(), 1..30),
    ) {
        let fabric = Fabric::read(&store, NODE, |_| {});
        let mut space = Space::new();
        let mut spec = Spec::new(&fabric);
        for endpoint in &fabric.endpoints {
            for (hook, is_ingress) in [(Hook::ForwardTo, true), (Hook::Forward, false)] {
                for packet in &packets {
                    let own = converted(packet);
                    let program = spec.program(&mut space, endpoint, hook, own.family);
                    let outcome = space.run(program, &own).0;
                    let passes = naive::passes(&store, &endpoint.name, is_ingress, packet);
                    let wanted = if passes { Outcome::Accept } else { Outcome::Drop };
                    prop_assert_eq!(outcome, wanted, "{} {:?} {}", endpoint.name, hook, own);
                }
            }
        }
    }
}
