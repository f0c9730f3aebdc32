//! Asserts that receiving interned attributes allocates nothing.

#[path = "../../bgp-proto/tests/counting/mod.rs"]
mod counting;

use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::{
    AsPath, Asn, Attributes, Community, EncodeParams, Family, FamilySet, Ipv4Prefix, Net, NextHop,
    Nlri, PeerKind, RouterId, SessionParams, UpdateView, UpdateWriter,
};
use bytes::BytesMut;
use rib::{Budget, Cursor, PeerId, PeerInfo, Policy, Progress, Rib, RibConfig, Role};

const PREFIXES: u32 = 500;

fn message(attributes: &Attributes) -> BytesMut {
    let params = EncodeParams {
        as4: true,
        add_path: false,
        octets_max: 4096,
    };
    let mut block = Vec::new();
    attributes.encode(true, &mut block);
    let next_hop = attributes.next_hop.clone().expect("next hop");
    let mut out = BytesMut::new();
    let family = Family::IPV4_UNICAST;
    let mut writer = UpdateWriter::reach(&mut out, family, &block, &next_hop, &params);
    for at in 0..PREFIXES {
        let prefix = Ipv4Prefix::host(Ipv4Addr::from(0x0a41_0000 + at));
        writer.push(&Nlri::new(Net::V4(prefix))).expect("room");
    }
    writer.finish();
    out
}

fn attributes(number: u16) -> Attributes {
    Attributes {
        as_path: AsPath::sequence(&[Asn(65_001), Asn(u32::from(number) + 1)]),
        next_hop: Some(NextHop::V4(Ipv4Addr::new(10, 0, 0, 9))),
        communities: vec![Community::new(65_001, number)],
        ..Attributes::default()
    }
}

fn params() -> SessionParams {
    SessionParams {
        local_asn: Asn(64_512),
        peer_asn: Asn(65_001),
        kind: PeerKind::External,
        as4: true,
        families: FamilySet::UNICAST,
        ..SessionParams::default()
    }
}

fn rib(multipath_max: u16) -> Rib {
    let mut rib = Rib::new(
        RibConfig::default().with(|config| {
            config.local_asn = Asn(64_512);
            config.multipath_max = multipath_max;
        }),
        1,
    );
    for peer in 1..=2u8 {
        let address = Ipv4Addr::new(10, 0, 0, peer);
        rib.peer_up(
            PeerId(u16::from(peer)),
            PeerInfo {
                role: Role::External,
                asn: Asn(65_001),
                id: RouterId(address),
                address: IpAddr::V4(address),
                local: None,
                import: Policy::AcceptAll,
                local_asn: Asn(64_512),
                as_path: Default::default(),
                cluster_id: Default::default(),
                domain: Default::default(),
                link: None,
                origin: rib::OriginRules::default(),
            },
        );
    }
    rib
}

fn ingest(rib: &mut Rib, peer: PeerId, message: &[u8], params: &SessionParams) {
    let (view, faults) = UpdateView::parse(&message[19..], params).expect("parses");
    assert!(faults.is_empty());
    for batch in view.batches() {
        let done = rib.ingest(peer, &batch);
        assert_eq!((done.reach, done.faults.len()), (PREFIXES, 0));
    }
}

/// Performs a round of all operations: two peers alternate between two attribute sets each;
/// decided, read, trimmed.
fn round(rib: &mut Rib, messages: &[BytesMut], params: &SessionParams, cursor: &mut Cursor) {
    for message in messages {
        for peer in [PeerId(1), PeerId(2)] {
            ingest(rib, peer, message, params);
            ingest(rib, peer, message, params);
        }
        while rib.decide(Budget(1024)) != Progress::Done {}
        let mut seen = 0;
        let family = Family::IPV4_UNICAST;
        while rib.changes(family, cursor, Budget(256), &mut |_| seen += 1) != Progress::Done {}
        assert_eq!(seen, PREFIXES);
        rib.trim(family, &[*cursor]);
    }
}

#[test]
fn receiving_what_is_interned_allocates_nothing() {
    for multipath_max in [1, 4] {
        let mut rib = rib(multipath_max);
        let params = params();
        let messages: Vec<_> = (0..3).map(|number| message(&attributes(number))).collect();
        let mut cursor = Cursor::initial();
        // The path of another peer keeps every set alive between rounds.
        for (number, message) in (0..).zip(&messages) {
            let peer = PeerId(3 + number);
            rib.peer_up(
                peer,
                PeerInfo {
                    role: Role::External,
                    asn: Asn(65_001),
                    id: RouterId(Ipv4Addr::new(10, 0, 1, number as u8)),
                    address: IpAddr::V4(Ipv4Addr::new(10, 0, 1, number as u8)),
                    local: None,
                    import: Policy::AcceptAll,
                    local_asn: Asn(64_512),
                    as_path: Default::default(),
                    cluster_id: Default::default(),
                    domain: Default::default(),
                    link: None,
                    origin: rib::OriginRules::default(),
                },
            );
            ingest(&mut rib, peer, message, &params);
        }
        round(&mut rib, &messages, &params, &mut cursor);
        round(&mut rib, &messages, &params, &mut cursor);
        let before = counting::allocations();
        round(&mut rib, &messages, &params, &mut cursor);
        assert_eq!(
            counting::allocations() - before,
            0,
            "with {multipath_max} paths in use at once"
        );
        assert_eq!(rib.stats().attribute_sets, messages.len());
    }
}

#[test]
fn the_first_coming_of_a_set_does_allocate() {
    // Proves that the counter above works.
    let mut rib = rib(1);
    let before = counting::allocations();
    ingest(&mut rib, PeerId(1), &message(&attributes(1)), &params());
    assert!(counting::allocations() > before);
}
