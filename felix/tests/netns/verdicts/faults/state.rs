//! The state of the kernel that an agent is responsible for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::verdicts::wires::{WORKLOADS, addresses};
use crate::world::{run, sysctl, try_run};

/// The table of digests of an agent's rules: each agent has another one.
const RECORD: &str = "cambric-felix-record";
/// Settings of workload interfaces that an agent changes.
const SETTINGS: [&str; 2] = ["ipv4/conf/LINK/proxy_arp", "ipv4/conf/LINK/forwarding"];

const SETTINGS_PART: &str = "settings";
const FRAMES_PART: &str = "rules about frames";

/// Everything that an agent writes, each part as lines.
#[derive(Debug, Default)]
pub(super) struct State(BTreeMap<&'static str, BTreeSet<String>>);

impl State {
    /// Reads the state of the thread's namespace.
    pub(super) fn read() -> Self {
        Self(BTreeMap::from([
            ("rules", rules(false)),
            (FRAMES_PART, rules(true)),
            ("routes", lines("ip route show table all proto 80")),
            (
                "routes of IPv6",
                lines("ip -6 route show table all proto 80"),
            ),
            ("neighbors", lines("ip neighbor show nud permanent")),
            ("addresses", ipv4_addresses()),
            ("tunnels", tunnels()),
            ("entries of tunnels", of_tunnels()),
            ("limits of bandwidth", limits()),
            ("devices of limits", devices()),
            (SETTINGS_PART, settings()),
        ]))
    }

    /// Returns the first difference from another state.
    pub(super) fn difference(&self, wanted: &Self) -> Option<String> {
        let mut parts = self.0.iter();
        parts.find_map(|(part, found)| {
            let wanted = &wanted.0[part];
            let missing: Vec<&String> = wanted.difference(found).collect();
            let mut left: Vec<&String> = found.difference(wanted).collect();
            // Settings and the rule about VLAN tags of an interface stay when its endpoint is deleted.
            left.retain(|_| ![SETTINGS_PART, FRAMES_PART].contains(part));
            let is_equal = missing.is_empty() && left.is_empty();
            (!is_equal).then(|| format!("{part}: missing {missing:#?}, left over {left:#?}"))
        })
    }
}

fn lines(command: &str) -> BTreeSet<String> {
    let listed = run(command);
    listed.lines().map(|line| line.trim().to_owned()).collect()
}

/// Returns all objects of nftables about frames or about packets, without their handles; those of a chain
/// with their place in it.
fn rules(of_frames: bool) -> BTreeSet<String> {
    let listed: Value =
        serde_json::from_str(&run("nft --json --numeric --stateless list ruleset")).unwrap();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for object in listed["nftables"].as_array().unwrap() {
        let mut object = object.clone();
        let Some((kind, body)) = object.as_object_mut().unwrap().iter_mut().next() else {
            continue;
        };
        if kind == "metainfo" || body["table"] == RECORD || body["name"] == RECORD {
            continue;
        }
        if (body["family"] == "netdev") != of_frames {
            continue;
        }
        body.as_object_mut().unwrap().remove("handle");
        // Packets change the elements of such sets.
        if body["flags"].to_string().contains("dynamic") || !body["timeout"].is_null() {
            body.as_object_mut().unwrap().remove("elem");
        }
        if let Some(elements) = body["elem"].as_array_mut() {
            elements.sort_by_key(Value::to_string);
        }
        let mut place = String::new();
        if kind == "rule" {
            let chain = format!("{} {} {}", body["family"], body["table"], body["chain"]);
            let at = places.entry(chain).or_default();
            *at += 1;
            place = format!("{at}: ");
        }
        all.insert(format!("{kind} {place}{body}"));
    }
    all
}

fn ipv4_addresses() -> BTreeSet<String> {
    let listed = run("ip -4 -o address show");
    let without_index = |line: &str| {
        let (_, rest) = line.split_once(": ")?;
        let words: Vec<&str> = rest.split_whitespace().take(3).collect();
        Some(words.join(" "))
    };
    listed.lines().filter_map(without_index).collect()
}

fn tunnels() -> BTreeSet<String> {
    let listed: Value = serde_json::from_str(&run("ip -j -d link show type vxlan")).unwrap();
    let devices = listed.as_array().unwrap().iter();
    let devices = devices.filter(|device| device["ifname"].is_string());
    devices
        .map(|device| {
            let data = &device["linkinfo"]["info_data"];
            format!(
                "{} {} {} {} {}",
                device["ifname"], device["mtu"], data["id"], data["local"], data["port"]
            )
        })
        .collect()
}

/// Returns the entries of tunnels for other nodes.
fn of_tunnels() -> BTreeSet<String> {
    let listed = run("bridge fdb show");
    let entries = listed.lines().filter(|line| line.contains(" dst "));
    entries.map(|line| line.trim().to_owned()).collect()
}

fn limits() -> BTreeSet<String> {
    let listed: Value = serde_json::from_str(&run("tc -j qdisc show")).unwrap();
    let buckets = listed.as_array().unwrap().iter();
    let buckets = buckets.filter(|qdisc| qdisc["kind"] == "tbf");
    buckets
        .map(|qdisc| format!("{} {}", qdisc["dev"], qdisc["options"]["rate"]))
        .collect()
}

fn devices() -> BTreeSet<String> {
    let listed = run("ip -br link show type ifb");
    let names = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// Returns the settings that are on.
fn settings() -> BTreeSet<String> {
    let links = (1..=WORKLOADS).map(|n| format!("cali{n}"));
    let paths = links.flat_map(|link| SETTINGS.map(|path| path.replace("LINK", &link)));
    paths
        .filter(|path| {
            let value = std::fs::read_to_string(format!("/proc/sys/net/{path}")).unwrap();
            value.trim() == "1"
        })
        .collect()
}

/// Removes everything that an agent has written.
pub(super) fn clean() {
    run("nft flush ruleset");
    try_run("ip route flush table main proto 80");
    try_run("ip -6 route flush table main proto 80");
    for device in devices() {
        run(&format!("ip link delete {device}"));
    }
    try_run("ip link delete vxlan.calico");
    try_run("ip address delete 169.254.1.1/32 dev lo");
    for n in 1..=WORKLOADS {
        let link = format!("cali{n}");
        for address in addresses(n) {
            try_run(&format!("ip neighbor delete {address} dev {link}"));
        }
        for parent in ["root", "ingress", "clsact"] {
            try_run(&format!("tc qdisc delete dev {link} {parent}"));
        }
        for path in SETTINGS {
            sysctl(&path.replace("LINK", &link), "0");
        }
    }
}
