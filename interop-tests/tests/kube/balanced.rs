//! Addresses of load balancers from the pools.

use calico_store::{LeaseId, Store as _};
use cambric_kube::Controller;
use etcd_lite::Local;
use interop_tests::{ApiServer, PATIENCE};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::rig::{
    LOOK_EVERY, LOOPBACK, access, put, ready_store, revision, run, settle, start, until,
};

/// Returns the addresses in the status of a service.
fn addresses(server: &ApiServer, name: &str) -> Vec<String> {
    let services = server.objects("Service");
    let mut services = services.iter();
    let service = services.find(|service| service["metadata"]["name"] == name);
    let ingress = &service.expect("the service")["status"]["loadBalancer"]["ingress"];
    let entries = ingress.as_array().into_iter().flatten();
    let address = |entry: &Value| entry["ip"].as_str().unwrap_or_default().to_owned();
    entries.map(address).collect()
}

async fn until_assigned(controller: &mut Controller, server: &ApiServer, name: &str, count: usize) {
    let what = format!("{name} has {count} addresses");
    until(controller, &what, |controller| {
        controller.is_settled() && addresses(server, name).len() == count
    })
    .await;
}

fn service(name: &str, spec: Value, annotations: Value) -> Value {
    let mut spec = spec;
    spec["type"] = "LoadBalancer".into();
    json!({"kind": "Service", "metadata": {"name": name, "namespace": "default",
        "annotations": annotations}, "spec": spec})
}

fn dual(name: &str) -> Value {
    service(name, json!({"ipFamilies": ["IPv4", "IPv6"]}), json!({}))
}

async fn put_pool(store: &Local, name: &str, range: &str, size: u8) {
    let value = json!({"metadata": {"name": name}, "spec": {
        "cidr": range, "blockSize": size, "allowedUses": ["LoadBalancer"]}});
    put(store, &format!("ippools/{name}"), value).await;
}

/// Returns a server without services, and a store with a pool of four addresses of each family.
async fn filled() -> (ApiServer, Local) {
    let server = ApiServer::start(LOOPBACK, 1).await;
    let store = ready_store().await;
    put_pool(&store, "v4", "192.0.2.0/30", 30).await;
    put_pool(&store, "v6", "fd92::/126", 126).await;
    (server, store)
}

fn events(server: &ApiServer, name: &str) -> Vec<String> {
    let all = server.objects("Event").into_iter();
    let of = all.filter(|event| event["involvedObject"]["name"] == name);
    of.map(|event| event["message"].as_str().unwrap_or_default().to_owned())
        .collect()
}

// Promise (Kubernetes): A service of type `LoadBalancer` gets an address of each of its families from the
// pools of load balancers, and keeps it over restarts, requests and changes of pools.
#[test]
fn address_in_use_never_changes() {
    run(async {
        let (server, store) = filled().await;
        server.apply(dual("web"));
        let mut controller = start(&store, access(&server));
        until_assigned(&mut controller, &server, "web", 2).await;
        let given = addresses(&server, "web");
        assert!(
            given[0].starts_with("192.0.2.") && given[1].starts_with("fd92::"),
            "{given:?}"
        );
        let key = "/calico/ipam/v2/virtual/load-balancer/ipv4/block/192.0.2.0-30";
        let found = store.get(key.into()).await.expect("an answer");
        assert!(found.is_some(), "the affinity of the block");
        // A restart changes nothing.
        drop(controller);
        let before = (revision(&store).await, server.revision());
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        assert_eq!((revision(&store).await, server.revision()), before);
        // A pool that is disabled, and a request for another address.
        let value = json!({"metadata": {"name": "v4"}, "spec": {"cidr": "192.0.2.0/30",
            "blockSize": 30, "disabled": true, "allowedUses": ["LoadBalancer"]}});
        put(&store, "ippools/v4", value).await;
        put_pool(&store, "other", "198.51.100.0/30", 30).await;
        let mut wish = dual("web");
        wish["metadata"]["annotations"] =
            json!({"projectcalico.org/loadBalancerIPs": "[\"198.51.100.2\"]"});
        server.apply(wish);
        until(&mut controller, "an Event", |controller| {
            controller.is_settled() && !events(&server, "web").is_empty()
        })
        .await;
        assert_eq!(addresses(&server, "web"), given);
        // The status is repaired.
        let mut emptied = dual("web");
        emptied["metadata"]["annotations"] = json!({});
        server.apply(emptied);
        settle(&mut controller).await;
        assert_eq!(addresses(&server, "web"), given);
    });
}

#[test]
fn missing_family_of_a_service_is_assigned() {
    run(async {
        let (server, store) = filled().await;
        server.apply(service("web", json!({"ipFamilies": ["IPv4"]}), json!({})));
        let mut controller = start(&store, access(&server));
        until_assigned(&mut controller, &server, "web", 1).await;
        let given = addresses(&server, "web");
        server.apply(dual("web"));
        until_assigned(&mut controller, &server, "web", 2).await;
        assert_eq!(addresses(&server, "web")[..1], given);
    });
}

// Promise (Kubernetes): Services of other controllers are neither given an address nor changed.
#[test]
fn services_of_other_controllers_are_unchanged() {
    run(async {
        let (server, store) = filled().await;
        let class = json!({"loadBalancerClass": "metallb"});
        server.apply(service("class", class, json!({})));
        // Its address is in no pool.
        let mut assigned = dual("assigned");
        assigned["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}});
        server.apply(assigned);
        server.apply(
            json!({"kind": "Service", "metadata": {"name": "node", "namespace": "default"},
            "spec": {"type": "NodePort"}}),
        );
        let before = server.revision();
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        assert_eq!(server.revision(), before);
        assert_eq!(addresses(&server, "assigned"), ["203.0.113.9"]);
        // With this setting only services with a request get an address.
        let setting = json!({"metadata": {"name": "default"}, "spec": {"controllers": {
            "loadBalancer": {"assignIPs": "RequestedServicesOnly"}}}});
        put(&store, "kubecontrollersconfigurations/default", setting).await;
        settle(&mut controller).await;
        server.apply(dual("plain"));
        let pools = json!({"projectcalico.org/ipv4pools": "[\"v4\"]"});
        server.apply(service("requested", json!({"ipFamilies": ["IPv4"]}), pools));
        until_assigned(&mut controller, &server, "requested", 1).await;
        assert_eq!(addresses(&server, "plain"), Vec::<String>::new());
    });
}

// Promise (Kubernetes): A full pool is an Event of the service, and a released address is assigned to it.
#[test]
fn full_pool_is_an_event_and_released_addresses_are_used() {
    run(async {
        let (server, store) = filled().await;
        let single = |name: &str| service(name, json!({"ipFamilies": ["IPv4"]}), json!({}));
        for name in ["a", "b", "c", "d"] {
            server.apply(single(name));
        }
        let mut controller = start(&store, access(&server));
        for name in ["a", "b", "c", "d"] {
            until_assigned(&mut controller, &server, name, 1).await;
        }
        server.apply(single("e"));
        until(&mut controller, "an Event", |controller| {
            controller.is_settled() && !events(&server, "e").is_empty()
        })
        .await;
        let messages = events(&server, "e");
        assert!(messages[0].contains("used up"), "{messages:?}");
        assert_eq!(messages.len(), 1, "one Event");
        let freed = addresses(&server, "b");
        server.remove("Service", "default", "b");
        until_assigned(&mut controller, &server, "e", 1).await;
        assert_eq!(addresses(&server, "e"), freed);
        // A service that was deleted while the controller was stopped.
        drop(controller);
        server.remove("Service", "default", "c");
        let mut controller = start(&store, access(&server));
        server.apply(single("f"));
        until_assigned(&mut controller, &server, "f", 1).await;
    });
}

#[test]
fn requested_address_is_assigned_unless_it_is_taken() {
    run(async {
        let (server, store) = filled().await;
        let wish = |name: &str, address: &str| {
            let addresses = json!([address]).to_string();
            let annotations = json!({"projectcalico.org/loadBalancerIPs": addresses});
            service(name, json!({"ipFamilies": ["IPv4"]}), annotations)
        };
        server.apply(wish("web", "192.0.2.2"));
        let mut controller = start(&store, access(&server));
        until_assigned(&mut controller, &server, "web", 1).await;
        assert_eq!(addresses(&server, "web"), ["192.0.2.2"]);
        server.apply(wish("thief", "192.0.2.2"));
        server.apply(wish("outside", "203.0.113.1"));
        server.apply(wish("invalid", "x"));
        until(&mut controller, "Events", |controller| {
            let has = |name: &str| !events(&server, name).is_empty();
            controller.is_settled() && has("thief") && has("outside") && has("invalid")
        })
        .await;
        for name in ["thief", "outside", "invalid"] {
            assert_eq!(addresses(&server, name), Vec::<String>::new(), "{name}");
        }
        assert_eq!(addresses(&server, "web"), ["192.0.2.2"]);
    });
}

// Promise (Kubernetes): An API server that lacks many services releases none of their addresses until an
// operator confirms it.
#[test]
fn addresses_of_many_lost_services_stay() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        let store = ready_store().await;
        put_pool(&store, "v4", "192.0.2.0/24", 26).await;
        let names: Vec<String> = (0..30).map(|at| format!("s{at}")).collect();
        for name in &names {
            server.apply(service(name, json!({"ipFamilies": ["IPv4"]}), json!({})));
        }
        let mut controller = start(&store, access(&server));
        for name in &names {
            until_assigned(&mut controller, &server, name, 1).await;
        }
        drop(controller);
        for name in &names[..20] {
            server.remove("Service", "default", name);
        }
        let mut controller = start(&store, access(&server));
        until(&mut controller, "deletions are held", |controller| {
            controller
                .held()
                .is_some_and(|held| held.needs_confirmation())
        })
        .await;
        let handles = || async {
            let all = store.list(calico_store::KeyRange::prefix("/calico/ipam/v2/handle/"));
            all.await.expect("a list").items.len()
        };
        assert_eq!(handles().await, 30);
        let uid = controller
            .objects()
            .namespace("kube-system")
            .map(|one| one.uid.clone());
        let uid = uid.expect("a UID");
        let confirmed = cambric_kube::CONFIRMED_KEY.into();
        let written = store.put(confirmed, uid.into(), LeaseId::NONE).await;
        written.expect("written");
        until(&mut controller, "released", |controller| {
            controller.held().is_none() && controller.is_settled()
        })
        .await;
        // The release follows the confirmation.
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while handles().await != 10 && tokio::time::Instant::now() < deadline {
            controller.step();
            if let Ok(input) = timeout(LOOK_EVERY, controller.wait()).await {
                controller.handle(input);
            }
        }
        assert_eq!(handles().await, 10);
    });
}
