use super::*;
use crate::{Attributes, Family, Ipv4Prefix, Net, NextHop, Nlri};
use alloc::vec;
use alloc::vec::Vec;
use bytes::BytesMut;

const PARAMS: EncodeParams = EncodeParams {
    as4: true,
    add_path: false,
    octets_max: 4096,
};

fn route(text: &str) -> Nlri<'static> {
    Nlri::new(Net::V4(text.parse::<Ipv4Prefix>().unwrap()))
}

/// The body of the only message.
fn body(out: &BytesMut) -> &[u8] {
    assert_eq!(
        usize::from(u16::from_be_bytes([out[16], out[17]])),
        out.len()
    );
    assert_eq!(out[18], 2);
    &out[19..]
}

fn block() -> Vec<u8> {
    let set = Attributes {
        next_hop: Some(NextHop::V4([9, 9, 9, 9].into())),
        local_pref: Some(100),
        ..Attributes::default()
    };
    let mut block = Vec::new();
    set.encode(true, &mut block);
    block
}

const ORIGIN_AND_PATH: [u8; 7] = [0x40, 1, 1, 0, 0x40, 2, 0];
const LOCAL_PREF: [u8; 7] = [0x40, 5, 4, 0, 0, 0, 100];

#[test]
fn ipv4_routes_are_in_the_nlri_field() {
    let (mut out, block) = (BytesMut::new(), block());
    let next_hop = NextHop::V4([10, 0, 0, 1].into());
    let mut writer =
        UpdateWriter::reach(&mut out, Family::IPV4_UNICAST, &block, &next_hop, &PARAMS);
    writer.push(&route("10.1.2.0/24")).unwrap();
    writer.push(&route("0.0.0.0/0")).unwrap();
    writer.finish();
    let next_hop = [0x40, 3, 4, 10, 0, 0, 1];
    let want = [
        &[0, 0, 0, 21][..],
        &ORIGIN_AND_PATH,
        &next_hop,
        &LOCAL_PREF,
        &[24, 10, 1, 2, 0],
    ];
    assert_eq!(body(&out), want.concat());
}

#[test]
fn a_flow_specification_needs_no_next_hop() {
    // covers RFC 8955 §4
    let (mut out, block) = (BytesMut::new(), block());
    let flow = [4, 1, 16, 10, 66];
    let mut writer = UpdateWriter::reach(&mut out, Family::IPV4_FLOWSPEC, &block, None, &PARAMS);
    writer.push(&Nlri::new(Net::Opaque(&flow))).unwrap();
    writer.finish();
    let reach = [&[0x90, 14, 0, 5 + 5, 0, 1, 133, 0, 0][..], &flow];
    let want = [
        &[0, 0, 0, 28][..],
        &reach.concat(),
        &ORIGIN_AND_PATH,
        &LOCAL_PREF,
    ];
    assert_eq!(body(&out), want.concat());
}

#[test]
fn other_families_are_in_mp_reach_as_first_attribute() {
    // covers RFC 7606 §5.1
    let (mut out, block) = (BytesMut::new(), block());
    let vpn = [88, 0, 0, 0x11, 0, 0, 0, 1, 0, 0, 0, 2];
    let next_hop = NextHop::V4([10, 0, 0, 1].into());
    let mut writer = UpdateWriter::reach(&mut out, Family::IPV4_VPN, &block, &next_hop, &PARAMS);
    writer.push(&Nlri::new(Net::Opaque(&vpn))).unwrap();
    writer.finish();
    let reach = [
        &[
            0x90,
            14,
            0,
            5 + 12 + 12,
            0,
            1,
            128,
            12,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            10,
            0,
            0,
            1,
            0,
        ][..],
        &vpn,
    ];
    let want = [
        &[0, 0, 0, 47][..],
        &reach.concat(),
        &ORIGIN_AND_PATH,
        &LOCAL_PREF,
    ];
    assert_eq!(body(&out), want.concat());
}

#[test]
fn withdrawals() {
    let mut out = BytesMut::new();
    let mut writer = UpdateWriter::unreach(&mut out, Family::IPV4_UNICAST, &PARAMS);
    writer.push(&route("10.0.0.0/8")).unwrap();
    writer.finish();
    assert_eq!(body(&out), [0, 2, 8, 10, 0, 0]);

    let mut out = BytesMut::new();
    let params = EncodeParams {
        add_path: true,
        ..PARAMS
    };
    let mut writer = UpdateWriter::unreach(&mut out, Family::IPV4_MULTICAST, &params);
    writer
        .push(&Nlri {
            path_id: 7,
            ..route("10.0.0.0/8")
        })
        .unwrap();
    writer.finish();
    assert_eq!(
        body(&out),
        [0, 0, 0, 13, 0x90, 15, 0, 9, 0, 1, 2, 0, 0, 0, 7, 8, 10]
    );
}

#[test]
fn nothing_is_written_for_no_routes() {
    let mut out = BytesMut::from(&b"before"[..]);
    UpdateWriter::unreach(&mut out, Family::IPV4_UNICAST, &PARAMS).finish();
    let (block, next_hop) = (block(), NextHop::v6([1; 16].into()));
    UpdateWriter::reach(&mut out, Family::IPV6_UNICAST, &block, &next_hop, &PARAMS).finish();
    assert_eq!(&out[..], b"before");
}

#[test]
fn a_set_too_large_never_fits() {
    let mut out = BytesMut::new();
    let block = vec![0x40; 4096];
    let next_hop = NextHop::V4([10, 0, 0, 1].into());
    let mut writer =
        UpdateWriter::reach(&mut out, Family::IPV4_UNICAST, &block, &next_hop, &PARAMS);
    assert_eq!(writer.push(&route("0.0.0.0/0")), Err(Full));
    assert!(writer.is_empty());
    writer.finish();
    assert!(out.is_empty());
}

#[test]
fn markers_and_keepalives() {
    let mut out = BytesMut::new();
    UpdateWriter::end_of_rib(&mut out, Family::IPV4_UNICAST);
    assert_eq!(body(&out), [0; 4]);
    let mut out = BytesMut::new();
    UpdateWriter::end_of_rib(&mut out, Family::IPV6_UNICAST);
    assert_eq!(body(&out), [0, 0, 0, 6, 0x80, 15, 3, 0, 2, 1]);
    let mut out = BytesMut::new();
    UpdateWriter::keepalive(&mut out);
    assert_eq!(out[16..], [0, 19, 4]);
}
