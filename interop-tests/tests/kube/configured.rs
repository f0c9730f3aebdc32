//! KubeControllersConfiguration, and Calico's controllers beside this one.

use cambric_kube::{Controller, Watched};
use etcd_lite::Local;
use interop_tests::ApiServer;
use serde_json::{Value, json};

use crate::rig::{
    LOOPBACK, access, get, key, namespace, policy, put, ready_store, revision, run, settle, start,
    until, until_stored,
};

const SETTINGS: &str = "kubecontrollersconfigurations/default";
const CLOSED: &str = "networkpolicies/prod/knp.default.closed";

/// Returns the resource with these controllers.
fn settings(controllers: &Value) -> Value {
    json!({"kind": "KubeControllersConfiguration", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "default", "uid": "7"}, "spec": {"controllers": controllers}})
}

/// Returns the resource as Calico's controllers write it: with their own status.
fn of_calico(controllers: &Value) -> Value {
    let mut all = settings(controllers);
    all["status"] = json!({"environmentVars": {"ENABLED_CONTROLLERS": "node"},
        "runningConfig": {"controllers": controllers}});
    all
}

fn all() -> Value {
    json!({"node": {}, "policy": {}, "namespace": {}, "serviceAccount": {}, "workloadEndpoint": {}})
}

async fn filled() -> ApiServer {
    let server = ApiServer::start(LOOPBACK, 1).await;
    server.apply(namespace("prod"));
    server.apply(policy("closed"));
    server
}

/// Runs a controller until it has stood down.
async fn until_stood_down(controller: &mut Controller) {
    until(controller, "it stands down", |controller| {
        !controller.is_leading()
    })
    .await;
}

/// Checks that a change of an object causes no write.
async fn is_quiet(controller: &mut Controller, server: &ApiServer, store: &Local) {
    let before = revision(store).await;
    server.apply(namespace("late"));
    let is_known = |controller: &Controller| controller.objects().namespace("late").is_some();
    until(controller, "another object", is_known).await;
    settle(controller).await;
    assert_eq!(revision(store).await, before, "a write");
}

// Promise (Kubernetes): The controllers that KubeControllersConfiguration disables write and delete
// nothing, and its status has the settings in effect.
#[test]
fn disabled_controllers_write_nothing() {
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        put(
            &store,
            SETTINGS,
            settings(&json!({"namespace": {}, "node": {}})),
        )
        .await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        assert!(get(&store, "profiles/kns.prod").await.is_some());
        assert_eq!(get(&store, CLOSED).await, None);
        let stored = get(&store, SETTINGS).await.expect("the resource");
        let running = &stored["status"]["runningConfig"]["controllers"];
        assert!(running["namespace"].is_object() && running["policy"].is_null());
        assert_eq!(stored["metadata"]["uid"], "7");
        // A change takes effect without a restart.
        put(&store, SETTINGS, settings(&all())).await;
        until_stored(&mut controller, CLOSED, true).await;
        put(&store, SETTINGS, settings(&json!({}))).await;
        until(&mut controller, "the settings", |controller| {
            let found = controller.stored().get(&key(SETTINGS));
            found.is_some_and(|found| {
                let value: Value = serde_json::from_slice(&found.octets).unwrap_or_default();
                value["status"]["runningConfig"]["controllers"] == json!({})
            })
        })
        .await;
        server.remove("NetworkPolicy", "prod", "closed");
        let is_known = |controller: &Controller| {
            controller.objects().count(Watched::NetworkPolicy) == 0 && controller.is_settled()
        };
        until(&mut controller, "the deletion", is_known).await;
        assert!(
            get(&store, CLOSED).await.is_some(),
            "a disabled controller deletes"
        );
    });
}

#[test]
fn nodes_have_automatic_host_endpoints() {
    run(async {
        let server = filled().await;
        server.apply(json!({"kind": "Node", "metadata": {"name": "h1", "labels": {"rack": "r1"}}}));
        let store = ready_store().await;
        let node = json!({"metadata": {"name": "h1"}, "spec": {
            "bgp": {"ipv4Address": "10.0.0.1/24"}, "ipv4VXLANTunnelAddr": "10.65.0.1",
            "addresses": [{"address": "10.0.0.1", "type": "InternalIP"},
                {"address": "10.9.0.1", "type": "InternalIP"}]}});
        put(&store, "nodes/h1", node).await;
        let foreign = json!({"metadata": {"name": "h2-auto-hep"}, "spec": {"node": "h2"}});
        put(&store, "hostendpoints/h2-auto-hep", &foreign).await;
        let auto = json!({"node": {"hostEndpoint": {"autoCreate": "Enabled"}}});
        put(&store, SETTINGS, settings(&auto)).await;
        let mut controller = start(&store, access(&server));
        let path = "hostendpoints/h1-auto-hep";
        until_stored(&mut controller, path, true).await;
        let endpoint = get(&store, path).await.expect("a host endpoint");
        let labels = &endpoint["metadata"]["labels"];
        assert_eq!(labels["rack"], "r1");
        assert_eq!(
            labels["projectcalico.org/created-by"],
            "calico-kube-controllers"
        );
        assert_eq!(
            endpoint["spec"],
            json!({"node": "h1", "interfaceName": "*", "profiles": ["projectcalico-default-allow"],
                "expectedIPs": ["10.0.0.1", "10.65.0.1", "10.9.0.1"]})
        );
        let before = revision(&store).await;
        drop(controller);
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        assert_eq!(revision(&store).await, before, "it is as it should be");
        put(&store, SETTINGS, settings(&json!({"node": {}}))).await;
        until_stored(&mut controller, path, false).await;
        let kept = get(&store, "hostendpoints/h2-auto-hep").await;
        assert_eq!(kept, Some(foreign), "that of another writer");
    });
}

// Promise (Kubernetes): Beside running calico-kube-controllers, the controller stands down, whichever
// of both starts first.
#[test]
fn controllers_of_calico_that_start_later_are_noticed() {
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        put(&store, SETTINGS, settings(&all())).await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        assert!(controller.is_leading());
        put(&store, SETTINGS, of_calico(&all())).await;
        until_stood_down(&mut controller).await;
        is_quiet(&mut controller, &server, &store).await;
    });
}

// Promise: as interop-tests controllers_of_calico_that_start_later_are_noticed
#[test]
fn controllers_of_calico_that_run_already_are_noticed() {
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        put(&store, SETTINGS, of_calico(&all())).await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        // An old status does not prove that they run. They answer to its replacement.
        assert!(controller.is_leading());
        put(&store, SETTINGS, of_calico(&all())).await;
        until_stood_down(&mut controller).await;
        is_quiet(&mut controller, &server, &store).await;
    });
}

#[test]
fn writer_that_changes_back_again_and_again_is_noticed() {
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        let profile = key("profiles/kns.prod");
        for _ in 0..2 * cambric_kube::limits::REPAIRS_MAX {
            if !controller.is_leading() {
                break;
            }
            put(&store, "profiles/kns.prod", json!({"spec": {"x": 1}})).await;
            let at = revision(&store).await;
            let is_answered = |controller: &Controller| {
                let found = controller.stored().get(&profile);
                !controller.is_leading() || found.is_some_and(|found| found.revision.0 > at)
            };
            until(&mut controller, "a repair", is_answered).await;
        }
        assert!(!controller.is_leading());
        is_quiet(&mut controller, &server, &store).await;
    });
}
