//! Verdicts that Felix explains, against real packets. Needs root and `CAMBRIC_LAB=1`.
//!
//! A packet that does not arrive is recognized by a later one that does: both are sent by one thread on
//! one CPU, so the kernel handles them in their order.

use std::net::{IpAddr, SocketAddr};

use daemon_common::command::PacketQuery;
use daemon_common::report::{EndpointRules, PacketVerdict};
use daemon_common::{Command, Reply};
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::world::host::{Host, RESOURCES, mac, workload};
use crate::world::{Workload, lab, packet, run};

const UDP: u8 = 17;
/// The port of the packet that always arrives.
const MARKER: u16 = 9;

/// A packet, and the rule that decides about it: a part of the text of the last decision.
struct Case {
    from: u8,
    from_ip: Option<&'static str>,
    to: &'static str,
    protocol: &'static str,
    port: Option<u16>,
    allowed: bool,
    cause: &'static str,
}

const fn case(
    from: u8,
    to: &'static str,
    (protocol, port): (&'static str, u16),
    allowed: bool,
    cause: &'static str,
) -> Case {
    Case {
        from,
        from_ip: None,
        to,
        protocol,
        port: if port == 0 { None } else { Some(port) },
        allowed,
        cause,
    }
}

const CASES: &[Case] = &[
    case(
        1,
        "ns/p2",
        ("tcp", 5432),
        true,
        "NetworkPolicy ns/db ingress[0]",
    ),
    case(
        1,
        "10.65.0.2",
        ("tcp", 8010),
        true,
        "NetworkPolicy ns/db ingress[0]",
    ),
    case(
        1,
        "fd65::2",
        ("tcp", 8000),
        true,
        "NetworkPolicy ns/db ingress[0]",
    ),
    case(
        1,
        "fd65::2",
        ("tcp", 8011),
        false,
        "tier default: no policy decides",
    ),
    case(
        3,
        "ns/p2",
        ("tcp", 5432),
        false,
        "tier default: no policy decides",
    ),
    case(
        1,
        "ns/p2",
        ("tcp", 25),
        false,
        "GlobalNetworkPolicy block egress[0]",
    ),
    case(
        3,
        "ns/p2",
        ("tcp", 25),
        false,
        "tier default: no policy decides",
    ),
    case(
        1,
        "ns/p2",
        ("udp", 53),
        false,
        "NetworkPolicy ns/db ingress[2]",
    ),
    case(
        1,
        "ns/p2",
        ("udp", 54),
        true,
        "NetworkPolicy ns/db ingress[3]",
    ),
    case(
        1,
        "ns/p2",
        ("icmp", 0),
        true,
        "NetworkPolicy ns/db ingress[1]",
    ),
    case(
        1,
        "fd65::2",
        ("icmpv6", 0),
        false,
        "tier default: no policy decides",
    ),
    case(
        1,
        "ns/p2",
        ("sctp", 7),
        false,
        "tier default: no policy decides",
    ),
    case(
        1,
        "ns/p3",
        ("tcp", 81),
        false,
        "GlobalNetworkPolicy egress egress[0]",
    ),
    case(1, "ns/p4", ("tcp", 80), true, "Profile web ingress[0]"),
    case(
        1,
        "cali4",
        ("tcp", 81),
        false,
        "no policy or profile allows it",
    ),
    case(
        4,
        "ns/p2",
        ("udp", 54),
        true,
        "NetworkPolicy ns/db ingress[3]",
    ),
    case(1, "ns/p2", ("47", 0), false, "encapsulation"),
    case(4, "10.0.0.11", ("tcp", 80), false, "endpoint to host: drop"),
    case(
        4,
        "10.0.0.11",
        ("tcp", 179),
        false,
        "control port of the fabric",
    ),
    case(
        4,
        "169.254.1.1",
        ("udp", 53),
        false,
        "endpoint to host: drop",
    ),
    Case {
        from_ip: Some("10.65.0.99"),
        ..case(
            1,
            "ns/p2",
            ("udp", 54),
            false,
            "source is not the endpoint's",
        )
    },
];

fn policies(host: &Host) {
    let put = |kind: &str, name: &str, spec: Value| {
        let stored = name.rsplit('/').next().unwrap();
        let value = json!({"metadata": {"name": stored}, "spec": spec});
        host.put(&format!("{RESOURCES}{kind}/{name}"), &value);
    };
    put(
        "nodes",
        "n1",
        json!({"bgp": {"ipv4Address": "10.0.0.11/24"}}),
    );
    put(
        "tiers",
        "first",
        json!({"order": 10, "defaultAction": "Pass"}),
    );
    let block = json!({
        "tier": "first", "selector": "role == 'web'", "types": ["Egress"],
        "egress": [
            {"action": "Deny", "protocol": "TCP", "destination": {"ports": [25]}},
            {"action": "Pass"}],
    });
    put("globalnetworkpolicies", "block", block);
    let marker = json!({"action": "Allow", "protocol": "UDP", "destination": {"ports": [MARKER]}});
    let all = json!({"order": 0, "selector": "has(role)", "ingress": [marker], "egress": [marker]});
    put("globalnetworkpolicies", "marker", all);
    let egress = json!({
        "order": 100, "selector": "has(role)", "types": ["Egress"],
        "egress": [
            {"action": "Deny", "protocol": "TCP",
                "destination": {"nets": ["10.65.0.3/32"], "ports": [81]}},
            {"action": "Allow"}],
    });
    put("globalnetworkpolicies", "egress", egress);
    let db = json!({
        "order": 1, "selector": "role == 'db'", "types": ["Ingress"],
        "ingress": [
            {"action": "Allow", "protocol": "TCP", "source": {"selector": "role == 'web'"},
                "destination": {"ports": [5432, "8000:8010"]}},
            {"action": "Allow", "protocol": "ICMP"},
            {"action": "Deny", "protocol": "UDP", "destination": {"ports": [53]}},
            {"action": "Allow", "protocol": "UDP"}],
    });
    put("networkpolicies", "ns/db", db);
    let web = json!({
        "ingress": [{"action": "Allow", "protocol": "TCP", "destination": {"ports": [80]}}],
        "egress": [{"action": "Allow"}],
    });
    put("profiles", "web", web);
}

fn world() -> (Host, Vec<Workload>) {
    let host = Host::new();
    let workloads = (1..=4).map(workload).collect();
    policies(&host);
    for (n, role) in [(1, "web"), (2, "db"), (3, "other"), (4, "")] {
        let labels = match role {
            "" => json!({}),
            role => json!({ "role": role }),
        };
        let profiles = json!(["web"]);
        host.endpoint_with(n, &labels, &json!({"mac": mac(n), "profiles": profiles}));
    }
    for n in 1..=4 {
        host.wait_up(&format!("cali{n}"));
    }
    (host, workloads)
}

fn verdict(host: &Host, case: &Case) -> PacketVerdict {
    let query = PacketQuery {
        from: format!("ns/p{}", case.from),
        to: case.to.into(),
        protocol: case.protocol.into(),
        port: case.port.map(u64::from),
        from_ip: case.from_ip.map(|source| source.parse().unwrap()),
        from_port: None,
    };
    match host.ask(&Command::Packet(query)) {
        Reply::Packet(verdict) => verdict,
        other => panic!("{other:?}"),
    }
}

fn cause(verdict: &PacketVerdict) -> String {
    let by = &verdict.steps.last().expect("a decision").by;
    let parts = [by.list.as_deref(), by.rule.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => by.words.clone(),
        false => parts.join(" "),
    }
}

/// The real packet of a case.
struct Real {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    port: Option<u16>,
}

impl Real {
    fn of(case: &Case) -> Self {
        let destination: IpAddr = match case.to {
            "ns/p2" => "10.65.0.2".parse().unwrap(),
            "ns/p3" => "10.65.0.3".parse().unwrap(),
            "ns/p4" | "cali4" => "10.65.0.4".parse().unwrap(),
            address => address.parse().unwrap(),
        };
        let own = match destination {
            IpAddr::V4(_) => format!("10.65.0.{}", case.from),
            IpAddr::V6(_) => format!("fd65::{}", case.from),
        };
        let protocol = match case.protocol {
            "tcp" => 6,
            "udp" => UDP,
            "sctp" => 132,
            "icmp" => 1,
            "icmpv6" => 58,
            number => number.parse().unwrap(),
        };
        Self {
            source: case.from_ip.unwrap_or(&own).parse().unwrap(),
            destination,
            protocol,
            port: case.port,
        }
    }

    fn octets(&self) -> Vec<u8> {
        let (from, to) = (self.source, self.destination);
        let port = self.port.unwrap_or_default();
        let payload = match self.protocol {
            6 => packet::syn(from, 40_000, SocketAddr::new(to, port)),
            UDP => datagram(from, to, port),
            // An echo request; its checksum covers a pseudo-header with IPv6.
            1 => with_sum(vec![8, 0, 0, 0, 0, 1, 0, 1], 2, packet::checksum),
            58 => with_sum(vec![128, 0, 0, 0, 0, 1, 0, 1], 2, |octets| {
                packet::transport_checksum(from, to, 58, octets)
            }),
            // The ports of SCTP, or the header of another protocol.
            _ => [[0x9c, 0x40], port.to_be_bytes(), [0; 2], [0; 2]].concat(),
        };
        packet::packet(from, to, self.protocol, &payload)
    }

    /// Returns the match of nftables for this packet.
    fn matches(&self) -> String {
        let family = if self.destination.is_ipv4() {
            "ip"
        } else {
            "ip6"
        };
        let (source, destination) = (self.source, self.destination);
        let port = self.port.map(|port| format!("th dport {port}"));
        format!(
            "{family} saddr {source} {family} daddr {destination} meta l4proto {} {}",
            self.protocol,
            port.unwrap_or_default()
        )
    }
}

fn with_sum(mut octets: Vec<u8>, at: usize, sum: impl Fn(&[u8]) -> u16) -> Vec<u8> {
    let sum = sum(&octets);
    octets[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    octets
}

fn datagram(from: IpAddr, to: IpAddr, port: u16) -> Vec<u8> {
    let length = 8_u16.to_be_bytes();
    let header = [40_000_u16.to_be_bytes(), port.to_be_bytes(), length, [0; 2]].concat();
    with_sum(header, 6, |octets| {
        packet::transport_checksum(from, to, UDP, octets)
    })
}

fn count(chain: &str) -> u64 {
    let listed = run(&format!("nft list chain inet probe {chain}"));
    let (_, rest) = listed.split_once("packets ").expect("a counter");
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// Sends the packet, and then the marker. Returns whether the packet has left the filters of the host.
fn passes(host: &Host, case: &Case, from: &Workload) -> bool {
    let real = Real::of(case);
    let own = Case {
        to: "ns/p2",
        protocol: "udp",
        port: Some(MARKER),
        from_ip: None,
        ..*case
    };
    let marker = Real::of(&own);
    run("nft add table inet probe");
    let (packet_match, marker_match) = (real.matches(), format!("udp dport {MARKER}"));
    for (chain, hook, priority, what) in [
        ("entered", "prerouting", -460, &packet_match),
        ("forwarded", "postrouting", 2000, &packet_match),
        ("delivered", "input", 2000, &packet_match),
        ("marker", "postrouting", 2000, &marker_match),
    ] {
        let hook = format!("{{ type filter hook {hook} priority {priority} ; }}");
        run(&format!("nft add chain inet probe {chain} {hook}"));
        run(&format!("nft add rule inet probe {chain} {what} counter"));
    }
    from.namespace.within(|| {
        packet::send(&real.octets(), real.destination).unwrap();
        packet::send(&marker.octets(), marker.destination).unwrap();
    });
    host.until("the packet behind it", || count("marker") > 0);
    assert!(count("entered") > 0, "it was not sent");
    let passed = count("forwarded") + count("delivered") > 0;
    run("nft delete table inet probe");
    passed
}

/// Lets this thread send from one CPU.
fn stay_on_this_cpu() {
    let mut own = CpuSet::new();
    own.set(sched_getcpu().unwrap()).unwrap();
    sched_setaffinity(Pid::from_raw(0), &own).unwrap();
}

// Promise (Felix): `cambric check packet` gives the verdict that a real packet meets, and the rule that
// gives it.
#[test]
fn explained_verdicts_are_those_of_real_packets() {
    lab("explained_verdicts_are_those_of_real_packets", || {
        let (host, workloads) = world();
        stay_on_this_cpu();
        host.until("the rules", || {
            let rules = run("nft list table inet cambric-felix");
            rules.contains("8000-8010") && rules.contains("profile/web")
        });
        let mut seen = [0, 0];
        for case in CASES {
            let verdict = verdict(&host, case);
            let real = Real::of(case);
            let what = format!("{}: {verdict:#?}", real.matches());
            assert_eq!(verdict.allowed, Some(case.allowed), "{what}");
            assert!(cause(&verdict).contains(case.cause), "{what}");
            assert!(verdict.in_sync, "{what}");
            let passed = passes(&host, case, &workloads[usize::from(case.from - 1)]);
            assert_eq!(passed, case.allowed, "the real packet; {what}");
            seen[usize::from(passed)] += 1;
        }
        assert!(seen[0] > 10 && seen[1] > 5, "{seen:?}");
    });
}

#[test]
fn endpoint_is_explained_with_its_policies_in_order() {
    lab("endpoint_is_explained_with_its_policies_in_order", || {
        let (host, _workloads) = world();
        let rules = |endpoint: &str| -> Vec<EndpointRules> {
            let endpoint = endpoint.to_owned();
            match host.ask(&Command::EndpointRules { endpoint }) {
                Reply::EndpointRules(found) => found,
                other => panic!("{other:?}"),
            }
        };
        let names = |lists: &[daemon_common::report::AppliedRules]| {
            let names = lists.iter().map(|one| one.name.clone());
            names.collect::<Vec<String>>()
        };
        let [web] = &*rules("ns/p1") else {
            panic!("one endpoint");
        };
        assert_eq!(web.endpoint.interface, "cali1");
        let egress = [
            "GlobalNetworkPolicy block",
            "default action of the tier",
            "GlobalNetworkPolicy marker",
            "GlobalNetworkPolicy egress",
            "default action of the tier",
            "Profile web",
        ];
        assert_eq!(names(&web.egress), egress);
        assert_eq!(web.egress[1].end, "the next tier");
        assert_eq!(web.egress[4].end, "deny");
        let ingress = &rules("cali4")[0].ingress;
        assert_eq!(names(ingress), ["Profile web", "all else"]);
        assert!(ingress[0].rules[0].contains("tcp dport 80"), "{ingress:?}");
    });
}
