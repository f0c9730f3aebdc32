//! Against bgpdump: every route of every MRT file, with its attributes.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::known::{self, Tally};
use super::{data, decode, installed, items, lines, text};

/// The rows of each message or table record that has any, in the order of the file.
type Rows = Vec<Vec<String>>;

/// Well-known communities as bgpdump writes them, others as numbers.
fn community(name: &str) -> String {
    let number = match name {
        "no-export" => 0xff01,
        "no-advertise" => 0xff02,
        "no-export-subconfed" | "local-AS" => 0xff03,
        "no-peer" => 0xff04,
        "graceful-shutdown" => 0,
        "accept-own" => 1,
        "llgr-stale" => 6,
        "no-llgr" => 7,
        "blackhole" => 666,
        other => return other.to_string(),
    };
    format!("65535:{number}")
}

fn sorted(mut list: Vec<String>) -> String {
    list.sort();
    list.dedup();
    list.join(" ")
}

/// Attributes in the order of bgpdump's columns.
fn attributes(report: &Value, next_hop: &str) -> String {
    let number = |name: &str| report[name].as_u64().unwrap_or_default();
    let list = |name: &str| {
        items(&report[name])
            .map(|one| community(text(one)))
            .collect()
    };
    let aggregator = &report["AGGREGATOR"];
    let aggregator = match aggregator["asn"].as_u64() {
        Some(asn) => format!("{asn} {}", text(&aggregator["id"])),
        None => String::new(),
    };
    [
        text(&report["AS_PATH"]),
        text(&report["ORIGIN"]),
        next_hop,
        &number("LOCAL_PREF").to_string(),
        &number("MULTI_EXIT_DISC").to_string(),
        &sorted(list("COMMUNITIES")),
        &sorted(list("LARGE_COMMUNITIES")),
        if report["ATOMIC_AGGREGATE"] == true {
            "AG"
        } else {
            "NAG"
        },
        &aggregator,
    ]
    .join("|")
}

fn routes(groups: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    items(groups).flat_map(|group| items(&group["nlri"]).map(move |nlri| (group, nlri)))
}

/// The families that bgpdump prints in this form.
fn is_printed(group: &Value) -> bool {
    ["ipv4-unicast", "ipv6-unicast"].contains(&text(&group["family"]))
}

fn ours(path: &Path, groups_max: usize) -> Rows {
    let mut groups = Groups::new(groups_max);
    for line in decode("--mrt", path) {
        let message = line["message"].to_string();
        let peer = format!("{}|{}", text(&line["peer"]["address"]), line["peer"]["asn"]);
        let op = if line["type"] == "RIB" { "B" } else { "A" };
        for (_, nlri) in routes(&line["unreach"]).filter(|(group, _)| is_printed(group)) {
            groups.push(&message, format!("W|{peer}|{}", text(&nlri["prefix"])));
        }
        for (group, nlri) in routes(&line["reach"]).filter(|(group, _)| is_printed(group)) {
            let prefix = text(&nlri["prefix"]);
            let path_id = nlri["path_id"].as_u64();
            let path_id = path_id.map(|id| format!("{id}|")).unwrap_or_default();
            let rest = attributes(&line["attributes"], text(&group["next_hop"]));
            groups.push(&message, format!("{op}|{peer}|{prefix}|{path_id}{rest}"));
        }
        if line["type"] == "STATE-CHANGE" {
            let (old, new) = (state(&line["old"]), state(&line["new"]));
            groups.push(&message, format!("STATE|{peer}|{old}|{new}"));
        }
        if groups.full() {
            break;
        }
    }
    groups.finish()
}

fn state(name: &Value) -> usize {
    let names = [
        "Idle",
        "Connect",
        "Active",
        "OpenSent",
        "OpenConfirm",
        "Established",
    ];
    let position = names.iter().position(|known| *known == text(name));
    position.map_or_else(|| text(name).parse().unwrap(), |index| index + 1)
}

fn theirs(path: &Path, groups_max: usize) -> Rows {
    let mut groups = Groups::new(groups_max);
    let mut command = Command::new("bgpdump");
    for line in lines(command.args(["-q", "-m", "-p", "-l"]).arg(path)) {
        let fields: Vec<_> = line.split('|').collect();
        let routes = matches!(fields[3], "A" | "B");
        let last = if routes {
            fields.len() - 1
        } else {
            fields.len()
        };
        let column = |at: usize| {
            let list = || sorted(fields[at].split(' ').map(community).collect());
            let communities = routes && [last - 4, last - 3].contains(&at);
            if communities {
                list()
            } else {
                plain(fields[at])
            }
        };
        groups.push(
            fields[1],
            (3..last).map(column).collect::<Vec<_>>().join("|"),
        );
        if groups.full() {
            break;
        }
    }
    groups.finish()
}

/// A column with IPv6 addresses in their canonical form (RFC 5952).
fn plain(column: &str) -> String {
    let (address, rest) = column.split_once('/').unwrap_or((column, ""));
    match address.parse::<IpAddr>() {
        Ok(address) if rest.is_empty() => address.to_string(),
        Ok(address) => format!("{address}/{rest}"),
        Err(_) => column.to_string(),
    }
}

/// Collects rows by the number of their message, as far as wanted.
struct Groups {
    groups_max: usize,
    number: String,
    rows: Rows,
}

impl Groups {
    fn new(groups_max: usize) -> Self {
        Self {
            groups_max,
            number: String::new(),
            rows: Rows::new(),
        }
    }

    fn push(&mut self, number: &str, row: String) {
        if self.number != number {
            self.number = number.to_string();
            self.rows.push(Vec::new());
        }
        self.rows.last_mut().unwrap().push(row);
    }

    /// Whether one group more than wanted has begun, so that the last wanted one is complete.
    fn full(&self) -> bool {
        self.rows.len() > self.groups_max
    }

    fn finish(mut self) -> Rows {
        self.rows.truncate(self.groups_max);
        self.rows.iter_mut().for_each(|row| row.sort());
        self.rows
    }
}

#[test]
fn mrt_files_read_as_bgpdump_reads_them() {
    let (Some(directory), true) = (data("mrt"), installed("bgpdump")) else {
        return;
    };
    // The large files are compared completely only in a run with labs.
    let whole = netns_lab::asked_for();
    let groups_max = if whole { usize::MAX } else { known::GROUPS_MAX };
    for file in known::FILES {
        let path = directory.join(file.name);
        let (ours, theirs) = (ours(&path, groups_max), theirs(&path, groups_max));
        assert_eq!(
            ours.len(),
            theirs.len(),
            "{}: messages with routes",
            file.name
        );
        let mut tally = Tally::new(file);
        for (mine, other) in ours
            .iter()
            .zip(&theirs)
            .filter(|(mine, other)| mine != other)
        {
            tally.difference(mine, other);
        }
        tally.finish(ours.len() == file.groups);
        let rows = ours.iter().map(Vec::len).sum::<usize>();
        println!(
            "{}: {} messages or records, {rows} rows compared",
            file.name,
            ours.len()
        );
        assert_eq!(ours.len(), file.groups.min(groups_max), "{}", file.name);
    }
}
