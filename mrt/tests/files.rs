//! Real dumps: compares the numbers of messages and paths with those of their publishers. The files
//! are beside the workspace; without them the test prints that and passes.
#![allow(clippy::unwrap_used)] // helpers of tests

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bgp_proto::{FamilySet, MessageKind, PeerKind, SessionParams};
use mrt::{Entry, ReadError};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/mrt")
}

/// The content of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    messages: BTreeMap<String, u32>,
    states: u32,
    /// Prefixes and paths of tables.
    prefixes: u32,
    paths: u32,
    peers: usize,
    unknown: u32,
    /// Octet offset of a record that could not be read.
    cut: Option<u64>,
    /// Entries with faults in their attributes.
    faulty: u32,
}

fn params(as4: bool) -> SessionParams {
    let kind = PeerKind::Internal;
    SessionParams {
        kind,
        as4,
        families: FamilySet::all(),
        v4_mapped_next_hop: true,
        ..SessionParams::default()
    }
}

fn count(path: &Path) -> Count {
    let mut count = Count::default();
    for record in mrt::open(path).unwrap() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                assert!(
                    matches!(error, ReadError::Truncated { .. } | ReadError::Io { .. }),
                    "{error}"
                );
                count.cut = Some(error.at());
                continue;
            }
        };
        count.add(record.entry().unwrap());
    }
    count
}

impl Count {
    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Message(message) => {
                let mut octets = bytes::BytesMut::from(&message.octets[..]);
                let frame = bgp_proto::next_frame(&mut octets, 65_535).unwrap().unwrap();
                assert!(octets.is_empty());
                assert_ne!(frame.kind, MessageKind(0));
                *self.messages.entry(frame.kind.to_string()).or_default() += 1;
            }
            Entry::StateChange(_) => self.states += 1,
            Entry::PeerIndex(index) => self.peers = index.peers.len(),
            Entry::Rib(rib) => {
                self.prefixes += 1;
                for entry in &rib.entries {
                    assert!(usize::from(entry.peer) < self.peers);
                    self.path(&entry.attributes, rib.family, true);
                }
            }
            Entry::TableDump(path) => self.path(&path.attributes, path.family(), false),
            Entry::TableEntry(path) => {
                let block = bgp_proto::AttrBlock::from_octets(
                    &path.attributes,
                    path.family,
                    Some(&path.next_hop),
                    &params(false),
                );
                self.paths += 1;
                self.faulty += u32::from(!block.parse().1.is_empty());
            }
            _ => self.unknown += 1,
        }
    }

    fn path(&mut self, attributes: &[u8], family: bgp_proto::Family, as4: bool) {
        let block = mrt::table_attributes(attributes, family, &params(as4));
        self.paths += 1;
        self.faulty += u32::from(!block.parse().1.is_empty());
    }
}

/// File, then messages as OPEN/UPDATE/NOTIFICATION/KEEPALIVE/ROUTE-REFRESH, state changes,
/// prefixes, paths, entries with faults, and the offset at which a truncated file ends.
type Row = (&'static str, [u32; 5], u32, u32, u32, u32, Option<u64>);

/// The faults: BIRD writes its static routes without any attributes, and IPv6 routes without
/// a next hop; OpenBGPD writes an AGGREGATOR with a four-octet AS number into tables that
/// have two-octet ones.
const ROWS: &[Row] = &[
    (
        "full-table-2015.updates-et.gz",
        [1, 89_679, 0, 2, 0],
        4,
        0,
        0,
        0,
        None,
    ),
    (
        "ris-updates-20190101.0000.gz",
        [0, 54_107, 0, 364, 0],
        43,
        0,
        0,
        0,
        None,
    ),
    (
        "ris-rrc06-updates-1427846400.gz",
        [0, 761, 0, 30, 0],
        4,
        0,
        0,
        0,
        None,
    ),
    (
        "rv-rib-20140523-first1MB.bz2",
        [0; 5],
        0,
        9072,
        270_005,
        0,
        Some(15_273_283),
    ),
    (
        "rv-rib6-20151101-first1MB.bz2",
        [0; 5],
        0,
        6870,
        149_578,
        0,
        Some(12_131_168),
    ),
    (
        "daemons/bird-mrtdump_bgp",
        [2, 6, 1, 5, 1],
        12,
        0,
        0,
        0,
        None,
    ),
    (
        "daemons/bird6-mrtdump_bgp",
        [2, 6, 1, 5, 1],
        12,
        0,
        0,
        0,
        None,
    ),
    ("daemons/bird_bgp", [2, 8, 1, 5, 1], 12, 0, 0, 0, None),
    ("daemons/bird6_bgp", [2, 8, 1, 5, 1], 12, 0, 0, 0, None),
    ("daemons/openbgpd_bgp", [4, 48, 2, 13, 4], 16, 0, 0, 0, None),
    ("daemons/quagga_bgp", [4, 24, 2, 10, 7], 20, 0, 0, 0, None),
    ("daemons/bird-mrtdump_rib", [0; 5], 0, 12, 18, 6, None),
    ("daemons/bird6-mrtdump_rib", [0; 5], 0, 7, 10, 10, None),
    ("daemons/openbgpd_rib_table", [0; 5], 0, 0, 31, 1, None),
    ("daemons/openbgpd_rib_table-mp", [0; 5], 0, 0, 31, 1, None),
    ("daemons/openbgpd_rib_table-v2", [0; 5], 0, 23, 33, 0, None),
    ("daemons/quagga_rib", [0; 5], 0, 6, 9, 0, None),
];

#[test]
fn files_hold_what_they_should() {
    if !directory().exists() {
        println!("skipped: no dumps beside the workspace");
        return;
    }
    for (file, messages, states, prefixes, paths, faulty, cut) in ROWS {
        let found = count(&directory().join(file));
        let names = [
            "OPEN",
            "UPDATE",
            "NOTIFICATION",
            "KEEPALIVE",
            "ROUTE-REFRESH",
        ];
        let kinds = names.map(|name| found.messages.get(name).copied().unwrap_or_default());
        assert_eq!(kinds, *messages, "{file}");
        let rest = (
            found.states,
            found.prefixes,
            found.paths,
            found.faulty,
            found.cut,
        );
        assert_eq!(rest, (*states, *prefixes, *paths, *faulty, *cut), "{file}");
        assert_eq!(found.unknown, 0, "{file}");
    }
}
