//! The settings of the controllers: KubeControllersConfiguration `default`, and the variables of the
//! environment that Calico's manifest sets. A variable precedes its field.

use std::collections::BTreeMap;
use std::time::Duration;

use calico_kubernetes::Balancer;
use calico_model::GoDuration;
use serde_json::{Map, Value, json};

use crate::kinds::Watched;
use crate::limits::{LEAK_GRACE, RECONCILER_PERIOD, RECONCILER_PERIOD_MIN, VARIABLE_OCTETS_MAX};

/// The variables of calico-kube-controllers that have a meaning here or are reported.
const NAMES: [&str; 11] = [
    CONTROLLERS,
    PERIOD,
    SYNC_LABELS,
    AUTO_HOST_ENDPOINTS,
    "LOG_LEVEL",
    "COMPACTION_PERIOD",
    "HEALTH_ENABLED",
    "DATASTORE_TYPE",
    "WORKLOAD_ENDPOINT_WORKERS",
    "PROFILE_WORKERS",
    "POLICY_WORKERS",
];
const CONTROLLERS: &str = "ENABLED_CONTROLLERS";
const PERIOD: &str = "RECONCILER_PERIOD";
const SYNC_LABELS: &str = "SYNC_NODE_LABELS";
const AUTO_HOST_ENDPOINTS: &str = "AUTO_HOST_ENDPOINTS";

/// The mark of this program in the status. Calico's controllers do not write it.
const MARK: &str = "CAMBRIC_KUBE";

/// Variables of the environment, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(pub BTreeMap<String, String>);

impl Variables {
    /// Reads the variables of calico-kube-controllers.
    pub fn read() -> Self {
        let read = |name: &&str| Some(((*name).to_owned(), std::env::var(*name).ok()?));
        Self(NAMES.iter().filter_map(read).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim())
    }
}

/// A setting without an effect, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ignored {
    /// The path of the field, or the name of the variable.
    pub setting: String,
    /// Why it has no effect.
    pub reason: String,
}

/// Which services without an address get one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AssignIps {
    /// All services of type `LoadBalancer`.
    #[default]
    AllServices,
    /// Only those with the class `calico` or an annotation.
    RequestedServicesOnly,
    /// None: the setting is invalid, and an assigned address cannot be taken back.
    Never,
}

impl AssignIps {
    const fn name(self) -> &'static str {
        match self {
            Self::AllServices => "AllServices",
            Self::RequestedServicesOnly => "RequestedServicesOnly",
            Self::Never => "None",
        }
    }
}

/// The settings in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether policies are written.
    pub policy: bool,
    /// Whether profiles of Namespaces are written.
    pub namespace: bool,
    /// Whether profiles of ServiceAccounts are written.
    pub service_account: bool,
    /// Whether endpoints of pods are changed.
    pub workload_endpoint: bool,
    /// Whether services get addresses of load balancers.
    pub load_balancer: bool,
    /// Which of them.
    pub assign_ips: AssignIps,
    /// Whether Nodes are changed and deleted, and addresses are collected.
    pub node: bool,
    /// Whether Nodes get the labels of their Nodes in Kubernetes.
    pub sync_labels: bool,
    /// Whether each Node has an automatic host endpoint.
    pub host_endpoints: bool,
    /// Time between two looks for addresses to collect.
    pub reconciler_period: Duration,
    /// Time for which an address must be leaked; zero disables the collection of addresses.
    pub leak_grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: true,
            namespace: true,
            service_account: true,
            workload_endpoint: true,
            load_balancer: true,
            assign_ips: AssignIps::AllServices,
            node: true,
            sync_labels: true,
            host_endpoints: false,
            reconciler_period: RECONCILER_PERIOD,
            leak_grace: LEAK_GRACE,
        }
    }
}

/// The result of a reading of settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The settings.
    pub settings: Settings,
    /// The settings without an effect.
    pub ignored: Vec<Ignored>,
}

impl Settings {
    /// Reads the `spec` of the resource, if there is one, and the variables.
    pub fn read(spec: Option<&Value>, variables: &Variables) -> Read {
        let mut reading = Reading::default();
        if let Some(spec) = spec {
            reading.spec(spec);
        }
        reading.variables(variables);
        let (settings, mut ignored) = (reading.settings, reading.ignored);
        ignored.sort();
        Read { settings, ignored }
    }

    /// Returns whether resources of a kind of objects are written and deleted.
    pub const fn applies_to(&self, watched: Watched) -> bool {
        match watched {
            Watched::Namespace => self.namespace,
            Watched::ServiceAccount => self.service_account,
            Watched::NetworkPolicy | Watched::ClusterNetworkPolicy => self.policy,
            Watched::Pod => self.workload_endpoint,
            Watched::Node => self.node,
            // No setting of Calico disables the routes and members of services.
            Watched::Service | Watched::EndpointSlice => true,
        }
    }

    /// Returns whether a service without addresses gets some.
    pub const fn assigns(&self, balancer: &Balancer) -> bool {
        !balancer.is_foreign
            && self.load_balancer
            && match self.assign_ips {
                AssignIps::AllServices => true,
                AssignIps::RequestedServicesOnly => balancer.is_requested,
                AssignIps::Never => false,
            }
    }

    /// Returns the status of the resource: the settings in effect, and the variables.
    pub fn status(&self, variables: &Variables) -> Value {
        let period = GoDuration(self.reconciler_period).to_string();
        let mut controllers = Map::new();
        let mut add = |name: &str, is_enabled: bool, value: Value| {
            if is_enabled {
                controllers.insert(name.to_owned(), value);
            }
        };
        let mode = |is_enabled: bool| if is_enabled { "Enabled" } else { "Disabled" };
        add(
            "node",
            self.node,
            json!({
                "reconcilerPeriod": period, "syncLabels": mode(self.sync_labels),
                "leakGracePeriod": GoDuration(self.leak_grace).to_string(),
                "hostEndpoint": {"autoCreate": mode(self.host_endpoints)},
            }),
        );
        add("policy", self.policy, json!({}));
        add("workloadEndpoint", self.workload_endpoint, json!({}));
        add("serviceAccount", self.service_account, json!({}));
        add("namespace", self.namespace, json!({}));
        let assign = json!({"assignIPs": self.assign_ips.name()});
        add("loadBalancer", self.load_balancer, assign);
        let mut environment: BTreeMap<&str, &str> = BTreeMap::new();
        let all = variables.0.iter();
        environment.extend(all.map(|(name, value)| (name.as_str(), value.as_str())));
        environment.insert(MARK, env!("CARGO_PKG_VERSION"));
        json!({"environmentVars": environment, "runningConfig": {"controllers": controllers}})
    }
}

/// Returns whether a status is that of this program, of any version and settings.
pub(crate) fn is_own_status(status: &Value) -> bool {
    status["environmentVars"][MARK].is_string()
}

#[derive(Default)]
struct Reading {
    settings: Settings,
    ignored: Vec<Ignored>,
}

impl Reading {
    fn ignore(&mut self, setting: impl Into<String>, reason: impl Into<String>) {
        self.ignored.push(Ignored {
            setting: setting.into(),
            reason: reason.into(),
        });
    }

    fn spec(&mut self, spec: &Value) {
        let fields = spec.as_object().cloned().unwrap_or_default();
        if !spec.is_object() && !spec.is_null() {
            self.ignore("spec", "it is not an object");
        }
        self.controllers(&fields.get("controllers").cloned().unwrap_or_default());
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            let reason = match name.as_str() {
                "controllers" => continue,
                "logSeverityScreen" => "set `log` in the file of cambric-kube",
                "healthChecks" => "readiness is that of `cambric show status`",
                "etcdV3CompactionPeriod" if is_zero(value) => continue,
                "etcdV3CompactionPeriod" => "set --auto-compaction-retention of etcd",
                "prometheusMetricsPort" if value == 0 => continue,
                "prometheusMetricsPort" => "set `metrics.listen` in the file of cambric-kube",
                "debugProfilePort" if value == 0 => continue,
                "debugProfilePort" => "cambric-kube has no port for profiles",
                _ => "unknown field",
            };
            self.ignore(name, reason);
        }
    }

    /// Reads the controllers: one without a value is disabled, as in Calico.
    fn controllers(&mut self, controllers: &Value) {
        let is_enabled = |name: &str| controllers[name].is_object();
        let settings = &mut self.settings;
        settings.policy = is_enabled("policy");
        settings.namespace = is_enabled("namespace");
        settings.service_account = is_enabled("serviceAccount");
        settings.workload_endpoint = is_enabled("workloadEndpoint");
        settings.node = is_enabled("node");
        settings.load_balancer = is_enabled("loadBalancer");
        for (name, value) in controllers.as_object().into_iter().flatten() {
            let path = format!("controllers.{name}");
            match name.as_str() {
                _ if value.is_null() => {}
                "policy" | "namespace" | "serviceAccount" | "workloadEndpoint" | "node"
                | "loadBalancer"
                    if !value.is_object() =>
                {
                    self.ignore(path, "it is not an object; the controller is disabled");
                }
                "node" => self.node(value),
                "policy" | "namespace" | "serviceAccount" | "workloadEndpoint" => {
                    self.repaired_at_once(&path, value);
                }
                "loadBalancer" => self.load_balancer(value),
                "policyMigration" => self.ignore(path, "policies have one form of names"),
                _ => self.ignore(path, "unknown field"),
            }
        }
    }

    /// These controllers have one field. Differences are repaired at once, so it needs no period.
    fn repaired_at_once(&mut self, path: &str, value: &Value) {
        for name in value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
        {
            if name != "reconcilerPeriod" {
                self.ignore(format!("{path}.{name}"), "unknown field");
            }
        }
    }

    fn load_balancer(&mut self, value: &Value) {
        for (name, value) in value.as_object().into_iter().flatten() {
            let path = format!("controllers.loadBalancer.{name}");
            match (name.as_str(), value.as_str()) {
                _ if value.is_null() => {}
                ("assignIPs", Some("AllServices")) => {
                    self.settings.assign_ips = AssignIps::AllServices;
                }
                ("assignIPs", Some("RequestedServicesOnly")) => {
                    self.settings.assign_ips = AssignIps::RequestedServicesOnly;
                }
                ("assignIPs", _) => {
                    self.settings.assign_ips = AssignIps::Never;
                    let reason = "neither AllServices nor RequestedServicesOnly; no Service gets an \
                                  address";
                    self.ignore(path, reason);
                }
                _ => self.ignore(path, "unknown field"),
            }
        }
    }

    fn node(&mut self, node: &Value) {
        for (name, value) in node.as_object().into_iter().flatten() {
            let path = format!("controllers.node.{name}");
            match name.as_str() {
                _ if value.is_null() => {}
                "reconcilerPeriod" => {
                    if let Some(period) = self.duration(&path, value) {
                        self.settings.reconciler_period = period.max(RECONCILER_PERIOD_MIN);
                    }
                }
                "leakGracePeriod" => {
                    if let Some(grace) = self.duration(&path, value) {
                        self.settings.leak_grace = grace;
                    }
                }
                "syncLabels" => {
                    if let Some(mode) = self.mode(&path, value.as_str()) {
                        self.settings.sync_labels = mode;
                    }
                }
                "hostEndpoint" => self.host_endpoint(value),
                _ => self.ignore(path, "unknown field"),
            }
        }
    }

    fn host_endpoint(&mut self, value: &Value) {
        for (name, value) in value.as_object().into_iter().flatten() {
            let path = format!("controllers.node.hostEndpoint.{name}");
            match name.as_str() {
                _ if value.is_null() => {}
                "autoCreate" => {
                    if let Some(mode) = self.mode(&path, value.as_str()) {
                        self.settings.host_endpoints = mode;
                    }
                }
                "createDefaultHostEndpoint" if value == "Enabled" || value == "" => {}
                "createDefaultHostEndpoint" => {
                    self.ignore(
                        path,
                        "templates are unsupported, so each Node has the default one",
                    );
                }
                "templates" if value.as_array().is_some_and(Vec::is_empty) => {}
                "templates" => self.ignore(path, "unsupported: only the default one is created"),
                _ => self.ignore(path, "unknown field"),
            }
        }
    }

    fn duration(&mut self, path: &str, value: &Value) -> Option<Duration> {
        let parsed = value
            .as_str()
            .and_then(|text| text.parse::<GoDuration>().ok());
        if parsed.is_none() {
            self.ignore(path, "not a duration such as 5m0s; the default applies");
        }
        parsed.map(|duration| duration.0)
    }

    fn mode(&mut self, path: &str, value: Option<&str>) -> Option<bool> {
        match value.map(str::to_ascii_lowercase).as_deref() {
            Some("enabled") => Some(true),
            Some("disabled") => Some(false),
            _ => {
                self.ignore(path, "neither Enabled nor Disabled; the default applies");
                None
            }
        }
    }

    fn variables(&mut self, variables: &Variables) {
        let long = variables.0.iter();
        for (name, _) in long.filter(|(_, value)| value.len() > VARIABLE_OCTETS_MAX) {
            self.ignore(name, "too long; it has no effect");
        }
        let get = |name: &str| {
            let value = variables.get(name);
            value.filter(|value| value.len() <= VARIABLE_OCTETS_MAX)
        };
        if let Some(names) = get(CONTROLLERS) {
            self.enabled(names);
        }
        if let Some(text) = get(PERIOD)
            && let Some(period) = self.duration(PERIOD, &json!(text))
        {
            self.settings.reconciler_period = period.max(RECONCILER_PERIOD_MIN);
        }
        if let Some(text) = get(SYNC_LABELS) {
            match text.parse() {
                Ok(is_enabled) => self.settings.sync_labels = is_enabled,
                Err(_) => self.ignore(SYNC_LABELS, "neither true nor false"),
            }
        }
        if let Some(text) = get(AUTO_HOST_ENDPOINTS)
            && let Some(mode) = self.mode(AUTO_HOST_ENDPOINTS, Some(text))
        {
            self.settings.host_endpoints = mode;
        }
        for (name, reason) in [
            ("LOG_LEVEL", "set `log` in the file of cambric-kube"),
            (
                "COMPACTION_PERIOD",
                "set --auto-compaction-retention of etcd",
            ),
            (
                "HEALTH_ENABLED",
                "readiness is that of `cambric show status`",
            ),
        ] {
            if get(name).is_some() {
                self.ignore(name, reason);
            }
        }
        if get("DATASTORE_TYPE").is_some_and(|kind| kind != "etcdv3") {
            self.ignore("DATASTORE_TYPE", "the datastore is etcd");
        }
        for name in NAMES.into_iter().filter(|name| name.ends_with("_WORKERS")) {
            if get(name).is_some() {
                self.ignore(name, "all resources are written by one task");
            }
        }
    }

    /// Reads the list of controllers. All others are disabled.
    fn enabled(&mut self, names: &str) {
        let settings = &mut self.settings;
        settings.policy = false;
        settings.namespace = false;
        settings.service_account = false;
        settings.workload_endpoint = false;
        settings.node = false;
        settings.load_balancer = false;
        for name in names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
        {
            let settings = &mut self.settings;
            match name {
                "policy" => settings.policy = true,
                "namespace" | "profile" => settings.namespace = true,
                "serviceaccount" => settings.service_account = true,
                "workloadendpoint" => settings.workload_endpoint = true,
                "node" => settings.node = true,
                "loadbalancer" => settings.load_balancer = true,
                other => {
                    let name: String = other.chars().take(64).collect();
                    self.ignore(format!("ENABLED_CONTROLLERS: {name}"), "unknown controller");
                }
            }
        }
    }
}

fn is_zero(value: &Value) -> bool {
    let parsed = value
        .as_str()
        .and_then(|text| text.parse::<GoDuration>().ok());
    parsed == Some(GoDuration(Duration::ZERO))
}

#[cfg(test)]
mod tests;
