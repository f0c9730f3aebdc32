use serde_json::{Value, json};

use super::*;

/// Returns whether a chain accepts the first packet of a connection.
pub(crate) fn passes(
    rules: &crate::render::Ruleset,
    chain: &str,
    ends: (IpAddr, IpAddr),
    (protocol, port): (u8, Option<u16>),
) -> bool {
    let packet = first(ends, (protocol, port));
    accepts(rules, chain, packet)
}

/// Returns whether a chain accepts the first packet of a connection between these workload interfaces, or
/// others.
pub(crate) fn passes_between(
    rules: &crate::render::Ruleset,
    chain: &str,
    (input, output): (Option<&str>, Option<&str>),
    ends: (IpAddr, IpAddr),
    (protocol, port): (u8, u16),
) -> bool {
    let packet = Packet {
        input: input.map(str::to_owned),
        output: output.map(str::to_owned),
        ..first(ends, (protocol, Some(port)))
    };
    accepts(rules, chain, packet)
}

fn first((source, destination): (IpAddr, IpAddr), (protocol, port): (u8, Option<u16>)) -> Packet {
    Packet {
        input: None,
        output: None,
        source,
        destination,
        protocol,
        source_port: None,
        port,
        icmp: None,
        changes: Changes::default(),
    }
}

fn accepts(rules: &crate::render::Ruleset, chain: &str, mut packet: Packet) -> bool {
    let decision = evaluation::evaluate(rules, chain, &mut packet);
    decision.is_some_and(|decision| decision.fate == Fate::Accept)
}

pub(super) const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

pub(super) fn endpoint(node: &str, n: u8, spec: Value) -> (String, Value) {
    let name = format!("{node}-k8s-p{n}-eth0");
    let mut value = json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"n": n.to_string()}},
        "spec": {
            "orchestrator": "k8s", "node": node, "pod": format!("p{n}"), "endpoint": "eth0",
            "interfaceName": format!("cali{n}"), "profiles": ["projectcalico-default-allow"],
            "ipNetworks": [format!("10.65.0.{n}/32"), format!("fd65::{n}/128")],
        },
    });
    for (field, setting) in spec.as_object().into_iter().flatten() {
        value["spec"][field] = setting.clone();
    }
    (format!("{PREFIX}workloadendpoints/ns/{name}"), value)
}

pub(super) fn policy(name: &str, spec: &Value) -> (String, Value) {
    let key = format!("{PREFIX}globalnetworkpolicies/{name}");
    (key, json!({"metadata": {"name": name}, "spec": spec}))
}

pub(super) fn calculator(values: Vec<(String, Value)>) -> Calculator {
    let mut calculator = Calculator::new("h0", None);
    for (key, value) in values {
        let problem = calculator.change(&key, Some(value.to_string().as_bytes()));
        assert_eq!(problem, None, "{key}");
    }
    calculator.recompute();
    calculator
}

/// Two endpoints of this host, one of another, and this policy for the second.
pub(super) fn world(ingress: &Value) -> Calculator {
    let node = json!({"spec": {"bgp": {"ipv4Address": "192.0.2.1/24"}}});
    calculator(vec![
        endpoint("h0", 1, json!({})),
        endpoint(
            "h0",
            2,
            json!({"ipNATs": [
            {"externalIP": "198.51.100.2", "internalIP": "10.65.0.2"}]}),
        ),
        endpoint("h1", 3, json!({})),
        policy("p", &json!({"selector": "n == '2'", "ingress": ingress})),
        (format!("{PREFIX}nodes/h0"), node),
        (
            format!("{PREFIX}felixconfigurations/default"),
            json!({"spec": {"floatingIPs": "Enabled"}}),
        ),
    ])
}

fn query(from: &str, to: &str) -> PacketQuery {
    PacketQuery {
        from: from.to_owned(),
        to: to.to_owned(),
        protocol: "tcp".to_owned(),
        port: Some(80),
        ..PacketQuery::default()
    }
}

pub(super) fn open() -> Value {
    json!([{"action": "Allow", "protocol": "TCP", "destination": {"ports": [80]}}])
}

#[test]
fn verdict_has_each_decision_with_its_rule() {
    let verdict = packet(&world(&open()), &query("ns/p1", "ns/p2")).unwrap();
    assert_eq!(verdict.packet, "TCP 10.65.0.1 > 10.65.0.2 port 80");
    assert_eq!(verdict.allowed, Some(true));
    let [egress, ingress] = &*verdict.steps else {
        panic!("{verdict:#?}");
    };
    assert_eq!(
        (egress.part.as_str(), egress.verdict.as_str()),
        ("egress", "accept")
    );
    assert_eq!(egress.by.words, "profile projectcalico-default-allow");
    assert_eq!(ingress.endpoint.as_deref(), Some("ns/h0-k8s-p2-eth0"));
    let by = RuleOwner {
        tier: Some("default".to_owned()),
        list: Some("GlobalNetworkPolicy p".to_owned()),
        rule: Some("ingress[0]".to_owned()),
        words: "ingress[0]".to_owned(),
    };
    assert_eq!(ingress.by, by);
    assert_eq!(ingress.chain, "pi-gnp/p");
    assert!(!verdict.not_evaluated.is_empty());
    // The rules of a policy with `Pass` are in the chain of its tier.
    let passing = json!([{"action": "Deny", "protocol": "TCP"}, {"action": "Pass"}]);
    let verdict = packet(&world(&passing), &query("ns/p1", "ns/p2")).unwrap();
    assert_eq!(verdict.allowed, Some(false));
    let by = &verdict.steps[1].by;
    assert_eq!(by.list.as_deref(), Some("GlobalNetworkPolicy p"));
    assert_eq!(by.rule.as_deref(), Some("ingress[0]"));
}

#[test]
fn part_of_another_host_is_left_to_that_host() {
    let world = world(&open());
    let outgoing = packet(&world, &query("ns/p1", "ns/p3")).unwrap();
    assert_eq!(outgoing.allowed, Some(true));
    let words = "ingress of ns/h1-k8s-p3-eth0 is not on this host: ask h1";
    assert_eq!(outgoing.elsewhere, [words]);
    let incoming = packet(&world, &query("10.65.0.3", "ns/p2")).unwrap();
    assert_eq!(incoming.steps.len(), 1, "{incoming:#?}");
    let words = "egress of ns/h1-k8s-p3-eth0 is not on this host: ask h1";
    assert_eq!(incoming.elsewhere, [words]);
    let neither = packet(&world, &query("ns/p3", "192.0.2.9")).unwrap_err();
    assert!(neither.contains("ask h1"), "{neither}");
}

#[test]
fn addresses_of_the_host_and_floating_ones_are_known() {
    let world = world(&open());
    let to_host = packet(&world, &query("ns/p1", "192.0.2.1")).unwrap();
    let last = to_host.steps.last().unwrap();
    assert_eq!(last.part, "endpoint to host");
    assert_eq!(last.verdict, "drop");
    let floating = packet(&world, &query("192.0.2.7", "198.51.100.2")).unwrap();
    let parts: Vec<&str> = floating.steps.iter().map(|step| &*step.part).collect();
    assert_eq!(parts, ["translation", "ingress"]);
    assert_eq!(floating.steps[0].verdict, "to 10.65.0.2");
    assert_eq!(floating.allowed, Some(true));
}

#[test]
fn address_of_an_interface_of_the_host_is_one_of_the_host() {
    let mut world = world(&open());
    let asked = query("ns/p1", "172.17.0.1");
    let outside = packet(&world, &asked).unwrap();
    assert_eq!(outside.allowed, Some(true), "{outside:#?}");
    let address = ["172.17.0.1".parse().unwrap()].into();
    world.host_interface("cali9", Some(address));
    assert_eq!(packet(&world, &asked).unwrap().allowed, Some(true));
    let address = ["172.17.0.1".parse().unwrap()].into();
    world.host_interface("docker0", Some(address));
    let to_host = packet(&world, &asked).unwrap();
    assert_eq!(to_host.allowed, Some(false), "{to_host:#?}");
    assert_eq!(to_host.steps.last().unwrap().part, "endpoint to host");
}

#[test]
fn condition_on_an_unknown_port_gives_no_verdict() {
    let of_port = json!([{"action": "Allow", "protocol": "TCP", "source": {"ports": [1000]}}]);
    let world = world(&of_port);
    let asked = |from_port| PacketQuery {
        from_port,
        ..query("ns/p1", "ns/p2")
    };
    let unknown = packet(&world, &asked(None)).unwrap();
    assert_eq!(unknown.allowed, None);
    assert_eq!(unknown.verdict, "unknown: it depends on the source port");
    assert_eq!(
        packet(&world, &asked(Some(1000))).unwrap().allowed,
        Some(true)
    );
    assert_eq!(
        packet(&world, &asked(Some(1001))).unwrap().allowed,
        Some(false)
    );
}

/// A host endpoint for an interface, with a policy for packets through the host that allows port 80.
fn with_host_endpoint(interface: &str) -> Calculator {
    let host = json!({
        "metadata": {"name": "h", "labels": {"host": ""}},
        "spec": {"node": "h0", "interfaceName": interface},
    });
    let forward = json!({
        "selector": "has(host)", "applyOnForward": true, "types": ["Egress"], "egress": open(),
    });
    calculator(vec![
        endpoint("h0", 1, json!({})),
        endpoint("h0", 2, json!({})),
        (format!("{PREFIX}hostendpoints/h"), host),
        policy("forward", &forward),
    ])
}

#[test]
fn policies_of_a_host_endpoint_for_all_interfaces_are_evaluated() {
    let world = with_host_endpoint("*");
    let mut asked = query("ns/p1", "192.0.2.9");
    let allowed = packet(&world, &asked).unwrap();
    assert_eq!(allowed.allowed, Some(true), "{allowed:#?}");
    let last = allowed.steps.last().unwrap();
    assert_eq!(last.part, "host endpoint");
    let by = last.by.list.as_deref();
    assert_eq!(by, Some("GlobalNetworkPolicy forward"));
    asked.port = Some(81);
    let denied = packet(&world, &asked).unwrap();
    assert_eq!(denied.allowed, Some(false), "{denied:#?}");
}

#[test]
fn packet_to_unknown_interface_depends_on_named_host_endpoints() {
    let world = with_host_endpoint("eth0");
    let outside = packet(&world, &query("ns/p1", "192.0.2.9")).unwrap();
    assert_eq!(outside.allowed, None, "{outside:#?}");
    assert!(outside.verdict.contains("host endpoint"), "{outside:#?}");
    let inside = packet(&world, &query("ns/p1", "ns/p2")).unwrap();
    assert_eq!(inside.allowed, Some(true), "{inside:#?}");
}

#[test]
fn impossible_packets_are_rejected() {
    let world = world(&open());
    let mut of_icmp = query("ns/p1", "ns/p2");
    of_icmp.protocol = "icmp".to_owned();
    let mut without = query("ns/p1", "ns/p2");
    without.port = None;
    let mut beyond = query("ns/p1", "ns/p2");
    beyond.port = Some(65536);
    let mut unknown = query("ns/p1", "ns/p2");
    unknown.protocol = "tpc".to_owned();
    let mut mixed = query("ns/p1", "10.65.0.2");
    mixed.from_ip = "fd65::1".parse().ok();
    for (query, words) in [
        (query("ns/p9", "ns/p2"), "there is no endpoint ns/p9"),
        (query("192.0.2.1", "ns/p2"), "packets of the host itself"),
        (of_icmp, "a packet of icmp has no ports"),
        (without, "a packet of tcp needs a port"),
        (beyond, "65536 is not a port"),
        (unknown, "'tpc' is not a protocol"),
        (mixed, "one IP version"),
    ] {
        let error = packet(&world, &query).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn endpoint_of_another_host_has_no_rules_here() {
    let world = world(&open());
    let error = super::endpoint(&world, "ns/p3", |_| None).unwrap_err();
    assert_eq!(error, "ns/p3 is not on this host: ask h1");
    let found = super::endpoint(&world, "cali2", |_| Some(Default::default())).unwrap();
    let names = found[0].ingress.iter().map(|one| one.name.as_str());
    let wanted = [
        "GlobalNetworkPolicy p",
        "default action of the tier",
        "Profile projectcalico-default-allow",
    ];
    assert_eq!(names.collect::<Vec<_>>(), wanted);
}

#[test]
fn each_sender_of_a_connection_is_one_evaluation() {
    const SENDERS: u8 = 9;
    let mut calculator = Calculator::new("n1", None);
    let mut put = |key: &str, value: &Value| {
        calculator.change(key, Some(value.to_string().as_bytes()));
    };
    let settings = json!({"spec": {"workloadSourceSpoofing": "Any"}});
    put(&format!("{PREFIX}felixconfigurations/default"), &settings);
    for n in 1..=SENDERS {
        let prefixes = json!({"allowSpoofedSourcePrefixes": ["192.0.2.0/24", "192.0.2.0/25"]});
        let (key, value) = endpoint("n1", n, prefixes);
        put(&key, &value);
    }
    // Only the last one may open the connection.
    let last = format!("n == '{SENDERS}'");
    let policy = |selector: &str, action: &str, order: u8| {
        json!({"spec": {"selector": selector, "order": order, "types": ["Egress"],
            "egress": [{"action": action}]}})
    };
    let key = |name: &str| format!("{PREFIX}globalnetworkpolicies/{name}");
    put(&key("allow"), &policy(&last, "Allow", 1));
    put(&key("deny"), &policy("all()", "Deny", 2));
    calculator.recompute();
    let destination: IpAddr = [203, 0, 113, 1].into();
    let connection = Connection {
        source: [192, 0, 2, 50].into(),
        destination,
        protocol: 6,
        ports: Some((4000, 80)),
        icmp: None,
        is_translated: false,
        requested: (destination, Some(80)),
        interfaces: [None, None],
        tuple: Vec::new(),
        zone: None,
    };
    // Two evaluations in each turn.
    let turns = |calculator: &Calculator| {
        let evaluator = Evaluator::of(calculator);
        let (mut begun, mut turns) = (None, 1);
        loop {
            let mut left = 2;
            match evaluator.is_forbidden(&connection, false, begun.take(), &mut left) {
                Ok(verdict) => return (verdict, turns),
                Err(more) => {
                    assert_eq!(left, 0);
                    begun = Some(more);
                    turns += 1;
                }
            }
        }
    };
    assert_eq!(turns(&calculator), (Some(false), 5));
    calculator.change(&key("allow"), None);
    calculator.recompute();
    assert_eq!(turns(&calculator), (Some(true), 5));
}
