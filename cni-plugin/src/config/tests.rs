//! The configuration of a network.

use serde_json::json;

use super::*;

fn calico() -> Value {
    json!({
        "name": "k8s-pod-network", "cniVersion": "0.3.1", "type": "calico",
        "datastore_type": "etcdv3", "etcd_endpoints": "http://127.0.0.1:2379, http://127.0.0.2:2379",
        "nodename": "r1-c07", "mtu": 1440, "log_level": "info", "newer": {"than": "this"},
        "ipam": {"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true",
                 "ipv4_pools": ["10.65.0.0/16"]},
        "policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": "/etc/cni/net.d/calico-kubeconfig"},
        "policy_setup_timeout_seconds": 10, "container_settings": {"allow_ip_forwarding": true},
        "endpoint_status_dir": "/x", "include_default_routes": false, "num_queues": 4,
    })
}

#[test]
fn plugin_that_writes_no_endpoints_is_named() {
    for (main, foreign) in [
        ("calico", None),
        ("cambric-cni", None),
        ("macvlan", Some("macvlan".to_owned())),
    ] {
        let config = with("type", json!(main)).expect("a configuration");
        assert_eq!(config.foreign, foreign);
    }
}

fn with(field: &str, value: Value) -> Result<Config, (u16, String)> {
    let mut json = calico();
    let path: Vec<&str> = field.split('.').collect();
    let target = path.iter().fold(&mut json, |at, part| &mut at[*part]);
    *target = value;
    Config::read(&json).map_err(|failure| (failure.code, failure.message))
}

#[test]
fn calicos_fields_are_followed() {
    let config = Config::read(&calico()).unwrap();
    assert_eq!(
        (config.network.as_str(), config.node.as_str()),
        ("k8s-pod-network", "r1-c07")
    );
    assert_eq!(config.store.endpoints.len(), 2);
    assert_eq!((config.mtu, config.queues), (Some(1440), Some(4)));
    assert_eq!(config.felix, Some(Duration::from_secs(10)));
    assert!(config.ipam.delegate.is_none() && config.ipam.ipv4 && config.ipam.ipv6);
    assert!(config.kubernetes && config.api_server && config.forwards && !config.default_routes);
    assert_eq!(
        with("policy_setup_timeout_seconds", json!(0))
            .unwrap()
            .felix,
        None
    );
    assert!(!with("ipam.assign_ipv6", json!(false)).unwrap().ipam.ipv6);
    let delegate = with("ipam.type", json!("host-local"))
        .unwrap()
        .ipam
        .delegate;
    assert_eq!(delegate.as_deref(), Some("host-local"));
}

#[test]
fn unsupported_field_is_rejected_by_name() {
    for (field, value) in [
        ("datastore_type", json!("kubernetes")),
        ("etcd_discovery_srv", json!("example.org")),
        ("device_type", json!("netkit")),
        (
            "readiness_gates",
            json!(["http://localhost:9099/readiness"]),
        ),
        ("policy.type", json!("other")),
    ] {
        let (code, message) = with(field, value).unwrap_err();
        assert!(
            code == 2 && message.starts_with(field),
            "{field}: {code} {message}"
        );
    }
    // It is for a plugin that has no pools.
    let own = with("ipam.subnet", json!("usePodCidr")).unwrap_err();
    assert_eq!(own.0, 2);
    let mut json = calico();
    json["ipam"] = json!({"type": "host-local", "ranges": [[{"subnet": "usePodCidr"}]]});
    assert!(Config::read(&json).is_ok());
    json["kubernetes"] = json!({});
    assert_eq!(Config::read(&json).unwrap_err().code, 2);
}

#[test]
fn api_server_is_that_of_the_kubeconfig_or_of_older_fields() {
    let api = Config::read(&calico()).unwrap().api.expect("a server");
    assert_eq!(
        api.kubeconfig.as_deref(),
        Some(Path::new("/etc/cni/net.d/calico-kubeconfig"))
    );
    let mut json = calico();
    json["kubernetes"] = json!({"k8s_api_root": "http://10.0.0.9:8080/api/v1/", "node_name": "n1"});
    let api = Config::read(&json).unwrap().api.expect("a server");
    assert_eq!(
        api.overrides.server.as_deref(),
        Some("http://10.0.0.9:8080")
    );
    assert_eq!(api.node.as_deref(), Some("n1"));
    assert!(api.access().is_ok());
    json["policy"]["k8s_auth_token"] = json!(MARK);
    let config = Config::read(&json).unwrap();
    assert!(!format!("{config:?}").contains("QXZ"));
    let refused = config.api.expect("a server").access().unwrap_err().message;
    assert!(refused.contains("without TLS"), "{refused}");
    json["kubernetes"] = json!({});
    json["policy"] = json!({"type": "k8s"});
    assert_eq!(Config::read(&json).unwrap().api, None);
}

#[test]
fn del_never_refuses_a_configuration_that_add_refuses() {
    let plain = Config::for_removal(&calico()).expect("a configuration");
    for (field, value) in [
        ("cniVersion", json!("9.9.9")),
        ("datastore_type", json!("kubernetes")),
        ("device_type", json!("netkit")),
        ("readiness_gates", json!([MARK])),
        ("feature_control", json!(MARK)),
        ("policy", json!(MARK)),
        ("kubernetes", json!(MARK)),
        ("mtu", json!("large")),
        ("num_queues", json!(-1)),
        ("args", json!(MARK)),
        ("prevResult", json!(MARK)),
        ("runtimeConfig", json!([])),
        ("ipam.assign_ipv4", json!("perhaps")),
        ("ipam.ipv4_pools", json!("x")),
        ("ipam.type", json!("")),
        ("ipam", json!(MARK)),
    ] {
        let mut json = calico();
        let at = field.split('.').fold(&mut json, |at, part| &mut at[part]);
        *at = value;
        assert!(Config::read(&json).is_err(), "{field}");
        let config = Config::for_removal(&json).expect(field);
        assert_eq!(
            (&config.network, &config.node, &config.ipam),
            (&plain.network, &plain.node, &plain.ipam),
            "{field}"
        );
    }
}

#[test]
fn mistake_is_reported_with_its_field() {
    for (field, value) in [
        ("name", json!("")),
        ("name", json!("-a")),
        ("etcd_endpoints", json!("")),
        ("mtu", json!("large")),
        ("ipam.type", json!("")),
        ("ipam.type", json!("../x")),
        ("ipam.assign_ipv4", json!("maybe")),
        ("ipam.ipv4_pools", json!("10.0.0.0/8")),
    ] {
        let (code, message) = with(field, value).unwrap_err();
        assert!(
            code == 7 && message.starts_with(field),
            "{field}: {code} {message}"
        );
    }
    assert_eq!(with("cniVersion", json!("2.0.0")).unwrap_err().0, 1);
}

/// Any three octets of it in a report are a leak.
const MARK: &str = "QXZQXZQXZQXZ";

// Promise: as bgp-config secrets_are_not_quoted_wherever_a_file_is_damaged
#[test]
fn secret_at_any_place_of_a_configuration_is_not_quoted() {
    let mut rejected = 0;
    let mut check = |json: &Value| {
        if let Err(failure) = Config::read(json) {
            let report = format!("{failure:?}");
            assert!(!report.contains("QXZ"), "{report}\nof {json}");
            rejected += 1;
        }
    };
    let file = calico();
    let fields = file.as_object().expect("an object").keys();
    let more = [
        "args",
        "runtimeConfig",
        "readiness_gates",
        "feature_control",
        "prevResult",
        "cni.dev/valid-attachments",
    ];
    for field in fields.map(String::as_str).chain(more) {
        for value in [
            json!([MARK]),
            json!({"k8s_auth_token": MARK}),
            json!({MARK: MARK}),
            json!([{"k8s_auth_token": MARK}]),
        ] {
            let mut json = calico();
            json[field] = value;
            check(&json);
        }
    }
    // A text where a section belongs, or a number or flag.
    for field in [
        "policy",
        "kubernetes",
        "args",
        "ipam",
        "runtimeConfig",
        "container_settings",
        "feature_control",
        "mtu",
        "num_queues",
        "policy_setup_timeout_seconds",
        "include_default_routes",
        "ipam.assign_ipv4",
        "ipam.routes",
    ] {
        let mut json = calico();
        let at = field.split('.').fold(&mut json, |at, part| &mut at[part]);
        *at = json!(MARK);
        check(&json);
    }
    for endpoints in [
        format!("http://root:{MARK}@10.0.0.9:2379"),
        format!("http://10.0.0.8:2379,http://root:{MARK}@10.0.0.9:2379"),
        format!("root:{MARK}@10.0.0.9"),
    ] {
        let (code, message) = with("etcd_endpoints", json!(endpoints)).unwrap_err();
        assert!(code == 7 && !message.contains("QXZ"), "{message}");
    }
    assert!(rejected > 40, "{rejected}");
}

#[test]
fn node_name_is_read_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nodename");
    let named = |optional: bool| {
        let mut json = calico();
        json["nodename"] = json!("");
        json["nodename_file"] = json!(file);
        json["nodename_file_optional"] = json!(optional);
        Config::read(&json).map(|config| config.node)
    };
    assert_eq!(named(false).unwrap_err().code, 7);
    assert_eq!(named(true).unwrap(), host_name().unwrap());
    fs::write(&file, "r1-c09\n").unwrap();
    assert_eq!(named(false).unwrap(), "r1-c09");
}
