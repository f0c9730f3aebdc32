//! Writes and their outcomes as octets. Any octets are read or rejected.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::error::OpError;
use crate::limits::{HOPS_MAX, WRITE_TEXT_OCTETS_MAX, WRITES_MAX, WRITES_OCTETS_MAX};
use crate::nexthop::{Member, Nexthop, NexthopCommand, NexthopContent};
use crate::owner::Owner;
use crate::port::{Command, PutMode};
use crate::route::{Hop, Route, RouteKey, RouteKind, Scope};

const CREATE: u8 = 1;
const REPLACE: u8 = 2;
const DELETE: u8 = 3;
const CREATE_NEXTHOP: u8 = 4;
const CREATE_GROUP: u8 = 5;
const DELETE_NEXTHOP: u8 = 6;

const GATEWAY_IPV4: u8 = 1;
const GATEWAY_IPV6: u8 = 2;
const INTERFACE: u8 = 4;
const ON_LINK: u8 = 8;

/// Octets of the number of writes.
const HEADER: usize = 2;

/// A message with writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    octets: Vec<u8>,
    count: u16,
}

impl Writes {
    /// Adds a write; returns false if it is none, or if the message has no room for it.
    pub fn push(&mut self, command: &Command) -> bool {
        if usize::from(self.count) >= WRITES_MAX {
            return false;
        }
        self.octets.resize(self.octets.len().max(HEADER), 0);
        let start = self.octets.len();
        let done = match command {
            Command::Put(key, route, mode) => self.put(key, route, *mode),
            Command::Delete(key, owner) => {
                self.octets.push(DELETE);
                self.key(key);
                self.octets.push(owner.0);
                true
            }
            Command::Nexthop(NexthopCommand::Create(nexthop)) => self.nexthop(nexthop),
            Command::Nexthop(NexthopCommand::Delete(id)) => {
                self.octets.push(DELETE_NEXTHOP);
                self.octets.extend(id.to_be_bytes());
                true
            }
            Command::Dump { .. } | Command::Nexthop(NexthopCommand::Dump) => false,
        };
        if !done || self.octets.len() > WRITES_OCTETS_MAX {
            self.octets.truncate(start);
            return false;
        }
        self.count += 1;
        true
    }

    /// Returns the number of writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.into()
    }

    /// Returns whether there are no writes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the octets of the message.
    #[must_use]
    pub fn into_octets(mut self) -> Vec<u8> {
        self.octets.resize(self.octets.len().max(HEADER), 0);
        if let Some(header) = self.octets.first_chunk_mut::<HEADER>() {
            *header = self.count.to_be_bytes();
        }
        self.octets
    }

    /// Parses a message; `None` if it is malformed.
    #[must_use]
    pub fn parse(octets: &[u8]) -> Option<Vec<Command>> {
        let mut octets = Octets(octets);
        let count = usize::from(octets.u16()?);
        if count > WRITES_MAX {
            return None;
        }
        let mut commands = Vec::with_capacity(count);
        for _ in 0..count {
            commands.push(command(&mut octets)?);
        }
        octets.0.is_empty().then_some(commands)
    }

    fn put(&mut self, key: &RouteKey, route: &Route, mode: PutMode) -> bool {
        self.octets.push(match mode {
            PutMode::Create => CREATE,
            PutMode::Replace => REPLACE,
        });
        self.key(key);
        let scope = match route.scope {
            Scope::Universe => 0,
            Scope::Link => 253,
            Scope::Host => 254,
            Scope::Other(scope) => scope,
        };
        let to = &mut self.octets;
        to.extend([route.protocol, kind_octet(route.kind), scope]);
        match route.source {
            None => to.push(0),
            Some(address) => put_address(to, address),
        }
        to.extend(route.nexthop.unwrap_or_default().to_be_bytes());
        let Ok(hops) = u16::try_from(route.next_hops.len()) else {
            return false;
        };
        to.extend(hops.to_be_bytes());
        for hop in &route.next_hops {
            put_hop(to, hop);
        }
        usize::from(hops) <= HOPS_MAX
    }

    fn nexthop(&mut self, nexthop: &Nexthop) -> bool {
        let to = &mut self.octets;
        let kind = match nexthop.content {
            NexthopContent::Group(_) => CREATE_GROUP,
            _ => CREATE_NEXTHOP,
        };
        to.push(kind);
        to.extend(nexthop.id.to_be_bytes());
        to.push(nexthop.owner.0);
        match &nexthop.content {
            NexthopContent::Hop(hop) => put_hop(to, hop),
            NexthopContent::Group(members) if members.len() <= HOPS_MAX => {
                let count = u16::try_from(members.len()).unwrap_or_default();
                to.extend(count.to_be_bytes());
                for member in members {
                    to.extend(member.id.to_be_bytes());
                    to.extend(member.weight.to_be_bytes());
                }
            }
            _ => return false,
        }
        true
    }

    fn key(&mut self, key: &RouteKey) {
        let to = &mut self.octets;
        put_address(to, key.prefix.addr());
        to.push(key.prefix.prefix_len());
        to.extend(key.table.to_be_bytes());
        to.extend(key.metric.to_be_bytes());
        to.push(key.tos);
    }
}

fn put_address(to: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            to.push(4);
            to.extend(address.octets());
        }
        IpAddr::V6(address) => {
            to.push(6);
            to.extend(address.octets());
        }
    }
}

fn put_hop(to: &mut Vec<u8>, hop: &Hop) {
    let gateway = match hop.gateway {
        None => 0,
        Some(IpAddr::V4(_)) => GATEWAY_IPV4,
        Some(IpAddr::V6(_)) => GATEWAY_IPV6,
    };
    let interface = if hop.interface.is_some() {
        INTERFACE
    } else {
        0
    };
    let on_link = if hop.onlink { ON_LINK } else { 0 };
    to.push(gateway | interface | on_link);
    to.extend(hop.weight.to_be_bytes());
    match hop.gateway {
        None => {}
        Some(IpAddr::V4(address)) => to.extend(address.octets()),
        Some(IpAddr::V6(address)) => to.extend(address.octets()),
    }
    if let Some(interface) = hop.interface {
        to.extend(interface.to_be_bytes());
    }
}

fn kind_octet(kind: RouteKind) -> u8 {
    match kind {
        RouteKind::Unicast => 1,
        RouteKind::Local => 2,
        RouteKind::Blackhole => 6,
        RouteKind::Unreachable => 7,
        RouteKind::Prohibit => 8,
        RouteKind::Throw => 9,
        RouteKind::Other(kind) => kind,
    }
}

fn kind_of(octet: u8) -> RouteKind {
    match octet {
        1 => RouteKind::Unicast,
        2 => RouteKind::Local,
        6 => RouteKind::Blackhole,
        7 => RouteKind::Unreachable,
        8 => RouteKind::Prohibit,
        9 => RouteKind::Throw,
        other => RouteKind::Other(other),
    }
}

fn command(octets: &mut Octets<'_>) -> Option<Command> {
    let kind = octets.u8()?;
    if matches!(kind, CREATE_NEXTHOP | CREATE_GROUP | DELETE_NEXTHOP) {
        return nexthop(kind, octets).map(Command::Nexthop);
    }
    let prefix = IpNet::new(octets.address()??, octets.u8()?).ok()?;
    let (table, metric, tos) = (octets.u32()?, octets.u32()?, octets.u8()?);
    let key = RouteKey::new(table, prefix, metric, tos);
    let protocol = octets.u8()?;
    let mode = match kind {
        CREATE => PutMode::Create,
        REPLACE => PutMode::Replace,
        DELETE => return Some(Command::Delete(key, Owner(protocol))),
        _ => return None,
    };
    let kind = kind_of(octets.u8()?);
    let scope = match octets.u8()? {
        0 => Scope::Universe,
        253 => Scope::Link,
        254 => Scope::Host,
        other => Scope::Other(other),
    };
    let source = octets.address()?;
    let nexthop = Some(octets.u32()?).filter(|id| *id != 0);
    let count = usize::from(octets.u16()?);
    if count > HOPS_MAX {
        return None;
    }
    let mut next_hops = Vec::with_capacity(count);
    for _ in 0..count {
        next_hops.push(hop(octets)?);
    }
    let route = Route {
        kind,
        next_hops,
        scope,
        source,
        protocol,
        nexthop,
    };
    Some(Command::Put(key, route, mode))
}

fn nexthop(kind: u8, octets: &mut Octets<'_>) -> Option<NexthopCommand> {
    let id = octets.u32()?;
    if kind == DELETE_NEXTHOP {
        return Some(NexthopCommand::Delete(id));
    }
    let owner = Owner(octets.u8()?);
    let content = match kind {
        CREATE_NEXTHOP => NexthopContent::Hop(hop(octets)?),
        _ => {
            let count = usize::from(octets.u16()?);
            if count > HOPS_MAX {
                return None;
            }
            let mut members = Vec::with_capacity(count);
            for _ in 0..count {
                let (id, weight) = (octets.u32()?, octets.u16()?);
                members.push(Member { id, weight });
            }
            NexthopContent::Group(members)
        }
    };
    Some(NexthopCommand::Create(Nexthop::new(id, owner, content)))
}

fn hop(octets: &mut Octets<'_>) -> Option<Hop> {
    let flags = octets.u8()?;
    let weight = octets.u16()?;
    let gateway = match flags & (GATEWAY_IPV4 | GATEWAY_IPV6) {
        0 => None,
        GATEWAY_IPV4 => Some(octets.take::<4>()?.into()),
        GATEWAY_IPV6 => Some(octets.take::<16>()?.into()),
        _ => return None,
    };
    let interface = match flags & INTERFACE {
        0 => None,
        _ => Some(octets.u32()?),
    };
    let is_known = flags & !(GATEWAY_IPV4 | GATEWAY_IPV6 | INTERFACE | ON_LINK) == 0;
    is_known.then_some(Hop {
        gateway,
        interface,
        weight,
        onlink: flags & ON_LINK != 0,
    })
}

/// The outcomes of a message with writes: how many, and the errors by position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcomes {
    /// The number of writes.
    pub count: u16,
    /// The writes that were not carried out.
    pub errors: Vec<(u16, OpError)>,
}

impl Outcomes {
    /// Returns the octets of the outcomes.
    #[must_use]
    pub fn to_octets(&self) -> Vec<u8> {
        let mut to = Vec::new();
        to.extend(self.count.to_be_bytes());
        let errors = self.errors.len().min(WRITES_MAX);
        to.extend(u16::try_from(errors).unwrap_or_default().to_be_bytes());
        for (position, error) in self.errors.iter().take(WRITES_MAX) {
            let errno = u16::try_from(error.errno).unwrap_or_default();
            let text = error.text.as_deref().unwrap_or_default();
            // The texts of many errors are alike, and the first ones suffice.
            let room = match to.len() < WRITES_OCTETS_MAX / 2 {
                true => WRITE_TEXT_OCTETS_MAX,
                false => 0,
            };
            let text = text
                .get(..text.floor_char_boundary(room))
                .unwrap_or_default();
            to.extend(position.to_be_bytes());
            to.extend(errno.to_be_bytes());
            to.push(u8::try_from(text.len()).unwrap_or_default());
            to.extend(text.as_bytes());
        }
        to
    }

    /// Parses outcomes; `None` if they are malformed.
    #[must_use]
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let mut octets = Octets(octets);
        let (count, errors) = (octets.u16()?, octets.u16()?);
        if errors > count {
            return None;
        }
        let mut outcomes = Self {
            count,
            errors: Vec::with_capacity(errors.into()),
        };
        for _ in 0..errors {
            let (position, errno) = (octets.u16()?, octets.u16()?);
            let length = octets.u8()?;
            let (text, rest) = octets.0.split_at_checked(length.into())?;
            octets.0 = rest;
            let text = String::from_utf8(text.to_vec()).ok()?;
            let error = OpError {
                errno: errno.into(),
                text: (!text.is_empty()).then(|| text.into()),
            };
            outcomes.errors.push((position, error));
        }
        let fits = outcomes
            .errors
            .iter()
            .all(|(position, _)| *position < count);
        (fits && octets.0.is_empty()).then_some(outcomes)
    }
}

/// Octets that are still to be read.
struct Octets<'a>(&'a [u8]);

impl Octets<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[octet]| octet)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    /// Returns an address, or that there is none.
    fn address(&mut self) -> Option<Option<IpAddr>> {
        Some(match self.u8()? {
            0 => None,
            4 => Some(self.take::<4>()?.into()),
            6 => Some(self.take::<16>()?.into()),
            _ => return None,
        })
    }
}
