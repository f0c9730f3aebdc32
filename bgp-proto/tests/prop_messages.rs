//! Properties of complete messages: an encoded message decodes to the same, and no octets cause a
//! panic.
#![allow(clippy::unwrap_used)] // helpers of tests

use bgp_proto::{
    Family, FamilySet, Fault, Frame, MessageKind, Net, Nlri, NlriIter, Notification, Open,
    RouteRefresh, SessionParams, UpdateView, next_frame, strategy,
};
use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;

fn only_frame(mut wire: BytesMut) -> Frame {
    let frame = next_frame(&mut wire, 65_535).unwrap().unwrap();
    assert!(wire.is_empty(), "one message exactly");
    frame
}

/// Runs every decoder over a body, as a session would.
fn decode_everything(kind: MessageKind, body: &[u8], params: &SessionParams) {
    match kind {
        MessageKind::Open => drop(Open::parse(body).map(|open| format!("{open:?}"))),
        MessageKind::Update => decode_update(body, params),
        MessageKind::Notification => {
            drop(Notification::parse(body).map(|notification| notification.to_string()));
        }
        _ => drop(RouteRefresh::parse(body)),
    }
}

fn decode_update(body: &[u8], params: &SessionParams) {
    let Ok((view, faults)) = UpdateView::parse(body, params) else {
        return;
    };
    let answer = |faults: &[Fault]| {
        for fault in faults {
            let notification = fault.notification(body);
            assert_eq!(notification.code, 3);
            assert!(!fault.to_string().is_empty());
        }
    };
    answer(&faults);
    let _ = view.end_of_rib();
    for batch in view.batches() {
        assert_eq!(batch.attrs.is_some(), !batch.reach.is_empty());
        if let Some(attrs) = &batch.attrs {
            let (set, faults) = attrs.parse();
            answer(&faults);
            let mut key = Vec::new();
            attrs.write_key(&mut key);
            assert!(attrs.eq_key(&key));
            assert_eq!(key.len(), attrs.key_octets());
            let mut octets = Vec::new();
            set.encode(true, &mut octets);
            set.encode(false, &mut octets);
        }
        let row = batch.family.row().unwrap();
        for nlri in batch.unreach.chain(batch.reach) {
            match nlri {
                Ok(Nlri {
                    net: Net::Opaque(octets),
                    ..
                }) => row.key(octets, &mut Vec::new()),
                Ok(_) => {}
                Err(fault) => answer(&[fault]),
            }
        }
    }
}

/// A valid UPDATE to be damaged.
fn update_body() -> impl Strategy<Value = Vec<u8>> {
    let routes = vec(strategy::ipv4_prefix(), 0..5);
    (
        strategy::attributes(true),
        strategy::next_hop_v6(),
        routes,
        any::<bool>(),
    )
        .prop_map(|(attributes, next_hop, routes, mp)| {
            let mut block = Vec::new();
            attributes.encode(true, &mut block);
            let params = bgp_proto::EncodeParams {
                as4: true,
                add_path: false,
                octets_max: 65_535,
            };
            let mut out = BytesMut::new();
            let next_hop = if mp {
                &next_hop
            } else {
                attributes.next_hop.as_ref().unwrap()
            };
            let family = Family::IPV4_UNICAST;
            let mut writer =
                bgp_proto::UpdateWriter::reach(&mut out, family, &block, next_hop, &params);
            for prefix in routes {
                writer.push(&Nlri::new(prefix.into())).unwrap();
            }
            writer.finish();
            out.get(19..).unwrap_or_default().to_vec()
        })
}

proptest! {
    #[test]
    fn open_round_trips(open in strategy::open()) {
        let mut out = BytesMut::new();
        open.encode(&mut out);
        let frame = only_frame(out);
        prop_assert_eq!(frame.kind, MessageKind::Open);
        prop_assert_eq!(Open::parse(&frame.body), Ok(open));
    }

    #[test]
    fn notification_round_trips(notification in strategy::notification()) {
        let mut out = BytesMut::new();
        notification.encode(&mut out);
        prop_assert_eq!(Notification::parse(&only_frame(out).body), Some(notification));
    }

    #[test]
    fn route_refresh_round_trips(refresh in strategy::route_refresh()) {
        let mut out = BytesMut::new();
        refresh.encode(&mut out);
        prop_assert_eq!(RouteRefresh::parse(&only_frame(out).body), Ok(refresh));
    }

    #[test]
    fn nlri_round_trip(
        (family, list) in strategy::family().prop_flat_map(|family| {
            (Just(family), vec((any::<u32>(), strategy::nlri_octets(family)), 0..20))
        }),
        add_path: bool,
    ) {
        let mut wire = Vec::new();
        for (path_id, octets) in &list {
            if add_path {
                wire.extend_from_slice(&path_id.to_be_bytes());
            }
            wire.extend_from_slice(octets);
        }
        let params = bgp_proto::EncodeParams { as4: true, add_path, octets_max: 65_535 };
        let mut out = BytesMut::new();
        let mut writer = bgp_proto::UpdateWriter::unreach(&mut out, family, &params);
        for nlri in NlriIter::new(family, add_path, &wire, 0) {
            writer.push(&nlri.unwrap()).unwrap();
        }
        writer.finish();
        prop_assert!(list.is_empty() || out.ends_with(&wire) || out.ends_with(&[&wire[..], &[0, 0]].concat()));
    }

    #[test]
    fn any_stream_of_octets_is_survived(octets in vec(any::<u8>(), 0..200), max in 0..70_000_usize) {
        let mut buf = BytesMut::from(&octets[..]);
        drop(next_frame(&mut buf, max));
    }

    #[test]
    fn any_body_is_survived(
        kind in 0..7_u8,
        body in vec(any::<u8>(), 0..300),
        params in strategy::session_params(),
    ) {
        decode_everything(MessageKind(kind), &body, &params);
    }

    #[test]
    fn damaged_updates_are_survived(
        mut body in update_body(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        cut_it: bool,
        mut params in strategy::session_params(),
    ) {
        params.families = params.families.union(FamilySet::UNICAST);
        for (at, octet) in damage {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = octet;
            }
        }
        if cut_it {
            body.truncate(cut.index(body.len() + 1));
        }
        decode_update(&body, &params);
    }

    #[test]
    fn damaged_opens_are_survived(
        open in strategy::open(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut out = BytesMut::new();
        open.encode(&mut out);
        let mut body = out.split_off(19);
        for (at, octet) in damage {
            let at = at.index(body.len());
            body[at] = octet;
        }
        if let Ok(open) = Open::parse(&body) {
            // A decoded message can be encoded again.
            let mut out = BytesMut::new();
            open.encode(&mut out);
            prop_assert_eq!(Open::parse(&only_frame(out).body), Ok(open));
        }
    }
}
