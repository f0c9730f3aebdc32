//! A datastore with one rule for each kind of condition, and packets that each of them matches and does
//! not match.

use calico_model::SERVICES_PREFIX;
use rule_audit::packet::state;
use serde_json::{Value, json};

use super::common::PREFIX;
use super::draw::Draw;
use super::probe::{EXPERIMENT, Kind, Probe, SYN};
use super::wires::{Party, addresses};
use super::{Case, Plan, Stored};
use crate::world::host::mac;

/// Packets of each kind that a rule matches, and that it does not match.
const EACH: usize = 2;
/// Attempts to draw them.
const ATTEMPTS: usize = 4000;
const TCP: &[Kind] = &[Kind::Tcp(SYN)];
const ECHO: &[Kind] = &[
    Kind::Icmp(8, 0),
    Kind::Icmp(8, 1),
    Kind::Icmp(13, 0),
    Kind::Icmp(128, 0),
    Kind::Icmp(128, 1),
];
const ANY: &[Kind] = &[
    Kind::Udp,
    Kind::Tcp(SYN),
    Kind::OPENING[2],
    Kind::Other(EXPERIMENT),
];

/// A rule for ingress. Only packets with its port, or with one of its addresses at the other end, reach it.
struct Row {
    kind: &'static str,
    rule: Value,
    packets: &'static [Kind],
    /// The port of the other end, or of the workload.
    ports: (Option<u16>, Option<u16>),
    others: &'static [&'static str],
}

/// Returns a rule about TCP from a port of the other end.
fn from_port(kind: &'static str, number: u16, mut rule: Value) -> Row {
    rule["protocol"] = "TCP".into();
    rule["source"]["ports"] = json!([number]);
    Row {
        kind,
        rule,
        packets: TCP,
        ports: (Some(number), None),
        others: &[],
    }
}

/// Returns a rule about TCP to a port of the workload.
fn to_port(kind: &'static str, number: u16, mut rule: Value) -> Row {
    rule["protocol"] = "TCP".into();
    rule["destination"]["ports"] = json!([number]);
    Row {
        kind,
        rule,
        packets: TCP,
        ports: (None, Some(number)),
        others: &[],
    }
}

/// Returns a rule about packets from or to these addresses.
fn of(
    kind: &'static str,
    others: &'static [&'static str],
    packets: &'static [Kind],
    mut rule: Value,
) -> Row {
    rule["source"]["nets"] = json!(others);
    Row {
        kind,
        rule,
        packets,
        ports: (None, None),
        others,
    }
}

fn allow(mut rule: Value) -> Value {
    rule["action"] = "Allow".into();
    rule
}

/// Returns the rules of the global policy.
fn rows() -> Vec<Row> {
    let source = |end: Value| allow(json!({"source": end}));
    let destination = |end: Value| allow(json!({"destination": end}));
    let two = json!(["10.65.1.2/31", "10.65.2.2/31", "fd65::1:2/127"]);
    vec![
        from_port("nets", 10_000, allow(json!({"source": {"nets": two}}))),
        from_port(
            "notNets",
            10_001,
            allow(json!({"source": {"notNets": two}})),
        ),
        from_port(
            "selector",
            10_002,
            source(json!({"selector": "app == 'web'"})),
        ),
        from_port(
            "notSelector",
            10_003,
            source(json!({"notSelector": "app == 'web'"})),
        ),
        from_port(
            "namespaceSelector",
            10_004,
            source(json!({"namespaceSelector": "env == 'live'"})),
        ),
        from_port(
            "namespaceSelector global()",
            10_005,
            source(json!({"namespaceSelector": "global()"})),
        ),
        from_port(
            "serviceAccounts.names",
            10_006,
            source(json!({"serviceAccounts": {"names": ["sa1"]}})),
        ),
        from_port(
            "serviceAccounts.selector",
            10_007,
            source(json!({"serviceAccounts": {"selector": "team == 'x'"}})),
        ),
        from_port(
            "global network set",
            10_008,
            source(json!({"selector": "kind == 'set'"})),
        ),
        from_port(
            "network set",
            10_009,
            source(json!({"selector": "kind == 'own'"})),
        ),
        from_port(
            "ports",
            10_010,
            destination(json!({"ports": [80, "8000:8080"]})),
        ),
        from_port(
            "notPorts",
            10_011,
            destination(json!({"notPorts": [80, "8000:8080"]})),
        ),
        from_port(
            "named port",
            10_012,
            destination(json!({"ports": ["http"]})),
        ),
        from_port(
            "number and name",
            10_013,
            destination(json!({"ports": [53, "http"]})),
        ),
        from_port(
            "destination nets",
            10_014,
            destination(json!({"nets": two})),
        ),
        from_port(
            "destination notNets",
            10_015,
            destination(json!({"notNets": two})),
        ),
        from_port(
            "destination selector",
            10_016,
            destination(json!({"selector": "app in {'web', 'db'}"})),
        ),
        from_port(
            "destination notSelector",
            10_017,
            destination(json!({"notSelector": "has(app)"})),
        ),
        from_port("ipVersion 4", 10_018, allow(json!({"ipVersion": 4}))),
        from_port("ipVersion 6", 10_019, allow(json!({"ipVersion": 6}))),
        from_port(
            "Deny",
            10_020,
            json!({"action": "Deny", "source": {"nets": two}}),
        ),
        from_port("after Deny", 10_020, allow(json!({}))),
        from_port("after Pass", 10_021, allow(json!({}))),
        from_port("after Log", 10_022, json!({"action": "Log"})),
        to_port(
            "source ports",
            10_030,
            source(json!({"ports": [80, "8000:8080"]})),
        ),
        to_port(
            "source notPorts",
            10_031,
            source(json!({"notPorts": [80, "8000:8080"]})),
        ),
        to_port(
            "source services",
            10_032,
            source(json!({"services": {"name": "web", "namespace": "prod"}})),
        ),
        from_port(
            "destination services",
            10_023,
            destination(json!({"services": {"name": "web", "namespace": "prod"}})),
        ),
        of(
            "protocols of services",
            &["192.0.2.24", "2001:db8::18"],
            ANY,
            allow(json!({"destination": {"services": {"name": "web", "namespace": "prod"}}})),
        ),
        of(
            "UDP",
            &["192.0.2.16", "2001:db8::10"],
            ANY,
            allow(json!({"protocol": 17})),
        ),
        of(
            "SCTP",
            &["192.0.2.17", "2001:db8::11"],
            ANY,
            allow(json!({"protocol": "SCTP"})),
        ),
        of(
            "protocol by number",
            &["192.0.2.18"],
            ANY,
            allow(json!({"protocol": EXPERIMENT})),
        ),
        of(
            "notProtocol",
            &["192.0.2.19", "2001:db8::13"],
            ANY,
            allow(json!({"notProtocol": "TCP"})),
        ),
        of(
            "ICMP type",
            &["192.0.2.20"],
            ECHO,
            icmp("ICMP", "icmp", &json!({"type": 8})),
        ),
        of(
            "ICMP code",
            &["192.0.2.21"],
            ECHO,
            icmp("ICMP", "icmp", &json!({"type": 8, "code": 1})),
        ),
        of(
            "notICMP type",
            &["192.0.2.22"],
            ECHO,
            icmp("ICMP", "notICMP", &json!({"type": 8})),
        ),
        of(
            "notICMP code",
            &["192.0.2.23"],
            ECHO,
            icmp("ICMP", "notICMP", &json!({"type": 8, "code": 1})),
        ),
        of(
            "ICMPv6 code",
            &["2001:db8::15"],
            ECHO,
            icmp("ICMPv6", "icmp", &json!({"type": 128, "code": 0})),
        ),
        of(
            "ICMPv6 notICMP",
            &["2001:db8::16"],
            ECHO,
            icmp("ICMPv6", "notICMP", &json!({"type": 128, "code": 1})),
        ),
    ]
}

fn icmp(protocol: &str, field: &str, value: &Value) -> Value {
    allow(json!({"protocol": protocol, field: value}))
}

/// Returns the rules of the policy in a namespace: its selectors select endpoints of this namespace only.
fn own_rows() -> Vec<Row> {
    let source = |end: Value| allow(json!({"source": end}));
    vec![
        from_port(
            "selector in a namespace",
            11_000,
            source(json!({"selector": "all()"})),
        ),
        from_port(
            "notSelector in a namespace",
            11_001,
            source(json!({"notSelector": "app == 'web'"})),
        ),
        from_port(
            "namespaceSelector in a namespace",
            11_002,
            source(json!({"namespaceSelector": "!has(env)", "selector": "all()"})),
        ),
        to_port(
            "services in a namespace",
            11_004,
            source(json!({"services": {"name": "web"}})),
        ),
        from_port(
            "serviceAccounts in a namespace",
            11_003,
            source(json!({"serviceAccounts": {"names": ["sa1"]}})),
        ),
    ]
}

/// Returns a rule for the other direction.
pub(super) fn mirrored(rule: &Value) -> Value {
    let mut rule = rule.clone();
    let (source, destination) = (rule["source"].take(), rule["destination"].take());
    for (field, end) in [("destination", source), ("source", destination)] {
        rule[field] = if end.is_null() { json!({}) } else { end };
    }
    rule
}

/// A direction, with all its rules.
pub(super) struct Directed {
    is_egress: bool,
    /// Each rule, and its place.
    rows: Vec<(Row, String)>,
    pub(super) store: Stored,
}

impl Directed {
    pub(super) fn new(is_egress: bool) -> Self {
        let field = if is_egress { "egress" } else { "ingress" };
        let (global, own) = (rows(), own_rows());
        let list = |rows: &[Row]| {
            let rules = rows.iter().map(|row| match is_egress {
                true => mirrored(&row.rule),
                false => row.rule.clone(),
            });
            Value::from(rules.collect::<Vec<Value>>())
        };
        let types = [if is_egress { "Egress" } else { "Ingress" }];
        let mut store = endpoints();
        for (slice, value) in slices() {
            store.insert(format!("{SERVICES_PREFIX}prod/web/{slice}"), value);
        }
        let mut put = |key: &str, spec: Value| {
            let name = key.rsplit('/').next().unwrap();
            store.insert(
                format!("{PREFIX}{key}"),
                json!({"metadata": {"name": name}, "spec": spec}),
            );
        };
        put(
            "globalnetworkpolicies/kinds",
            json!({"order": 2, "selector": "all()", "types": types, field: list(&global)}),
        );
        put(
            "networkpolicies/prod/own",
            json!({"order": 1, "selector": "all()", "types": types, field: list(&own)}),
        );
        let pass = from_port("Pass", 10_021, json!({"action": "Pass", "ipVersion": 4}));
        let deny = from_port("after Pass", 10_021, json!({"action": "Deny"}));
        put("tiers/first", json!({"order": 1, "defaultAction": "Pass"}));
        put(
            "globalnetworkpolicies/first.pass",
            json!({"tier": "first", "types": types, field: list(&[pass, deny])}),
        );
        let place = |policy: &str, at: usize| format!("{policy} spec.{field}[{at}]");
        let global = global.into_iter().enumerate();
        let global = global.map(|(at, row)| (row, place("globalnetworkpolicies/kinds", at)));
        let own = own.into_iter().enumerate();
        let own = own.map(|(at, row)| (row, place("networkpolicies/prod/own", at)));
        Self {
            is_egress,
            rows: global.chain(own).collect(),
            store,
        }
    }

    /// Plans packets for all rules. Each rule matches some, and does not match others.
    pub(super) fn plan(&self, plan: &mut Plan<'_>, draw: &mut Draw) {
        for (row, place) in &self.rows {
            // `Log` decides nothing.
            let decides = row.rule["action"] != "Log";
            let mut left = [EACH, if decides { EACH } else { 0 }];
            for _ in 0..ATTEMPTS {
                if left == [0, 0] {
                    break;
                }
                let (sender, probe) = self.probe(row, draw);
                let Some(case) = plan.case(sender, &probe) else {
                    continue;
                };
                let rules = case.verdict.steps.iter();
                let is_hit = rules.clone().any(|(_, rule)| rule == place);
                if left[usize::from(is_hit)] == 0 || case.verdict.state != state::NEW {
                    continue;
                }
                left[usize::from(is_hit)] -= 1;
                plan.add(Case {
                    rule: Some((row.kind.to_owned(), is_hit)),
                    ..case
                });
            }
            assert_eq!(
                left,
                [0, 0],
                "no packet for {}: [not matched, matched]",
                row.kind
            );
        }
    }

    fn probe(&self, row: &Row, draw: &mut Draw) -> (Party, Probe) {
        let own = 1 + u8::try_from(draw.below(4)).unwrap();
        let (workload, other) = loop {
            let (sender, probe) = draw.probe();
            let other = match sender {
                Party::Host => continue,
                Party::Workload(n) if n == own => probe.to,
                _ => probe.from,
            };
            if Party::of(other) == Party::Host || Party::of(other) == Party::Workload(own) {
                continue;
            }
            let other = match row.others {
                [] => other,
                others => draw.of(others).parse().unwrap(),
            };
            let [v4, v6] = addresses(own);
            let workload = if other.is_ipv4() { v4 } else { v6 };
            break (workload.parse().unwrap(), other);
        };
        let mut port = |wanted: Option<u16>| {
            let drawn = draw.probe().1.destination_port;
            wanted.unwrap_or(drawn)
        };
        let ports = (port(row.ports.0), port(row.ports.1));
        let kinds: Vec<Kind> = row.packets.to_vec();
        let probe = Probe {
            from: other,
            to: workload,
            kind: draw.of(&kinds),
            source_port: ports.0,
            destination_port: ports.1,
        };
        let probe = match self.is_egress {
            false => probe,
            true => Probe {
                from: probe.to,
                to: probe.from,
                source_port: probe.destination_port,
                destination_port: probe.source_port,
                ..probe
            },
        };
        (Party::of(probe.from), probe)
    }

    /// Returns the kinds of all rules that decide.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let rows = self.rows.iter().map(|(row, _)| row);
        let rows = rows.filter(|row| row.rule["action"] != "Log");
        rows.map(|row| row.kind)
    }
}

/// Returns the slices of the service `prod/web`: some of the workloads, and endpoints elsewhere.
fn slices() -> [(&'static str, Value); 2] {
    let tcp = json!([{"port": 80}, {"protocol": "SCTP", "port": 8080}]);
    let udp = json!([{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 8000}]);
    let endpoints = |addresses: &[&str]| json!([{ "addresses": addresses }]);
    let own = [
        "10.65.1.1",
        "10.65.1.3",
        "10.65.2.1",
        "fd65::1:1",
        "fd65::1:3",
    ];
    let others = ["10.65.1.2", "10.65.1.1", "fd65::1:2", "fd65::2:2"];
    [
        ("a", json!({"endpoints": endpoints(&own), "ports": tcp})),
        ("b", json!({"endpoints": endpoints(&others), "ports": udp})),
    ]
}

/// Returns the endpoints and network sets.
pub(super) fn endpoints() -> Stored {
    let mut store = Stored::new();
    let mut put = |key: String, labels: Value, spec: Value| {
        let name = key.rsplit('/').next().unwrap().to_owned();
        let value = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        store.insert(format!("{PREFIX}{key}"), value);
    };
    let all = [
        (1, 1, "prod", json!({"app": "web"}), "sa1"),
        (1, 2, "prod", json!({"app": "db"}), ""),
        (1, 3, "test", json!({"app": "web"}), "sa1"),
        (1, 4, "test", json!({}), "sa2"),
        (2, 1, "prod", json!({"app": "web"}), "sa2"),
        (2, 2, "test", json!({"app": "db"}), "sa1"),
        (2, 3, "prod", json!({}), "sa1"),
    ];
    for (node, n, namespace, labels, account) in all {
        let mut profiles = vec![format!("kns.{namespace}")];
        if account == "sa1" {
            profiles.push("ksa.sa1".to_owned());
        }
        profiles.push("projectcalico-default-allow".to_owned());
        let spec = json!({
            "orchestrator": "k8s", "node": format!("n{node}"), "pod": format!("p{n}"), "endpoint": "eth0",
            "interfaceName": format!("cali{n}"), "mac": mac(n), "serviceAccountName": account,
            "profiles": profiles,
            "ipNetworks": [format!("10.65.{node}.{n}/32"), format!("fd65::{node}:{n}/128")],
            "ports": [{"name": "http", "protocol": "TCP", "port": 80 + u16::from(n % 2)}],
        });
        put(
            format!("workloadendpoints/{namespace}/n{node}-k8s-p{n}-eth0"),
            labels,
            spec,
        );
    }
    for (name, labels) in [
        ("kns.prod", json!({"pcns.env": "live"})),
        ("kns.test", json!({"pcns.kind": "test"})),
        ("ksa.sa1", json!({"pcsa.team": "x"})),
    ] {
        put(
            format!("profiles/{name}"),
            json!({}),
            json!({"labelsToApply": labels}),
        );
    }
    let nets = json!(["192.0.2.0/25", "2001:db8::/64"]);
    put(
        "globalnetworksets/set".into(),
        json!({"kind": "set"}),
        json!({"nets": nets}),
    );
    let nets = json!(["198.51.100.0/24", "2001:db8:1::/64"]);
    put(
        "networksets/prod/own".into(),
        json!({"kind": "own"}),
        json!({"nets": nets}),
    );
    store
}
