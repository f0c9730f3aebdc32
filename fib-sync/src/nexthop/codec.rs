//! Messages about nexthop objects: `RTM_NEWNEXTHOP`, `RTM_DELNEXTHOP` and `RTM_GETNEXTHOP`
//! (`linux/nexthop.h`). Any octets are an object or rejected.

use std::net::IpAddr;

use super::{Member, Nexthop, NexthopContent};
use crate::limits::HOPS_MAX;
use crate::owner::Owner;
use crate::route::Hop;

/// Octets of `struct nlmsghdr`.
const MESSAGE_HEADER: usize = 16;
/// Octets of `struct nhmsg`: family, scope, protocol, reserved, flags.
const HEADER: usize = 8;
/// Octets of `struct nexthop_grp`: id, weight less one, high octet of the weight, reserved.
const MEMBER: usize = 8;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;

/// Type of a message with a created, changed or read object.
pub(crate) const RTM_NEWNEXTHOP: u16 = 104;
/// Type of a message with a deleted object.
pub(crate) const RTM_DELNEXTHOP: u16 = 105;
const RTM_GETNEXTHOP: u16 = 106;

const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP: u16 = 8;
const NHA_FDB: u16 = 11;

/// `NEXTHOP_GRP_TYPE_MPATH`.
const MULTIPATH: u16 = 0;
/// `RTNH_F_ONLINK`.
const ONLINK: u32 = 4;

/// `NLA_TYPE_MASK`: without the flags of nesting and byte order.
const TYPE_MASK: u16 = 0x3fff;

/// A request to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Reads all objects.
    Dump,
    /// Creates an object.
    Create(&'a Nexthop),
    /// Deletes the object with this number.
    Delete(u32),
}

/// Returns the netlink message of a request, padded to four octets; `None` for an object that this
/// crate does not write.
#[must_use]
pub fn request(request: Request<'_>, sequence: u32) -> Option<Vec<u8>> {
    let (kind, flags) = match request {
        Request::Dump => (RTM_GETNEXTHOP, NLM_F_DUMP),
        Request::Create(_) => (RTM_NEWNEXTHOP, NLM_F_CREATE | NLM_F_EXCL),
        Request::Delete(_) => (RTM_DELNEXTHOP, 0),
    };
    let mut to = vec![0; 4];
    to.extend(kind.to_ne_bytes());
    to.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    to.extend(sequence.to_ne_bytes());
    to.extend([0; 4]);
    match request {
        Request::Dump => to.extend([0; HEADER]),
        Request::Delete(id) => {
            to.extend([0; HEADER]);
            attribute(&mut to, NHA_ID, &id.to_ne_bytes());
        }
        Request::Create(nexthop) => put(&mut to, nexthop)?,
    }
    let length = u32::try_from(to.len()).ok()?;
    *to.first_chunk_mut()? = length.to_ne_bytes();
    debug_assert!(to.len() >= MESSAGE_HEADER + HEADER);
    Some(to)
}

fn put(to: &mut Vec<u8>, nexthop: &Nexthop) -> Option<()> {
    let id = nexthop.id.to_ne_bytes();
    match &nexthop.content {
        NexthopContent::Hop(hop) => {
            let (gateway, interface) = (hop.gateway?, hop.interface?);
            let family = if gateway.is_ipv6() {
                libc::AF_INET6
            } else {
                libc::AF_INET
            };
            let flags = if hop.onlink { ONLINK } else { 0 };
            header(to, family as u8, nexthop.owner, flags);
            attribute(to, NHA_ID, &id);
            attribute(to, NHA_OIF, &interface.to_ne_bytes());
            match gateway {
                IpAddr::V4(gateway) => attribute(to, NHA_GATEWAY, &gateway.octets()),
                IpAddr::V6(gateway) => attribute(to, NHA_GATEWAY, &gateway.octets()),
            }
        }
        NexthopContent::Group(members) if !members.is_empty() && members.len() <= HOPS_MAX => {
            header(to, libc::AF_UNSPEC as u8, nexthop.owner, 0);
            attribute(to, NHA_ID, &id);
            let mut octets = Vec::with_capacity(members.len() * MEMBER);
            for member in members {
                octets.extend(member.id.to_ne_bytes());
                let weight = member.weight.clamp(1, 256) - 1;
                octets.extend([u8::try_from(weight).ok()?, 0, 0, 0]);
            }
            attribute(to, NHA_GROUP, &octets);
        }
        _ => return None,
    }
    Some(())
}

fn header(to: &mut Vec<u8>, family: u8, owner: Owner, flags: u32) {
    to.extend([family, 0, owner.0, 0]);
    to.extend(flags.to_ne_bytes());
}

/// Appends an attribute, padded to four octets.
fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // Values have at most HOPS_MAX members.
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    to.extend(length.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Parses the content of a message about an object, without the header of the message; `None` if it
/// has no number or is malformed.
#[must_use]
pub fn parse(payload: &[u8]) -> Option<Nexthop> {
    let (&[_, _, protocol, _, f0, f1, f2, f3], attributes) =
        payload.split_first_chunk::<HEADER>()?;
    let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
    let (mut id, mut members, mut kind) = (0, None, MULTIPATH);
    let (mut is_blackhole, mut is_other) = (false, false);
    let mut hop = Hop {
        gateway: None,
        interface: None,
        weight: 1,
        onlink: flags & ONLINK != 0,
    };
    for (attribute, value) in attributes_of(attributes) {
        match attribute {
            NHA_ID => id = u32::from_ne_bytes(value.try_into().ok()?),
            NHA_GROUP => members = Some(group(value)?),
            NHA_GROUP_TYPE => kind = u16::from_ne_bytes(value.try_into().ok()?),
            NHA_BLACKHOLE => is_blackhole = true,
            NHA_OIF => hop.interface = Some(u32::from_ne_bytes(value.try_into().ok()?)),
            NHA_GATEWAY => hop.gateway = Some(address(value)?),
            NHA_ENCAP | NHA_FDB => is_other = true,
            _ => {}
        }
    }
    let content = match members {
        _ if is_other || kind != MULTIPATH => NexthopContent::Other,
        Some(members) => NexthopContent::Group(members),
        None if is_blackhole => NexthopContent::Blackhole,
        None => NexthopContent::Hop(hop),
    };
    (id != 0).then_some(Nexthop {
        id,
        owner: Owner(protocol),
        content,
    })
}

fn group(octets: &[u8]) -> Option<Vec<Member>> {
    let (members, rest) = octets.as_chunks::<MEMBER>();
    let member = |&[i0, i1, i2, i3, low, high, ..]: &[u8; MEMBER]| Member {
        id: u32::from_ne_bytes([i0, i1, i2, i3]),
        weight: u16::from_le_bytes([low, high]).saturating_add(1),
    };
    rest.is_empty()
        .then(|| members.iter().map(member).collect())
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    let short = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    short
        .or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from))
        .ok()
}

/// Returns type and value of each attribute; ends at the first that does not fit.
fn attributes_of(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let &[l0, l1, k0, k1] = octets.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = octets.get(4..length)?;
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]) & TYPE_MASK, value))
    })
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
