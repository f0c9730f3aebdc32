//! Real packets at host endpoints: to the host, of the host, and through it. One rule for each kind of
//! condition at each hook, with packets that match it and do not; then generated datastores.
//!
//! Another table of the kernel translates the addresses of a service. It also sets the bit of the mark that
//! Felix uses, on all packets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use rule_audit::Fabric;
use rule_audit::evaluator::HostHook;
use rule_audit::evaluator::HostHook::{
    Forward, ForwardTo, Input, Output, Untracked, UntrackedOutput, Untranslated,
};
use rule_audit::packet::state;
use serde_json::{Value, json};

use super::common::PREFIX;
use super::directed::{endpoints, mirrored};
use super::draw::{Draw, PORTS};
use super::evaluated::{Reached, Services};
use super::probe::{EXPERIMENT, Kind, Probe, RESET, SYN};
use super::wires::{HOST, HOST_ASIDE, HOST_OTHER, Party, WORKLOADS, addresses};
use super::{Case, Lab, Plan, STORES, Stored, is_long, stores};
use crate::readback::fabric;
use crate::world::{lab, run};

/// Packets of each kind that a rule matches, and that it does not match.
const EACH: usize = 1;
/// Attempts to draw them.
const ATTEMPTS: usize = 6000;
/// First packets of connections for each generated datastore.
const DRAWN: usize = 60;
/// Further packets of connections through the host.
const LATER: usize = 8;
/// The addresses of a service, which are not those of a host.
const SERVICE: [&str; 2] = ["198.18.0.100", "2001:db8:9::100"];
/// Ports that are sometimes failsafe ports.
const FAILSAFE: [u16; 8] = [22, 179, 2379, 5473, 6443, 6667, 53, 67];
/// Addresses of other hosts that the last rule for forwarded packets allows.
const THROUGH: [[&str; 3]; 2] = [
    ["198.51.100.99", "203.0.113.9", "10.65.1.4"],
    ["2001:db8:1::99", "2001:db8:2::9", "fd65::1:4"],
];
/// The last protocol before those that rules name by number.
const UNASSIGNED: u8 = 250;
/// The kinds of packets that open a connection.
const OPENING: [Kind; 8] = [
    Kind::Udp,
    Kind::Tcp(SYN),
    Kind::OPENING[2],
    Kind::Other(EXPERIMENT),
    Kind::Icmp(8, 0),
    Kind::Icmp(8, 1),
    Kind::Icmp(128, 0),
    Kind::Icmp(128, 1),
];

/// Policies with the same purpose, and the hooks at which they decide.
struct Stage {
    policy: &'static str,
    purpose: &'static [&'static str],
    hooks: &'static [HostHook],
    /// The first port of the other end that selects one of the rules.
    gate: u16,
    /// The code of its ICMP messages. Its other protocol is this number above [`UNASSIGNED`].
    code: u8,
}

const STAGES: [Stage; 4] = [
    Stage {
        policy: "untracked",
        purpose: &["doNotTrack", "applyOnForward"],
        hooks: &[Untracked, UntrackedOutput],
        gate: 20_000,
        code: 1,
    },
    Stage {
        policy: "untranslated",
        purpose: &["preDNAT", "applyOnForward"],
        hooks: &[Untranslated],
        gate: 21_000,
        code: 2,
    },
    Stage {
        policy: "normal",
        purpose: &[],
        hooks: &[Input, Output],
        gate: 22_000,
        code: 3,
    },
    Stage {
        policy: "through",
        purpose: &["applyOnForward"],
        hooks: &[Forward, ForwardTo],
        gate: 23_000,
        code: 4,
    },
];

/// A rule for ingress, and packets for it.
struct Row {
    kind: &'static str,
    rule: Value,
    packets: Vec<Kind>,
    /// The port of the other end.
    gate: Option<u16>,
}

/// Returns the rules of a stage. `other` is the address of the other end that selects some of them.
fn rows(stage: &Stage) -> Vec<Row> {
    let (tcp, udp, sctp) = (Kind::Tcp(SYN), Kind::Udp, Kind::OPENING[2]);
    let row = |kind, at: u16, packets: &[Kind], mut rule: Value| {
        let gate = stage.gate + at;
        rule["source"]["ports"] = json!([gate]);
        Row {
            kind,
            rule,
            packets: packets.to_vec(),
            gate: Some(gate),
        }
    };
    let plain = |kind, packets: &[Kind], rule: Value| Row {
        kind,
        rule,
        packets: packets.to_vec(),
        gate: None,
    };
    let nets = json!([
        "192.0.2.0/24",
        "203.0.113.7",
        "10.65.1.0/31",
        "2001:db8::/64",
        "2001:db8:2::7",
        "fd65::1:1"
    ]);
    let number = UNASSIGNED + stage.code;
    let other = Kind::Other(number);
    let codes = [0, stage.code];
    let icmp = codes.map(|code| Kind::Icmp(8, code));
    let icmp6 = codes.map(|code| Kind::Icmp(128, code));
    vec![
        row(
            "ports",
            0,
            &[tcp],
            json!({"action": "Allow", "protocol": "TCP",
            "destination": {"ports": [80, "8000:8080"]}}),
        ),
        row(
            "Deny",
            1,
            &[udp],
            json!({"action": "Deny", "protocol": "UDP",
            "destination": {"ports": [54, 80]}}),
        ),
        row(
            "notPorts",
            1,
            &[udp],
            json!({"action": "Allow", "protocol": "UDP",
            "destination": {"notPorts": [81, "90:91"]}}),
        ),
        row(
            "nets",
            2,
            &[tcp],
            json!({"action": "Allow", "protocol": "TCP",
            "source": {"nets": nets}}),
        ),
        row(
            "notNets",
            3,
            &[tcp],
            json!({"action": "Deny", "protocol": "TCP",
            "source": {"notNets": nets}}),
        ),
        row(
            "selector",
            4,
            &[tcp],
            json!({"action": "Allow", "protocol": "TCP",
            "source": {"selector": "kind == 'set' || app == 'web'"}}),
        ),
        row(
            "notSelector",
            5,
            &[tcp],
            json!({"action": "Allow", "protocol": "TCP",
            "source": {"notSelector": "kind == 'set' || app == 'web'"}}),
        ),
        row(
            "Pass",
            6,
            &[tcp],
            json!({"action": "Pass", "protocol": "TCP", "ipVersion": 4}),
        ),
        row(
            "after Pass",
            6,
            &[tcp],
            json!({"action": "Deny", "protocol": "TCP"}),
        ),
        row(
            "SCTP",
            7,
            &[sctp, udp],
            json!({"action": "Allow", "protocol": "SCTP"}),
        ),
        row(
            "ipVersion",
            8,
            &[tcp],
            json!({"action": "Allow", "protocol": "TCP", "ipVersion": 6}),
        ),
        plain(
            "ICMP",
            &icmp,
            json!({"action": "Allow", "protocol": "ICMP",
            "icmp": {"type": 8, "code": stage.code}}),
        ),
        plain(
            "ICMPv6",
            &icmp6,
            json!({"action": "Allow", "protocol": "ICMPv6",
            "icmp": {"type": 128, "code": stage.code}}),
        ),
        plain(
            "protocol by number",
            &[other, udp],
            json!({"action": "Deny",
            "protocol": number, "source": {"nets": nets}}),
        ),
    ]
}

/// The host endpoints of a datastore, and the lists of failsafe ports.
struct Layout {
    name: &'static str,
    /// Name, `interfaceName` and `expectedIPs`.
    hosts: &'static [(&'static str, Option<&'static str>, &'static [&'static str])],
    /// The host endpoints that policies apply to, each with its interfaces.
    interfaces: &'static [(&'static str, &'static [&'static str])],
    /// In and out; `None` for the default lists.
    failsafe: Option<[&'static str; 2]>,
}

const ALL_LINKS: &[&str] = &["uplink", "side", "cali1", "cali2", "cali4"];
const LAYOUTS: [Layout; 3] = [
    Layout {
        name: "interfaces",
        hosts: &[
            ("a-named", Some("uplink"), &[]),
            ("b-addressed", None, &HOST_ASIDE),
        ],
        interfaces: &[("a-named", &["uplink"]), ("b-addressed", &["side"])],
        failsafe: None,
    },
    Layout {
        name: "all interfaces",
        hosts: &[("a-all", Some("*"), &[])],
        interfaces: &[("a-all", ALL_LINKS)],
        failsafe: Some([
            r#"[{"port": 8081}, {"protocol": "UDP", "port": 8000, "net": "192.0.2.0/24"}]"#,
            r#"[{"protocol": "UDP", "port": 82}, {"protocol": "TCP", "port": 91}]"#,
        ]),
    },
    Layout {
        name: "address and others",
        // The second one for the uplink has no interface.
        hosts: &[
            ("a-addressed", None, &HOST),
            ("b-second", Some("uplink"), &[]),
            ("c-all", Some("*"), &["10.0.9.9"]),
        ],
        interfaces: &[
            ("a-addressed", &["uplink"]),
            ("c-all", &["side", "cali1", "cali3"]),
        ],
        failsafe: Some([
            r#"[{"protocol": "SCTP", "port": 90}, {"port": 22, "net": "2001:db8::/32"}]"#,
            "[]",
        ]),
    },
];

/// A decision that must be made about a packet, and not about another one.
struct Target {
    endpoint: &'static str,
    hook: HostHook,
    kind: String,
    place: String,
    packets: Vec<Kind>,
    /// The ports of the packets, at the end that the host endpoint is not, and at the other one.
    gates: Vec<u16>,
    own: Vec<u16>,
}

impl Layout {
    fn store(&self) -> Stored {
        let mut store = endpoints();
        let mut put = |key: String, labels: Value, spec: Value| {
            let name = key.rsplit('/').next().unwrap().to_owned();
            let value = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
            store.insert(format!("{PREFIX}{key}"), value);
        };
        for (name, interface, addresses) in self.hosts {
            let mut spec = json!({"node": "n1", "profiles": [], "expectedIPs": addresses});
            if let Some(interface) = interface {
                spec["interfaceName"] = (*interface).into();
            }
            put(format!("hostendpoints/{name}"), json!({"host": name}), spec);
        }
        for (order, stage) in (1..).zip(&STAGES) {
            let ingress = rows(stage).into_iter().map(|row| row.rule);
            let mut ingress: Vec<Value> = ingress.collect();
            let mut egress: Vec<Value> = ingress.iter().map(mirrored).collect();
            if stage.hooks.contains(&Forward) {
                let through = json!({"action": "Allow", "source": {"nets": THROUGH.concat()}});
                // The places of the other rules stay the same.
                ingress.push(through.clone());
                egress.push(mirrored(&through));
            }
            let mut spec = json!({"order": order, "selector": "has(host)", "ingress": ingress});
            for purpose in stage.purpose {
                spec[purpose] = true.into();
            }
            let has_egress = stage.hooks.iter().any(|hook| !hook.is_inbound());
            spec["types"] = match has_egress {
                true => json!(["Ingress", "Egress"]),
                false => json!(["Ingress"]),
            };
            if has_egress {
                spec["egress"] = egress.into();
            }
            put(
                format!("globalnetworkpolicies/{}", stage.policy),
                json!({}),
                spec,
            );
        }
        put(
            "globalnetworksets/aside".into(),
            json!({"kind": "set"}),
            json!({"nets": ["203.0.113.7", "2001:db8:2::7"]}),
        );
        let mut spec = json!({"defaultEndpointToHostAction": "Accept"});
        if let Some([inbound, outbound]) = self.failsafe {
            spec["failsafeInboundHostPorts"] = serde_json::from_str(inbound).unwrap();
            spec["failsafeOutboundHostPorts"] = serde_json::from_str(outbound).unwrap();
        }
        put("felixconfigurations/default".into(), json!({}), spec);
        store
    }

    /// Returns the numbers of failsafe ports of a direction.
    fn failsafe(&self, is_inbound: bool) -> Vec<u16> {
        let Some(lists) = self.failsafe else {
            let common = [179, 2379, 6443, 6667];
            let own: [u16; 2] = if is_inbound { [22, 22] } else { [53, 67] };
            return [&common[..], &own].concat();
        };
        let list: Value = serde_json::from_str(lists[usize::from(!is_inbound)]).unwrap();
        let ports = list.as_array().unwrap().iter();
        ports
            .map(|port| u16::try_from(port["port"].as_u64().unwrap()).unwrap())
            .collect()
    }

    fn targets(&self) -> Vec<Target> {
        let mut all = Vec::new();
        for (endpoint, links) in self.interfaces {
            // The service has a route there.
            let has_service = links.contains(&"uplink");
            for stage in &STAGES {
                // Policies without connection tracking have no effect on all interfaces.
                let is_for_all = endpoint.ends_with("all");
                if is_for_all && stage.purpose.contains(&"doNotTrack") {
                    continue;
                }
                for hook in stage.hooks {
                    self.add_rules(endpoint, stage, *hook, &mut all);
                    self.add_others(endpoint, *hook, (!is_for_all, has_service), &mut all);
                }
            }
        }
        all
    }

    fn add_rules(
        &self,
        endpoint: &'static str,
        stage: &Stage,
        hook: HostHook,
        all: &mut Vec<Target>,
    ) {
        let field = if hook.is_inbound() {
            "ingress"
        } else {
            "egress"
        };
        for (at, row) in rows(stage).into_iter().enumerate() {
            // `Pass` leaves the decision to others.
            if row.kind == "Pass" {
                continue;
            }
            all.push(Target {
                endpoint,
                hook,
                kind: row.kind.to_owned(),
                place: format!("globalnetworkpolicies/{} spec.{field}[{at}]", stage.policy),
                packets: row.packets,
                gates: row.gate.into_iter().collect(),
                own: Vec::new(),
            });
        }
    }

    /// Adds the decisions that no rule of a policy makes.
    fn add_others(
        &self,
        endpoint: &'static str,
        hook: HostHook,
        (has_untracked, has_service): (bool, bool),
        all: &mut Vec<Target>,
    ) {
        let datagrams = [Kind::Tcp(SYN), Kind::Udp, Kind::OPENING[2]];
        let mut add = |place: &str, packets: &[Kind], gates: &[u16], own: &[u16]| {
            all.push(Target {
                endpoint,
                hook,
                kind: place.to_owned(),
                place: place.to_owned(),
                packets: packets.to_vec(),
                gates: gates.to_vec(),
                own: own.to_vec(),
            });
        };
        let failsafe = self.failsafe(hook.is_inbound());
        let of_others = self.failsafe(!hook.is_inbound());
        let is_forward = matches!(hook, Forward | ForwardTo);
        if !is_forward && !failsafe.is_empty() {
            match hook.is_inbound() {
                true => add("failsafe port", &datagrams, &[], &failsafe),
                false => add("failsafe port", &datagrams, &failsafe, &[]),
            }
        }
        let is_early = matches!(hook, Untracked | UntrackedOutput);
        if is_early && !of_others.is_empty() {
            // Replies, by their source ports.
            match hook.is_inbound() {
                true => add("failsafe port", &datagrams, &of_others, &[]),
                false => add("failsafe port", &datagrams, &[], &of_others),
            }
        }
        // The policies before translation drop those that arrive.
        if matches!(hook, Untranslated | Output) {
            let packets = [Kind::Tcp(RESET), Kind::Tcp(SYN)];
            add("packets of no connection", &packets, &[], &[]);
        }
        let untracked = (STAGES[0].gate, 80);
        let untranslated = (STAGES[1].gate, 80);
        let mut accepted = |(gate, own): (u16, u16)| {
            add("accepted before", &[Kind::Tcp(SYN)], &[gate], &[own, 81]);
        };
        match hook {
            Input | Forward => {
                accepted(untranslated);
                if has_untracked {
                    accepted(untracked);
                }
            }
            Output | Untranslated if has_untracked => accepted(untracked),
            _ => {}
        }
        if matches!(hook, Input | Output | Forward | ForwardTo) {
            add("tier default: no rule matches", &OPENING, &[], &[]);
        }
        if hook == Output && has_service {
            add("translated destination", &datagrams[..2], &[], &[53, 80]);
        }
    }

    fn plan(&self, plan: &mut Plan<'_>, draw: &mut Draw) {
        for target in self.targets() {
            let of_endpoint = self.interfaces.iter();
            let (_, links) = of_endpoint
                .clone()
                .find(|(name, _)| *name == target.endpoint)
                .unwrap();
            let kind = format!("{} {:?} {}", target.endpoint, target.hook, target.kind);
            let mut left = [EACH, EACH];
            for _ in 0..ATTEMPTS {
                if left == [0, 0] {
                    break;
                }
                let (sender, probe) = target.probe(links, draw);
                let Some(case) = plan.case(sender, &probe) else {
                    continue;
                };
                let mut steps = case.verdict.steps.iter();
                let step = steps.find(|(reached, _)| {
                    matches!(reached, Reached::Host(hook, link)
                        if *hook == target.hook && links.contains(&link.as_str()))
                });
                let Some((_, place)) = step else {
                    continue;
                };
                let is_hit = *place == target.place;
                if left[usize::from(is_hit)] == 0 {
                    continue;
                }
                left[usize::from(is_hit)] -= 1;
                plan.add(Case {
                    rule: Some((kind.clone(), is_hit)),
                    ..case
                });
            }
            assert_eq!(left, [0, 0], "no packet for {kind}: [not matched, matched]");
        }
    }
}

impl Target {
    /// Draws a packet that reaches the hook at one of these links.
    fn probe(&self, links: &[&str], draw: &mut Draw) -> (Party, Probe) {
        let is_local = matches!(self.hook, Input | Output);
        let links: Vec<&str> = links
            .iter()
            .copied()
            .filter(|link| !is_local || !link.starts_with("cali"))
            .collect();
        let party = at_link(draw.of(&links));
        let (sender, receiver) = match self.hook {
            Input => (party, Party::Host),
            Output | UntrackedOutput => (Party::Host, party),
            Forward => (party, another(party, false, draw)),
            Untracked | Untranslated => (party, another(party, true, draw)),
            ForwardTo => (another(party, false, draw), party),
        };
        let mut probe = draw_probe(sender, receiver, draw);
        let to_service = match self.hook {
            Output => self.place.starts_with("translated") && draw.below(2) == 0,
            ForwardTo | UntrackedOutput => false,
            _ => draw.below(6) == 0,
        };
        let is_v6 = usize::from(probe.to.is_ipv6());
        if to_service {
            probe.to = SERVICE[is_v6].parse().unwrap();
        }
        // Otherwise, policies where the packet arrives would drop most of them.
        if self.hook == ForwardTo && draw.below(2) == 0 {
            probe.from = through(sender, is_v6).unwrap_or(probe.from);
        }
        if self.hook == ForwardTo && self.gates.is_empty() && draw.below(3) == 0 {
            probe.to = through(receiver, is_v6).unwrap_or(probe.to);
        }
        probe.kind = draw.of(&self.packets);
        let mut port = |list: &[u16], drawn: u16| match (list, draw.below(4)) {
            ([], _) => drawn,
            // A packet that differs in one port only.
            (_, 0) if self.place != "accepted before" && list.len() > 1 => drawn,
            _ => draw.of(list),
        };
        let others = port(&self.gates, probe.source_port);
        let own = port(&self.own, probe.destination_port);
        (probe.source_port, probe.destination_port) = match self.hook.is_inbound() {
            true => (others, own),
            false => (own, others),
        };
        (sender, probe)
    }
}

/// Returns the place at the other end of a link.
pub(super) fn at_link(link: &str) -> Party {
    match link.strip_prefix("cali") {
        Some(n) => Party::Workload(n.parse().unwrap()),
        None if link == "side" => Party::Side,
        None => Party::Far,
    }
}

/// Returns the address of a place that the last rule for forwarded packets allows.
fn through(party: Party, is_v6: usize) -> Option<IpAddr> {
    let own = THROUGH[is_v6].map(|text| text.parse::<IpAddr>().unwrap());
    own.into_iter().find(|own| Party::of(*own) == party)
}

/// Draws another place than this one.
fn another(party: Party, or_host: bool, draw: &mut Draw) -> Party {
    let drawn = match draw.below(6) {
        0 | 1 => Party::Far,
        2 | 3 => Party::Side,
        4 if or_host => Party::Host,
        _ => Party::Workload(1 + u8::try_from(draw.below(WORKLOADS.into())).unwrap()),
    };
    match drawn == party {
        true => another(party, or_host, draw),
        false => drawn,
    }
}

/// Draws a packet from one place to another.
fn draw_probe(sender: Party, receiver: Party, draw: &mut Draw) -> Probe {
    let is_v6 = draw.below(2);
    let mut address = |party: Party| match (party, draw.below(3)) {
        (Party::Host, 0) => HOST_ASIDE[is_v6].parse().unwrap(),
        (Party::Host, 1) => HOST_OTHER[is_v6].parse().unwrap(),
        _ => draw.address(party, is_v6),
    };
    let (from, to) = (address(sender), address(receiver));
    let mut number = || match draw.below(4) {
        0 => 40_000 + u16::try_from(draw.below(20_000)).unwrap(),
        _ => draw.of(&PORTS),
    };
    // The guard closes this port to workloads, and answers of a DHCP client.
    let mut port = || loop {
        let drawn = number();
        if drawn != 68 {
            return drawn;
        }
    };
    let (source_port, destination_port) = (port(), port());
    Probe {
        from,
        to,
        kind: draw.of(&OPENING),
        source_port,
        destination_port,
    }
}

/// Returns the service: for each port the address and port of an endpoint.
fn services() -> Services {
    let mut services = Services::new();
    for (is_v6, service) in SERVICE.iter().enumerate() {
        let of_workload = addresses(1)[is_v6].clone();
        let far = ["10.65.2.9", "fd65::2:9"][is_v6].to_owned();
        let side = ["203.0.113.8", "2001:db8:2::8"][is_v6].to_owned();
        let own = HOST[is_v6].to_owned();
        for (port, to, number) in [
            (53, own, 8081),
            (80, of_workload, 8080),
            (81, side, 79),
            (8080, far, 80),
        ] {
            for protocol in [6, 17] {
                let key = (service.parse().unwrap(), protocol, port);
                services.insert(key, (to.parse().unwrap(), number));
            }
        }
    }
    services
}

/// Lets the kernel translate the service, and sets the bit of the mark that Felix uses.
fn translate(services: &Services) {
    for (service, next_hop) in SERVICE.iter().zip(["10.0.0.1", "fd00::1"]) {
        run(&format!("ip route add {service} via {next_hop} dev uplink"));
    }
    run("nft add table inet other");
    for (chain, hook) in [("arriving", "prerouting"), ("own", "output")] {
        let kind = "{ type nat hook HOOK priority -100 ; }".replace("HOOK", hook);
        run(&format!("nft add chain inet other {chain} {kind}"));
        let kind = "{ type filter hook HOOK priority -310 ; }".replace("HOOK", hook);
        run(&format!("nft add chain inet other {chain}-mark {kind}"));
        run(&format!(
            "nft add rule inet other {chain}-mark meta mark set 0x10000"
        ));
        for ((service, protocol, port), (to, number)) in services {
            let protocol = if *protocol == 6 { "tcp" } else { "udp" };
            let (family, to) = match to {
                IpAddr::V4(to) => ("ip", to.to_string()),
                IpAddr::V6(to) => ("ip6", format!("[{to}]")),
            };
            run(&format!(
                "nft add rule inet other {chain} {family} daddr {service} {protocol} dport {port} \
                 dnat {family} to {to}:{number}"
            ));
        }
    }
}

/// Returns the fabric, with the interfaces of the host.
fn located(store: &Stored) -> Fabric {
    let mut fabric = fabric(store);
    let own = |list: [&str; 2]| -> BTreeSet<IpAddr> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    };
    let interfaces = [("uplink", own(HOST)), ("side", own(HOST_ASIDE))];
    let interfaces = interfaces.map(|(name, own)| (name.to_owned(), own));
    fabric.locate(&BTreeMap::from(interfaces));
    fabric
}

/// Adds host endpoints of all kinds to a generated datastore, and gives its policies purposes.
fn add_hosts(store: &mut Stored, draw: &mut Draw) {
    for (key, value) in store.iter_mut() {
        if !key.contains("/globalnetworkpolicies/") {
            continue;
        }
        let purposes: &[&str] = draw.of(&[
            &[][..],
            &["applyOnForward"][..],
            &["preDNAT", "applyOnForward"],
            &["doNotTrack", "applyOnForward"],
        ]);
        for purpose in purposes {
            value["spec"][purpose] = true.into();
        }
        if purposes.contains(&"preDNAT") {
            value["spec"]["types"] = json!(["Ingress"]);
            value["spec"]["egress"] = json!([]);
        }
    }
    let labels = [
        json!({"app": "web"}),
        json!({"app": "db", "x/role": "a"}),
        json!({"x/role": "b-a"}),
        json!({}),
    ];
    let profiles = [
        json!([]),
        json!(["kns.prod"]),
        json!(["projectcalico-default-allow"]),
    ];
    for (name, interface, addresses) in [
        ("a-named", Some("side"), json!([])),
        ("b-addressed", None, json!(HOST)),
        ("c-all", Some("*"), json!([])),
    ] {
        if draw.below(3) == 0 {
            continue;
        }
        let mut spec = json!({"node": "n1", "expectedIPs": addresses,
            "profiles": profiles[draw.below(profiles.len())],
            "ports": [{"name": "http", "protocol": "TCP", "port": 81}]});
        if let Some(interface) = interface {
            spec["interfaceName"] = interface.into();
        }
        let labels = &labels[draw.below(labels.len())];
        let value = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        store.insert(format!("{PREFIX}hostendpoints/{name}"), value);
    }
}

/// Draws a packet that is not only between workloads.
pub(super) fn any_probe(draw: &mut Draw) -> (Party, Probe) {
    let sender = another(Party::Host, false, draw);
    let (sender, receiver) = match draw.below(4) {
        0 => (Party::Host, sender),
        1 => (sender, Party::Host),
        _ => (sender, another(sender, true, draw)),
    };
    let mut probe = draw_probe(sender, receiver, draw);
    if draw.below(8) == 0 {
        probe.to = SERVICE[usize::from(probe.to.is_ipv6())].parse().unwrap();
    }
    let is_of_workload = [sender, receiver]
        .iter()
        .any(|party| matches!(party, Party::Workload(_)));
    if !is_of_workload && draw.below(4) == 0 {
        probe.destination_port = draw.of(&FAILSAFE);
    }
    (sender, probe)
}

// Promise: as felix generated_policies_decide_about_real_packets
#[test]
fn rules_of_host_endpoints_decide_about_real_packets() {
    lab("rules_of_host_endpoints_decide_about_real_packets", || {
        let mut lab = Lab::new();
        let mut draw = Draw(lab.seed);
        translate(&services());
        for layout in &LAYOUTS {
            let store = layout.store();
            let fabric = located(&store);
            lab.program(&store, &fabric);
            let mut plan = Plan::new(&fabric);
            plan.evaluator.services = services();
            layout.plan(&mut plan, &mut draw);
            let first = plan.cases.clone();
            let through = first.iter().filter(|case| {
                let mut steps = case.verdict.steps.iter();
                case.passes && steps.any(|(reached, _)| is_forwarded(reached))
            });
            for case in through.take(LATER) {
                plan.add_later(case);
            }
            let cases = std::mem::take(&mut plan.cases);
            lab.counts = super::Counts::default();
            lab.check(&cases);
            println!("{}: {:?}", layout.name, lab.counts);
            for target in layout.targets() {
                let kind = format!("{} {:?} {}", target.endpoint, target.hook, target.kind);
                let [missed, hit] = lab.counts.rules[&kind];
                assert!(missed > 0 && hit > 0, "{kind}: {:?}", lab.counts);
            }
            assert!(lab.counts.states.contains_key(&state::ESTABLISHED));
        }
    });
}

fn is_forwarded(reached: &Reached) -> bool {
    matches!(reached, Reached::Host(Forward, _))
}

// Promise: as felix generated_policies_decide_about_real_packets
#[test]
fn generated_host_endpoints_decide_about_real_packets() {
    lab("generated_host_endpoints_decide_about_real_packets", || {
        let mut lab = Lab::new();
        let mut draw = Draw(lab.seed);
        translate(&services());
        let count = STORES[is_long()];
        for mut store in stores(lab.seed, &mut draw, count) {
            add_hosts(&mut store, &mut draw);
            let fabric = located(&store);
            lab.program(&store, &fabric);
            let mut plan = Plan::new(&fabric);
            plan.evaluator.services = services();
            plan.draw_from(DRAWN, || any_probe(&mut draw));
            let cases = std::mem::take(&mut plan.cases);
            lab.check(&cases);
        }
        println!("{:?}", lab.counts);
        assert!(lab.counts.arrived + lab.counts.dropped >= count * DRAWN);
    });
}
