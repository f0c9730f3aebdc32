use serde_json::{Value, json};

use super::*;

fn registration() -> Registration {
    Registration {
        as_number: AsNumber(64512),
        ipv4_address: Some(Ipv4Addr::new(10, 0, 0, 1)),
        ipv6_address: None,
        port: None,
        cluster_id: Ipv4Addr::new(10, 0, 0, 1),
        zone: "east".into(),
        weight: 100,
        state: ReflectorState::Active,
        clients: 3,
        unknown: Unknown::new(),
    }
}

#[test]
fn keys_have_the_documented_text() {
    for (key, text) in [
        (
            FabricKey::Reflector("rr-1.lab".into()),
            "/cambric/v1/reflector/rr-1.lab",
        ),
        (
            FabricKey::Cluster(Ipv4Addr::new(10, 0, 0, 1)),
            "/cambric/v1/cluster/10.0.0.1",
        ),
        (FabricKey::Drain("rr1".into()), "/cambric/v1/drain/rr1"),
        (
            FabricKey::DrainReport("n1".into()),
            "/cambric/v1/drain-report/n1",
        ),
    ] {
        assert_eq!(key.to_string(), text);
        assert_eq!(text.parse(), Ok(key));
        assert!(text.starts_with(FABRIC_PREFIX));
    }
}

#[test]
fn other_keys_are_refused() {
    for (text, why) in [
        ("/calico/resources/v3/x", FabricKeyError::Foreign),
        ("/cambric/v1/reflector", FabricKeyError::Foreign),
        ("/cambric/v2/reflector/a", FabricKeyError::Foreign),
        ("/cambric/v1/reflector/", FabricKeyError::Name),
        ("/cambric/v1/reflector/a/b", FabricKeyError::Name),
        ("/cambric/v1/drain/A", FabricKeyError::Name),
        ("/cambric/v1/drain-report/", FabricKeyError::Name),
        ("/cambric/v1/cluster/0.0.0.0", FabricKeyError::ClusterId),
        ("/cambric/v1/cluster/a", FabricKeyError::ClusterId),
    ] {
        assert_eq!(text.parse::<FabricKey>(), Err(why), "{text}");
    }
}

#[test]
fn a_registration_has_the_documented_json() {
    let text = String::from_utf8(registration().encode().unwrap()).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        value,
        json!({
            "asNumber": 64512,
            "ipv4Address": "10.0.0.1",
            "clusterID": "10.0.0.1",
            "zone": "east",
            "weight": 100,
            "state": "active",
            "clients": 3,
        })
    );
    assert_eq!(
        Registration::parse(text.as_bytes()).unwrap(),
        registration()
    );
}

#[test]
fn missing_field_is_default_and_unknown_field_stays() {
    let text = r#"{"asNumber":"1.1","ipv6Address":"fd00::1","clusterID":"0.0.0.7",
                   "zone":null,"state":null,"pod":[1]}"#;
    let read = Registration::parse(text.as_bytes()).unwrap();
    assert_eq!(read.as_number, AsNumber(65537));
    assert_eq!((read.weight, read.zone.as_str()), (100, ""));
    assert_eq!(read.state, ReflectorState::Active);
    let written: Value = serde_json::from_slice(&read.encode().unwrap()).unwrap();
    assert_eq!(written["pod"], json!([1]));
    assert!(written.get("zone").is_none());
}

#[test]
fn faults_name_their_field() {
    let error_of = |text: &str| {
        Registration::parse(text.as_bytes())
            .unwrap_err()
            .to_string()
    };
    let error = error_of(r#"{"asNumber":1,"clusterID":"10.0.0","ipv4Address":"10.0.0.1"}"#);
    assert!(error.starts_with("clusterID: "), "{error}");
    assert!(error_of("[]").contains("invalid"), "{}", error_of("[]"));
    let wrong = Registration {
        as_number: AsNumber(0),
        ipv4_address: None,
        cluster_id: Ipv4Addr::UNSPECIFIED,
        ..registration()
    };
    let faults = wrong.encode().unwrap_err();
    let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
    assert_eq!(fields, ["ipv4Address", "asNumber", "clusterID"]);
}

#[test]
fn drain_report_has_the_documented_json() {
    let report = DrainReport {
        since: "2026-03-04T10:22:00Z".into(),
        stage: DrainStage::Drained,
        behind: 1,
        unknown: Unknown::new(),
    };
    let value: Value = serde_json::from_slice(&report.encode()).unwrap();
    let text = json!({"since": "2026-03-04T10:22:00Z", "stage": "drained", "behind": 1});
    assert_eq!(value, text);
    assert_eq!(DrainReport::parse(&report.encode()).unwrap(), report);
    let bare = DrainReport::parse(b"{}").unwrap();
    assert_eq!(bare.stage, DrainStage::Services);
    let error = DrainReport::parse(br#"{"behind":-1}"#).unwrap_err();
    assert_eq!(error.field, "behind");
}
