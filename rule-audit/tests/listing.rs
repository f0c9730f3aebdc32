//! The listing of a host with three endpoints against datastores that fit it, or do not.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use rule_audit::evaluator::Control;
use rule_audit::{Fabric, Listing, Report, Subject, Touched, audit, audit_touched};
use serde_json::{Value, json};

const LISTING: &str = include_str!("listing.json");
const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

fn endpoint(n: u8, interface: &str, addresses: &[&str], profile: &str) -> (String, Value) {
    let name = format!("n1-k8s-p{n}-eth0");
    let spec = json!({"orchestrator": "k8s", "node": "n1", "pod": format!("p{n}"),
        "endpoint": "eth0", "interfaceName": interface, "profiles": [profile],
        "ipNetworks": addresses});
    let key = format!("{PREFIX}workloadendpoints/prod/{name}");
    (
        key,
        json!({"metadata": {"name": name, "namespace": "prod"}, "spec": spec}),
    )
}

fn profile(name: &str, ingress: &[&str], egress: &[&str]) -> (String, Value) {
    let rules = |actions: &[&str]| -> Vec<Value> {
        actions
            .iter()
            .map(|action| json!({"action": action}))
            .collect()
    };
    let spec = json!({"ingress": rules(ingress), "egress": rules(egress)});
    (format!("{PREFIX}profiles/{name}"), json!({ "spec": spec }))
}

fn store() -> BTreeMap<String, Value> {
    BTreeMap::from([
        endpoint(1, "cali1", &["10.65.0.1/32", "fd65::1/128"], "open"),
        endpoint(2, "cali2", &["10.65.0.2/32"], "out"),
        endpoint(3, "tap3", &["fd65::3/128"], "closed"),
        profile("open", &["Allow"], &["Allow"]),
        profile("out", &[], &["Allow"]),
        profile("closed", &[], &[]),
    ])
}

fn compared(store: &BTreeMap<String, Value>, listing: &str) -> Report {
    compared_with(store, listing, &Control::default())
}

/// The same with control ports of files, besides the exception of the listing.
fn compared_with(store: &BTreeMap<String, Value>, listing: &str, control: &Control) -> Report {
    let fabric = Fabric::read(store, "n1", |settings| {
        settings.control = control.clone();
        let exceptions = &mut settings.control.exceptions;
        let exception = "10.65.0.1".parse().unwrap();
        exceptions.push((exception, exception));
    });
    audit(&fabric, &Listing::parse(listing).unwrap())
}

/// Returns the chains with differences, and the number of subjects with some.
fn chains(report: &Report) -> (Vec<String>, usize) {
    let different = report
        .subjects
        .values()
        .flat_map(|results| &results.different);
    let mut chains: Vec<String> = different.map(|finding| finding.chain.clone()).collect();
    chains.sort();
    chains.dedup();
    let subjects = report.subjects.values();
    (
        chains,
        subjects
            .filter(|results| !results.different.is_empty())
            .count(),
    )
}

#[test]
fn listing_is_equal_to_its_datastore() {
    let report = compared(&store(), LISTING);
    assert!(report.is_equal(), "{report:#?}");
    // Three endpoints, an unknown interface of each prefix, an uplink, and the loopback interface; two IP
    // versions. Six chains of workloads, three of the guard, seven of hosts, three of address translation.
    assert_eq!(report.subjects.len(), 7);
    for (subject, results) in &report.subjects {
        let count = match subject {
            Subject::Endpoint(..) => 24,
            Subject::Interface(name) if name == "lo" => 14,
            Subject::Interface(name) if name == "~uplink" => 32,
            _ => 32,
        };
        assert_eq!(results.equal, count, "{subject}");
    }
    assert!(report.notes.iter().any(|note| note.contains("guard")));
}

#[test]
fn other_datastore_is_different_with_a_packet() {
    let changes: [(&str, (String, Value), &[&str]); 4] = [
        (
            "closed",
            profile("open", &[], &["Allow"]),
            &["forward-to", "output"],
        ),
        (
            "opened",
            profile("closed", &["Allow"], &[]),
            &["forward-to", "output"],
        ),
        (
            "address",
            endpoint(2, "cali2", &["10.65.0.9/32"], "out"),
            &["prerouting"],
        ),
        (
            "interface",
            endpoint(2, "cali9", &["10.65.0.2/32"], "out"),
            &["forward", "forward-to", "input", "output", "prerouting"],
        ),
    ];
    for (what, (key, value), wanted) in changes {
        let mut store = store();
        store.insert(key, value);
        let report = compared(&store, LISTING);
        let (found, _) = chains(&report);
        // Packets of established connections to a host are accepted, so `input` may differ too.
        assert!(
            wanted
                .iter()
                .all(|chain| found.iter().any(|own| own == chain)),
            "{what} {found:?}"
        );
        let findings = report
            .subjects
            .values()
            .flat_map(|results| &results.different);
        assert!(
            findings.into_iter().all(|finding| finding.packet.is_some()),
            "{what}"
        );
    }
}

#[test]
fn changed_listing_is_different_in_its_chain() {
    let cases = [
        // Elements of a map, a policy, a priority, a hook, an element of a set.
        (
            r#"["cali1", {"goto": {"target": "to-cali1"}}]"#,
            r#"["cali1", {"goto": {"target": "to-tap3"}}]"#,
            "forward-to",
        ),
        (
            r#"["cali2", {"goto": {"target": "from-cali2"}}]"#,
            r#"["cali7", {"goto": {"target": "from-cali2"}}]"#,
            "forward",
        ),
        (
            r#""hook": "output", "prio": 0, "policy": "accept""#,
            r#""hook": "output", "prio": 0, "policy": "drop""#,
            "output",
        ),
        (
            r#""hook": "input", "prio": 1"#,
            r#""hook": "input", "prio": 2"#,
            "input-to-host",
        ),
        (
            r#""hook": "prerouting", "prio": -300"#,
            r#""hook": "output", "prio": -300"#,
            "prerouting",
        ),
        (
            r#"{"concat": ["cali1", "10.65.0.1"]}"#,
            r#"{"concat": ["cali1", "10.65.0.3"]}"#,
            "prerouting",
        ),
    ];
    for (old, new, chain) in cases {
        assert!(LISTING.contains(old), "{old}");
        let report = compared(&store(), &LISTING.replacen(old, new, 1));
        let (found, _) = chains(&report);
        assert!(found.iter().any(|own| own == chain), "{new} {report:#?}");
    }
}

#[test]
fn unknown_part_is_never_equal() {
    let (old, new) = (r#"{"accept": null}]"#, r#"{"queue": null}]"#);
    let changed = LISTING
        .lines()
        .map(|line| match line.contains(r#""chain": "to-cali1""#) {
            true => line.replace(old, new),
            false => line.to_owned(),
        });
    let report = compared(&store(), &changed.collect::<Vec<_>>().join("\n"));
    assert!(!report.is_equal() && !report.is_different(), "{report:#?}");
    let base = json!({"chain": {"family": "inet", "table": "cambric-felix", "name": "extra",
        "type": "filter", "hook": "forward", "prio": 9, "policy": "accept"}});
    let more = LISTING.replacen("\n]}", &format!(",\n{base}\n]}}"), 1);
    let report = compared(&store(), &more);
    assert!(!report.is_equal() && !report.is_different(), "{report:#?}");
    let report = compared(&store(), r#"{"nftables": []}"#);
    assert!(report.is_different());
    assert!(report.subjects.contains_key(&Subject::Table));
}

/// Returns the listing with more objects at its end.
fn with(objects: &[Value]) -> String {
    let more: String = objects.iter().map(|one| format!(",\n{one}")).collect();
    assert!(LISTING.contains("\n]}"));
    LISTING.replacen("\n]}", &format!("{more}\n]}}"), 1)
}

/// Returns the listing with a rule before the first one of a chain.
fn with_first(chain: &str, expressions: &Value) -> String {
    let own =
        format!(r#"{{"rule": {{"family": "inet", "table": "cambric-felix", "chain": "{chain}","#);
    let (before, after) = LISTING.split_once(&own).unwrap();
    let rule = rule(chain, expressions);
    format!("{before}{rule},\n{own}{after}")
}

fn rule(chain: &str, expressions: &Value) -> Value {
    json!({"rule": {"family": "inet", "table": "cambric-felix", "chain": chain, "handle": 999,
        "expr": expressions}})
}

fn base(name: &str, hook: &str, priority: i64, policy: &str) -> Value {
    json!({"chain": {"family": "inet", "table": "cambric-felix", "name": name, "type": "filter",
        "hook": hook, "prio": priority, "policy": policy}})
}

#[test]
fn interface_that_only_rules_name_is_compared() {
    let meta = |key: &str| json!({"meta": {"key": key}});
    let (input, output) = (meta("iifname"), meta("oifname"));
    let source = json!({"payload": {"protocol": "ip", "field": "saddr"}});
    let is =
        |left: &Value, right: Value| json!({"match": {"op": "==", "left": left, "right": right}});
    let pair = json!({"concat": [source, input]});
    let (drop, accept) = (json!({"drop": null}), json!({"accept": null}));
    let map = json!({"set": [["eth0", drop]]});
    for (chain, rule, interface) in [
        (
            "forward",
            json!([is(&input, "cali9".into()), accept]),
            "cali9",
        ),
        ("forward", json!([is(&input, "eth0".into()), drop]), "eth0"),
        (
            "forward-to",
            json!([is(&output, "eth0".into()), drop]),
            "eth0",
        ),
        ("output", json!([is(&output, "eth*".into()), drop]), "eth~"),
        (
            "input",
            json!([is(&input, json!({"set": ["tap9", "eth0"]})), drop]),
            "eth0",
        ),
        (
            "forward",
            json!([
                is(&pair, json!({"set": [{"concat": ["10.0.0.1", "eth0"]}]})),
                drop
            ]),
            "eth0",
        ),
        (
            "forward",
            json!([{"vmap": {"key": input, "data": map}}]),
            "eth0",
        ),
    ] {
        let report = compared(&store(), &with_first(chain, &rule));
        let subject = Subject::Interface(interface.to_owned());
        let results = report.subjects.get(&subject);
        let is_found = results.is_some_and(|results| {
            let chains = results.different.iter();
            chains.into_iter().any(|finding| finding.chain == chain)
        });
        assert!(is_found, "{rule} {report:#?}");
    }
    // The guard is compared for workload interfaces, so others in it are no subjects.
    let report = compared(&store(), LISTING);
    assert!(
        !report
            .subjects
            .contains_key(&Subject::Interface("tunl0".into()))
    );
}

#[test]
fn guard_with_an_open_control_port_is_different() {
    let peer = |address: &str| {
        let key = format!("{PREFIX}bgppeers/p");
        (key, json!({"spec": {"peerIP": address}}))
    };
    let configured = |port: u16| {
        let key = format!("{PREFIX}bgpconfigurations/node.n2");
        (key, json!({"spec": {"listenPort": port}}))
    };
    let node = || {
        let key = format!("{PREFIX}nodes/n1");
        let bgp = json!({"ipv4Address": "10.0.0.11/24", "ipv6Address": "fd00::11/64"});
        (key, json!({"spec": {"bgp": bgp}}))
    };
    let at = |text: &str| Control {
        services: vec![text.parse().unwrap()],
        ..Control::default()
    };
    let ports = |port: u16| Control {
        ports: vec![port],
        ..Control::default()
    };
    let reflector = |address: &str, port: u16| {
        let key = "/cambric/v1/reflector/rr1".to_owned();
        (
            key,
            json!({"asNumber": 64512, "ipv4Address": address, "port": port}),
        )
    };
    let listening = |kind: &str, host: &str, port: u16| {
        let key = format!("{PREFIX}felixconfigurations/node.n1");
        let field = |rest: &str| format!("{kind}{rest}");
        let spec = json!({field("Enabled"): true, field("Host"): host, field("Port"): port});
        (key, json!({ "spec": spec }))
    };
    let none = Control::default;
    let same = ("tests", "tests");
    let all = ["guard", "guard-forward", "guard-input"];
    let cases = [
        (same, node(), none(), vec![]),
        (same, peer("10.0.0.1:1179"), none(), vec![]),
        (same, peer("10.0.0.1"), none(), vec![]),
        (same, peer("10.0.0.2:1179"), none(), all.to_vec()),
        (same, peer("[fd00::2]:1179"), none(), all.to_vec()),
        (same, reflector("10.0.0.1", 1179), none(), vec![]),
        (same, reflector("10.0.0.2", 1179), none(), all.to_vec()),
        (same, reflector("10.0.0.1", 1180), none(), all.to_vec()),
        (same, listening("health", "0.0.0.0", 2379), none(), vec![]),
        (
            same,
            listening("health", "0.0.0.0", 2380),
            none(),
            vec!["guard-input"],
        ),
        (same, listening("health", "localhost", 2380), none(), vec![]),
        (
            same,
            listening("prometheusMetrics", "10.0.0.11", 9091),
            none(),
            vec!["guard-input"],
        ),
        (
            same,
            listening("prometheusMetrics", "127.0.0.1", 9091),
            none(),
            vec![],
        ),
        (same, configured(1790), none(), vec![]),
        (same, configured(1791), none(), all.to_vec()),
        (same, node(), ports(180), vec![]),
        (same, node(), ports(181), all.to_vec()),
        (same, node(), at("127.0.0.1:2379"), vec![]),
        (same, node(), at("127.0.0.1:2380"), all.to_vec()),
        (same, node(), at("10.0.0.11:2380"), all.to_vec()),
        // A port, a port of BFD, an exception, a destination, and loopback addresses.
        (
            (r#"{"range": [179, 180]}"#, r#"{"range": [180, 181]}"#),
            node(),
            none(),
            all.to_vec(),
        ),
        (("[3784, 4784]", "[3784]"), node(), none(), all.to_vec()),
        (
            (r#""elem": ["10.65.0.1"]"#, r#""elem": ["10.65.0.2"]"#),
            node(),
            none(),
            all.to_vec(),
        ),
        (
            (r#""right": "@control-ports-of-nodes""#, r#""right": 2381"#),
            node(),
            at("127.0.0.1:2379"),
            all.to_vec(),
        ),
        (
            (
                r#"{"prefix": {"addr": "127.0.0.0", "len": 8}}"#,
                r#"{"prefix": {"addr": "127.0.0.0", "len": 9}}"#,
            ),
            node(),
            none(),
            vec!["guard", "guard-input"],
        ),
    ];
    for ((old, new), (key, value), control, wanted) in cases {
        assert!(old == "tests" || LISTING.contains(old), "{old}");
        let mut store = store();
        store.insert(key, value);
        let report = compared_with(&store, &LISTING.replace(old, new), &control);
        let (found, _) = chains(&report);
        assert_eq!(found, wanted, "{new} {control:?} {report:#?}");
        assert_eq!(report.is_equal(), wanted.is_empty(), "{new} {control:?}");
    }
}

#[test]
fn cut_connections_must_be_dropped_and_no_others() {
    let mark = |right: u64| {
        json!({"match": {"op": "==", "left": {"&": [{"ct": {"key": "mark"}}, 0x4000_0000]},
            "right": right}})
    };
    let (drop, accept) = (json!({"drop": null}), json!({"accept": null}));
    let is_cut = mark(0x4000_0000);
    let interface = |key: &str| json!({"match": {"op": "==", "left": {"meta": {"key": key}}, "right": "cali*"}});
    let flags = json!({"match": {"op": "!=", "right": 2, "left": {"&": [
        {"payload": {"protocol": "tcp", "field": "flags"}}, 23]}}});
    let new = json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": 8}});
    let chains = |rules: &dyn Fn(&str) -> Vec<Value>| -> Vec<Value> {
        let chains = [
            ("cut-forward", "forward"),
            ("cut-input", "input"),
            ("cut-output", "output"),
        ];
        let objects = chains.map(|(name, hook)| {
            let rules = rules(name).into_iter().map(|list| rule(name, &list));
            std::iter::once(base(name, hook, -2, "accept"))
                .chain(rules)
                .collect::<Vec<Value>>()
        });
        objects.concat()
    };
    let middles = |name: &str| -> Vec<Value> {
        let keys: &[&str] = match name {
            "cut-forward" => &["iifname", "oifname"],
            "cut-input" => &["iifname"],
            _ => &["oifname"],
        };
        let rules = keys
            .iter()
            .map(|key| json!([interface(key), new, flags, drop]));
        rules.collect()
    };
    let good = chains(&|name| [vec![json!([is_cut, drop])], middles(name)].concat());
    let report = compared(&store(), &with(&good));
    assert!(report.is_equal(), "{report:#?}");
    assert_eq!(
        report.subjects[&Subject::Interface("~uplink".into())].equal,
        40
    );
    for (objects, wanted) in [
        // No rule, another bit, all connections, established ones, a verdict before, and a chain less.
        (chains(&|name| middles(name)), 3),
        (chains(&|_| vec![json!([mark(0), drop])]), 3),
        (chains(&|_| vec![json!([drop])]), 3),
        (
            chains(&|name| {
                let established = json!({"match": {"op": "in",
                    "left": {"ct": {"key": "state"}}, "right": 2}});
                let cut = json!([is_cut, drop]);
                [vec![cut, json!([established, flags, drop])], middles(name)].concat()
            }),
            0,
        ),
        (
            chains(&|_| vec![json!([new, accept]), json!([is_cut, drop])]),
            3,
        ),
        (good[..4].to_vec(), 2),
    ] {
        let report = compared(&store(), &with(&objects));
        assert!(!report.is_equal(), "{objects:?}");
        assert_eq!(chains_of(&report), wanted, "{objects:?} {report:#?}");
    }
    // The option requires the chains.
    let fabric = Fabric::read(&store(), "n1", |settings| settings.cuts = true);
    let report = audit(&fabric, &Listing::parse(LISTING).unwrap());
    assert_eq!(chains_of(&report), 3, "{report:#?}");
}

/// Returns the number of chains of cut connections with differences.
fn chains_of(report: &Report) -> usize {
    let (chains, _) = chains(report);
    chains
        .iter()
        .filter(|chain| chain.starts_with("cut-"))
        .count()
}

#[test]
fn control_ports_of_an_unread_file_are_unknown() {
    let control = Control {
        unread: vec!["felix.toml: no such file".to_owned()],
        ..Control::default()
    };
    let report = compared_with(&store(), LISTING, &control);
    assert!(!report.is_equal() && !report.is_different(), "{report:#?}");
    let unknown = &report.subjects[&Subject::Table].unknown;
    assert!(unknown[0].wanted.ends_with("no such file"), "{unknown:?}");
}

#[test]
fn only_interfaces_of_touched_objects_are_compared() {
    let fabric = Fabric::read(&store(), "n1", |settings| {
        let exception = "10.65.0.1".parse().unwrap();
        settings.control.exceptions = vec![(exception, exception)];
    });
    let listing = Listing::parse(LISTING).unwrap();
    let subjects = |touch: &dyn Fn(&mut Touched)| -> Vec<String> {
        let mut touched = Touched::default();
        touch(&mut touched);
        let report = audit_touched(&fabric, &listing, &touched);
        assert!(report.is_equal(), "{report:#?}");
        report.subjects.keys().map(Subject::to_string).collect()
    };
    let chain = |name: &'static str| move |touched: &mut Touched| touched.add_chain(name.into());
    let element = |interface: &'static str| {
        move |touched: &mut Touched| {
            touched.add_element("dispatch-from".into(), Some(interface.into()));
        }
    };
    let (one, three) = (
        "endpoint prod/n1-k8s-p1-eth0 (cali1)",
        "endpoint prod/n1-k8s-p3-eth0 (tap3)",
    );
    assert_eq!(subjects(&chain("to-tap3")), [three]);
    assert_eq!(subjects(&chain("from-cali1")), [one]);
    assert_eq!(subjects(&chain("gone")), [""; 0]);
    assert_eq!(subjects(&element("cali1")), [one]);
    assert_eq!(subjects(&element("cali7")), [""; 0]);
    assert_eq!(subjects(&|_| {}), [""; 0]);
    // The guard of all workload interfaces; a map and a set without their elements; a base chain.
    assert_eq!(subjects(&chain("control-closed")).len(), 5);
    for set in ["dispatch-from", "sources-ipv4"] {
        let all = subjects(&|touched| touched.add_set(set.into()));
        assert_eq!(all.len(), 6, "{set} {all:?}");
    }
    assert_eq!(subjects(&chain("forward")).len(), 6);
    let all = audit_touched(&fabric, &listing, &Touched::everything());
    assert_eq!(all, audit(&fabric, &listing));
    assert_eq!(all.subjects.len(), 7);
}

#[test]
fn base_chain_that_is_not_compared_is_checked() {
    let queue = json!([{"queue": {"num": 0}}]);
    let dscp = json!([{"mangle": {"key": {"payload": {"protocol": "ip", "field": "dscp"}},
        "value": 10}}, {"return": null}]);
    let add = |set: &str| {
        json!([{"set": {"op": "add", "elem": {"meta": {"key": "iifname"}}, "set": set}},
            {"drop": null}])
    };
    let (loops, mark) = (
        base("service-loops", "forward", 2, "accept"),
        base("mark-dscp", "forward", -150, "accept"),
    );
    let untrack = json!([{"mangle": {"key": {"meta": {"key": "mark"}},
        "value": {"|": [{"meta": {"key": "mark"}}, 65536]}}}, {"notrack": null}, {"accept": null}]);
    let clear = json!([{"mangle": {"key": {"meta": {"key": "mark"}},
        "value": {"&": [{"meta": {"key": "mark"}}, 0xfffe_ffff_u32]}}}]);
    let untracked = base("host-untracked", "prerouting", -300, "accept");
    let untranslated = base("host-untranslated", "prerouting", -150, "accept");
    let jump = json!([{"jump": {"target": "inner"}}]);
    let inner = json!({"chain": {"family": "inet", "table": "cambric-felix", "name": "inner"}});
    let (equal, different, unknown) = ((true, false), (false, true), (false, false));
    for (objects, wanted) in [
        (vec![loops.clone(), mark.clone()], equal),
        (vec![loops, rule("service-loops", &queue)], unknown),
        (vec![mark.clone(), rule("mark-dscp", &dscp)], equal),
        (vec![rule("guard", &dscp)], unknown),
        // Without host endpoints, no packet is marked.
        (vec![untracked, rule("host-untracked", &untrack)], different),
        (
            vec![untranslated.clone(), rule("host-untranslated", &untrack)],
            different,
        ),
        // The mark of others is not cleared.
        (vec![untranslated.clone()], different),
        (vec![untranslated, rule("host-untranslated", &clear)], equal),
        (vec![rule("guard", &add("@connections-blocked"))], equal),
        (vec![rule("guard", &add("@other"))], unknown),
        (
            vec![inner, rule("guard", &jump), rule("inner", &queue)],
            unknown,
        ),
        (
            vec![base("service-loops", "forward", 3, "accept")],
            different,
        ),
        (vec![base("mark-dscp", "output", -150, "accept")], different),
        (
            vec![base("fragments", "prerouting", -450, "drop")],
            different,
        ),
        (vec![base("fragments", "prerouting", -450, "accept")], equal),
        (vec![base("budget-input", "input", 2, "accept")], equal),
        (
            vec![base("budget-forward", "forward", 1, "accept")],
            different,
        ),
    ] {
        let report = compared(&store(), &with(&objects));
        let found = (report.is_equal(), report.is_different());
        assert_eq!(found, wanted, "{objects:?} {report:#?}");
    }
    for name in ["guard", "guard-forward", "guard-input"] {
        let own = format!(r#""name": "{name}", "#);
        assert!(LISTING.contains(&own));
        let renamed = LISTING.replace(&own, r#""name": "gone", "#);
        let report = compared(&store(), &renamed);
        assert!(
            chains(&report).0.iter().any(|chain| chain == name),
            "{name}"
        );
    }
}

#[test]
fn foreign_table_with_a_verdict_is_unknown() {
    const TABLE: (&str, &str) = ("ip", "nat");
    let in_table = |(family, table): (&str, &str), policy: &str, expressions: &Value| {
        let chain = |name: &str| {
            json!({"chain": {"family": family, "table": table, "name": name,
            "type": "filter", "hook": "forward", "prio": 5, "policy": policy}})
        };
        let mut inner = chain("inner");
        inner["chain"]
            .as_object_mut()
            .unwrap()
            .retain(|name, _| name != "hook");
        let rule = |chain: &str, expressions: &Value| {
            json!({"rule": {"family": family,
            "table": table, "chain": chain, "handle": 7, "expr": expressions}})
        };
        let jump = json!([{"jump": {"target": "inner"}}]);
        let list = [
            chain("own"),
            inner,
            rule("own", &jump),
            rule("inner", expressions),
        ];
        with(
            &[json!({"table": {"family": family, "name": table}})]
                .into_iter()
                .chain(list)
                .collect::<Vec<Value>>(),
        )
    };
    let map = |verdict: &str| {
        json!([{"vmap": {"key": {"meta": {"key": "iifname"}},
        "data": {"set": [["eth0", {verdict: null}]]}}}])
    };
    let named = json!([{"vmap": {"key": {"meta": {"key": "iifname"}}, "data": "@missing"}}]);
    let counted = json!([{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": 6}},
        {"counter": null}, {"log": null}, {"accept": null}]);
    for (expressions, is_equal) in [
        (counted, true),
        (map("accept"), true),
        (map("drop"), false),
        (named, false),
        (json!([{"return": null}]), true),
        (json!([{"drop": null}]), false),
        (json!([{"reject": {"type": "tcp reset"}}]), false),
        (json!([{"dnat": {"addr": "10.0.0.9"}}]), false),
        (json!([{"masquerade": null}]), false),
        (json!([{"queue": {"num": 0}}]), false),
        (json!([{"notrack": null}]), false),
        (json!([{"fwd": {"dev": "eth1"}}]), false),
        (json!([{"flow": {"op": "add", "flowtable": "@f"}}]), false),
        (
            json!([{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1}}]),
            false,
        ),
        (json!([{"xt": {"type": "target", "name": "MARK"}}]), false),
        (json!([{"a later one": null}]), false),
    ] {
        let report = compared(&store(), &in_table(TABLE, "accept", &expressions));
        assert_eq!(report.is_equal(), is_equal, "{expressions} {report:#?}");
        assert!(!report.is_different(), "{expressions}");
        let subject = Subject::Foreign(TABLE.0.to_owned(), TABLE.1.to_owned());
        if let Some(results) = report.subjects.get(&subject) {
            assert_eq!(results.unknown[0].chain, "own");
            assert!(
                results.unknown[0]
                    .wanted
                    .starts_with("chain inner handle 7: ")
            );
        }
    }
    let (empty, drop, flow) = (
        json!([]),
        json!([{"drop": null}]),
        json!([{"flow": {"op": "add", "flowtable": "@offloaded"}}]),
    );
    // A policy; the tables of Felix with their own verdicts, and with others.
    for (table, policy, expressions, is_equal) in [
        (TABLE, "drop", &empty, false),
        (("netdev", "cambric-felix"), "accept", &drop, true),
        (("netdev", "cambric-felix"), "accept", &flow, false),
        (("arp", "cambric-felix"), "accept", &drop, true),
        (("inet", "cambric-felix-record"), "accept", &drop, false),
        (("inet", "cambric-felix-offload"), "accept", &flow, true),
        (("inet", "cambric-felix-offload"), "accept", &drop, false),
        (("inet", "cambric-felix-boot"), "drop", &empty, false),
        (("ip6", "cambric-felix"), "accept", &drop, false),
    ] {
        let text = in_table(table, policy, expressions);
        assert_eq!(
            compared(&store(), &text).is_equal(),
            is_equal,
            "{table:?} {expressions}"
        );
    }
    let closed = in_table(TABLE, "drop", &empty);
    // The kernel ignores a dormant table. A known one is noted.
    let name = format!(r#""name":"{}""#, TABLE.1);
    assert_eq!(closed.matches(&name).count(), 1, "{closed}");
    let dormant = closed.replace(&name, &format!(r#"{name},"flags":["dormant"]"#));
    assert!(compared(&store(), &dormant).is_equal());
    let fabric = Fabric::read(&store(), "n1", |settings| {
        let exception = "10.65.0.1".parse().unwrap();
        settings.control.exceptions = vec![(exception, exception)];
        let known = (TABLE.0.to_owned(), TABLE.1.to_owned());
        settings.known_tables.insert(known);
    });
    let report = audit(&fabric, &Listing::parse(&closed).unwrap());
    assert!(report.is_equal(), "{report:#?}");
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.starts_with("table ip nat ")),
        "{:?}",
        report.notes
    );
}
