//! The typed ruleset: what one nftables table holds, as plain comparable values.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

use super::assembly::Touched;

/// Everything inside the one table: chains with their rules, sets and verdict maps with their
/// elements. Chains are shared: they are replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// Chains by name.
    pub chains: BTreeMap<String, Arc<Chain>>,
    /// Sets and maps by name.
    pub sets: BTreeMap<String, Set>,
}

impl Ruleset {
    /// Takes what was touched from `wanted`, which is then the same in all.
    pub fn follow(&mut self, wanted: &Self, touched: &Touched) {
        for name in &touched.chains {
            match wanted.chains.get(name) {
                Some(chain) => self.chains.insert(name.clone(), Arc::clone(chain)),
                None => self.chains.remove(name),
            };
        }
        for (name, keys) in &touched.sets {
            let Some(set) = wanted.sets.get(name) else {
                self.sets.remove(name);
                continue;
            };
            let Some(held) = self.sets.get_mut(name).filter(|held| held.kind == set.kind) else {
                self.sets.insert(name.clone(), set.clone());
                continue;
            };
            for key in keys {
                match set.elements.get(key) {
                    Some(value) => held.elements.insert(key.clone(), value.clone()).map(drop),
                    None => held.elements.remove(key).map(drop),
                };
            }
        }
    }

    /// Number of rules over all chains.
    pub fn rules(&self) -> usize {
        self.chains.values().map(|chain| chain.rules.len()).sum()
    }
}

/// A chain: rules in order, and the hook it hangs on if it is a base chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Where packets enter it; `None` for a chain that is only jumped to.
    pub hook: Option<Hook>,
    /// Its rules, first match first.
    pub rules: Vec<Rule>,
}

/// Where a base chain hangs. The policy of every base chain is `accept`: what is not ours passes.
/// A packet that one base chain accepts goes on to the next at the same hook; so what a workload
/// may send, what another may be sent, and what its host takes are asked one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// Before routing and before connection tracking.
    Prerouting,
    /// The same, after the source address was checked: what no workload may send.
    Guard,
    /// The same for packets to the host itself, after their destination was translated.
    GuardInput,
    /// The same for packets through the host.
    GuardForward,
    /// Before routing: where the destination of a new connection is translated.
    TranslateDestination,
    /// The same for connections of the host itself.
    TranslateOwnDestination,
    /// After routing: where the source of a new connection is translated.
    TranslateSource,
    /// Packets to the host itself: what the workload may send.
    Input,
    /// Packets to the host itself: what the host takes.
    InputToHost,
    /// Packets through the host: what the workload may send.
    Forward,
    /// Packets through the host: what the workload may be sent.
    ForwardTo,
    /// Packets from the host itself.
    Output,
}

impl Hook {
    /// The hook's priority among all chains at the hook.
    pub const fn priority(self) -> i32 {
        match self {
            Self::Prerouting => -300,
            Self::Guard => -299,
            Self::TranslateDestination | Self::TranslateOwnDestination => -100,
            Self::TranslateSource => 100,
            Self::GuardInput | Self::GuardForward => -1,
            Self::Input | Self::Forward | Self::Output => 0,
            Self::InputToHost | Self::ForwardTo => 1,
        }
    }

    /// Whether addresses are translated there.
    pub const fn translates(self) -> bool {
        matches!(
            self,
            Self::TranslateDestination | Self::TranslateOwnDestination | Self::TranslateSource
        )
    }
}

/// One rule: it acts if all its matches hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Conditions, all of them needed.
    pub matches: Vec<Match>,
    /// Counts the packets that reach its action.
    pub counter: bool,
    /// What happens then.
    pub action: Action,
    /// Shown by `nft list`.
    pub comment: Option<String>,
}

/// Which interface of a packet is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The one it came in by.
    Input,
    /// The one it leaves by.
    Output,
}

/// One condition on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The interface's name begins so (`iifname "cali*"`).
    InterfacePrefix(Side, String),
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
    /// The packet is ICMPv6 and its type is in a set.
    Icmpv6TypeIn(String),
    /// The connection tracking state is one of these.
    Connection(ConnectionStates),
    /// It goes against the direction in which its connection was opened.
    ReplyDirection,
    /// The source address is one of the host itself.
    SourceLocal,
    /// The IP version.
    Family(Family),
    /// The protocol is this one, or is not.
    Protocol(u8, Is),
    /// An address is in a range, or is not; of a packet of the range's family.
    InNet(End, IpNet, Is),
    /// An address is in a set, or is not; of a packet of the set's family.
    InSet(End, Family, String, Is),
    /// The protocol is this one, and a port of it is this one, or is not.
    Port(End, u8, u16, Is),
    /// The protocol is this one, and a port of it is in a set, or is not.
    PortIn(End, u8, String, Is),
    /// It is TCP, and the pair of destination address and port is in a set of the family.
    ServiceIn(Family, String),
    /// It is ICMP of the family, and of this type, or is not.
    IcmpType(Family, u8, Is),
    /// It is ICMP of the family, and of this code, or is not.
    IcmpCode(Family, u8, Is),
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

    /// That of an address.
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The number of its ICMP.
    pub const fn icmp(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 58,
        }
    }
}

/// One end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Where it comes from.
    Source,
    /// Where it goes to.
    Destination,
}

/// Whether a condition is to hold or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Is {
    /// It is to hold.
    Yes,
    /// It is not.
    Not,
}

/// Connection tracking states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionStates {
    /// `established` alone: part of a connection that was let through before.
    Established,
    /// `established` or `related`: an answer to what was let through before.
    EstablishedOrRelated,
    /// `invalid`: part of no connection.
    Invalid,
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A fixed verdict.
    Verdict(Verdict),
    /// The verdict that a map holds for the interface; no verdict if it holds none.
    Lookup(Side, String),
    /// Writes a line with this prefix into the kernel's log, and goes on.
    Log(String),
    /// Sends the connection to this address and port instead.
    DestinationTo(Ipv4Addr, u16),
    /// Sends the connection to the address that a map holds for its destination.
    DestinationBy(Family, String),
    /// Makes the connection come from the address that a map holds for its source and destination.
    SourceBy(Family, String),
    /// Makes the connection come from the host: from the address of the interface that it leaves
    /// by. With ports, the protocol must be known to have them.
    Masquerade(Option<(u16, u16)>),
    /// Makes the connection come from this address, and perhaps one of these ports.
    SourceTo(Ipv4Addr, Option<(u16, u16)>),
}

/// The fate of a packet, as far as a rule can tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Leaves this table's chains at this hook.
    Accept,
    /// Is thrown away.
    Drop,
    /// Goes back to the chain that jumped here; in a base chain: accepted.
    Return,
    /// Walks another chain and comes back.
    Jump(String),
    /// Walks another chain and comes back to where this one was jumped to from.
    Goto(String),
}

/// What a map holds for a key.
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
    /// What its keys are made of and what it maps to.
    pub kind: SetKind,
    /// Its elements; the value is present in maps only.
    pub elements: BTreeMap<Key, Option<Value>>,
}

impl Set {
    /// A set of keys.
    pub fn of(kind: SetKind, keys: impl IntoIterator<Item = Key>) -> Self {
        Self {
            kind,
            elements: keys.into_iter().map(|key| (key, None)).collect(),
        }
    }

    /// Whether its keys stand for no values.
    pub fn is_plain(&self) -> bool {
        self.elements.values().all(Option::is_none)
    }

    /// The keys alone.
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
    /// A map of addresses to addresses.
    AddressMap(Family),
    /// A map of pairs of addresses to addresses.
    AddressPairMap(Family),
}

/// A key of a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An interface name.
    Interface(String),
    /// An interface name and an IPv4 address.
    InterfaceIpv4(String, Ipv4Addr),
    /// An interface name and an IPv6 address.
    InterfaceIpv6(String, Ipv6Addr),
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
    /// A source and a destination address, of one family.
    AddressPair(IpAddr, IpAddr),
}
