//! A packet that may be sent, and the conditions of rules on it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::render::{ConnectionStates, End, Family, Is, Key, Match, Ruleset, SetKind, Side};

/// The protocols with ports: TCP, UDP, SCTP.
pub(super) const WITH_PORTS: [(u8, &str); 3] = [(6, "TCP"), (17, "UDP"), (132, "SCTP")];

/// The gateway of workloads in IPv6.
const GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The first packet of a connection. Its fragments, options and payload are not described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The workload interface through which it enters the host.
    pub(crate) input: Option<String>,
    /// The workload interface through which it leaves the host.
    pub(crate) output: Option<String>,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    /// `None`: any.
    pub(crate) source_port: Option<u16>,
    /// The destination port of a protocol with ports.
    pub(crate) port: Option<u16>,
    /// The type of an ICMP packet; its code is 0.
    pub(crate) icmp: Option<u8>,
    /// The changes by rules so far.
    pub(crate) changes: Changes,
}

/// The changes of a packet by rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Its mark has the bit of accepted packets.
    pub(crate) is_marked: bool,
    /// It is left out of connection tracking.
    pub(crate) is_untracked: bool,
    /// Its destination was translated.
    pub(crate) is_translated: bool,
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = WITH_PORTS
            .iter()
            .find(|(number, _)| *number == self.protocol);
        match (name, self.icmp) {
            (Some((_, name)), _) => f.write_str(name)?,
            (None, Some(kind)) => write!(f, "ICMP type {kind}")?,
            (None, None) => write!(f, "protocol {}", self.protocol)?,
        }
        write!(f, " {}", self.source)?;
        if let Some(port) = self.source_port {
            write!(f, " port {port}")?;
        }
        write!(f, " > {}", self.destination)?;
        match self.port {
            Some(port) => write!(f, " port {port}"),
            None => Ok(()),
        }
    }
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    No,
    Yes,
    /// It depends on this part, which the packet does not have.
    DependsOn(&'static str),
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

impl Truth {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::DependsOn(part), _) | (_, Self::DependsOn(part)) => Self::DependsOn(part),
            (Self::Yes, Self::Yes) => Self::Yes,
        }
    }
}

impl Packet {
    /// Returns whether all conditions hold.
    pub(super) fn meets(&self, conditions: &[Match], rules: &Ruleset) -> Truth {
        let each = conditions.iter().map(|one| self.holds(one, rules));
        each.fold(Truth::Yes, Truth::and)
    }

    pub(super) fn interface(&self, side: Side) -> Option<&String> {
        match side {
            Side::Input => self.input.as_ref(),
            Side::Output => self.output.as_ref(),
        }
    }

    const fn family(&self) -> Family {
        Family::of(self.source)
    }

    const fn address(&self, end: End) -> IpAddr {
        match end {
            End::Source => self.source,
            End::Destination => self.destination,
        }
    }

    /// Returns whether the port at an end meets a condition, for packets of a protocol.
    fn port_meets(&self, end: End, protocol: u8, is: Is, holds: impl Fn(u16) -> bool) -> Truth {
        if self.protocol != protocol {
            return Truth::No;
        }
        let (port, part) = match end {
            End::Source => (self.source_port, "the source port"),
            End::Destination => (self.port, "the destination port"),
        };
        let known = |port| Truth::from(holds(port) == (is == Is::Yes));
        port.map_or(Truth::DependsOn(part), known)
    }

    fn holds(&self, condition: &Match, rules: &Ruleset) -> Truth {
        let has = |set: &str, key: Key| has(rules, set, &key);
        let is = |is: Is, holds: bool| Truth::from(holds == (is == Is::Yes));
        let is_icmp = |family: Family| self.protocol == family.icmp() && self.family() == family;
        match condition {
            Match::InterfacePrefix(side, prefix) => {
                let name = self.interface(*side);
                name.is_some_and(|name| name.starts_with(prefix.as_str()))
                    .into()
            }
            Match::Interface(side, wanted) => (self.interface(*side) == Some(wanted)).into(),
            Match::InterfaceIn(side, set) => {
                let name = self.interface(*side);
                let is_in = |name: &String| has(set, Key::interface(name));
                name.is_some_and(is_in).into()
            }
            Match::SourceIpv4In(set) | Match::SourceIpv6In(set) => {
                let wants_v4 = matches!(condition, Match::SourceIpv4In(_));
                let Some(name) = self.input.as_deref() else {
                    return Truth::No;
                };
                let key = match self.source {
                    IpAddr::V4(v4) => Key::InterfaceIpv4(name.into(), v4),
                    IpAddr::V6(v6) => Key::InterfaceIpv6(Box::new((name.into(), v6))),
                };
                (wants_v4 == self.source.is_ipv4() && has(set, key)).into()
            }
            Match::SourceLinkLocal => is_link_local(self.source).into(),
            Match::SourceUnspecified => {
                (self.source.is_ipv6() && self.source.is_unspecified()).into()
            }
            Match::DestinationLinkLocalMulticast => match self.destination {
                IpAddr::V6(v6) => (v6.segments()[0] == 0xff02).into(),
                IpAddr::V4(_) => Truth::No,
            },
            Match::DestinationLinkLocal => is_link_local(self.destination).into(),
            Match::DestinationElsewhere => match is_link_local(self.destination) {
                true if self.destination == IpAddr::V6(GATEWAY) => Truth::No,
                true => Truth::DependsOn("the link-local addresses of the host"),
                false => Truth::DependsOn("the addresses of the host"),
            },
            Match::Icmpv6TypeIn(set) => {
                let kind = self.icmp.filter(|_| is_icmp(Family::V6));
                kind.is_some_and(|kind| has(set, Key::Icmpv6Type(kind)))
                    .into()
            }
            Match::Connection(states) if self.changes.is_untracked => {
                matches!(states, ConnectionStates::NoError).into()
            }
            Match::Connection(states) => {
                let is_new = matches!(states, ConnectionStates::New | ConnectionStates::NoError);
                is_new.into()
            }
            Match::Marked => self.changes.is_marked.into(),
            Match::DestinationTranslated => self.changes.is_translated.into(),
            Match::Family(family) => (self.family() == *family).into(),
            Match::Protocol(protocol, yes) => is(*yes, self.protocol == *protocol),
            Match::InNet(end, net, yes) => {
                let holds = is(*yes, net.contains(&self.address(*end)));
                holds.and((Family::of(net.addr()) == self.family()).into())
            }
            Match::InSet(end, family, set, yes) => {
                let holds = is(*yes, has(set, Key::Address(self.address(*end))));
                holds.and((*family == self.family()).into())
            }
            Match::Port(end, protocol, port, yes) => {
                self.port_meets(*end, *protocol, *yes, |own| own == *port)
            }
            Match::PortIn(end, protocol, set, yes) => {
                self.port_meets(*end, *protocol, *yes, |own| has(set, Key::Ports(own, own)))
            }
            Match::ServiceIn(family, set) => {
                let is_in = |own| has(set, Key::Service(self.destination, own));
                let holds = self.port_meets(End::Destination, 6, Is::Yes, is_in);
                holds.and((*family == self.family()).into())
            }
            Match::EndpointPortIn(end, family, set, yes) => {
                let is_in = |own| {
                    has(
                        set,
                        Key::EndpointPort(self.address(*end), self.protocol, own),
                    )
                };
                let holds = match WITH_PORTS
                    .iter()
                    .any(|(number, _)| *number == self.protocol)
                {
                    true => self.port_meets(*end, self.protocol, *yes, is_in),
                    // nftables reads the ports of these protocols only.
                    false => Truth::No,
                };
                holds.and((*family == self.family()).into())
            }
            Match::IcmpType(family, kind, yes) => {
                Truth::from(is_icmp(*family)).and(is(*yes, self.icmp == Some(*kind)))
            }
            Match::IcmpCode(family, code, yes) => {
                Truth::from(is_icmp(*family)).and(is(*yes, *code == 0))
            }
            // Within all limits.
            Match::Rate(_, yes) => is(*yes, true),
            // The first packet of a connection, in one piece, by a device that is no tunnel, within all
            // limits, and not from a process of the host.
            Match::OverLimit(..)
            | Match::ConnectionsOver(_)
            | Match::ReplyDirection
            | Match::ConnectionMark(_)
            | Match::NoSyn
            | Match::TupleSourceIn(..)
            | Match::InputKindIn(_)
            | Match::SourceElsewhere
            | Match::SourceLocal
            | Match::Fragment(_)
            | Match::ArpSenderIn(_)
            | Match::ArpSender(_) => Truth::No,
            Match::NextHopIn(..)
            | Match::InterfaceNextHopIn(..)
            | Match::Unsampled(_)
            | Match::Mark(_)
            | Match::Remember(..) => Truth::DependsOn("the state of the budgets"),
        }
    }
}

const fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
        IpAddr::V4(_) => false,
    }
}

/// Returns whether a set has a key, or a range with it.
fn has(rules: &Ruleset, set: &str, key: &Key) -> bool {
    // A selector without members has no set.
    let Some(set) = rules.sets.get(set) else {
        return false;
    };
    match (set.kind, key) {
        (SetKind::Nets(_), Key::Address(address)) => {
            let mut keys = set.elements.keys();
            keys.any(|key| matches!(key, Key::Net(net) if net.contains(address)))
        }
        (SetKind::Ports, Key::Ports(port, _)) => {
            let mut keys = set.elements.keys();
            keys.any(
                |key| matches!(key, Key::Ports(first, last) if (*first..=*last).contains(port)),
            )
        }
        _ => set.elements.contains_key(key),
    }
}
