//! Host endpoints with one rule for each kind of condition at each hook, and packets for them.

use rule_audit::evaluator::HostHook;
use rule_audit::evaluator::HostHook::{
    Forward, ForwardTo, Input, Output, Untracked, UntrackedOutput, Untranslated,
};
use serde_json::{Value, json};

use super::traffic::{OPENING, SERVICE, THROUGH, another, at_link, draw_probe, through};
use crate::verdicts::common::PREFIX;
use crate::verdicts::directed::{endpoints, mirrored};
use crate::verdicts::draw::Draw;
use crate::verdicts::evaluated::Reached;
use crate::verdicts::probe::{Kind, Probe, RESET, SYN};
use crate::verdicts::wires::{HOST, HOST_ASIDE, Party};
use crate::verdicts::{Case, Plan, Stored};

/// Packets of each kind that a rule matches, and that it does not match.
const EACH: usize = 1;
/// Attempts to draw them.
const ATTEMPTS: usize = 6000;
/// The last protocol before those that rules name by number.
const UNASSIGNED: u8 = 250;

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
pub(super) struct Layout {
    pub(super) name: &'static str,
    /// Name, `interfaceName` and `expectedIPs`.
    hosts: &'static [(&'static str, Option<&'static str>, &'static [&'static str])],
    /// The host endpoints that policies apply to, each with its interfaces.
    interfaces: &'static [(&'static str, &'static [&'static str])],
    /// In and out; `None` for the default lists.
    failsafe: Option<[&'static str; 2]>,
}

const ALL_LINKS: &[&str] = &["uplink", "side", "cali1", "cali2", "cali4"];
pub(super) const LAYOUTS: [Layout; 3] = [
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
pub(super) struct Target {
    pub(super) endpoint: &'static str,
    pub(super) hook: HostHook,
    pub(super) kind: String,
    place: String,
    packets: Vec<Kind>,
    /// The ports of the packets, at the end that the host endpoint is not, and at the other one.
    gates: Vec<u16>,
    own: Vec<u16>,
}

impl Layout {
    pub(super) fn store(&self) -> Stored {
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

    pub(super) fn targets(&self) -> Vec<Target> {
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

    pub(super) fn plan(&self, plan: &mut Plan<'_>, draw: &mut Draw) {
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
