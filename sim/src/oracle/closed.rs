//! After each commit, no packet is accepted that every content of the datastore denies which the packet
//! filter may have: those that Felix has received since its last complete write.

use rule_audit::evaluator::{Fabric, Hook, Spec};
use rule_audit::packet::{Family, Field, Packet, protocol, state};
use rule_audit::ranges::number;
use rule_audit::ruleset::{Compiler, View};
use rule_audit::space::{Outcome, ProgramId, Space};
use rule_audit::{Listing, audit::TABLE};

use crate::agenda::At;
use crate::chance::Chance;
use crate::listing::listing;
use crate::world::World;

/// Interfaces that are looked at after one commit.
const INTERFACES: usize = 3;

/// Packets for each of their hooks.
const PACKETS: usize = 6;

/// Addresses besides those of workloads.
const OTHERS: [&str; 6] = [
    "192.0.2.7",
    "198.51.100.7",
    "10.0.0.3",
    "2001:db8::7",
    "fe80::1",
    "ff02::1",
];

const PORTS: [u128; 9] = [53, 68, 79, 80, 81, 82, 90, 8080, 40_000];

const PROTOCOLS: [u128; 6] = [
    protocol::TCP,
    protocol::TCP,
    protocol::UDP,
    protocol::ICMP,
    protocol::ICMPV6,
    4,
];

/// The decision of one content about an interface.
enum Wanted {
    /// The interface has no endpoint, so all packets are dropped.
    NoEndpoint,
    /// Only Felix decides which of two endpoints with one address is first.
    Unclear,
    /// The program of the endpoint.
    Program(ProgramId),
}

/// Returns a packet that the packet filter of a node accepts and that all those contents deny.
pub(crate) fn check(world: &mut World, at: At) -> Option<String> {
    let interfaces: Vec<String> = (0..INTERFACES)
        .filter_map(|_| {
            let workload = world.policies.chance.below(world.workloads.len());
            Some(world.workloads.get(workload)?.plan.host_link())
        })
        .collect();
    let mut chance = world.policies.chance.fork();
    let machine = world.machines.get(at)?;
    let host = &machine.node.as_ref()?.host;
    let views = host.views.all().filter(|_| !host.filter.is_tampered)?;
    let table = host.filter.table.as_ref()?;
    let listing = match Listing::parse(&listing(table)) {
        Ok(listing) => listing,
        Err(error) => return Some(format!("{}: {error}", machine.name)),
    };
    let table = listing
        .tables
        .get(&(TABLE.0.to_owned(), TABLE.1.to_owned()))?;
    let fabrics: Vec<&Fabric> = views
        .iter()
        .map(|view| view.fabric(&machine.name))
        .collect();
    let is_closing = views.iter().any(|view| view.is_closing);
    let addresses = addresses(world);
    let mut space = Space::new();
    let mut specs: Vec<Spec<'_>> = fabrics.iter().map(|fabric| Spec::new(fabric)).collect();
    let mut compiler = Compiler::default();
    for interface in interfaces {
        for hook in Hook::ALL {
            for family in Family::ALL {
                let own = Some(interface.clone());
                let (input, output) = match hook.is_from_workload() {
                    true => (own, None),
                    false => (None, own),
                };
                let view = View {
                    family,
                    input,
                    output,
                };
                let chain = hook.chain().0;
                let found = compiler.chain(&mut space, (TABLE.1, table), chain, &view);
                let wanted: Vec<_> = fabrics
                    .iter()
                    .zip(&mut specs)
                    .map(|(fabric, spec)| {
                        let mut endpoints = fabric.endpoints.iter();
                        let endpoint = endpoints.find(|one| one.interface == interface);
                        match endpoint {
                            None => Wanted::NoEndpoint,
                            Some(endpoint) if endpoint.fault.is_some() => Wanted::Unclear,
                            Some(endpoint) => {
                                Wanted::Program(spec.program(&mut space, endpoint, hook, family))
                            }
                        }
                    })
                    .collect();
                for _ in 0..PACKETS {
                    let packet = draw(&mut chance, family, &addresses);
                    let (outcome, place) = space.run(found, &packet);
                    let accepts = !matches!(outcome, Outcome::Drop | Outcome::Unknown);
                    let is_open = wanted.is_empty() && hook == Hook::InputToHost;
                    let continues = is_closing && continues(&packet);
                    let mut wanted = wanted.iter();
                    let may_pass = wanted.any(|one| match one {
                        Wanted::NoEndpoint => hook == Hook::InputToHost,
                        Wanted::Unclear => true,
                        Wanted::Program(program) => space.run(*program, &packet).0 != Outcome::Drop,
                    });
                    let may_pass = may_pass || is_open || continues;
                    if accepts && !may_pass && !is_foreign(&packet) {
                        let rule = space.text(place);
                        return Some(format!(
                            "{}: {interface} {chain} accepts {packet} by {rule}, which none of {} contents allows",
                            machine.name,
                            fabrics.len(),
                        ));
                    }
                }
            }
        }
    }
    None
}

fn addresses(world: &World) -> [Vec<u128>; 2] {
    let own = world.workloads.iter().flat_map(|one| one.plan.nets());
    let own = own.map(|net| net.addr());
    let others = OTHERS.iter().filter_map(|text| text.parse().ok());
    let (v4, v6): (Vec<_>, Vec<_>) = own.chain(others).partition(std::net::IpAddr::is_ipv4);
    [v4, v6].map(|all| all.into_iter().map(number).collect())
}

fn draw(chance: &mut Chance, family: Family, addresses: &[Vec<u128>; 2]) -> Packet {
    let [v4, v6] = addresses;
    let addresses = if family == Family::V4 { v4 } else { v6 };
    let state = if chance.strikes(300) {
        chance.below(5)
    } else {
        0
    };
    let mut of = |values: &[u128]| chance.pick(values).copied().unwrap_or_default();
    let packet = Packet::new(family)
        .with(Field::Source, of(addresses))
        .with(Field::Destination, of(addresses))
        .with(Field::Protocol, of(&PROTOCOLS))
        .with(Field::SourcePort, of(&PORTS))
        .with(Field::DestinationPort, of(&PORTS))
        .with(Field::IcmpType, of(&[8, 9, 128, 135]))
        .with(Field::IcmpCode, of(&[0, 1]));
    packet
        .with(Field::State, state as u128)
        .with(Field::Direction, of(&[0, 0, 1]))
        .with(Field::SourceLocal, of(&[0, 0, 1]))
}

/// Returns whether a packet belongs to an established connection.
fn continues(packet: &Packet) -> bool {
    [state::ESTABLISHED, state::RELATED].contains(&packet.get(Field::State))
}

/// Returns whether a packet has the ICMP of the other IP version, which is not compared by type.
fn is_foreign(packet: &Packet) -> bool {
    let foreign = match packet.family {
        Family::V4 => protocol::ICMPV6,
        Family::V6 => protocol::ICMP,
    };
    packet.get(Field::Protocol) == foreign
}
