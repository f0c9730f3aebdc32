//! Pods of Kubernetes: the plugin with a kubeconfig, as Calico's manifest configures it, and the
//! controller with an API server.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use calico_model::{Kind, ResourceKey};
use daemon_common::client::call;
use daemon_common::report::Status;
use daemon_common::{Command, Reply};
use interop_tests::{ApiServer, PATIENCE, Site, in_ground, own};
use netns_lab::{Error, Process, Program, until};
use serde_json::{Value, json};

use crate::host::{Backing, Container, Fabric, Node, addresses};
use crate::policed::{PORTS, connect, is_cut_off, listen};

/// How long one attempt to connect takes.
const ATTEMPT: Duration = Duration::from_secs(1);

/// The address of the API server: the test itself.
pub(crate) fn api_address() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Site::v4(254)), 6443)
}

fn pod(name: &str, node: u8) -> Value {
    json!({"kind": "Pod",
        "metadata": {"name": name, "namespace": "prod", "labels": {"app": name}},
        "spec": {"nodeName": format!("h{node}"), "serviceAccountName": "web",
            "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": PORTS[0]}]}]}})
}

/// Returns a policy of the server with these ingress rules.
fn policy(ingress: Value) -> Value {
    json!({"kind": "NetworkPolicy", "metadata": {"name": "server", "namespace": "prod"},
        "spec": {"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"],
            "ingress": ingress}})
}

fn control(site: &Site) -> PathBuf {
    site.host.directory().join("kube.sock")
}

pub(crate) fn start_controller(fabric: &Fabric, site: &Site) -> Process {
    let text = format!(
        "control = {:?}\n{}[kubernetes]\nserver = \"http://{}\"\n",
        control(site),
        fabric.datastore(),
        api_address()
    );
    let path = site.save("kube.toml", &text);
    let program = Program::new(own("cambric-kube")).arg("--config").arg(path);
    let controller = site.host.spawn("kube", &program);
    controller.expect("the controller")
}

/// Waits until the controller reports that it is ready, and returns its status.
pub(crate) async fn ready(site: &Site) -> Status {
    let ready = until::<Status, Error>(PATIENCE, "the controller is ready", async || {
        Ok(match call(&control(site), &Command::Status {}).await {
            Ok(Reply::Status(status)) if status.ready => Ok(status),
            other => Err(format!("{other:?}")),
        })
    });
    ready.await.unwrap().0
}

/// Waits until the client can connect.
async fn is_open(from: &Container, to: IpAddr, port: u16) {
    let what = format!("{to} port {port} is open");
    until::<(), Error>(PATIENCE, &what, async || {
        let connected = connect(from, to, port, ATTEMPT);
        Ok(connected.map(drop).map_err(|error| error.to_string()))
    })
    .await
    .unwrap();
}

// Promise (Kubernetes): With the controller, pods with the profiles of Calico's CNI configuration
// communicate, and a NetworkPolicy of the API server applies to their packets.
#[test]
fn network_policy_of_the_api_server_filters_packets() {
    if interop_tests::foreign("nft").is_none() {
        return;
    }
    in_ground(
        &[],
        "cni and the controller of Kubernetes",
        async |ground| {
            let Some(fabric) = Fabric::new(ground, Backing::Etcd).await else {
                return;
            };
            let mut nodes = [fabric.node(1).await, fabric.node(2).await];
            nodes.iter_mut().for_each(Node::start_bgp);
            let [here, there] = &nodes;
            let api = ApiServer::start(api_address(), 1).await;
            api.apply(json!({"kind": "Namespace", "metadata": {"name": "prod"}}));
            let account = json!({"name": "web", "namespace": "prod"});
            api.apply(json!({"kind": "ServiceAccount", "metadata": account}));
            api.apply(pod("client", 1));
            api.apply(pod("server", 2));
            let kubeconfig = here.site.save("kubeconfig", &api.kubeconfig(None, None));
            // The names and fields of Calico's manifest.
            let more = json!({"kubernetes": {"kubeconfig": kubeconfig}, "type": "calico",
                "ipam": {"type": "calico-ipam", "assign_ipv6": "true"}, "cniVersion": "1.0.0",
                "mtu": 0, "log_level": "info", "log_file_path": "/var/log/calico/cni/cni.log"});
            let (client, server) = (
                Container::new(&fabric, "client").await.of_kubelet("client"),
                Container::new(&fabric, "server").await.of_kubelet("server"),
            );
            let own = here.asks("ADD", &client, &here.network(more.clone())).await;
            own.expect("connected");
            let served = there.asks("ADD", &server, &there.network(more)).await;
            let served = addresses(&served.expect("connected"));
            let _listening = listen(&server);
            // The plugin leaves the profiles to the controller.
            let profile = ResourceKey::new(Kind::Profile, None, "kns.prod").expect("a key");
            assert!(fabric.resources.get(&profile).await.is_err());

            for node in ["h1", "h2"] {
                api.apply(json!({"kind": "Node", "metadata": {"name": node}}));
            }
            let site = fabric.ground.site(20).await.expect("a host");
            let _controller = start_controller(&fabric, &site);
            let status = ready(&site).await;
            assert_eq!(status.daemon, "cambric-kube");
            assert!(status.notes.is_empty(), "{:?}", status.notes);
            let known = |name: &str| {
                let mut facts = status.facts.iter();
                let fact = facts.find(|fact| fact.name == name);
                fact.map(|fact| fact.value.clone()).unwrap_or_default()
            };
            assert_eq!(known("NetworkPolicy"), "0, complete");
            assert_eq!(known("Pod"), "2, complete");
            for (to, port) in served.iter().zip(PORTS) {
                is_open(&client, *to, port).await;
            }

            // Without a rule the policy isolates the server.
            api.apply(policy(json!([])));
            for to in &served {
                is_cut_off(there, &client, *to, PORTS[0], true).await;
                is_cut_off(there, &client, *to, PORTS[1], true).await;
            }
            // A rule with a port by name, for pods with a label.
            let from = json!([{"podSelector": {"matchLabels": {"app": "client"}}}]);
            api.apply(policy(json!([{"from": from, "ports": [{"port": "http"}]}])));
            for to in &served {
                is_open(&client, *to, PORTS[0]).await;
                is_cut_off(there, &client, *to, PORTS[1], false).await;
            }
            api.remove("NetworkPolicy", "prod", "server");
            for to in &served {
                is_open(&client, *to, PORTS[1]).await;
            }
        },
    );
}
