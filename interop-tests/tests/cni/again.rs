//! Repeated and late calls do no harm to a container that works.

use std::net::IpAddr;

use interop_tests::READY;
use netns_lab::{Program, VethEnd};
use serde_json::{Value, json};

use crate::ID;
use crate::host::{Container, Fabric, Node, addresses, on_a_host};

/// A datastore that is not ready.
const LOCKED: &str = r#"{"spec":{"clusterGUID":"lab","datastoreReady":false}}"#;

/// Asserts that a repeated ADD that fails changes nothing: neither the stored state of containers,
/// nor the connection between the two.
async fn fails_and_leaves_all(
    fabric: &Fabric,
    node: &Node,
    config: &Value,
    (one, first): (&Container, &Value),
    other: &Value,
) {
    let before = (fabric.left().await, node.interfaces().await);
    let failed = node.asks("ADD", one, config).await.unwrap_err();
    assert_eq!(failed["code"], 11, "{failed}");
    let after = (fabric.left().await, node.interfaces().await);
    assert_eq!(after, before, "{failed}");
    for address in addresses(other) {
        assert!(one.pings(first, address).await, "{address} after {failed}");
    }
}

#[test]
fn a_repeated_add_that_fails_leaves_the_container_connected() {
    on_a_host(
        "cni and an ADD that fails again",
        async |fabric, mut node| {
            let config = node.network(json!({}));
            let (one, two) = (
                Container::new(&fabric, ID).await,
                Container::new(&fabric, "second").await,
            );
            let first = node.asks("ADD", &one, &config).await.expect("connected");
            let second = node.asks("ADD", &two, &config).await.expect("connected");

            // The datastore is locked.
            let store = fabric.embedded.as_ref().expect("a store");
            for (text, felix) in [(LOCKED, true), (READY, false)] {
                store.put("clusterinformations", "default", text).await;
                let mut hurried = config.clone();
                if !felix {
                    // Felix is down, so that it cannot report the endpoint as up, and its former
                    // report is deleted.
                    node.felix.kill().await.unwrap();
                    let files = "rm -r /run/cambric/endpoint-status";
                    let remove = Program::new("/bin/sh").args(["-c", files]);
                    let (status, _) = node.site.host.output(&remove).await.unwrap();
                    assert!(status.success());
                    hurried["policy_setup_timeout_seconds"] = 1.into();
                }
                fails_and_leaves_all(&fabric, &node, &hurried, (&one, &first), &second).await;
            }
            // A call that does not wait for Felix has the same result as before.
            let unwatched = node.network(json!({"policy_setup_timeout_seconds": 0}));
            assert_eq!(node.asks("ADD", &one, &unwatched).await, Ok(first));
        },
    );
}

#[test]
fn del_without_store_keeps_an_unclaimed_interface() {
    on_a_host("cni and DEL without a store", async |_fabric, node| {
        let old = Container::pod("old");
        // Like an interface of Calico's plugin: named after the pod, and without a reference to a
        // sandbox.
        let (name, host) = ("caliaa960f0d82e", &node.site.host);
        let end = |name| VethEnd {
            host,
            name,
            mac: None,
        };
        let links = host.links().unwrap();
        links.add_veth(end(name), end("inside")).await.unwrap();
        let away = node.network(json!({"etcd_endpoints": "http://10.0.0.253:2379"}));
        let failed = node.asks("DEL", &old, &away).await.unwrap_err();
        assert_eq!(failed["code"], 11, "{failed}");
        assert_eq!(node.interfaces().await, [name]);
        // The datastore has no endpoint of the pod.
        let config = node.network(json!({}));
        assert_eq!(node.asks("DEL", &old, &config).await, Ok(Value::Null));
        assert_eq!(node.interfaces().await, [""; 0]);
    });
}

#[test]
fn answer_of_another_ipam_plugin_is_kept() {
    on_a_host("cni and routes of host-local", async |fabric, node| {
        if interop_tests::foreign("/usr/lib/cni/host-local").is_none() {
            return;
        }
        let container = Container::new(&fabric, ID).await;
        let data = node.site.host.directory().join("host-local");
        let servers = node.site.save("resolv.conf", "nameserver 10.0.0.53\n");
        let config = node.network(json!({
            "cniVersion": "1.0.0", "include_default_routes": false,
            "ipam": {
                "type": "host-local", "subnet": "10.65.9.0/24", "dataDir": data,
                "routes": [{"dst": "10.65.0.0/16"}], "resolvConf": servers,
            },
        }));
        let first = node.asks("ADD", &container, &config).await;
        let first = first.expect("connected");
        assert_eq!(first["routes"], json!([{"dst": "10.65.0.0/16"}]));
        assert_eq!(first["dns"]["nameservers"], json!(["10.0.0.53"]));
        let again = node.asks("ADD", &container, &config).await;
        assert_eq!(again, Ok(first.clone()));

        let mut checked = config.clone();
        checked["prevResult"] = first.clone();
        let check = async || node.asks("CHECK", &container, &checked).await;
        assert_eq!(check().await, Ok(Value::Null));
        let links = container.links();
        let gateway: IpAddr = "169.254.1.1".parse().unwrap();
        let to = "10.65.0.0/16".parse().unwrap();
        let deleted = links.delete_route(to, Some(gateway), "eth0").await;
        deleted.expect("a route");
        let changed = check().await.unwrap_err();
        let message = "there is no route to 10.65.0.0/16 on eth0";
        assert_eq!(
            (&changed["code"], &changed["msg"]),
            (&json!(103), &json!(message))
        );

        // An attachment that was changed is made again, although host-local never assigns an
        // address twice.
        let second = node.asks("ADD", &container, &config).await;
        assert_eq!(second.expect("connected")["routes"], first["routes"]);
        let removed = node.asks("DEL", &container, &config).await;
        removed.expect("disconnected");
        assert_eq!(fabric.left().await, [""; 0]);
    });
}

#[test]
fn status_of_an_old_sandbox_is_no_answer_for_the_new() {
    on_a_host(
        "cni and a pod's second sandbox",
        async |fabric, mut node| {
            // These annotations are all that two pods can have in common.
            let annotations = json!({
                "cni.projectcalico.org/ipAddrs": r#"["10.65.7.7"]"#,
                "cni.projectcalico.org/hwAddr": "02:00:00:00:07:07",
            });
            let config = node.network(json!({
                "runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations},
                "ipam": {"type": "cambric-ipam"},
            }));
            let (old, new) = (Container::pod("old"), Container::pod("new"));
            let first = node.asks("ADD", &old, &config).await.expect("connected");
            // A stopped Felix does not withdraw its report.
            node.felix.kill().await.unwrap();
            node.asks("DEL", &old, &config).await.expect("disconnected");
            let file = "k8s prod%2Fweb-0 eth0";
            let file = node.site.load(&format!("endpoint-status/{file}"));
            assert!(file.contains("10.65.7.7/32"), "{file}");
            let mut hurried = config.clone();
            hurried["policy_setup_timeout_seconds"] = 1.into();
            let late = node.asks("ADD", &new, &hurried).await.unwrap_err();
            assert_eq!(late["code"], 11, "{late}");
            assert_eq!(fabric.left().await, [""; 0]);

            node.restart_felix(&[]);
            let second = node.asks("ADD", &new, &config).await.expect("connected");
            assert_eq!(second["ips"], first["ips"]);
            assert_eq!(
                second["interfaces"][1]["mac"],
                first["interfaces"][1]["mac"]
            );
            let mut checked = config.clone();
            checked["prevResult"] = second;
            assert_eq!(node.asks("CHECK", &new, &checked).await, Ok(Value::Null));
        },
    );
}
