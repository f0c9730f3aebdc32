//! The typed ruleset: what one nftables table holds, as plain comparable values.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Everything inside the one table: chains with their rules, sets and verdict maps with their
/// elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// Chains by name.
    pub chains: BTreeMap<String, Chain>,
    /// Sets and maps by name.
    pub sets: BTreeMap<String, Set>,
}

impl Ruleset {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// Before routing and before connection tracking (priority −300).
    Prerouting,
    /// Packets to the host itself (priority 0).
    Input,
    /// Packets through the host (priority 0).
    Forward,
    /// Packets from the host itself (priority 0).
    Output,
}

impl Hook {
    /// The hook's priority among all chains at the hook.
    pub const fn priority(self) -> i32 {
        match self {
            Self::Prerouting => -300,
            Self::Input | Self::Forward | Self::Output => 0,
        }
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
}

/// Connection tracking states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionStates {
    /// `established` or `related`: an answer to what was let through before.
    EstablishedOrRelated,
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A fixed verdict.
    Verdict(Verdict),
    /// The verdict that a map holds for the interface; no verdict if it holds none.
    Lookup(Side, String),
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

/// A named set, or map to verdicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// What its keys are made of and whether it maps to verdicts.
    pub kind: SetKind,
    /// Its elements; the verdict is present in maps only.
    pub elements: BTreeMap<Key, Option<Verdict>>,
}

impl Set {
    /// A set of keys.
    pub fn of(kind: SetKind, keys: impl IntoIterator<Item = Key>) -> Self {
        Self {
            kind,
            elements: keys.into_iter().map(|key| (key, None)).collect(),
        }
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
}
