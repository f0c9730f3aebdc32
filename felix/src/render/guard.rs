//! The guard: drops packets that no workload may send, whatever its policies allow.
//!
//! A workload in a pool with `natOutgoing` is masqueraded as its host. Without the guard it could
//! open a BGP session that the remote end would attribute to the host. The guard is stateless: it
//! also drops the packets of existing connections.
//!
//! ```text
//! guard          (raw)     before any address translation: loopback, encapsulation to ends of
//!                          tunnels, control-destinations
//! guard-forward  (filter)  after it: encapsulation, control-destinations; tunnels to workloads
//! guard-input    (filter)  after it: loopback, encapsulation, control-host; tunnels of others
//! fragments      (-450)    before fragments are reassembled: their budget
//! budget-forward, budget-input (filter + 2)  after the policies: connections, next hops
//! arp/input      (arp)     senders of ARP
//! ```
//!
//! A budget limits the entries that one workload causes in a table of the kernel that all share. The
//! state of each interface is an element that the rules themselves add to a set.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::build::{
    Frame, SOURCES_IPV4, SOURCES_IPV6, base, chain, counted, dispatch_prefixes, rule,
};
use super::encapsulation;
use super::openstack::{self, OpenStack};
use super::outgoing::INSIDE;
use super::ruleset::{
    Chain, ConnectionStates, End, Family, Hook, Is, Key, Limit, Match, Rule, Seen, Set, SetKind,
    Side, TupleDirection, Verdict,
};
use crate::limits::{
    BLOCKED_MS, CONNECTIONS_COUNTED_MAX, PRESSED_MS, SPOOFED_ARP_PER_MINUTE, WORKLOAD_CONNECTIONS,
    WORKLOAD_FRAGMENTS_PER_SECOND, WORKLOAD_LINK_LOCAL_PER_MINUTE, WORKLOAD_NEXT_HOPS_PER_MINUTE,
};

/// The protocols with control ports, each with the set of these ports.
const PROTOCOLS: [(u8, &str); 2] = [(TCP, "control-ports-tcp"), (UDP, "control-ports-udp")];
/// TCP ports that are closed on nodes, and open elsewhere.
const NODE_PORTS: &str = "control-ports-of-nodes";
/// TCP ports of this host to which workloads open no connection, because the ports of its BGP
/// daemons are unknown: all of them, or none.
const UNKNOWN_PORTS: &str = "control-ports-unknown";
/// The sets of nodes' addresses, by family.
pub(super) const NODES: [&str; 2] = ["nodes-ipv4", "nodes-ipv6"];
/// The sets of single services: address and TCP port.
const SERVICES: [&str; 2] = ["control-services-ipv4", "control-services-ipv6"];
/// The sets of the sources that may reach control ports.
const EXCEPTIONS: [&str; 2] = ["control-exceptions-ipv4", "control-exceptions-ipv6"];
const RAW: &str = "workload-guard";
const FORWARD: &str = "workload-guard-forward";
const INPUT: &str = "workload-guard-input";
const ICMP: &str = "workload-icmp";
const DESTINATIONS: &str = "control-destinations";
const HOST: &str = "control-host";
const UNKNOWN: &str = "control-unknown";
const CLOSED: &str = "control-closed";
/// The set of the IPv4 addresses with which interfaces may send ARP.
pub(super) const ARP_SOURCES: &str = "arp/sources";
/// The set of the interfaces of endpoints with further source addresses.
pub(super) const ARP_SPOOFING: &str = "arp/spoofing";
const ARP_RATES: &str = "arp/rates";
const ARP_SENDER: &str = "arp/workload";
const FRAGMENTS: &str = "workload-fragments";
const FRAGMENT_RATES: &str = "fragment-rates";
const BUDGETS: &str = "workload-budgets";
const CONNECTIONS: &str = "workload-connections";
const CONNECTIONS_COUNTED: &str = "workload-connections-counted";
const CONNECTIONS_OVER: &str = "workload-connections-over";
const CONNECTION_COUNTS: &str = "connection-counts";
/// The set of interfaces that open no connection, for a moment.
const BLOCKED: &str = "connections-blocked";
/// The set of interfaces of which all new connections are counted.
const PRESSED: &str = "connections-pressed";
const NEXT_HOPS: &str = "workload-next-hops";
const NEXT_HOP_RATES: &str = "next-hop-rates";
/// The sets of next hops, by family.
const NEXT_HOPS_SEEN: [&str; 2] = ["next-hops-ipv4", "next-hops-ipv6"];
/// The chain of link-local sources.
pub(super) const LINK_LOCAL: &str = "workload-link-local";
const LINK_LOCAL_RATES: &str = "link-local-rates";
const LINK_LOCAL_SEEN: &str = "link-local-sources";
/// The sets of all addresses, by family. Their names are the last ones of sets with ranges.
pub(super) const WHOLE: [&str; 2] = ["whole-ipv4", "whole-ipv6"];
/// The protocol number of TCP.
pub const TCP: u8 = 6;
/// The protocol number of UDP.
pub const UDP: u8 = 17;
/// The ports of a DHCP client (RFC 2131 §4.1, RFC 8415 §7.2).
const DHCP_CLIENTS: [u16; 2] = [68, 546];
/// The type of a router advertisement (RFC 4861 §4.2).
const ROUTER_ADVERTISEMENT: u8 = 134;

/// The entries in tables of the kernel that each workload may cause; 0: any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budgets {
    /// Connections that it has opened through or to its host.
    pub connections: u32,
    /// Fragments in a second.
    pub fragments_per_second: u32,
    /// New next hops in a minute: gateways, and neighbors of the host.
    pub next_hops_per_minute: u32,
    /// New link-local source addresses in a minute.
    pub link_local_per_minute: u32,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            connections: WORKLOAD_CONNECTIONS,
            fragments_per_second: WORKLOAD_FRAGMENTS_PER_SECOND,
            next_hops_per_minute: WORKLOAD_NEXT_HOPS_PER_MINUTE,
            link_local_per_minute: WORKLOAD_LINK_LOCAL_PER_MINUTE,
        }
    }
}

/// The addresses and ports of the fabric itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Protocols and ports that are closed on this host, on all nodes, and outside the pools.
    pub ports: BTreeSet<(u8, u16)>,
    /// TCP ports that are closed on this host and on all nodes.
    pub node_ports: BTreeSet<u16>,
    /// Workloads open no TCP connection to this host.
    pub host_is_closed: bool,
    /// Addresses of nodes, including those of their tunnels.
    pub nodes: BTreeSet<IpAddr>,
    /// Single services: address and TCP port.
    pub services: BTreeSet<(IpAddr, u16)>,
    /// Sources that may reach all of these.
    pub exceptions: Vec<IpNet>,
    /// Sources of tunnels that are not nodes.
    pub tunnel_sources: Vec<IpNet>,
}

/// Returns the sets, each with its keys.
pub(super) fn sets(control: &Control) -> Vec<(&'static str, BTreeSet<Key>)> {
    let mut sets: Vec<(&str, BTreeSet<Key>)> = PROTOCOLS
        .into_iter()
        .map(|(protocol, name)| {
            let ports = control.ports.iter().filter(|(of, _)| *of == protocol);
            (name, ranges(ports.map(|(_, port)| *port)))
        })
        .collect();
    sets.push((NODE_PORTS, ranges(control.node_ports.iter().copied())));
    let unknown = control.host_is_closed.then_some(Key::Ports(0, u16::MAX));
    sets.push((UNKNOWN_PORTS, unknown.into_iter().collect()));
    for (place, family) in Family::ALL.into_iter().enumerate() {
        let nodes = control.nodes.iter().copied();
        let nodes = nodes.filter(|address| Family::of(*address) == family);
        let services = control.services.iter().copied();
        let services = services.filter(|(address, _)| Family::of(*address) == family);
        sets.extend([
            (NODES[place], nodes.map(Key::Address).collect()),
            (
                SERVICES[place],
                services
                    .map(|(address, port)| Key::Service(address, port))
                    .collect(),
            ),
            (EXCEPTIONS[place], nets(&control.exceptions, family)),
            (
                encapsulation::SOURCES[place],
                nets(&control.tunnel_sources, family),
            ),
        ]);
    }
    sets
}

/// Returns the ranges of a family without overlaps.
fn nets(given: &[IpNet], family: Family) -> BTreeSet<Key> {
    let own = given.iter().map(IpNet::trunc);
    let own: Vec<IpNet> = own.filter(|net| Family::of(net.addr()) == family).collect();
    IpNet::aggregate(&own).into_iter().map(Key::Net).collect()
}

/// Returns the same sets without elements, which always exist.
pub(super) fn empty_sets() -> Vec<(&'static str, Set)> {
    let ports = PROTOCOLS.into_iter().map(|(_, name)| name);
    let mut sets: Vec<(&str, SetKind)> = ports
        .chain([NODE_PORTS, UNKNOWN_PORTS])
        .map(|name| (name, SetKind::Ports))
        .chain([
            (encapsulation::ALLOWED, SetKind::InterfaceVerdict),
            (encapsulation::OF_FABRIC, SetKind::Interface),
            (ARP_SOURCES, SetKind::InterfaceIpv4),
            (ARP_SPOOFING, SetKind::Interface),
            (ARP_RATES, SetKind::Rates),
            (FRAGMENT_RATES, SetKind::Rates),
            (CONNECTION_COUNTS, SetKind::Connections),
            (BLOCKED, SetKind::Marked(BLOCKED_MS)),
            (PRESSED, SetKind::Marked(PRESSED_MS)),
            (NEXT_HOP_RATES, SetKind::Rates),
            (LINK_LOCAL_RATES, SetKind::Rates),
            (LINK_LOCAL_SEEN, SetKind::Seen(Family::V6)),
        ])
        .collect();
    for (place, family) in Family::ALL.into_iter().enumerate() {
        sets.extend([
            (NODES[place], SetKind::Address(family)),
            (SERVICES[place], SetKind::Service(family)),
            (EXCEPTIONS[place], SetKind::Nets(family)),
            (encapsulation::SOURCES[place], SetKind::Nets(family)),
            (NEXT_HOPS_SEEN[place], SetKind::Seen(family)),
        ]);
    }
    let sets = sets.into_iter();
    sets.map(|(name, kind)| (name, Set::of(kind, []))).collect()
}

/// Returns ports as ranges in order that neither overlap nor touch.
fn ranges(ports: impl Iterator<Item = u16>) -> BTreeSet<Key> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for port in ports {
        match ranges.last_mut() {
            Some((_, last)) if port.checked_sub(1) == Some(*last) => *last = port,
            _ => ranges.push((port, port)),
        }
    }
    let keys = ranges
        .into_iter()
        .map(|(first, last)| Key::Ports(first, last));
    keys.collect()
}

/// Returns the chains.
pub(super) fn chains(frame: &Frame, openstack: OpenStack) -> BTreeMap<String, Chain> {
    let mut chains = own_chains(frame, openstack);
    chains.extend(encapsulation::chains(frame));
    chains.extend(budget_chains(frame));
    chains.extend(arp_chains(frame));
    chains
}

fn own_chains(frame: &Frame, openstack: OpenStack) -> BTreeMap<String, Chain> {
    let goto = |name: &str| rule(Vec::new(), Verdict::Goto(name.into()));
    let enter = |name: &str| dispatch_prefixes(frame, Side::Input, &Verdict::Goto(name.into()));
    let asked = |chain: &str| encapsulation::of_workloads(frame.encapsulation, chain);
    let mut raw = committed();
    raw.extend(loopback());
    raw.extend(impersonation());
    raw.extend(asked(encapsulation::TO_TUNNEL_END));
    raw.push(goto(DESTINATIONS));
    let mut input = committed();
    input.extend(openstack::loopback_service(openstack));
    input.extend(loopback());
    input.extend(icmp());
    input.extend(asked(encapsulation::TO_OWN_HOST));
    input.push(goto(HOST));
    let mut forward = committed();
    forward.extend(icmp());
    forward.extend(asked(encapsulation::FROM_WORKLOAD));
    forward.push(goto(DESTINATIONS));
    let mut through = enter(FORWARD);
    through.push(encapsulation::forwarded());
    let mut all = enter(INPUT);
    all.extend(encapsulation::to_host(frame.encapsulation));
    [
        base("guard", Hook::Guard, enter(RAW)),
        base("guard-forward", Hook::GuardForward, through),
        base(encapsulation::GUARD_INPUT, Hook::GuardInput, all),
        chain(RAW, raw),
        icmp_errors(),
        chain(FORWARD, forward),
        chain(INPUT, input),
        chain(DESTINATIONS, destinations()),
        chain(HOST, host()),
        chain(UNKNOWN, unknown()),
        chain(CLOSED, closed()),
    ]
    .into()
}

/// Returns the rules that drop packets while the kernel commits a whole table.
///
/// It publishes the ranges of a new set some time after the rules that look them up, one set after the
/// other, in the order in which the transaction adds them. So a rule that drops a range would not
/// match for up to a millisecond. A packet that is found in the last set finds all others too.
pub(super) fn committed() -> Vec<Rule> {
    let families = Family::ALL.into_iter().zip(WHOLE);
    families
        .map(|(family, set)| {
            let is_missing = Match::InSet(End::Source, family, set.into(), Is::Not);
            counted(
                vec![is_missing],
                Verdict::Drop,
                "the table is being replaced",
            )
        })
        .collect()
}

/// Returns the sets of all addresses.
pub(super) fn whole() -> [(&'static str, Set); 2] {
    let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    [(WHOLE[0], all[0]), (WHOLE[1], all[1])].map(|(name, first)| {
        let range = Key::Net(IpNet::new_assert(first, 0));
        (name, Set::of(SetKind::Nets(Family::of(first)), [range]))
    })
}

/// Returns the rules for loopback addresses of the host: `route_localnet` is on for workload
/// interfaces.
fn loopback() -> Vec<Rule> {
    let loopback = [
        IpNet::new_assert(Ipv4Addr::new(127, 0, 0, 0).into(), 8),
        IpNet::from(IpAddr::from(Ipv6Addr::LOCALHOST)),
    ];
    let to = loopback.map(|net| vec![Match::InNet(End::Destination, net, Is::Yes)]);
    let words = "loopback address of the host";
    to.map(|matches| counted(matches, Verdict::Drop, words))
        .into()
}

fn close(matches: Vec<Match>) -> Rule {
    rule(matches, Verdict::Goto(CLOSED.into()))
}

fn port_in(protocol: u8, set: &str) -> Match {
    Match::PortIn(End::Destination, protocol, set.into(), Is::Yes)
}

fn services() -> impl Iterator<Item = Rule> {
    let families = Family::ALL.into_iter().zip(SERVICES);
    families.map(|(family, set)| close(vec![Match::ServiceIn(family, set.into())]))
}

/// Returns the rules for control ports of other hosts: of nodes, and of destinations outside the
/// pools, where the source may be masqueraded.
fn destinations() -> Vec<Rule> {
    let mut rules: Vec<Rule> = services().collect();
    let to = |family, set: &str, is| Match::InSet(End::Destination, family, set.into(), is);
    for (place, family) in Family::ALL.into_iter().enumerate() {
        let nodes = || to(family, NODES[place], Is::Yes);
        rules.push(close(vec![port_in(TCP, NODE_PORTS), nodes()]));
        for (protocol, ports) in PROTOCOLS {
            let outside = to(family, INSIDE[place], Is::Not);
            rules.push(close(vec![port_in(protocol, ports), nodes()]));
            rules.push(close(vec![port_in(protocol, ports), outside]));
        }
    }
    rules
}

/// Returns the rules for control ports of this host.
fn host() -> Vec<Rule> {
    let mut rules: Vec<Rule> = services().collect();
    rules.push(close(vec![port_in(TCP, NODE_PORTS)]));
    let ports = PROTOCOLS.into_iter();
    rules.extend(ports.map(|(protocol, ports)| close(vec![port_in(protocol, ports)])));
    let unknown = Verdict::Goto(UNKNOWN.into());
    rules.push(rule(vec![port_in(TCP, UNKNOWN_PORTS)], unknown));
    rules
}

/// Returns the rules for the ports of this host while those of its BGP daemons are unknown: replies
/// of a workload to its host pass.
fn unknown() -> Vec<Rule> {
    let answer = Match::Connection(ConnectionStates::EstablishedOrRelated);
    vec![rule(vec![answer], Verdict::Return), close(Vec::new())]
}

fn closed() -> Vec<Rule> {
    let families = Family::ALL.into_iter().zip(EXCEPTIONS);
    let mut rules: Vec<Rule> = families
        .map(|(family, set)| {
            let from = Match::InSet(End::Source, family, set.into(), Is::Yes);
            counted(vec![from], Verdict::Accept, "control port: exception")
        })
        .collect();
    let words = "control port of the fabric";
    rules.push(counted(Vec::new(), Verdict::Drop, words));
    rules
}

/// Returns the rules that lead to [`icmp_errors`].
fn icmp() -> impl Iterator<Item = Rule> {
    let families = Family::ALL.into_iter();
    families.map(|family| {
        let icmp = Match::Protocol(family.icmp(), Is::Yes);
        rule(vec![icmp], Verdict::Jump(ICMP.into()))
    })
}

/// Returns the chain that evaluates ICMP of workloads.
///
/// Connection tracking assigns an error to the connection of the packet that it quotes, whoever sends
/// it. So an error of any workload would pass as part of the connection of others, and could end it or
/// lower its path MTU. A workload may only send errors about packets that it has received: it is an end
/// of their connection. The addresses of a connection are those before the translation at this end and
/// after that at the other end, so the address of a workload is always the one that it has itself.
///
/// An error is `related`, or `invalid` without a connection.
fn icmp_errors() -> (String, Chain) {
    let no_error = Match::Connection(ConnectionStates::NoError);
    let mut rules = vec![rule(vec![no_error], Verdict::Return)];
    for direction in [TupleDirection::Original, TupleDirection::Reply] {
        for (family, own) in Family::ALL.into_iter().zip([SOURCES_IPV4, SOURCES_IPV6]) {
            let related = Match::Connection(ConnectionStates::Related);
            let from_own = Match::TupleSourceIn(direction, family, own.into());
            rules.push(rule(vec![related, from_own], Verdict::Return));
        }
    }
    let words = "ICMP error about another's packet";
    rules.push(counted(Vec::new(), Verdict::Drop, words));
    chain(ICMP, rules)
}

/// Returns the rules for packets of a server or a router for the hosts on its link, which no workload
/// is, and for packets to a link-local address that is not the gateway's: for each of them, the kernel
/// would look for a neighbor.
fn impersonation() -> Vec<Rule> {
    // A client takes replies from any port.
    let from_server = DHCP_CLIENTS.map(|client| {
        let to = Match::Port(End::Destination, UDP, client, Is::Yes);
        counted(vec![to], Verdict::Drop, "reply of a DHCP server")
    });
    let advertisement = Match::IcmpType(Family::V6, ROUTER_ADVERTISEMENT, Is::Yes);
    let words = "router advertisement of a workload";
    let mut rules: Vec<Rule> = from_server.into();
    rules.push(counted(vec![advertisement], Verdict::Drop, words));
    let elsewhere = vec![Match::DestinationLinkLocal, Match::DestinationElsewhere];
    let words = "link-local address that is not the gateway's";
    rules.push(counted(elsewhere, Verdict::Drop, words));
    rules
}

/// Returns the chains of the table of the family `arp`. The kernel adds the sender of a request to its
/// neighbors.
fn arp_chains(frame: &Frame) -> [(String, Chain); 2] {
    let enter = dispatch_prefixes(frame, Side::Input, &Verdict::Goto(ARP_SENDER.into()));
    let spoofing = || Match::InterfaceIn(Side::Input, ARP_SPOOFING.into());
    let limit = Match::OverLimit(Limit::PerMinute(SPOOFED_ARP_PER_MINUTE), ARP_RATES.into());
    let own = Match::ArpSenderIn(ARP_SOURCES.into());
    // A probe for a duplicate address (RFC 5227 §1.1), of which the kernel learns nothing.
    let probe = Match::ArpSender(Ipv4Addr::UNSPECIFIED);
    let rules = vec![
        rule(vec![own], Verdict::Accept),
        rule(vec![probe], Verdict::Accept),
        counted(
            vec![spoofing(), limit],
            Verdict::Drop,
            "ARP over the budget",
        ),
        rule(vec![spoofing()], Verdict::Accept),
        counted(
            Vec::new(),
            Verdict::Drop,
            "ARP sender is not the endpoint's",
        ),
    ];
    [
        base("arp/input", Hook::Arp, enter),
        chain(ARP_SENDER, rules),
    ]
}

/// Returns the chains of the budgets in use.
fn budget_chains(frame: &Frame) -> Vec<(String, Chain)> {
    let budgets = frame.budgets;
    let enter = |name: &str| dispatch_prefixes(frame, Side::Input, &Verdict::Goto(name.into()));
    let mut chains = Vec::new();
    if budgets.fragments_per_second > 0 {
        chains.extend([
            base("fragments", Hook::Fragments, enter(FRAGMENTS)),
            chain(FRAGMENTS, fragments(budgets.fragments_per_second)),
        ]);
    }
    if budgets.link_local_per_minute > 0 {
        let rules = link_local(budgets.link_local_per_minute);
        chains.push(chain(LINK_LOCAL, rules));
    }
    let new = || Match::Connection(ConnectionStates::New);
    let mut through = Vec::new();
    if budgets.connections > 0 {
        through.push(rule(vec![new()], Verdict::Jump(CONNECTIONS.into())));
        let mut input = enter(CONNECTIONS);
        input.iter_mut().for_each(|rule| rule.matches.push(new()));
        chains.push(base("budget-input", Hook::BudgetInput, input));
        chains.extend(connections(budgets.connections));
    }
    if budgets.next_hops_per_minute > 0 {
        let known = Match::Connection(ConnectionStates::EstablishedOrRelated);
        through.push(rule(vec![known], Verdict::Return));
        through.push(rule(Vec::new(), Verdict::Goto(NEXT_HOPS.into())));
        let rules = next_hops(frame, budgets.next_hops_per_minute);
        chains.push(chain(NEXT_HOPS, rules));
    }
    if !through.is_empty() {
        chains.extend([
            base("budget-forward", Hook::BudgetForward, enter(BUDGETS)),
            chain(BUDGETS, through),
        ]);
    }
    chains
}

/// Returns the rules for fragments. Until all of a packet have arrived, they take memory that the
/// kernel bounds for the whole host.
fn fragments(per_second: u32) -> Vec<Rule> {
    let families = Family::ALL.into_iter();
    let over = || Match::OverLimit(Limit::PerSecond(per_second), FRAGMENT_RATES.into());
    families
        .map(|family| {
            let matches = vec![Match::Fragment(family), over()];
            counted(matches, Verdict::Drop, "fragments over the budget")
        })
        .collect()
}

/// Returns the rules for neighbor discovery from link-local addresses: the kernel adds each one that
/// solicits to its neighbors.
fn link_local(per_minute: u32) -> Vec<Rule> {
    let seen = Match::SourceIpv6In(LINK_LOCAL_SEEN.into());
    let remember = Match::Remember(Seen::Source, Family::V6, LINK_LOCAL_SEEN.into());
    let mut rules = vec![rule(vec![seen], Verdict::Accept)];
    rules.extend(first_seen(
        Limit::PerMinute(per_minute),
        LINK_LOCAL_RATES,
        [rule(vec![remember], Verdict::Accept)],
        "link-local addresses over the budget",
    ));
    rules
}

/// Returns the rules for addresses that were not seen before: those within the limit are remembered.
fn first_seen(
    limit: Limit,
    rates: &str,
    remember: impl IntoIterator<Item = Rule>,
    words: &str,
) -> Vec<Rule> {
    let over = vec![Match::OverLimit(limit, rates.into())];
    let mut rules = vec![counted(over, Verdict::Drop, words)];
    rules.extend(remember);
    // The set is full.
    rules.push(counted(Vec::new(), Verdict::Drop, words));
    rules
}

/// Returns the chains for new connections that policies have allowed.
///
/// With each connection that the kernel counts, it looks for all earlier ones, so of a large budget
/// only a sample is counted. An interface over the budget opens no connection for a moment, in which the
/// kernel counts none. After that, all its connections are counted: otherwise some would pass between
/// two that are counted.
fn connections(max: u32) -> [(String, Chain); 3] {
    let samples = (max / CONNECTIONS_COUNTED_MAX).max(1);
    let is_in = |set: &str| Match::InterfaceIn(Side::Input, set.into());
    let words = "connections over the budget";
    let goto = |name: &str| Verdict::Goto(name.into());
    let mut new = vec![counted(vec![is_in(BLOCKED)], Verdict::Drop, words)];
    if samples > 1 {
        new.push(rule(vec![is_in(PRESSED)], goto(CONNECTIONS_COUNTED)));
        new.push(rule(vec![Match::Unsampled(samples)], Verdict::Return));
    }
    new.push(rule(Vec::new(), goto(CONNECTIONS_COUNTED)));
    let limit = Limit::Connections(max / samples);
    let over = Match::OverLimit(limit, CONNECTION_COUNTS.into());
    let mark = [BLOCKED, PRESSED].map(|set| Match::Mark(set.into()));
    let over_budget = vec![
        counted(mark.into(), Verdict::Drop, words),
        // A set is full.
        counted(Vec::new(), Verdict::Drop, words),
    ];
    [
        chain(CONNECTIONS, new),
        chain(
            CONNECTIONS_COUNTED,
            vec![rule(vec![over], goto(CONNECTIONS_OVER))],
        ),
        chain(CONNECTIONS_OVER, over_budget),
    ]
}

/// Returns the rules for next hops: for each new one, the kernel looks for a neighbor. Workloads of
/// this host and other nodes are known neighbors, and pools are behind nodes.
fn next_hops(frame: &Frame, per_minute: u32) -> Vec<Rule> {
    let mut rules = dispatch_prefixes(frame, Side::Output, &Verdict::Return);
    let mut remember = Vec::new();
    for (place, family) in Family::ALL.into_iter().enumerate() {
        let inside = Match::InSet(End::Destination, family, INSIDE[place].into(), Is::Yes);
        let node = Match::NextHopIn(family, NODES[place].into());
        let seen = Match::InterfaceNextHopIn(family, NEXT_HOPS_SEEN[place].into());
        let passes = [inside, node, seen].map(|one| rule(vec![one], Verdict::Return));
        rules.extend(passes);
        let new = Match::Remember(Seen::NextHop, family, NEXT_HOPS_SEEN[place].into());
        remember.push(rule(vec![new], Verdict::Return));
    }
    let limit = Limit::PerMinute(per_minute);
    let words = "next hops over the budget";
    rules.extend(first_seen(limit, NEXT_HOP_RATES, remember, words));
    rules
}
