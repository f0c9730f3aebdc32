//! Sends writes as batches of requests.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteNextHop, RouteNextHopFlags,
    RouteProtocol, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::queue::{Queue, Queued};
use crate::error::OpError;
use crate::limits::BATCH_OCTETS_MAX;
use crate::nexthop::{self, NexthopCommand, NexthopEvent, Request};
use crate::owner::Owner;
use crate::port::{Command, Event, PutMode};
use crate::route::{Hop, Route, RouteKey, RouteKind, Scope};
use crate::writer::{Outcomes, Writes};

/// Writes that are sent with one `send`.
#[derive(Debug)]
pub(super) struct Batch {
    /// Sequence number of the first request; the others follow in order.
    first: u32,
    subjects: Vec<Subject>,
    /// By position in `subjects`.
    errors: BTreeMap<usize, OpError>,
    pub(super) octets: Vec<u8>,
    /// Where in `octets` the last request begins.
    last_at: usize,
    /// Position of the last request sent: its acknowledgment arrives when all are carried out.
    barrier: Option<usize>,
    /// Positions in `subjects` of the writes of a message to another process.
    sent: Vec<usize>,
}

impl Batch {
    const fn empty(first: u32) -> Self {
        Self {
            first,
            subjects: Vec::new(),
            errors: BTreeMap::new(),
            octets: Vec::new(),
            last_at: 0,
            barrier: None,
            sent: Vec::new(),
        }
    }

    /// Takes writes from the front of `queue`, at most `requests_max`.
    pub(super) fn take(queue: &mut Queue, first: u32, requests_max: usize) -> Self {
        let mut batch = Self::empty(first);
        while batch.subjects.len() < requests_max {
            let Some(Queued { command, overtaken }) = queue.front() else {
                break;
            };
            let Some(subject) = Subject::of(command) else {
                break;
            };
            let position = batch.subjects.len();
            if *overtaken {
                batch.errors.insert(position, OpError::new(libc::ECANCELED));
            } else {
                let sequence = batch.next_sequence();
                let Some(octets) = request(command, sequence) else {
                    // Not a form that this crate writes.
                    batch.errors.insert(position, OpError::new(libc::EINVAL));
                    batch.subjects.push(subject);
                    queue.pop();
                    continue;
                };
                if !batch.append(&octets) {
                    break;
                }
            }
            batch.subjects.push(subject);
            queue.pop();
        }
        batch.ask_for_acknowledgment();
        batch
    }

    /// Takes writes in the same way, as a message to the process that carries them out.
    pub(super) fn delegate(queue: &mut Queue, first: u32, requests_max: usize) -> Self {
        let mut batch = Self::empty(first);
        let mut writes = Writes::default();
        while batch.subjects.len() < requests_max {
            let Some(Queued { command, overtaken }) = queue.front() else {
                break;
            };
            let Some(subject) = Subject::of(command) else {
                break;
            };
            let position = batch.subjects.len();
            if *overtaken {
                batch.errors.insert(position, OpError::new(libc::ECANCELED));
            } else if writes.push(command) {
                batch.sent.push(position);
            } else if writes.is_empty() {
                // It has more next hops than a route can have.
                batch.errors.insert(position, OpError::new(libc::EINVAL));
            } else {
                break;
            }
            batch.subjects.push(subject);
            queue.pop();
        }
        batch.barrier = batch.sent.last().copied();
        batch.octets = writes.into_octets();
        batch
    }

    /// Records the outcomes of writes by another process. Returns whether the message has them all.
    pub(super) fn outcomes(&mut self, message: &[u8]) -> bool {
        let outcomes = Outcomes::parse(message);
        let Some(outcomes) = outcomes.filter(|all| usize::from(all.count) == self.sent.len())
        else {
            return false;
        };
        for (position, error) in outcomes.errors {
            if let Some(position) = self.sent.get(usize::from(position)) {
                self.errors.insert(*position, error);
            }
        }
        true
    }

    /// Returns the first sequence number for the next batch.
    pub(super) fn next_sequence(&self) -> u32 {
        self.first.wrapping_add(self.subjects.len() as u32)
    }

    /// Returns the number of requests.
    pub(super) fn len(&self) -> usize {
        self.subjects.len()
    }

    /// Returns whether the batch has nothing to send.
    pub(super) fn is_void(&self) -> bool {
        self.barrier.is_none()
    }

    /// Records the answer to one request. Returns whether it was the last one.
    pub(super) fn answer(&mut self, sequence: u32, result: Result<(), OpError>) -> bool {
        let position = sequence.wrapping_sub(self.first) as usize;
        if position >= self.subjects.len() {
            return false;
        }
        if let Err(error) = result {
            self.errors.insert(position, error);
        }
        self.barrier == Some(position)
    }

    /// Returns the outcomes, once the last answer has arrived.
    pub(super) fn finish(self) -> impl Iterator<Item = Event> {
        let mut errors = self.errors;
        self.subjects
            .into_iter()
            .enumerate()
            .map(move |(position, subject)| {
                subject.outcome(errors.remove(&position).map_or(Ok(()), Err))
            })
    }

    /// Returns the outcomes when no answer will arrive: a request that was not refused has an
    /// unknown outcome.
    pub(super) fn fail(mut self, errno: i32) -> impl Iterator<Item = Event> {
        for position in 0..self.subjects.len() {
            self.errors
                .entry(position)
                .or_insert_with(|| OpError::new(errno));
        }
        self.finish()
    }

    /// Adds a request unless the batch would exceed the size that the kernel accepts at once.
    fn append(&mut self, request: &[u8]) -> bool {
        let start = self.octets.len();
        if start > 0 && start + request.len() > BATCH_OCTETS_MAX {
            return false;
        }
        self.octets.extend_from_slice(request);
        self.last_at = start;
        self.barrier = Some(self.subjects.len());
        true
    }

    fn ask_for_acknowledgment(&mut self) {
        // `nlmsg_flags` is at octet six of the header.
        let at = self.last_at + 6;
        if let Some(flags) = self.octets.get_mut(at..at + 2)
            && let Some(flags) = flags.first_chunk_mut::<2>()
        {
            *flags = (u16::from_ne_bytes(*flags) | NLM_F_ACK).to_ne_bytes();
        }
    }
}

/// The object of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Route(RouteKey),
    Nexthop(u32),
}

impl Subject {
    /// Returns the object of a command; `None` if it reads.
    const fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Put(key, ..) | Command::Delete(key, _) => Some(Self::Route(*key)),
            Command::Nexthop(NexthopCommand::Create(nexthop)) => Some(Self::Nexthop(nexthop.id)),
            Command::Nexthop(NexthopCommand::Delete(id)) => Some(Self::Nexthop(*id)),
            Command::Nexthop(NexthopCommand::Dump) | Command::Dump { .. } => None,
        }
    }

    const fn outcome(self, result: Result<(), OpError>) -> Event {
        match self {
            Self::Route(key) => Event::Applied(key, result),
            Self::Nexthop(id) => Event::Nexthop(NexthopEvent::Applied(id, result)),
        }
    }
}

/// Returns the message of a write, padded to four octets.
fn request(command: &Command, sequence: u32) -> Option<Vec<u8>> {
    let (message, flags) = match command {
        Command::Put(key, route, mode) => put(key, route, *mode),
        Command::Delete(key, owner) => delete(key, *owner),
        Command::Nexthop(NexthopCommand::Create(one)) => {
            return nexthop::request(Request::Create(one), sequence);
        }
        Command::Nexthop(NexthopCommand::Delete(id)) => {
            return nexthop::request(Request::Delete(*id), sequence);
        }
        Command::Nexthop(NexthopCommand::Dump) | Command::Dump { .. } => return None,
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, message.into());
    message.finalize();
    let mut octets = vec![0; message.buffer_len().next_multiple_of(4)];
    message.serialize(&mut octets);
    Some(octets)
}

fn put(key: &RouteKey, route: &Route, mode: PutMode) -> (RouteNetlinkMessage, u16) {
    let mut message = message(key);
    message.header.protocol = RouteProtocol::from(route.protocol);
    message.header.kind = kind(route.kind);
    message.header.scope = match (key.is_ipv6(), route.scope) {
        (true, _) | (_, Scope::Universe) => RouteScope::Universe,
        (_, Scope::Link) => RouteScope::Link,
        (_, Scope::Host) => RouteScope::Host,
        (_, Scope::Other(scope)) => RouteScope::Other(scope),
    };
    let attributes = &mut message.attributes;
    attributes.extend(
        route
            .source
            .map(|source| RouteAttribute::PrefSource(address(source))),
    );
    match route.next_hops.as_slice() {
        _ if !route.kind.forwards() => {}
        _ if route.nexthop.is_some() => {
            attributes.extend(route.nexthop.map(RouteAttribute::NhId));
        }
        [hop] => {
            attributes.extend(hop.interface.map(RouteAttribute::Oif));
            attributes.extend(gateway(key, hop));
            if hop.onlink {
                message.header.flags = netlink_packet_route::route::RouteFlags::from_bits_retain(
                    u32::from(super::parse::ONLINK),
                );
            }
        }
        hops => {
            let hops = hops.iter().map(|hop| next_hop(key, hop)).collect();
            attributes.push(RouteAttribute::MultiPath(hops));
        }
    }
    let flags = match mode {
        PutMode::Create => NLM_F_CREATE | NLM_F_EXCL,
        PutMode::Replace => NLM_F_REPLACE,
    };
    (RouteNetlinkMessage::NewRoute(message), flags)
}

/// Builds a delete request. It names the owner and leaves type and hops open, so that it matches
/// the own route in whatever state it is. The scope `RT_SCOPE_NOWHERE` matches any scope in IPv4.
fn delete(key: &RouteKey, owner: Owner) -> (RouteNetlinkMessage, u16) {
    let mut message = message(key);
    message.header.protocol = RouteProtocol::from(owner.0);
    message.header.kind = RouteType::Unspec;
    message.header.scope = RouteScope::NoWhere;
    (RouteNetlinkMessage::DelRoute(message), 0)
}

/// Builds the part of a route message that identifies the key.
fn message(key: &RouteKey) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: if key.is_ipv6() {
            AddressFamily::Inet6
        } else {
            AddressFamily::Inet
        },
        destination_prefix_length: key.prefix.prefix_len(),
        tos: key.tos,
        table: table_octet(key.table),
        ..RouteHeader::default()
    };
    message
        .attributes
        .push(RouteAttribute::Destination(destination(&key.prefix)));
    message
        .attributes
        .push(RouteAttribute::Priority(key.metric));
    if message.header.table == RouteHeader::RT_TABLE_UNSPEC {
        message.attributes.push(RouteAttribute::Table(key.table));
    }
    message
}

/// Returns the table as the header's octet, or `RT_TABLE_UNSPEC` when the number does not fit and
/// an attribute has to carry it.
pub(super) fn table_octet(table: u32) -> u8 {
    u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC)
}

fn next_hop(key: &RouteKey, hop: &Hop) -> RouteNextHop {
    let mut next_hop = RouteNextHop::default();
    next_hop.interface_index = hop.interface.unwrap_or(0);
    next_hop.hops = u8::try_from(hop.weight.clamp(1, 256) - 1).unwrap_or(u8::MAX);
    next_hop.attributes.extend(gateway(key, hop));
    if hop.onlink {
        next_hop.flags = RouteNextHopFlags::Onlink;
    }
    next_hop
}

fn gateway(key: &RouteKey, hop: &Hop) -> Option<RouteAttribute> {
    let gateway = hop.gateway?;
    Some(if gateway.is_ipv6() == key.is_ipv6() {
        RouteAttribute::Gateway(address(gateway))
    } else {
        RouteAttribute::Via(RouteVia::from(gateway))
    })
}

fn destination(prefix: &IpNet) -> RouteAddress {
    address(prefix.addr())
}

fn address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

fn kind(kind: RouteKind) -> RouteType {
    match kind {
        RouteKind::Unicast => RouteType::Unicast,
        RouteKind::Local => RouteType::Local,
        RouteKind::Blackhole => RouteType::BlackHole,
        RouteKind::Unreachable => RouteType::Unreachable,
        RouteKind::Prohibit => RouteType::Prohibit,
        RouteKind::Throw => RouteType::Throw,
        RouteKind::Other(kind) => RouteType::Other(kind),
    }
}
