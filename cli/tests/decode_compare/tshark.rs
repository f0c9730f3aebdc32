//! Against tshark: messages of captures, and of hex lines wrapped into a capture.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{data, decode, installed, items, output, pcap, text};

/// The content of a message, as "name=value".
type Facts = BTreeSet<String>;

/// A message as tshark reads it.
#[derive(Debug)]
struct Message {
    hex: String,
    as4: bool,
    add_path: bool,
    facts: Facts,
}

/// The leaves of a dissection, in order, with whether they are in withdrawn routes.
fn leaves<'a>(
    value: &'a Value,
    key: &'a str,
    withdrawn: bool,
    out: &mut Vec<(&'a str, &'a str, bool)>,
) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter().filter(|(key, _)| !key.ends_with("_raw")) {
                let withdrawn = withdrawn
                    || key.starts_with("bgp.update.withdrawn")
                    || key.contains("mp_unreach");
                leaves(value, key, withdrawn, out);
            }
        }
        Value::Array(list) => list
            .iter()
            .for_each(|item| leaves(item, key, withdrawn, out)),
        Value::String(text) => out.push((key, text, withdrawn)),
        _ => {}
    }
}

/// Destinations in a dissection: objects with a length and a prefix.
fn prefixes(value: &Value, withdrawn: bool, out: &mut Facts) {
    if let Value::Object(fields) = value {
        let prefix = fields.iter().find(|(key, _)| key.ends_with("_prefix"));
        if let (Some((_, prefix)), Some(len)) = (prefix, fields.get("bgp.prefix_length")) {
            let id = fields.get("bgp.nlri_path_id").map(text).unwrap_or_default();
            let what = if withdrawn { "unreach" } else { "reach" };
            out.insert(format!("{what}={}/{} {id}", text(prefix), text(len)));
        }
        for (key, value) in fields {
            let below = key.starts_with("bgp.update.withdrawn") || key.contains("mp_unreach");
            prefixes(value, withdrawn || below, out);
        }
    }
    items(value).for_each(|item| prefixes(item, withdrawn, out));
}

/// Fields of a dissection, and their names here.
const FIELDS: &[(&str, &str)] = &[
    ("bgp.type", "type"),
    ("bgp.open.myas", "asn"),
    ("bgp.open.holdtime", "hold_time"),
    ("bgp.open.identifier", "id"),
    ("bgp.cap.type", "capability"),
    ("bgp.notify.major_error", "code"),
    ("bgp.update.path_attribute.origin", "origin"),
    ("bgp.update.path_attribute.next_hop", "next_hop"),
    (
        "bgp.update.path_attribute.mp_reach_nlri.next_hop.ipv6",
        "mp_next_hop",
    ),
    (
        "bgp.update.path_attribute.mp_reach_nlri.next_hop.ipv6.link_local",
        "link_local",
    ),
    ("bgp.update.path_attribute.multi_exit_disc", "med"),
    ("bgp.update.path_attribute.local_pref", "local_pref"),
    ("bgp.update.path_attribute.aggregator_as", "aggregator"),
    ("bgp.update.path_attribute.originator_id", "originator_id"),
    ("bgp.path_attribute.cluster_id", "cluster"),
];

fn theirs(layer: &Value, hex: &str) -> Message {
    let mut list = Vec::new();
    leaves(layer, "", false, &mut list);
    let named = |name: &'static str| {
        list.iter()
            .filter(move |(key, ..)| *key == name)
            .map(|(_, value, _)| *value)
    };
    let mut facts = Facts::new();
    for (field, name) in FIELDS {
        facts.extend(named(field).map(|value| format!("{name}={value}")));
    }
    prefixes(layer, false, &mut facts);
    let path: Vec<_> = list
        .iter()
        .filter(|(key, ..)| key.starts_with("bgp.update.path_attribute.as_path_segment.as"))
        .map(|(_, value, _)| *value)
        .collect();
    if !path.is_empty() {
        facts.insert(format!("as_path={}", path.join(" ")));
    }
    let (asns, values) = (
        named("bgp.update.path_attribute.community_as"),
        named("bgp.update.path_attribute.community_value"),
    );
    facts.extend(
        asns.zip(values)
            .map(|(asn, value)| format!("community={asn}:{value}")),
    );
    let as2 = list
        .iter()
        .any(|(key, ..)| key.ends_with("as_path_segment.as2"));
    let add_path = list.iter().any(|(key, ..)| *key == "bgp.nlri_path_id");
    Message {
        hex: hex.to_string(),
        as4: !as2,
        add_path,
        facts,
    }
}

/// All messages of a capture.
fn dissect(path: &Path, options: &[&str]) -> Vec<Message> {
    let mut command = Command::new("tshark");
    command.args([
        "-Y",
        "bgp",
        "-T",
        "json",
        "-x",
        "-J",
        "bgp",
        "--no-duplicate-keys",
    ]);
    let json = output(command.args(options).arg("-r").arg(path));
    let packets: Value = serde_json::from_str(&json).unwrap();
    let mut messages = Vec::new();
    for packet in items(&packets) {
        let layers = &packet["_source"]["layers"];
        // One message is an object, several are a list; so are their octets.
        let (layer, raw) = (&layers["bgp"], &layers["bgp_raw"]);
        if layer.is_array() {
            let pairs = items(layer).zip(items(raw));
            messages.extend(pairs.map(|(layer, raw)| theirs(layer, text(&raw[0]))));
        } else {
            messages.push(theirs(layer, text(&raw[0])));
        }
    }
    messages
}

/// The same facts from the output of `cambric decode`.
fn ours(line: &Value) -> Facts {
    let mut facts = Facts::new();
    let mut fact = |name: &str, value: &Value| {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), ToString::to_string);
        if value != "null" {
            facts.insert(format!("{name}={value}"));
        }
    };
    let kinds = [
        "OPEN",
        "UPDATE",
        "NOTIFICATION",
        "KEEPALIVE",
        "ROUTE-REFRESH",
    ];
    let kind = kinds.iter().position(|kind| *kind == text(&line["type"]));
    fact("type", &kind.map_or(0, |index| index + 1).into());
    for name in ["asn", "hold_time", "id", "code"] {
        fact(name, &line[name]);
    }
    items(&line["capabilities"]).for_each(|one| fact("capability", &one["code"]));
    let attributes = &line["attributes"];
    let origins = ["IGP", "EGP", "INCOMPLETE"];
    let origin = origins
        .iter()
        .position(|name| *name == text(&attributes["ORIGIN"]));
    fact("origin", &origin.map_or(Value::Null, Into::into));
    let path = text(&attributes["AS_PATH"]).replace(['{', '}', '(', ')', '[', ']'], "");
    if !path.is_empty() {
        fact("as_path", &path.replace(',', " ").into());
    }
    fact("next_hop", &attributes["NEXT_HOP"]);
    fact("med", &attributes["MULTI_EXIT_DISC"]);
    fact("local_pref", &attributes["LOCAL_PREF"]);
    fact("aggregator", &attributes["AGGREGATOR"]["asn"]);
    fact("originator_id", &attributes["ORIGINATOR_ID"]);
    items(&attributes["CLUSTER_LIST"]).for_each(|id| fact("cluster", id));
    let numbers = items(&attributes["COMMUNITIES"]).filter(|one| text(one).contains(':'));
    numbers.for_each(|one| fact("community", one));
    for group in items(&line["reach"]).filter(|group| text(&group["family"]).contains("ipv6-")) {
        fact("mp_next_hop", &group["next_hop"]);
        fact("link_local", &group["link_local"]);
    }
    for (what, groups) in [("reach", &line["reach"]), ("unreach", &line["unreach"])] {
        for nlri in items(groups).flat_map(|group| items(&group["nlri"])) {
            let id = nlri["path_id"]
                .as_u64()
                .map(|id| id.to_string())
                .unwrap_or_default();
            if let Some(prefix) = nlri["prefix"].as_str() {
                fact(what, &format!("{prefix} {id}").into());
            }
        }
    }
    facts
}

/// Whether a message has an opaque family, of which tshark decodes prefixes all the same.
fn is_opaque(line: &Value) -> bool {
    let groups = items(&line["reach"]).chain(items(&line["unreach"]));
    groups
        .flat_map(|group| items(&group["nlri"]))
        .any(|nlri| nlri["opaque"].is_string())
}

/// Decodes messages as hex lines.
fn hex_lines(messages: &[Message]) -> Vec<Value> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for message in messages {
        let (as4, add_path) = (u8::from(message.as4), u8::from(message.add_path));
        writeln!(file, "as4={as4} ap={add_path} {}", message.hex).unwrap();
    }
    decode("--hex", file.path()).collect()
}

/// Decodes the messages of a capture.
fn capture_lines(path: &Path) -> Vec<Value> {
    let lines = decode("--pcap", path);
    lines
        .filter(|line| !["LOST", "SKIPPED"].contains(&text(&line["type"])))
        .collect()
}

/// Whether AS numbers have two octets, as only the content shows: the capture lacks an OPEN.
fn has_unknown_encoding(messages: &[Message]) -> bool {
    let opens = messages
        .iter()
        .filter(|message| message.facts.contains("type=1"));
    opens.count() < 2 && messages.iter().any(|message| !message.as4)
}

/// Compares messages; returns the number of compared ones.
fn compare(name: &str, lines: &[Value], messages: &[Message]) -> usize {
    assert_eq!(
        lines.len(),
        messages.len(),
        "{name}: one object for each message"
    );
    let mut unexpected = Vec::new();
    for (line, message) in lines.iter().zip(messages) {
        let (mut ours, mut theirs) = (ours(line), message.facts.clone());
        if is_opaque(line) {
            ours.retain(|fact| !fact.contains("mp_next_hop"));
            theirs.retain(|fact| !fact.contains("reach=") && !fact.contains("mp_next_hop"));
        }
        let body = &message.hex[32..];
        let known = KNOWN.iter().find(|(start, _)| body.starts_with(start));
        if (ours == theirs) != known.is_none() {
            let only = |these: &Facts, those| these.difference(those).cloned().collect::<Vec<_>>();
            let (mine, other) = (only(&ours, &theirs), only(&theirs, &ours));
            unexpected.push(format!("{body}\n  ours   {mine:?}\n  theirs {other:?}"));
        }
    }
    assert!(unexpected.is_empty(), "{name}:\n{}", unexpected.join("\n"));
    messages.len()
}

const LONG: &str = "tshark loses its place in COMMUNITIES and CLUSTER_LIST with a two-octet length";
const AS4_PATH: &str = "tshark lists AS_PATH and AS4_PATH, we print what they mean together";
const MALFORMED: &str = "the message ends the session, so we print no more than the fault";

/// Known differences: the first octets of the message after its marker, and the reason.
const KNOWN: &[(&str, &str)] = &[
    ("0129020008180a0001", LONG),
    ("02d102000002ba", LONG),
    ("006e0200000053", AS4_PATH),
    ("003a0200000021400101", AS4_PATH),
    ("0036020000001d400101", AS4_PATH),
    (
        "001c0200000000",
        "tshark reads no routes where there are no attributes",
    ),
    (
        "001b0200000000",
        "tshark reads no routes where there are no attributes",
    ),
    ("001b020000002d", MALFORMED),
    ("0024020000000dffff", MALFORMED),
    ("001301", MALFORMED),
    ("001302", MALFORMED),
    ("001303", MALFORMED),
    ("001305", MALFORMED),
    ("001a050019", MALFORMED),
    ("00150500", MALFORMED),
    (
        "00ab0200000094",
        "tshark prints NEXT_HOP 0.0.0.0 beside MP_REACH_NLRI, we ignore it",
    ),
    (
        "0041020000002a800f270002014020010db8ffff0000412001",
        "tshark reads on after a prefix of 65 bits where its octets end",
    ),
    (
        "00790200000062",
        "tshark reads ATTR_SET, we carry it as octets",
    ),
    (
        "0042020000002b",
        "tshark gives a labeled prefix the length of label and prefix",
    ),
];

/// The step between compared captures: all of them only in a run with labs, because tshark starts
/// slowly.
fn captures_step() -> usize {
    if netns_lab::asked_for() { 1 } else { 4 }
}

#[test]
fn captures_read_as_tshark_reads_them() {
    let (Some(directory), true) = (data("pcap"), installed("tshark")) else {
        return;
    };
    let folders = ["sessions", "single"].map(|folder| directory.join(folder));
    let files = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files: BTreeSet<_> = files.map(|file| file.unwrap().path()).collect();
    let (mut compared, mut captured) = (0, 0);
    for path in files.iter().step_by(captures_step()) {
        let (name, messages) = (path.display().to_string(), dissect(path, &[]));
        compared += compare(&name, &hex_lines(&messages), &messages);
        if !has_unknown_encoding(&messages) {
            captured += compare(&name, &capture_lines(path), &messages);
        }
    }
    println!("{compared} messages compared, {captured} of them as a capture");
    assert!(
        (compared == 253 && captured == 228) || captures_step() > 1,
        "{compared} messages"
    );
}

#[test]
fn hex_lines_read_as_tshark_reads_them() {
    let (Some(directory), true) = (data("vectors"), installed("tshark")) else {
        return;
    };
    let files = std::fs::read_dir(directory).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let text = texts.collect::<Vec<_>>().join("\n");
    let mut compared = 0;
    for (as4, length) in [("as4=1", "4 octet"), ("as4=0", "2 octet")] {
        let lines = text
            .lines()
            .filter(|line| line.split(' ').any(|field| field == as4));
        let messages: Vec<_> = lines
            .map(|line| octets(line.rsplit(' ').next().unwrap()))
            .collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&pcap::capture(&messages)).unwrap();
        let option = format!("bgp.asn_len:{length}");
        let mut dissected = dissect(file.path(), &["-o", &option]);
        assert_eq!(dissected.len(), messages.len());
        dissected
            .iter_mut()
            .for_each(|message| message.as4 = as4 == "as4=1");
        compared += compare(as4, &hex_lines(&dissected), &dissected);
    }
    println!("{compared} messages compared");
    assert_eq!(compared, 96);
}

fn octets(hex: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(pair).collect()
}
