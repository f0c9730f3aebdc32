//! Next hops and the subnets of the link to an external peer (RFC 4271 §5.1.3).

use std::net::IpAddr;

use bgp_proto::{EncodeParams, Family, Net, NextHop, Nlri, Prefix, UpdateView, UpdateWriter};
use bytes::BytesMut;
use rib::{Ineligible, PeerId, PeerInfo};

use crate::{attributes, info, params, rib};

/// Returns why a path with this next hop is not used. It is of an external peer at `address`.
fn refusal(address: &str, link: Option<&[&str]>, next_hop: &str) -> Option<Ineligible> {
    let prefix = |text: &&str| text.parse().expect("a prefix");
    let info = PeerInfo {
        address: address.parse().expect("an address"),
        link: link.map(|subnets| subnets.iter().map(prefix).collect()),
        ..info(1)
    };
    let mut rib = rib();
    rib.peer_up(PeerId(1), info);
    let (family, net, next_hop) = match next_hop.parse().expect("an address") {
        IpAddr::V4(v4) => (Family::IPV4_UNICAST, "10.65.0.1/32", NextHop::V4(v4)),
        IpAddr::V6(v6) => (Family::IPV6_UNICAST, "2001:db8:65::1/128", NextHop::v6(v6)),
    };
    let net = match net.parse().expect("a prefix") {
        Prefix::V4(v4) => Net::V4(v4),
        Prefix::V6(v6) => Net::V6(v6),
    };
    let (mut block, mut out) = (Vec::new(), BytesMut::new());
    attributes(1, 1).encode(true, &mut block);
    let encode = EncodeParams {
        as4: true,
        add_path: true,
        octets_max: 4096,
    };
    let mut writer = UpdateWriter::reach(&mut out, family, &block, Some(&next_hop), &encode);
    writer.push(&Nlri::new(net)).expect("room");
    writer.finish();
    let params = params(1);
    let (view, _) = UpdateView::parse(&out[19..], &params).expect("an UPDATE");
    for batch in view.batches() {
        rib.ingest(PeerId(1), &batch);
    }
    rib.lookup(family, net).expect("a path").paths[0].ineligible
}

#[test]
fn next_hop_outside_the_link_is_not_used() {
    let off_link = Some(Ineligible::NextHopOffLink);
    let one = &["10.0.0.0/24"][..];
    let v6 = &["2001:db8::/64"][..];
    let cases = [
        ("10.0.0.2", Some(one), "10.0.0.77", None),
        ("10.0.0.2", Some(one), "10.1.0.77", off_link),
        (
            "10.0.0.2",
            Some(&["10.0.0.0/24", "10.1.0.0/24"]),
            "10.1.0.77",
            None,
        ),
        // The peer's own address is on its link, also if no subnet contains it.
        ("10.0.0.2", Some(&["10.9.0.0/24"]), "10.0.0.2", None),
        ("10.0.0.2", Some(&["10.9.0.0/24"]), "10.0.0.3", off_link),
        ("10.0.0.2", Some(&[]), "10.0.0.2", None),
        ("10.0.0.2", Some(&[]), "10.0.0.3", off_link),
        // Link-local addresses are in no configured subnet.
        ("2001:db8::2", Some(v6), "fe80::2", None),
        ("2001:db8::2", Some(v6), "2001:db8:1::2", off_link),
        ("10.0.0.2", Some(one), "2001:db8::2", off_link),
        ("10.0.0.2", None, "10.1.0.77", None),
    ];
    for (address, link, next_hop, expected) in cases {
        let found = refusal(address, link, next_hop);
        assert_eq!(found, expected, "{next_hop} of {address} on {link:?}");
    }
}
