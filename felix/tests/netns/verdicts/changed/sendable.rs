//! The packets that the places can send, as conditions of programs; and a packet of a comparison as real
//! packets, with the connection before it.

use std::net::IpAddr;

use rule_audit::packet::{Family, Field, Packet, protocol, state};
use rule_audit::ranges::{Ranges, address, number, parse_network};
use rule_audit::space::{Act, ConditionId, Place, ProgramId, Step};

use super::ways::{Way, World};
use crate::verdicts::probe::{self, DATA, DCCP, GRE, Kind, Probe, RESET, SYN, UDP_LITE};
use crate::verdicts::wires::{
    ALL_WORKLOADS, BEHIND, HOST, HOST_ASIDE, HOST_OTHER, Party, RECEIVED, addresses,
};
use crate::world::packet;

/// Networks of unicast addresses, without those of a link.
const UNICAST: [&[&str]; 2] = [
    &[
        "1.0.0.0/8",
        "2.0.0.0/7",
        "4.0.0.0/6",
        "8.0.0.0/5",
        "16.0.0.0/4",
        "32.0.0.0/3",
        "64.0.0.0/3",
        "96.0.0.0/4",
        "112.0.0.0/5",
        "120.0.0.0/6",
        "124.0.0.0/7",
        "126.0.0.0/8",
        "128.0.0.0/3",
        "160.0.0.0/5",
        "168.0.0.0/8",
        "170.0.0.0/7",
        "172.0.0.0/6",
        "176.0.0.0/4",
        "192.0.0.0/3",
    ],
    &["2000::/3", "fc00::/7"],
];
/// Networks of destinations only, so that sources differ from them.
const DESTINATIONS: [&str; 2] = ["1.0.0.0/8", "2000::/16"];
/// The metadata service of OpenStack, which only workloads use.
const METADATA: &str = "169.254.169.254";
/// Networks of the host's links, whose addresses are not behind a router.
const NEAR: [&[&str]; 2] = [&["10.0.0.0/24", "10.0.1.0/24"], &["fd00::/64", "fd01::/64"]];
/// Networks behind the second link.
const SIDE: [&[&str]; 2] = [&["203.0.113.0/24"], &["2001:db8:2::/64"]];
const LINK_LOCAL: &str = "fe80::/10";
/// The address of the host for each workload, and that of all nodes of a link.
const OF_LINK: [&str; 2] = ["fe80::1", "ff02::1"];
/// Addresses that are of no other host: loopback, link-local and multicast ones.
const NOT_FORWARDED: [&[&str]; 2] = [
    &["0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3"],
    &["::/127", "fe80::/10", "ff00::/8"],
];
/// Destination ports that the guard closes to workloads: those of the datastore, of DHCP clients, BGP, BFD,
/// and of tunnels.
const GUARDED: [u16; 9] = [1, 68, 179, 546, 1701, 3784, 4784, 4789, 6081];
/// Protocols without ports that the kernel tracks by addresses alone, by family. In IPv6, some numbers are
/// those of extension headers.
const PLAIN: [&[(u128, u128)]; 2] = [
    &[
        (0, 0),
        (2, 3),
        (5, 5),
        (7, 16),
        (18, 32),
        (34, 40),
        (42, 46),
        (48, 49),
        (52, 57),
        (59, 114),
        (116, 131),
        (133, 135),
        (137, 255),
    ],
    &[
        (2, 3),
        (5, 5),
        (7, 16),
        (18, 32),
        (34, 40),
        (42, 42),
        (45, 46),
        (48, 49),
        (52, 57),
        (61, 114),
        (116, 131),
        (133, 135),
        (137, 255),
    ],
];
/// The protocols of encapsulation among these, which the guard closes to workloads.
const ENCAPSULATING: [&[u128]; 2] = [&[4, 41, 50, 51, 115], &[4, 41, 50, 115]];
/// The numbers of extension headers of IPv6, which no rule sees as the protocol.
const EXTENSIONS: [u128; 5] = [0, 43, 44, 51, 60];
/// Protocols with ports of which a packet opens a connection, and an answer to it is established.
const OTHER_PORTS: [u128; 2] = [DCCP as u128, UDP_LITE as u128];
/// The type of an error, by family: destination unreachable.
const UNREACHABLE: [u128; 2] = [3, 1];
/// Types of requests and answers, by family.
const REQUESTS: [&[u128]; 2] = [&[8, 13, 15, 17], &[128, 139]];
const ANSWERS: [&[u128]; 2] = [&[0, 14, 16, 18], &[129, 140]];
/// Types of neighbor discovery and of MLD, which the kernel never tracks. The guard closes router
/// advertisements and redirects of workloads.
const UNTRACKED: [(u128, u128); 2] = [(130, 133), (135, 136)];
const OF_ROUTERS: [(u128, u128); 2] = [(134, 134), (137, 137)];
/// The identifier of ICMP messages.
const IDENTIFIER: u16 = 7;

fn place(family: Family) -> usize {
    usize::from(family == Family::V6)
}

const fn icmp(family: Family) -> u128 {
    match family {
        Family::V4 => protocol::ICMP,
        Family::V6 => protocol::ICMPV6,
    }
}

/// Returns the ICMP of the other IP version, of which all packets are invalid.
const fn other_icmp(family: Family) -> u128 {
    match family {
        Family::V4 => protocol::ICMPV6,
        Family::V6 => protocol::ICMP,
    }
}

/// Returns the addresses of networks of an IP version.
fn networks(family: Family, texts: &[&str]) -> Vec<(u128, u128)> {
    let all = texts.iter().map(|text| parse_network(text).unwrap());
    all.filter(|(of, _)| *of == family)
        .map(|(_, range)| range)
        .collect()
}

fn each(values: &[u128]) -> Ranges {
    Ranges::of(values.iter().map(|value| (*value, *value)))
}

/// Returns the addresses of the host's links that no router has.
fn near(family: Family) -> Vec<(u128, u128)> {
    let all = networks(family, NEAR[place(family)]);
    let behind = networks(family, &BEHIND);
    let (Some((first, _)), Some((last, _))) = (behind.first(), behind.last()) else {
        return all;
    };
    let parts = all.into_iter().flat_map(|(from, to)| {
        let is_here = (from..=to).contains(first);
        match is_here {
            true => vec![(from, first - 1), (last + 1, to)],
            false => vec![(from, to)],
        }
    });
    parts.collect()
}

fn of_host(family: Family) -> Vec<(u128, u128)> {
    networks(family, &[HOST, HOST_ASIDE, HOST_OTHER].concat())
}

fn of_workload(family: Family, n: u8) -> (u128, u128) {
    let own: IpAddr = addresses(n)[place(family)].parse().unwrap();
    (number(own), number(own))
}

/// Conditions that all hold.
type All = Vec<ConditionId>;

impl World<'_> {
    /// Restricts a program to packets that the lab can send on a way: all others are dropped.
    pub(super) fn sendable(&mut self, way: &Way, program: ProgramId) -> ProgramId {
        let kinds = self.kinds(way);
        let program = self.first_of(kinds, program);
        let sources = self.sources(way);
        let program = self.first_of(sources, program);
        let places = self.places(way, true);
        self.first_of(vec![places], program)
    }

    /// Restricts a program to packets that may have this way.
    pub(super) fn possible(&mut self, way: &Way, program: ProgramId) -> ProgramId {
        let kinds = match way.sender {
            Party::Workload(_) => {
                // The guard drops the others, whatever these chains decide.
                let ports = GUARDED.map(u128::from);
                let ports = self
                    .space
                    .is_in(Field::DestinationPort, each(&ports), false);
                let has_ports =
                    self.space
                        .is_in(Field::Protocol, each(&protocol::WITH_PORTS), true);
                let has_none =
                    self.space
                        .is_in(Field::Protocol, each(&protocol::WITH_PORTS), false);
                let closed = Ranges::of([(4, 4), (41, 41), (47, 47), (50, 51), (115, 115)]);
                let is_open = self.space.is_in(Field::Protocol, closed, false);
                vec![vec![has_ports, ports], vec![has_none, is_open]]
            }
            // Their checksums are right.
            _ => {
                let types = [UNTRACKED.to_vec(), OF_ROUTERS.to_vec(), vec![(143, 143)]].concat();
                let other = Ranges::one(protocol::ICMPV6);
                let other = vec![self.space.is_in(Field::Protocol, other, false)];
                let own = self.space.is(Field::Protocol, protocol::ICMPV6);
                let types = Ranges::of(types);
                let tracked = self.space.is_in(Field::IcmpType, types.clone(), false);
                let untracked = self.space.is_in(Field::IcmpType, types, true);
                let is_untracked = self.space.is(Field::State, state::UNTRACKED);
                vec![
                    other,
                    vec![own, tracked],
                    vec![own, untracked, is_untracked],
                ]
            }
        };
        let program = self.first_of(kinds, program);
        let existing = self.existing(way.family);
        let program = self.first_of(existing, program);
        let places = self.places(way, false);
        self.first_of(vec![places], program)
    }

    /// Returns the protocols with the states that the kernel gives their packets.
    fn existing(&mut self, family: Family) -> Vec<All> {
        let (own, other) = (icmp(family), other_icmp(family));
        let mut special = vec![own, other];
        if family == Family::V6 {
            special.extend(EXTENSIONS);
        }
        let plain = self.space.is_in(Field::Protocol, each(&special), false);
        // Rules end the tracking of further packets, but none arrives untracked.
        let is_tracked = Ranges::one(state::UNTRACKED);
        let is_tracked = self.space.is_in(Field::State, is_tracked, false);
        let is_own = self.space.is(Field::Protocol, own);
        let is_other = self.space.is(Field::Protocol, other);
        let new = Ranges::one(state::NEW);
        let is_new = self.space.is_in(Field::State, new.clone(), true);
        let is_later = self.space.is_in(Field::State, new, false);
        let requests = each(REQUESTS[place(family)]);
        let is_request = self.space.is_in(Field::IcmpType, requests, true);
        let is_invalid = self.space.is(Field::State, state::INVALID);
        let mut all = vec![
            vec![plain, is_tracked],
            vec![is_own, is_later, is_tracked],
            vec![is_own, is_new, is_request],
            vec![is_other, is_invalid],
        ];
        if family == Family::V6 {
            let types = [UNTRACKED.to_vec(), OF_ROUTERS.to_vec(), vec![(143, 143)]].concat();
            let is_of_link = self.space.is_in(Field::IcmpType, Ranges::of(types), true);
            let is_untracked = self.space.is(Field::State, state::UNTRACKED);
            all.push(vec![is_own, is_of_link, is_untracked]);
        }
        all
    }

    /// Returns a program for packets with one of these conditions; all others are dropped.
    fn first_of(&mut self, alternatives: Vec<All>, program: ProgramId) -> ProgramId {
        let step = |conditions, act| Step {
            conditions,
            act,
            place: Place::default(),
        };
        let mut steps: Vec<Step> = alternatives
            .into_iter()
            .map(|conditions| step(conditions, Act::Tail(program)))
            .collect();
        steps.push(step(Vec::new(), Act::Drop));
        self.space.program(steps)
    }

    /// Returns the conditions on the destination, and on what no packet has when it is sent; `is_real` if
    /// the lab can send it.
    fn places(&mut self, way: &Way, is_real: bool) -> All {
        let mut all = vec![
            self.space.is(Field::Marked, 0),
            self.space.is(Field::Translated, 0),
            self.space.is(Field::Cut, 0),
        ];
        let family = way.family;
        let floating = |own: &Self, of: Option<Party>| -> Vec<(u128, u128)> {
            let all = own
                .floating(of)
                .filter(|one| one.is_ipv4() == (family == Family::V4));
            all.map(|one| (number(one), number(one))).collect()
        };
        let is_workload = matches!(way.sender, Party::Workload(_));
        let to = match way.receiver {
            Party::Host => {
                let mut own = of_host(family);
                if is_workload && is_real {
                    own.extend(networks(family, &OF_LINK));
                } else if is_workload {
                    own.extend(networks(family, &[OF_LINK[0], "224.0.0.0/3", "ff00::/8"]));
                }
                own
            }
            Party::Workload(n) => {
                let mut own = floating(self, Some(way.receiver));
                own.push(of_workload(family, n));
                own
            }
            Party::Side => networks(family, SIDE[place(family)]),
            Party::Far => {
                let mut others = of_host(family);
                others.extend((1..=ALL_WORKLOADS).map(|n| of_workload(family, n)));
                others.extend(floating(self, None));
                others.extend(networks(family, SIDE[place(family)]));
                others.extend(networks(family, NOT_FORWARDED[place(family)]));
                if is_real {
                    others.extend(near(family));
                }
                let others = self
                    .space
                    .is_in(Field::Destination, Ranges::of(others), false);
                all.push(others);
                let mut to = networks(family, UNICAST[place(family)]);
                if way.sender != Party::Host {
                    to.extend(networks(family, &[METADATA]));
                }
                match is_real {
                    true => to,
                    false => vec![(0, family.last())],
                }
            }
        };
        all.push(self.space.is_in(Field::Destination, Ranges::of(to), true));
        let is_looped = way.sender == Party::Host && way.receiver == Party::Host;
        if way.sender != Party::Host || is_looped {
            all.push(self.space.is(Field::SourceLocal, u128::from(is_looped)));
        }
        all
    }

    /// Returns the possible sources.
    fn sources(&mut self, way: &Way) -> Vec<All> {
        let family = way.family;
        let own = of_host(family);
        let is_own = |own_space: &mut Self, is| {
            let ranges = Ranges::of(own.iter().copied());
            own_space.space.is_in(Field::Source, ranges, is)
        };
        let unicast = Ranges::of(networks(family, UNICAST[place(family)]));
        let unicast = self.space.is_in(Field::Source, unicast, true);
        let others = Ranges::of(networks(family, &DESTINATIONS));
        let others = self.space.is_in(Field::Source, others, false);
        if way.sender == Party::Host {
            let is_local = self.space.is(Field::SourceLocal, 1);
            if way.receiver == Party::Host {
                // Another address than that of the destination.
                let aside = Ranges::of(networks(family, &HOST_ASIDE));
                let aside = self.space.is_in(Field::Source, aside, true);
                return vec![vec![is_local, aside]];
            }
            let local = vec![is_local, is_own(self, true)];
            let foreign = vec![
                self.space.is(Field::SourceLocal, 0),
                unicast,
                others,
                is_own(self, false),
            ];
            return vec![local, foreign];
        }
        let unicast = vec![unicast, others, is_own(self, false)];
        if (way.receiver, family) != (Party::Host, Family::V6) {
            return vec![unicast];
        }
        let link_local = Ranges::of(networks(family, &[LINK_LOCAL, "::"]));
        let link_local = vec![self.space.is_in(Field::Source, link_local, true)];
        vec![unicast, link_local]
    }

    /// Returns the kinds of packets, by state and protocol.
    fn kinds(&mut self, way: &Way) -> Vec<All> {
        let of_icmp = icmp(way.family);
        let at = place(way.family);
        let has_host = [way.sender, way.receiver].contains(&Party::Host);
        let is_workload = matches!(way.sender, Party::Workload(_));
        let mut with_ports = vec![protocol::TCP, protocol::UDP, protocol::SCTP];
        let mut plain = PLAIN[at].to_vec();
        if !has_host {
            with_ports.extend(OTHER_PORTS);
        }
        if !is_workload {
            let closed = ENCAPSULATING[at].iter();
            plain.extend(closed.map(|number| (*number, *number)));
        }
        let plain = match way.receiver {
            Party::Host => {
                let own = RECEIVED.map(u128::from);
                Ranges::of(plain).intersection(&each(&own))
            }
            _ => Ranges::of(plain),
        };
        let with_ports = each(&with_ports);
        // The host ends connections of SCTP with an error.
        let tracked = match has_host {
            true => each(&[protocol::TCP, protocol::UDP]),
            false => with_ports.clone(),
        };
        let to = way.receiver;
        let floating: Vec<(u128, u128)> = self
            .floating(Some(to))
            .filter(|one| one.is_ipv4() == (way.family == Family::V4))
            .map(|one| (number(one), number(one)))
            .collect();
        let mut all: Vec<All> = Vec::new();
        let mut add = |own: &mut Self, state, direction, mut rest: All| {
            rest.push(own.space.is(Field::State, state));
            rest.push(own.space.is(Field::Direction, direction));
            if matches!(state, state::ESTABLISHED | state::RELATED) {
                // Their connection has no translated address.
                let floating = Ranges::of(floating.iter().copied());
                rest.push(own.space.is_in(Field::Destination, floating, false));
            }
            all.push(rest);
        };
        let new = self.ports(with_ports, is_workload);
        add(self, state::NEW, 0, new);
        let requests = self.icmp(of_icmp, REQUESTS[at]);
        add(self, state::NEW, 0, requests);
        let others = vec![self.space.is_in(Field::Protocol, plain.clone(), true)];
        add(self, state::NEW, 0, others.clone());
        if !is_workload && to != Party::Host {
            let gre = vec![self.space.is(Field::Protocol, GRE.into())];
            add(self, state::NEW, 0, gre);
        }
        let invalid = each(&[protocol::TCP, protocol::UDP, protocol::SCTP]);
        let invalid = self.ports(invalid, is_workload);
        add(self, state::INVALID, 0, invalid);
        let other_icmp = self.space.is(Field::Protocol, other_icmp(way.family));
        let other_icmp = vec![other_icmp];
        add(self, state::INVALID, 0, other_icmp);
        if !is_workload {
            let answers = self.icmp(of_icmp, ANSWERS[at]);
            add(self, state::INVALID, 0, answers);
        }
        for direction in [0, 1] {
            let later = self.ports(tracked.clone(), is_workload);
            add(self, state::ESTABLISHED, direction, later);
            if !has_host {
                add(self, state::ESTABLISHED, direction, others.clone());
            }
            let types = if direction == 0 { REQUESTS } else { ANSWERS };
            let messages = self.icmp(of_icmp, types[at]);
            add(self, state::ESTABLISHED, direction, messages);
        }
        if way.sender != Party::Host {
            let errors = self.icmp(of_icmp, &[UNREACHABLE[at]]);
            add(self, state::RELATED, 1, errors);
        }
        if way.family == Family::V6 {
            let types = match is_workload {
                true => UNTRACKED.to_vec(),
                false => [UNTRACKED, OF_ROUTERS].concat(),
            };
            let types = self.space.is_in(Field::IcmpType, Ranges::of(types), true);
            let messages = vec![self.space.is(Field::Protocol, of_icmp), types];
            add(self, state::UNTRACKED, 0, messages);
        }
        all
    }

    /// Returns the conditions of protocols with ports.
    fn ports(&mut self, protocols: Ranges, is_workload: bool) -> All {
        let any = Ranges::of([(1, u16::MAX.into())]);
        let mut all = vec![
            self.space.is_in(Field::Protocol, protocols, true),
            self.space.is_in(Field::SourcePort, any.clone(), true),
            self.space.is_in(Field::DestinationPort, any, true),
        ];
        if is_workload {
            let guarded = each(&GUARDED.map(u128::from));
            all.push(self.space.is_in(Field::DestinationPort, guarded, false));
        }
        all
    }

    fn icmp(&mut self, number: u128, types: &[u128]) -> All {
        vec![
            self.space.is(Field::Protocol, number),
            self.space.is_in(Field::IcmpType, each(types), true),
        ]
    }
}

/// A packet that a place sends.
#[derive(Clone, Copy, Debug)]
pub(in crate::verdicts) struct Message {
    pub(in crate::verdicts) sender: Party,
    pub(in crate::verdicts) probe: Probe,
    /// The packet that an ICMP error quotes.
    pub(in crate::verdicts) quoted: Option<Probe>,
    /// Its length of UDP is wrong.
    is_malformed: bool,
}

impl Message {
    pub(in crate::verdicts) const fn of(sender: Party, probe: Probe) -> Self {
        Self {
            sender,
            probe,
            quoted: None,
            is_malformed: false,
        }
    }

    pub(in crate::verdicts) fn octets(&self, number: u32) -> Vec<u8> {
        let Probe { from, to, kind, .. } = self.probe;
        let (Some(quoted), Kind::Icmp(kind, code)) = (self.quoted, kind) else {
            let mut octets = self.probe.octets(number);
            if self.is_malformed {
                let header = if from.is_ipv4() { 20 } else { 40 };
                octets[header + 4] ^= 0xff;
            }
            return octets;
        };
        // The unused octets are read as those of the identifier.
        let [high, low] = self.probe.source_port.to_be_bytes();
        let mut message = vec![kind, code, 0, 0, high, low, 0, 0];
        message.extend(quoted.octets(number));
        let protocol = self.probe.protocol();
        let sum = match from {
            IpAddr::V4(_) => packet::checksum(&message),
            IpAddr::V6(_) => packet::transport_checksum(from, to, protocol, &message),
        };
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        packet::packet(from, to, protocol, &message)
    }
}

/// A packet, and those that make its connection.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) before: Vec<Message>,
    pub(super) last: Message,
}

/// Returns the exchange for a packet of [`World::sendable`].
pub(super) fn exchange(way: &Way, of: &Packet) -> Exchange {
    let octet = |field| u8::try_from(of.get(field)).unwrap();
    let port = |field| u16::try_from(of.get(field)).unwrap();
    let (state, is_answer) = (of.get(Field::State), of.get(Field::Direction) == 1);
    let mut probe = Probe {
        from: address(way.family, of.get(Field::Source)),
        to: address(way.family, of.get(Field::Destination)),
        kind: match of.get(Field::Protocol) {
            protocol::TCP if state == state::INVALID => Kind::Tcp(RESET),
            protocol::TCP => Kind::Tcp(SYN),
            protocol::UDP => Kind::Udp,
            protocol::SCTP if state == state::INVALID => Kind::Sctp(DATA),
            protocol::SCTP => Kind::OPENING[2],
            number if OTHER_PORTS.contains(&number) => Kind::Ports(octet(Field::Protocol)),
            own if own == icmp(way.family) => {
                Kind::Icmp(octet(Field::IcmpType), octet(Field::IcmpCode))
            }
            _ => Kind::Other(octet(Field::Protocol)),
        },
        source_port: port(Field::SourcePort),
        destination_port: port(Field::DestinationPort),
    };
    if matches!(probe.kind, Kind::Icmp(..)) {
        (probe.source_port, probe.destination_port) = (IDENTIFIER, 0);
    }
    let mut exchange = Exchange {
        before: Vec::new(),
        last: Message::of(way.sender, probe),
    };
    match state {
        state::INVALID => {
            exchange.last.is_malformed = probe.kind == Kind::Udp;
        }
        state::RELATED => {
            let opening = Probe {
                from: probe.to,
                to: probe.from,
                kind: Kind::Udp,
                source_port: 40_000,
                destination_port: 9,
            };
            exchange.before = vec![Message::of(way.receiver, opening)];
            exchange.last.quoted = Some(opening);
        }
        state::ESTABLISHED if is_answer => {
            let opening = opening(&probe);
            exchange.before = vec![Message::of(way.receiver, opening)];
            exchange.last.probe = opening.answer().unwrap();
        }
        state::ESTABLISHED => {
            let answer = probe.answer().unwrap();
            exchange.before = vec![
                Message::of(way.sender, probe),
                Message::of(way.receiver, answer),
            ];
            exchange.last.probe = probe.later();
        }
        _ => {}
    }
    exchange
}

/// Returns the packet that an answer belongs to.
fn opening(answer: &Probe) -> Probe {
    let (kind, is_icmp) = match answer.kind {
        Kind::Icmp(kind, code) => (Kind::Icmp(probe::answering(kind).unwrap(), code), true),
        kind => (kind, false),
    };
    let ports = (answer.source_port, answer.destination_port);
    let (source_port, destination_port) = if is_icmp { ports } else { (ports.1, ports.0) };
    Probe {
        from: answer.to,
        to: answer.from,
        kind,
        source_port,
        destination_port,
    }
}
