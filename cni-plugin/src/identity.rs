//! The identity of an attachment: its endpoint, its interface on the host, the handle of its
//! addresses.

use std::collections::BTreeMap;

use calico_model::{EndpointFile, EndpointName, INTERFACE_NAME_OCTETS_MAX, Kind, Mac, ResourceKey};
use serde_json::Value;
use sha1::{Digest, Sha1};

use crate::config::{Attachment, Config};
use crate::failure::{Code, Failure};
use crate::limits::INTERFACE_DIGITS;
use crate::request::Request;

/// The namespace of endpoints that do not belong to pods.
const DEFAULT_NAMESPACE: &str = "default";

/// The usual interface of attachments; Calico's plugin supports no other.
const FIRST_INTERFACE: &str = "eth0";

/// Felix's variable for the same purpose.
const PREFIX_VARIABLE: &str = "FELIX_INTERFACEPREFIX";

/// Key of a pod's annotations as passed by containerd and CRI-O, if the configuration has this
/// capability.
const ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// Calico's annotations that require an unsupported feature, and the reasons.
const NOT_DONE: [(&str, &str); 2] = [
    (
        "floatingIPs",
        "the plugin writes no translation of addresses",
    ),
    (
        "allowedSourcePrefixes",
        "packets with a foreign source address are dropped",
    ),
];

/// The identity of an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) container_id: String,
    pub(crate) ifname: String,
    /// `k8s` for pods, otherwise `cni`.
    pub(crate) orchestrator: &'static str,
    pub(crate) namespace: String,
    /// The pod; empty for other containers.
    pub(crate) pod: String,
    /// Name of the endpoint's resource.
    pub(crate) name: EndpointName,
    /// The interface on the host's side.
    pub(crate) interface: String,
    /// The handle of its addresses.
    pub(crate) handle: String,
}

/// Further data about an attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) service_account: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// The requested MAC address of the container.
    pub(crate) mac: Option<Mac>,
}

impl Identity {
    /// Returns the identity of the attachment of a request.
    pub(crate) fn of(request: &Request, config: &Config) -> Result<Self, Failure> {
        let arg = |key: &str| request.args.get(key).cloned().unwrap_or_default();
        let of = Attachment {
            container_id: request.container_id.clone(),
            ifname: request.ifname.clone(),
        };
        Self::new(of, arg("K8S_POD_NAMESPACE"), arg("K8S_POD_NAME"), config)
    }

    /// Returns the identity of an attachment, of a pod if the arguments name one.
    pub(crate) fn new(
        of: Attachment,
        namespace: String,
        pod: String,
        config: &Config,
    ) -> Result<Self, Failure> {
        let Attachment {
            container_id,
            ifname,
        } = of;
        let is_pod = !namespace.is_empty() && !pod.is_empty();
        let (orchestrator, namespace, pod) = match is_pod {
            true => ("k8s", namespace, pod),
            false => ("cni", DEFAULT_NAMESPACE.to_owned(), String::new()),
        };
        let workload = if is_pod { &pod } else { &container_id };
        let name = EndpointName::new(&config.node, orchestrator, workload, &ifname);
        let name = name.map_err(|error| {
            let message = format!(
                "the endpoint of {workload} on {} has no name: {error}",
                config.node
            );
            Failure::new(Code::Environment, message)
        })?;
        let of = if is_pod {
            format!("{namespace}.{pod}")
        } else {
            container_id.clone()
        };
        Ok(Self {
            interface: interface(&prefix()?, &of, is_pod, &ifname),
            handle: handle(&config.network, &container_id, &ifname),
            container_id,
            ifname,
            orchestrator,
            namespace,
            pod,
            name,
        })
    }

    /// Returns the key of its endpoint.
    pub(crate) fn key(&self) -> Result<ResourceKey, Failure> {
        ResourceKey::new(
            Kind::WorkloadEndpoint,
            Some(&self.namespace),
            &self.name.to_string(),
        )
        .map_err(|error| {
            Failure::new(
                Code::Environment,
                format!("endpoint {}: {error}", self.name),
            )
        })
    }

    /// Returns the name of the file in which Felix reports that it is set up.
    pub(crate) fn status_file(&self) -> String {
        EndpointFile::name_of(&self.namespace, &self.name)
    }

    /// Returns the alias of its interface on the host, for operators and for GC.
    pub(crate) fn alias(&self, network: &str) -> String {
        alias(network, &self.container_id, &self.ifname)
    }

    /// Returns the profiles that give it rules and labels.
    pub(crate) fn profiles(&self, config: &Config, facts: &Facts) -> Vec<String> {
        if self.orchestrator != "k8s" && !config.kubernetes {
            return vec![config.network.clone()];
        }
        let mut profiles = vec![format!("kns.{}", self.namespace)];
        if !facts.service_account.is_empty() {
            profiles.push(format!("ksa.{}.{}", self.namespace, facts.service_account));
        }
        profiles
    }
}

/// Returns the alias of an attachment's interface on the host.
pub(crate) fn alias(network: &str, container_id: &str, ifname: &str) -> String {
    format!("cni/{network}/{container_id}/{ifname}")
}

/// Returns the attachment of an interface of a network, from its alias.
pub(crate) fn attachment_of(alias: &str, network: &str) -> Option<Attachment> {
    let of = alias.strip_prefix("cni/")?.strip_prefix(network)?;
    let (container_id, ifname) = of.strip_prefix('/')?.split_once('/')?;
    Some(Attachment {
        container_id: container_id.to_owned(),
        ifname: ifname.to_owned(),
    })
}

/// Returns the handle of an attachment's addresses: Calico's for the first interface of a
/// container. Each further interface has a separate handle, so that its removal does not release
/// the addresses of another one.
pub(crate) fn handle(network: &str, container_id: &str, ifname: &str) -> String {
    match ifname {
        FIRST_INTERFACE => format!("{network}.{container_id}"),
        ifname => format!("{network}.{container_id}.{ifname}"),
    }
}

/// Returns the prefix of workload interface names, which Felix reads from the same variable.
pub(crate) fn prefix() -> Result<String, Failure> {
    let list = std::env::var(PREFIX_VARIABLE).unwrap_or_default();
    let first = list.split(',').next().map(str::trim);
    let prefix = first.filter(|first| !first.is_empty()).unwrap_or("cali");
    if prefix.len() > INTERFACE_NAME_OCTETS_MAX - INTERFACE_DIGITS {
        let message =
            format!("{PREFIX_VARIABLE}: \"{prefix}\" leaves no room for {INTERFACE_DIGITS} digits");
        return Err(Failure::new(Code::Environment, message));
    }
    Ok(prefix.to_owned())
}

/// Returns the name of the interface on the host's side. It contains a digest for a pod, and
/// wherever the beginning of the id could be equal to that of another id.
fn interface(prefix: &str, of: &str, is_pod: bool, ifname: &str) -> String {
    let is_random = of.len() > 2 * INTERFACE_DIGITS && of.bytes().all(|c| c.is_ascii_hexdigit());
    let digits = match (is_pod, ifname) {
        (false, FIRST_INTERFACE) if is_random => of.chars().take(INTERFACE_DIGITS).collect(),
        (_, FIRST_INTERFACE) => digest(of),
        _ => digest(&format!("{of}.{ifname}")),
    };
    format!("{prefix}{digits}")
}

fn digest(text: &str) -> String {
    let octets = Sha1::digest(text);
    let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    hex.chars().take(INTERFACE_DIGITS).collect()
}

impl Facts {
    /// Returns the data of a request.
    pub(crate) fn of(request: &Request, config: &Config) -> Result<Self, Failure> {
        let arg = |key: &str| {
            request
                .args
                .get(key)
                .map(String::as_str)
                .unwrap_or_default()
        };
        let annotations = match config.runtime.get(ANNOTATIONS) {
            Some(value) => serde_json::from_value(value.clone()).map_err(|error| {
                Failure::new(
                    Code::Config,
                    format!("runtimeConfig.{ANNOTATIONS}: {error}"),
                )
            })?,
            None => BTreeMap::new(),
        };
        for (name, why) in NOT_DONE {
            if annotations.contains_key(&annotation(name)) {
                let message = format!("annotation {name}: is not supported: {why}");
                return Err(Failure::new(Code::Unsupported, message));
            }
        }
        let mut facts = Self {
            service_account: arg("K8S_POD_SERVICE_ACCOUNT").to_owned(),
            labels: labels(arg("K8S_POD_LABELS"), &config.args)?,
            annotations,
            mac: None,
        };
        let mac = config.runtime.get("mac").and_then(Value::as_str);
        let mac = mac.or_else(|| request.args.get("MAC").map(String::as_str));
        let mac = mac.or_else(|| facts.annotation("hwAddr"));
        if let Some(text) = mac {
            let parsed = text.parse().map_err(|error| {
                Failure::new(Code::Config, format!("the MAC address \"{text}\": {error}"))
            })?;
            facts.mac = Some(parsed);
        }
        Ok(facts)
    }

    /// Returns an annotation of Calico, such as `ipAddrs`.
    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(&annotation(name)).map(String::as_str)
    }
}

fn annotation(name: &str) -> String {
    format!("cni.projectcalico.org/{name}")
}

/// Returns the labels: `app=web,tier=front` of `CNI_ARGS`, and the labels of the specification's
/// conventions.
fn labels(text: &str, args: &Value) -> Result<BTreeMap<String, String>, Failure> {
    let wrong = |message: String| Failure::new(Code::Environment, message);
    let mut labels = BTreeMap::new();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            wrong(format!(
                "CNI_ARGS: K8S_POD_LABELS has \"{pair}\", which is not key=value"
            ))
        })?;
        labels.insert(key.to_owned(), value.to_owned());
    }
    for label in args["labels"].as_array().into_iter().flatten() {
        let (Some(key), Some(value)) = (label["key"].as_str(), label["value"].as_str()) else {
            return Err(wrong(format!(
                "args.cni.labels has {label}, which has no key and value"
            )));
        };
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "9f3c0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab";

    #[test]
    fn interfaces_are_named_as_calico_names_them() {
        assert_eq!(
            interface("cali", "prod.web-0", true, "eth0"),
            "caliaa960f0d82e"
        );
        assert_eq!(interface("cali", ID, false, "eth0"), "cali9f3c0123456");
        // Two ids with the same beginning get different names, and so do two interfaces of one
        // container.
        let names = [
            interface("cali", "web-container-1", false, "eth0"),
            interface("cali", "web-container-2", false, "eth0"),
            interface("cali", ID, false, "eth1"),
            interface("cali", "prod.web-0", true, "eth1"),
        ];
        for (at, name) in names.iter().enumerate() {
            assert_eq!(name.len(), 15);
            assert!(!names[..at].contains(name));
        }
    }

    #[test]
    fn alias_names_the_attachment_of_an_interface() {
        let its = attachment_of(&alias("net", ID, "eth0"), "net").expect("an attachment");
        assert_eq!((&*its.container_id, &*its.ifname), (ID, "eth0"));
        for (alias, network) in [
            ("cni/net2/a/eth0", "net"),
            ("cni/net/a", "net"),
            ("", "net"),
        ] {
            assert_eq!(attachment_of(alias, network), None, "{alias}");
        }
    }

    #[test]
    fn handles_are_calicos_for_the_first_interface() {
        assert_eq!(handle("net", "9f3c", "eth0"), "net.9f3c");
        assert_eq!(handle("net", "9f3c", "net1"), "net.9f3c.net1");
    }

    #[test]
    fn labels_are_read_from_two_places() {
        let args = json!({"labels": [{"key": "tier", "value": "front"}]});
        let found = labels("app=web,empty=", &args).unwrap();
        let expected = [("app", "web"), ("empty", ""), ("tier", "front")];
        assert_eq!(
            found,
            expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
        );
        assert_eq!(labels("app", &Value::Null).unwrap_err().code, 4);
        assert_eq!(
            labels("", &json!({"labels": [{"key": "a"}]}))
                .unwrap_err()
                .code,
            4
        );
    }
}
