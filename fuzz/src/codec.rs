//! The codec: it does not panic on any octets, and encoded messages decode to the same values.

use bgp_proto::{
    Asn, Attributes, EncodeParams, Family, FamilySet, Frame, MessageKind, Nlri, Notification, Open,
    PeerKind, RouteBatch, RouteRefresh, SessionParams, UpdateView, UpdateWriter, next_frame,
};
use bytes::BytesMut;

use crate::octets::Octets;

/// Decodes a stream of octets as a peer could send it, in a session that the first octet selects.
pub fn message(data: &[u8]) {
    let mut octets = Octets(data);
    let params = params(octets.octet());
    let mut stream = BytesMut::from(octets.0);
    while let Ok(Some(frame)) = next_frame(&mut stream, params.receive_octets_max()) {
        read(&frame, &params);
    }
}

/// Decodes path attributes and NLRI of one UPDATE, without the framing that would make most inputs
/// invalid.
pub fn attributes(data: &[u8]) {
    let mut octets = Octets(data);
    let params = params(octets.octet());
    let nlri = usize::from(octets.octet() % 32);
    let nlri = octets.take(nlri);
    let block = octets.take(4000);
    let Ok(length) = u16::try_from(block.len()) else {
        return;
    };
    let body = [&[0, 0], &length.to_be_bytes()[..], block, nlri].concat();
    update(&body, &params);
}

/// Returns the session parameters that one octet selects.
fn params(choice: u8) -> SessionParams {
    let bit = |bit: u8| choice & (1 << bit) != 0;
    let every = if bit(3) {
        FamilySet::all()
    } else {
        FamilySet::UNICAST
    };
    SessionParams {
        local_asn: Asn(64512),
        peer_asn: if bit(0) { Asn(64512) } else { Asn(64513) },
        kind: if bit(0) {
            PeerKind::Internal
        } else {
            PeerKind::External
        },
        as4: bit(1),
        families: every,
        add_path_receive: if bit(2) { every } else { FamilySet::default() },
        extended_receive: bit(4),
        extended_send: bit(4),
        extended_next_hop: bit(5),
        ..SessionParams::default()
    }
}

fn read(frame: &Frame, params: &SessionParams) {
    match frame.kind {
        MessageKind::Open => {
            if let Ok(open) = Open::parse(&frame.body) {
                let mut out = BytesMut::new();
                open.encode(&mut out);
            }
        }
        MessageKind::Update => update(&frame.body, params),
        MessageKind::Notification => {
            let _shown =
                Notification::parse(&frame.body).map(|notification| notification.to_string());
        }
        MessageKind::RouteRefresh => {
            let _refresh = RouteRefresh::parse(&frame.body);
        }
        _ => {}
    }
}

fn update(body: &[u8], params: &SessionParams) {
    let Ok((view, faults)) = UpdateView::parse(body, params) else {
        return;
    };
    for fault in &faults {
        let _report = (fault.to_string(), fault.notification(body));
    }
    let _end = view.end_of_rib();
    for batch in view.batches() {
        let Some(block) = &batch.attrs else { continue };
        let mut key = Vec::new();
        block.write_key(&mut key);
        assert!(block.eq_key(&key), "a block equals the key it writes");
        let (attributes, _faults) = block.parse();
        rewritten(&attributes, &batch, params);
    }
}

/// Asserts that an internal peer decodes the re-encoded set to the very same set.
fn rewritten(attributes: &Attributes, batch: &RouteBatch<'_>, params: &SessionParams) {
    let Some(next_hop) = &attributes.next_hop else {
        return;
    };
    if batch.family != Family::IPV4_UNICAST && batch.family != Family::IPV6_UNICAST {
        return;
    }
    let nets: Vec<Nlri<'_>> = batch.reach.clone().map_while(Result::ok).take(8).collect();
    let peer = SessionParams {
        kind: PeerKind::Internal,
        peer_asn: params.local_asn,
        as4: true,
        add_path_receive: FamilySet::default(),
        ..params.clone()
    };
    let encode = EncodeParams {
        as4: true,
        add_path: false,
        octets_max: peer.send_octets_max(),
    };
    let mut block = Vec::new();
    attributes.encode(true, &mut block);
    let mut out = BytesMut::new();
    let mut writer = UpdateWriter::reach(&mut out, batch.family, &block, next_hop, &encode);
    let fits = nets
        .iter()
        .all(|nlri| writer.push(&Nlri::new(nlri.net)).is_ok());
    writer.finish();
    if !fits || nets.is_empty() {
        return;
    }
    let frame = next_frame(&mut out, peer.receive_octets_max())
        .expect("our own message")
        .expect("whole");
    let (view, faults) = UpdateView::parse(&frame.body, &peer).expect("our own UPDATE");
    assert!(
        faults.is_empty(),
        "we send no faults: {faults:?} in {:02x?}",
        frame.body
    );
    let back = view.batches().next().expect("the written routes");
    let (mut again, _) = back.attrs.as_ref().expect("attributes").parse();
    // LOCAL_PREF is mandatory inside an AS, so that its absence is a decision of the receiver.
    again.local_pref = attributes.local_pref;
    let mut block_again = Vec::new();
    again.encode(true, &mut block_again);
    assert_eq!(
        block_again, block,
        "the decoded attributes are encoded to the same octets"
    );
}
