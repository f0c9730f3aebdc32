//! The verdict of the calculated rules on a tracked connection, as if its first packet arrived now.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::evaluation::{Bases, Fate};
use super::packet::{Changes, Packet};
use crate::calc::Calculator;
use crate::render::Hook;

/// The gateways of workloads, which are the host itself.
const GATEWAYS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 1, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
];
/// The policies of the workloads at the ends.
const FORWARDED: [Hook; 2] = [Hook::Forward, Hook::ForwardTo];
const TO_HOST: [Hook; 2] = [Hook::Input, Hook::InputToHost];
const FROM_HOST: [Hook; 1] = [Hook::Output];

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
    /// Its original tuple as the kernel reports it (`CTA_TUPLE_ORIG`).
    pub tuple: Vec<u8>,
    /// Its zone as the kernel reports it (`CTA_ZONE`).
    pub zone: Option<Vec<u8>>,
}

/// The part of a connection that decides for connections of any source port.
pub(crate) type Class = (IpAddr, IpAddr, u8, Option<u16>, Option<u8>, bool);

impl Connection {
    pub(crate) fn class(&self) -> Class {
        let port = self.ports.map(|(_, port)| port);
        let of = (self.source, self.destination);
        (
            of.0,
            of.1,
            self.protocol,
            port,
            self.icmp,
            self.is_translated,
        )
    }
}

/// The calculated rules, for the evaluation of several connections.
#[derive(Debug)]
pub(crate) struct Evaluator<'c> {
    calculator: &'c Calculator,
    bases: Bases<'c>,
    own_addresses: BTreeSet<IpAddr>,
}

impl<'c> Evaluator<'c> {
    pub(crate) fn of(calculator: &'c Calculator) -> Self {
        Self {
            calculator,
            bases: Bases::of(calculator.desired().rules()),
            own_addresses: calculator.all_own_addresses(),
        }
    }

    fn interface(&self, address: IpAddr) -> Option<&'c String> {
        self.calculator.desired().routes.get(&address)
    }

    fn is_host(&self, address: IpAddr) -> bool {
        address.is_loopback()
            || GATEWAYS.contains(&address)
            || self.own_addresses.contains(&address)
    }

    /// Returns whether an end of a connection is this host.
    pub(crate) fn ends_at_host(&self, connection: &Connection) -> bool {
        let mut ends = [connection.source, connection.destination].into_iter();
        ends.any(|end| self.interface(end).is_none() && self.is_host(end))
    }

    /// Returns whether policies of workloads forbid a connection. `has_source_port`: whether its source
    /// port is a part of it; `None`: the verdict depends on a part that the connection does not have.
    pub(crate) fn is_forbidden(
        &self,
        connection: &Connection,
        has_source_port: bool,
    ) -> Option<bool> {
        let (input, output) = (
            self.interface(connection.source).cloned(),
            self.interface(connection.destination).cloned(),
        );
        let hooks: &[Hook] = match (&input, &output) {
            (None, None) => return Some(false),
            // The host reaches its own workloads, unless a key polices it.
            (None, Some(_)) if self.is_host(connection.source) => {
                match self.calculator.polices_host() {
                    true => &FROM_HOST,
                    false => return Some(false),
                }
            }
            (Some(_), None) if self.is_host(connection.destination) => &TO_HOST,
            _ => &FORWARDED,
        };
        let has_ports = connection.ports.is_some();
        let mut packet = Packet {
            input,
            output,
            source: connection.source,
            destination: connection.destination,
            protocol: connection.protocol,
            source_port: connection
                .ports
                .map(|(source, _)| source)
                .filter(|_| has_source_port),
            port: connection.ports.map(|(_, port)| port),
            icmp: connection.icmp.filter(|_| !has_ports),
            changes: Changes {
                is_translated: connection.is_translated,
                ..Changes::default()
            },
        };
        for hook in hooks {
            let decision = self.bases.at_hook(*hook, &mut packet);
            match decision.map(|decision| decision.fate) {
                None | Some(Fate::Accept) => {}
                Some(Fate::Drop | Fate::Reject) => return Some(true),
                Some(Fate::DependsOn(_)) => return None,
            }
        }
        Some(false)
    }
}
