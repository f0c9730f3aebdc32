//! Properties of path attributes: the canonical encoding decodes to the same set, and encoding a
//! set that was decoded from arbitrary octets is a fixed point.
#![allow(clippy::unwrap_used)] // helpers of tests

use bgp_proto::{
    AttrCode, Attributes, EncodeParams, Family, FamilySet, NextHop, Nlri, Packer, PeerKind,
    SessionParams, UpdateView, UpdateWriter, next_frame, strategy,
};
use bytes::{BufMut, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;

fn params(as4: bool) -> SessionParams {
    SessionParams {
        kind: PeerKind::Internal,
        as4,
        families: FamilySet::all(),
        extended_receive: true,
        extended_next_hop: true,
        ..SessionParams::default()
    }
}

/// Sends a set with one route and reads it back.
fn through_the_wire(set: &Attributes, family: Family, as4: bool) -> Attributes {
    let mut block = Vec::new();
    set.encode(as4, &mut block);
    let encode = EncodeParams {
        as4,
        add_path: false,
        octets_max: 65_535,
    };
    let mut out = BytesMut::new();
    let next_hop = set.next_hop.as_ref().unwrap();
    let mut writer = UpdateWriter::reach(&mut out, family, &block, next_hop, &encode);
    let net = match family {
        Family::IPV4_UNICAST => bgp_proto::Ipv4Prefix::DEFAULT.into(),
        _ => bgp_proto::Ipv6Prefix::DEFAULT.into(),
    };
    writer.push(&Nlri::new(net)).unwrap();
    writer.finish();
    let frame = next_frame(&mut out, 65_535).unwrap().unwrap();
    let params = params(as4);
    let (view, faults) = UpdateView::parse(&frame.body, &params).unwrap();
    assert_eq!(faults, []);
    let batches: Vec<_> = view.batches().collect();
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].family, family);
    assert_eq!(batches[0].reach.clone().count(), 1);
    let (set, faults) = batches[0].attrs.unwrap().parse();
    assert_eq!(faults, []);
    set
}

/// Reads attributes as they might be in a message with one IPv4 route.
fn decode(attributes: &[u8], as4: bool) -> Option<Attributes> {
    let mut body = BytesMut::new();
    body.put_u16(0);
    body.put_u16(u16::try_from(attributes.len()).unwrap());
    body.put_slice(attributes);
    body.put_slice(&[8, 10]);
    let (view, _) = UpdateView::parse(&body, &params(as4)).ok()?;
    let attrs = view.batches().find_map(|batch| batch.attrs)?;
    Some(attrs.parse().0)
}

/// Attributes with a plausible head and any value.
fn loose_attributes() -> impl Strategy<Value = Vec<u8>> {
    let code = prop_oneof![1..=18_u8, Just(32_u8), any::<u8>()];
    let value = prop_oneof![vec(any::<u8>(), 0..30), vec(0..4_u8, 0..30)];
    let flags = prop_oneof![Just(0x40_u8), Just(0x80), Just(0xc0), Just(0xe0)];
    vec((flags, code, value), 0..8).prop_map(|list| {
        let mut out = Vec::new();
        for (flags, code, value) in list {
            out.extend_from_slice(&[flags, code, u8::try_from(value.len()).unwrap()]);
            out.extend_from_slice(&value);
        }
        out
    })
}

proptest! {
    #[test]
    fn sets_round_trip(set in strategy::attributes(true)) {
        prop_assert_eq!(through_the_wire(&set, Family::IPV4_UNICAST, true), set);
    }

    #[test]
    fn packed_sets_lose_nothing_and_compare_as_sets_do(
        one in strategy::attributes(true),
        mut other in strategy::attributes(true),
        next_hop in proptest::option::of(strategy::next_hop_v6()),
        flags: u8,
        same: bool,
    ) {
        other.next_hop = next_hop;
        if let Some(unknown) = other.unknown.first_mut() {
            unknown.flags = flags;
        }
        if same {
            other = one.clone();
        }
        let mut packer = Packer::default();
        packer.pack(&one);
        let packed = packer.keep();
        prop_assert_eq!(packed.unpack(), one.clone());
        prop_assert!(packed.cluster_list().eq(one.cluster_list.iter().copied()));
        prop_assert_eq!(packed.octets() == packer.pack(&other), one == other);
        prop_assert_eq!(packer.keep().unpack(), other);
    }

    #[test]
    fn sets_round_trip_through_two_octets(set in strategy::attributes(false)) {
        // covers RFC 6793 §4.2.2, §4.2.3
        prop_assert_eq!(through_the_wire(&set, Family::IPV4_UNICAST, false), set);
    }

    #[test]
    fn multiprotocol_next_hops_round_trip(
        mut set in strategy::attributes(true),
        next_hop in strategy::next_hop_v6(),
        six: bool,
    ) {
        set.next_hop = Some(next_hop);
        let family = if six { Family::IPV6_UNICAST } else { Family::IPV4_UNICAST };
        prop_assert_eq!(through_the_wire(&set, family, true), set);
    }

    #[test]
    fn canonical_encoding_is_a_fixed_point(octets in loose_attributes(), as4: bool) {
        let Some(first) = decode(&octets, as4) else {
            return Ok(());
        };
        let mut once = Vec::new();
        first.encode(true, &mut once);
        let Some(second) = decode(&once, true) else {
            return Ok(());
        };
        let mut twice = Vec::new();
        second.encode(true, &mut twice);
        prop_assert_eq!(once, twice);
        prop_assert_eq!(&second.unknown, &first.unknown);
        prop_assert!(second.unknown.iter().all(|attr| attr.code != AttrCode::MpReach));
    }

    #[test]
    fn hashes_and_keys_agree(one in strategy::attributes(true), two in strategy::attributes(true)) {
        use std::hash::{DefaultHasher, Hasher};
        let body = |set: &Attributes, reach_first: bool| {
            // The same set, with MP_UNREACH_NLRI at either end.
            let mut block = Vec::new();
            set.encode(true, &mut block);
            let unreach = [0x80, 15, 3, 0, 2, 1];
            let list = if reach_first { [&block[..], &unreach] } else { [&unreach[..], &block] };
            let mut body = vec![0, 0];
            body.extend_from_slice(&u16::try_from(block.len() + 6).unwrap().to_be_bytes());
            body.extend(list.concat());
            body.extend([8, 10]);
            body
        };
        let params = params(true);
        let key = |body: &[u8]| {
            let (view, _) = UpdateView::parse(body, &params).unwrap();
            let attrs = view.batches().find_map(|batch| batch.attrs).unwrap();
            let mut key = Vec::new();
            attrs.write_key(&mut key);
            let mut hasher = DefaultHasher::new();
            attrs.hash(&mut hasher);
            (key, hasher.finish())
        };
        let (first, second) = (body(&one, true), body(&one, false));
        prop_assert_eq!(key(&first), key(&second));
        let other = body(&two, true);
        prop_assert_eq!(key(&first) == key(&other), one == two);
    }
}

proptest! {
    #[test]
    fn messages_are_full_but_not_too_long(
        set in strategy::attributes(true),
        routes in vec(strategy::ipv6_prefix(), 1..2000),
        next_hop in strategy::next_hop_v6(),
        add_path: bool,
        extended: bool,
    ) {
        let mut block = Vec::new();
        set.encode(true, &mut block);
        let octets_max = if extended { 65_535 } else { 4096 };
        let encode = EncodeParams { as4: true, add_path, octets_max };
        let mut out = BytesMut::new();
        let mut left = &routes[..];
        while !left.is_empty() {
            let start = out.len();
            let family = Family::IPV6_UNICAST;
            let mut writer = UpdateWriter::reach(&mut out, family, &block, &next_hop, &encode);
            let fits = left
                .iter()
                .take_while(|route| writer.push(&Nlri { path_id: 9, net: (**route).into() }).is_ok())
                .count();
            if fits == 0 {
                prop_assert!(writer.is_empty());
                writer.finish();
                prop_assert_eq!(out.len(), start, "nothing is left behind");
                prop_assert!(block.len() + 17 + 21 > octets_max - 23);
                return Ok(());
            }
            writer.finish();
            let len = out.len() - start;
            prop_assert!(len <= octets_max);
            left = &left[fits..];
            prop_assert!(left.is_empty() || len + 21 > octets_max, "{} octets", len);
        }
        let mut params = params(true);
        if add_path {
            params.add_path_receive = FamilySet::all();
        }
        let mut read = Vec::new();
        while let Some(frame) = next_frame(&mut out, octets_max).unwrap() {
            let (view, faults) = UpdateView::parse(&frame.body, &params).unwrap();
            prop_assert!(faults.is_empty());
            for batch in view.batches() {
                let (got, faults) = batch.attrs.unwrap().parse();
                prop_assert!(faults.is_empty());
                prop_assert_eq!(got.next_hop, Some(next_hop.clone()));
                read.extend(batch.reach.map(|nlri| nlri.unwrap().net.prefix().unwrap()));
            }
        }
        let sent: Vec<_> = routes.iter().map(|route| bgp_proto::Prefix::V6(*route)).collect();
        prop_assert_eq!(read, sent);
        prop_assert!(!matches!(next_hop, NextHop::V4(_)));
    }
}
