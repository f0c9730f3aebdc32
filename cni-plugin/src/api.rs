//! The API server of Kubernetes: the pod of an attachment, its namespace and its node.

use std::collections::BTreeMap;

use calico_kubernetes::{AddressRequest, Converted, KubeNode, Outcome, PodEndpoint};
use calico_model::is_resource_name;
use kube_client::{Failure as Unanswered, Server};
use serde_json::Value;
use tokio::time::timeout;

use crate::config::Config;
use crate::failure::{Code, Failure};
use crate::identity::Identity;
use crate::limits::API_TIMEOUT;
use crate::pod_networks;
use crate::request::Request;
use crate::server::ApiServer;

/// The argument of the runtime with the UID of the pod.
pub(crate) const POD_UID: &str = "K8S_POD_UID";

/// The annotation with which the API server shows the UID of a pod that the kubelet reads from a file.
const FILE_UID: &str = "kubernetes.io/config.hash";

/// A pod as the API server has it.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) endpoint: PodEndpoint,
    pub(crate) request: Converted<AddressRequest>,
    /// The labels of its namespace, with the prefix for those that endpoints inherit.
    pub(crate) namespace: BTreeMap<String, String>,
}

impl ApiServer {
    /// Reads the pod of an attachment and its namespace. `uid` is that of the runtime's pod, if known.
    pub(crate) async fn pod(&self, identity: &Identity, uid: Option<&str>) -> Result<Pod, Failure> {
        let Identity { namespace, pod, .. } = identity;
        for (name, variable) in [(namespace, "K8S_POD_NAMESPACE"), (pod, "K8S_POD_NAME")] {
            // It becomes a part of a path.
            if !is_resource_name(name) {
                let message = format!("CNI_ARGS: {variable}: is not a name of Kubernetes");
                return Err(Failure::new(Code::Environment, message));
            }
        }
        let mut reading = Reading::begin(self)?;
        let read = async {
            let of_namespace = reading
                .object(&format!("/api/v1/namespaces/{namespace}"))
                .await?;
            let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
            Ok((of_namespace, reading.object(&path).await?))
        };
        let (of_namespace, of_pod) = within(read).await?;
        if let Some(uid) = uid.filter(|uid| !is_of(&of_pod, uid)) {
            let message =
                format!("Pod {namespace}/{pod}: the API server has another one than {uid}");
            return Err(Failure::new(Code::Later, message));
        }
        let endpoint = converted(calico_kubernetes::pod(&of_pod))?;
        let profile = converted(calico_kubernetes::namespace(&of_namespace))?;
        Ok(Pod {
            endpoint,
            request: calico_kubernetes::address_request(&of_namespace, &of_pod),
            namespace: profile.spec.labels_to_apply,
        })
    }

    /// Reads the node.
    pub(crate) async fn node(&self, name: &str) -> Result<KubeNode, Failure> {
        let name = self.node.as_deref().unwrap_or(name);
        if !is_resource_name(name) {
            let message = "kubernetes.node_name: is not the name of a node";
            return Err(Failure::new(Code::Config, message));
        }
        let mut reading = Reading::begin(self)?;
        let path = format!("/api/v1/nodes/{name}");
        let node = within(reading.object(&path)).await?;
        converted(calico_kubernetes::node(&node))
    }
}

/// Returns the request of an ADD with the networks of this node in place of `usePodCidr`; `None` if the
/// configuration does not have it.
pub(crate) async fn with_pod_networks(
    request: &Request,
    config: &Config,
) -> Result<Option<Request>, Failure> {
    let api = config.api.as_ref();
    let Some(api) = api.filter(|_| pod_networks::are_wanted(&request.config)) else {
        return Ok(None);
    };
    let node = api.node(&config.node).await?;
    let mut prepared = request.clone();
    pod_networks::fill_in(&mut prepared.config, &node.name, &node.pod_networks)?;
    Ok(Some(prepared))
}

/// A connection to the server.
struct Reading {
    server: Server,
    authority: String,
}

impl Reading {
    fn begin(of: &ApiServer) -> Result<Self, Failure> {
        let access = of.access()?;
        Ok(Self {
            authority: access.authority(),
            server: Server::new(access),
        })
    }

    async fn object(&mut self, path: &str) -> Result<Value, Failure> {
        let read = self.server.object(path).await;
        read.map_err(|error| {
            let message = format!("the API server {}: GET {path}: {error}", self.authority);
            let failure = Failure::new(Code::Later, message);
            match error {
                Unanswered::Rejected {
                    code: 401 | 403, ..
                } => failure.details(
                    "the kubeconfig of the plugin needs the right to get pods, nodes and namespaces: \
                     `cambric kube check`",
                ),
                _ => failure,
            }
        })
    }
}

async fn within<T>(reading: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let read = timeout(API_TIMEOUT, reading).await;
    read.unwrap_or_else(|_| {
        let message = format!("the API server took more than {API_TIMEOUT:?}");
        Err(Failure::new(Code::Later, message))
    })
}

/// Returns whether a pod has this UID. The kubelet gives a pod of a file another one than the server.
fn is_of(pod: &Value, uid: &str) -> bool {
    let metadata = &pod["metadata"];
    [&metadata["uid"], &metadata["annotations"][FILE_UID]]
        .iter()
        .any(|own| own.as_str() == Some(uid))
}

/// Returns a resource, or the reason why the object has none.
fn converted<T>(converted: Converted<T>) -> Result<T, Failure> {
    let reason = match converted.outcome {
        Outcome::Resource(resource) => return Ok(resource),
        Outcome::Absent => "the pod has no node, or the network of its host".to_owned(),
        Outcome::Unreadable => {
            let reports = converted.reports.iter().map(ToString::to_string);
            reports.collect::<Vec<_>>().join("; ")
        }
    };
    Err(Failure::new(Code::Later, reason))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_of_a_file_has_two_uids() {
        let pod =
            json!({"metadata": {"uid": "a", "annotations": {"kubernetes.io/config.hash": "b"}}});
        assert!(is_of(&pod, "a") && is_of(&pod, "b"));
        assert!(!is_of(&pod, "c"));
        assert!(!is_of(&json!({}), ""));
    }
}
