//! Single packets through two listings: a change that the comparison does not report must treat all
//! of them in the same way.

use std::net::IpAddr;

use rule_audit::evaluator::{Hook, Spec};
use rule_audit::packet::{Family, Field, Packet, protocol};
use rule_audit::ranges::number;
use rule_audit::ruleset::{Compiler, View};
use rule_audit::space::{Outcome, ProgramId, Space};
use rule_audit::{Fabric, Listing};

/// Packets for each program.
const PACKETS: u64 = 200;

const ADDRESSES: [[&str; 12]; 2] = [
    [
        "10.65.1.1",
        "10.65.1.2",
        "10.65.1.3",
        "10.65.1.4",
        "10.65.2.1",
        "10.65.2.2",
        "10.65.2.3",
        "192.0.2.7",
        "198.51.100.7",
        "10.0.0.3",
        "10.65.2.9",
        "8.8.8.8",
    ],
    [
        "fd65::1:1",
        "fd65::1:2",
        "fd65::1:3",
        "fd65::1:4",
        "fd65::2:1",
        "fd65::2:2",
        "fd65::2:3",
        "2001:db8::7",
        "fe80::1",
        "fd65::2:9",
        "::",
        "ff02::1",
    ],
];
const PORTS: [u128; 16] = [
    0, 53, 54, 67, 68, 78, 79, 80, 81, 82, 90, 91, 546, 8000, 8080, 8081,
];
const PROTOCOLS: [u128; 9] = [6, 6, 17, 17, 132, 1, 58, 47, 4];
const TYPES: [u128; 6] = [8, 9, 128, 129, 133, 135];

/// Draws values without a clock or a random seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % count
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    fn packet(&mut self, family: Family) -> Packet {
        let addresses = &ADDRESSES[usize::from(family == Family::V6)];
        let mut address = || {
            let address: IpAddr = self.of(addresses).parse().unwrap();
            number(address)
        };
        let (from, to) = (address(), address());
        let state = if self.below(3) == 0 { self.below(5) } else { 0 };
        Packet::new(family)
            .with(Field::Source, from)
            .with(Field::Destination, to)
            .with(Field::Protocol, self.of(&PROTOCOLS))
            .with(Field::SourcePort, self.of(&PORTS))
            .with(Field::DestinationPort, self.of(&PORTS))
            .with(Field::IcmpType, self.of(&TYPES))
            .with(Field::IcmpCode, self.below(2) as u128)
            .with(Field::State, state as u128)
            .with(Field::Direction, self.below(2) as u128)
            .with(Field::SourceLocal, self.below(2) as u128)
    }
}

/// Returns the first packet that the two listings treat differently, and for which one treatment is
/// wrong.
pub(super) fn first_difference(
    fabric: &Fabric,
    original: &Listing,
    changed: &Listing,
) -> Option<String> {
    let mut space = Space::new();
    let mut spec = Spec::new(fabric);
    let (mut of_original, mut of_changed) = (Compiler::default(), Compiler::default());
    let mut draw = Draw(1);
    for endpoint in &fabric.endpoints {
        for hook in Hook::ALL {
            for family in Family::ALL {
                let interface = Some(endpoint.interface.clone());
                let (input, output) = match hook.is_from_workload() {
                    true => (interface, None),
                    false => (None, interface),
                };
                let view = View {
                    family,
                    input,
                    output,
                };
                let wanted = spec.program(&mut space, endpoint, hook, family);
                let mut program = |compiler: &mut Compiler, listing: &Listing| -> ProgramId {
                    let key = ("inet".to_owned(), "cambric-felix".to_owned());
                    let table = &listing.tables[&key];
                    compiler.chain(&mut space, ("cambric-felix", table), hook.chain().0, &view)
                };
                let old = program(&mut of_original, original);
                let new = program(&mut of_changed, changed);
                for _ in 0..PACKETS {
                    let packet = draw.packet(family);
                    let is_open = space.run(wanted, &packet).0 == Outcome::Either;
                    if is_open || is_foreign(&packet) {
                        continue;
                    }
                    let (old, new) = (space.run(old, &packet), space.run(new, &packet));
                    if old.0 != new.0 {
                        return Some(format!("{} {hook:?} {packet}", endpoint.interface));
                    }
                }
            }
        }
    }
    None
}

/// Returns whether a packet has the ICMP of the other IP version, which is not compared by type.
fn is_foreign(packet: &Packet) -> bool {
    let foreign = match packet.family {
        Family::V4 => protocol::ICMPV6,
        Family::V6 => protocol::ICMP,
    };
    packet.get(Field::Protocol) == foreign
}
