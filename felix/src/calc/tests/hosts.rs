//! Host endpoints: their interfaces, their policies, and failsafe ports.

use super::*;

/// Returns a host endpoint of this host with the label `role`.
fn host(role: &str, spec: &Value) -> Value {
    let mut value = json!({"metadata": {"labels": {"role": role}}, "spec": {"node": HOST}});
    for (field, setting) in spec.as_object().unwrap() {
        value["spec"][field] = setting.clone();
    }
    value
}

fn named(interface: &str) -> Value {
    host("host", &json!({"interfaceName": interface}))
}

fn policy(spec: &Value) -> Value {
    let mut value = json!({"spec": {"selector": "role == 'host'"}});
    for (field, setting) in spec.as_object().unwrap() {
        value["spec"][field] = setting.clone();
    }
    value
}

fn hep(name: &str) -> String {
    key("hostendpoints", name)
}

/// Returns the rules of a chain; empty without the chain.
fn texts(calculator: &Calculator, chain: &str) -> Vec<String> {
    let chain = calculator.desired().rules().chains.get(chain);
    let rules = chain.into_iter().flat_map(|chain| &chain.rules);
    rules.map(rule_text).collect()
}

/// Returns the elements of a map; empty without the map.
fn elements(calculator: &Calculator, map: &str) -> Vec<String> {
    let map = calculator.desired().rules().sets.get(map);
    let keys = map.into_iter().flat_map(|map| map.elements.keys());
    keys.map(ToString::to_string).collect()
}

/// Sets interfaces of the host with their addresses.
fn with_interfaces(calculator: &mut Calculator, interfaces: &[(&str, &[&str])]) {
    for (name, addresses) in interfaces {
        let addresses = addresses.iter().map(|address| ip(address)).collect();
        calculator.host_interface(name, Some(addresses));
    }
}

#[test]
fn excluded_interfaces_have_no_host_endpoint() {
    let at = |expected: &str| host("host", &json!({"expectedIPs": [expected]}));
    let mut calculator = calculator_of(&[
        (hep("a"), named("kube-ipvs0")),
        (hep("b"), at("10.0.0.1")),
        (hep("c"), named("eth0")),
    ]);
    let interfaces: [(&str, &[&str]); 3] = [
        ("eth0", &["192.0.2.1"]),
        ("kube-ipvs0", &["192.0.2.2"]),
        ("veth9", &["10.0.0.1"]),
    ];
    with_interfaces(&mut calculator, &interfaces);
    let name = key("felixconfigurations", "default");
    let mut excluding = |names: &str| {
        let value = json!({"spec": {"interfaceExclude": names}});
        assert_eq!(change(&mut calculator, &name, Some(&value)), None);
        calculator.recompute();
        let count = calculator.desired().problems.len();
        (elements(&calculator, "host-endpoints-in"), count)
    };
    let texts = |names: &[&str]| {
        names
            .iter()
            .map(|name| format!("{name:?}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(excluding(""), (texts(&["eth0", "veth9"]), 1));
    assert_eq!(excluding("/^veth/"), (texts(&["eth0", "kube-ipvs0"]), 1));
    assert_eq!(excluding("eth0"), (texts(&["kube-ipvs0", "veth9"]), 1));
}

#[test]
fn excluded_interfaces_pass_the_host_endpoint_for_all() {
    let mut calculator = calculator_of(&[(hep("all"), named("*"))]);
    let name = key("felixconfigurations", "default");
    let names = "/^veth/,lan0,a-name-that-is-too-long,cali0";
    let value = json!({"spec": {"interfaceExclude": names}});
    assert_eq!(change(&mut calculator, &name, Some(&value)), None);
    calculator.recompute();
    let passing = |calculator: &Calculator| {
        let part = &calculator.desired().rules();
        ["host-endpoints-in", "host-endpoints-out"].map(|map| {
            let elements = part.sets[map].elements.iter();
            let values = elements.map(|(key, value)| format!("{key}: {value:?}"));
            values.collect::<Vec<_>>()
        })
    };
    let pass = |name: &str| format!("\"{name}\": Some(Verdict(Return))");
    let lists =
        |names: &[&str]| [(); 2].map(|()| names.iter().map(|name| pass(name)).collect::<Vec<_>>());
    assert_eq!(passing(&calculator), lists(&["lan0"]));
    with_interfaces(&mut calculator, &[("veth9", &[]), ("eth0", &[])]);
    calculator.recompute();
    assert_eq!(passing(&calculator), lists(&["lan0", "veth9"]));
    calculator.host_interface("veth9", None);
    calculator.recompute();
    assert_eq!(passing(&calculator), lists(&["lan0"]));
}

#[test]
fn host_endpoint_evaluates_policies_that_select_it() {
    let web = policy(&json!({"ingress": [
        {"action": "Allow", "protocol": "TCP", "destination": {"ports": [80]}}]}));
    let mut calculator = calculator_of(&[
        (hep("h"), named("eth0")),
        (key("globalnetworkpolicies", "web"), web),
    ]);
    calculator.recompute();
    assert!(calculator.desired().problems.is_empty());
    assert_eq!(elements(&calculator, "host-endpoints-in"), ["\"eth0\""]);
    let input = texts(&calculator, "host-in-eth0");
    assert_eq!(
        input[..3],
        [
            "ct state established,related counter accept comment \"answers\"",
            "jump host-failsafe-in",
            "ct state invalid counter drop comment \"part of no connection\"",
        ]
    );
    assert!(input[5].starts_with("jump ti-default-"), "{input:#?}");
    assert_eq!(
        input[6..],
        ["counter drop comment \"no policy or profile allows it\""]
    );
    assert_eq!(
        texts(&calculator, "pi-gnp/web"),
        ["tcp dport 80 counter accept comment \"ingress[0]\""]
    );
    // No policy applies to egress.
    assert_eq!(
        texts(&calculator, "host-out-eth0").last().unwrap(),
        "counter drop comment \"no profile or policy\""
    );
    assert_eq!(texts(&calculator, "host-forward"), [""; 0]);
    // The base chain of the host evaluates no packet of a workload.
    let base = texts(&calculator, "host-input");
    assert_eq!(
        base,
        [
            "iifname \"cali*\" return",
            "iifname \"tap*\" return",
            "iifname vmap @host-endpoints-in",
        ]
    );
}

#[test]
fn deleted_host_endpoint_leaves_no_rule() {
    let all = policy(&json!({"selector": "all()", "applyOnForward": true,
        "ingress": [{"action": "Allow", "source": {"selector": "has(role)"}}]}));
    let workload = (endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"]));
    let mut calculator = calculator_of(&[workload, (key("globalnetworkpolicies", "all"), all)]);
    let before = calculator.recomputed();
    for interface in ["eth0", "*"] {
        change(&mut calculator, &hep("h"), Some(&named(interface)));
        assert!(calculator.has_news());
        assert_ne!(calculator.recomputed(), before);
    }
    change(&mut calculator, &hep("h"), None);
    assert_eq!(calculator.recomputed(), before);
}

#[test]
fn host_endpoint_of_another_host_has_no_rules() {
    let mut other = named("eth0");
    other["spec"]["node"] = json!("r1-c08");
    let mut calculator = calculator_of(&[(hep("h"), other)]);
    assert_eq!(calculator.recomputed(), calculator_of(&[]).recomputed());
}

#[test]
fn host_endpoint_without_policy_has_failsafe_ports_only() {
    let mut calculator = calculator_of(&[(hep("h"), named("eth0"))]);
    calculator.recompute();
    let input = texts(&calculator, "host-in-eth0");
    assert_eq!(input.len(), 3, "{input:#?}");
    assert_eq!(input[1], "jump host-failsafe-in");
    assert!(input[2].starts_with("counter drop"), "{input:#?}");
    let ports = |chain: &str| -> Vec<String> {
        let rules = texts(&calculator, chain).into_iter();
        let ports = rules.filter(|rule| rule.contains("failsafe"));
        let words = ports.map(|rule| rule.split(" counter").next().unwrap().to_owned());
        words.collect()
    };
    let common = [
        "tcp dport 179",
        "tcp dport 2379",
        "tcp dport 2380",
        "tcp dport 5473",
        "tcp dport 6443",
        "tcp dport 6666",
        "tcp dport 6667",
    ];
    let with = |own: [&'static str; 2]| [&own[..], &common[..]].concat();
    assert_eq!(
        ports("host-failsafe-in"),
        with(["tcp dport 22", "udp dport 68"])
    );
    assert_eq!(
        ports("host-failsafe-out"),
        with(["udp dport 53", "udp dport 67"])
    );
    let first = &texts(&calculator, "host-failsafe-in")[..2];
    assert!(first.iter().all(|rule| rule.contains("neighbor discovery")));
}

#[test]
fn failsafe_ports_are_those_of_the_settings() {
    let mut calculator = calculator_of(&[(hep("h"), named("eth0"))]);
    let name = key("felixconfigurations", "default");
    let mut ports = |spec: &Value| {
        let fault = change(&mut calculator, &name, Some(&json!({ "spec": spec })));
        calculator.recompute();
        let chains = ["host-failsafe-in", "host-failsafe-out"];
        let rules = chains.map(|chain| texts(&calculator, chain)).concat();
        let rules = rules.into_iter().filter(|rule| rule.contains("failsafe"));
        let words = rules.map(|rule| rule.split(" counter").next().unwrap().to_owned());
        (fault, words.collect::<Vec<_>>())
    };
    let some = json!({"failsafeInboundHostPorts": [
            {"protocol": "TCP", "port": 22, "net": "10.1.0.7/8"}, {"port": 23, "net": "::/0"},
            {"protocol": "sctp", "port": 7, "net": "fd00::1"}, {"protocol": "", "port": 9}],
        "failsafeOutboundHostPorts": [{"protocol": "udp", "port": 53, "net": "10.0.0.1/32"}]});
    let expected = [
        "ip saddr 10.0.0.0/8 tcp dport 22",
        "meta nfproto ipv6 tcp dport 23",
        "ip6 saddr fd00::1 sctp dport 7",
        "tcp dport 9",
        "ip daddr 10.0.0.1 udp dport 53",
    ];
    assert_eq!(ports(&some), (None, expected.map(str::to_owned).into()));
    // An invalid list leaves the last valid one in effect.
    let many = vec![json!({"port": 1}); 257];
    for (bad, words) in [
        (json!([{"port": 0}]), "0 is not a port"),
        (json!([{"port": 65536}]), "number"),
        (json!([{"protocol": "icmp", "port": 1}]), "icmp is not TCP"),
        (json!([{"port": 1, "net": "x"}]), "'x' is neither"),
        (json!([{"port": 1, "nets": []}]), "nets"),
        (json!("22"), "22"),
        (json!(many), "more than 256 ports"),
    ] {
        let spec = json!({ "failsafeOutboundHostPorts": bad });
        let (fault, found) = ports(&spec);
        let fault = fault.expect("a fault");
        assert_eq!(fault.field, "spec.failsafeOutboundHostPorts");
        assert!(fault.reason.contains(words), "{fault}");
        assert_eq!(found, expected);
    }
    let none = json!({"failsafeInboundHostPorts": [], "failsafeOutboundHostPorts": []});
    assert_eq!(ports(&none), (None, vec![]));
    let (_, built_in) = ports(&json!({"failsafeInboundHostPorts": null}));
    assert_eq!(built_in.len(), 18);
}

#[test]
fn profile_of_host_endpoint_decides_after_policies() {
    let open = json!({"interfaceName": "eth0", "profiles": ["projectcalico-default-allow"]});
    let mut calculator = calculator_of(&[(hep("h"), host("host", &open))]);
    calculator.recompute();
    for chain in ["host-in-eth0", "host-out-eth0"] {
        let last = texts(&calculator, chain).pop().unwrap();
        assert!(last.starts_with("counter accept"), "{chain} {last}");
    }
    let missing = json!({"interfaceName": "eth0", "profiles": ["p"]});
    change(&mut calculator, &hep("h"), Some(&host("host", &missing)));
    let desired = calculator.recomputed();
    let last = last_rule(&desired, "host-in-eth0");
    assert_eq!(last, "counter drop comment \"profile p does not exist\"");
    assert_eq!(desired.problems.len(), 1);
    let profile = json!({"spec": {"egress": [{"action": "Allow"}], "labelsToApply": {"p": "q"}}});
    change(&mut calculator, &key("profiles", "p"), Some(&profile));
    let desired = calculator.recomputed();
    assert!(last_rule(&desired, "host-out-eth0").contains("accept"));
    assert!(last_rule(&desired, "host-in-eth0").contains("drop"));
    // Labels of the profile select policies.
    let by_label = policy(&json!({"selector": "p == 'q'", "types": ["Ingress"]}));
    change(
        &mut calculator,
        &key("globalnetworkpolicies", "x"),
        Some(&by_label),
    );
    calculator.recompute();
    let input = texts(&calculator, "host-in-eth0");
    assert!(input.iter().any(|rule| rule.starts_with("jump ti-")));
}

#[test]
fn wildcard_applies_to_interfaces_without_own_endpoint() {
    let mut calculator = calculator_of(&[(hep("all"), named("*")), (hep("b"), named("eth0"))]);
    calculator.recompute();
    let base = texts(&calculator, "host-input");
    assert_eq!(
        base[2..],
        [
            "iifname vmap @host-endpoints-in",
            "iifname \"lo\" return",
            "goto host-in/all",
        ]
    );
    let interfaces = elements(&calculator, "host-endpoints-in");
    assert_eq!(interfaces, ["\"eth0\"", "\"kube-ipvs0\""]);
    assert!(!texts(&calculator, "host-in/all").is_empty());
    let output = texts(&calculator, "host-output");
    assert_eq!(
        output,
        [
            "oifname \"cali*\" return",
            "oifname \"tap*\" return",
            "ct status dnat counter return comment \"translated destination\"",
            "oifname vmap @host-endpoints-out",
            "oifname \"lo\" return",
            "goto host-out/all",
        ]
    );
}

#[test]
fn first_host_endpoint_by_name_gets_the_interface() {
    let open = json!({"interfaceName": "eth0", "profiles": ["projectcalico-default-allow"]});
    let mut calculator = calculator_of(&[
        (hep("b"), host("host", &open)),
        (hep("a"), named("eth0")),
        (hep("w2"), named("*")),
        (hep("w1"), named("*")),
    ]);
    let desired = calculator.recomputed();
    assert!(last_rule(&desired, "host-in-eth0").contains("drop"));
    let found: Vec<String> = desired.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            format!(
                "{}: spec.interfaceName: eth0 is the interface of host endpoint a",
                hep("b")
            ),
            format!(
                "{}: spec.interfaceName: is that of host endpoint w1",
                hep("w2")
            ),
        ]
    );
    change(&mut calculator, &hep("a"), None);
    let desired = calculator.recomputed();
    assert!(last_rule(&desired, "host-in-eth0").contains("accept"));
    assert_eq!(desired.problems.len(), 1);
}

#[test]
fn workload_interface_is_never_that_of_a_host_endpoint() {
    let by_address = host("host", &json!({"expectedIPs": ["10.65.0.9"]}));
    let mut calculator = calculator_of(&[(hep("h"), named("cali1")), (hep("i"), by_address)]);
    with_interfaces(&mut calculator, &[("cali1", &[]), ("tap2", &["10.65.0.9"])]);
    let desired = calculator.recomputed();
    assert!(!desired.rules().chains.contains_key("host-input"));
    assert_eq!(desired.problems.len(), 2, "{:?}", desired.problems);
    // The interface is one of the host with other prefixes.
    let settings = json!({"spec": {"interfacePrefix": "veth"}});
    let name = key("felixconfigurations", "default");
    change(&mut calculator, &name, Some(&settings));
    calculator.recompute();
    let interfaces = elements(&calculator, "host-endpoints-in");
    assert_eq!(interfaces, ["\"cali1\"", "\"tap2\""]);
}

#[test]
fn expected_address_finds_the_interface() {
    let ips = json!({"expectedIPs": ["10.0.0.11", "fd00::11", "bad"]});
    let mut calculator = calculator_of(&[]);
    let problem = change(&mut calculator, &hep("h"), Some(&host("host", &ips)));
    assert!(problem.unwrap().what().contains("spec.expectedIPs[2]"));
    with_interfaces(&mut calculator, &[("eth0", &["10.0.0.11"]), ("eth1", &[])]);
    calculator.recompute();
    assert_eq!(elements(&calculator, "host-endpoints-in"), ["\"eth0\""]);
    // The address moves, and the interface of the other family has the endpoint, too.
    with_interfaces(
        &mut calculator,
        &[("eth0", &["fd00::11"]), ("eth1", &["10.0.0.11"])],
    );
    assert!(calculator.has_news());
    calculator.recompute();
    let both = ["\"eth0\"", "\"eth1\""];
    assert_eq!(elements(&calculator, "host-endpoints-in"), both);
    for name in ["eth0", "eth1"] {
        calculator.host_interface(name, None);
    }
    let desired = calculator.recomputed();
    assert!(!desired.rules().chains.contains_key("host-input"));
    let words = "no interface of this host has one of these addresses";
    assert!(desired.problems.iter().any(|one| one.reason == words));
}

#[test]
fn missing_interface_is_reported_and_has_its_rules() {
    let mut calculator = calculator_of(&[(hep("h"), named("eth7"))]);
    with_interfaces(&mut calculator, &[("eth0", &[])]);
    let desired = calculator.recomputed();
    assert_eq!(desired.problems.len(), 1);
    assert_eq!(elements(&calculator, "host-endpoints-in"), ["\"eth7\""]);
    with_interfaces(&mut calculator, &[("eth7", &[])]);
    assert!(calculator.recomputed().problems.is_empty());
}

#[test]
fn invalid_host_endpoint_leaves_the_last_valid_one() {
    let mut calculator = calculator_of(&[(hep("h"), named("eth0"))]);
    let before = calculator.recomputed();
    for (field, value, at) in [
        ("interfaceName", json!("eth 0"), ""),
        ("interfaceName", json!(7), ""),
        ("node", json!(["r1-c07"]), ""),
        ("expectedIPs", json!("10.0.0.1"), ""),
        ("profiles", json!("projectcalico-default-allow"), ""),
        ("profiles", json!(["projectcalico-default-allow", 7]), "[1]"),
    ] {
        let mut bad = named("eth1");
        bad["spec"][field] = value;
        let problem = change(&mut calculator, &hep("h"), Some(&bad)).expect("a problem");
        assert_eq!(problem.field, format!("spec.{field}{at}"));
        let desired = calculator.recomputed();
        assert_eq!(desired.rules(), before.rules());
        assert!(desired.problems.contains(&problem));
    }
    // Without a valid one, nothing is closed.
    let mut bad = named("eth1");
    bad["spec"]["interfaceName"] = json!(7);
    let mut calculator = calculator_of(&[(hep("h"), bad)]);
    let desired = calculator.recomputed();
    assert!(!desired.rules().chains.contains_key("host-input"));
    assert_eq!(desired.problems.len(), 1);
}

#[test]
fn forwarded_packets_meet_policies_with_apply_on_forward_only() {
    let name = key("globalnetworkpolicies", "x");
    let with = |forward: bool| {
        policy(&json!({"applyOnForward": forward, "ingress": [
            {"action": "Deny", "source": {"nets": ["192.0.2.0/24"]}}]}))
    };
    let mut calculator = calculator_of(&[
        (hep("h"), named("eth0")),
        (hep("other"), host("x", &json!({"interfaceName": "eth1"}))),
        (name.clone(), with(false)),
    ]);
    calculator.recompute();
    assert_eq!(texts(&calculator, "host-forward"), [""; 0]);
    change(&mut calculator, &name, Some(&with(true)));
    calculator.recompute();
    assert_eq!(
        texts(&calculator, "host-forward"),
        ["iifname vmap @host-forward-in"]
    );
    let forward = texts(&calculator, "host-forward-in-eth0");
    assert!(forward[0].starts_with("ct state established,related"));
    let jumps: Vec<&String> = forward
        .iter()
        .filter(|rule| rule.starts_with("jump"))
        .collect();
    assert!(jumps.len() == 1 && jumps[0].starts_with("jump ti-default-"));
    // The tier denies the rest.
    let tier = jumps[0].trim_start_matches("jump ");
    assert!(texts(&calculator, tier).last().unwrap().contains("drop"));
    // No policy applies to the other direction, and to the other interface.
    for chain in [
        "host-forward-out-eth0",
        "host-forward-in-eth1",
        "host-forward-out-eth1",
    ] {
        assert_eq!(
            texts(&calculator, chain),
            ["counter accept comment \"no policy applies\""]
        );
    }
    // The same policy applies to packets of the host, too.
    let input = texts(&calculator, "host-in-eth0");
    assert!(input.contains(jumps[0]), "{input:#?}");
}

#[test]
fn tunnels_of_the_fabric_pass_host_endpoints() {
    let pool = json!({"spec": {"cidr": "10.65.0.0/16", "ipipMode": "Always",
        "vxlanMode": "CrossSubnet"}});
    let mut calculator = calculator_of(&[(hep("h"), named("eth0"))]);
    calculator.recompute();
    assert_eq!(texts(&calculator, "host-input").len(), 3);
    change(&mut calculator, &key("ippools", "a"), Some(&pool));
    calculator.recompute();
    let words = "counter accept comment \"tunnel of the fabric\"";
    assert_eq!(
        texts(&calculator, "host-input")[2..4],
        [
            format!("meta nfproto ipv4 meta l4proto 4 {words}"),
            format!("udp dport 4789 {words}"),
        ]
    );
    assert_eq!(
        texts(&calculator, "host-output")[3..9],
        [
            format!("ip daddr @nodes-ipv4 meta l4proto 4 {words}"),
            format!("ip daddr @tunnel-sources-ipv4 meta l4proto 4 {words}"),
            format!("ip daddr @nodes-ipv4 udp dport 4789 {words}"),
            format!("ip daddr @tunnel-sources-ipv4 udp dport 4789 {words}"),
            format!("ip6 daddr @nodes-ipv6 udp dport 4789 {words}"),
            format!("ip6 daddr @tunnel-sources-ipv6 udp dport 4789 {words}"),
        ]
    );
    // Policies at earlier hooks do not evaluate them either.
    let deny = json!({"ingress": [{"action": "Deny"}], "egress": [{"action": "Deny"}]});
    for field in ["preDNAT", "doNotTrack"] {
        let value = with_kind(field, &deny);
        change(
            &mut calculator,
            &key("globalnetworkpolicies", field),
            Some(&value),
        );
    }
    calculator.recompute();
    for (chain, end) in [
        ("host-untranslated", "saddr"),
        ("host-untracked", "saddr"),
        ("host-untracked-output", "daddr"),
    ] {
        assert_eq!(
            texts(&calculator, chain)[1..7],
            [
                format!("ip {end} @nodes-ipv4 meta l4proto 4 {words}"),
                format!("ip {end} @tunnel-sources-ipv4 meta l4proto 4 {words}"),
                format!("ip {end} @nodes-ipv4 udp dport 4789 {words}"),
                format!("ip {end} @tunnel-sources-ipv4 udp dport 4789 {words}"),
                format!("ip6 {end} @nodes-ipv6 udp dport 4789 {words}"),
                format!("ip6 {end} @tunnel-sources-ipv6 udp dport 4789 {words}"),
            ],
            "{chain}"
        );
    }
}

const CLEAR: &str = "meta mark set meta mark & 0xfffeffff";
const MARKED: &str =
    "meta mark & 0x00010000 == 0x00010000 counter accept comment \"accepted before translation\"";

fn with_kind(field: &str, spec: &Value) -> Value {
    let mut value = policy(spec);
    value["spec"][field] = json!(true);
    value["spec"]["applyOnForward"] = json!(true);
    value
}

#[test]
fn policy_before_translation_ends_the_evaluation() {
    let rules = json!([{"action": "Allow", "protocol": "TCP", "destination": {"ports": [80]}},
        {"action": "Deny"}]);
    let early = with_kind(
        "preDNAT",
        &json!({"ingress": rules, "egress": rules,
        "types": ["Ingress", "Egress"]}),
    );
    let mut calculator = calculator_of(&[
        (hep("h"), named("eth0")),
        (hep("i"), host("x", &json!({"interfaceName": "eth1"}))),
        (endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"])),
        (key("globalnetworkpolicies", "early"), early),
    ]);
    calculator.recompute();
    assert!(calculator.desired().problems.is_empty());
    assert_eq!(
        texts(&calculator, "host-untranslated"),
        [
            CLEAR,
            "ct state established,related counter accept comment \"answers\"",
            "iifname vmap @host-untranslated-in",
        ]
    );
    let chain = texts(&calculator, "host-untranslated-eth0");
    assert_eq!(chain[0], "jump host-failsafe-in");
    let tier = chain[4].trim_start_matches("jump ");
    assert!(tier.starts_with("ti-"), "{chain:#?}");
    assert_eq!(chain[5..], ["counter accept comment \"no policy decides\""]);
    // The tier leaves other packets to the policies at later hooks.
    assert_eq!(texts(&calculator, tier), ["jump pi-gnp/early"]);
    assert_eq!(
        texts(&calculator, "pi-gnp/early")[0],
        "tcp dport 80 counter meta mark set meta mark | 0x00010000 accept comment \"ingress[0]\""
    );
    assert_eq!(texts(&calculator, "po-gnp/early"), [""; 0]);
    assert_eq!(texts(&calculator, "host-in-eth0")[1], MARKED);
    // The mark counts only where a policy may have set it.
    for (chain, failsafe) in [
        ("host-in-eth1", "jump host-failsafe-in"),
        ("host-out-eth0", "jump host-failsafe-out"),
    ] {
        assert_eq!(texts(&calculator, chain)[1], failsafe);
    }
    // No normal policy applies, and no policy of hosts applies to workloads.
    assert!(
        texts(&calculator, "host-in-eth0")
            .iter()
            .all(|rule| !rule.contains("ti-"))
    );
    assert!(
        texts(&calculator, "to-cali1")
            .iter()
            .all(|rule| !rule.contains("ti-"))
    );
}

#[test]
fn untracked_policy_keeps_failsafe_ports_and_their_replies() {
    let rules = json!([{"action": "Allow", "protocol": "UDP", "destination": {"ports": [53]}}]);
    let untracked = with_kind("doNotTrack", &json!({"ingress": rules}));
    let settings = json!({"spec": {
        "failsafeInboundHostPorts": [{"port": 22, "net": "10.0.0.0/8"}],
        "failsafeOutboundHostPorts": [{"port": 2379}]}});
    let mut calculator = calculator_of(&[
        (hep("h"), named("eth0")),
        (key("globalnetworkpolicies", "u"), untracked),
        (key("felixconfigurations", "default"), settings),
    ]);
    calculator.recompute();
    assert!(calculator.desired().problems.is_empty());
    let failsafe = |chain: &str| {
        let rules = texts(&calculator, chain).into_iter();
        let rules = rules.filter(|rule| rule.contains("failsafe"));
        rules
            .map(|rule| rule.split(" counter").next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        failsafe("host-failsafe-in-untracked"),
        ["ip saddr 10.0.0.0/8 tcp dport 22", "tcp sport 2379"]
    );
    assert_eq!(
        failsafe("host-failsafe-out-untracked"),
        ["tcp dport 2379", "ip daddr 10.0.0.0/8 tcp sport 22"]
    );
    let chain = texts(&calculator, "host-untracked-in-eth0");
    assert_eq!(chain[0], "jump host-failsafe-in-untracked");
    assert!(chain[3].starts_with("jump ti-default-"), "{chain:#?}");
    assert_eq!(chain[4..], ["counter accept comment \"no policy decides\""]);
    assert_eq!(
        texts(&calculator, "pi-gnp/u"),
        [
            "udp dport 53 counter meta mark set meta mark | 0x00010000 notrack accept \
          comment \"ingress[0]\""
        ]
    );
    // No policy applies to packets of the host.
    assert_eq!(
        texts(&calculator, "host-untracked-out-eth0"),
        ["counter accept comment \"no policy applies\""]
    );
    assert_eq!(texts(&calculator, "host-in-eth0")[1], MARKED);
    assert_eq!(
        texts(&calculator, "host-out-eth0")[1],
        "jump host-failsafe-out"
    );
    // As in Calico, a host endpoint for all interfaces has no such policies.
    change(&mut calculator, &hep("h"), Some(&named("*")));
    let desired = calculator.recomputed();
    assert!(!desired.rules().chains.contains_key("host-untracked"));
    let words = "policies with doNotTrack have no effect on a host endpoint for all interfaces";
    assert!(desired.problems.iter().any(|one| one.reason == words));
}

#[test]
fn unreadable_policy_of_hosts_closes_hosts_only() {
    let key = key("globalnetworkpolicies", "x");
    for (spec, chain) in [
        (
            r#"{"doNotTrack":true,"ingress":[{"action":"Sing"}]}"#,
            "host-untracked-in-eth0",
        ),
        (
            r#"{"preDNAT":true,"selector":"has("}"#,
            "host-untranslated-eth0",
        ),
    ] {
        let mut calculator = calculator_of(&[
            (hep("h"), named("eth0")),
            (endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"])),
        ]);
        let text = format!(r#"{{"spec":{spec}}}"#);
        assert!(calculator.change(&key, Some(text.as_bytes())).is_some());
        let desired = calculator.recomputed();
        let early = texts(&calculator, chain);
        assert!(early[0].starts_with("jump host-failsafe-in"), "{early:#?}");
        assert!(early.iter().any(|rule| rule.starts_with("jump ti-")));
        assert!(texts(&calculator, "pi-gnp/x")[0].starts_with("counter drop"));
        assert!(last_rule(&desired, "to-cali1").contains("accept"));
        assert_eq!(texts(&calculator, "to-cali1").len(), 2);
    }
}

/// Another program may set the mark, and leave packets out of connection tracking.
#[test]
fn mark_is_cleared_before_a_policy_may_set_it() {
    let open = json!([{"action": "Allow", "protocol": "UDP"}]);
    let both = json!({"ingress": open, "egress": open});
    let mut calculator = calculator_of(&[
        (hep("h"), named("eth0")),
        (
            key("globalnetworkpolicies", "u"),
            with_kind("doNotTrack", &both),
        ),
        (
            key("globalnetworkpolicies", "t"),
            with_kind("preDNAT", &json!({"ingress": [{"action": "Deny"}]})),
        ),
    ]);
    calculator.recompute();
    assert!(calculator.desired().problems.is_empty());
    for chain in ["host-untracked", "host-untracked-output"] {
        assert_eq!(texts(&calculator, chain)[0], CLEAR, "{chain}");
    }
    // A policy with `preDNAT` does not deny what one with `doNotTrack` allows.
    let first = &texts(&calculator, "host-untranslated")[..2];
    assert_eq!(first[0], MARKED);
    assert!(first[1].starts_with("ct state established,related"));
    for chain in ["host-in-eth0", "host-out-eth0"] {
        assert_eq!(texts(&calculator, chain)[1], MARKED, "{chain}");
    }
    let rules = &calculator.desired().rules().chains;
    let all = rules.values().flat_map(|chain| &chain.rules);
    let mut of_state = all.map(rule_text).filter(|rule| rule.contains("untracked"));
    assert!(of_state.all(|rule| !rule.contains("accept")));
}

#[test]
fn early_policy_does_not_end_policies_where_packets_leave() {
    let rules = json!([{"action": "Allow", "protocol": "TCP"}]);
    let both = json!({"ingress": rules, "egress": rules, "applyOnForward": true});
    for field in ["preDNAT", "doNotTrack"] {
        let mut calculator = calculator_of(&[
            (hep("h"), named("eth0")),
            (key("globalnetworkpolicies", "f"), policy(&both)),
            (
                key("globalnetworkpolicies", "e"),
                with_kind(field, &json!({ "ingress": rules })),
            ),
        ]);
        calculator.recompute();
        assert_eq!(texts(&calculator, "host-forward-in-eth0")[1], MARKED);
        let out = texts(&calculator, "host-forward-out-eth0");
        assert!(out.iter().any(|rule| rule.starts_with("jump ")), "{out:#?}");
        assert!(!out.contains(&MARKED.to_owned()), "{out:#?}");
    }
}
