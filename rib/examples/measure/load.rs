//! Routes with a distribution like that of the Internet, as UPDATEs.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use bgp_proto::{
    AsPath, Asn, Attributes, Community, EncodeParams, Family, Ipv4Prefix, Net, NextHop, Nlri,
    UpdateWriter,
};
use bytes::BytesMut;

pub(crate) const ASN: Asn = Asn(64_512);
pub(crate) const FAMILY: Family = Family::IPV4_UNICAST;
pub(crate) const PARAMS: EncodeParams = EncodeParams {
    as4: true,
    add_path: false,
    octets_max: 4096,
};

/// A small generator of random numbers (PCG).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) * below) >> 31
    }
}

/// Distinct prefixes with masks like the Internet's: 60 % are /24.
pub(crate) fn prefixes(count: usize, dice: &mut Dice) -> Vec<Ipv4Prefix> {
    let mut seen = BTreeSet::new();
    let mut prefixes = Vec::with_capacity(count);
    while prefixes.len() < count {
        let len = match dice.roll(100) {
            0..60 => 24,
            60..72 => 22,
            72..80 => 23,
            80..90 => 20 + dice.roll(2) as u8,
            _ => 16 + dice.roll(4) as u8,
        };
        let addr = 0x0100_0000 + dice.roll(0xdf00_0000 - 0x0100_0000) as u32;
        let prefix = Ipv4Prefix::new(Ipv4Addr::from(addr), len).expect("length");
        if seen.insert(prefix) {
            prefixes.push(prefix);
        }
    }
    prefixes
}

/// Cuts prefixes into bundles of very different sizes, eight on average.
pub(crate) fn bundles<'p>(prefixes: &'p [Ipv4Prefix], dice: &mut Dice) -> Vec<&'p [Ipv4Prefix]> {
    let mut bundles = Vec::new();
    let mut left = prefixes;
    while !left.is_empty() {
        let size = match dice.roll(100) {
            0..50 => 1,
            50..80 => 2 + dice.roll(4),
            80..95 => 5 + dice.roll(20),
            _ => 25 + dice.roll(140),
        };
        let (bundle, rest) = left.split_at(left.len().min(size as usize));
        bundles.push(bundle);
        left = rest;
    }
    bundles
}

/// Encodes UPDATEs for a bundle.
pub(crate) fn encode(attributes: &Attributes, prefixes: &[Ipv4Prefix], out: &mut Vec<BytesMut>) {
    let mut block = Vec::new();
    attributes.encode(true, &mut block);
    let next_hop = attributes.next_hop.clone().expect("next hop");
    let mut left = prefixes;
    while !left.is_empty() {
        let mut message = BytesMut::new();
        let mut writer = UpdateWriter::reach(&mut message, FAMILY, &block, &next_hop, &PARAMS);
        let mut taken = 0;
        for &prefix in left {
            if writer.push(&Nlri::new(Net::V4(prefix))).is_err() {
                break;
            }
            taken += 1;
        }
        writer.finish();
        out.push(message);
        left = &left[taken..];
    }
}

pub(crate) fn withdrawals(prefixes: &[Ipv4Prefix]) -> Vec<BytesMut> {
    let mut out = Vec::new();
    for chunk in prefixes.chunks(800) {
        let mut message = BytesMut::new();
        let mut writer = UpdateWriter::unreach(&mut message, FAMILY, &PARAMS);
        for &prefix in chunk {
            writer.push(&Nlri::new(Net::V4(prefix))).expect("room");
        }
        writer.finish();
        out.push(message);
    }
    out
}

pub(crate) fn external(hops: usize, number: u64, sender: u16, dice: &mut Dice) -> Attributes {
    let mut path = vec![Asn(65_000)];
    path.resize_with(hops, || Asn(1 + dice.roll(400_000) as u32));
    Attributes {
        as_path: AsPath::sequence(&path),
        next_hop: Some(NextHop::V4(Ipv4Addr::new(10, 1, 0, sender as u8))),
        communities: (0..number % 3)
            .map(|at| Community::new(65_000, at as u16))
            .collect(),
        ..Attributes::default()
    }
}
