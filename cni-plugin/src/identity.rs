//! The identity of an attachment: its endpoint, its interface on the host, the handle of its
//! addresses.

use calico_model::{EndpointFile, EndpointName, INTERFACE_NAME_OCTETS_MAX, Kind, ResourceKey};
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

#[cfg(test)]
mod tests {
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
}
