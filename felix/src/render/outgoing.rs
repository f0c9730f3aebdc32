//! Source translation: traffic from a pool with `natOutgoing` to a destination outside all pools
//! gets an address of the host, because the outside has no route back to a workload. Between pools
//! sources stay unchanged.
//!
//! Disabled pools count too: their addresses may still be in use.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::IpNet;

use super::build::counted;
use super::guard::NODES;
use super::ruleset::{Action, End, Family, Is, Key, Match, Rule, Side, Verdict};

/// The sets of the ranges with source translation, by family, with Calico's names.
pub(super) const FROM: [&str; 2] = ["cali40masq-ipam-pools", "cali60masq-ipam-pools"];
/// The sets of all pools' ranges.
pub(super) const INSIDE: [&str; 2] = ["cali40all-ipam-pools", "cali60all-ipam-pools"];
const TCP: u8 = 6;
const UDP: u8 = 17;
const COMMENT: &str = "leaves the pools";

/// The pools of the fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// The ranges of all.
    pub all: Vec<IpNet>,
    /// The ranges with source translation.
    pub nat_outgoing: Vec<IpNet>,
}

/// Source translation for destinations outside all pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outgoing {
    /// The source address; `None`, and for IPv6: that of the outgoing interface.
    pub address: Option<Ipv4Addr>,
    /// The first and the last source port for TCP and UDP; `None`: any port.
    pub ports: Option<(u16, u16)>,
    /// Packets to nodes are not translated either.
    pub spares_nodes: bool,
    /// The only outgoing interfaces of translated packets; `None`: all.
    pub through: Option<Through>,
}

/// Interfaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Through {
    /// The interface with this name.
    Named(String),
    /// The interfaces with names that begin so.
    Prefix(String),
}

impl Through {
    fn condition(&self) -> Match {
        match self {
            Self::Named(name) => Match::Interface(Side::Output, name.clone()),
            Self::Prefix(prefix) => Match::InterfacePrefix(Side::Output, prefix.clone()),
        }
    }
}

/// Returns the sets, each with its ranges.
pub(super) fn sets(pools: &Pools) -> Vec<(&'static str, Family, BTreeSet<Key>)> {
    let mut sets = Vec::new();
    for ((family, from), inside) in Family::ALL.into_iter().zip(FROM).zip(INSIDE) {
        sets.extend([
            (from, family, ranges(&pools.nat_outgoing, family)),
            (inside, family, ranges(&pools.all, family)),
        ]);
    }
    sets
}

/// Returns the ranges of a family without overlaps, which the kernel would reject.
pub(super) fn ranges(given: &[IpNet], family: Family) -> BTreeSet<Key> {
    let own = given.iter().filter(|net| Family::of(net.addr()) == family);
    let own: Vec<IpNet> = own.map(IpNet::trunc).collect();
    IpNet::aggregate(&own).into_iter().map(Key::Net).collect()
}

/// Returns the rules, for the families with ranges to translate.
pub(super) fn rules(outgoing: &Outgoing, used: [bool; 2]) -> Vec<Rule> {
    let mut rules = Vec::new();
    let families = Family::ALL.into_iter().zip(FROM).zip(INSIDE).zip(NODES);
    let families = families.zip(used).filter(|(_, used)| *used);
    for ((((family, from), inside), nodes), _) in families {
        let leaves = |protocol: Option<u8>| {
            let mut matches = vec![
                Match::InSet(End::Source, family, from.into(), Is::Yes),
                Match::InSet(End::Destination, family, inside.into(), Is::Not),
            ];
            let nodes = Match::InSet(End::Destination, family, nodes.into(), Is::Not);
            matches.extend(outgoing.spares_nodes.then_some(nodes));
            matches.extend(outgoing.through.as_ref().map(Through::condition));
            matches.extend(protocol.map(|protocol| Match::Protocol(protocol, Is::Yes)));
            matches
        };
        let rule = |protocol, ports| Rule {
            action: match outgoing.address.filter(|_| family == Family::V4) {
                Some(address) => Action::SourceTo(address, ports),
                None => Action::Masquerade(ports),
            },
            ..counted(leaves(protocol), Verdict::Accept, COMMENT)
        };
        if outgoing.ports.is_some() {
            let with_ports = [TCP, UDP].map(|protocol| rule(Some(protocol), outgoing.ports));
            rules.extend(with_ports);
        }
        rules.push(rule(None, None));
    }
    rules
}
