//! The ruleset in the words of `nft list table`, for people and for tests.

use std::fmt::{self, Display, Formatter};

use super::build::TABLE;
use super::ruleset::{
    Action, Chain, ConnectionStates, Hook, Key, Match, Rule, Ruleset, Set, SetKind, Side, Verdict,
};

/// The whole table as text that `nft -f` would take.
pub fn table_text(ruleset: &Ruleset) -> String {
    let sets = ruleset.sets.iter().map(|(name, set)| set_text(name, set));
    let chains = ruleset
        .chains
        .iter()
        .map(|(name, chain)| chain_text(name, chain));
    let blocks: Vec<String> = sets.chain(chains).collect();
    format!("table inet {TABLE} {{\n{}}}\n", blocks.join("\n"))
}

/// One rule as text.
pub fn rule_text(rule: &Rule) -> String {
    let mut words: Vec<String> = rule.matches.iter().map(ToString::to_string).collect();
    if rule.counter {
        words.push("counter".into());
    }
    words.push(rule.action.to_string());
    if let Some(comment) = &rule.comment {
        words.push(format!("comment \"{comment}\""));
    }
    words.join(" ")
}

fn set_text(name: &str, set: &Set) -> String {
    let word = match set.kind {
        SetKind::InterfaceVerdict => "map",
        _ => "set",
    };
    let mut text = format!("\t{word} {name} {{\n\t\ttype {}\n", set.kind);
    if !set.elements.is_empty() {
        let elements: Vec<String> = set
            .elements
            .iter()
            .map(|(key, verdict)| element_text(key, verdict.as_ref()))
            .collect();
        text.push_str(&format!("\t\telements = {{ {} }}\n", elements.join(", ")));
    }
    text.push_str("\t}\n");
    text
}

fn element_text(key: &Key, verdict: Option<&Verdict>) -> String {
    match verdict {
        Some(verdict) => format!("{key} : {verdict}"),
        None => key.to_string(),
    }
}

fn chain_text(name: &str, chain: &Chain) -> String {
    let mut text = format!("\tchain {name} {{\n");
    if let Some(hook) = chain.hook {
        text.push_str(&format!("\t\t{hook}\n"));
    }
    for rule in &chain.rules {
        text.push_str(&format!("\t\t{}\n", rule_text(rule)));
    }
    text.push_str("\t}\n");
    text
}

impl Display for Hook {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (hook, priority) = match self {
            Self::Prerouting => ("prerouting", "raw"),
            Self::Input => ("input", "filter"),
            Self::Forward => ("forward", "filter"),
            Self::Output => ("output", "filter"),
        };
        write!(
            f,
            "type filter hook {hook} priority {priority}; policy accept;"
        )
    }
}

impl Display for Side {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "iifname",
            Self::Output => "oifname",
        })
    }
}

impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::InterfacePrefix(side, prefix) => write!(f, "{side} \"{prefix}*\""),
            Self::InterfaceIn(side, set) => write!(f, "{side} @{set}"),
            Self::SourceIpv4In(set) => write!(f, "iifname . ip saddr @{set}"),
            Self::SourceIpv6In(set) => write!(f, "iifname . ip6 saddr @{set}"),
            Self::SourceLinkLocal => f.write_str("ip6 saddr fe80::/10"),
            Self::SourceUnspecified => f.write_str("ip6 saddr ::"),
            Self::DestinationLinkLocalMulticast => f.write_str("ip6 daddr ff02::/16"),
            Self::Icmpv6TypeIn(set) => write!(f, "icmpv6 type @{set}"),
            Self::Connection(ConnectionStates::EstablishedOrRelated) => {
                f.write_str("ct state established,related")
            }
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(verdict) => verdict.fmt(f),
            Self::Lookup(side, map) => write!(f, "{side} vmap @{map}"),
        }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
        }
    }
}

impl Display for SetKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interface => "ifname",
            Self::InterfaceIpv4 => "ifname . ipv4_addr",
            Self::InterfaceIpv6 => "ifname . ipv6_addr",
            Self::Icmpv6Type => "icmpv6_type",
            Self::InterfaceVerdict => "ifname : verdict",
        })
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => write!(f, "\"{name}\""),
            Self::InterfaceIpv4(name, address) => write!(f, "\"{name}\" . {address}"),
            Self::InterfaceIpv6(name, address) => write!(f, "\"{name}\" . {address}"),
            Self::Icmpv6Type(code) => match icmpv6_name(*code) {
                Some(name) => f.write_str(name),
                None => write!(f, "{code}"),
            },
        }
    }
}

const fn icmpv6_name(code: u8) -> Option<&'static str> {
    Some(match code {
        130 => "mld-listener-query",
        131 => "mld-listener-report",
        132 => "mld-listener-done",
        133 => "nd-router-solicit",
        135 => "nd-neighbor-solicit",
        136 => "nd-neighbor-advert",
        143 => "mld2-listener-report",
        _ => return None,
    })
}
