//! Encodes rules as expressions of the nftables virtual machine. Each match loads into register 1
//! and compares; the encodings are those of `nft` itself, so that `nft list` can print them.

use std::net::IpAddr;

use netlink::expression::{compare, differs, equal, load, lookup, masked, meta, payload};
use netlink::nftables::number;
use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    DataAttribute, Expressions, Immediate, Lookup, Meta, MetaKey, Operator, Register,
    Verdict as Code, VerdictAttribute,
};

use super::stateful::{DYNAMIC_ADD, DYNAMIC_UPDATE, dynamic, fragment_header, next_hop, random};
use super::statement;
use super::tracked::{
    CT_DIRECTION, CT_MARK, CT_STATE, CT_STATUS, DIRECTION_REPLY, STATUS_DNAT, TCP_FLAGS,
    TCP_FLAGS_AT, TCP_SYN, connection, tuple_source,
};
use crate::limits::INTERFACE_NAME_OCTETS_MAX;
use crate::render::{
    ACCEPTED, Action, ConnectionStates, End, Family, Is, Match, Rule, Seen, Side, Verdict,
    local_name,
};

const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_ICMPV6: u8 = 58;
/// `NFT_PAYLOAD_NETWORK_HEADER` and `NFT_PAYLOAD_TRANSPORT_HEADER`.
const NETWORK: u32 = 1;
/// The offset of the sender's address in ARP for Ethernet and IPv4 (RFC 826).
const ARP_SENDER: u32 = 14;
const TRANSPORT: u32 = 2;
/// `NFTA_FIB_DREG`, `NFTA_FIB_RESULT`, `NFTA_FIB_FLAGS`; `NFT_FIB_RESULT_OIF`,
/// `NFT_FIB_RESULT_ADDRTYPE`; `NFTA_FIB_F_SADDR`, `NFTA_FIB_F_DADDR`, `NFTA_FIB_F_IIF`, `NFTA_FIB_F_PRESENT`; `RTN_LOCAL`.
const FIB_DESTINATION: u16 = 1;
const FIB_RESULT: u16 = 2;
const FIB_FLAGS: u16 = 3;
const FIB_INTERFACE: u32 = 1;
const FIB_ADDRESS_TYPE: u32 = 3;
const FIB_OF_SOURCE: u32 = 1;
const FIB_OF_DESTINATION: u32 = 1 << 1;
const FIB_BY_INPUT: u32 = 1 << 3;
const FIB_PRESENT: u32 = 1 << 5;
const ROUTE_LOCAL: u32 = 2;
/// Bits of the connection tracking state.
const ESTABLISHED: u32 = 2;
const RELATED: u32 = 4;
const NEW: u32 = 8;
const UNTRACKED: u32 = 64;
const INVALID: u32 = 1;
/// `NFT_LOOKUP_F_INV`.
const LOOKUP_INVERTED: u32 = 1;
/// `NFTA_LOG_PREFIX`, `NFTA_LOG_LEVEL`; `LOGLEVEL_INFO`.
const LOG_PREFIX: u16 = 2;
const LOG_LEVEL: u16 = 5;
const LOG_INFO: u32 = 6;
/// `NFTA_NAT_TYPE`, `NFTA_NAT_FAMILY`, `NFTA_NAT_REG_ADDR_MIN`, `NFTA_NAT_REG_PROTO_MIN`,
/// `NFTA_NAT_REG_PROTO_MAX`, `NFTA_NAT_FLAGS`; `NFT_NAT_SNAT`, `NFT_NAT_DNAT`.
const NAT_TYPE: u16 = 1;
const NAT_FAMILY: u16 = 2;
const NAT_ADDRESS: u16 = 3;
const NAT_PORT: u16 = 5;
const NAT_PORT_LAST: u16 = 6;
const NAT_FLAGS: u16 = 7;
/// `NFTA_MASQ_FLAGS`, `NFTA_MASQ_REG_PROTO_MIN`, `NFTA_MASQ_REG_PROTO_MAX`.
const MASQUERADE_FLAGS: u16 = 1;
const MASQUERADE_PORT: u16 = 2;
const MASQUERADE_PORT_LAST: u16 = 3;
/// `NF_NAT_RANGE_PROTO_SPECIFIED`: ports are given. `NF_NAT_RANGE_PROTO_RANDOM_FULLY`: they are
/// chosen at random, so that two concurrent connections rarely choose the same port.
const PORTS_GIVEN: u32 = 1 << 1;
const PORTS_DRAWN: u32 = 1 << 4;
const TO_SOURCE: u32 = 0;
const TO_DESTINATION: u32 = 1;

/// Returns all expressions of a rule, in order.
pub(super) fn of_rule(rule: &Rule) -> Vec<Expressions> {
    let mut asked = Asked::default();
    let mut expressions = Vec::new();
    for condition in &rule.matches {
        asked.of_match(condition, &mut expressions);
    }
    if rule.counter {
        expressions.push(Expressions::Other {
            expression_type: "counter".into(),
            attributes: Vec::new(),
        });
    }
    expressions.extend(rule.report.as_deref().map(statement::report));
    of_action(&rule.action, &mut asked, &mut expressions);
    expressions
}

/// Returns the expressions of a rule's action, which follow those of its matches.
fn of_action(action: &Action, asked: &mut Asked, expressions: &mut Vec<Expressions>) {
    match action {
        Action::Verdict(verdict) => expressions.push(immediate(verdict)),
        Action::Lookup(side, map) => {
            expressions.push(interface(*side));
            expressions.push(lookup(map, Some(Register::Verdict)));
        }
        Action::Log(prefix) => {
            let text = [prefix.as_bytes(), &[0]].concat();
            expressions.push(Expressions::Other {
                expression_type: "log".into(),
                attributes: vec![
                    DefaultNla::new(LOG_PREFIX, text),
                    number(LOG_LEVEL, LOG_INFO),
                ],
            });
        }
        Action::AcceptMarked => {
            expressions.extend(statement::mark(ACCEPTED));
            expressions.push(immediate(&Verdict::Accept));
        }
        Action::ClearMark => expressions.extend(statement::mark(0)),
        Action::AcceptUntracked => {
            expressions.extend(statement::mark(ACCEPTED));
            expressions.extend([statement::untrack(), immediate(&Verdict::Accept)]);
        }
        Action::Reject => expressions.push(statement::reject()),
        Action::ResetTcp => expressions.push(statement::reset_tcp()),
        Action::Dscp(family, value) => {
            asked.family(*family, expressions);
            expressions.extend(statement::dscp(*family, *value));
        }
        Action::DestinationTo(address, port) => {
            expressions.push(load(Register::Reg1, &address.octets()));
            expressions.push(load(Register::Reg2, &port.to_be_bytes()));
            let port = [number(NAT_PORT, Register::Reg2.into())];
            expressions.push(translation(TO_DESTINATION, Family::V4, port));
        }
        Action::DestinationBy(family, map) => {
            asked.family(*family, expressions);
            let (offset, octets) = place(End::Destination, *family);
            expressions.push(payload(NETWORK, offset, octets, Register::Reg1));
            expressions.push(lookup(map, Some(Register::Reg1)));
            expressions.push(translation(TO_DESTINATION, *family, []));
        }
        Action::SourceBy(family, map) => {
            asked.family(*family, expressions);
            // Adjacent, as in the key.
            let destination = match family {
                Family::V4 => Register::Reg32_01,
                Family::V6 => Register::Reg2,
            };
            for (end, register) in [
                (End::Source, Register::Reg1),
                (End::Destination, destination),
            ] {
                let (offset, octets) = place(end, *family);
                expressions.push(payload(NETWORK, offset, octets, register));
            }
            expressions.push(lookup(map, Some(Register::Reg1)));
            expressions.push(translation(TO_SOURCE, *family, []));
        }
        Action::Masquerade(ports) => {
            let names = [MASQUERADE_PORT, MASQUERADE_PORT_LAST, MASQUERADE_FLAGS];
            let registers = [Register::Reg1, Register::Reg2];
            let attributes = from_ports(*ports, names, registers, expressions);
            expressions.push(Expressions::Other {
                expression_type: "masq".into(),
                attributes,
            });
        }
        Action::SourceTo(address, ports) => {
            expressions.push(load(Register::Reg1, &address.octets()));
            let names = [NAT_PORT, NAT_PORT_LAST, NAT_FLAGS];
            let registers = [Register::Reg2, Register::Reg3];
            let attributes = from_ports(*ports, names, registers, expressions);
            expressions.push(translation(TO_SOURCE, Family::V4, attributes));
        }
    }
}

/// Returns the attributes of a verdict.
pub(super) fn verdict(verdict: &Verdict) -> Vec<VerdictAttribute> {
    let (code, chain) = match verdict {
        Verdict::Accept => (Code::Other(NF_ACCEPT), None),
        Verdict::Drop => (Code::Other(NF_DROP), None),
        Verdict::Return => (Code::Return, None),
        Verdict::Jump(chain) => (Code::Jump, Some(chain)),
        Verdict::Goto(chain) => (Code::Goto, Some(chain)),
    };
    let mut attributes = vec![VerdictAttribute::Code(code)];
    attributes.extend(chain.map(|chain| VerdictAttribute::Chain(local_name(chain).into())));
    attributes
}

/// Conditions that a rule has already checked: family and protocol are checked once.
#[derive(Default)]
struct Asked {
    family: Option<Family>,
    protocol: Option<u8>,
}

impl Asked {
    fn family(&mut self, family: Family, into: &mut Vec<Expressions>) {
        if self.family.replace(family) != Some(family) {
            let number = match family {
                Family::V4 => NFPROTO_IPV4,
                Family::V6 => NFPROTO_IPV6,
            };
            into.extend([meta(MetaKey::Nfproto), equal(&[number])]);
        }
    }

    fn protocol(&mut self, protocol: u8, into: &mut Vec<Expressions>) {
        if self.protocol.replace(protocol) != Some(protocol) {
            into.extend([meta(MetaKey::L4Proto), equal(&[protocol])]);
        }
    }

    /// Loads an address of a packet of the family.
    fn address(&mut self, end: End, family: Family, into: &mut Vec<Expressions>) {
        self.family(family, into);
        let (offset, octets) = place(end, family);
        into.push(payload(NETWORK, offset, octets, Register::Reg1));
    }

    /// Loads a port of a packet of the protocol.
    fn port(&mut self, end: End, protocol: u8, into: &mut Vec<Expressions>) {
        self.protocol(protocol, into);
        let offset = match end {
            End::Source => 0,
            End::Destination => 2,
        };
        into.push(payload(TRANSPORT, offset, 2, Register::Reg1));
    }

    fn of_match(&mut self, condition: &Match, into: &mut Vec<Expressions>) {
        match condition {
            Match::InterfacePrefix(side, prefix) => {
                into.extend([interface(*side), equal(prefix.as_bytes())]);
            }
            Match::Interface(side, name) => {
                let mut octets = name.as_bytes().to_vec();
                octets.resize(INTERFACE_NAME_OCTETS_MAX + 1, 0);
                into.extend([interface(*side), equal(&octets)]);
            }
            Match::InterfaceIn(side, set) => {
                into.extend([interface(*side), lookup(local_name(set), None)]);
            }
            Match::SourceIpv4In(set) => self.source_in(Family::V4, set, into),
            Match::SourceIpv6In(set) => self.source_in(Family::V6, set, into),
            Match::SourceLinkLocal => {
                let (mut mask, mut value) = ([0; 16], [0; 16]);
                [mask[0], mask[1]] = [0xff, 0xc0];
                [value[0], value[1]] = [0xfe, 0x80];
                self.address(End::Source, Family::V6, into);
                into.extend([masked(&mask), equal(&value)]);
            }
            Match::SourceUnspecified => {
                self.address(End::Source, Family::V6, into);
                into.push(equal(&[0; 16]));
            }
            Match::DestinationLinkLocalMulticast => {
                self.family(Family::V6, into);
                into.extend([
                    payload(NETWORK, 24, 2, Register::Reg1),
                    equal(&[0xff, 0x02]),
                ]);
            }
            Match::DestinationLinkLocal => {
                let (mut mask, mut value) = ([0; 16], [0; 16]);
                [mask[0], mask[1]] = [0xff, 0xc0];
                [value[0], value[1]] = [0xfe, 0x80];
                self.address(End::Destination, Family::V6, into);
                into.extend([masked(&mask), equal(&value)]);
            }
            Match::Icmpv6TypeIn(set) => {
                self.protocol(IPPROTO_ICMPV6, into);
                into.extend([payload(TRANSPORT, 0, 1, Register::Reg1), lookup(set, None)]);
            }
            Match::Connection(states) => {
                let states = match states {
                    ConnectionStates::Established => ESTABLISHED,
                    ConnectionStates::EstablishedOrRelated => ESTABLISHED | RELATED,
                    ConnectionStates::Related => RELATED,
                    ConnectionStates::New => NEW,
                    ConnectionStates::Invalid => INVALID,
                    ConnectionStates::NoError => NEW | ESTABLISHED | UNTRACKED,
                };
                into.extend([
                    connection(CT_STATE),
                    masked(&states.to_ne_bytes()),
                    differs(&[0; 4]),
                ]);
            }
            Match::TupleSourceIn(direction, family, set) => {
                into.extend([
                    interface(Side::Input),
                    tuple_source(*direction, *family),
                    lookup(set, None),
                ]);
            }
            Match::ReplyDirection => {
                into.extend([connection(CT_DIRECTION), equal(&[DIRECTION_REPLY])]);
            }
            Match::ConnectionMark(mark) => into.extend([
                connection(CT_MARK),
                masked(&mark.to_ne_bytes()),
                equal(&mark.to_ne_bytes()),
            ]),
            Match::NoSyn => into.extend([
                payload(TRANSPORT, TCP_FLAGS_AT, 1, Register::Reg1),
                masked(&[TCP_FLAGS]),
                differs(&[TCP_SYN]),
            ]),
            Match::DestinationTranslated => into.extend([
                connection(CT_STATUS),
                masked(&STATUS_DNAT.to_ne_bytes()),
                differs(&[0; 4]),
            ]),
            Match::Marked => into.extend([
                meta(MetaKey::Mark),
                masked(&ACCEPTED.to_ne_bytes()),
                equal(&ACCEPTED.to_ne_bytes()),
            ]),
            Match::InputKindIn(set) => into.extend([meta(MetaKey::Iifkind), lookup(set, None)]),
            Match::SourceElsewhere => {
                let present = FIB_OF_SOURCE | FIB_BY_INPUT | FIB_PRESENT;
                into.extend([route_to(FIB_INTERFACE, present), equal(&[0; 4])]);
            }
            Match::SourceLocal => {
                let local = ROUTE_LOCAL.to_ne_bytes();
                into.extend([route_to(FIB_ADDRESS_TYPE, FIB_OF_SOURCE), equal(&local)]);
            }
            Match::DestinationElsewhere => {
                let local = ROUTE_LOCAL.to_ne_bytes();
                let flags = FIB_OF_DESTINATION | FIB_BY_INPUT;
                into.extend([route_to(FIB_ADDRESS_TYPE, flags), differs(&local)]);
            }
            other => self.of_budget(other, into),
        }
    }

    /// Adds the expressions of a condition of ARP and of budgets.
    fn of_budget(&mut self, condition: &Match, into: &mut Vec<Expressions>) {
        match condition {
            Match::ArpSenderIn(set) => into.extend([
                interface(Side::Input),
                payload(NETWORK, ARP_SENDER, 4, Register::Reg2),
                lookup(local_name(set), None),
            ]),
            Match::ArpSender(address) => into.extend([
                payload(NETWORK, ARP_SENDER, 4, Register::Reg1),
                equal(&address.octets()),
            ]),
            Match::Fragment(Family::V4) => {
                self.family(Family::V4, into);
                // The bit MF and the offset.
                into.extend([
                    payload(NETWORK, 6, 2, Register::Reg1),
                    masked(&[0x3f, 0xff]),
                    differs(&[0; 2]),
                ]);
            }
            Match::Fragment(Family::V6) => {
                self.family(Family::V6, into);
                into.extend([fragment_header(), equal(&[1])]);
            }
            Match::NextHopIn(family, set) => {
                into.extend([next_hop(*family, Register::Reg1), lookup(set, None)]);
            }
            Match::InterfaceNextHopIn(family, set) => into.extend([
                interface(Side::Input),
                next_hop(*family, Register::Reg2),
                lookup(set, None),
            ]),
            Match::OverLimit(limit, set) => into.extend([
                interface(Side::Input),
                dynamic(DYNAMIC_UPDATE, local_name(set), Some(*limit)),
            ]),
            Match::Unsampled(of) => into.extend([random(*of), differs(&[0; 4])]),
            Match::Mark(set) => {
                into.extend([interface(Side::Input), dynamic(DYNAMIC_UPDATE, set, None)])
            }
            Match::Remember(seen, family, set) => {
                let address = match seen {
                    Seen::Source => {
                        self.family(*family, into);
                        let (offset, octets) = place(End::Source, *family);
                        payload(NETWORK, offset, octets, Register::Reg2)
                    }
                    Seen::NextHop => next_hop(*family, Register::Reg2),
                };
                into.extend([
                    interface(Side::Input),
                    address,
                    dynamic(DYNAMIC_ADD, set, None),
                ]);
            }
            other => self.of_policy(other, into),
        }
    }

    /// Adds the expressions of a condition of policies.
    fn of_policy(&mut self, condition: &Match, into: &mut Vec<Expressions>) {
        match condition {
            Match::Family(family) => self.family(*family, into),
            Match::Protocol(protocol, Is::Yes) => self.protocol(*protocol, into),
            Match::Protocol(protocol, Is::Not) => {
                into.extend([meta(MetaKey::L4Proto), differs(&[*protocol])]);
            }
            Match::InNet(end, net, is) => {
                self.address(*end, Family::of(net.addr()), into);
                let octets = |address| match address {
                    IpAddr::V4(v4) => v4.octets().to_vec(),
                    IpAddr::V6(v6) => v6.octets().to_vec(),
                };
                if net.prefix_len() < net.max_prefix_len() {
                    into.push(masked(&octets(net.netmask())));
                }
                into.push(compare(operator(*is), &octets(net.network())));
            }
            Match::InSet(end, family, set, is) => {
                self.address(*end, *family, into);
                into.push(lookup_if(set, *is));
            }
            Match::Port(end, protocol, port, is) => {
                self.port(*end, *protocol, into);
                into.push(compare(operator(*is), &port.to_be_bytes()));
            }
            Match::PortIn(end, protocol, set, is) => {
                self.port(*end, *protocol, into);
                into.push(lookup_if(set, *is));
            }
            Match::EndpointPortIn(end, family, set, is) => {
                self.endpoint_port(*end, *family, into);
                into.push(lookup_if(set, *is));
            }
            Match::ServiceIn(family, set) => self.service_in(*family, set, into),
            Match::IcmpType(family, value, is) | Match::IcmpCode(family, value, is) => {
                let offset = u32::from(matches!(condition, Match::IcmpCode(..)));
                self.protocol(family.icmp(), into);
                into.push(payload(TRANSPORT, offset, 1, Register::Reg1));
                into.push(compare(operator(*is), &[*value]));
            }
            Match::Rate(limit, is) => into.push(statement::rate(*limit, *is)),
            Match::ConnectionsOver(count) => into.push(statement::connections_over(*count)),
            _ => {}
        }
    }

    /// Looks up the pair of the input interface's name and the source address in a set.
    fn source_in(&mut self, family: Family, set: &str, into: &mut Vec<Expressions>) {
        self.family(family, into);
        let (offset, octets) = place(End::Source, family);
        into.extend([
            interface(Side::Input),
            payload(NETWORK, offset, octets, Register::Reg2),
            lookup(set, None),
        ]);
    }

    /// Loads an address, the protocol and the port at the same end. The port of a protocol without
    /// ports has no meaning: the lookup then fails by its protocol.
    fn endpoint_port(&mut self, end: End, family: Family, into: &mut Vec<Expressions>) {
        self.address(end, family, into);
        // Adjacent, as in the key.
        let (protocol, port) = match family {
            Family::V4 => (Register::Reg32_01, Register::Reg32_02),
            Family::V6 => (Register::Reg32_04, Register::Reg32_05),
        };
        let offset = match end {
            End::Source => 0,
            End::Destination => 2,
        };
        into.extend([
            meta_into(MetaKey::L4Proto, protocol),
            payload(TRANSPORT, offset, 2, port),
        ]);
    }

    /// Looks up the pair of destination address and TCP port in a set.
    fn service_in(&mut self, family: Family, set: &str, into: &mut Vec<Expressions>) {
        self.family(family, into);
        self.protocol(IPPROTO_TCP, into);
        let (offset, octets) = place(End::Destination, family);
        let port = match family {
            Family::V4 => Register::Reg32_01,
            Family::V6 => Register::Reg2,
        };
        into.extend([
            payload(NETWORK, offset, octets, Register::Reg1),
            payload(TRANSPORT, 2, 2, port),
            lookup(set, None),
        ]);
    }
}

/// Returns the place of an address in the network header: offset and octets.
const fn place(end: End, family: Family) -> (u32, u32) {
    match (end, family) {
        (End::Source, Family::V4) => (12, 4),
        (End::Destination, Family::V4) => (16, 4),
        (End::Source, Family::V6) => (8, 16),
        (End::Destination, Family::V6) => (24, 16),
    }
}

const fn operator(is: Is) -> Operator {
    match is {
        Is::Yes => Operator::Equal,
        Is::Not => Operator::NotEqual,
    }
}

/// Loads the source ports for new connections, if any are given, and returns their attributes:
/// first, last, and the method of choice.
fn from_ports(
    ports: Option<(u16, u16)>,
    [first_name, last_name, flags_name]: [u16; 3],
    [first_register, last_register]: [Register; 2],
    into: &mut Vec<Expressions>,
) -> Vec<DefaultNla> {
    let Some((first, last)) = ports else {
        return vec![number(flags_name, PORTS_DRAWN)];
    };
    into.push(load(first_register, &first.to_be_bytes()));
    let mut attributes = vec![number(first_name, first_register.into())];
    if first != last {
        into.push(load(last_register, &last.to_be_bytes()));
        attributes.push(number(last_name, last_register.into()));
    }
    attributes.push(number(flags_name, PORTS_DRAWN | PORTS_GIVEN));
    attributes
}

/// Adds a translation to the address in register 1, with further attributes.
fn translation(
    kind: u32,
    family: Family,
    more: impl IntoIterator<Item = DefaultNla>,
) -> Expressions {
    let family = match family {
        Family::V4 => NFPROTO_IPV4,
        Family::V6 => NFPROTO_IPV6,
    };
    let mut attributes = vec![
        number(NAT_TYPE, kind),
        number(NAT_FAMILY, family.into()),
        number(NAT_ADDRESS, Register::Reg1.into()),
    ];
    attributes.extend(more);
    Expressions::Other {
        expression_type: "nat".into(),
        attributes,
    }
}

fn lookup_if(set: &str, is: Is) -> Expressions {
    let mut attributes = vec![
        Lookup::Set(set.into()),
        Lookup::SourceRegister(Register::Reg1),
    ];
    if is == Is::Not {
        attributes.push(Lookup::Flags(LOOKUP_INVERTED));
    }
    Expressions::Lookup(attributes)
}

/// Loads a property of the packet.
fn meta_into(key: MetaKey, register: Register) -> Expressions {
    Expressions::Meta(vec![Meta::Key(key), Meta::DestinationRegister(register)])
}

fn interface(side: Side) -> Expressions {
    meta(match side {
        Side::Input => MetaKey::Iifname,
        Side::Output => MetaKey::Oifname,
    })
}

/// Loads a property of the route to an address.
fn route_to(result: u32, flags: u32) -> Expressions {
    Expressions::Other {
        expression_type: "fib".into(),
        attributes: vec![
            number(FIB_DESTINATION, Register::Reg1.into()),
            number(FIB_RESULT, result),
            number(FIB_FLAGS, flags),
        ],
    }
}

fn immediate(fate: &Verdict) -> Expressions {
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(verdict(fate))),
    ])
}
