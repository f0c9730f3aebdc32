//! Messages from the tests of other BGP implementations: each decodes as its authors intended. The
//! files are in a directory beside the workspace; without them the test reports that and passes.
#![allow(clippy::unwrap_used)] // helpers of tests

use std::fs;
use std::path::{Path, PathBuf};

use bgp_proto::{
    FamilySet, Fault, MessageKind, Notification, Open, PeerKind, RouteRefresh, SessionParams,
    UpdateView, next_frame,
};
use bytes::BytesMut;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/vectors")
}

fn octets(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn params(as4: bool, add_path: bool) -> SessionParams {
    SessionParams {
        kind: PeerKind::Internal,
        as4,
        families: FamilySet::all(),
        add_path_receive: if add_path {
            FamilySet::all()
        } else {
            FamilySet::EMPTY
        },
        extended_next_hop: true,
        ..SessionParams::default()
    }
}

/// The faults of a message, in words; empty for a valid one.
fn complaints(wire: &[u8], params: &SessionParams) -> Vec<String> {
    let mut buf = BytesMut::from(wire);
    let frame = match next_frame(&mut buf, 65_535) {
        Ok(Some(frame)) if buf.is_empty() => frame,
        Ok(_) => return vec!["not one whole message".into()],
        Err(error) => return vec![error.to_string()],
    };
    match frame.kind {
        MessageKind::Open => Open::parse(&frame.body)
            .err()
            .iter()
            .map(Notification::to_string)
            .collect(),
        MessageKind::Update => update_complaints(&frame.body, params),
        MessageKind::RouteRefresh => RouteRefresh::parse(&frame.body)
            .err()
            .iter()
            .map(Notification::to_string)
            .collect(),
        _ => Vec::new(),
    }
}

fn update_complaints(body: &[u8], params: &SessionParams) -> Vec<String> {
    let (view, mut faults) = match UpdateView::parse(body, params) {
        Ok(parsed) => parsed,
        Err(error) => return vec![error.to_string()],
    };
    for batch in view.batches() {
        faults.extend(batch.attrs.map(|attrs| attrs.parse().1).unwrap_or_default());
        faults.extend(batch.unreach.chain(batch.reach).filter_map(Result::err));
    }
    faults.iter().map(Fault::to_string).collect()
}

/// Routes without any attribute.
const BARE: &str = "ORIGIN: mandatory attribute missing at octet 0 (treat-as-withdraw); \
    AS_PATH: mandatory attribute missing at octet 0 (treat-as-withdraw); \
    NEXT_HOP: mandatory attribute missing at octet 0 (treat-as-withdraw)";
/// Messages of less than their type's length.
const SHORT: &str = "Message Header Error/Bad Message Length";

/// Messages that are wrong on purpose, or of families without a row: file, number, complaint.
const WRONG: &[(&str, &str, &str)] = &[
    ("holo", "10", BARE),
    ("bgpkit", "10", BARE),
    // The attributes' length exceeds the message.
    (
        "holo",
        "11",
        "UPDATE Message Error/Malformed Attribute List",
    ),
    // BGPsec has its own path attribute in place of AS_PATH (RFC 8205 §4.1).
    (
        "routecore",
        "19",
        "AS_PATH: mandatory attribute missing at octet 0 (treat-as-withdraw)",
    ),
    // SAFI 255, which is not assigned.
    (
        "routecore",
        "22",
        "MP_UNREACH_NLRI: family not negotiated at octet 4 (attribute discard)",
    ),
    // A prefix of 65 bits in the middle puts the reader out of step.
    (
        "routecore",
        "23",
        "MP_UNREACH_NLRI: bad NLRI at octet 34 (session reset)",
    ),
    // MP_UNREACH_NLRI without the optional flag, and no routes that it could be laid to.
    (
        "routecore",
        "27",
        "UPDATE Message Error/Attribute Flags Error",
    ),
    ("scapy", "2", SHORT),
    ("scapy", "3", SHORT),
    ("scapy", "4", SHORT),
    ("scapy", "5", SHORT),
    ("bgpkit", "5", SHORT),
    // Octets after a border of a refresh (RFC 7313 §5).
    (
        "bgpkit",
        "3",
        "ROUTE-REFRESH Message Error/Invalid Message Length",
    ),
    // ::ffff:172.31.34.170 as next hop of IPv6 routes, refused unless configured.
    (
        "yabgp",
        "6",
        "MP_REACH_NLRI: next hop is not a usable address at octet 4 (treat-as-withdraw)",
    ),
    // BGP-LS.
    (
        "yabgp",
        "8",
        "MP_REACH_NLRI: family not negotiated at octet 4 (attribute discard)",
    ),
];

#[test]
fn vectors_decode() {
    let Ok(files) = fs::read_dir(directory()) else {
        println!("skipped: no vectors beside the workspace");
        return;
    };
    let mut lines = 0;
    let mut unexpected = Vec::new();
    for file in files {
        let path = file.unwrap().path();
        let name = path
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .replace("scraped-", "");
        for line in fs::read_to_string(&path).unwrap().lines() {
            lines += 1;
            let field = |key: &str| line.split(' ').find_map(|field| field.strip_prefix(key));
            let number = field("n=").unwrap();
            let params = params(field("as4=") == Some("1"), field("ap=") == Some("1"));
            let found = complaints(&octets(line.rsplit(' ').next().unwrap()), &params).join("; ");
            let known = WRONG
                .iter()
                .find(|(file, n, _)| *file == name && *n == number);
            if known.map_or("", |(_, _, why)| why) != found {
                unexpected.push(format!("(\"{name}\", \"{number}\", \"{found}\"),"));
            }
        }
    }
    assert!(
        unexpected.is_empty(),
        "unexpected:\n{}",
        unexpected.join("\n")
    );
    assert_eq!(lines, 96);
}
