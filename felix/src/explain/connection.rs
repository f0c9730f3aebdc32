//! The verdict of the calculated rules on a tracked connection, as if its first packet arrived now.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::evaluation::{Bases, Fate, evaluate};
use super::packet::{Changes, Packet};
use crate::calc::Calculator;
use crate::render::{FAILSAFE_CHAINS, Hook};

/// The gateways of workloads, which are the host itself.
const GATEWAYS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
];
/// The interface of addresses of the host itself.
const LOOPBACK: &str = "lo";
/// The policies of host endpoints before the destination is translated.
const UNTRANSLATED: [Hook; 2] = [Hook::HostUntracked, Hook::HostUntranslated];
/// The policies of the ends, and of host endpoints, for packets through the host.
const FORWARDED: [Hook; 4] = [
    Hook::Forward,
    Hook::HostForward,
    Hook::ForwardTo,
    Hook::HostForwardTo,
];
/// The policies of workloads and of host endpoints for packets to the host.
const TO_HOST: [Hook; 3] = [Hook::Input, Hook::HostInput, Hook::InputToHost];
/// The same for packets of the host: to its workloads, and to others.
const TO_WORKLOAD: [Hook; 1] = [Hook::Output];
const FROM_HOST: [Hook; 2] = [Hook::HostUntrackedOutput, Hook::HostOutput];

/// A tracked connection, as far as policies see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The source of its first packet, before any translation of the source.
    pub source: IpAddr,
    /// The destination of its first packet, after any translation.
    pub destination: IpAddr,
    /// The protocol.
    pub protocol: u8,
    /// Source and destination port of these, of a protocol with ports.
    pub ports: Option<(u16, u16)>,
    /// The type of its first packet, of ICMP.
    pub icmp: Option<u8>,
    /// The destination was translated.
    pub is_translated: bool,
    /// The destination and its port before any translation.
    pub requested: (IpAddr, Option<u16>),
    /// The interfaces of the host's routes to the source and to the destination, if they were looked up.
    pub interfaces: [Option<String>; 2],
    /// Its original tuple as the kernel reports it (`CTA_TUPLE_ORIG`).
    pub tuple: Vec<u8>,
    /// Its zone as the kernel reports it (`CTA_ZONE`).
    pub zone: Option<Vec<u8>>,
}

/// The part of a connection that decides for connections of any source port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class {
    ends: (IpAddr, IpAddr),
    protocol: u8,
    port: Option<u16>,
    icmp: Option<u8>,
    is_translated: bool,
    requested: (IpAddr, Option<u16>),
}

impl Connection {
    /// Returns the addresses of both ends, each with the interface of the route to it.
    fn ends(&self) -> [(IpAddr, Option<&String>); 2] {
        let [to_source, to_destination] = &self.interfaces;
        [
            (self.source, to_source.as_ref()),
            (self.destination, to_destination.as_ref()),
        ]
    }

    pub(crate) fn class(&self) -> Class {
        Class {
            ends: (self.source, self.destination),
            protocol: self.protocol,
            port: self.ports.map(|(_, port)| port),
            icmp: self.icmp,
            is_translated: self.is_translated,
            requested: self.requested,
        }
    }
}

/// The connections that the kernel is to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The addresses of workloads: connections from or to them.
    pub addresses: BTreeSet<IpAddr>,
    /// Further networks from which workloads may send.
    pub networks: BTreeSet<IpNet>,
    /// All connections, because the host has host endpoints.
    pub all: bool,
}

impl Wanted {
    /// Returns whether a connection is to be listed. One of the host with itself never is.
    pub fn has(&self, connection: &Connection) -> bool {
        let (source, destination) = (connection.source, connection.destination);
        let of_workload = || {
            self.addresses.contains(&source)
                || self.addresses.contains(&destination)
                || self.networks.iter().any(|net| net.contains(&source))
        };
        !source.is_loopback() && (self.all || of_workload())
    }

    /// Returns whether the interfaces of routes are to be looked up.
    pub fn needs_interfaces(&self) -> bool {
        self.all || !self.networks.is_empty()
    }

    /// Returns whether connections of an IP version may be wanted.
    pub fn has_version(&self, is_v4: bool) -> bool {
        let addresses = self.addresses.iter().any(|one| one.is_ipv4() == is_v4);
        let mut networks = self.networks.iter().map(IpNet::addr);
        self.all || addresses || networks.any(|one| one.is_ipv4() == is_v4)
    }
}

/// An end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End<'c> {
    /// A workload of this host, by its interface.
    Workload(&'c str),
    Host,
    /// Any other address, with the interface of the route to it, if it is known.
    Outside(Option<String>),
}

impl End<'_> {
    fn interface(&self) -> Option<String> {
        match self {
            Self::Workload(name) => Some((*name).to_owned()),
            Self::Host => None,
            Self::Outside(name) => name.clone(),
        }
    }
}

/// The evaluation of a connection that several workloads may have opened, up to one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    /// The interface of the last sender.
    last: Option<String>,
    /// The verdict on one of them depends on a part that the connection does not have.
    depends: bool,
}

/// The calculated rules, for the evaluation of several connections.
#[derive(Debug)]
pub(crate) struct Evaluator<'c> {
    calculator: &'c Calculator,
    bases: Bases<'c>,
    own_addresses: BTreeSet<IpAddr>,
    /// Networks from which workloads may send, with the interface.
    spoofed: Vec<(IpNet, &'c str)>,
}

/// Returns the connections on which a change of the rules may have an effect.
pub(crate) fn wanted(calculator: &Calculator) -> Wanted {
    let desired = calculator.desired();
    Wanted {
        addresses: desired.routes.keys().copied().collect(),
        networks: spoofed(calculator).map(|(net, _)| net).collect(),
        all: calculator.has_host_endpoints(),
    }
}

fn spoofed(calculator: &Calculator) -> impl Iterator<Item = (IpNet, &str)> {
    let endpoints = calculator.desired().interfaces.iter();
    endpoints.flat_map(|(name, endpoint)| {
        let networks = endpoint.spoofed.iter();
        networks.map(move |net| (*net, name.as_str()))
    })
}

impl<'c> Evaluator<'c> {
    pub(crate) fn of(calculator: &'c Calculator) -> Self {
        Self {
            calculator,
            bases: Bases::of(calculator.desired().rules()),
            own_addresses: calculator.all_own_addresses(),
            spoofed: spoofed(calculator).collect(),
        }
    }

    fn interface(&self, address: IpAddr) -> Option<&'c String> {
        self.calculator.desired().routes.get(&address)
    }

    fn is_host(&self, address: IpAddr, interface: Option<&String>) -> bool {
        address.is_loopback()
            || GATEWAYS.contains(&address)
            || self.own_addresses.contains(&address)
            || interface.is_some_and(|name| name == LOOPBACK)
    }

    fn end(&self, address: IpAddr, interface: Option<&String>) -> End<'c> {
        match self.interface(address) {
            Some(name) => End::Workload(name),
            None if self.is_host(address, interface) => End::Host,
            None => match interface.and_then(|name| self.workload(name)) {
                // A network behind a workload.
                Some(name) => End::Workload(name),
                None => End::Outside(interface.cloned()),
            },
        }
    }

    /// Returns the name of an interface if it is that of a workload.
    fn workload(&self, name: &str) -> Option<&'c str> {
        let interfaces = &self.calculator.desired().interfaces;
        interfaces
            .get_key_value(name)
            .map(|(name, _)| name.as_str())
    }

    /// Returns whether an end of a connection is this host.
    pub(crate) fn ends_at_host(&self, connection: &Connection) -> bool {
        let mut ends = connection.ends().into_iter();
        ends.any(|(address, interface)| {
            self.interface(address).is_none() && self.is_host(address, interface)
        })
    }

    /// Returns the possible ends that send a connection: an address outside may be one from which workloads
    /// may send. Connections of such an address to another host count as those of the workloads.
    fn sources(&self, connection: &Connection, to: &End<'_>) -> Vec<End<'c>> {
        let [(source, interface), _] = connection.ends();
        let end = self.end(source, interface);
        if !matches!(end, End::Outside(_)) || !matches!(to, End::Outside(_)) {
            return vec![end];
        }
        let may = self.spoofed.iter().filter(|(net, _)| net.contains(&source));
        let workloads: Vec<End<'c>> = may.map(|(_, name)| End::Workload(name)).collect();
        match workloads.is_empty() {
            true => vec![end],
            false => workloads,
        }
    }

    /// Returns whether policies forbid a connection. `has_source_port`: whether its source port is a part of
    /// it; `None`: the verdict depends on a part that the connection does not have. If several workloads may
    /// have opened it, it is forbidden if it is forbidden to all of them.
    ///
    /// Each sender is one evaluation, of which `left` are left.
    ///
    /// # Errors
    ///
    /// None is left: the evaluation can be continued by the same rules.
    pub(crate) fn is_forbidden(
        &self,
        connection: &Connection,
        has_source_port: bool,
        begun: Option<Begun>,
        left: &mut usize,
    ) -> Result<Option<bool>, Begun> {
        let [_, (destination, interface)] = connection.ends();
        let to = self.end(destination, interface);
        let mut begun = begun.unwrap_or_default();
        for from in self.sources(connection, &to) {
            // In the order of their names.
            let name = from.interface().unwrap_or_default();
            if begun.last.as_ref().is_some_and(|last| name <= *last) {
                continue;
            }
            if *left == 0 {
                return Err(begun);
            }
            *left -= 1;
            match self.is_forbidden_from(connection, has_source_port, &from, &to) {
                Some(true) => {}
                Some(false) => return Ok(Some(false)),
                None => begun.depends = true,
            }
            begun.last = Some(name);
        }
        Ok((!begun.depends).then_some(true))
    }

    fn is_forbidden_from(
        &self,
        connection: &Connection,
        has_source_port: bool,
        from: &End<'_>,
        to: &End<'_>,
    ) -> Option<bool> {
        let (before, hooks): (&[Hook], &[Hook]) = match (from, to) {
            (End::Host, End::Host) | (End::Outside(None), End::Outside(None)) => {
                return Some(false);
            }
            // The host reaches its own workloads, unless a key polices it.
            (End::Host, End::Workload(_)) if self.calculator.polices_host() => (&[], &TO_WORKLOAD),
            (End::Host, End::Workload(_)) => return Some(false),
            (End::Host, End::Outside(_)) => (&[], &FROM_HOST),
            (_, End::Host) => (&UNTRANSLATED, &TO_HOST),
            _ => (&UNTRANSLATED, &FORWARDED),
        };
        let mut packet = packet(connection, has_source_port, from.interface());
        (packet.destination, packet.port) = connection.requested;
        let mut verdict = self.at(before, &mut packet);
        if verdict == Some(false) {
            (packet.destination, packet.port) = (
                connection.destination,
                connection.ports.map(|ports| ports.1),
            );
            packet.output = to.interface();
            packet.changes.is_translated = connection.is_translated;
            verdict = self.at(hooks, &mut packet);
        }
        match (verdict, from, to) {
            // Not for workloads, which choose their source ports.
            (Some(true), End::Host, End::Outside(_)) => {
                self.unless_failsafe(FAILSAFE_CHAINS[0], packet)
            }
            (Some(true), End::Outside(_), End::Host) => {
                self.unless_failsafe(FAILSAFE_CHAINS[1], packet)
            }
            (verdict, ..) => verdict,
        }
    }

    /// Returns whether one of the hooks drops a packet.
    fn at(&self, hooks: &[Hook], packet: &mut Packet) -> Option<bool> {
        for hook in hooks {
            let decision = self.bases.at_hook(*hook, packet);
            match decision.map(|decision| decision.fate) {
                None | Some(Fate::Accept) => {}
                Some(Fate::Drop | Fate::Reject) => return Some(true),
                Some(Fate::DependsOn(_)) => return None,
            }
        }
        Some(false)
    }

    /// Returns the verdict on a forbidden connection of the host with an end outside: the other end may have
    /// begun it, before the kernel tracked connections. So it is kept if a failsafe port allows it in that direction.
    fn unless_failsafe(&self, chain: &str, packet: Packet) -> Option<bool> {
        let mut reverse = Packet {
            input: packet.output,
            output: packet.input,
            source: packet.destination,
            destination: packet.source,
            source_port: packet.port,
            port: packet.source_port,
            ..packet
        };
        let rules = self.calculator.desired().rules();
        match evaluate(rules, chain, &mut reverse).map(|decision| decision.fate) {
            Some(Fate::Accept) => Some(false),
            Some(Fate::DependsOn(_)) => None,
            _ => Some(true),
        }
    }
}

/// Returns the first packet of a connection.
fn packet(connection: &Connection, has_source_port: bool, input: Option<String>) -> Packet {
    let ports = connection.ports;
    Packet {
        input,
        output: None,
        source: connection.source,
        destination: connection.destination,
        protocol: connection.protocol,
        source_port: ports.map(|(source, _)| source).filter(|_| has_source_port),
        port: ports.map(|(_, port)| port),
        icmp: connection.icmp.filter(|_| ports.is_none()),
        changes: Changes::default(),
    }
}
