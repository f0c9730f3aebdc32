//! The writes of the controller, and the resources that it leaves unchanged.

use interop_tests::ApiServer;
use serde_json::json;

use crate::rig::{
    LOOPBACK, access, account, endpoint, get, namespace, pod, policy, put, ready_store, revision,
    run, settle, start, until_stored,
};

/// Returns a server with an object of each kind.
async fn filled() -> ApiServer {
    let server = ApiServer::start(LOOPBACK, 1).await;
    server.apply(namespace("prod"));
    server.apply(account("web"));
    server.apply(policy("closed"));
    server.apply(pod("web", json!({"app": "web"})));
    server.apply(json!({"kind": "Node", "metadata": {"name": "h1", "labels": {"rack": "r1"}}}));
    server
}

// Promise (Kubernetes): Namespaces, ServiceAccounts and NetworkPolicies become profiles and
// policies, and endpoints and Nodes get the labels of their Pods and Nodes.
#[test]
fn objects_become_resources() {
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        put(
            &store,
            "nodes/h1",
            json!({"metadata": {"name": "h1"}, "spec": {}}),
        )
        .await;
        put(
            &store,
            "workloadendpoints/prod/h1-k8s-web-eth0",
            endpoint("web"),
        )
        .await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        let profile = get(&store, "profiles/kns.prod").await.expect("a profile");
        assert_eq!(profile["spec"]["ingress"], json!([{"action": "Allow"}]));
        let labels = &profile["spec"]["labelsToApply"];
        assert_eq!(labels["pcns.kubernetes.io/metadata.name"], "prod");
        let account = get(&store, "profiles/ksa.prod.web")
            .await
            .expect("a profile");
        assert_eq!(
            account["spec"]["labelsToApply"]["pcsa.projectcalico.org/name"],
            "web"
        );
        let policy = get(&store, "networkpolicies/prod/knp.default.closed").await;
        let policy = policy.expect("a policy");
        assert_eq!(policy["spec"]["types"], json!(["Ingress"]));
        assert_eq!(policy["spec"]["order"], 1000);
        let endpoint = get(&store, "workloadendpoints/prod/h1-k8s-web-eth0").await;
        let endpoint = endpoint.expect("an endpoint");
        assert_eq!(endpoint["metadata"]["labels"]["app"], "web");
        assert_eq!(endpoint["metadata"]["uid"], "7");
        assert_eq!(endpoint["spec"]["ports"][0]["name"], "http");
        assert_eq!(
            endpoint["spec"]["profiles"],
            json!(["kns.prod", "ksa.prod.web"])
        );
        let node = get(&store, "nodes/h1").await.expect("a node");
        assert_eq!(node["metadata"]["labels"]["rack"], "r1");
        // The kind that the server does not have is no obstacle.
        assert_eq!(get(&store, "tiers/kube-admin").await, None);
    });
}

#[test]
fn changes_and_deletions_follow() {
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        server.apply(policy("second"));
        let second = "networkpolicies/prod/knp.default.second";
        until_stored(&mut controller, second, true).await;
        // An endpoint that appears later gets the labels of its pod.
        let path = "workloadendpoints/prod/h1-k8s-web-eth0";
        put(&store, path, endpoint("web")).await;
        until_stored(&mut controller, path, true).await;
        let stored = get(&store, path).await.expect("an endpoint");
        assert_eq!(stored["metadata"]["labels"]["app"], "web");
        server.remove("NetworkPolicy", "prod", "second");
        until_stored(&mut controller, second, false).await;
        assert_eq!(get(&store, second).await, None);
        // A deletion while no controller runs.
        drop(controller);
        server.remove("NetworkPolicy", "prod", "closed");
        server.remove("ServiceAccount", "prod", "web");
        let mut controller = start(&store, access(&server));
        until_stored(
            &mut controller,
            "networkpolicies/prod/knp.default.closed",
            false,
        )
        .await;
        until_stored(&mut controller, "profiles/ksa.prod.web", false).await;
        assert!(get(&store, "profiles/kns.prod").await.is_some());
        // The pod and its endpoint belong to others.
        assert!(get(&store, path).await.is_some());
    });
}

// Promise (Kubernetes): A resource that is as it should be is not written again.
#[test]
fn right_store_is_not_written() {
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        put(
            &store,
            "nodes/h1",
            json!({"metadata": {"name": "h1"}, "spec": {}}),
        )
        .await;
        put(
            &store,
            "workloadendpoints/prod/h1-k8s-web-eth0",
            endpoint("web"),
        )
        .await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        drop(controller);
        let before = revision(&store).await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        assert_eq!(revision(&store).await, before, "after a restart");
        // Changes of objects that do not concern the datastore.
        for at in 0..5 {
            let mut changed = pod("web", json!({"app": "web"}));
            changed["metadata"]["annotations"] = json!({"at": at.to_string()});
            server.apply(changed);
        }
        server.apply(json!({"kind": "Node", "spec": {"unschedulable": true},
            "metadata": {"name": "h1", "labels": {"rack": "r1"}}}));
        server.apply(namespace("marker"));
        until_stored(&mut controller, "profiles/kns.marker", true).await;
        let writes = revision(&store).await - before;
        assert_eq!(writes, 1, "only that of the marker");
    });
}

// Promise (Kubernetes): Heartbeats of Nodes and changes of a Pod's status cause no write.
#[test]
fn heartbeats_of_a_thousand_nodes_write_nothing() {
    const NODES: usize = 1_000;
    let node = |at: usize, rack: &str| json!({"kind": "Node", "metadata": {"name": format!("n{at}"), "labels": {"rack": rack}}});
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        for at in 0..NODES {
            server.apply(node(at, "r1"));
            let stored = json!({"metadata": {"name": format!("n{at}")}, "spec": {}});
            put(&store, &format!("nodes/n{at}"), stored).await;
        }
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        let before = revision(&store).await;
        for at in 0..NODES {
            let status = json!({"conditions": [{"type": "Ready", "status": "True",
                "lastHeartbeatTime": "2026-01-01T00:00:10Z"}]});
            server.set_status("Node", "", &format!("n{at}"), status);
        }
        server.apply(namespace("marker"));
        until_stored(&mut controller, "profiles/kns.marker", true).await;
        // The last heartbeat was read before this change of a label.
        server.apply(node(NODES - 1, "r2"));
        let path = format!("nodes/n{}", NODES - 1);
        let is_written = |controller: &cambric_kube::Controller| {
            let found = controller.stored().get(&crate::rig::key(&path));
            found.is_some_and(|found| found.octets.windows(4).any(|part| part == b"\"r2\""))
        };
        crate::rig::until(&mut controller, "the label", is_written).await;
        assert_eq!(
            revision(&store).await - before,
            2,
            "the marker and the label"
        );
    });
}

// Promise (Kubernetes): Resources of other writers are never changed.
#[test]
fn resources_of_other_writers_stay() {
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        let foreign = [
            "profiles/openstack-sg-1",
            "networkpolicies/prod/mine",
            "networkpolicies/prod/ossg.default.1",
            "globalnetworkpolicies/base",
            "tiers/own",
            "nodes/h9",
            "workloadendpoints/prod/h1-openstack-vm-tap0",
            "workloadendpoints/prod/h1-k8s-unknown-eth0",
        ];
        let value = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"own": true}});
        for path in foreign {
            put(&store, path, &value).await;
        }
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        for path in foreign {
            assert_eq!(get(&store, path).await.as_ref(), Some(&value), "{path}");
        }
        // A resource of the controller that another writer changes is repaired.
        put(&store, "profiles/kns.prod", json!({"spec": {}})).await;
        let repaired = |controller: &cambric_kube::Controller| {
            let found = controller
                .stored()
                .get(&crate::rig::key("profiles/kns.prod"));
            let has_rules = |value: &cambric_kube::Value| {
                value.octets.windows(7).any(|part| part == b"ingress")
            };
            found.is_some_and(has_rules) && controller.is_settled()
        };
        let before = controller.counts().written;
        let again = |controller: &cambric_kube::Controller| {
            repaired(controller) && controller.counts().written > before
        };
        crate::rig::until(&mut controller, "repaired", again).await;
    });
}

#[test]
fn cluster_policies_have_tiers() {
    run(async {
        let server = filled().await;
        server.define("ClusterNetworkPolicy");
        let rule = json!({"action": "Deny", "from": [{"namespaces": {}}]});
        server.apply(json!({"kind": "ClusterNetworkPolicy", "metadata": {"name": "deny"},
            "spec": {"tier": "Admin", "priority": 5, "subject": {"namespaces": {}}, "ingress": [rule]}}));
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        let path = "globalnetworkpolicies/kcnp.kube-admin.deny";
        let policy = get(&store, path).await.expect("a policy");
        assert_eq!(policy["spec"]["tier"], "kube-admin");
        for tier in ["tiers/kube-admin", "tiers/kube-baseline"] {
            assert!(get(&store, tier).await.is_some(), "{tier}");
        }
        server.remove("ClusterNetworkPolicy", "", "deny");
        until_stored(&mut controller, path, false).await;
    });
}
