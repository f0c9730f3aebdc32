//! Unsupported fields are reported, and supported ones are not.

use super::*;

/// Returns the faults of a node for these contents beside the node: keys below the resources, and
/// specs.
fn faults_of(contents: &[(&str, &str)]) -> Vec<String> {
    let mut view = view(&[("a", r#""ipv4Address":"10.0.0.1/24""#)]);
    for (place, spec) in contents {
        let (_, name) = place.rsplit_once('/').expect("a path");
        let text = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{spec}}}"#);
        let key = format!("/calico/resources/v3/projectcalico.org/{place}");
        view.take(key.as_bytes(), Some(text.as_bytes()));
    }
    let derived = derive(&view, &host("a"), &Secrets::new());
    assert!(derived.intent.is_some(), "it goes on all the same");
    let faults = derived.faults.iter();
    let faults = faults.map(|fault| format!("{}: {}", fault.field, fault.reason));
    faults.collect()
}

#[test]
fn settings_without_effect_are_reported() {
    let default = "bgpconfigurations/default";
    for (spec, field) in [
        (
            r#"{"logSeverityScreen":"Debug"}"#,
            "spec.logSeverityScreen: ",
        ),
        (
            r#"{"serviceExternalIPs":[{"cidr":"192.0.2.0/28"},{"cidr":"192.0.2.20/32"}]}"#,
            "spec.serviceExternalIPs[1]: ",
        ),
        (
            r#"{"serviceClusterIPs":[{"cidr":"fd96::1/128"}]}"#,
            "spec.serviceClusterIPs[0]: ",
        ),
        (
            r#"{"serviceLoadBalancerAggregation":"Disabled","serviceLoadBalancerIPs":[{"cidr":"192.0.2.0/28"}]}"#,
            "spec.serviceLoadBalancerAggregation: ",
        ),
        (
            r#"{"localWorkloadPeeringIPV4":"169.254.9.9"}"#,
            "spec.localWorkloadPeeringIPV4: ",
        ),
        (
            r#"{"bfd":{"enabled":true}}"#,
            "spec.bfd: the field is unknown",
        ),
    ] {
        let faults = faults_of(&[(default, spec)]);
        assert!(
            faults.len() == 1 && faults[0].starts_with(field),
            "{spec}: {faults:?}"
        );
        // Settings of another node have no effect here.
        if !spec.contains("IPs") {
            assert_eq!(faults_of(&[("bgpconfigurations/node.b", spec)]).len(), 0);
        }
    }
}

#[test]
fn peerings_that_ask_for_more() {
    for (spec, field) in [
        (
            r#"{"localWorkloadSelector":"app == 'vrouter'","asNumber":65010}"#,
            "spec.localWorkloadSelector: ",
        ),
        (
            r#"{"peerSelector":"all()","localASNumber":64600}"#,
            "spec.localASNumber: ",
        ),
        (
            r#"{"peerIP":"10.0.0.9","asNumber":64700,"bfd":"on"}"#,
            "spec.bfd: the field is unknown",
        ),
    ] {
        let faults = faults_of(&[("bgppeers/x", spec)]);
        assert!(
            faults.len() == 1 && faults[0].starts_with(field),
            "{spec}: {faults:?}"
        );
        // A BGPPeer of other nodes is not reported on this one.
        let of_other = spec.replacen('{', r#"{"node":"b","#, 1);
        assert_eq!(faults_of(&[("bgppeers/x", &of_other)]), [""; 0], "{spec}");
    }
}

#[test]
fn defaults_written_by_calico_are_no_fault() {
    let default = r#"{"logSeverityScreen":"Info","nodeToNodeMeshEnabled":true,"asNumber":64512,
        "listenPort":179,"bindMode":"None","ignoredInterfaces":["br-*"],
        "serviceClusterIPs":[{"cidr":"10.96.0.0/12"}],"serviceLoadBalancerAggregation":"Enabled"}"#;
    let peering = r#"{"peerIP":"10.0.0.9","asNumber":64700,"localASNumber":64600,
        "keepOriginalNextHop":true,"sourceAddress":"UseNodeIP"}"#;
    let all = [
        ("bgpconfigurations/default", default),
        ("bgppeers/x", peering),
    ];
    assert_eq!(faults_of(&all), [""; 0]);
}

#[test]
fn unsupported_fields_of_the_schema_are_reported() {
    use calico_model::{Kind, Program, Standing, declared};
    let mut count = 0;
    for (kind, place, rest) in [
        (Kind::BgpConfiguration, "bgpconfigurations/default", ""),
        (Kind::BgpPeer, "bgppeers/x", r#","asNumber":64700"#),
    ] {
        for one in declared(kind) {
            if !matches!(one.standing, Standing::Unsupported { due, .. } if due == Some(Program::Bgp))
            {
                continue;
            }
            let name = one.path.trim_start_matches("spec.");
            let value = match name.contains("Selector") {
                true => "all()",
                false if name.ends_with("V6") => "fe80::9",
                false if name.ends_with("V4") => "169.254.9.9",
                false => "Debug",
            };
            let faults = faults_of(&[(place, &format!(r#"{{"{name}":"{value}"{rest}}}"#))]);
            let named = faults.iter().filter(|fault| fault.starts_with(&one.path));
            assert_eq!(named.count(), 1, "{kind} {}: {faults:?}", one.path);
            count += 1;
        }
    }
    assert_eq!(count, 4);
}
