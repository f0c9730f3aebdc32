//! The ruleset in the syntax of `nft list table`, for operators and for tests.

use std::fmt::{self, Display, Formatter};

use super::build::TABLE;
use super::decision::Report;
use super::ruleset::{
    ACCEPTED, Action, Chain, ConnectionStates, End, Family, Hook, Is, Key, Limit, Match, Rule,
    Ruleset, Seen, Set, SetKind, Side, TupleDirection, Value, Verdict, local_name,
};
use crate::limits::{METERS_MAX, SEEN_MAX, SEEN_S};

/// The burst of a rate that nft does not write.
const LIMIT_BURST: u32 = 5;

/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;

/// Returns the tables as text that `nft -f` would take.
pub fn table_text(ruleset: &Ruleset) -> String {
    [false, true]
        .map(|is_arp| one_table(ruleset, is_arp))
        .concat()
}

fn one_table(ruleset: &Ruleset, is_arp: bool) -> String {
    let is_in = |name: &str| (local_name(name) != name) == is_arp;
    let sets = ruleset.sets.iter().filter(|(name, _)| is_in(name));
    let sets = sets.map(|(name, set)| set_text(local_name(name), set));
    let chains = ruleset.chains.iter().filter(|(name, _)| is_in(name));
    let chains = chains.map(|(name, chain)| chain_text(local_name(name), chain));
    let blocks: Vec<String> = sets.chain(chains).collect();
    let family = if is_arp { "arp" } else { "inet" };
    format!("table {family} {TABLE} {{\n{}}}\n", blocks.join("\n"))
}

/// Returns one rule as text.
pub fn rule_text(rule: &Rule) -> String {
    let mut words: Vec<String> = rule.matches.iter().map(ToString::to_string).collect();
    if rule.counter {
        words.push("counter".into());
    }
    if let Some(Report { group, prefix }) = rule.report.as_deref() {
        words.push(format!("log prefix \"{prefix}\" group {group}"));
    }
    words.push(rule.action.to_string());
    if let Some(comment) = &rule.comment {
        words.push(format!("comment \"{comment}\""));
    }
    words.join(" ")
}

fn set_text(name: &str, set: &Set) -> String {
    let word = match set.kind {
        SetKind::InterfaceVerdict | SetKind::AddressMap(_) | SetKind::AddressPairMap(_) => "map",
        _ => "set",
    };
    let mut text = format!("\t{word} {name} {{\n\t\ttype {}\n", set.kind);
    let minutes = SEEN_S / 60;
    text.push_str(&match set.kind {
        SetKind::Nets(_) | SetKind::Ports => "\t\tflags interval\n".to_owned(),
        SetKind::Connections => format!("\t\tsize {METERS_MAX}\n\t\tflags dynamic\n"),
        SetKind::Marked(ms) => {
            let timeout = match ms {
                HOUR_MS => "1h".to_owned(),
                _ => format!("{ms}ms"),
            };
            format!("\t\tsize {METERS_MAX}\n\t\tflags dynamic,timeout\n\t\ttimeout {timeout}\n")
        }
        SetKind::Rates => {
            format!("\t\tsize {METERS_MAX}\n\t\tflags dynamic,timeout\n\t\ttimeout 1h\n")
        }
        SetKind::Seen(_) => {
            format!("\t\tsize {SEEN_MAX}\n\t\tflags dynamic,timeout\n\t\ttimeout {minutes}m\n")
        }
        _ => String::new(),
    });
    if !set.elements.is_empty() {
        let elements: Vec<String> = set
            .elements
            .iter()
            .map(|(key, value)| element_text(key, value.as_ref()))
            .collect();
        text.push_str(&format!("\t\telements = {{ {} }}\n", elements.join(", ")));
    }
    text.push_str("\t}\n");
    text
}

fn element_text(key: &Key, value: Option<&Value>) -> String {
    match value {
        Some(Value::Verdict(verdict)) => format!("{key} : {verdict}"),
        Some(Value::Address(address)) => format!("{key} : {address}"),
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
            Self::Arp => ("input", "filter"),
            Self::Fragments => ("prerouting", "-450"),
            Self::BudgetForward => ("forward", "filter + 2"),
            Self::BudgetInput => ("input", "filter + 2"),
            Self::Prerouting | Self::HostUntracked => ("prerouting", "raw"),
            Self::HostUntranslated => ("prerouting", "mangle"),
            Self::HostUntrackedOutput => ("output", "raw"),
            Self::Guard => ("prerouting", "raw + 1"),
            Self::GuardInput => ("input", "filter - 1"),
            Self::GuardForward => ("forward", "filter - 1"),
            Self::CutForward => ("forward", "filter - 2"),
            Self::CutInput => ("input", "filter - 2"),
            Self::CutOutput => ("output", "filter - 2"),
            Self::TranslateDestination => ("prerouting", "dstnat"),
            Self::TranslateOwnDestination => ("output", "dstnat"),
            Self::TranslateSource => ("postrouting", "srcnat"),
            Self::Input | Self::HostInput => ("input", "filter"),
            Self::InputToHost => ("input", "filter + 1"),
            Self::MarkForward => ("forward", "mangle"),
            Self::Forward | Self::HostForward => ("forward", "filter"),
            Self::ForwardTo | Self::HostForwardTo => ("forward", "filter + 1"),
            Self::ForwardLast => ("forward", "filter + 2"),
            Self::Output | Self::HostOutput => ("output", "filter"),
        };
        let kind = if self.translates() { "nat" } else { "filter" };
        // nft has a name for this number at one hook only.
        let priority = match self {
            Self::TranslateOwnDestination => "-100",
            _ => priority,
        };
        write!(
            f,
            "type {kind} hook {hook} priority {priority}; policy accept;"
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

impl Display for Family {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        })
    }
}

impl Display for End {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "s",
            Self::Destination => "d",
        })
    }
}

impl Display for Is {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yes => "",
            Self::Not => "!= ",
        })
    }
}

impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::InterfacePrefix(side, prefix) => write!(f, "{side} \"{prefix}*\""),
            Self::Interface(side, name) => write!(f, "{side} \"{name}\""),
            Self::InterfaceIn(side, set) => write!(f, "{side} @{}", local_name(set)),
            Self::SourceIpv4In(set) => write!(f, "iifname . ip saddr @{set}"),
            Self::SourceIpv6In(set) => write!(f, "iifname . ip6 saddr @{set}"),
            Self::SourceLinkLocal => f.write_str("ip6 saddr fe80::/10"),
            Self::SourceUnspecified => f.write_str("ip6 saddr ::"),
            Self::DestinationLinkLocalMulticast => f.write_str("ip6 daddr ff02::/16"),
            Self::DestinationLinkLocal => f.write_str("ip6 daddr fe80::/10"),
            Self::DestinationElsewhere => f.write_str("fib daddr . iif type != local"),
            Self::ArpSenderIn(set) => write!(f, "iifname . arp saddr ip @{}", local_name(set)),
            Self::ArpSender(address) => write!(f, "arp saddr ip {address}"),
            // The bit MF and the offset.
            Self::Fragment(Family::V4) => f.write_str("ip frag-off & 16383 != 0"),
            Self::Fragment(Family::V6) => f.write_str("exthdr frag exists"),
            Self::NextHopIn(family, set) => write!(f, "rt {family} nexthop @{set}"),
            Self::InterfaceNextHopIn(family, set) => {
                write!(f, "iifname . rt {family} nexthop @{set}")
            }
            Self::OverLimit(limit, set) => {
                write!(f, "update @{} {{ iifname {limit} }}", local_name(set))
            }
            Self::Unsampled(of) => write!(f, "numgen random mod {of} != 0"),
            Self::Mark(set) => write!(f, "update @{set} {{ iifname }}"),
            Self::Remember(Seen::Source, family, set) => {
                write!(f, "add @{set} {{ iifname . {family} saddr }}")
            }
            Self::Remember(Seen::NextHop, family, set) => {
                write!(f, "add @{set} {{ iifname . rt {family} nexthop }}")
            }
            Self::Icmpv6TypeIn(set) => write!(f, "icmpv6 type @{set}"),
            Self::Connection(ConnectionStates::EstablishedOrRelated) => {
                f.write_str("ct state established,related")
            }
            Self::Connection(ConnectionStates::Established) => f.write_str("ct state established"),
            Self::Connection(ConnectionStates::New) => f.write_str("ct state new"),
            Self::Connection(ConnectionStates::Related) => f.write_str("ct state related"),
            Self::Connection(ConnectionStates::NoError) => {
                f.write_str("ct state established,new,untracked")
            }
            Self::TupleSourceIn(direction, family, set) => {
                let direction = match direction {
                    TupleDirection::Original => "original",
                    TupleDirection::Reply => "reply",
                };
                let family = match family {
                    Family::V4 => "ip",
                    Family::V6 => "ip6",
                };
                write!(f, "iifname . ct {direction} {family} saddr @{set}")
            }
            Self::Connection(ConnectionStates::Invalid) => f.write_str("ct state invalid"),
            Self::Marked => write!(f, "meta mark & {ACCEPTED:#010x} == {ACCEPTED:#010x}"),
            Self::ConnectionsOver(count) => write!(f, "ct count over {count}"),
            Self::ReplyDirection => f.write_str("ct direction reply"),
            Self::ConnectionMark(mark) => write!(f, "ct mark & {mark:#010x} == {mark:#010x}"),
            Self::NoSyn => f.write_str("tcp flags & (fin | syn | rst | ack) != syn"),
            Self::DestinationTranslated => f.write_str("ct status dnat"),
            Self::InputKindIn(set) => write!(f, "meta iifkind @{set}"),
            Self::SourceElsewhere => f.write_str("fib saddr . iif oif missing"),
            Self::SourceLocal => f.write_str("fib saddr type local"),
            Self::Family(Family::V4) => f.write_str("meta nfproto ipv4"),
            Self::Family(Family::V6) => f.write_str("meta nfproto ipv6"),
            Self::Protocol(protocol, is) => match protocol_name(*protocol) {
                Some(name) => write!(f, "meta l4proto {is}{name}"),
                None => write!(f, "meta l4proto {is}{protocol}"),
            },
            Self::InNet(end, net, is) => {
                let family = Family::of(net.addr());
                write!(f, "{family} {end}addr {is}{}", Key::Net(*net))
            }
            Self::InSet(end, family, set, is) => write!(f, "{family} {end}addr {is}@{set}"),
            Self::Port(end, protocol, port, is) => {
                let name = protocol_name(*protocol).unwrap_or("th");
                write!(f, "{name} {end}port {is}{port}")
            }
            Self::PortIn(end, protocol, set, is) => {
                let name = protocol_name(*protocol).unwrap_or("th");
                write!(f, "{name} {end}port {is}@{set}")
            }
            Self::ServiceIn(family, set) => write!(f, "{family} daddr . tcp dport @{set}"),
            Self::EndpointPortIn(end, family, set, is) => {
                write!(
                    f,
                    "{family} {end}addr . meta l4proto . th {end}port {is}@{set}"
                )
            }
            Self::IcmpType(Family::V4, kind, is) => write!(f, "icmp type {is}{kind}"),
            Self::IcmpType(Family::V6, kind, is) => {
                write!(f, "icmpv6 type {is}{}", Key::Icmpv6Type(*kind))
            }
            Self::IcmpCode(Family::V4, code, is) => write!(f, "icmp code {is}{code}"),
            Self::IcmpCode(Family::V6, code, is) => write!(f, "icmpv6 code {is}{code}"),
            Self::Rate(rate, is) => {
                let over = match is {
                    Is::Yes => "",
                    Is::Not => "over ",
                };
                write!(f, "limit rate {over}{}/{}", rate.packets, rate.per.name())?;
                match rate.burst {
                    LIMIT_BURST => Ok(()),
                    burst => write!(f, " burst {burst} packets"),
                }
            }
        }
    }
}

impl Display for Limit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(packets) => {
                write!(
                    f,
                    "limit rate over {packets}/second burst {packets} packets"
                )
            }
            Self::PerMinute(packets) => {
                write!(
                    f,
                    "limit rate over {packets}/minute burst {packets} packets"
                )
            }
            Self::Connections(count) => write!(f, "ct count over {count}"),
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verdict(verdict) => verdict.fmt(f),
            Self::Lookup(side, map) => write!(f, "{side} vmap @{map}"),
            Self::Log(prefix) => write!(f, "log prefix \"{prefix}\" level info"),
            Self::AcceptMarked => write!(f, "meta mark set meta mark | {ACCEPTED:#010x} accept"),
            Self::ClearMark => write!(f, "meta mark set meta mark & {:#010x}", !ACCEPTED),
            Self::AcceptUntracked => write!(
                f,
                "meta mark set meta mark | {ACCEPTED:#010x} notrack accept"
            ),
            // `nft list` shows it as `reject`, which `nft -f` would limit to the family of the rule.
            Self::Reject => f.write_str("reject with icmpx port-unreachable"),
            Self::ResetTcp => f.write_str("reject with tcp reset"),
            Self::Dscp(family, value) => match dscp_name(*value) {
                Some(name) => write!(f, "{family} dscp set {name}"),
                None => write!(f, "{family} dscp set {value:#04x}"),
            },
            Self::DestinationTo(address, port) => write!(f, "dnat ip to {address}:{port}"),
            Self::DestinationBy(family, map) => {
                write!(f, "dnat {family} to {family} daddr map @{map}")
            }
            Self::SourceBy(family, map) => {
                write!(
                    f,
                    "snat {family} to {family} saddr . {family} daddr map @{map}"
                )
            }
            Self::Masquerade(None) => f.write_str("masquerade fully-random"),
            Self::Masquerade(Some(ports)) => {
                write!(f, "masquerade to :{} fully-random", PortRange(*ports))
            }
            Self::SourceTo(address, None) => write!(f, "snat ip to {address} fully-random"),
            Self::SourceTo(address, Some(ports)) => {
                let ports = PortRange(*ports);
                write!(f, "snat ip to {address}:{ports} fully-random")
            }
        }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {}", local_name(chain)),
            Self::Goto(chain) => write!(f, "goto {}", local_name(chain)),
        }
    }
}

impl Display for SetKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interface | Self::Rates | Self::Connections | Self::Marked(_) => "ifname",
            Self::InterfaceIpv4 | Self::Seen(Family::V4) => "ifname . ipv4_addr",
            Self::InterfaceIpv6 | Self::Seen(Family::V6) => "ifname . ipv6_addr",
            Self::Icmpv6Type => "icmpv6_type",
            Self::InterfaceVerdict => "ifname : verdict",
            Self::Address(Family::V4) | Self::Nets(Family::V4) => "ipv4_addr",
            Self::Address(Family::V6) | Self::Nets(Family::V6) => "ipv6_addr",
            Self::Ports => "inet_service",
            Self::Service(Family::V4) => "ipv4_addr . inet_service",
            Self::Service(Family::V6) => "ipv6_addr . inet_service",
            Self::EndpointPort(Family::V4) => "ipv4_addr . inet_proto . inet_service",
            Self::EndpointPort(Family::V6) => "ipv6_addr . inet_proto . inet_service",
            Self::AddressMap(Family::V4) => "ipv4_addr : ipv4_addr",
            Self::AddressMap(Family::V6) => "ipv6_addr : ipv6_addr",
            Self::AddressPairMap(Family::V4) => "ipv4_addr . ipv4_addr : ipv4_addr",
            Self::AddressPairMap(Family::V6) => "ipv6_addr . ipv6_addr : ipv6_addr",
        })
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => write!(f, "\"{name}\""),
            Self::InterfaceIpv4(name, address) => write!(f, "\"{name}\" . {address}"),
            Self::InterfaceIpv6(of) => write!(f, "\"{}\" . {}", of.0, of.1),
            Self::Address(address) => address.fmt(f),
            Self::Net(net) if net.prefix_len() == net.max_prefix_len() => net.addr().fmt(f),
            Self::Net(net) => net.fmt(f),
            Self::Ports(first, last) => PortRange((*first, *last)).fmt(f),
            Self::Service(address, port) => write!(f, "{address} . {port}"),
            Self::EndpointPort(address, protocol, port) => match protocol_name(*protocol) {
                Some(name) => write!(f, "{address} . {name} . {port}"),
                None => write!(f, "{address} . {protocol} . {port}"),
            },
            Self::AddressPair(of) => write!(f, "{} . {}", of.0, of.1),
            Self::Icmpv6Type(code) => match icmpv6_name(*code) {
                Some(name) => f.write_str(name),
                None => write!(f, "{code}"),
            },
        }
    }
}

struct PortRange((u16, u16));

impl Display for PortRange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            (first, last) if first == last => first.fmt(f),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

/// Returns nft's name of a protocol.
const fn protocol_name(protocol: u8) -> Option<&'static str> {
    Some(match protocol {
        1 => "icmp",
        6 => "tcp",
        17 => "udp",
        58 => "ipv6-icmp",
        132 => "sctp",
        136 => "udplite",
        _ => return None,
    })
}

/// Returns nft's name of a DSCP.
const fn dscp_name(value: u8) -> Option<&'static str> {
    Some(match value {
        0 => "cs0",
        1 => "lephb",
        8 => "cs1",
        16 => "cs2",
        24 => "cs3",
        32 => "cs4",
        40 => "cs5",
        48 => "cs6",
        56 => "cs7",
        10 => "af11",
        12 => "af12",
        14 => "af13",
        18 => "af21",
        20 => "af22",
        22 => "af23",
        26 => "af31",
        28 => "af32",
        30 => "af33",
        34 => "af41",
        36 => "af42",
        38 => "af43",
        44 => "va",
        46 => "ef",
        _ => return None,
    })
}

const fn icmpv6_name(code: u8) -> Option<&'static str> {
    Some(match code {
        130 => "mld-listener-query",
        131 => "mld-listener-report",
        132 => "mld-listener-done",
        133 => "nd-router-solicit",
        134 => "nd-router-advert",
        135 => "nd-neighbor-solicit",
        136 => "nd-neighbor-advert",
        143 => "mld2-listener-report",
        _ => return None,
    })
}
