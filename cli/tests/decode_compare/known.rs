//! Known differences to bgpdump, with reasons.

/// Messages with routes, or table records, that are compared of a file in a short run.
pub(super) const GROUPS_MAX: usize = 1000;

/// A file and its known differences.
pub(super) struct File {
    /// Name below the directory.
    pub(super) name: &'static str,
    /// Messages with routes, or table records, in it.
    pub(super) groups: usize,
    /// The differences between the two decoders.
    known: &'static [Known],
}

/// A known difference.
struct Known {
    /// How many messages or records show it.
    times: usize,
    /// The reason.
    reason: &'static str,
    /// Whether a difference between this decoder's row and bgpdump's is of this kind.
    looks: fn(&str, &str) -> bool,
}

const fn file(name: &'static str, groups: usize, known: &'static [Known]) -> File {
    File {
        name,
        groups,
        known,
    }
}

const fn known(times: usize, reason: &'static str, looks: fn(&str, &str) -> bool) -> Known {
    Known {
        times,
        reason,
        looks,
    }
}

const NO_ATTRIBUTES: &str = "BIRD writes static routes without attributes and IPv6 routes without \
    next hop; bgpdump prints INCOMPLETE and 255.255.255.255 for what is not there";

fn no_attributes(ours: &str, theirs: &str) -> bool {
    let invented = theirs.replacen("INCOMPLETE|255.255.255.255|", "||", 1);
    ours == invented || ours == theirs.replacen("|255.255.255.255|", "||", 1)
}

const UNMARKED_PATH_IDS: &str = "written before RFC 8050, so not marked as having path \
    identifiers: bgpdump reads these as prefixes, we take the peer's OPEN into account";

fn unmarked_path_ids(ours: &str, theirs: &str) -> bool {
    let id = ours
        .split('|')
        .nth(4)
        .is_some_and(|column| column.parse::<u32>().is_ok());
    id && theirs.contains("/0|")
}

const AS_ZERO: &str = "AS 0 makes AS_PATH and AGGREGATOR malformed (RFC 7607 §2)";

pub(super) const FILES: &[File] = &[
    file(
        "full-table-2015.updates-et.gz",
        89_682,
        &[
            known(1, AS_ZERO, |ours, theirs| {
                ours == theirs.replacen("|65005 65005 65005 65005 65005 0|", "||", 1)
            }),
            known(3, AS_ZERO, |ours, theirs| {
                theirs
                    .strip_suffix("0 0.0.0.0")
                    .is_some_and(|row| row == ours)
            }),
        ],
    ),
    file("ris-updates-20190101.0000.gz", 54_150, &[]),
    file("ris-rrc06-updates-1427846400.gz", 765, &[]),
    file("rv-rib-20140523-first1MB.bz2", 9072, &[]),
    file("rv-rib6-20151101-first1MB.bz2", 6870, &[]),
    file("daemons/bird-mrtdump_bgp", 16, &[]),
    file("daemons/bird6-mrtdump_bgp", 16, &[]),
    file(
        "daemons/bird_bgp",
        18,
        &[known(6, UNMARKED_PATH_IDS, unmarked_path_ids)],
    ),
    file(
        "daemons/bird6_bgp",
        18,
        &[known(6, UNMARKED_PATH_IDS, unmarked_path_ids)],
    ),
    file("daemons/openbgpd_bgp", 58, &[]),
    file("daemons/quagga_bgp", 26, &[]),
    file(
        "daemons/bird-mrtdump_rib",
        12,
        &[known(6, NO_ATTRIBUTES, no_attributes)],
    ),
    file(
        "daemons/bird6-mrtdump_rib",
        7,
        &[known(7, NO_ATTRIBUTES, no_attributes)],
    ),
    file(
        "daemons/openbgpd_rib_table",
        31,
        &[known(
            1,
            "an AGGREGATOR of eight octets where AS numbers have two: bgpdump reads the first six",
            |ours, theirs| {
                theirs
                    .strip_suffix("0 253.232.192.168")
                    .is_some_and(|row| row == ours)
            },
        )],
    ),
    file("daemons/openbgpd_rib_table-v2", 21, &[]),
    file("daemons/quagga_rib", 6, &[]),
];

/// Counts the differences found in a file.
pub(super) struct Tally {
    file: &'static File,
    found: Vec<usize>,
    unexpected: Vec<String>,
}

impl Tally {
    pub(super) fn new(file: &'static File) -> Self {
        Self {
            file,
            found: vec![0; file.known.len()],
            unexpected: Vec::new(),
        }
    }

    /// Assigns a difference in the rows of one message to a known reason.
    pub(super) fn difference(&mut self, ours: &[String], theirs: &[String]) {
        let only = |these: &[String], those: &[String]| -> Vec<String> {
            these
                .iter()
                .filter(|row| !those.contains(row))
                .cloned()
                .collect()
        };
        let (mine, other) = (only(ours, theirs), only(theirs, ours));
        let explains = |known: &&Known| {
            mine.iter()
                .all(|row| other.iter().any(|theirs| (known.looks)(row, theirs)))
        };
        match self.file.known.iter().position(|known| explains(&known)) {
            Some(index) => self.found[index] += 1,
            None => self
                .unexpected
                .push(format!("ours   {mine:?}\ntheirs {other:?}")),
        }
    }

    /// Checks that there was no other difference; with `whole`, that all known ones were found.
    pub(super) fn finish(self, whole: bool) {
        let name = self.file.name;
        let count = self.unexpected.len();
        let shown = self
            .unexpected
            .iter()
            .take(5)
            .map(String::as_str)
            .collect::<Vec<_>>();
        assert!(
            count == 0,
            "{name}: {count} differences, like\n{}",
            shown.join("\n")
        );
        for (known, found) in self.file.known.iter().zip(self.found) {
            println!("{name}: {found} known differences: {}", known.reason);
            assert!(
                found == known.times || !whole,
                "{name}: {found} of {}",
                known.times
            );
        }
    }
}
