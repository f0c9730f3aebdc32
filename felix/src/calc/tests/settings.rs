//! Settings that select nodes, and the effect of each supported field.

use calico_model::{Kind, Program, Standing, declared};

use super::*;
use crate::render::Family;

fn node(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"bgp": {"ipv4Address": "10.0.0.1/24"}}})
}

fn scoped(selector: &str, created: &str, metric: u32) -> Value {
    json!({"metadata": {"creationTimestamp": created},
        "spec": {"nodeSelector": selector, "ipv4NormalRoutePriority": metric}})
}

fn metric(calculator: &mut Calculator) -> u32 {
    calculator.recompute();
    let routing = calculator.desired().settings.routing;
    routing.metric(Family::V4)
}

#[test]
fn settings_apply_to_the_nodes_that_they_select() {
    let mut calculator = calculator_of(&[
        (
            key("felixconfigurations", "default"),
            json!({"spec": {"ipv4NormalRoutePriority": 1, "reportingInterval": "7s"}}),
        ),
        (
            key("felixconfigurations", "racks"),
            scoped("rack == 'r1'", "2026-01-01T00:00:00Z", 2),
        ),
    ]);
    assert_eq!(metric(&mut calculator), 1);
    let own = key("nodes", HOST);
    let node_key = own.as_str();
    change(
        &mut calculator,
        node_key,
        Some(&node(&json!({"rack": "r1"}))),
    );
    assert_eq!(metric(&mut calculator), 2);
    let settings = calculator.settings();
    assert_eq!(settings.reporting_interval.as_secs(), 7);
    assert!(calculator.desired().problems.is_empty());
    let host = key("felixconfigurations", &format!("node.{HOST}"));
    let spec = json!({"spec": {"ipv4NormalRoutePriority": 3}});
    change(&mut calculator, &host, Some(&spec));
    assert_eq!(metric(&mut calculator), 3);
    change(&mut calculator, &host, None);
    change(
        &mut calculator,
        node_key,
        Some(&node(&json!({"rack": "r2"}))),
    );
    assert_eq!(metric(&mut calculator), 1);
    change(
        &mut calculator,
        node_key,
        Some(&node(&json!({"rack": "r1"}))),
    );
    assert_eq!(metric(&mut calculator), 2);
    change(&mut calculator, &key("felixconfigurations", "racks"), None);
    assert_eq!(metric(&mut calculator), 1);
}

#[test]
fn oldest_of_several_selected_settings_applies() {
    let at = |name: &str| key("felixconfigurations", name);
    let mut calculator = calculator_of(&[
        (key("nodes", HOST), node(&json!({"rack": "r1"}))),
        (at("a"), scoped("has(rack)", "2026-02-01T00:00:00Z", 2)),
        (at("b"), scoped("rack == 'r1'", "2026-01-01T00:00:00Z", 3)),
        (at("c"), scoped("all()", "", 4)),
    ]);
    assert_eq!(metric(&mut calculator), 3);
    let problems = problems(calculator.desired());
    assert_eq!(problems.len(), 2, "{problems:?}");
    let words = "spec.nodeSelector: has no effect: b selects this node, too, and is older";
    assert_eq!(problems[0], format!("{}: {words}", at("a")));
    change(&mut calculator, &at("b"), None);
    assert_eq!(metric(&mut calculator), 2);
    change(&mut calculator, &at("a"), None);
    assert_eq!(metric(&mut calculator), 4);
    assert!(calculator.desired().problems.is_empty());
}

#[test]
fn invalid_selector_of_nodes_is_rejected() {
    let at = |name: &str| key("felixconfigurations", name);
    let labels = node(&json!({"rack": "r1"}));
    let mut calculator = calculator_of(&[(key("nodes", HOST), labels)]);
    let valid = scoped("rack == 'r1'", "2026-01-01T00:00:00Z", 2);
    assert_eq!(change(&mut calculator, &at("a"), Some(&valid)), None);
    let invalid = scoped("rack = ", "2026-01-01T00:00:00Z", 3);
    let problem = change(&mut calculator, &at("a"), Some(&invalid)).unwrap();
    assert_eq!(problem.field, "spec.nodeSelector");
    assert_eq!(metric(&mut calculator), 2, "the last valid value");
    for name in ["default".to_owned(), format!("node.{HOST}")] {
        let problem = change(&mut calculator, &at(&name), Some(&valid)).unwrap();
        assert_eq!(problem.field, "spec.nodeSelector", "{name}");
    }
}

#[test]
fn mask_without_the_bit_of_felix_is_refused_by_name() {
    let name = key("felixconfigurations", "default");
    let mut calculator = calculator_of(&[]);
    for (mask, is_valid) in [
        (json!(0xffff_0000_u32), true),
        (json!(0x0001_0000), true),
        (json!(0xfffe_0000_u32), false),
        (json!(0), false),
        (json!(-1), false),
        (json!(0x1_0000_0000_u64), false),
    ] {
        let value = json!({"spec": {"nftablesMarkMask": mask}});
        let refused = change(&mut calculator, &name, Some(&value));
        let field = refused.map(|problem| problem.field);
        let wanted = (!is_valid).then(|| "spec.nftablesMarkMask".to_owned());
        assert_eq!(field, wanted, "{value}");
    }
}

/// Returns a value of a field that differs from the built-in one.
fn sample(field: &str) -> Value {
    match field {
        "defaultEndpointToHostAction" => json!("Accept"),
        "natOutgoingAddress" | "metadataAddr" | "deviceRouteSourceAddress" => json!("192.0.2.7"),
        "deviceRouteSourceAddressIPv6" => json!("fd00::7"),
        "natOutgoingExclusions" => json!("IPPoolsAndHostIPs"),
        "natPortRange" => json!("1024:2048"),
        "workloadSourceSpoofing" => json!("Any"),
        "nftablesFlowTableOffload" => json!("All"),
        "nftablesMarkMask" => json!(0x1_0000),
        "floatingIPs" => json!("Enabled"),
        "serviceLoopPrevention" | "nftablesFilterDenyAction" => json!("Reject"),
        "failsafeInboundHostPorts" | "failsafeOutboundHostPorts" => json!([]),
        "healthTimeoutOverrides" => {
            json!([{"name": "InternalDataplaneMainLoop", "timeout": "5m"}])
        }
        "externalNodesList" => json!(["192.0.2.7"]),
        "prometheusMetricsClientAuth" => json!("RequireAndVerifyClientCert"),
        name if name.ends_with("File") => json!("/b.pem"),
        "flowLogsLocalReporter" => json!("Enabled"),
        "ipForwarding" => json!("Disabled"),
        "programClusterRoutes" => json!("Enabled"),
        "routeSource" => json!("WorkloadIPs"),
        "endpointStatusPathPrefix" => json!("/run/files"),
        "logSeverityScreen" => json!("Debug"),
        "logActionRateLimit" => json!("7/minute"),
        "ipv6Support" | "prometheusProcessMetricsEnabled" => json!(false),
        "interfacePrefix"
        | "openstackRegion"
        | "logPrefix"
        | "interfaceExclude"
        | "mtuIfacePattern"
        | "nftablesFlowTableDataIfacePattern"
        | "iptablesNATOutgoingInterfaceFilter" => json!("seven"),
        name if name.ends_with("Host") => json!("192.0.2.7"),
        name if name.ends_with("MTU") || name.ends_with("V6") => json!(1400),
        name if name.ends_with("Port") || name.ends_with("VNI") => json!(777),
        name if name.ends_with("Priority") || name.ends_with("Burst") => json!(7),
        name if name.ends_with("Interval") || name.ends_with("Timeout") => json!("17s"),
        name if name.ends_with("TTL") || name.ends_with("Delay") => json!("17s"),
        _ => json!(true),
    }
}

#[test]
fn every_supported_setting_changes_the_settings() {
    let name = key("felixconfigurations", "default");
    let settings = |spec: &Value| {
        let mut calculator = Calculator::new(HOST, None);
        let value = json!({ "spec": spec });
        let refused = change(&mut calculator, &name, Some(&value));
        assert_eq!(refused, None, "{spec}");
        assert!(calculator.recomputed().problems.len() <= 1, "{spec}");
        calculator.settings()
    };
    // Without these, others have no effect.
    let mut around = json!({"prometheusMetricsEnabled": true, "healthEnabled": true,
        "logActionRateLimit": "7/minute", "prometheusMetricsCertFile": "/a.pem",
        "prometheusMetricsKeyFile": "/a.key", "prometheusMetricsCAFile": "/ca.pem",
        "prometheusMetricsClientAuth": "VerifyClientCertIfGiven",
        "nftablesFlowTableOffload": "All"});
    let mut count = 0;
    for one in declared(Kind::FelixConfiguration) {
        let field = one.path.trim_start_matches("spec.");
        let is_scope = field == "nodeSelector";
        if one.standing != Standing::Supported(Program::Felix) || is_scope {
            continue;
        }
        let before = around.as_object_mut().unwrap().remove(field);
        let mut with = around.clone();
        with[field] = sample(field);
        assert_ne!(settings(&around), settings(&with), "{field}");
        around[field] = before.unwrap_or_default();
        count += 1;
    }
    assert!(count > 59, "{count}");
}
