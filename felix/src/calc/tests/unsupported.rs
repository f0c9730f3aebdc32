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
    let some = json!({"wireguardEnabled": true, "failsafeInboundHostPorts": [{"port": 22}],
        "newerThanThis": 7, "logSeverityScreen": "Debug", "routeRefreshInterval": "10s",
        "natOutgoingExclusions": "IPPoolsAndHostIPs",
        "openstackRegion": "east", "reportingInterval": "5s", "interfacePrefix": "tap"});
    let words = "spec: settings without effect: failsafeInboundHostPorts, logSeverityScreen, \
                 natOutgoingExclusions, newerThanThis, routeRefreshInterval, wireguardEnabled"
        .to_owned();
    assert_eq!(notes(&some), (vec![words.clone()], vec![words.clone()]));
    assert_eq!(notes(&some), (vec![], vec![words]), "reported once");
    let none = json!({"wireguardEnabled": false, "bpfLogLevel": "", "logSeverityScreen": "Info",
        "floatingIPs": "Disabled", "failsafeInboundHostPorts": [], "vxlanEnabled": null});
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
fn vxlan_pool_is_reported_until_changed() {
    let pool = |mode: &str| json!({"spec": {"cidr": "10.65.0.0/16", "vxlanMode": mode}});
    let name = key("ippools", "a");
    let mut calculator = calculator_of(&[(name.clone(), pool("CrossSubnet"))]);
    let words = "spec.vxlanMode: no tunnels are made: no route leads to the pool's addresses \
                 on other hosts";
    assert_eq!(
        problems(&calculator.recomputed()),
        [format!("{name}: {words}")]
    );
    change(&mut calculator, &name, Some(&pool("Never")));
    assert!(calculator.has_news());
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
