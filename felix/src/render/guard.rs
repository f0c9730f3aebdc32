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
//! ```

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
    Chain, ConnectionStates, End, Family, Hook, Is, Key, Match, Rule, Set, SetKind, Side,
    TupleDirection, Verdict,
};

/// The protocols with control ports, each with the set of these ports.
const PROTOCOLS: [(u8, &str); 1] = [(TCP, "control-ports-tcp")];
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
/// The protocol number of TCP.
pub const TCP: u8 = 6;

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
        ])
        .collect();
    for (place, family) in Family::ALL.into_iter().enumerate() {
        sets.extend([
            (NODES[place], SetKind::Address(family)),
            (SERVICES[place], SetKind::Service(family)),
            (EXCEPTIONS[place], SetKind::Nets(family)),
            (encapsulation::SOURCES[place], SetKind::Nets(family)),
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
    chains
}

fn own_chains(frame: &Frame, openstack: OpenStack) -> BTreeMap<String, Chain> {
    let goto = |name: &str| rule(Vec::new(), Verdict::Goto(name.into()));
    let enter = |name: &str| dispatch_prefixes(frame, Side::Input, &Verdict::Goto(name.into()));
    let asked = |chain: &str| encapsulation::of_workloads(frame.encapsulation, chain);
    let mut raw = loopback();
    raw.extend(asked(encapsulation::TO_TUNNEL_END));
    raw.push(goto(DESTINATIONS));
    let mut input = openstack::loopback_service(openstack);
    input.extend(loopback());
    input.extend(icmp());
    input.extend(asked(encapsulation::TO_OWN_HOST));
    input.push(goto(HOST));
    let mut forward: Vec<Rule> = icmp().collect();
    forward.extend(asked(encapsulation::FROM_WORKLOAD));
    forward.push(goto(DESTINATIONS));
    let mut through = enter(FORWARD);
    through.push(encapsulation::forwarded());
    let mut all = enter(INPUT);
    all.extend(encapsulation::to_host(frame.encapsulation));
    [
        base("guard", Hook::Guard, enter(RAW)),
        base("guard-forward", Hook::GuardForward, through),
        base("guard-input", Hook::GuardInput, all),
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
