//! Collection of addresses and Nodes by the objects of the API server.

use calico_store::{LeaseId, Store as _};
use cambric_kube::Controller;
use etcd_lite::Local;
use interop_tests::ApiServer;
use serde_json::{Value, json};

use crate::rig::{
    LOOPBACK, access, endpoint, get, namespace, pod, put, ready_store, run, settle, start, until,
    until_stored,
};

const BLOCK: &str = "/calico/ipam/v2/assignment/ipv4/block/10.65.3.64-29";

async fn write(store: &Local, key: &str, value: Value) {
    let value = value.to_string().into();
    let written = store.put(key.to_owned().into(), value, LeaseId::NONE).await;
    written.expect("written");
}

/// Writes a block of host `h1` with an address for each of these attributes.
async fn block(store: &Local, attributes: &[Value]) {
    let count = attributes.len();
    let all = attributes
        .iter()
        .enumerate()
        .map(|(at, secondary)| json!({"handle_id": format!("net.{at}"), "secondary": secondary}));
    let places: Vec<_> = (0..8)
        .map(|at| if at < count { json!(at) } else { Value::Null })
        .collect();
    let free: Vec<_> = (count..8).collect();
    let sequences = (0..count).map(|at| (at.to_string(), json!(1)));
    let block = json!({"cidr": "10.65.3.64/29", "affinity": "host:h1", "allocations": places,
        "unallocated": free, "attributes": all.collect::<Vec<_>>(), "sequenceNumber": 2,
        "sequenceNumberForAllocation": sequences.collect::<serde_json::Map<_, _>>(),
        "deleted": false});
    write(store, BLOCK, block).await;
    for at in 0..count {
        let handle = json!({"block": {"10.65.3.64/29": 1}, "deleted": false});
        write(store, &format!("/calico/ipam/v2/handle/net.{at}"), handle).await;
    }
    let affinity = "/calico/ipam/v2/host/h1/ipv4/block/10.65.3.64-29";
    write(
        store,
        affinity,
        json!({"state": "confirmed", "deleted": false}),
    )
    .await;
}

fn of_pod(name: &str) -> Value {
    json!({"namespace": "prod", "pod": name, "node": "h1"})
}

/// Returns the handles of a block's addresses.
async fn handles(store: &Local) -> Vec<String> {
    let found = store.get(BLOCK.into()).await.expect("an answer");
    let value = found.expect("the block").value;
    let block: Value = serde_json::from_slice(&value).expect("JSON");
    let places = block["allocations"].as_array().expect("a list").iter();
    let of = |place: &Value| {
        let at = usize::try_from(place.as_u64()?).expect("a place");
        let handle = block["attributes"][at]["handle_id"].as_str();
        Some(handle.unwrap_or_default().to_owned())
    };
    places.filter_map(of).collect()
}

/// Returns a Node of the datastore that refers to one of the API server.
fn node(name: &str) -> Value {
    json!({"metadata": {"name": name},
        "spec": {"orchRefs": [{"orchestrator": "k8s", "nodeName": name}]}})
}

async fn filled(server: &ApiServer) -> Local {
    server.apply(namespace("prod"));
    server.apply(json!({"kind": "Node", "metadata": {"name": "h1"}}));
    let store = ready_store().await;
    put(&store, "nodes/h1", node("h1")).await;
    let settings = json!({"metadata": {"name": "default"}, "spec": {"controllers": {
        "node": {"reconcilerPeriod": "1s", "leakGracePeriod": "2s"}}}});
    put(&store, "kubecontrollersconfigurations/default", settings).await;
    store
}

/// Runs a controller for some looks.
async fn looks(controller: &mut Controller) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(6);
    let is_over = |_: &Controller| std::time::Instant::now() >= end;
    until(controller, "some looks", is_over).await;
}

// Promise (Kubernetes): The address of a pod that the API server does not have, and that no endpoint
// uses, is released after the grace period; no other address is.
#[test]
fn addresses_of_deleted_pods_are_released() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        let store = filled(&server).await;
        server.apply(pod("starts", json!({})));
        let mut used = endpoint("used");
        used["spec"]["ipNetworks"] = json!(["10.65.3.65/32"]);
        put(&store, "workloadendpoints/prod/h1-k8s-used-eth0", used).await;
        let tunnel = json!({"node": "h1", "type": "vxlanTunnelAddress"});
        let of_other = json!({"node": "h1", "instance": "vm-1"});
        let attributes = [
            of_pod("gone"),
            of_pod("used"),
            of_pod("starts"),
            tunnel,
            of_other,
        ];
        block(&store, &attributes).await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        assert_eq!(handles(&store).await.len(), 5, "before the grace period");
        looks(&mut controller).await;
        assert_eq!(handles(&store).await, ["net.1", "net.2", "net.3", "net.4"]);
        // The pod that had no endpoint yet is deleted.
        server.remove("Pod", "prod", "starts");
        looks(&mut controller).await;
        assert_eq!(handles(&store).await, ["net.1", "net.3", "net.4"]);
    });
}

// Promise (Kubernetes): No address is released while the list of the pods is incomplete.
#[test]
fn incomplete_list_of_pods_releases_nothing() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        let store = filled(&server).await;
        block(&store, &[of_pod("gone")]).await;
        server.deny("watch", "pods", true);
        let mut controller = start(&store, access(&server));
        looks(&mut controller).await;
        assert_eq!(handles(&store).await, ["net.0"]);
        server.deny("watch", "pods", false);
        let is_known = |controller: &Controller| {
            controller.failure(cambric_kube::Watched::Pod).is_none() && controller.is_settled()
        };
        until(&mut controller, "the watch", is_known).await;
        looks(&mut controller).await;
        assert!(handles(&store).await.is_empty());
    });
}

// Promise (Kubernetes): A Node of the datastore without a Node at the first start is kept until an
// operator confirms the server.
#[test]
fn unknown_nodes_at_the_first_start_are_kept() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        let store = filled(&server).await;
        put(&store, "nodes/h9", node("h9")).await;
        let mut controller = start(&store, access(&server));
        looks(&mut controller).await;
        assert_eq!(controller.held(), Some(&cambric_kube::Held::Unconfirmed));
        assert!(get(&store, "nodes/h9").await.is_some());
    });
}

// Promise (Kubernetes): A Node of the datastore is deleted with its endpoints after the API server has
// deleted it, and a Node of another orchestrator never.
#[test]
fn deleted_nodes_are_removed_from_the_datastore() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        let store = filled(&server).await;
        server.apply(json!({"kind": "Node", "metadata": {"name": "h9"}}));
        put(&store, "nodes/h9", node("h9")).await;
        put(
            &store,
            "nodes/vm",
            json!({"metadata": {"name": "vm"}, "spec": {}}),
        )
        .await;
        let mut of_node = endpoint("web");
        of_node["metadata"]["name"] = json!("h9-k8s-web-eth0");
        of_node["spec"]["node"] = json!("h9");
        let path = "workloadendpoints/prod/h9-k8s-web-eth0";
        put(&store, path, of_node).await;
        server.apply(pod("web", json!({})));
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        server.remove("Node", "", "h9");
        looks(&mut controller).await;
        assert!(get(&store, "nodes/h9").await.is_some(), "its pod exists");
        server.remove("Pod", "prod", "web");
        until_stored(&mut controller, "nodes/h9", false).await;
        assert_eq!(get(&store, path).await, None);
        for kept in ["nodes/h1", "nodes/vm"] {
            assert!(get(&store, kept).await.is_some(), "{kept}");
        }
    });
}
