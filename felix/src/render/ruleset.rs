//! The typed ruleset: the content of the nftables tables, as plain comparable values.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

use super::assembly::Touched;
use super::decision::{Denial, Report};
use super::elements::Elements;
pub use super::hook::Hook;
use crate::work;

/// The bit of a packet's mark by which a host endpoint recognizes packets that a policy accepted before
/// address translation. Calico uses bits from the same upper half of the mark.
pub const ACCEPTED: u32 = 1 << 16;

/// The begin of the names of chains and sets in the table of the family `arp`. All others are in the
/// table of the family `inet`.
pub const IN_ARP: &str = "arp/";

/// Returns the name of a chain or set within its table.
pub fn local_name(name: &str) -> &str {
    name.strip_prefix(IN_ARP).unwrap_or(name)
}

/// The content of the tables: chains with their rules, sets and verdict maps with their elements.
/// Chains are shared and replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// Chains by name.
    pub chains: BTreeMap<String, Arc<Chain>>,
    /// Sets and maps by name.
    pub sets: BTreeMap<String, Set>,
}

impl Ruleset {
    /// Takes the touched parts from `wanted`, after which both are equal, and share their elements. The
    /// elements of `later` stay as they are.
    pub fn follow(&mut self, wanted: &Self, touched: &Touched, later: &Touched) {
        for name in &touched.chains {
            match wanted.chains.get(name) {
                Some(chain) => self.chains.insert(name.clone(), Arc::clone(chain)),
                None => self.chains.remove(name),
            };
        }
        for name in touched.sets.keys() {
            let Some(set) = wanted.sets.get(name) else {
                self.sets.remove(name);
                continue;
            };
            work::count(1);
            let old = self.sets.insert(name.clone(), set.clone());
            let old = old.filter(|old| old.kind == set.kind);
            let (Some(later), Some(old)) = (later.sets.get(name), old) else {
                continue;
            };
            let Some(set) = self.sets.get_mut(name) else {
                continue;
            };
            for key in later {
                match old.elements.get(key) {
                    Some(value) => set.elements.insert(key.clone(), value.clone()),
                    None => set.elements.remove(key),
                };
            }
        }
    }

    /// Returns the number of rules over all chains.
    pub fn rules(&self) -> usize {
        self.chains.values().map(|chain| chain.rules.len()).sum()
    }
}

/// A chain: rules in order, and its hook if it is a base chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Where packets enter it; `None` for a chain that is only jumped to.
    pub hook: Option<Hook>,
    /// Its rules, first match first.
    pub rules: Vec<Rule>,
}

/// One rule: its action is performed if all its matches hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Conditions, all of which must hold.
    pub matches: Vec<Match>,
    /// Counts the packets that reach its action.
    pub counter: bool,
    /// Reports the packets that reach its action.
    pub report: Option<Box<Report>>,
    /// The action.
    pub action: Action,
    /// Shown by `nft list`.
    pub comment: Option<String>,
}

/// An interface of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The input interface.
    Input,
    /// The output interface.
    Output,
}

impl Side {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Input, Self::Output];
}

/// One condition on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The interface's name has this prefix (`iifname "cali*"`).
    InterfacePrefix(Side, String),
    /// The interface has this name.
    Interface(Side, String),
    /// The interface's name is in a set.
    InterfaceIn(Side, String),
    /// The pair of input interface and IPv4 source address is in a set.
    SourceIpv4In(String),
    /// The pair of input interface and IPv6 source address is in a set.
    SourceIpv6In(String),
    /// The IPv6 source address is link-local (`fe80::/10`, RFC 4291 §2.5.6).
    SourceLinkLocal,
    /// The IPv6 source address is `::` (RFC 4291 §2.5.2).
    SourceUnspecified,
    /// The IPv6 destination address is link-local multicast (`ff02::/16`, RFC 4291 §2.7).
    DestinationLinkLocalMulticast,
    /// The IPv6 destination address is link-local (`fe80::/10`).
    DestinationLinkLocal,
    /// The destination address is none of the host on the input interface.
    DestinationElsewhere,
    /// It is ARP, and the pair of input interface and sender address is in a set.
    ArpSenderIn(String),
    /// It is ARP, and the sender address is this one.
    ArpSender(Ipv4Addr),
    /// It is a fragment of a packet of the family.
    Fragment(Family),
    /// The next hop of a packet of the family is in a set: the gateway of its route, or its destination.
    NextHopIn(Family, String),
    /// The pair of input interface and next hop is in a set.
    InterfaceNextHopIn(Family, String),
    /// The packet exceeds the limit of its input interface. The set has the state of each interface.
    OverLimit(Limit, String),
    /// All packets but one in this number, chosen at random.
    Unsampled(u32),
    /// The input interface is added to a set, or is there. It does not hold if the set is full.
    Mark(String),
    /// The pair of input interface and this address is added to a set, or is there. It does not hold if
    /// the set is full.
    Remember(Seen, Family, String),
    /// The packet is ICMPv6 and its type is in a set.
    Icmpv6TypeIn(String),
    /// The connection tracking state is one of these.
    Connection(ConnectionStates),
    /// The pair of input interface and source address of its connection, in this direction, is in a set.
    TupleSourceIn(TupleDirection, Family, String),
    /// It is in the reply direction of its connection.
    ReplyDirection,
    /// The mark of its connection has this bit.
    ConnectionMark(u32),
    /// Of the TCP flags SYN, ACK, RST and FIN, it has others than SYN alone. The packet is TCP.
    NoSyn,
    /// The destination of its connection was translated.
    DestinationTranslated,
    /// The kind of the input interface (`vxlan`, `ipip`) is in a set; interfaces of hardware have
    /// none.
    InputKindIn(String),
    /// No route to the source address leads to the input interface.
    SourceElsewhere,
    /// The source address is one of the host itself.
    SourceLocal,
    /// The IP version.
    Family(Family),
    /// The protocol is this one, or is not.
    Protocol(u8, Is),
    /// An address is in a range, or is not; for packets of the range's family.
    InNet(End, IpNet, Is),
    /// An address is in a set, or is not; for packets of the set's family.
    InSet(End, Family, String, Is),
    /// The protocol is this one, and a port of it is this one, or is not.
    Port(End, u8, u16, Is),
    /// The protocol is this one, and a port of it is in a set, or is not.
    PortIn(End, u8, String, Is),
    /// It is TCP, and the pair of destination address and port is in a set of the family.
    ServiceIn(Family, String),
    /// The triple of an address, the protocol and the port at the same end is in a set of the family,
    /// or is not.
    EndpointPortIn(End, Family, String, Is),
    /// It is ICMP of the family, and of this type, or is not.
    IcmpType(Family, u8, Is),
    /// It is ICMP of the family, and of this code, or is not.
    IcmpCode(Family, u8, Is),
    /// The packets that reach this condition are within this rate, or are beyond it.
    Rate(Rate, Is),
    /// The open connections with packets that reach this condition are more than this number.
    ConnectionsOver(u32),
    /// A policy accepted the packet before its destination was translated ([`Action::AcceptMarked`],
    /// [`Action::AcceptUntracked`]).
    Marked,
}

/// A rate of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// The number of packets.
    pub packets: u32,
    /// In this time.
    pub per: Period,
    /// The number of packets that may arrive at once.
    pub burst: u32,
}

/// A unit of time of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl Period {
    /// All.
    pub const ALL: [Self; 4] = [Self::Second, Self::Minute, Self::Hour, Self::Day];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// Returns its length in seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 24 * 3600,
        }
    }
}

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns the family of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns its protocol number of ICMP.
    pub const fn icmp(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 58,
        }
    }
}

/// One end of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// Whether a condition is negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Is {
    /// It must hold.
    Yes,
    /// It must not hold.
    Not,
}

/// Connection tracking states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionStates {
    /// `established` alone: part of a connection that was accepted before.
    Established,
    /// `established` or `related`: also new connections and errors that belong to an accepted
    /// connection.
    EstablishedOrRelated,
    /// `related` alone: a new connection or an error that belongs to another connection.
    Related,
    /// `new`: no packet of the other direction was seen yet.
    New,
    /// `invalid`: part of no connection.
    Invalid,
    /// `new`, `established` or `untracked`: ICMP that is no error. Neighbor discovery is untracked.
    NoError,
}

/// A limit of packets of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Packets in a second, and as many at once.
    PerSecond(u32),
    /// Packets in a minute, and as many at once.
    PerMinute(u32),
    /// Connections in the table of connection tracking.
    Connections(u32),
}

/// An address of a packet that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// The source.
    Source,
    /// The next hop.
    NextHop,
}

/// A direction of a connection, which has a source and a destination in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TupleDirection {
    /// That of its first packet: the source is the client, before any translation.
    Original,
    /// That of the answers: the source is the server, after the translation of the destination.
    Reply,
}

/// The action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A fixed verdict.
    Verdict(Verdict),
    /// The verdict in a map for the interface; no verdict without an element.
    Lookup(Side, String),
    /// Write a line with this prefix to the kernel's log, with its level `info`, and continue.
    Log(String),
    /// Accept, and set [`ACCEPTED`] in the mark, so that later hooks know it.
    AcceptMarked,
    /// Clear [`ACCEPTED`] in the mark, and continue.
    ClearMark,
    /// Accept, set [`ACCEPTED`] in the mark, and leave the packet out of connection tracking.
    AcceptUntracked,
    /// Drop a packet and answer with an ICMP error: port unreachable.
    Reject,
    /// Drop a TCP packet and reset its connection.
    ResetTcp,
    /// Set the DSCP of a packet of the family, and continue.
    Dscp(Family, u8),
    /// Translate the destination to this address and port.
    DestinationTo(Ipv4Addr, u16),
    /// Translate the destination to the address in a map for the destination.
    DestinationBy(Family, String),
    /// Translate the source to the address in a map for source and destination.
    SourceBy(Family, String),
    /// Translate the source to the address of the outgoing interface. With ports, a match must
    /// select a protocol with ports.
    Masquerade(Option<(u16, u16)>),
    /// Translate the source to this address, and optionally one of these ports.
    SourceTo(Ipv4Addr, Option<(u16, u16)>),
}

/// A verdict on a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// End the evaluation of this table's chains at this hook.
    Accept,
    /// Drop the packet.
    Drop,
    /// Return to the calling chain; in a base chain: accept.
    Return,
    /// Evaluate another chain and return.
    Jump(String),
    /// Evaluate another chain and return to the caller of this one.
    Goto(String),
}

/// The value of a map's element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A verdict.
    Verdict(Verdict),
    /// An address.
    Address(IpAddr),
}

/// A named set, or map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// The types of its keys and values.
    pub kind: SetKind,
    /// Its elements; the value is present in maps only.
    pub elements: Elements<Key, Value>,
}

impl Set {
    /// Returns a set of keys.
    pub fn of(kind: SetKind, keys: impl IntoIterator<Item = Key>) -> Self {
        Self {
            kind,
            elements: keys.into_iter().map(|key| (key, None)).collect(),
        }
    }

    /// Returns whether it is a set without values.
    pub fn is_plain(&self) -> bool {
        self.elements.values().all(Option::is_none)
    }

    /// Returns the keys alone.
    pub fn keys(&self) -> BTreeSet<&Key> {
        self.elements.keys().collect()
    }
}

/// The types of sets in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetKind {
    /// Interface names.
    Interface,
    /// Interface names with IPv4 addresses.
    InterfaceIpv4,
    /// Interface names with IPv6 addresses.
    InterfaceIpv6,
    /// ICMPv6 types.
    Icmpv6Type,
    /// A map of interface names to verdicts.
    InterfaceVerdict,
    /// Addresses.
    Address(Family),
    /// Ranges of addresses that do not overlap.
    Nets(Family),
    /// Ranges of ports that do not overlap.
    Ports,
    /// Addresses with ports.
    Service(Family),
    /// Addresses with protocols and ports.
    EndpointPort(Family),
    /// A map of addresses to addresses.
    AddressMap(Family),
    /// A map of pairs of addresses to addresses.
    AddressPairMap(Family),
    /// The state of a rate for each interface, which rules add.
    Rates,
    /// The connections of each interface, which rules add.
    Connections,
    /// Interfaces over a limit, which rules add for so many milliseconds.
    Marked(u64),
    /// Interface names with addresses, which rules add for a minute.
    Seen(Family),
}

impl SetKind {
    /// Returns whether values of its elements may name chains.
    pub const fn refers_to_chains(self) -> bool {
        matches!(self, Self::InterfaceVerdict)
    }

    /// Returns whether its elements are added by rules, when packets meet them.
    pub const fn is_dynamic(self) -> bool {
        let of_interface = matches!(self, Self::Rates | Self::Connections | Self::Marked(_));
        of_interface || matches!(self, Self::Seen(_))
    }
}

/// A key of a set.
///
/// There may be a million of them, so rare ones are boxed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An interface name.
    Interface(Box<str>),
    /// An interface name and an IPv4 address.
    InterfaceIpv4(Box<str>, Ipv4Addr),
    /// An interface name and an IPv6 address.
    InterfaceIpv6(Box<(Box<str>, Ipv6Addr)>),
    /// An ICMPv6 type.
    Icmpv6Type(u8),
    /// An address.
    Address(IpAddr),
    /// A range of addresses.
    Net(IpNet),
    /// A range of ports, both ends included.
    Ports(u16, u16),
    /// An address with a port.
    Service(IpAddr, u16),
    /// An address with a protocol and a port.
    EndpointPort(IpAddr, u8, u16),
    /// A source and a destination address, of one family.
    AddressPair(Box<(IpAddr, IpAddr)>),
}

impl Key {
    /// Returns an interface name.
    pub fn interface(name: &str) -> Self {
        Self::Interface(name.into())
    }
}

impl Denial {
    /// Returns the action.
    pub(super) const fn action(self) -> Action {
        match self {
            Self::Drop => Action::Verdict(Verdict::Drop),
            Self::Reject => Action::Reject,
        }
    }

    /// Sets the action of all rules that deny.
    pub(super) fn apply(self, rules: &mut [Rule]) {
        for rule in rules {
            if matches!(rule.action, Action::Verdict(Verdict::Drop) | Action::Reject) {
                rule.action = self.action();
            }
        }
    }
}
