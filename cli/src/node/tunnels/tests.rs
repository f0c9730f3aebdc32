//! Addresses of tunnel devices over a datastore in memory.

use std::sync::{Arc, Mutex};

use calico_store::{Answer, Op, Put, Store, Txn, TxnReply};
use etcd_lite::Local;
use serde_json::json;

use super::*;
use forward::forward;

#[path = "../../../../calico-store/tests/common/forward.rs"]
mod forward;

fn key(name: &str) -> ResourceKey {
    ResourceKey::new(Kind::Node, None, name).expect("a name")
}

async fn put(resources: &Resources, kind: &str, name: &str, spec: Value) {
    let resource = json!({"kind": kind, "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name}, "spec": spec});
    resources.apply(resource).await.expect("applied");
}

async fn fabric() -> Resources {
    fabric_in(Arc::new(Local::empty())).await
}

async fn fabric_in(store: Arc<dyn Store>) -> Resources {
    let resources = Resources::from(store);
    resources.initialize().await.expect("ready");
    for n in [1, 2] {
        let spec = json!({"bgp": {"ipv4Address": format!("10.0.0.{n}/24")}});
        put(&resources, "Node", &format!("n{n}"), spec).await;
    }
    pool(&resources, "Always").await;
    resources
}

async fn pool(resources: &Resources, mode: &str) {
    let spec = json!({"cidr": "10.65.0.0/16", "vxlanMode": mode});
    put(resources, "IPPool", "a", spec).await;
}

/// Reconciles nodes without an error. Returns the lines for the changes.
async fn lines(resources: &Resources, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let report = reconcile(resources, &names).await.expect("reconciled");
    assert_eq!(report.errors, "");
    report.lines
}

async fn text(resources: &Resources, node: &str, field: &str) -> Option<String> {
    let node = resources.get(&key(node)).await.expect("a node");
    text_at(&node.value["spec"], field)
}

#[tokio::test]
async fn ipip_address_is_a_part_of_bgp_and_released() {
    let resources = fabric().await;
    let ipam = Ipam::new(resources.store());
    let ipip = async |mode: &str| {
        let spec = json!({"cidr": "10.66.0.0/16", "ipipMode": mode});
        put(&resources, "IPPool", "ipip", spec).await;
    };
    lines(&resources, &[]).await;
    ipip("CrossSubnet").await;
    // A Node without the part has no place for it.
    let spec = json!({"addresses": [{"address": "10.0.0.3", "type": "InternalIP"}]});
    put(&resources, "Node", "n3", spec).await;
    let names = ["n1", "n3"].map(str::to_owned);
    let report = reconcile(&resources, &names).await.expect("reconciled");
    let error = "node n3: ipv4IPIPTunnelAddr: spec.bgp of the Node is missing";
    assert!(report.errors.starts_with(error), "{}", report.errors);
    assert!(report.lines.starts_with("n1: 10.66."), "{}", report.lines);
    let bgp = async |node: &str| {
        let node = resources.get(&key(node)).await.expect("a node");
        node.value["spec"]["bgp"].clone()
    };
    let stored = bgp("n1").await;
    assert_eq!(stored["ipv4Address"], "10.0.0.1/24");
    let address = stored["ipv4IPIPTunnelAddr"].as_str().expect("one");
    let given: IpAddr = address.parse().expect("an address");
    let holders = ipam.holders(&[given]).await.expect("holders");
    assert_eq!(holders[0].handle.as_deref(), Some("ipip-tunnel-addr-n1"));
    assert_eq!(holders[0].attributes[NODE], "n1");
    assert_eq!(holders[0].attributes[TYPE], "ipipTunnelAddress");
    assert_eq!(lines(&resources, &["n1"]).await, "");
    ipip("Never").await;
    let line = format!("n1: {address} released\n");
    assert_eq!(lines(&resources, &["n1"]).await, line);
    assert_eq!(bgp("n1").await, json!({"ipv4Address": "10.0.0.1/24"}));
    assert!(ipam.holders(&[given]).await.expect("holders").is_empty());
}

#[tokio::test]
async fn addresses_are_allocated_once_and_released() {
    let resources = fabric().await;
    let ipam = Ipam::new(resources.store());
    let first = lines(&resources, &[]).await;
    assert_eq!(first.lines().count(), 2, "{first}");
    let address = text(&resources, "n1", "ipv4VXLANTunnelAddr")
        .await
        .expect("one");
    let mac = text(&resources, "n1", "vxlanTunnelMACAddr").await;
    assert_eq!(mac.as_deref(), Some("66:40:b3:ea:b6:3f"));
    let given: IpAddr = address.parse().expect("an address");
    let holders = ipam.holders(&[given]).await.expect("holders");
    assert_eq!(holders[0].handle.as_deref(), Some("vxlan-tunnel-addr-n1"));
    assert_eq!(holders[0].attributes[NODE], "n1");
    assert_eq!(holders[0].attributes[TYPE], "vxlanTunnelAddress");
    assert_eq!(lines(&resources, &[]).await, "");
    // A Node that has lost its address gets one; the lost one is free again.
    let clear = |node: &mut Value| {
        let spec = node["spec"].as_object_mut().expect("a spec");
        spec.remove("ipv4VXLANTunnelAddr").is_some()
    };
    resources
        .patch(&key("n1"), None, clear)
        .await
        .expect("cleared");
    assert!(!lines(&resources, &["n1"]).await.is_empty());
    let all = ipam
        .release_handle("vxlan-tunnel-addr-n1")
        .await
        .expect("released");
    assert_eq!(all.len(), 1);
    // An allocation that was released by mistake is made again for the same address.
    let before = text(&resources, "n1", "ipv4VXLANTunnelAddr").await;
    assert_eq!(lines(&resources, &["n1"]).await, "");
    assert_eq!(text(&resources, "n1", "ipv4VXLANTunnelAddr").await, before);
    assert_eq!(ipam.holders(&all).await.expect("holders").len(), 1);
    // Without VXLAN nothing is left.
    pool(&resources, "Never").await;
    let last = lines(&resources, &[]).await;
    assert_eq!(last.lines().count(), 2, "{last}");
    for field in ["ipv4VXLANTunnelAddr", "vxlanTunnelMACAddr"] {
        assert_eq!(text(&resources, "n1", field).await, None);
    }
    assert!(ipam.holders(&all).await.expect("holders").is_empty());
    assert_eq!(lines(&resources, &[]).await, "");
}

#[tokio::test]
async fn address_of_another_holder_is_replaced() {
    let resources = fabric().await;
    let spec = json!({"bgp": {"ipv4Address": "10.0.0.1/24"},
        "ipv4VXLANTunnelAddr": "10.65.9.9", "vxlanTunnelMACAddr": "66:00:00:00:00:01"});
    put(&resources, "Node", "n1", spec).await;
    let ipam = Ipam::new(resources.store());
    let taker = Taker {
        handle: "k8s-pod-network.web".to_owned(),
        attributes: BTreeMap::new(),
    };
    let pools = ipam.pools().await.expect("pools").enabled();
    let request = AddressRequest {
        host: "n2",
        taker: &taker,
        address: "10.65.9.9".parse().expect("an address"),
        pools: &pools,
    };
    ipam.assign_address(&request).await.expect("assigned");
    let line = lines(&resources, &["n1"]).await;
    assert!(line.contains("allocated"), "{line}");
    let address = text(&resources, "n1", "ipv4VXLANTunnelAddr").await;
    assert_ne!(address.as_deref(), Some("10.65.9.9"));
    let mac = text(&resources, "n1", "vxlanTunnelMACAddr").await;
    assert_eq!(mac.as_deref(), Some("66:00:00:00:00:01"), "an operator's");
    let holders = ipam.holders(&[request.address]).await.expect("holders");
    assert_eq!(holders[0].handle.as_deref(), Some("k8s-pod-network.web"));
}

/// Returns the address of a Node, and the addresses of its handle.
async fn held(resources: &Resources, node: &str) -> (Option<String>, Vec<String>) {
    let ipam = Ipam::new(resources.store());
    let handle = format!("vxlan-tunnel-addr-{node}");
    let held = ipam.of_handle(&handle).await.expect("a handle");
    let held = held.iter().map(|release| release.address.to_string());
    let address = text(resources, node, "ipv4VXLANTunnelAddr").await;
    (address, held.collect())
}

#[tokio::test]
async fn node_without_a_pool_does_not_stop_later_nodes() {
    let resources = fabric().await;
    let spec = json!({"cidr": "10.65.0.0/16", "vxlanMode": "Always", "nodeSelector": "all()"});
    put(&resources, "IPPool", "a", spec).await;
    lines(&resources, &["n1"]).await;
    let before = held(&resources, "n1").await;
    // n1 must have another address now, and no pool is for n1.
    let spec = json!({"cidr": "10.66.0.0/16", "vxlanMode": "Always", "nodeSelector": "has(b)"});
    put(&resources, "IPPool", "b", spec).await;
    pool(&resources, "Never").await;
    let label = |node: &mut Value| {
        node["metadata"]["labels"] = json!({"b": ""});
        true
    };
    let labeled = resources.patch(&key("n2"), None, label).await;
    labeled.expect("labeled");
    let report = reconcile(&resources, &[]).await.expect("a report");
    assert_eq!(report.errors.lines().count(), 1, "{}", report.errors);
    assert!(
        report.errors.starts_with("node n1: ipv4VXLANTunnelAddr: ")
            && report.errors.contains("allows tunnels"),
        "{}",
        report.errors
    );
    assert!(report.lines.starts_with("n2: 10.66."), "{}", report.lines);
    // The address of n1 is still in use.
    assert_eq!(held(&resources, "n1").await, before);
    assert_eq!(before.0.as_slice(), before.1);
}

#[tokio::test]
async fn unreadable_pool_releases_nothing() {
    let resources = fabric().await;
    lines(&resources, &[]).await;
    let before = held(&resources, "n1").await;
    let at = ResourceKey::new(Kind::IpPool, None, "a").expect("a name");
    for value in [
        r#"{"spec": {"cidr": "10.65.0.0/16", "vxlanMode": "Sometimes"}}"#,
        r#"{"metadata": {"name": "a"}, "spec": {"vxlanMode": "Always"}}"#,
    ] {
        let write = Txn {
            then: vec![Op::Put(Put::new(at.to_string(), value))],
            ..Txn::default()
        };
        resources.store().txn(write).await.expect("written");
        let error = reconcile(&resources, &[]).await.expect_err("unreadable");
        assert!(error.to_string().contains("IPPool"), "{error:#}");
        assert_eq!(held(&resources, "n1").await, before);
    }
}

#[tokio::test]
async fn separate_pool_gives_addresses_before_a_mode_changes() {
    let resources = fabric().await;
    pool(&resources, "Never").await;
    let spec = json!({"cidr": "10.66.0.0/28", "blockSize": 32, "vxlanMode": "Always",
        "allowedUses": ["Tunnel"]});
    put(&resources, "IPPool", "tunnels", spec).await;
    assert_eq!(lines(&resources, &[]).await.lines().count(), 2);
    let before = held(&resources, "n1").await;
    assert!(before.1[0].starts_with("10.66.0."), "{before:?}");
    pool(&resources, "Always").await;
    assert_eq!(lines(&resources, &[]).await, "");
    assert_eq!(held(&resources, "n1").await, before);
}

#[tokio::test]
async fn pool_that_got_a_vxlan_mode_since_keeps_addresses() {
    let resources = fabric().await;
    lines(&resources, &[]).await;
    let before = held(&resources, "n1").await;
    // The pools as they were read at the start of the run.
    let old = Pools::default();
    let line = settle(&resources, &old, &key("n1"), &DEVICES[0]).await;
    assert_eq!(line.expect("settled"), None);
    assert_eq!(held(&resources, "n1").await, before);
}

/// A datastore that carries out the writes of Nodes or not, and loses the answers.
struct Lossy {
    store: Local,
    /// `None`: no answer is lost.
    carries_out: Mutex<Option<bool>>,
}

impl Store for Lossy {
    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        let of_node = |op: &Op| match op {
            Op::Put(put) => put.key.windows(7).any(|part| part == b"/nodes/"),
            _ => false,
        };
        let carries_out = *self.carries_out.lock().expect("a lock");
        let lost = carries_out.filter(|_| txn.then.iter().any(of_node));
        Box::pin(async move {
            if lost != Some(false) {
                let reply = self.store.txn(txn).await?;
                if lost.is_none() {
                    return Ok(reply);
                }
            }
            Err(Error::Unavailable("lost".to_owned()))
        })
    }

    forward!(store: range watch others);
}

/// Runs the command once while answers about Nodes are lost.
async fn lose(store: &Lossy, resources: &Resources, carries_out: bool) {
    *store.carries_out.lock().expect("a lock") = Some(carries_out);
    let report = reconcile(resources, &["n1".to_owned()]).await;
    *store.carries_out.lock().expect("a lock") = None;
    assert!(report.expect("a report").errors.contains("lost"));
}

#[tokio::test]
async fn lost_answer_leaves_no_address_without_allocation() {
    for carries_out in [true, false] {
        let store = Arc::new(Lossy {
            store: Local::empty(),
            carries_out: Mutex::new(None),
        });
        let shared: Arc<dyn Store> = store.clone();
        let resources = fabric_in(shared).await;
        lose(&store, &resources, carries_out).await;
        let (address, all) = held(&resources, "n1").await;
        assert_eq!(address.is_some(), carries_out);
        assert!(address.is_none_or(|address| all.contains(&address)));
        // The next run leaves exactly one.
        lines(&resources, &["n1"]).await;
        let (address, all) = held(&resources, "n1").await;
        assert_eq!(address.as_slice(), all);
        // Until the Node lacks the address, it stays allocated.
        pool(&resources, "Never").await;
        lose(&store, &resources, carries_out).await;
        let (address, all) = held(&resources, "n1").await;
        assert!(address.is_none_or(|address| all == [address]));
        lines(&resources, &["n1"]).await;
        assert_eq!(held(&resources, "n1").await, (None, Vec::new()));
    }
}
