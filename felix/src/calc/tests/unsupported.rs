//! Unsupported fields are reported.

use super::*;

#[test]
fn settings_without_effect_are_reported_in_one_note() {
    let name = key("felixconfigurations", "default");
    let mut calculator = Calculator::new(HOST, None);
    let mut notes = |spec: &Value| {
        let value = json!({ "spec": spec });
        assert_eq!(change(&mut calculator, &name, Some(&value)), None);
        let calculator_of = calculator.recompute().unsupported;
        let calculator_of: Vec<String> = calculator_of.iter().map(Problem::what).collect();
        let kept = calculator.desired().problems.iter().map(Problem::what);
        (calculator_of, kept.collect::<Vec<_>>())
    };
    let some = json!({"wireguardEnabled": true, "wireguardListeningPort": 7,
        "newerThanThis": 7, "logSeverityScreen": "Debug", "routeRefreshInterval": "10s",
        "logFilePath": "seen",
        "openstackRegion": "east", "reportingInterval": "5s", "interfacePrefix": "tap"});
    let words = "spec: settings without effect: logFilePath, newerThanThis, wireguardEnabled, \
                 wireguardListeningPort"
        .to_owned();
    assert_eq!(notes(&some), (vec![words.clone()], vec![words.clone()]));
    assert_eq!(notes(&some), (vec![], vec![words]), "reported once");
    let none = json!({"wireguardEnabled": false, "bpfLogLevel": "", "logSeverityScreen": "Info",
        "floatingIPs": "Disabled", "nodeSelector": "", "nftablesMode": "Auto",
        "removeExternalRoutes": false, "usageReportingEnabled": false});
    assert_eq!(notes(&none), (vec![], vec![]));
}

#[test]
fn remote_endpoints_are_ignored_and_deleted_ones_cleared() {
    let spec = json!({"spec": {"bpfEnabled": true}});
    let mut calculator = calculator_of(&[
        (key("felixconfigurations", "node.other"), spec.clone()),
        (key("felixconfigurations", &format!("node.{HOST}")), spec),
    ]);
    assert_eq!(calculator.recomputed().problems.len(), 1);
    let own = key("felixconfigurations", &format!("node.{HOST}"));
    change(&mut calculator, &own, None);
    assert!(calculator.recomputed().problems.is_empty());
}

#[test]
fn unknown_field_of_a_pool_is_reported() {
    let name = key("ippools", "a");
    let pool = json!({"spec": {"cidr": "10.65.0.0/16", "newerThanThis": 7}});
    let mut calculator = calculator_of(&[(name.clone(), pool)]);
    let words = "spec.newerThanThis: the field is unknown and has no effect";
    assert_eq!(
        problems(&calculator.recomputed()),
        [format!("{name}: {words}")]
    );
}

#[test]
fn spoofed_sources_need_their_setting() {
    let mut own = open("a", "cali1", &["10.65.0.1/32"]);
    own["spec"]["allowSpoofedSourcePrefixes"] = json!(["192.0.2.7/25", "fd99::/64"]);
    let mut calculator = calculator_of(&[(endpoint_key("a"), own)]);
    let desired = calculator.recomputed();
    let problems: Vec<String> = desired.problems.iter().map(Problem::what).collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("workloadSourceSpoofing is not Any"));
    assert!(!desired.rules().chains.contains_key("spoofed-cali1"));

    let name = key("felixconfigurations", "default");
    for (words, is_valid) in [("any", true), ("Some", false), ("Disabled", true)] {
        let spec = json!({"spec": {"workloadSourceSpoofing": words}});
        let fault = change(&mut calculator, &name, Some(&spec));
        assert_eq!(fault.is_none(), is_valid, "{fault:?}");
        let desired = calculator.recomputed();
        let chain = desired.rules().chains.get("spoofed-cali1");
        let rules: Vec<String> = chain
            .iter()
            .flat_map(|chain| chain.rules.iter().map(rule_text))
            .collect();
        let expected: &[&str] = match words {
            "Disabled" => &[],
            // An invalid value leaves the last valid one in effect.
            _ => &[
                "ip saddr 192.0.2.0/25 counter accept comment \"allowed spoofed source\"",
                "ip6 saddr fd99::/64 counter accept comment \"allowed spoofed source\"",
                "counter drop comment \"source is not the endpoint's\"",
            ],
        };
        assert_eq!(rules, expected, "{words}");
    }
}

#[test]
fn outgoing_interface_is_a_name_or_a_prefix() {
    use crate::render::Through;

    let mut calculator = calculator_of(&[]);
    let name = key("felixconfigurations", "default");
    for (filter, is_valid, expected) in [
        ("eth0", true, Some(Through::Named("eth0".into()))),
        ("a/b", false, Some(Through::Named("eth0".into()))),
        (
            "abcdefghijklmnop",
            false,
            Some(Through::Named("eth0".into())),
        ),
        ("eth+", true, Some(Through::Prefix("eth".into()))),
        ("eth0,eth1", false, Some(Through::Prefix("eth".into()))),
        ("+", true, None),
        ("", true, None),
    ] {
        let spec = json!({"spec": {"iptablesNATOutgoingInterfaceFilter": filter}});
        let fault = change(&mut calculator, &name, Some(&spec));
        assert_eq!(fault.is_none(), is_valid, "{filter} {fault:?}");
        let settings = calculator.recomputed().settings;
        assert_eq!(settings.outgoing.through, expected, "{filter}");
    }
}

#[test]
fn check_of_connections_can_be_disabled() {
    let policy = json!({"spec": {"ingress": [{"action": "Allow"}]}});
    let mut calculator = calculator_of(&[
        (endpoint_key("a"), open("a", "cali1", &["10.65.0.1/32"])),
        (key("globalnetworkpolicies", "p"), policy),
    ]);
    let name = key("felixconfigurations", "default");
    for (value, is_valid, checks) in [
        (json!(null), true, true),
        (json!(true), true, false),
        (json!("yes"), false, false),
        (json!(false), true, true),
    ] {
        let spec = json!({"spec": {"disableConntrackInvalidCheck": value}});
        let fault = change(&mut calculator, &name, Some(&spec));
        assert_eq!(fault.is_none(), is_valid, "{fault:?}");
        let desired = calculator.recomputed();
        let rules = &desired.rules().chains["to-cali1"].rules;
        let found = rules
            .iter()
            .any(|rule| rule_text(rule).contains("ct state invalid"));
        assert_eq!(found, checks, "{value}");
    }
}

#[test]
fn invalid_outgoing_exclusion_is_reported() {
    let mut calculator = calculator_of(&[]);
    let name = key("felixconfigurations", "default");
    for (words, is_valid, spares) in [
        ("IPPoolsAndHostIPs", true, true),
        ("HostIPs", false, true),
        ("IPPoolsOnly", true, false),
    ] {
        let spec = json!({"spec": {"natOutgoingExclusions": words}});
        let fault = change(&mut calculator, &name, Some(&spec));
        assert_eq!(fault.is_none(), is_valid, "{fault:?}");
        let settings = calculator.recomputed().settings;
        assert_eq!(settings.outgoing.spares_nodes, spares, "{words}");
    }
}
