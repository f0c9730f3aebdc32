//! Unparsable policies and endpoints of other hosts never open anything.

use serde_json::json;

use super::{PREFIX, Packet, calculator_of, change, endpoint, evaluate, policy};
use crate::calc::Calculator;
use crate::calc::tests::Recomputed as _;
use crate::render::{Action, ConnectionStates, Match, Rule, Side};

/// Returns a packet from `10.65.1.1` to `vm1` of `h0`, or back.
fn between(ingress: bool) -> Packet {
    let (there, here) = ("10.65.1.1".parse().unwrap(), "10.65.0.1".parse().unwrap());
    Packet {
        source: if ingress { there } else { here },
        destination: if ingress { here } else { there },
        protocol: 6,
        port: 80,
    }
}

/// Returns whether `vm1` may receive, and whether it may send.
fn open_sides(calculator: &Calculator) -> [bool; 2] {
    [(true, "to-tap1"), (false, "from-tap1")].map(|(ingress, chain)| {
        evaluate(&calculator.clone().recomputed(), chain, &between(ingress)) == Some(true)
    })
}

/// Returns `vm1` of `h0`, to which the tier `default` allows everything.
fn all_open() -> Calculator {
    let (key, value) = endpoint(0, 1, &["a"], false);
    let rules = json!([{"action": "Allow"}]);
    let allow = json!({"order": 1, "selector": "", "ingress": rules, "egress": rules});
    let (open, allow) = policy("open", &allow);
    calculator_of([(&key, &value), (&open, &allow)])
}

#[test]
fn unreadable_policy_closes_its_endpoints() {
    let (key, value) = endpoint(0, 1, &["a"], false);
    let mut calculator = calculator_of([(&key, &value)]);
    let packet = Packet {
        source: "10.65.1.1".parse().unwrap(),
        destination: "10.65.0.1".parse().unwrap(),
        protocol: 6,
        port: 80,
    };
    let (open, allow) = policy(
        "q",
        &json!({"order": 2, "selector": "has(a)", "ingress": [{"action": "Allow"}]}),
    );
    change(&mut calculator, &open, Some(&allow));
    let passes =
        |calculator: &Calculator| evaluate(&calculator.clone().recomputed(), "to-tap1", &packet);
    assert_eq!(passes(&calculator), Some(true));
    let bad = json!({"order": 1, "selector": "has(a)", "ingress": [{"action": "Sing"}]});
    let (other, bad) = policy("p", &bad);
    change(&mut calculator, &other, Some(&bad));
    assert_eq!(passes(&calculator), Some(false), "it comes first");
    let problems = calculator.clone().recomputed().problems;
    assert!(
        problems
            .iter()
            .any(|p| p.to_string().contains("p: spec.ingress[0].action: ")),
        "{problems:?}"
    );
    change(&mut calculator, &other, None);
    assert_eq!(passes(&calculator), Some(true));
    // The last valid value stays in effect.
    change(&mut calculator, &open, Some(&bad));
    assert_eq!(passes(&calculator), Some(true));
    let rule = Rule::clone(&calculator.clone().recomputed().rules().chains["to-tap1"].rules[0]);
    assert_eq!(
        rule.matches,
        [Match::Connection(ConnectionStates::EstablishedOrRelated)]
    );
    assert!(!matches!(rule.action, Action::Lookup(Side::Input, _)));
}

#[test]
fn unreadable_policy_part_closes_only_its_scope() {
    const OPEN: [bool; 2] = [true, true];
    const CLOSED: [bool; 2] = [false, false];
    let ours = format!("{PREFIX}networkpolicies/openstack/bad");
    let others = format!("{PREFIX}networkpolicies/prod/bad");
    let global = format!("{PREFIX}globalnetworkpolicies/bad");
    let deny = r#"[{"action":"Sing"}]"#;
    for (key, value, sides) in [
        // Everything except the key is unparsable.
        (&ours, "{".to_owned(), CLOSED),
        (&others, "{".to_owned(), OPEN),
        (&global, "{".to_owned(), CLOSED),
        (&global, "[]".to_owned(), CLOSED),
        (&global, r#"{"spec":7}"#.to_owned(), CLOSED),
        // A selector. The other selectors of its subjects still apply.
        (
            &ours,
            r#"{"spec":{"order":0,"selector":"has("}}"#.to_owned(),
            [false, true],
        ),
        (
            &others,
            r#"{"spec":{"order":0,"selector":"has("}}"#.to_owned(),
            OPEN,
        ),
        (
            &global,
            r#"{"spec":{"order":0,"selector":"has(","types":["Egress"]}}"#.to_owned(),
            [true, false],
        ),
        (
            &global,
            r#"{"spec":{"selector":"has(b)","namespaceSelector":3}}"#.to_owned(),
            OPEN,
        ),
        // Rules: only their directions are affected.
        (
            &global,
            format!(r#"{{"spec":{{"order":0,"ingress":{deny}}}}}"#),
            [false, true],
        ),
        (
            &global,
            format!(r#"{{"spec":{{"order":0,"egress":{deny}}}}}"#),
            [true, false],
        ),
        (
            &global,
            format!(r#"{{"spec":{{"order":0,"types":["Egress"],"ingress":{deny}}}}}"#),
            OPEN,
        ),
        (
            &global,
            format!(r#"{{"spec":{{"order":0,"selector":"has(b)","ingress":{deny}}}}}"#),
            OPEN,
        ),
        (
            &global,
            r#"{"spec":{"order":0,"ingress":7}}"#.to_owned(),
            CLOSED,
        ),
        (
            &global,
            r#"{"spec":{"order":0,"types":["Ingress"],"ingress":7}}"#.to_owned(),
            [false, true],
        ),
        // The directions, the order and the tier themselves.
        (
            &global,
            r#"{"spec":{"order":0,"types":["Sideways"]}}"#.to_owned(),
            CLOSED,
        ),
        (
            &global,
            r#"{"spec":{"order":"last"}}"#.to_owned(),
            [false, true],
        ),
        (&global, r#"{"spec":{"tier":7}}"#.to_owned(), [false, true]),
        // It follows the one that allows.
        (
            &global,
            format!(r#"{{"spec":{{"order":2,"ingress":{deny}}}}}"#),
            OPEN,
        ),
        // A rule before the unparsable one.
        (
            &global,
            r#"{"spec":{"order":0,"ingress":[{"action":"Allow"},{"action":"Sing"}]}}"#.to_owned(),
            OPEN,
        ),
        // For host interfaces.
        (
            &global,
            format!(r#"{{"spec":{{"doNotTrack":true,"ingress":{deny}}}}}"#),
            OPEN,
        ),
        (
            &global,
            r#"{"spec":{"preDNAT":true,"selector":"has("}}"#.to_owned(),
            OPEN,
        ),
        (
            &global,
            r#"{"spec":{"order":0,"doNotTrack":"yes"}}"#.to_owned(),
            [false, true],
        ),
        // Irrelevant fields.
        (
            &global,
            r#"{"metadata":7,"spec":{"selector":"has(b)"}}"#.to_owned(),
            OPEN,
        ),
    ] {
        let mut calculator = all_open();
        let calculator_of = calculator.change(key, Some(value.as_bytes())).cloned();
        let problem = calculator_of.unwrap_or_else(|| panic!("{value}: not reported"));
        assert!(problem.reason.contains("; "), "{problem}");
        assert_eq!(open_sides(&calculator), sides, "{key} {value}");
        calculator.change(key, None);
        assert_eq!(open_sides(&calculator), OPEN, "{key} {value}");
    }
}

#[test]
fn a_policy_for_hosts_that_can_no_longer_be_read_stays_one() {
    let mut calculator = all_open();
    let key = format!("{PREFIX}globalnetworkpolicies/hosts");
    let value = json!({"spec": {"doNotTrack": true, "ingress": [{"action": "Deny"}]}});
    change(&mut calculator, &key, Some(&value));
    assert!(calculator.change(&key, Some(b"{")).is_some());
    assert_eq!(open_sides(&calculator), [true, true]);
}

/// After a restart no earlier value is known: traffic that a `Deny` closed must not be open then.
#[test]
fn a_restart_opens_nothing() {
    let mut calculator = all_open();
    let deny = json!({"order": 0, "ingress": [{"action": "Deny"}]});
    let (key, deny) = policy("deny", &deny);
    change(&mut calculator, &key, Some(&deny));
    calculator.change(&key, Some(b"not JSON"));
    assert_eq!(open_sides(&calculator), [false, true], "the last good one");
    let mut restarted = all_open();
    restarted.change(&key, Some(b"not JSON"));
    assert_eq!(open_sides(&restarted), [false, false]);
}

/// A selector of another host's endpoint applies to its parsable addresses.
#[test]
fn invalid_remote_address_does_not_drop_the_others() {
    let (key, value) = endpoint(0, 1, &["a"], false);
    let deny = json!([{"action": "Deny", "source": {"selector": "has(b)"}}, {"action": "Allow"}]);
    let (rules, deny) = policy("p", &json!({"selector": "has(a)", "ingress": deny}));
    let (other, good) = endpoint(1, 1, &["b"], false);
    let reach = |calculator: &Calculator| {
        evaluate(&calculator.clone().recomputed(), "to-tap1", &between(true)) == Some(true)
    };
    for bad in ["10.65.1.300/32", "10.65.0.0/24", "127.0.0.1/32"] {
        let mut calculator = calculator_of([(&key, &value), (&rules, &deny)]);
        assert!(reach(&calculator), "no endpoint has that address");
        let mut some = good.clone();
        some["spec"]["ipNetworks"] = json!([bad, "10.65.1.1/32"]);
        let calculator_of = calculator
            .change(&other, Some(some.to_string().as_bytes()))
            .cloned();
        let words = calculator_of.expect("a problem").to_string();
        assert!(words.contains("spec.ipNetworks[0]"), "{words}");
        assert!(words.ends_with("the other addresses count"), "{words}");
        assert!(!reach(&calculator), "{bad}");
        // Without a valid address the endpoint stays unchanged.
        some["spec"]["ipNetworks"] = json!([bad]);
        change(&mut calculator, &other, Some(&some));
        assert!(!reach(&calculator), "{bad}");
        assert!(!calculator.clone().recomputed().problems.is_empty());
        change(&mut calculator, &other, None);
        assert!(reach(&calculator) && calculator.clone().recomputed().problems.is_empty());
    }
}

/// Limits of another host's endpoint do not concern this host.
#[test]
fn invalid_limits_of_a_remote_endpoint_keep_its_addresses() {
    let (key, value) = endpoint(0, 1, &["a"], false);
    let deny = json!([{"action": "Deny", "source": {"selector": "has(b)"}}, {"action": "Allow"}]);
    let (rules, deny) = policy("p", &json!({"selector": "has(a)", "ingress": deny}));
    let (other, mut remote) = endpoint(1, 1, &["b"], false);
    let mut calculator = calculator_of([(&key, &value), (&rules, &deny)]);
    remote["spec"]["qosControls"] = json!({"ingressPacketRate": -1});
    let problem = calculator.change(&other, Some(remote.to_string().as_bytes()));
    let words = problem.expect("a problem").to_string();
    assert!(words.ends_with("its addresses count"), "{words}");
    let desired = calculator.recomputed();
    assert_eq!(evaluate(&desired, "to-tap1", &between(true)), Some(false));
}
