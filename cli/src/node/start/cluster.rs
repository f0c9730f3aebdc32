//! Requests of a node's start to the API server of Kubernetes.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use calico_manifests::documents;
use calico_model::{Network, is_resource_name, rfc3339_utc};
use kube_client::{Failure, Server};
use serde_json::{Value, json};

use super::limits::{TOKEN_AGE_MIN, TOKEN_LIFETIME};

/// The object with the settings of kubeadm.
const KUBEADM: &str = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config";

/// The API server, and this node there.
#[derive(Debug)]
pub(super) struct Cluster {
    server: Server,
    node: String,
    namespace: String,
    account: String,
}

/// A token, and the time until it is replaced.
pub(super) struct Token {
    pub(super) text: String,
    pub(super) age_max: Duration,
}

impl Cluster {
    pub(super) fn new(server: Server, node: &str, namespace: &str, account: &str) -> Result<Self> {
        // They become parts of paths.
        for (what, name) in [
            ("CALICO_K8S_NODE_REF", node),
            ("the namespace of this pod", namespace),
            ("CALICO_CNI_SERVICE_ACCOUNT", account),
        ] {
            if !is_resource_name(name) {
                bail!("{what}: is not a name of Kubernetes");
            }
        }
        Ok(Self {
            server,
            node: node.to_owned(),
            namespace: namespace.to_owned(),
            account: account.to_owned(),
        })
    }

    /// Returns the internal addresses of this node.
    pub(super) async fn internal_addresses(&mut self) -> Result<Vec<IpAddr>> {
        let path = format!("/api/v1/nodes/{}", self.node);
        let node = self.server.object(&path).await;
        let node = calico_kubernetes::node(&node.with_context(|| format!("GET {path}"))?);
        let node = node.resource().context("the Node is unreadable")?;
        let internal = node.addresses.iter();
        let internal = internal.filter(|address| address.source == "InternalIP");
        Ok(internal
            .filter_map(|address| address.address.parse().ok())
            .collect())
    }

    /// Returns the networks of pods in the settings of kubeadm; none if there are no such settings.
    pub(super) async fn pod_networks(&mut self) -> Result<Vec<Network>> {
        let settings = match self.server.object(KUBEADM).await {
            Ok(settings) => settings,
            Err(failure) if failure.is_missing() => return Ok(Vec::new()),
            Err(failure) => return Err(failure).context(format!("GET {KUBEADM}")),
        };
        let text = settings["data"]["ClusterConfiguration"].as_str();
        pod_networks(text.unwrap_or_default())
    }

    /// Sets the condition NetworkUnavailable of this node. Other conditions stay.
    pub(super) async fn set_network(&mut self, is_up: bool) -> Result<(), Failure> {
        let path = format!("/api/v1/nodes/{}/status", self.node);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = rfc3339_utc(now.unwrap_or_default().as_secs());
        let patch = condition(is_up, &now);
        let patched = self.server.patch_strategically(&path, &patch).await;
        patched.map(drop)
    }

    /// Requests a token for the service account of the CNI plugin.
    pub(super) async fn token(&mut self) -> Result<Token> {
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}/token",
            self.namespace, self.account
        );
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_LIFETIME.as_secs()}});
        let answer = self.server.create(&path, &request).await;
        token(&answer.with_context(|| format!("POST {path}"))?)
    }
}

/// Reads the answer to a request for a token. The server may set another lifetime.
fn token(answer: &Value) -> Result<Token> {
    let text = answer["status"]["token"].as_str().unwrap_or_default();
    if text.is_empty() {
        bail!("the answer of the API server has no token");
    }
    let lifetime = answer["spec"]["expirationSeconds"].as_u64();
    let lifetime = lifetime.map_or(TOKEN_LIFETIME, Duration::from_secs);
    Ok(Token {
        text: text.to_owned(),
        age_max: (lifetime.min(TOKEN_LIFETIME) / 2).max(TOKEN_AGE_MIN),
    })
}

/// Returns the patch for the condition, with Calico's reasons and messages.
fn condition(is_up: bool, now: &str) -> Value {
    let (status, reason, message) = match is_up {
        true => ("False", "CalicoIsUp", "Calico is running on this node"),
        false => (
            "True",
            "CalicoIsDown",
            "Calico is shutting down on this node",
        ),
    };
    json!({"status": {"conditions": [{"type": "NetworkUnavailable", "status": status,
        "reason": reason, "message": message,
        "lastTransitionTime": now, "lastHeartbeatTime": now}]}})
}

fn pod_networks(text: &str) -> Result<Vec<Network>> {
    let read = documents(Path::new("kubeadm-config"), text);
    // Its text has the place of the mistake.
    let read = read.map_err(|mistakes| anyhow::anyhow!("{mistakes}"))?;
    let subnets = read.iter().map(calico_manifests::Document::value);
    let subnets = subnets.filter_map(|value| {
        let subnet = value["networking"]["podSubnet"].as_str();
        subnet.map(str::to_owned)
    });
    let subnets: Vec<String> = subnets.collect();
    let networks = subnets.iter().flat_map(|list| list.split(','));
    networks
        .map(|text| {
            let network = text.trim().parse::<Network>();
            network
                .with_context(|| format!("kubeadm-config: podSubnet: \"{text}\" is not a network"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_pods_are_read_from_kubeadm() {
        let text = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n\
                    networking:\n  podSubnet: 10.244.0.0/16, fd24::/56\n";
        let networks = pod_networks(text).expect("networks");
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["10.244.0.0/16", "fd24::/56"]);
        assert_eq!(
            pod_networks("kind: ClusterConfiguration\n").expect("none"),
            []
        );
        assert!(pod_networks("networking: {podSubnet: x}\n").is_err());
    }

    #[test]
    fn token_is_replaced_after_half_of_its_lifetime() {
        let answer = |lifetime: Value| {
            let answer = json!({"spec": {"expirationSeconds": lifetime}, "status": {"token": "t"}});
            token(&answer).expect("a token").age_max
        };
        assert_eq!(answer(json!(3600)), Duration::from_secs(1800));
        // A server may set a longer lifetime than requested, or one that is nearly over.
        assert_eq!(answer(json!(10_u64.pow(9))), TOKEN_LIFETIME / 2);
        assert_eq!(answer(json!(1)), TOKEN_AGE_MIN);
        assert_eq!(answer(Value::Null), TOKEN_LIFETIME / 2);
        assert!(token(&json!({"status": {}})).is_err());
    }
}
