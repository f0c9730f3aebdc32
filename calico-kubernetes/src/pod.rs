//! Pods as workload endpoints.

use calico_model::{
    EndpointName, EndpointNameError, EndpointPort, Network, Resource, WorkloadEndpointSpec,
    is_resource_name,
};
use serde_json::Value;

use crate::name::{account_profile, namespace_profile};
use crate::network::is_mapped;
use crate::object::{Labels, annotations, begin, labels, list, not};
use crate::port::{is_name, number, protocol};
use crate::profile::{ACCOUNT_LABELS, NAMESPACE_LABELS};
use crate::report::{Converted, Fault, Outcome, Reports, quoted};

/// The orchestrator of pods.
const ORCHESTRATOR: &str = "k8s";

/// The interface of a pod.
const INTERFACE: &str = "eth0";

/// The labels that the conversion sets.
const NAMESPACE_LABEL: &str = "projectcalico.org/namespace";
const ORCHESTRATOR_LABEL: &str = "projectcalico.org/orchestrator";
const ACCOUNT_LABEL: &str = "projectcalico.org/serviceaccount";

/// Length of a service account's name from which Calico sets no label, in octets.
const ACCOUNT_LABEL_OCTETS: usize = 63;

/// The annotations with addresses, in the order of their precedence, behind the status.
const POD_IPS: &str = "cni.projectcalico.org/podIPs";
const POD_IP: &str = "cni.projectcalico.org/podIP";
const AWS_POD_IPS: &str = "vpc.amazonaws.com/pod-ips";

/// The annotation with the container of a pod.
const CONTAINER_ID: &str = "cni.projectcalico.org/containerID";

/// The data of a pod for its workload endpoint.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodEndpoint {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// The name of its node in Kubernetes.
    pub node: String,
    /// The labels of the endpoint. It inherits further ones from [`Self::profiles`].
    pub labels: Labels,
    /// The beginning of a name that the API server has completed.
    pub generate_name: String,
    /// Its service account.
    pub service_account: String,
    /// The profiles of its namespace and service account.
    pub profiles: Vec<String>,
    /// The ports of its containers that have a name or a port of the host.
    pub ports: Vec<EndpointPort>,
    /// Its addresses. A pod that has ended has none: another one may have them.
    pub addresses: Vec<Network>,
    /// Its container, as an annotation has it.
    pub container_id: String,
    /// Whether it has ended.
    pub is_finished: bool,
}

/// Converts a Pod. One that uses its host's network, or that no node has yet, has no endpoint.
pub fn pod(value: &Value) -> Converted<PodEndpoint> {
    let (mut reports, is_valid) = begin("Pod", value, true);
    if !is_valid {
        return reports.unreadable();
    }
    let spec = &value["spec"];
    let parts = match parts(value, spec) {
        Ok(parts) => parts,
        Err(fault) => {
            reports.fault(fault, "the endpoint stays as it is");
            return reports.unreadable();
        }
    };
    let Some(Parts {
        own,
        annotations,
        node,
        account,
    }) = parts
    else {
        return reports.done(Outcome::Absent);
    };
    let namespace = reports.object.namespace.clone();
    let mut profiles = vec![namespace_profile(&namespace)];
    if !account.is_empty() {
        profiles.push(account_profile(&namespace, &account));
    }
    let is_finished = is_finished(value, &annotations);
    let endpoint = PodEndpoint {
        pod: reports.object.name.clone(),
        node,
        labels: own_labels(own, &namespace, &account, &mut reports),
        generate_name: text(&value["metadata"]["generateName"]).to_owned(),
        service_account: account,
        profiles,
        ports: ports(spec, &mut reports),
        addresses: match is_finished {
            true => Vec::new(),
            false => addresses(&value["status"], &annotations, &mut reports),
        },
        container_id: annotations.get(CONTAINER_ID).cloned().unwrap_or_default(),
        is_finished,
        namespace,
    };
    reports.done(Outcome::Resource(endpoint))
}

/// The parts of a pod without which nothing is certain.
struct Parts {
    own: Labels,
    annotations: Labels,
    node: String,
    account: String,
}

/// Reads these parts; `None` for a pod without an endpoint.
fn parts(value: &Value, spec: &Value) -> Result<Option<Parts>, Fault> {
    let is_on_host = match &spec["hostNetwork"] {
        Value::Null => false,
        Value::Bool(is_on_host) => *is_on_host,
        other => return Err(("spec.hostNetwork".to_owned(), not(other, "true or false"))),
    };
    let node = name_in(spec, "nodeName")?;
    if is_on_host || node.is_empty() {
        return Ok(None);
    }
    Ok(Some(Parts {
        own: labels(value)?,
        annotations: annotations(value)?,
        node,
        account: name_in(spec, "serviceAccountName")?,
    }))
}

/// Reads the name of an object; empty if it is missing.
fn name_in(spec: &Value, field: &str) -> Result<String, Fault> {
    match &spec[field] {
        Value::Null => Ok(String::new()),
        Value::String(name) if name.is_empty() || is_resource_name(name) => Ok(name.clone()),
        other => Err((format!("spec.{field}"), not(other, "a name"))),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl PodEndpoint {
    /// Returns the name of the endpoint on a node of Calico.
    ///
    /// # Errors
    ///
    /// A name does not fit: one that begins or ends with a dash.
    pub fn name(&self, node: &str) -> Result<EndpointName, EndpointNameError> {
        EndpointName::new(node, ORCHESTRATOR, &self.pod, INTERFACE)
    }

    /// Returns the endpoint on a node of Calico, with the interface on the host's side.
    ///
    /// # Errors
    ///
    /// As [`Self::name`].
    pub fn workload_endpoint(
        &self,
        node: &str,
        interface: &str,
    ) -> Result<Resource<WorkloadEndpointSpec>, EndpointNameError> {
        let spec = WorkloadEndpointSpec {
            orchestrator: ORCHESTRATOR.to_owned(),
            node: node.to_owned(),
            container_id: self.container_id.clone(),
            pod: self.pod.clone(),
            endpoint: INTERFACE.to_owned(),
            service_account_name: self.service_account.clone(),
            ip_networks: self.addresses.clone(),
            profiles: self.profiles.clone(),
            interface_name: interface.to_owned(),
            ports: self.ports.clone(),
            ..WorkloadEndpointSpec::default()
        };
        let name = self.name(node)?.to_string();
        let mut resource = Resource::namespaced(&self.namespace, &name, spec);
        resource.metadata.labels.clone_from(&self.labels);
        Ok(resource)
    }

    /// Sets the labels and the service account of a stored endpoint. Returns whether it has changed.
    pub fn update(&self, endpoint: &mut Resource<WorkloadEndpointSpec>) -> bool {
        let labels = &mut endpoint.metadata.labels;
        let account = &mut endpoint.spec.service_account_name;
        let is_changed = *labels != self.labels || *account != self.service_account;
        labels.clone_from(&self.labels);
        account.clone_from(&self.service_account);
        is_changed
    }
}

/// Returns the labels. A pod cannot have those that it inherits, nor the account of another pod.
fn own_labels(mut own: Labels, namespace: &str, account: &str, reports: &mut Reports) -> Labels {
    let is_reserved = |key: &str| {
        let prefixes = [NAMESPACE_LABELS, ACCOUNT_LABELS];
        let mut prefixes = prefixes.iter();
        prefixes.any(|prefix| key.starts_with(prefix)) || key == ACCOUNT_LABEL
    };
    for key in own.keys().filter(|key| is_reserved(key)) {
        let field = format!("metadata.labels[{key}]");
        reports.add(field, "the label is reserved; it is left out");
    }
    own.retain(|key, _| !is_reserved(key));
    let mut set = |key: &str, value: &str| own.insert(key.to_owned(), value.to_owned());
    set(NAMESPACE_LABEL, namespace);
    set(ORCHESTRATOR_LABEL, ORCHESTRATOR);
    if !account.is_empty() && account.len() < ACCOUNT_LABEL_OCTETS {
        set(ACCOUNT_LABEL, account);
    }
    own
}

/// Returns the ports with a name or a port of the host.
fn ports(spec: &Value, reports: &mut Reports) -> Vec<EndpointPort> {
    let mut all = Vec::new();
    for field in ["containers", "initContainers"] {
        let containers = elements(&spec[field], format!("spec.{field}"), reports);
        for (path, container) in containers {
            let path = format!("{path}.ports");
            for (path, value) in elements(&container["ports"], path, reports) {
                match port(value) {
                    Ok(port) => all.extend(port),
                    Err(reason) => reports.add(path, format!("{reason}; the port is left out")),
                }
            }
        }
    }
    all
}

/// Returns the elements of a list with their paths.
fn elements<'v>(
    value: &'v Value,
    path: String,
    reports: &mut Reports,
) -> impl Iterator<Item = (String, &'v Value)> + use<'v> {
    let found = list(value, &path).unwrap_or_else(|fault| {
        reports.fault(fault, "its ports are left out");
        &[]
    });
    let found = found.iter().enumerate();
    found.map(move |(at, value)| (format!("{path}[{at}]"), value))
}

/// Reads a port of a container; `None` for one that rules cannot refer to.
fn port(value: &Value) -> Result<Option<EndpointPort>, String> {
    let name = match &value["name"] {
        Value::Null => "",
        Value::String(name) if name.is_empty() || is_name(name) => name,
        other => return Err(not(other, "the name of a port")),
    };
    let host_port = match &value["hostPort"] {
        Value::Null => 0,
        zero if zero.as_u64() == Some(0) => 0,
        other => number(other).ok_or_else(|| not(other, "a port of the host"))?,
    };
    if name.is_empty() && host_port == 0 {
        return Ok(None);
    }
    let number = match &value["containerPort"] {
        zero if zero.as_u64() == Some(0) => return Ok(None),
        other => number(other).ok_or_else(|| not(other, "a port"))?,
    };
    let protocol = match &value["protocol"] {
        Value::Null => "TCP",
        empty if empty == "" => "TCP",
        name => protocol(name).ok_or_else(|| not(name, "TCP, UDP or SCTP"))?,
    };
    Ok(Some(EndpointPort {
        name: name.to_owned(),
        protocol: protocol.into(),
        port: number,
        host_port,
        host_ip: text(&value["hostIP"]).to_owned(),
        ..EndpointPort::default()
    }))
}

/// Returns whether the pod has ended, so that its addresses may be those of another one.
fn is_finished(value: &Value, annotations: &Labels) -> bool {
    let is_deleted = !value["metadata"]["deletionTimestamp"].is_null();
    // The CNI plugin empties the annotation when it has removed the network.
    let is_empty = |name: &str| annotations.get(name).is_some_and(String::is_empty);
    let phase = value["status"]["phase"].as_str();
    (is_deleted && (is_empty(POD_IP) || is_empty(AWS_POD_IPS)))
        || matches!(phase, Some("Failed" | "Succeeded" | "Completed"))
}

/// Returns the addresses: those of the status, or of the first annotation that has some.
fn addresses(status: &Value, annotations: &Labels, reports: &mut Reports) -> Vec<Network> {
    let text = |value: &Value| text(value).to_owned();
    let of_status = status["podIPs"].as_array().into_iter().flatten();
    let of_status: Vec<String> = of_status.map(|entry| text(&entry["ip"])).collect();
    let one = vec![text(&status["podIP"])];
    let annotated = [POD_IPS, POD_IP, AWS_POD_IPS].map(|name| {
        let texts = annotations.get(name).map(|text| text.split(','));
        let texts = texts.into_iter().flatten();
        texts.map(|text| text.trim().to_owned()).collect()
    });
    let mut sources = [of_status, one].into_iter().chain(annotated);
    let given = sources.find(|texts: &Vec<String>| texts.iter().any(|text| !text.is_empty()));
    let mut all = Vec::new();
    for text in given.unwrap_or_default() {
        let address = text.parse::<Network>().ok();
        match address.filter(|found| found.is_host() && !is_mapped(found.address())) {
            Some(address) if all.contains(&address) => {}
            Some(address) => all.push(address),
            None => {
                let found = quoted(&text.into());
                reports.add(
                    "status.podIPs",
                    format!("{found} is not an address; it is left out"),
                );
            }
        }
    }
    all
}

#[cfg(test)]
mod tests;
