//! Resources and addresses that are deleted together with a node or a pool, and those that stay.

use super::tool::Tool;

pub(crate) async fn node_is_deleted_with_its_resources(tool: &Tool) {
    let of = |node: &str| {
        format!(
            "kind: Node\nmetadata: {{name: {node}}}\nspec: {{bgp: {{ipv4Address: 10.0.0.1/24}}}}\n---\n\
             kind: WorkloadEndpoint\nmetadata: {{namespace: prod}}\nspec: {{node: {node}, orchestrator: k8s, \
             pod: web, endpoint: eth0, interfaceName: cali1, ipNetworks: [10.65.0.1/32]}}\n---\n\
             kind: BGPPeer\nmetadata: {{name: peer-{node}}}\nspec: {{node: {node}, peerIP: 10.0.0.9, asNumber: 1}}\n---\n\
             kind: HostEndpoint\nmetadata: {{name: hep-{node}}}\nspec: {{node: {node}}}\n---\n\
             kind: FelixConfiguration\nmetadata: {{name: node.{node}}}\n---\n\
             kind: BGPConfiguration\nmetadata: {{name: node.{node}}}\nspec: {{listenPort: 1179}}\n"
        )
    };
    for node in ["n1", "n1.b"] {
        tool.apply("node.yaml", &of(node));
    }
    assert_eq!(
        tool.stored("clusterinformations/default").await["spec"]["datastoreReady"],
        true
    );
    let before = tool.keys().await;
    tool.done(&["delete", "node", "n1"]);
    let gone: Vec<String> = {
        let after = tool.keys().await;
        before
            .into_iter()
            .filter(|key| !after.contains(key))
            .collect()
    };
    assert_eq!(
        gone,
        [
            "bgpconfigurations/node.n1",
            "bgppeers/peer-n1",
            "felixconfigurations/node.n1",
            "hostendpoints/hep-n1",
            "nodes/n1",
            "workloadendpoints/prod/n1-k8s-web-eth0",
        ]
    );
    let wide = tool.done(&["get", "nodes", "-o", "wide"]);
    assert!(wide.contains("n1.b   (64512)   10.0.0.1/24"), "{wide}");
}

pub(crate) async fn addresses_are_released_with_their_node_or_pool(tool: &Tool) {
    let pools = "kind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.65.0.0/24}\n---\n\
                 kind: IPPool\nmetadata: {name: b}\nspec: {cidr: 10.66.0.0/24}\n";
    tool.done(&["create", "-f", &tool.file("pools.yaml", pools)]);
    let a = tool.assign("n1", "web", "10.65.0.0/24").await;
    let other = tool.assign("n2", "db", "10.65.0.0/24").await;
    let tunnel = tool.assign("n1", "tunnel", "10.66.0.0/24").await;
    tool.assign("n1", "of-nobody", "10.66.0.0/24").await;
    let node = format!(
        "kind: Node\nmetadata: {{name: n1}}\nspec: {{ipv4VXLANTunnelAddr: {tunnel}}}\n---\n\
         kind: WorkloadEndpoint\nmetadata: {{namespace: prod}}\nspec: {{node: n1, orchestrator: k8s, \
         pod: web, endpoint: eth0, interfaceName: cali1, ipNetworks: [{a}/32]}}\n"
    );
    tool.apply("node.yaml", &node);
    assert_eq!(
        tool.addresses().await.0,
        ["db", "of-nobody", "tunnel", "web"]
    );
    tool.done(&["delete", "node", "n1"]);
    let (handles, affinities) = tool.addresses().await;
    assert_eq!(
        handles,
        ["db", "of-nobody"],
        "what no endpoint has is left to the collection"
    );
    assert_eq!(affinities.len(), 1, "{affinities:?}");
    assert!(affinities[0].starts_with("host/n2/"), "{affinities:?}");

    let read = tool.done(&["get", "ippool", "a", "-o", "yaml"]);
    tool.done(&["delete", "-f", &tool.file("read.yaml", &read)]);
    assert_eq!(tool.value("ippools/a").await, None);
    let (handles, affinities) = tool.addresses().await;
    assert_eq!(
        (handles.len(), affinities.len()),
        (2, 0),
        "{other} stays taken"
    );
    let stale = tool.file(
        "stale.yaml",
        &tool.done(&["get", "ippool", "b", "-o", "yaml"]),
    );
    tool.apply(
        "pools.yaml",
        &pools.replace("10.66.0.0/24", "10.66.0.0/24, natOutgoing: true"),
    );
    let refused = tool.refused(&["delete", "-f", &stale]);
    assert!(refused.contains("out of date"), "{refused}");
    assert_eq!(tool.stored("ippools/b").await["spec"].get("disabled"), None);
}

/// A node with an endpoint that has an address.
fn node_with(address: impl std::fmt::Display) -> String {
    format!(
        "kind: Node\nmetadata: {{name: n1}}\nspec: {{bgp: {{ipv4Address: 10.0.0.1/24}}}}\n---\n\
         kind: WorkloadEndpoint\nmetadata: {{namespace: prod}}\nspec: {{node: n1, orchestrator: k8s, \
         pod: web, endpoint: eth0, interfaceName: cali1, ipNetworks: [{address}/32]}}\n"
    )
}

pub(crate) async fn outdated_version_deletes_nothing(tool: &Tool) {
    let pool = "kind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.65.0.0/24, disabled: true}\n";
    tool.apply("pool.yaml", pool);
    let address = tool.assign("n1", "web", "10.65.0.0/24").await;
    let node = node_with(address);
    tool.apply("node.yaml", &node);
    let both = ["get", "node,ippool", "-o", "yaml"];
    let stale = tool.file("stale.yaml", &tool.done(&both));
    let changed = [
        node.replace("10.0.0.1/24", "10.0.0.2/24"),
        pool.replace("disabled: true", "disabled: true, natOutgoing: true"),
    ];
    for text in changed {
        tool.apply("again.yaml", &text);
    }
    let (keys, addresses) = (tool.keys().await, tool.addresses().await);
    let refused = tool.refused(&["delete", "-f", &stale]);
    assert_eq!(refused.matches("out of date").count(), 2, "{refused}");
    assert_eq!(tool.keys().await, keys);
    assert_eq!(tool.addresses().await, addresses);
    let fresh = tool.file("fresh.yaml", &tool.done(&both));
    tool.done(&["delete", "-f", &fresh]);
    assert_eq!(tool.addresses().await, (Vec::new(), Vec::new()));
}

pub(crate) async fn addresses_now_used_by_others_are_kept(tool: &Tool) {
    let theirs = tool.assign("n2", "db", "10.65.0.0/24").await;
    let node = node_with(theirs);
    tool.apply("node.yaml", &node);
    tool.done(&["delete", "node", "n1"]);
    assert_eq!(tool.addresses().await.0, ["db"], "another node's");

    let moved = tool.assign("n1", "vm", "10.66.0.0/24").await;
    let here = node_with(moved);
    let (_, endpoint) = here.split_once("---\n").unwrap();
    let there = endpoint
        .replace("node: n1", "node: n2")
        .replace("pod: web", "pod: there");
    let both = format!("{here}---\n{there}");
    tool.apply("moving.yaml", &both);
    tool.done(&["delete", "node", "n1"]);
    assert_eq!(tool.addresses().await.0, ["db", "vm"], "it has moved");
}
