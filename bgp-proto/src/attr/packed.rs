//! Path attributes in as few octets as they take: the form in which tables hold them.
//!
//! A table holds a set for each bundle of routes and looks at it only when it announces one of
//! them. Typed, a set takes over 200 octets and several allocations; packed, one allocation of
//! some 40. Nothing is lost: also what is never sent on, as the flags of unknown attributes, comes
//! back as it was. Equal sets pack to equal octets, and only they do.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use crate::asn::Asn;
use crate::attr::aggregator::Aggregator;
use crate::attr::as_path::AsPath;
use crate::attr::code::AttrCode;
use crate::attr::next_hop::NextHop;
use crate::attr::origin::Origin;
use crate::attr::set::{Attributes, PartialBits};
use crate::attr::unknown::RawAttribute;
use crate::community::{Community, ExtendedCommunity, LargeCommunity};
use crate::id::{ClusterId, RouterId};
use crate::reader::Reader;

// Which parts follow. Those of fixed size have their own bit, lists have one each, too, so that an
// absent list takes no octet.
const NEXT_HOP_V4: u16 = 1;
const NEXT_HOP_V6: u16 = 1 << 1;
const NEXT_HOP_LINK_LOCAL: u16 = 1 << 2;
const NEXT_HOP_OPAQUE: u16 = 1 << 3;
const MED: u16 = 1 << 4;
const LOCAL_PREF: u16 = 1 << 5;
const ATOMIC_AGGREGATE: u16 = 1 << 6;
const AGGREGATOR: u16 = 1 << 7;
const COMMUNITIES: u16 = 1 << 8;
const ORIGINATOR_ID: u16 = 1 << 9;
const CLUSTER_LIST: u16 = 1 << 10;
const EXTENDED_COMMUNITIES: u16 = 1 << 11;
const LARGE_COMMUNITIES: u16 = 1 << 12;
const UNKNOWN: u16 = 1 << 13;

/// A set of path attributes in one small allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PackedAttributes(Box<[u8]>);

impl PackedAttributes {
    /// The packed form, to be compared with that of another set; its layout is not for keeping
    /// outside of a process.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }

    /// CLUSTER_LIST, the latest reflector first; looked at without unpacking.
    pub fn cluster_list(&self) -> impl Iterator<Item = ClusterId> + '_ {
        let list = || {
            let mut reader = Reader::new(&self.0, 0);
            let there = reader.u16()? & CLUSTER_LIST != 0;
            reader.u16()?;
            let length = if there { length(&mut reader)? } else { 0 };
            reader.take(4 * length)
        };
        let (ids, _) = list().unwrap_or_default().as_chunks::<4>();
        ids.iter()
            .map(|id| ClusterId::from(u32::from_be_bytes(*id)))
    }

    /// The set.
    pub fn unpack(&self) -> Attributes {
        let Some(set) = unpack(&mut Reader::new(&self.0, 0)) else {
            unreachable!("only a packer makes packed attributes");
        };
        set
    }
}

/// Packs sets, one after the other, in a buffer that it keeps.
#[derive(Debug, Default)]
pub struct Packer {
    octets: Vec<u8>,
}

impl Packer {
    /// Packs a set. The octets stay until the next one is packed.
    pub fn pack(&mut self, set: &Attributes) -> &[u8] {
        self.octets.clear();
        pack(set, &mut self.octets);
        &self.octets
    }

    /// The set packed last, to keep.
    pub fn keep(&self) -> PackedAttributes {
        PackedAttributes(self.octets.as_slice().into())
    }
}

fn pack(set: &Attributes, out: &mut Vec<u8>) {
    out.extend_from_slice(&parts(set).to_be_bytes());
    out.extend_from_slice(&[set.origin as u8, set.partial.octet()]);
    put_list(&set.cluster_list, out, |one| one.0.octets());
    put_octets(set.as_path.as_octets(), out);
    match &set.next_hop {
        None => {}
        Some(NextHop::V4(address)) => out.extend_from_slice(&address.octets()),
        Some(NextHop::V6 { global, link_local }) => {
            out.extend_from_slice(&global.octets());
            out.extend(link_local.iter().flat_map(core::net::Ipv6Addr::octets));
        }
        Some(NextHop::Opaque(octets)) => put_octets(octets, out),
    }
    let originator = set.originator_id.map(u32::from);
    for number in [set.med, set.local_pref, originator].into_iter().flatten() {
        out.extend_from_slice(&number.to_be_bytes());
    }
    if let Some(Aggregator { asn, id }) = set.aggregator {
        out.extend_from_slice(&asn.0.to_be_bytes());
        out.extend_from_slice(&id.octets());
    }
    put_list(&set.communities, out, |one| one.0.to_be_bytes());
    put_list(&set.extended_communities, out, |one| one.0);
    put_list(&set.large_communities, out, large_octets);
    if !set.unknown.is_empty() {
        put_length(set.unknown.len(), out);
        for attr in &set.unknown {
            out.extend_from_slice(&[attr.code.0, attr.flags]);
            put_octets(&attr.value, out);
        }
    }
}

fn parts(set: &Attributes) -> u16 {
    let next_hop = match &set.next_hop {
        None => 0,
        Some(NextHop::V4(_)) => NEXT_HOP_V4,
        Some(NextHop::V6 {
            link_local: None, ..
        }) => NEXT_HOP_V6,
        Some(NextHop::V6 { .. }) => NEXT_HOP_V6 | NEXT_HOP_LINK_LOCAL,
        Some(NextHop::Opaque(_)) => NEXT_HOP_OPAQUE,
    };
    let others = [
        (set.med.is_some(), MED),
        (set.local_pref.is_some(), LOCAL_PREF),
        (set.atomic_aggregate, ATOMIC_AGGREGATE),
        (set.aggregator.is_some(), AGGREGATOR),
        (!set.communities.is_empty(), COMMUNITIES),
        (set.originator_id.is_some(), ORIGINATOR_ID),
        (!set.cluster_list.is_empty(), CLUSTER_LIST),
        (!set.extended_communities.is_empty(), EXTENDED_COMMUNITIES),
        (!set.large_communities.is_empty(), LARGE_COMMUNITIES),
        (!set.unknown.is_empty(), UNKNOWN),
    ];
    others
        .into_iter()
        .filter(|(there, _)| *there)
        .fold(next_hop, |parts, (_, part)| parts | part)
}

fn unpack(reader: &mut Reader<'_>) -> Option<Attributes> {
    let parts = reader.u16()?;
    let has = |part: u16| parts & part != 0;
    let origin = Origin::from_octet(reader.u8()?)?;
    let partial = PartialBits::from_octet(reader.u8()?);
    let cluster_list = list(has(CLUSTER_LIST), reader, |r| r.u32().map(ClusterId::from))?;
    let as_path = AsPath::from_octets(octets(reader)?);
    let next_hop = next_hop(parts, reader)?;
    let mut number = |part: u16| {
        if has(part) {
            reader.u32().map(Some)
        } else {
            Some(None)
        }
    };
    let (med, local_pref) = (number(MED)?, number(LOCAL_PREF)?);
    let originator_id = number(ORIGINATOR_ID)?.map(RouterId::from);
    let aggregator = if has(AGGREGATOR) {
        let asn = Asn(reader.u32()?);
        let id = Ipv4Addr::from(reader.u32()?);
        Some(Aggregator { asn, id })
    } else {
        None
    };
    Some(Attributes {
        origin,
        as_path,
        next_hop,
        med,
        local_pref,
        atomic_aggregate: has(ATOMIC_AGGREGATE),
        aggregator,
        communities: list(has(COMMUNITIES), reader, |r| r.u32().map(Community))?,
        originator_id,
        cluster_list,
        extended_communities: list(has(EXTENDED_COMMUNITIES), reader, |r| {
            r.array().map(ExtendedCommunity)
        })?,
        large_communities: list(has(LARGE_COMMUNITIES), reader, large)?,
        unknown: list(has(UNKNOWN), reader, |r| {
            Some(RawAttribute {
                code: AttrCode(r.u8()?),
                flags: r.u8()?,
                value: octets(r)?.into(),
            })
        })?,
        partial,
    })
}

fn next_hop(parts: u16, reader: &mut Reader<'_>) -> Option<Option<NextHop>> {
    if parts & NEXT_HOP_V4 != 0 {
        return Some(Some(NextHop::V4(reader.array::<4>()?.into())));
    }
    if parts & NEXT_HOP_V6 != 0 {
        let global = reader.array::<16>()?.into();
        let link_local = if parts & NEXT_HOP_LINK_LOCAL != 0 {
            Some(reader.array::<16>()?.into())
        } else {
            None
        };
        return Some(Some(NextHop::V6 { global, link_local }));
    }
    if parts & NEXT_HOP_OPAQUE != 0 {
        return Some(Some(NextHop::Opaque(octets(reader)?.into())));
    }
    Some(None)
}

fn large_octets(one: &LargeCommunity) -> [u8; 12] {
    let mut octets = [0; 12];
    let parts = [one.global, one.local1, one.local2];
    for (place, part) in octets.chunks_exact_mut(4).zip(parts) {
        place.copy_from_slice(&part.to_be_bytes());
    }
    octets
}

fn large(reader: &mut Reader<'_>) -> Option<LargeCommunity> {
    Some(LargeCommunity {
        global: reader.u32()?,
        local1: reader.u32()?,
        local2: reader.u32()?,
    })
}

fn put_list<T, const N: usize>(list: &[T], out: &mut Vec<u8>, octets: impl Fn(&T) -> [u8; N]) {
    if !list.is_empty() {
        put_length(list.len(), out);
        list.iter()
            .for_each(|one| out.extend_from_slice(&octets(one)));
    }
}

fn list<'a, T>(
    there: bool,
    reader: &mut Reader<'a>,
    one: impl Fn(&mut Reader<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    if !there {
        return Some(Vec::new());
    }
    let length = length(reader)?;
    let mut list = Vec::with_capacity(length);
    for _ in 0..length {
        list.push(one(reader)?);
    }
    Some(list)
}

fn put_octets(octets: &[u8], out: &mut Vec<u8>) {
    put_length(octets.len(), out);
    out.extend_from_slice(octets);
}

fn octets<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let length = length(reader)?;
    reader.take(length)
}

/// Appends a length: seven bits an octet, the lowest first, the eighth bit says that more follow.
fn put_length(mut length: usize, out: &mut Vec<u8>) {
    while length > 0x7f {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

fn length(reader: &mut Reader<'_>) -> Option<usize> {
    let mut length = 0;
    let mut shift = 0;
    loop {
        let octet = reader.u8()?;
        length |= usize::from(octet & 0x7f).checked_shl(shift)?;
        if octet & 0x80 == 0 {
            return Some(length);
        }
        shift += 7;
    }
}
