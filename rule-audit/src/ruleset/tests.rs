//! The kernel's listing as programs.

use serde_json::{Value, json};

use super::*;
use crate::packet::{Family, Field, Packet, state};
use crate::ranges::number;
use crate::space::{Outcome, Space};

/// Returns the outcome of a chain `c` with these expressions in one rule each, for packets from `cali1`.
fn outcome(rules: &[Value], sets: &[Value], packet: Packet) -> Outcome {
    outcome_and_text(rules, sets, packet).0
}

/// Returns the outcome of a chain `c`, and the text of a translation, with these expressions in one rule each, for packets from `cali1`.
fn outcome_and_text(rules: &[Value], sets: &[Value], packet: Packet) -> (Outcome, Option<String>) {
    let mut objects = vec![
        json!({"metainfo": {"version": "1.0.6"}}),
        json!({"table": {"family": "inet", "name": "t", "handle": 1}}),
    ];
    objects.extend(sets.iter().cloned());
    let chain = json!({"family": "inet", "table": "t", "name": "c", "type": "filter",
        "hook": "forward", "prio": 0, "policy": "accept"});
    objects.push(json!({ "chain": chain }));
    objects.push(json!({"chain": {"family": "inet", "table": "t", "name": "d"}}));
    let drop = json!([{"drop": null}]);
    objects.push(json!({"rule": {"family": "inet", "table": "t", "chain": "d", "expr": drop}}));
    objects.extend(rules.iter().map(|rule| {
        json!({"rule": {"family": "inet", "table": "t", "chain": "c", "handle": 7, "expr": rule}})
    }));
    let text = json!({ "nftables": objects }).to_string();
    let listing = Listing::parse(&text).unwrap();
    let table = &listing.tables[&("inet".to_owned(), "t".to_owned())];
    let view = View {
        family: packet.family,
        input: Some("cali1".into()),
        output: None,
    };
    let mut space = Space::new();
    let program = Compiler::default().chain(&mut space, ("t", table), "c", &view);
    let outcome = space.run(program, &packet).0;
    let text = match outcome {
        Outcome::Translated(text) => Some(space.text(text).to_owned()),
        _ => None,
    };
    (outcome, text)
}

fn matched(left: &Value, op: &str, right: &Value) -> Value {
    json!([{"match": {"op": op, "left": left, "right": right}}, {"counter": {}}, {"drop": null}])
}

fn packet(source: &str, protocol: u128, port: u128) -> Packet {
    let source: std::net::IpAddr = source.parse().unwrap();
    let family = if source.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    Packet::new(family)
        .with(Field::Source, number(source))
        .with(Field::Protocol, protocol)
        .with(Field::DestinationPort, port)
}

fn payload(header: &str, field: &str) -> Value {
    json!({"payload": {"protocol": header, "field": field}})
}

fn set(name: &str, kind: &Value, elements: &Value) -> Value {
    json!({"set": {"family": "inet", "table": "t", "name": name, "type": kind, "elem": elements}})
}

#[test]
fn matches_have_the_meaning_of_the_kernel() {
    let sets = [
        set(
            "a",
            &json!("ipv4_addr"),
            &json!(["10.0.0.1", {"prefix": {"addr": "10.1.0.0", "len": 16}}]),
        ),
        set(
            "p",
            &json!("inet_service"),
            &json!([80, {"range": [90, 95]}]),
        ),
        set(
            "n",
            &json!(["ipv4_addr", "inet_proto", "inet_service"]),
            &json!([{"concat": ["10.0.0.1", 6, 80]}]),
        ),
        set(
            "s",
            &json!(["ifname", "ipv4_addr"]),
            &json!([{"concat": ["cali1", "10.0.0.1"]},
            {"concat": ["cali2", "10.0.0.2"]}]),
        ),
        set("i", &json!("ifname"), &json!(["cali1"])),
    ];
    let (ip, ip6) = (payload("ip", "saddr"), payload("ip6", "saddr"));
    let (tcp, th) = (payload("tcp", "dport"), payload("th", "dport"));
    let interface = json!({"meta": {"key": "iifname"}});
    let protocol = json!({"meta": {"key": "l4proto"}});
    let named = json!({"concat": [ip, protocol, th]});
    let own = json!({"concat": [interface, ip]});
    let (one, two) = (packet("10.0.0.1", 6, 80), packet("10.0.0.2", 17, 91));
    let six = packet("fd65::1", 6, 80);
    for (left, op, right, on, drops) in [
        (&ip, "==", json!("@a"), one, true),
        (&ip, "==", json!("@a"), two, false),
        (&ip, "!=", json!("@a"), two, true),
        (&ip, "!=", json!("@a"), six, false),
        (&ip6, "==", json!("fd65::1"), six, true),
        (
            &ip,
            "==",
            json!({"prefix": {"addr": "10.0.0.0", "len": 31}}),
            one,
            true,
        ),
        (
            &ip,
            "==",
            json!({"prefix": {"addr": "10.0.0.0", "len": 31}}),
            two,
            false,
        ),
        (
            &ip,
            "==",
            json!({"set": ["10.0.0.2", "10.0.0.9"]}),
            two,
            true,
        ),
        (&tcp, "==", json!("@p"), one, true),
        (&tcp, "==", json!("@p"), two, false),
        (&tcp, "!=", json!("@p"), two, false),
        (&tcp, "!=", json!({"range": [81, 89]}), one, true),
        (&th, "==", json!("@p"), two, true),
        (&protocol, "!=", json!(6), two, true),
        (&protocol, "==", json!(6), one, true),
        (&named, "==", json!("@n"), one, true),
        (&named, "!=", json!("@n"), one, false),
        (&named, "!=", json!("@n"), two, true),
        (&named, "==", json!("@n"), six, false),
        (&own, "==", json!("@s"), one, true),
        (&own, "==", json!("@s"), two, false),
        (&interface, "==", json!("@i"), one, true),
        (&interface, "!=", json!("@i"), one, false),
        (&interface, "==", json!("cali*"), one, true),
        (&interface, "==", json!("tap*"), one, false),
        (&interface, "==", json!("cali2"), one, false),
        (
            &json!({"meta": {"key": "nfproto"}}),
            "==",
            json!(2),
            one,
            true,
        ),
        (
            &json!({"meta": {"key": "nfproto"}}),
            "==",
            json!(2),
            six,
            false,
        ),
        (
            &json!({"meta": {"key": "nfproto"}}),
            "!=",
            json!("ipv6"),
            one,
            true,
        ),
    ] {
        let wanted = if drops {
            Outcome::Drop
        } else {
            Outcome::Accept
        };
        let found = outcome(&[matched(left, op, &right)], &sets, on);
        assert_eq!(found, wanted, "{left} {op} {right} on {on}");
    }
}

#[test]
fn states_are_compared_as_bits() {
    let ct = json!({"ct": {"key": "state"}});
    let drops = |op: &str, right: &Value, state: u128| {
        let on = packet("10.0.0.1", 6, 80).with(Field::State, state);
        outcome(&[matched(&ct, op, right)], &[], on) == Outcome::Drop
    };
    for right in [
        json!([2, 4]),
        json!(["established", "related"]),
        json!({"|": [2, 4]}),
        // A bit that is listed twice is the same bit.
        json!([2, 4, 2, 4]),
    ] {
        assert!(drops("in", &right, state::ESTABLISHED) && drops("in", &right, state::RELATED));
        assert!(!drops("in", &right, state::NEW));
    }
    assert!(drops("in", &json!(1), state::INVALID) && !drops("in", &json!(1), state::UNTRACKED));
    assert!(drops("!=", &json!(8), state::INVALID) && !drops("!=", &json!(8), state::NEW));
    // The whole value differs from every single state.
    assert!(drops("!=", &json!({"|": [2, 4]}), state::ESTABLISHED));
    assert!(drops("==", &json!({"set": [2, 4]}), state::RELATED));
}

#[test]
fn verdicts_and_maps_lead_to_their_chains() {
    let map = json!({"map": {"family": "inet", "table": "t", "name": "m", "type": "ifname",
        "map": "verdict", "elem": [["cali1", {"goto": {"target": "d"}}],
            ["cali2", {"accept": null}]]}});
    let key = json!({"meta": {"key": "iifname"}});
    let on = packet("10.0.0.1", 6, 80);
    let lookup = json!([{"vmap": {"key": key, "data": "@m"}}]);
    assert_eq!(outcome(&[lookup], &[map], on), Outcome::Drop);
    let states = json!({"set": [[2, {"accept": null}], [8, {"jump": {"target": "d"}}]]});
    let lookup = json!([{"vmap": {"key": {"ct": {"key": "state"}}, "data": states}}]);
    assert_eq!(
        outcome(std::slice::from_ref(&lookup), &[], on),
        Outcome::Drop
    );
    let other = on.with(Field::State, state::ESTABLISHED);
    assert_eq!(outcome(&[lookup], &[], other), Outcome::Accept);
    let rules = [json!([{"return": null}]), json!([{"drop": null}])];
    assert_eq!(outcome(&rules, &[], on), Outcome::Accept);
    let rules = [
        json!([{"log": {"prefix": "x"}}]),
        json!([{"reject": {"type": "icmpx"}}]),
    ];
    assert_eq!(outcome(&rules, &[], on), Outcome::Drop);
}

#[test]
fn unknown_expression_makes_the_outcome_unknown() {
    let on = packet("10.0.0.1", 6, 80);
    let mark = json!({"meta": {"key": "mark"}});
    let dynamic = json!({"set": {"family": "inet", "table": "t", "name": "x", "type": "ipv4_addr",
        "flags": ["dynamic"], "elem": []}});
    let odd = json!({"set": {"family": "inet", "table": "t", "name": "y", "type": "mark",
        "elem": [1]}});
    for rule in [
        json!([{"queue": {"num": 0}}]),
        json!([{"jump": {"target": "missing"}}]),
        json!([{"limit": {"rate": 5}}, {"drop": null}]),
        json!([{"xt": null}]),
        json!(["drop"]),
        json!([{"accept": null, "drop": null}]),
        matched(&mark, "==", &json!(1)),
        matched(&payload("ip", "saddr"), "==", &json!("@x")),
        matched(&payload("ip", "saddr"), "==", &json!("@y")),
        matched(&payload("ip", "saddr"), "==", &json!("@missing")),
        matched(&payload("ip", "saddr"), "<", &json!("10.0.0.9")),
        matched(&payload("ip", "saddr"), "==", &json!("fd65::1")),
        matched(&payload("ip", "ttl"), "==", &json!(1)),
        matched(&payload("tcp", "flags"), "==", &json!(2)),
        matched(&payload("tcp", "dport"), "==", &json!(65_536)),
        matched(&json!({"meta": {"key": "oifname"}}), "==", &json!("cali1")),
        matched(
            &json!({"fib": {"result": "oif", "flags": ["saddr"]}}),
            "==",
            &json!(false),
        ),
        json!([{"vmap": {"key": mark, "data": {"set": [[1, {"accept": null}]]}}}]),
    ] {
        let sets = [dynamic.clone(), odd.clone()];
        let found = outcome(std::slice::from_ref(&rule), &sets, on);
        assert_eq!(found, Outcome::Unknown, "{rule}");
    }
}

#[test]
fn expression_after_map_makes_the_outcome_unknown() {
    let on = packet("10.0.0.1", 6, 80);
    let key = json!({"meta": {"key": "iifname"}});
    let lookup = |key: &Value, element: &Value| json!({"vmap": {"key": key, "data": {"set": [[element, {"drop": null}]]}}});
    let found = |rule: Value| outcome(&[rule], &[], on);
    let (own, other) = (lookup(&key, &json!("cali1")), lookup(&key, &json!("cali2")));
    let never = lookup(&payload("ip6", "saddr"), &json!("fd65::1"));
    for (map, wanted) in [
        (&own, Outcome::Drop),
        (&other, Outcome::Accept),
        (&never, Outcome::Accept),
    ] {
        assert_eq!(found(json!([map, {"counter": null}])), wanted, "{map}");
        for after in [
            json!({"drop": null}),
            json!({"log": null}),
            json!({"match": {"op": "==", "left": key, "right": "cali1"}}),
        ] {
            let rule = json!([map, {"counter": null}, after]);
            assert_eq!(found(rule), Outcome::Unknown, "{map} {after}");
        }
    }
}

#[test]
fn element_with_a_limit_or_timeout_is_unknown() {
    let on = packet("10.0.0.1", 6, 80);
    let rule = matched(&payload("ip", "saddr"), "==", &json!("@a"));
    let of = |fields: Value| {
        let mut inner = fields;
        inner["val"] = "10.0.0.1".into();
        json!([{ "elem": inner }])
    };
    let found = |set: Value| outcome(std::slice::from_ref(&rule), &[set], on);
    let named = |elements: &Value| set("a", &json!("ipv4_addr"), elements);
    for (fields, wanted) in [
        (json!({}), Outcome::Drop),
        (
            json!({"counter": {"packets": 1}, "comment": "x"}),
            Outcome::Drop,
        ),
        (json!({"limit": {"rate": 1}}), Outcome::Unknown),
        (json!({"timeout": 60}), Outcome::Unknown),
        (json!({"expires": 6}), Outcome::Unknown),
    ] {
        let elements = of(fields);
        assert_eq!(found(named(&elements)), wanted, "{elements}");
        let listed = json!({ "set": elements });
        let direct = matched(&payload("ip", "saddr"), "==", &listed);
        assert_eq!(outcome(&[direct], &[], on), wanted, "{elements}");
    }
    for (field, value, wanted) in [
        ("stmt", json!([{"counter": null}]), Outcome::Drop),
        ("stmt", json!([{"limit": {"rate": 1}}]), Outcome::Unknown),
        ("stmt", json!("x"), Outcome::Unknown),
        ("timeout", json!(60), Outcome::Unknown),
    ] {
        let mut set = named(&json!(["10.0.0.1"]));
        set["set"][field] = value;
        assert_eq!(found(set.clone()), wanted, "{set}");
    }
}

#[test]
fn set_that_rules_change_is_unknown() {
    let add = json!([{"set": {"op": "add", "elem": payload("ip", "saddr"), "set": "@a"}}]);
    let rules = [add, matched(&payload("ip", "saddr"), "==", &json!("@a"))];
    let sets = [set("a", &json!("ipv4_addr"), &json!([]))];
    let found = outcome(&rules, &sets, packet("10.0.0.1", 6, 80));
    assert_eq!(found, Outcome::Unknown);
}

#[test]
fn only_budgets_of_felix_are_never_exceeded() {
    let key = json!({"meta": {"key": "iifname"}});
    let source = json!({"concat": [key, payload("ip6", "saddr")]});
    let over = json!([{"limit": {"rate": 16, "per": "minute", "inv": true}}]);
    let within = json!([{"limit": {"rate": 16, "per": "minute"}}]);
    let statement = |set: &str, key: &Value, limit: Option<&Value>| {
        let mut body = json!({"op": "update", "elem": key, "set": format!("@{set}")});
        if let Some(limit) = limit {
            body["stmt"] = limit.clone();
        }
        json!({ "set": body })
    };
    let rates = statement("link-local-rates", &key, Some(&over));
    let seen = statement("link-local-sources", &source, None);
    let jump = json!({"vmap": {"key": key, "data": {"set": [["cali1", {"drop": null}]]}}});
    let (v4, v6) = (packet("10.0.0.1", 6, 80), packet("fe80::1", 6, 80));
    for (statement, verdict, on, wanted) in [
        (&rates, json!({"drop": null}), v6, Outcome::Accept),
        (&rates, jump, v6, Outcome::Unknown),
        (&seen, json!({"drop": null}), v6, Outcome::Drop),
        // Its key has an IPv6 address.
        (&seen, json!({"drop": null}), v4, Outcome::Accept),
        (
            &statement("other", &key, Some(&over)),
            json!({"drop": null}),
            v6,
            Outcome::Unknown,
        ),
        (
            &statement("fragment-rates", &key, Some(&over)),
            json!({"drop": null}),
            v6,
            Outcome::Unknown,
        ),
        (
            &statement("link-local-rates", &payload("ip6", "saddr"), Some(&over)),
            json!({"drop": null}),
            v6,
            Outcome::Unknown,
        ),
        (
            &statement("link-local-rates", &key, Some(&within)),
            json!({"drop": null}),
            v6,
            Outcome::Unknown,
        ),
        (
            &statement("link-local-rates", &key, None),
            json!({"drop": null}),
            v6,
            Outcome::Unknown,
        ),
        (
            &statement("other", &source, None),
            json!({"drop": null}),
            v6,
            Outcome::Unknown,
        ),
    ] {
        let rule = json!([statement, {"counter": null}, verdict]);
        assert_eq!(outcome(&[rule], &[], on), wanted, "{statement} {verdict}");
    }
}

#[test]
fn limit_of_records_must_decide_as_the_rule_after_it() {
    let key = json!({"meta": {"key": "iifname"}});
    let over = json!([{"limit": {"rate": 10_000, "per": "second", "inv": true}}]);
    let set = "@flow-rates-10000";
    let limit = json!({"set": {"op": "update", "elem": key, "set": set, "stmt": over}});
    let port =
        |port: u16| json!({"match": {"op": "==", "left": payload("tcp", "dport"), "right": port}});
    let report = json!({"log": {"prefix": "D I rule x ingress[0]", "group": 80}});
    let goto = json!({"goto": {"target": "d"}});
    let on = packet("10.0.0.1", 6, 80);
    let (drop, accept) = (json!({"drop": null}), json!({"accept": null}));
    for (first, second, verdict, wanted) in [
        (80, 80, &drop, Outcome::Drop),
        (80, 80, &accept, Outcome::Unknown),
        (80, 81, &drop, Outcome::Unknown),
        (81, 80, &drop, Outcome::Drop),
        (81, 81, &drop, Outcome::Accept),
    ] {
        let rules = [
            json!([port(first), limit, {"counter": null}, goto]),
            json!([port(second), {"counter": null}, report, verdict]),
        ];
        assert_eq!(
            outcome(&rules, &[], on),
            wanted,
            "{first} {second} {verdict}"
        );
    }
    // Without a rule after it, the limit decides.
    let rules = [json!([port(80), limit, goto])];
    assert_eq!(outcome(&rules, &[], on), Outcome::Unknown);
}

#[test]
fn element_for_all_interfaces_is_unknown() {
    let on = packet("10.0.0.1", 6, 80);
    let key = json!({"meta": {"key": "iifname"}});
    let map = json!({"map": {"family": "inet", "table": "t", "name": "m", "type": "ifname",
        "map": "verdict", "elem": [["cali1", {"accept": null}], ["*", {"drop": null}]]}});
    let lookup = json!([{"vmap": {"key": key, "data": "@m"}}]);
    assert_eq!(outcome(&[lookup], &[map], on), Outcome::Unknown);
    let direct = matched(&key, "==", &json!("*"));
    assert_eq!(outcome(&[direct], &[], on), Outcome::Unknown);
}

#[test]
fn mark_that_is_no_number_is_unknown() {
    let mark = |value: Value| {
        let mangle = json!({"mangle": {"key": {"meta": {"key": "mark"}}, "value": value}});
        let rule = json!([mangle, {"drop": null}]);
        outcome(&[rule], &[], packet("10.0.0.1", 6, 80))
    };
    assert_eq!(mark(json!(1)), Outcome::Drop);
    let data = json!({"set": [["10.0.0.9", 1]]});
    let looked_up = json!({"map": {"key": payload("ip", "saddr"), "data": data}});
    assert_eq!(mark(looked_up), Outcome::Unknown);
}

#[test]
fn mark_of_accepted_packets_is_a_field() {
    let mark = json!({"meta": {"key": "mark"}});
    let change = |kind: &str, bits: u64| {
        let value = json!({kind: [mark, bits]});
        json!({"mangle": {"key": mark, "value": value}})
    };
    let own = 0x1_0000_u64;
    let (set, clear) = (change("|", own), change("&", 0xfffe_ffff));
    let accept = json!({"accept": null});
    let notrack = json!({"notrack": null});
    let on = packet("10.0.0.1", 6, 80);
    for (rule, wanted) in [
        (json!([set, accept]), Outcome::Marked),
        (json!([set, notrack, accept]), Outcome::Untracked),
        (json!([notrack, accept]), Outcome::Unknown),
        (json!([set, {"drop": null}]), Outcome::Drop),
        // No verdict, but later rules may look for the mark.
        (json!([set]), Outcome::Unknown),
        (json!([clear]), Outcome::Accept),
        (json!([clear, accept]), Outcome::Unknown),
        (json!([change("|", 1), accept]), Outcome::Accept),
        (json!([change("^", own), accept]), Outcome::Unknown),
        (
            json!([{"mangle": {"key": mark, "value": 1}}, accept]),
            Outcome::Unknown,
        ),
    ] {
        assert_eq!(
            outcome(std::slice::from_ref(&rule), &[], on),
            wanted,
            "{rule}"
        );
    }
    // It is cleared before anything else.
    let rules = [
        json!([{"counter": {}}, {"jump": {"target": "d"}}]),
        json!([clear]),
    ];
    assert_eq!(outcome(&rules, &[], on), Outcome::Drop);
    let dns = matched(&payload("udp", "dport"), "==", &json!(53));
    let rules = [dns, json!([clear]), json!([accept])];
    assert_eq!(outcome(&rules, &[], on), Outcome::Unknown);
    let masked = json!({"&": [mark, own]});
    for (op, right, marked, wanted) in [
        ("==", own, 1, Outcome::Drop),
        ("==", own, 0, Outcome::Accept),
        ("!=", own, 0, Outcome::Drop),
        ("==", 0, 0, Outcome::Drop),
        ("==", 1, 0, Outcome::Unknown),
    ] {
        let rule = matched(&masked, op, &json!(right));
        let on = on.with(Field::Marked, marked);
        assert_eq!(outcome(&[rule], &[], on), wanted, "{op} {right} {marked}");
    }
    let status = json!({"ct": {"key": "status"}});
    for (op, right, wanted) in [
        ("in", json!("dnat"), Outcome::Drop),
        ("in", json!(32), Outcome::Drop),
        ("==", json!(32), Outcome::Unknown),
        ("in", json!("snat"), Outcome::Unknown),
    ] {
        let rule = matched(&status, op, &right);
        let on = on.with(Field::Translated, 1);
        assert_eq!(outcome(&[rule], &[], on), wanted, "{op} {right}");
    }
}

#[test]
fn translation_is_read_with_its_address_and_ports() {
    use crate::space::translation;
    let text = |statement: Value, sets: &[Value], on: Packet| {
        let rule = json!([statement]);
        let outcome = outcome_and_text(&[rule], sets, on);
        outcome.1.unwrap_or_else(|| format!("{:?}", outcome.0))
    };
    let on = packet("10.0.0.1", 6, 80);
    let address = Some("10.0.0.9".parse().unwrap());
    let to = |is_destination, address, ports| translation(is_destination, address, ports);
    let (ports, range) = (json!(80), json!({"range": [1, 9]}));
    for (statement, wanted) in [
        (json!({"masquerade": null}), to(false, None, None)),
        (
            json!({"masquerade": {"flags": "fully-random"}}),
            to(false, None, None),
        ),
        (
            json!({"masquerade": {"port": range}}),
            to(false, None, Some((1, 9))),
        ),
        (
            json!({"masquerade": {"flags": "persistent"}}),
            "Unknown".to_owned(),
        ),
        (
            json!({"snat": {"family": "ip", "addr": "10.0.0.9", "port": range}}),
            to(false, address, Some((1, 9))),
        ),
        (
            json!({"dnat": {"family": "ip", "addr": "10.0.0.9", "port": ports}}),
            to(true, address, Some((80, 80))),
        ),
        (
            json!({"dnat": {"family": "ip", "addr": "x"}}),
            "Unknown".to_owned(),
        ),
        (
            json!({"dnat": {"family": "ip6", "addr": "fd00::1"}}),
            "Accept".to_owned(),
        ),
    ] {
        assert_eq!(text(statement.clone(), &[], on), wanted, "{statement}");
    }
    let map = json!({"map": {"family": "inet", "table": "t", "name": "m", "type": "ipv4_addr",
        "map": "ipv4_addr", "elem": [["10.0.0.1", "10.0.0.9"]]}});
    let source = payload("ip", "saddr");
    let mapped = json!({"dnat": {"family": "ip", "addr": {"map": {"key": source, "data": "@m"}}}});
    let sets = std::slice::from_ref(&map);
    assert_eq!(text(mapped.clone(), sets, on), to(true, address, None));
    assert_eq!(text(mapped, sets, packet("10.0.0.2", 6, 80)), "Accept");
}

#[test]
fn malformed_listing_is_an_error() {
    for text in [
        "",
        "[]",
        "{}",
        r#"{"nftables": {}}"#,
        r#"{"nftables": [1]}"#,
        r#"{"nftables": [{"rule": {"family": "inet", "table": "t", "chain": "c"}}]}"#,
        r#"{"nftables": [{"chain": {"family": "inet", "name": "c"}}]}"#,
        r#"{"nftables": [{"table": {"family": "inet"}}]}"#,
    ] {
        assert!(Listing::parse(text).is_err(), "{text}");
    }
}
