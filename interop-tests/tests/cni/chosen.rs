//! The addresses of a container as the network's configuration, the runtime and the pod choose
//! them.

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::ID;
use crate::host::{Container, Fabric, Node, addresses, on_a_host};

/// Returns the configuration of a container whose network has these IPAM settings, and whose pod
/// has these annotations.
fn config(node: &Node, ipam: Value, annotations: &[(&str, &str)]) -> Value {
    let mut section = json!({"type": "cambric-ipam"});
    for (field, value) in ipam.as_object().expect("fields") {
        section[field] = value.clone();
    }
    let annotations = annotations
        .iter()
        .map(|(name, text)| (format!("cni.projectcalico.org/{name}"), (*text).into()));
    let annotations: serde_json::Map<String, Value> = annotations.collect();
    node.network(json!({
        "ipam": section,
        "runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations},
    }))
}

/// Asserts that ADD assigns an address in each of these networks, and that no state is left after
/// DEL.
async fn gives(fabric: &Fabric, node: &Node, container: &Container, config: &Value, nets: &[&str]) {
    let added = node.asks("ADD", container, config).await;
    let added = added.unwrap_or_else(|error| panic!("{config}: {error}"));
    let given = addresses(&added);
    let nets: Vec<IpNet> = nets.iter().map(|net| net.parse().unwrap()).collect();
    let fits = given.len() == nets.len()
        && given
            .iter()
            .zip(&nets)
            .all(|(address, net)| net.contains(address));
    assert!(fits, "{given:?} for {config}");
    node.asks("DEL", container, config)
        .await
        .expect("disconnected");
    assert_eq!(fabric.left().await, [""; 0]);
}

/// Asserts that ADD fails with this code and a message that contains these words, and leaves no
/// state.
async fn refuses(fabric: &Fabric, node: &Node, config: &Value, code: u16, words: &str) {
    let failed = node
        .asks("ADD", &Container::bare(ID), config)
        .await
        .unwrap_err();
    assert_eq!(failed["code"], code, "{failed}");
    let message = failed["msg"].as_str().unwrap();
    assert!(message.contains(words), "{message}");
    assert_eq!(fabric.left().await, [""; 0]);
}

#[test]
fn pools_and_families_follow_configuration_and_pod() {
    on_a_host("cni and pools by name", async |fabric, node| {
        for (name, cidr) in [("other-v4", "10.66.0.0/16"), ("other-v6", "fd66::/64")] {
            fabric.create("IPPool", name, json!({"cidr": cidr})).await;
        }
        let container = Container::bare(ID);
        // By range and by name; the pod's annotation takes precedence over the network's setting.
        let by_range = json!({"ipv4_pools": ["10.66.0.0/16"]});
        let by_name = json!({
            "ipv4_pools": ["other-v4"], "assign_ipv6": "true", "ipv6_pools": ["other-v6"],
        });
        let six =
            json!({"assign_ipv4": "false", "assign_ipv6": "true", "ipv6_pools": ["fd65::/64"]});
        let (pods_4, pods_6) = (r#"["10.65.0.0/16"]"#, r#"["fd66::/64"]"#);
        for (ipam, annotations, nets) in [
            (&by_range, &[][..], &["10.66.0.0/16"][..]),
            (&by_name, &[], &["10.66.0.0/16", "fd66::/64"]),
            (
                &by_name,
                &[("ipv4pools", pods_4)],
                &["10.65.0.0/16", "fd66::/64"],
            ),
            (&six, &[], &["fd65::/64"]),
            (&six, &[("ipv6pools", pods_6)], &["fd66::/64"]),
            // Families of the pod.
            (&by_name, &[("ipFamilies", r#"["IPv6"]"#)], &["fd66::/64"]),
            // Pools of a family that is not requested.
            (&six, &[("ipv4pools", pods_4)], &["fd65::/64"]),
        ] {
            let config = config(&node, ipam.clone(), annotations);
            gives(&fabric, &node, &container, &config, nets).await;
        }

        for (ipam, annotations, code, words) in [
            (
                json!({"ipv4_pools": ["10.99.0.0/16"]}),
                &[][..],
                100,
                "10.99.0.0/16",
            ),
            (json!({"ipv4_pools": ["other-v6"]}), &[], 7, "other-v6"),
            (json!({}), &[("ipv4pools", r#"["none"]"#)], 100, "none"),
            (
                json!({}),
                &[("ipv4pools", "other-v4")],
                7,
                "annotation ipv4pools",
            ),
            (
                json!({"assign_ipv4": "perhaps"}),
                &[],
                7,
                "ipam.assign_ipv4",
            ),
        ] {
            let config = config(&node, ipam, annotations);
            refuses(&fabric, &node, &config, code, words).await;
        }
    });
}

// Promise (Workloads): A pod gets no address of a pool that is not for workloads, such as that of load
// balancers: neither by the name of the pool nor by that of the address.
#[test]
fn pools_with_other_uses_give_no_address_to_pods() {
    on_a_host("cni and pools of others", async |fabric, node| {
        for (name, cidr) in [
            ("balanced-v4", "192.0.2.0/24"),
            ("balanced-v6", "fd92::/64"),
        ] {
            let spec = json!({"cidr": cidr, "allowedUses": ["LoadBalancer"]});
            fabric.create("IPPool", name, spec).await;
        }
        let both = r#"["10.65.3.3", "fd92::7"]"#;
        let plain = config(&node, json!({}), &[]);
        let mut by_capability = plain.clone();
        by_capability["runtimeConfig"]["ips"] = json!(["192.0.2.7/32"]);
        let by_name = json!({"ipv4_pools": ["balanced-v4"]});
        let six = json!({"assign_ipv6": "true"});
        let in_4 = r#"["10.65.0.0/16", "192.0.2.0/24"]"#;
        for (args, config, place, pool) in [
            (
                "",
                config(&node, json!({}), &[("ipAddrs", both)]),
                "annotation ipAddrs",
                "balanced-v6",
            ),
            (
                "",
                config(&node, json!({}), &[("ipv4pools", in_4)]),
                "annotation ipv4pools",
                "balanced-v4",
            ),
            (
                "",
                config(&node, six, &[("ipv6pools", r#"["balanced-v6"]"#)]),
                "annotation ipv6pools",
                "balanced-v6",
            ),
            (
                "",
                config(&node, by_name, &[]),
                "ipam.ipv4_pools",
                "balanced-v4",
            ),
            ("", by_capability, "runtimeConfig.ips", "balanced-v4"),
            ("IP=192.0.2.7", plain, "CNI_ARGS: IP", "balanced-v4"),
        ] {
            let mut container = Container::bare(ID);
            container.args = args.to_owned();
            let failed = node.asks("ADD", &container, &config).await.unwrap_err();
            let words = format!("{place}: pool {pool} is not for workloads");
            let message = failed["msg"].as_str().unwrap();
            assert!(message.contains(&words), "{message}");
            assert_eq!(failed["code"], 100);
            assert_eq!(fabric.left().await, [""; 0]);
        }
    });
}

#[test]
fn addresses_follow_runtime_and_pod() {
    on_a_host("cni and addresses by name", async |fabric, node| {
        let container = Container::bare(ID);
        let both = r#"["10.65.3.3", "fd65::3"]"#;
        let named = config(&node, json!({}), &[("ipAddrs", both)]);
        let nets = ["10.65.3.3/32", "fd65::3/128"];
        gives(&fabric, &node, &container, &named, &nets).await;
        let mut by_capability = config(&node, json!({}), &[]);
        by_capability["runtimeConfig"]["ips"] = json!(["10.65.3.4/32"]);
        gives(
            &fabric,
            &node,
            &container,
            &by_capability,
            &["10.65.3.4/32"],
        )
        .await;
        let mut by_argument = Container::bare(ID);
        by_argument.args = "IP=10.65.3.5".to_owned();
        let plain = config(&node, json!({}), &[]);
        gives(&fabric, &node, &by_argument, &plain, &["10.65.3.5/32"]).await;

        // Addresses outside all pools are the pod's own responsibility, where the network allows
        // them.
        let own = r#"["192.0.2.7"]"#;
        let mut brought = config(&node, json!({}), &[("ipAddrsNoIpam", own)]);
        let words = "feature_control.ip_addrs_no_ipam";
        refuses(&fabric, &node, &brought, 7, words).await;
        brought["feature_control"] = json!({"ip_addrs_no_ipam": true});
        gives(&fabric, &node, &container, &brought, &["192.0.2.7/32"]).await;

        for (annotations, code, words) in [
            (&[("ipAddrs", own)][..], 100, "192.0.2.7"),
            (&[("ipAddrs", r#"["10.65.3"]"#)], 7, "annotation ipAddrs"),
            (
                &[("ipAddrs", both), ("ipAddrsNoIpam", own)],
                7,
                "ipAddrsNoIpam",
            ),
            (&[("floatingIPs", own)], 7, "feature_control.floating_ips"),
            (
                &[("allowedSourcePrefixes", own)],
                7,
                "allowedSourcePrefixes",
            ),
        ] {
            let mut config = config(&node, json!({}), annotations);
            config["feature_control"] = json!({"ip_addrs_no_ipam": true});
            refuses(&fabric, &node, &config, code, words).await;
        }
    });
}
