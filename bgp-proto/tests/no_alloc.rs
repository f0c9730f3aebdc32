//! Splitting an UPDATE, hashing its attributes and iterating over its routes does not allocate.
#![allow(clippy::unwrap_used)] // helpers of tests

mod counting;

use std::hash::{DefaultHasher, Hasher};

use bgp_proto::{
    AsPath, Asn, Attributes, EncodeParams, Family, FamilySet, NextHop, Nlri, PeerKind,
    SessionParams, UpdateView, UpdateWriter, next_frame,
};
use bytes::BytesMut;

/// How many allocations `work` makes on this thread.
fn allocations(work: impl FnOnce()) -> usize {
    let before = counting::allocations();
    work();
    counting::allocations() - before
}

fn message(family: Family, next_hop: NextHop) -> BytesMut {
    let set = Attributes {
        as_path: AsPath::sequence(&[Asn(64_512), Asn(4_200_000_000)]),
        communities: vec![bgp_proto::Community::NO_EXPORT],
        local_pref: Some(100),
        ..Attributes::default()
    };
    let mut block = Vec::new();
    set.encode(true, &mut block);
    let encode = EncodeParams {
        as4: true,
        add_path: false,
        octets_max: 4096,
    };
    let mut out = BytesMut::new();
    let mut writer = UpdateWriter::reach(&mut out, family, &block, &next_hop, &encode);
    for index in 0..100_u32 {
        let net = if family == Family::IPV4_UNICAST {
            bgp_proto::Ipv4Prefix::host(index.into()).into()
        } else {
            bgp_proto::Ipv6Prefix::host(u128::from(index).into()).into()
        };
        writer.push(&Nlri::new(net)).unwrap();
    }
    writer.finish();
    out
}

// Promise (BGP): Receiving a known attribute set allocates nothing.
#[test]
fn receiving_a_known_set_allocates_nothing() {
    let params = SessionParams {
        kind: PeerKind::Internal,
        as4: true,
        families: FamilySet::UNICAST,
        ..SessionParams::default()
    };
    let cases = [
        (Family::IPV4_UNICAST, NextHop::V4([10, 0, 0, 1].into())),
        (
            Family::IPV6_UNICAST,
            NextHop::v6("2001:db8::1".parse().unwrap()),
        ),
    ];
    for (family, next_hop) in cases {
        let frame = next_frame(&mut message(family, next_hop), 4096)
            .unwrap()
            .unwrap();
        let mut known = Vec::new();
        let (view, _) = UpdateView::parse(&frame.body, &params).unwrap();
        view.batches()
            .for_each(|batch| batch.attrs.unwrap().write_key(&mut known));

        let mut routes = 0;
        let count = allocations(|| {
            let (view, faults) = UpdateView::parse(&frame.body, &params).unwrap();
            assert!(faults.is_empty() && view.end_of_rib().is_none());
            for batch in view.batches() {
                let attrs = batch.attrs.unwrap();
                let mut hasher = DefaultHasher::new();
                attrs.hash(&mut hasher);
                assert!(hasher.finish() != 0 && attrs.eq_key(&known));
                routes += batch
                    .unreach
                    .chain(batch.reach)
                    .filter(Result::is_ok)
                    .count();
            }
        });
        assert_eq!((routes, count), (100, 0), "{family}");
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}
