//! The network's configuration: Calico's fields, with Calico's meaning.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use calico_model::EndpointFile;
use calico_store::{CalicoEtcd, CalicoFault, EtcdOptions};
use kube_client::Overrides;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::answer::{Answer, Route};

use crate::failure::{Code, Failure, mistyped};
use crate::limits::{FELIX_TIMEOUT, NETWORK_OCTETS_MAX};
use crate::pod_networks;
use crate::server::{self, ApiServer};
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
    /// The API server that has the pods, if one is configured.
    pub(crate) api: Option<ApiServer>,
    /// Whether a pod may have floating addresses.
    pub(crate) floating: bool,
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

/// The configuration file as written. Fields that are not listed here are meant for other programs. It
/// has secrets, so it cannot be shown.
#[derive(Default, Deserialize)]
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
    kubernetes: Option<Kubernetes>,
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
}

/// A flag, which Calico writes as a string.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Flag {
    Plain(bool),
    Text(String),
}

/// The section `policy`, in which older configurations have the API server.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Policy {
    r#type: String,
    k8s_api_root: String,
    k8s_auth_token: String,
    k8s_client_certificate: String,
    k8s_client_key: String,
    k8s_certificate_authority: String,
}

/// The section `kubernetes`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Kubernetes {
    kubeconfig: String,
    k8s_api_root: String,
    node_name: String,
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
        let file = File::read(json)?;
        debug_assert!(file.cni_version.is_empty() || file.cni_version == version.text());
        file.refuse_unsupported(json)?;
        Self::of(file, version)
    }

    /// Parses the configuration for DEL: the name of the network, the node, the datastore and the plugin
    /// for addresses. Other fields have no effect on DEL, so a mistake in them does not prevent it.
    pub(crate) fn for_removal(json: &Value) -> Result<Self, Failure> {
        let mut needed = Map::new();
        for field in FIELDS_OF_DEL {
            needed.insert((*field).to_owned(), json[*field].clone());
        }
        needed.retain(|_, value| !value.is_null());
        let plugin = json["ipam"]["type"].as_str().unwrap_or_default();
        // Without a valid one nothing was assigned by another plugin.
        let is_other = !plugin.is_empty() && !plugin.contains('/');
        let plugin = if is_other { plugin } else { OWN_IPAM[0] };
        needed.insert("ipam".to_owned(), serde_json::json!({ "type": plugin }));
        // It has no effect on DEL, and that of the host may be invalid.
        needed.insert("mtu".to_owned(), 1.into());
        Self::of(File::read(&Value::Object(needed))?, Version::V1_1_0)
    }

    fn of(file: File, version: Version) -> Result<Self, Failure> {
        if let Some(problem) = name_problem(&file.name) {
            return Err(wrong("name", problem));
        }
        let api = file.api();
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
            api,
            floating: file.feature_control.floating_ips,
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

/// The fields that DEL needs, besides `ipam.type`.
const FIELDS_OF_DEL: &[&str] = &[
    "name",
    "type",
    "nodename",
    "nodename_file",
    "nodename_file_optional",
    "etcd_endpoints",
    "etcd_key_file",
    "etcd_cert_file",
    "etcd_ca_cert_file",
];

impl File {
    fn read(json: &Value) -> Result<Self, Failure> {
        serde_path_to_error::deserialize(json).map_err(|error| {
            let place = error.path().to_string();
            wrong(&place, &mistyped(error.inner()))
        })
    }

    /// Returns the API server of the sections `kubernetes` and `policy`.
    fn api(&self) -> Option<ApiServer> {
        let (policy, none) = (&self.policy, Kubernetes::default());
        let section = self.kubernetes.as_ref().unwrap_or(&none);
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let kubeconfig = given(&section.kubeconfig).map(PathBuf::from);
        let root = server::root(&section.k8s_api_root);
        let root = root.or_else(|| server::root(&policy.k8s_api_root));
        if kubeconfig.is_none() && root.is_none() {
            return None;
        }
        Some(ApiServer {
            kubeconfig,
            overrides: Overrides {
                server: root,
                trust: server::trust(
                    &policy.k8s_certificate_authority,
                    &policy.k8s_auth_token,
                    &policy.k8s_client_certificate,
                    &policy.k8s_client_key,
                ),
            },
            node: given(&section.node_name),
        })
    }

    /// Rejects a configuration that requires an unsupported feature.
    fn refuse_unsupported(&self, json: &Value) -> Result<(), Failure> {
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
        if pod_networks::are_wanted(json) {
            if self.api().is_none() {
                return refuse(
                    "ipam",
                    "\"usePodCidr\" needs the API server: set kubernetes.kubeconfig",
                );
            }
            if OWN_IPAM.contains(&self.ipam.r#type.as_str()) {
                return refuse(
                    "ipam",
                    "\"usePodCidr\" is for the plugin host-local; here pools have this purpose",
                );
            }
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
        if self.etcd_endpoints.contains('@') {
            return Err(wrong(
                "etcd_endpoints",
                "has a user or a password, which is not supported; use certificates",
            ));
        }
        let options = self.etcd().options();
        options.map_err(|fault| match fault {
            CalicoFault::NoEndpoint => wrong(
                "etcd_endpoints",
                "is missing: the URLs of the store, such as http://10.0.0.254:2379",
            ),
            CalicoFault::NoAuthority => wrong(
                "etcd_ca_cert_file",
                "is missing: etcd_cert_file and etcd_key_file need it",
            ),
            fault => wrong("etcd_endpoints", &fault.to_string()),
        })
    }

    /// Returns the values that DEL needs as well: what is not supported is rejected before.
    fn etcd(&self) -> CalicoEtcd {
        CalicoEtcd {
            endpoints: self.etcd_endpoints.clone(),
            ca_file: self.etcd_ca_cert_file.clone(),
            cert_file: self.etcd_cert_file.clone(),
            key_file: self.etcd_key_file.clone(),
            ..CalicoEtcd::default()
        }
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
mod tests;
