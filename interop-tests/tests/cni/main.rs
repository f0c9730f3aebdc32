//! Cambric's CNI plugin between runtimes, a store and Felix.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod host;

use host::{Backing, Container, Fabric, PATIENCE, addresses};
use interop_tests::in_ground;
use serde_json::{Value, json};

const ID: &str = "9f3c0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab";

/// Everything that a runtime can ask for, of two containers of one host.
async fn from_add_to_del(fabric: &Fabric) {
    let node = fabric.node(1).await;
    let config = node.network(json!({}));
    let (one, two) = (
        Container::new(fabric, ID).await,
        Container::new(fabric, "second").await,
    );
    let first = node.asks("ADD", &one, &config).await.expect("connected");
    assert_eq!(first["cniVersion"], "1.1.0");
    assert_eq!(
        first["interfaces"][0],
        json!({"name": "cali9f3c0123456", "mac": "ee:ee:ee:ee:ee:ee"})
    );
    assert_eq!(first["interfaces"][1]["name"], "eth0");
    assert_eq!(first["interfaces"][1]["sandbox"], one.netns.as_str());
    let own = addresses(&first);
    assert!(
        own.len() == 2 && own[0].is_ipv4() && own[1].is_ipv6(),
        "{first}"
    );
    assert!(
        first["ips"]
            .as_array()
            .unwrap()
            .iter()
            .all(|ip| ip["interface"] == 1 && ip.get("gateway").is_none())
    );

    // The answer of one that is connected is the same again.
    assert_eq!(
        node.asks("ADD", &one, &config).await.expect("the same"),
        first
    );
    let second = node.asks("ADD", &two, &config).await.expect("connected");
    for address in addresses(&second) {
        assert!(one.pings(&first, address).await, "{address}");
    }

    let mut checked = config.clone();
    checked["prevResult"] = first.clone();
    assert_eq!(node.asks("CHECK", &one, &checked).await, Ok(Value::Null));
    let links = node.site.host.links().unwrap();
    links.down("cali9f3c0123456").await.unwrap();
    let changed = node.asks("CHECK", &one, &checked).await.unwrap_err();
    assert_eq!(
        (&changed["code"], &changed["msg"]),
        (&json!(103), &json!("interface cali9f3c0123456 is down"))
    );

    // One is gone without DEL: GC finds it.
    let mut collected = config.clone();
    collected["cni.dev/valid-attachments"] = json!([{"containerID": "second", "ifname": "eth0"}]);
    assert_eq!(node.asks("GC", &one, &collected).await, Ok(Value::Null));
    assert_eq!(node.interfaces().await.len(), 1);
    checked["prevResult"] = second;
    assert_eq!(node.asks("CHECK", &two, &checked).await, Ok(Value::Null));
    for _ in 0..2 {
        assert_eq!(node.asks("DEL", &one, &config).await, Ok(Value::Null));
        assert_eq!(node.asks("DEL", &two, &config).await, Ok(Value::Null));
    }
    assert_eq!(fabric.left().await, [""; 0]);
    assert_eq!(node.interfaces().await, [""; 0]);
}

#[test]
fn a_container_is_connected_until_it_is_not_over_the_embedded_store() {
    in_ground(&[], "cni over the embedded store", async |ground| {
        let fabric = Fabric::new(ground, Backing::Embedded)
            .await
            .expect("a store");
        from_add_to_del(&fabric).await;
    });
}

#[test]
fn a_container_is_connected_until_it_is_not_over_etcd() {
    in_ground(&[], "cni over etcd", async |ground| {
        if let Some(fabric) = Fabric::new(ground, Backing::Etcd).await {
            from_add_to_del(&fabric).await;
        }
    });
}

#[test]
fn an_endpoint_that_felix_refuses_is_no_connection() {
    in_ground(&[], "cni and a refusing Felix", async |ground| {
        let fabric = Fabric::new(ground, Backing::Embedded)
            .await
            .expect("a store");
        let node = fabric.node(1).await;
        let config = node.network(json!({}));
        let container = Container::bare(ID);
        let add = node
            .call("ADD", &container, &config)
            .env("FELIX_INTERFACEPREFIX", "veth");
        let refused = node.answer(&add).await.unwrap_err();
        assert_eq!(refused["code"], 102, "{refused}");
        let message = refused["msg"].as_str().unwrap();
        assert!(
            message.contains("does not begin with an interface prefix"),
            "{message}"
        );
        assert_eq!(fabric.left().await, [""; 0]);

        // Without Felix there is no connection either.
        let mut node = node;
        node.felix.kill().await.unwrap();
        let hurried = node.network(json!({"policy_setup_timeout_seconds": 1}));
        let late = node.asks("ADD", &container, &hurried).await.unwrap_err();
        assert_eq!(late["code"], 11, "{late}");
        assert_eq!(fabric.left().await, [""; 0]);
        // Unless nobody waits for it.
        let unwatched = node.network(json!({"policy_setup_timeout_seconds": 0}));
        node.asks("ADD", &container, &unwatched)
            .await
            .expect("connected");
    });
}

#[test]
fn containers_of_two_hosts_reach_each_other() {
    in_ground(&[], "cni on two hosts", async |ground| {
        let Some(fabric) = Fabric::new(ground, Backing::Etcd).await else {
            return;
        };
        let mut nodes = [fabric.node(1).await, fabric.node(2).await];
        nodes.iter_mut().for_each(host::Node::start_bgp);
        let [here, there] = &nodes;
        let (one, two) = (
            Container::new(&fabric, "one").await,
            Container::new(&fabric, "two").await,
        );
        let first = here.asks("ADD", &one, &here.network(json!({}))).await;
        let first = first.expect("connected");
        let second = there.asks("ADD", &two, &there.network(json!({}))).await;
        for address in addresses(&second.expect("connected")) {
            let what = format!("{address} answers");
            lab::until::<(), lab::Error>(PATIENCE, &what, async || {
                let answered = one.pings(&first, address).await;
                Ok(answered.then_some(()).ok_or_else(String::new))
            })
            .await
            .unwrap();
        }
    });
}
