use super::*;

fn variables(all: &[(&str, &str)]) -> Variables {
    let all = all.iter();
    Variables(
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    )
}

/// Returns the resource that Calico creates if there is none.
fn of_calico() -> Value {
    json!({
        "logSeverityScreen": "Info", "healthChecks": "Enabled", "etcdV3CompactionPeriod": "10m0s",
        "controllers": {
            "node": {"reconcilerPeriod": "5m0s", "syncLabels": "Enabled",
                "leakGracePeriod": "15m0s", "hostEndpoint": {"autoCreate": "Disabled",
                    "createDefaultHostEndpoint": "Enabled"}},
            "policy": {"reconcilerPeriod": "5m0s"},
            "workloadEndpoint": {"reconcilerPeriod": "5m0s"},
            "serviceAccount": {"reconcilerPeriod": "5m0s"},
            "namespace": {"reconcilerPeriod": "5m0s"},
            "loadBalancer": {"assignIPs": "AllServices"},
        },
    })
}

#[test]
fn resource_of_calico_gives_the_defaults() {
    let none = Settings::read(None, &Variables::default());
    assert_eq!(none.settings, Settings::default());
    assert_eq!(none.ignored, []);
    let read = Settings::read(Some(&of_calico()), &Variables::default());
    assert_eq!(read.settings, Settings::default());
    let ignored: Vec<_> = read
        .ignored
        .iter()
        .map(|one| one.setting.as_str())
        .collect();
    let wanted = [
        "etcdV3CompactionPeriod",
        "healthChecks",
        "logSeverityScreen",
    ];
    assert_eq!(ignored, wanted);
}

#[test]
fn each_field_is_followed_or_reported() {
    let mut spec = of_calico();
    spec["controllers"] = json!({
        "node": {"reconcilerPeriod": "1m", "leakGracePeriod": "0s", "syncLabels": "Disabled",
            "hostEndpoint": {"autoCreate": "Enabled", "createDefaultHostEndpoint": "Disabled",
                "templates": [{"generateName": "a"}], "more": 1}, "more": 1},
        "policy": {"reconcilerPeriod": "1m", "more": 1}, "workloadEndpoint": 7,
        "loadBalancer": {"assignIPs": "RequestedServicesOnly", "more": 1},
        "policyMigration": {}, "more": {},
    });
    spec["prometheusMetricsPort"] = json!(9094);
    spec["debugProfilePort"] = json!(6060);
    spec["more"] = json!(1);
    let Read { settings, ignored } = Settings::read(Some(&spec), &Variables::default());
    let wanted = Settings {
        policy: true,
        node: true,
        namespace: false,
        service_account: false,
        workload_endpoint: false,
        load_balancer: true,
        assign_ips: AssignIps::RequestedServicesOnly,
        sync_labels: false,
        host_endpoints: true,
        reconciler_period: Duration::from_secs(60),
        leak_grace: Duration::ZERO,
    };
    assert_eq!(settings, wanted);
    let names: Vec<_> = ignored.iter().map(|one| one.setting.as_str()).collect();
    assert_eq!(
        names,
        [
            "controllers.loadBalancer.more",
            "controllers.more",
            "controllers.node.hostEndpoint.createDefaultHostEndpoint",
            "controllers.node.hostEndpoint.more",
            "controllers.node.hostEndpoint.templates",
            "controllers.node.more",
            "controllers.policy.more",
            "controllers.policyMigration",
            "controllers.workloadEndpoint",
            "debugProfilePort",
            "etcdV3CompactionPeriod",
            "healthChecks",
            "logSeverityScreen",
            "more",
            "prometheusMetricsPort",
        ]
    );
}

#[test]
fn variables_precede_fields() {
    let stock = variables(&[(
        CONTROLLERS,
        "policy,namespace,serviceaccount,workloadendpoint,node",
    )]);
    let wanted = Settings {
        load_balancer: false,
        ..Settings::default()
    };
    assert_eq!(Settings::read(None, &stock).settings, wanted);
    let some = variables(&[
        (CONTROLLERS, "policy, loadbalancer,x"),
        (PERIOD, "30s"),
        (SYNC_LABELS, "false"),
        (AUTO_HOST_ENDPOINTS, "enabled"),
        ("LOG_LEVEL", "debug"),
        ("POLICY_WORKERS", "3"),
        ("DATASTORE_TYPE", "kubernetes"),
    ]);
    let Read { settings, ignored } = Settings::read(Some(&of_calico()), &some);
    assert!(settings.policy && !settings.namespace && !settings.node);
    assert!(settings.load_balancer);
    assert!(settings.host_endpoints && !settings.sync_labels);
    assert_eq!(settings.reconciler_period, Duration::from_secs(30));
    for name in ["x", "LOG_LEVEL", "POLICY_WORKERS", "DATASTORE_TYPE"] {
        let is_of = |one: &&Ignored| one.setting.ends_with(name);
        assert_eq!(ignored.iter().filter(is_of).count(), 1, "{name}");
    }
    let status = settings.status(&some);
    assert!(is_own_status(&status));
    assert_eq!(status["environmentVars"]["LOG_LEVEL"], "debug");
    let running = &status["runningConfig"]["controllers"];
    assert!(running["policy"].is_object() && running["node"].is_null());
    let of_calico = json!({"environmentVars": {"LOG_LEVEL": "info"}, "runningConfig": {}});
    assert!(!is_own_status(&of_calico));
}

#[test]
fn invalid_values_leave_the_defaults() {
    let node = json!({"reconcilerPeriod": 5, "leakGracePeriod": "x", "syncLabels": "no"});
    let spec = json!({"controllers": {"node": node}});
    let wrong = variables(&[
        (PERIOD, "soon"),
        (SYNC_LABELS, "x"),
        (AUTO_HOST_ENDPOINTS, "y"),
    ]);
    let Read { settings, ignored } = Settings::read(Some(&spec), &wrong);
    let defaults = Settings::default();
    assert_eq!(settings.reconciler_period, defaults.reconciler_period);
    assert_eq!(settings.leak_grace, defaults.leak_grace);
    assert!(settings.sync_labels && !settings.host_endpoints);
    assert_eq!(ignored.len(), 6);
}

#[test]
fn settings_of_calico_select_services() {
    let of = |controllers: Value| {
        let spec = json!({"controllers": controllers});
        let settings = Settings::read(Some(&spec), &Variables::default()).settings;
        settings.load_balancer.then_some(settings.assign_ips)
    };
    for (controllers, wanted) in [
        (
            json!({"loadBalancer": {"assignIPs": "AllServices"}}),
            Some(AssignIps::AllServices),
        ),
        (json!({"loadBalancer": {}}), Some(AssignIps::AllServices)),
        (
            json!({"loadBalancer": {"assignIPs": "RequestedServicesOnly"}}),
            Some(AssignIps::RequestedServicesOnly),
        ),
        (
            json!({"loadBalancer": {"assignIPs": "Some"}}),
            Some(AssignIps::Never),
        ),
        (
            json!({"loadBalancer": {"assignIPs": 7}}),
            Some(AssignIps::Never),
        ),
        (json!({"loadBalancer": 7}), None),
        (json!({}), None),
        (json!(7), None),
    ] {
        assert_eq!(of(controllers.clone()), wanted, "{controllers}");
    }
}
