//! Services: the routes of nodes, and the members for Felix.

use calico_store::{LeaseId, Store as _};
use cambric_kube::{Controller, Held};
use etcd_lite::Local;
use interop_tests::ApiServer;
use serde_json::{Value, json};

use crate::rig::{LOOPBACK, access, pod, put, ready_store, revision, run, settle, start, until};

/// The report of Felix about the pod.
const REPORT: &str = "/calico/felix/v2/no-region/host/h1/workload/k8s/prod%2fweb/endpoint/eth0";

/// The record of the members of the service.
const MEMBERS: &str = "/cambric/services/v1/prod/web/web-1";

/// The record of the service without slices.
const EMPTY: &str = "/cambric/services/v1/prod/web/web";

fn routes_of(node: &str) -> String {
    format!("/cambric/announcements/v1/{node}/services")
}

async fn read(store: &Local, key: &str) -> Option<Value> {
    let found = store.get(key.to_owned().into()).await.expect("an answer")?;
    Some(serde_json::from_slice(&found.value).expect("JSON"))
}

async fn write(store: &Local, key: &str, value: Value) {
    let value = value.to_string();
    let written = store.put(key.to_owned().into(), value.into(), LeaseId::NONE);
    written.await.expect("written");
}

/// Returns the addresses that a node announces, as the controller has read them back.
fn addresses(controller: &Controller, node: &str) -> Option<Vec<String>> {
    let key = cambric_kube::Target::parse(&routes_of(node)).expect("a key");
    let value = controller.stored().get(&key)?;
    let value: Value = serde_json::from_slice(&value.octets).expect("JSON");
    let routes = value["routes"].as_array().expect("routes").iter();
    let address = |route: &Value| route["address"].as_str().unwrap_or_default().to_owned();
    Some(routes.map(address).collect())
}

/// Runs the controller until a node announces these addresses.
async fn until_announced(controller: &mut Controller, node: &str, wanted: &[&str]) {
    let what = format!("{node} announces {wanted:?}");
    until(controller, &what, |controller| {
        let found = addresses(controller, node);
        controller.is_settled() && found.is_some_and(|found| found == wanted)
    })
    .await;
}

fn service(policy: &str) -> Value {
    json!({"kind": "Service", "metadata": {"name": "web", "namespace": "prod"},
        "spec": {"type": "LoadBalancer", "clusterIPs": ["10.96.0.10"],
            "externalTrafficPolicy": policy},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7", "ipMode": "VIP"}]}}})
}

/// Returns a slice of the service with an endpoint on the first node.
fn slice(conditions: Value) -> Value {
    json!({"kind": "EndpointSlice", "metadata": {"name": "web-1", "namespace": "prod",
            "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.65.0.7"], "nodeName": "h1", "conditions": conditions,
            "targetRef": {"kind": "Pod", "namespace": "prod", "name": "web"}}]})
}

/// Returns a server with a service, and a store with two nodes and ranges of services.
async fn filled() -> (ApiServer, Local) {
    let server = ApiServer::start(LOOPBACK, 1).await;
    server.apply(json!({"kind": "Namespace", "metadata": {"name": "prod"}}));
    let store = ready_store().await;
    for node in ["h1", "h2"] {
        server.apply(json!({"kind": "Node", "metadata": {"name": node, "labels": {}}}));
        let value = json!({"metadata": {"name": node}, "spec": {}});
        put(&store, &format!("nodes/{node}"), value).await;
    }
    let settings = json!({"metadata": {"name": "default"}, "spec": {
        "serviceClusterIPs": [{"cidr": "10.96.0.0/12"}],
        "serviceLoadBalancerIPs": [{"cidr": "192.0.2.0/24"}]}});
    put(&store, "bgpconfigurations/default", settings).await;
    server.apply(pod("web", json!({})));
    server.apply(service("Local"));
    server.apply(slice(json!({"ready": true})));
    (server, store)
}

// Promise (Kubernetes): The controller writes the routes of services of each node into a key of the
// node, and only when they change.
#[test]
fn routes_of_a_node_follow_its_endpoint() {
    run(async {
        let (server, store) = filled().await;
        let mut controller = start(&store, access(&server));
        until_announced(&mut controller, "h1", &["192.0.2.7"]).await;
        until_announced(&mut controller, "h2", &[]).await;
        let value = read(&store, &routes_of("h1")).await.expect("routes");
        let wanted = json!({"routes": [{"address": "192.0.2.7", "services": ["prod/web"]}]});
        assert_eq!(value, wanted);
        // kube-proxy sends connections to an endpoint that drains, as long as there is no other one.
        server.apply(slice(
            json!({"ready": false, "serving": true, "terminating": true}),
        ));
        settle(&mut controller).await;
        until_announced(&mut controller, "h1", &["192.0.2.7"]).await;
        server.apply(slice(
            json!({"ready": false, "serving": false, "terminating": true}),
        ));
        until_announced(&mut controller, "h1", &[]).await;
        // Without a change nothing is written.
        let before = revision(&store).await;
        server.apply(
            json!({"kind": "Node", "metadata": {"name": "h1", "labels": {}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        let mut other = service("Local");
        other["metadata"]["annotations"] = json!({"other": "x"});
        server.apply(other);
        settle(&mut controller).await;
        assert_eq!(revision(&store).await, before);
        server.apply(slice(json!({"ready": true})));
        until_announced(&mut controller, "h1", &["192.0.2.7"]).await;
        server.remove("EndpointSlice", "prod", "web-1");
        until_announced(&mut controller, "h1", &[]).await;
    });
}

// Promise (Kubernetes): With reports of Felix, a node announces a service with the policy `Local` only
// while Felix reports an endpoint of it as up.
#[test]
fn node_announces_while_felix_reports_its_endpoint() {
    run(async {
        let (server, store) = filled().await;
        let settings = json!({"metadata": {"name": "default"},
            "spec": {"endpointReportingEnabled": true}});
        put(&store, "felixconfigurations/default", settings).await;
        let mut controller = start(&store, access(&server));
        until_announced(&mut controller, "h1", &[]).await;
        write(&store, REPORT, json!({"status": "up"})).await;
        until_announced(&mut controller, "h1", &["192.0.2.7"]).await;
        write(&store, REPORT, json!({"status": "down"})).await;
        until_announced(&mut controller, "h1", &[]).await;
    });
}

// Promise (Kubernetes): A restored API server, which lacks services, withdraws no routes until it is
// confirmed.
#[test]
fn restored_server_withdraws_no_routes() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        let earlier = server.revision();
        drop(server);
        let (server, store) = filled().await;
        let mut controller = start(&store, access(&server));
        until_announced(&mut controller, "h1", &["192.0.2.7"]).await;
        server.restore(earlier);
        let is_held = |controller: &Controller| {
            matches!(controller.held(), Some(Held::OlderRevision { .. }))
                && controller.objects().services().next().is_none()
        };
        until(&mut controller, "deletions are held", is_held).await;
        settle_held(&mut controller).await;
        assert_eq!(
            addresses(&controller, "h1"),
            Some(vec!["192.0.2.7".to_owned()])
        );
        assert!(read(&store, MEMBERS).await.is_some());
    });
}

/// Runs the controller until nothing is left to compare.
async fn settle_held(controller: &mut Controller) {
    until(controller, "compared", |controller| {
        !controller.routes().is_due()
    })
    .await;
}

// Promise (Kubernetes): The members of services are written for the rules of Felix, and one record
// without members for a service without slices.
#[test]
fn members_of_services_are_written_for_felix() {
    run(async {
        let (server, store) = filled().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        let members = read(&store, MEMBERS).await.expect("members");
        assert_eq!(members["endpoints"], json!([{"addresses": ["10.65.0.7"]}]));
        assert_eq!(members["ports"], json!([{"protocol": "TCP", "port": 8080}]));
        assert_eq!(read(&store, EMPTY).await, None);
        let before = revision(&store).await;
        server.apply(slice(json!({"ready": true, "serving": true})));
        settle(&mut controller).await;
        assert_eq!(
            revision(&store).await,
            before,
            "members do not depend on readiness"
        );
        server.remove("EndpointSlice", "prod", "web-1");
        let target = |key: &str| cambric_kube::Target::parse(key).expect("a key");
        let has =
            |controller: &Controller, key: &str| controller.stored().get(&target(key)).is_some();
        until(&mut controller, "the empty record", |controller| {
            controller.is_settled() && has(controller, EMPTY) && !has(controller, MEMBERS)
        })
        .await;
        let empty = read(&store, EMPTY).await.expect("a record");
        assert_eq!(empty, json!({"endpoints": [], "ports": []}));
        server.remove("Service", "prod", "web");
        until(&mut controller, "no record", |controller| {
            controller.is_settled() && !has(controller, EMPTY)
        })
        .await;
    });
}
