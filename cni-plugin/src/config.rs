//! The network's configuration: Calico's fields, with Calico's meaning.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use calico_model::EndpointFile;
use calico_store::{EtcdOptions, TlsFiles};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::answer::{Answer, Route};
use crate::failure::{Code, Failure, mistyped};
use crate::limits::{FELIX_TIMEOUT, NETWORK_OCTETS_MAX};
use crate::version::Version;

/// File in which Calico's daemons write the node's name.
const NODENAME_FILE: &str = "/var/lib/calico/nodename";

/// File in which Calico's daemons write the MTU of workload interfaces.
const MTU_FILE: &str = "/var/lib/calico/mtu";

/// IPAM types that this program implements itself.
const OWN_IPAM: [&str; 2] = ["cambric-ipam", "calico-ipam"];

/// A valid configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) network: String,
    pub(crate) version: Version,
    pub(crate) node: String,
    pub(crate) store: EtcdOptions,
    /// MTU of the container's interface; `None`: the kernel's default.
    pub(crate) mtu: Option<u32>,
    pub(crate) queues: Option<u32>,
    pub(crate) ipam: IpamConfig,
    /// Time to wait for Felix; `None`: do not wait.
    pub(crate) felix: Option<Duration>,
    pub(crate) status_dir: PathBuf,
    pub(crate) default_routes: bool,
    /// Whether the container forwards packets.
    pub(crate) forwards: bool,
    /// Whether a pod may set its addresses without address management.
    pub(crate) without_ipam: bool,
    /// Whether profiles are named after Kubernetes' namespaces and service accounts.
    pub(crate) kubernetes: bool,
    /// Whether another program, which follows an API server, maintains these profiles.
    pub(crate) api_server: bool,
    /// The capability arguments of the runtime (`runtimeConfig`).
    pub(crate) runtime: Map<String, Value>,
    /// The main plugin, if it is one that writes no endpoints: its addresses still count as used.
    pub(crate) foreign: Option<String>,
    /// `args.cni` of the specification's conventions.
    pub(crate) args: Value,
    pub(crate) previous: Option<Answer>,
    /// Attachments that still exist (GC).
    pub(crate) valid: Option<Vec<Attachment>>,
}

/// Main plugins that write an endpoint for each address to the datastore; a configuration without a
/// plugin name is read by this plugin.
const WRITE_ENDPOINTS: [&str; 3] = ["", "calico", "cambric-cni"];

/// Configuration of address management.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IpamConfig {
    /// The IPAM plugin to call; `None`: this program.
    pub(crate) delegate: Option<String>,
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
    /// Pools by range or name; if empty, all pools that apply to the workload.
    pub(crate) ipv4_pools: Vec<String>,
    pub(crate) ipv6_pools: Vec<String>,
    pub(crate) routes: Vec<Route>,
}

/// An attachment, as identified by GC.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Attachment {
    #[serde(rename = "containerID")]
    pub(crate) container_id: String,
    pub(crate) ifname: String,
}

/// The configuration file as written. Fields that are not listed here are meant for other programs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    #[serde(rename = "cniVersion")]
    cni_version: String,
    name: String,
    r#type: String,
    mtu: u32,
    num_queues: u32,
    nodename: String,
    nodename_file: Option<PathBuf>,
    nodename_file_optional: bool,
    datastore_type: String,
    etcd_endpoints: String,
    etcd_discovery_srv: String,
    etcd_key_file: String,
    etcd_cert_file: String,
    etcd_ca_cert_file: String,
    ipam: IpamSection,
    policy: Policy,
    kubernetes: Option<Value>,
    container_settings: ContainerSettings,
    feature_control: FeatureControl,
    policy_setup_timeout_seconds: Option<u64>,
    endpoint_status_dir: Option<PathBuf>,
    include_default_routes: Option<bool>,
    device_type: String,
    readiness_gates: Vec<Value>,
    #[serde(rename = "runtimeConfig")]
    runtime_config: Map<String, Value>,
    args: Args,
    #[serde(rename = "prevResult")]
    prev_result: Option<Value>,
    #[serde(rename = "cni.dev/valid-attachments")]
    valid: Option<Vec<Attachment>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IpamSection {
    r#type: String,
    assign_ipv4: Option<Flag>,
    assign_ipv6: Option<Flag>,
    ipv4_pools: Vec<String>,
    ipv6_pools: Vec<String>,
    routes: Vec<Route>,
    subnet: String,
}

/// A flag, which Calico writes as a string.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Flag {
    Plain(bool),
    Text(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Policy {
    r#type: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerSettings {
    allow_ip_forwarding: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FeatureControl {
    ip_addrs_no_ipam: bool,
    floating_ips: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Args {
    cni: Value,
}

impl Config {
    /// Parses a configuration.
    pub(crate) fn read(json: &Value) -> Result<Self, Failure> {
        let version = Version::of(json["cniVersion"].as_str().unwrap_or_default())?;
        let file: File = serde_path_to_error::deserialize(json).map_err(|error| {
            let place = error.path().to_string();
            wrong(&place, &mistyped(error.inner()))
        })?;
        debug_assert!(file.cni_version.is_empty() || file.cni_version == version.text());
        file.refuse_unsupported()?;
        if let Some(problem) = name_problem(&file.name) {
            return Err(wrong("name", problem));
        }
        let previous = file.prev_result.as_ref().map(Answer::read).transpose()?;
        Ok(Self {
            version,
            node: file.node()?,
            store: file.store()?,
            mtu: file.mtu()?,
            queues: Some(file.num_queues).filter(|queues| *queues > 1),
            ipam: file.ipam()?,
            felix: match file.policy_setup_timeout_seconds {
                None => Some(FELIX_TIMEOUT),
                Some(0) => None,
                Some(seconds) => Some(Duration::from_secs(seconds)),
            },
            status_dir: file
                .endpoint_status_dir
                .unwrap_or_else(|| Path::new(EndpointFile::PATH_PREFIX).join(EndpointFile::UP)),
            default_routes: file.include_default_routes.unwrap_or(true),
            forwards: file.container_settings.allow_ip_forwarding,
            without_ipam: file.feature_control.ip_addrs_no_ipam,
            kubernetes: file.policy.r#type == "k8s",
            api_server: file.kubernetes.is_some(),
            runtime: file.runtime_config,
            foreign: Some(file.r#type).filter(|name| !WRITE_ENDPOINTS.contains(&name.as_str())),
            args: file.args.cni,
            previous,
            valid: file.valid,
            network: file.name,
        })
    }

    /// Returns the configuration for calls of this program as an IPAM plugin, under whatever name
    /// it is called.
    pub(crate) fn with_own_ipam(mut self) -> Self {
        self.ipam.delegate = None;
        self
    }
}

impl File {
    /// Rejects a configuration that requires an unsupported feature.
    fn refuse_unsupported(&self) -> Result<(), Failure> {
        let refuse = |field: &str, why: &str| {
            let message = format!("{field}: {why}");
            Err(Failure::new(Code::Unsupported, message))
        };
        match self.datastore_type.as_str() {
            "" | "etcdv3" => {}
            _ => {
                return refuse(
                    "datastore_type",
                    "is not supported; the store is etcd (\"etcdv3\")",
                );
            }
        }
        if !self.etcd_discovery_srv.is_empty() {
            return refuse(
                "etcd_discovery_srv",
                "is not supported; name the members in etcd_endpoints",
            );
        }
        if !matches!(self.device_type.as_str(), "" | "veth") {
            return refuse(
                "device_type",
                "is not supported; interfaces are of type \"veth\"",
            );
        }
        if !self.readiness_gates.is_empty() {
            return refuse(
                "readiness_gates",
                "are not supported; the plugin waits for Felix itself",
            );
        }
        if !matches!(self.policy.r#type.as_str(), "" | "k8s") {
            return refuse("policy.type", "is not supported; it is \"k8s\" or left out");
        }
        if self.feature_control.floating_ips {
            return refuse(
                "feature_control.floating_ips",
                "is not supported: no annotation gives a container a floating address",
            );
        }
        if self.ipam.subnet == "usePodCidr" {
            return refuse(
                "ipam.subnet",
                "\"usePodCidr\" is not supported: it needs Kubernetes' API server",
            );
        }
        Ok(())
    }

    fn node(&self) -> Result<String, Failure> {
        if !self.nodename.is_empty() {
            return Ok(self.nodename.clone());
        }
        let file = self
            .nodename_file
            .as_deref()
            .unwrap_or_else(|| Path::new(NODENAME_FILE));
        match first_line(file) {
            Some(name) => Ok(name),
            None if self.nodename_file_optional => host_name(),
            None => {
                let message = format!("nodename is not set, and {} has no name", file.display());
                let details = "nodename must equal `hostname` of Felix; with \
                    \"nodename_file_optional\": true it is the host name";
                Err(Failure::new(Code::Config, message).details(details))
            }
        }
    }

    fn store(&self) -> Result<EtcdOptions, Failure> {
        let endpoints: Vec<&str> = self
            .etcd_endpoints
            .split(',')
            .map(str::trim)
            .filter(|url| !url.is_empty())
            .collect();
        if endpoints.is_empty() {
            return Err(wrong(
                "etcd_endpoints",
                "is missing: the URLs of the store, such as http://10.0.0.254:2379",
            ));
        }
        if endpoints.iter().any(|url| url.contains('@')) {
            return Err(wrong(
                "etcd_endpoints",
                "has a user or a password, which is not supported; use certificates",
            ));
        }
        let mut options = EtcdOptions::new(endpoints);
        let path = |text: &str| Some(PathBuf::from(text)).filter(|_| !text.is_empty());
        match path(&self.etcd_ca_cert_file) {
            Some(ca_file) => {
                options.tls = Some(TlsFiles {
                    ca_file,
                    cert_file: path(&self.etcd_cert_file),
                    key_file: path(&self.etcd_key_file),
                    ..TlsFiles::default()
                });
            }
            None if !self.etcd_cert_file.is_empty() || !self.etcd_key_file.is_empty() => {
                return Err(wrong(
                    "etcd_ca_cert_file",
                    "is missing: etcd_cert_file and etcd_key_file need it",
                ));
            }
            None => {}
        }
        Ok(options)
    }

    fn mtu(&self) -> Result<Option<u32>, Failure> {
        if self.mtu != 0 {
            return Ok(Some(self.mtu));
        }
        let Some(text) = first_line(Path::new(MTU_FILE)) else {
            return Ok(None);
        };
        let mtu = text
            .parse()
            .map_err(|_| Failure::new(Code::Config, format!("{MTU_FILE}: \"{text}\" is no MTU")))?;
        Ok(Some(mtu).filter(|mtu| *mtu != 0))
    }

    fn ipam(&self) -> Result<IpamConfig, Failure> {
        let ipam = &self.ipam;
        let delegate = match ipam.r#type.as_str() {
            "" => {
                return Err(wrong(
                    "ipam.type",
                    "is missing: \"cambric-ipam\", or another plugin",
                ));
            }
            own if OWN_IPAM.contains(&own) => None,
            other if other.contains('/') => {
                return Err(wrong("ipam.type", "is not the name of a plugin"));
            }
            other => Some(other.to_owned()),
        };
        Ok(IpamConfig {
            delegate,
            ipv4: flag("ipam.assign_ipv4", ipam.assign_ipv4.as_ref(), true)?,
            ipv6: flag("ipam.assign_ipv6", ipam.assign_ipv6.as_ref(), false)?,
            ipv4_pools: ipam.ipv4_pools.clone(),
            ipv6_pools: ipam.ipv6_pools.clone(),
            routes: ipam.routes.clone(),
        })
    }
}

fn flag(field: &str, given: Option<&Flag>, default: bool) -> Result<bool, Failure> {
    match given {
        None => Ok(default),
        Some(Flag::Plain(flag)) => Ok(*flag),
        Some(Flag::Text(text)) => match text.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(wrong(field, "is neither \"true\" nor \"false\"")),
        },
    }
}

fn wrong(field: &str, problem: &str) -> Failure {
    Failure::new(Code::Config, format!("{field}: {problem}"))
}

/// Checks the specification's rules for a network name; returns the violated one.
fn name_problem(name: &str) -> Option<&'static str> {
    let of_names = |c: u8| c.is_ascii_alphanumeric() || b"_.-".contains(&c);
    match name.as_bytes() {
        [] => Some("is missing"),
        [first, ..] if !first.is_ascii_alphanumeric() => {
            Some("begins with neither letter nor digit")
        }
        name if !name.iter().all(|c| of_names(*c)) => {
            Some("has other characters than letters, digits, '_', '.' and '-'")
        }
        name if name.len() > NETWORK_OCTETS_MAX => Some("is too long"),
        _ => None,
    }
}

fn first_line(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().next()?.trim();
    Some(line.to_owned()).filter(|line| !line.is_empty())
}

fn host_name() -> Result<String, Failure> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .map_err(|error| Failure::new(Code::Io, format!("the name of the host: {error}")))?;
    Ok(name.trim().to_lowercase())
}

#[cfg(test)]
mod tests {
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
        assert!(
            config.kubernetes && config.api_server && config.forwards && !config.default_routes
        );
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
            ("feature_control.floating_ips", json!(true)),
            ("policy.type", json!("other")),
            ("ipam.subnet", json!("usePodCidr")),
        ] {
            let (code, message) = with(field, value).unwrap_err();
            assert!(
                code == 2 && message.starts_with(field),
                "{field}: {code} {message}"
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
}
