//! Memory is a formula: the octets per prefix, path, attribute set and group in `docs/numbers.md`
//! are upper limits. They include the spare capacity of a growing vector or index.

#[path = "../../bgp-proto/tests/counting/mod.rs"]
mod counting;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bgp_proto::{
    AsPath, Asn, Attributes, EncodeParams, Family, FamilySet, Ipv4Prefix, Ipv6Prefix, Net, NextHop,
    Nlri, PeerKind, RouterId, SessionParams, UpdateView, UpdateWriter,
};
use bytes::BytesMut;
use rib::{
    Budget, ExportSink, GroupRules, NextHopMode, PeerId, PeerInfo, Policy, Progress, Rib,
    RibConfig, Role, Run,
};

/// A prefix with its first path: the slot and its place in the index, both up to half empty.
const PREFIX_V4: usize = 2 * 32 + 21;
const PREFIX_V6: usize = 2 * 48 + 21;
/// The second path of a prefix and each further one, with the overhead of the list.
const PATH: usize = 20;
const PATH_LIST: usize = 96;
/// An attribute set: its octets with malloc's overhead, and its ranks.
const SET: usize = 2 * (16 + 28 + 16) + 12 + 32;
/// The cache entry of one set as received, for as many as are cached (two generations).
const RAW: usize = 2 * (64 + 64);
const RAW_SETS: usize = 2 * rib::limits::RAW_SETS_MAX;
/// The state of a group for a prefix, and the log until it was sent.
const GROUP: usize = 2 * 2 + 1;
/// Everything that does not grow.
const BASE: usize = 64 << 10;

const ASN: Asn = Asn(64_512);

/// The size of a table.
#[derive(Clone, Copy, Debug)]
struct Size {
    six: bool,
    prefixes: usize,
    paths_each: usize,
    sets: usize,
}

impl Size {
    /// Returns the limit by the formula.
    fn octets_max(&self) -> usize {
        let prefix = if self.six { PREFIX_V6 } else { PREFIX_V4 };
        let lists = match self.paths_each {
            1 => 0,
            paths => PATH_LIST + paths * PATH,
        };
        let raw = RAW * self.sets.min(RAW_SETS);
        BASE + self.prefixes * (prefix + lists + GROUP) + self.sets * SET + raw
    }
}

struct Deaf;

impl ExportSink for Deaf {
    fn reach(&mut self, _: &Nlri<'_>, _: &Run<'_>) {}
    fn unreach(&mut self, _: &Nlri<'_>, _: Option<PeerId>) {}
    fn unreach_only(&mut self, _: Net<'_>, _: PeerId) {}
}

fn net(size: Size, number: usize) -> Net<'static> {
    let number = number as u32;
    if size.six {
        let address = Ipv6Addr::from(u128::from(number) << 64 | 0x2001_0db8 << 96);
        Ipv6Prefix::new(address, 64).expect("a prefix").into()
    } else {
        let address = Ipv4Addr::from(0x0a00_0000 + (number << 8));
        Ipv4Prefix::new(address, 24).expect("a prefix").into()
    }
}

fn attributes(size: Size, number: usize) -> Attributes {
    let next_hop = if size.six {
        NextHop::v6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9))
    } else {
        NextHop::V4(Ipv4Addr::new(10, 0, 0, 9))
    };
    Attributes {
        as_path: AsPath::sequence(&[Asn(65_001), Asn(65_002), Asn(1 + number as u32)]),
        next_hop: Some(next_hop),
        ..Attributes::default()
    }
}

/// Returns the UPDATE with every route of one set of one peer.
fn update(size: Size, set: usize, each: impl Iterator<Item = usize>) -> Vec<BytesMut> {
    let family = if size.six {
        Family::IPV6_UNICAST
    } else {
        Family::IPV4_UNICAST
    };
    let params = EncodeParams {
        as4: true,
        add_path: false,
        octets_max: 4096,
    };
    let attributes = attributes(size, set);
    let mut block = Vec::new();
    attributes.encode(true, &mut block);
    let mut each = each.peekable();
    let mut messages = Vec::new();
    while each.peek().is_some() {
        let mut out = BytesMut::new();
        let next_hop = attributes.next_hop.as_ref();
        let mut writer = UpdateWriter::reach(&mut out, family, &block, next_hop, &params);
        while each
            .next_if(|&number| writer.push(&Nlri::new(net(size, number))).is_ok())
            .is_some()
        {}
        writer.finish();
        messages.push(out);
    }
    messages
}

fn fill(rib: &mut Rib, size: Size) {
    let params = SessionParams {
        local_asn: ASN,
        kind: PeerKind::External,
        as4: true,
        families: FamilySet::UNICAST,
        ..SessionParams::default()
    };
    for peer in 1..=size.paths_each {
        let address = Ipv4Addr::from(0x0a01_0000 + peer as u32);
        let id = PeerId(peer as u16);
        rib.peer_up(
            id,
            PeerInfo {
                cluster_id: Default::default(),
                domain: Default::default(),
                role: Role::External,
                asn: Asn(65_001),
                id: RouterId(address),
                address: IpAddr::V4(address),
                local: None,
                import: Policy::AcceptAll,
                local_asn: Asn(64_512),
                as_path: Default::default(),
                link: None,
                origin: rib::OriginRules::default(),
            },
        );
        // Each peer has sets of its own.
        let sets = size.sets / size.paths_each;
        for set in 0..sets {
            let each = (set..size.prefixes).step_by(sets);
            for message in update(size, (peer - 1) * sets + set, each) {
                let (view, faults) = UpdateView::parse(&message[19..], &params).expect("parses");
                assert!(faults.is_empty());
                for batch in view.batches() {
                    assert!(rib.ingest(id, &batch).faults.is_empty());
                }
            }
        }
    }
}

/// Returns the octets of the tables when everything is decided and sent to one group.
fn held(size: Size) -> usize {
    let before = counting::live();
    let mut rib = Rib::new(
        RibConfig::default().with(|config| config.local_asn = ASN),
        1,
    );
    let group = rib.add_group(GroupRules {
        local_asn: ASN,
        peer_asn: ASN,
        role: Role::Client,
        next_hop: NextHopMode::Keep,
        own_next_hop_v4: None,
        own_next_hop_v6: None,
        extended_next_hop: false,
        long_lived: false,
        link_bandwidth: None,
        cluster_id: Default::default(),
        domain: Default::default(),
        export: Policy::AcceptAll,
        add_path: Default::default(),
    });
    fill(&mut rib, size);
    while rib.decide(Budget(8192)) != Progress::Done {}
    for family in FamilySet::UNICAST.iter() {
        while rib.export(group, family, Budget(8192), &mut Deaf) != Progress::Done {}
        rib.trim(family, &[]);
    }
    // Memory allocated in another thread may be released in this one.
    let held = counting::live().wrapping_sub(before);
    let stats = rib.stats();
    assert_eq!(stats.attribute_sets, size.sets);
    held
}

#[test]
fn memory_of_tables_matches_the_formula() {
    let sizes = [
        (false, 100_000, 1, 10_000),
        (false, 70_000, 1, 100),
        (false, 50_000, 1, 50_000),
        (false, 10_000, 20, 2_000),
        (false, 20_000, 2, 20_000),
        (true, 100_000, 1, 10_000),
        (true, 10_000, 20, 2_000),
    ];
    for (six, prefixes, paths_each, sets) in sizes {
        let size = Size {
            six,
            prefixes,
            paths_each,
            sets,
        };
        let (held, most) = (held(size), size.octets_max());
        println!("{size:?}: {held} octets, {most} at most");
        assert!(held <= most, "{size:?}: {held} octets, {most} at most");
        assert!(
            held * 5 > most * 2,
            "{size:?}: {held} octets, the formula's {most} is too much"
        );
    }
}
