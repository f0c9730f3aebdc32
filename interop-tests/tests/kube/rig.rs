//! A controller in this process, with an API server on loopback and a store in memory.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use calico_model::RESOURCES_PREFIX;
use calico_store::{KeyRange, LeaseId, Store as _};
use cambric_kube::{Access, Controller, Options, Target, Trust};
use etcd_lite::Local;
use interop_tests::{ApiServer, PATIENCE, READY};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Any free port of loopback.
pub(crate) const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How often a condition is evaluated without an input.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs a test.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(test);
}

/// Returns the access of the controller to a server without TLS. From then on the server allows only what the
/// shipped manifests allow the controller.
pub(crate) fn access(server: &ApiServer) -> Access {
    server.enforce("cambric-kube");
    Access::new(&server.url(), Trust::default()).expect("a URL")
}

/// Returns an empty store that is ready.
pub(crate) async fn ready_store() -> Local {
    let store = Local::empty();
    put(&store, "clusterinformations/default", READY).await;
    store
}

/// Writes a resource: the part of its key after the common prefix, and its JSON.
pub(crate) async fn put(store: &Local, path: &str, value: impl ToString) {
    let key = format!("{RESOURCES_PREFIX}{path}");
    let value = value.to_string();
    let written = store.put(key.into(), value.into(), LeaseId::NONE).await;
    written.expect("written");
}

/// Reads a resource.
pub(crate) async fn get(store: &Local, path: &str) -> Option<Value> {
    let found = store.get(format!("{RESOURCES_PREFIX}{path}").into()).await;
    let found = found.expect("an answer")?;
    Some(serde_json::from_slice(&found.value).expect("JSON"))
}

/// Returns the number of writes that the store has seen.
pub(crate) async fn revision(store: &Local) -> i64 {
    let listing = store.list(KeyRange::all()).await.expect("a list");
    listing.header.revision.0
}

pub(crate) fn start(store: &Local, access: Access) -> Controller {
    Controller::start(Arc::new(store.clone()), access, Options::default())
}

/// Runs the controller until a condition holds.
pub(crate) async fn until(
    controller: &mut Controller,
    what: &str,
    condition: impl Fn(&Controller) -> bool,
) {
    let run = async {
        loop {
            let more = controller.step();
            if condition(controller) {
                return;
            }
            if more {
                continue;
            }
            // A condition on the server changes without an input of the controller.
            if let Ok(input) = timeout(LOOK_EVERY, controller.wait()).await {
                controller.handle(input);
            }
        }
    };
    let done = timeout(PATIENCE, run).await;
    assert!(done.is_ok(), "not within {PATIENCE:?}: {what}");
}

/// Runs the controller until all is read, compared and written.
pub(crate) async fn settle(controller: &mut Controller) {
    until(controller, "settled", Controller::is_settled).await;
}

/// Runs the controller until a resource is stored, or deleted. The controller has then settled.
pub(crate) async fn until_stored(controller: &mut Controller, path: &str, is_stored: bool) {
    let key = key(path);
    let condition = |controller: &Controller| {
        controller.is_settled() && controller.stored().get(&key).is_some() == is_stored
    };
    until(controller, path, condition).await;
}

pub(crate) fn key(path: &str) -> Target {
    Target::parse(&format!("{RESOURCES_PREFIX}{path}")).expect("a key")
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({"kind": "Namespace", "metadata": {"name": name}})
}

pub(crate) fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "metadata": {"name": name, "namespace": "prod"}})
}

/// Returns a policy that isolates all pods of namespace `prod`.
pub(crate) fn policy(name: &str) -> Value {
    json!({"kind": "NetworkPolicy", "metadata": {"name": name, "namespace": "prod"},
        "spec": {"podSelector": {}}})
}

pub(crate) fn pod(name: &str, labels: Value) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "prod", "labels": labels},
        "spec": {"nodeName": "h1", "serviceAccountName": "web",
            "containers": [{"ports": [{"name": "http", "containerPort": 8080}]}]}})
}

/// Returns an endpoint as the plugin writes it.
pub(crate) fn endpoint(pod: &str) -> Value {
    let name = format!("h1-k8s-{pod}-eth0");
    json!({"kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "namespace": "prod", "uid": "7"},
        "spec": {"node": "h1", "orchestrator": "k8s", "pod": pod, "endpoint": "eth0",
            "interfaceName": "cali1", "ipNetworks": ["10.65.0.7/32"], "profiles": ["kns.prod"]}})
}
