//! Garbage collection: findings, their grace period, and their repair.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use calico_ipam::{Collector, Finding, Inventory, Ipam, NotReady, Use, findings};
use calico_store::{KeyRange, LeaseId, Store};
use etcd_lite::Local;
use serde_json::{Value, json};

use crate::tools::{configure, pool, sound, take};

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";
const GRACE: Duration = Duration::from_secs(900);

pub(crate) async fn put(store: &dyn Store, key: &str, value: &Value) {
    let octets = value.to_string();
    store
        .put(key.to_owned().into(), octets.into(), LeaseId::NONE)
        .await
        .unwrap();
}

/// The key of the ClusterInformation.
const INFORMATION: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";

fn information(ready: &Value) -> Value {
    json!({"metadata": {"name": "default"}, "spec": {"datastoreReady": ready}})
}

/// Returns a datastore with `datastoreReady`.
pub(crate) async fn ready() -> Local {
    let store = Local::empty();
    put(&store, INFORMATION, &information(&json!(true))).await;
    store
}

pub(crate) async fn node(store: &dyn Store, name: &str) {
    let key = format!("{RESOURCES}nodes/{name}");
    put(
        store,
        &key,
        &json!({"metadata": {"name": name}, "spec": {}}),
    )
    .await;
}

pub(crate) async fn endpoint(store: &dyn Store, node: &str, workload: &str, address: IpAddr) {
    let node = node.replace('-', "--");
    let name = format!("{node}-cni-{}-eth0", workload.replace('-', "--"));
    let key = format!("{RESOURCES}workloadendpoints/default/{name}");
    let value = json!({"metadata": {"name": name, "namespace": "default"},
        "spec": {"ipNetworks": [address.to_string()]}});
    put(store, &key, &value).await;
}

async fn delete(store: &dyn Store, key: &str) {
    store.delete(key.to_owned().into()).await.unwrap();
}

/// Returns the current findings as text.
async fn found(store: &dyn Store) -> Vec<String> {
    let inventory = Ipam::new(store).inventory().await.unwrap();
    findings(&inventory)
        .iter()
        .map(Finding::to_string)
        .collect()
}

/// Looks twice, with more than the grace period in between, and repairs the findings.
pub(crate) async fn collect(store: &dyn Store) -> Vec<bool> {
    let ipam = Ipam::new(store);
    let mut collector = Collector::new(GRACE);
    let now = Instant::now();
    let inventory = ipam.inventory().await.unwrap();
    assert_eq!(collector.look(now, &inventory), Ok(vec![]));
    let inventory = ipam.inventory().await.unwrap();
    let mut mended = Vec::new();
    for finding in collector.look(now + GRACE, &inventory).unwrap() {
        mended.push(ipam.mend(&finding).await.unwrap());
    }
    mended
}

/// Repairs until there are no findings.
pub(crate) async fn collect_all(store: &dyn Store) {
    for _ in 0..4 {
        if found(store).await.is_empty() {
            return;
        }
        collect(store).await;
    }
    panic!("{:?}", found(store).await);
}

#[tokio::test]
async fn leaked_address_is_released_after_the_grace_period() {
    let store = ready().await;
    let pools = [pool("10.65.0.0/24", 28)];
    node(&store, "a").await;
    let used = take(&store, "a", "a.1", 1, &pools).await.unwrap()[0];
    let leaked = take(&store, "a", "a.2", 1, &pools).await.unwrap()[0];
    let gone = take(&store, "b", "b.1", 1, &pools).await.unwrap()[0];
    endpoint(&store, "a", "w1", used).await;
    let block = |of: &Inventory, at: IpAddr| *of.blocks.keys().find(|it| it.contains(&at)).unwrap();
    let ipam = Ipam::new(&store);
    let inventory = ipam.inventory().await.unwrap();
    let mut expected = vec![
        format!("{leaked} of a.2 is leaked: no endpoint has it"),
        format!("{gone} of b.1 is leaked: its node is deleted"),
        format!(
            "block {} belongs to node b, which is deleted",
            block(&inventory, gone)
        ),
    ];
    let mut leaks = found(&store).await;
    expected.sort();
    leaks.sort();
    assert_eq!(leaks, expected);

    let mut collector = Collector::new(GRACE);
    let now = Instant::now();
    let almost = GRACE - Duration::from_millis(1);
    assert_eq!(collector.look(now, &inventory), Ok(vec![]));
    assert_eq!(collector.look(now + almost, &inventory), Ok(vec![]));
    // One address comes into use, and is no longer a finding.
    endpoint(&store, "a", "w2", leaked).await;
    let inventory = ipam.inventory().await.unwrap();
    let confirmed = collector.look(now + GRACE, &inventory).unwrap();
    assert_eq!(confirmed.len(), 2);
    for finding in &confirmed {
        assert!(ipam.mend(finding).await.unwrap(), "{finding}");
        assert!(!ipam.mend(finding).await.unwrap(), "{finding}");
    }
    let held = sound(&store).await;
    assert_eq!(
        held.values().map(String::as_str).collect::<Vec<_>>(),
        ["a.1", "a.2"]
    );
    let left = store.list(KeyRange::prefix("/calico/ipam/")).await.unwrap();
    assert_eq!(left.items.len(), 4, "a block, an affinity, two handles");
    assert_eq!(found(&store).await, Vec::<String>::new());
}

// Promise: as calico-ipam nothing_is_collected_where_not_all_can_be_seen
#[tokio::test]
async fn changed_finding_waits_for_its_own_grace_period() {
    let store = ready().await;
    let pools = [pool("10.65.0.0/32", 32)];
    node(&store, "a").await;
    take(&store, "a", "a.1", 1, &pools).await.unwrap();
    let ipam = Ipam::new(&store);
    let mut collector = Collector::new(GRACE);
    let now = Instant::now();
    let first = ipam.inventory().await.unwrap();
    assert_eq!(collector.look(now, &first), Ok(vec![]));
    let old: Vec<Finding> = collector.suspects().cloned().collect();
    // Released, and assigned again, even to the same handle.
    ipam.release_handle("a.1").await.unwrap();
    take(&store, "a", "a.1", 1, &pools).await.unwrap();
    let second = ipam.inventory().await.unwrap();
    assert_eq!(collector.look(now + GRACE, &second), Ok(vec![]));
    assert!(!ipam.mend(&old[0]).await.unwrap());
    assert_eq!(sound(&store).await.len(), 1);
    // The finding must be in every look.
    let mut collector = Collector::new(GRACE);
    assert_eq!(collector.look(now, &second), Ok(vec![]));
    endpoint(&store, "a", "w", "10.65.0.0".parse().unwrap()).await;
    let used = ipam.inventory().await.unwrap();
    assert_eq!(collector.look(now + GRACE, &used), Ok(vec![]));
    assert_eq!(collector.look(now + 2 * GRACE, &second), Ok(vec![]));
    assert_eq!(collector.look(now + 3 * GRACE, &second).unwrap().len(), 1);
}

// Promise (Workloads): Garbage collection releases no address that may be in use.
#[tokio::test]
async fn nothing_is_collected_where_not_all_can_be_seen() {
    let store = Local::empty();
    let pools = [pool("10.65.0.0/24", 28)];
    take(&store, "a", "a.1", 1, &pools).await.unwrap();
    let ipam = Ipam::new(&store);
    let mut collector = Collector::new(Duration::ZERO);
    let mut look = async || {
        let inventory = ipam.inventory().await.unwrap();
        let looks = [Instant::now(), Instant::now()];
        let [_, last] = looks.map(|now| collector.look(now, &inventory));
        last
    };
    // A datastore without `datastoreReady` has been emptied, or is not filled yet: further nodes
    // and endpoints may be restored later.
    assert_eq!(look().await, Err(NotReady::Silent));
    node(&store, "b").await;
    assert_eq!(look().await, Err(NotReady::Silent));
    // A datastore under migration is left unchanged, and so is one with an invalid value.
    for unready in [json!(false), Value::Null, json!("true")] {
        put(&store, INFORMATION, &information(&unready)).await;
        assert_eq!(look().await, Err(NotReady::Silent), "{unready}");
    }
    let other = INFORMATION.replace("default", "other");
    put(&store, &other, &information(&json!(true))).await;
    assert_eq!(look().await, Err(NotReady::Silent));
    put(&store, INFORMATION, &information(&json!(true))).await;
    assert_eq!(look().await.unwrap().len(), 2);
    delete(&store, &format!("{RESOURCES}nodes/b")).await;
    assert_eq!(look().await, Err(NotReady::Silent), "no node");
    node(&store, "a").await;
    assert_eq!(look().await.unwrap().len(), 1);
    // An endpoint of the node cannot be parsed: its addresses are unknown.
    let endpoint = format!("{RESOURCES}workloadendpoints/default/a-cni-w-eth0");
    put(&store, &endpoint, &json!({"spec": {"ipNetworks": 7}})).await;
    assert_eq!(look().await, Ok(vec![]));
    let other = format!("{RESOURCES}workloadendpoints/default/b-cni-w-eth0");
    delete(&store, &endpoint).await;
    put(&store, &other, &json!({"spec": {"ipNetworks": 7}})).await;
    assert_eq!(look().await.unwrap().len(), 1, "that is not its node");
    let unnamed = format!("{RESOURCES}workloadendpoints/default/no_name");
    put(&store, &unnamed, &json!({"spec": {"ipNetworks": 7}})).await;
    assert_eq!(look().await, Ok(vec![]), "it may be any node");
}

#[tokio::test]
async fn addresses_of_other_types_are_collected_by_their_type() {
    let store = ready().await;
    let pools = [pool("10.65.0.0/24", 28)];
    node(&store, "a").await;
    for (handle, attributes) in [
        (
            "vxlan-tunnel-addr-a",
            json!({"node": "a", "type": "vxlanTunnelAddress"}),
        ),
        (
            "vxlan-tunnel-addr-b",
            json!({"node": "b", "type": "vxlanTunnelAddress"}),
        ),
        ("mac-a", json!({"node": "a", "type": "plugin:macvlan"})),
        ("mac-b", json!({"node": "b", "type": "plugin:macvlan"})),
        ("lb", json!({"node": "b", "type": "loadBalancer"})),
        ("by-hand", json!({"note": "a printer"})),
        ("Windows-Reserved-IPAM-Handle", json!({})),
    ] {
        let taker = calico_ipam::Taker {
            handle: handle.to_owned(),
            attributes: serde_json::from_value(attributes).unwrap(),
        };
        let request = crate::tools::request("a", &taker, 1, &pools);
        Ipam::new(&store).assign(&request).await.unwrap();
    }
    let inventory = Ipam::new(&store).inventory().await.unwrap();
    let found = findings(&inventory);
    let leaks: Vec<&str> = found
        .iter()
        .map(|found| match found {
            Finding::Leak {
                handle: Some(handle),
                why: Use::NodeGone,
                ..
            } => handle.as_str(),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(leaks, ["vxlan-tunnel-addr-b", "mac-b"]);
}

#[tokio::test]
async fn a_host_keeps_a_block_of_each_family() {
    let store = ready().await;
    let (v4, v6) = ([pool("10.65.0.0/24", 30)], [pool("fd65::/120", 124)]);
    node(&store, "a").await;
    for (at, pools) in [(0, &v4), (1, &v4), (2, &v4), (3, &v6)] {
        let count = if at < 3 { 4 } else { 1 };
        take(&store, "a", &format!("a.{at}"), count, pools)
            .await
            .unwrap();
    }
    let ipam = Ipam::new(&store);
    for at in 0..4 {
        ipam.release_handle(&format!("a.{at}")).await.unwrap();
    }
    assert_eq!(
        found(&store).await.len(),
        2,
        "two of three, and not the one"
    );
    assert_eq!(collect(&store).await, [true, true]);
    let left = store
        .list(KeyRange::prefix("/calico/ipam/v2/assignment/"))
        .await
        .unwrap();
    assert_eq!(left.items.len(), 2);
    // With another block in use, one is enough.
    let taken = take(&store, "a", "b.1", 5, &v4).await.unwrap();
    for address in &taken {
        endpoint(&store, "a", &format!("w{address}"), *address).await;
    }
    let (last, _) = taken.split_last().unwrap();
    ipam.release(&[calico_ipam::Release::of(*last)])
        .await
        .unwrap();
    assert_eq!(collect(&store).await, [true]);
    sound(&store).await;
    // A block that comes into use in the meantime stays.
    let mut collector = Collector::new(Duration::ZERO);
    take(&store, "a", "c.1", 4, &v4).await.unwrap();
    ipam.release_handle("c.1").await.unwrap();
    let inventory = ipam.inventory().await.unwrap();
    collector.look(Instant::now(), &inventory).unwrap();
    let confirmed = collector.look(Instant::now(), &inventory).unwrap();
    take(&store, "a", "c.2", 4, &v4).await.unwrap();
    for finding in &confirmed {
        assert!(!ipam.mend(finding).await.unwrap(), "{finding}");
    }
    sound(&store).await;
}

#[tokio::test]
async fn partial_changes_of_calico_are_repaired() {
    let store = ready().await;
    let pools = [pool("10.65.0.0/30", 30)];
    node(&store, "a").await;
    let address = take(&store, "a", "a.1", 1, &pools).await.unwrap()[0];
    endpoint(&store, "a", "w", address).await;
    let whole = store.list(KeyRange::prefix("/calico/ipam/")).await.unwrap();
    let key = |rest: &str| format!("/calico/ipam/v2/{rest}");
    let affinity = key("host/a/ipv4/block/10.65.0.0-30");
    let pending = json!({"state": "pending", "deleted": false});
    let count = |count: u32| json!({"block": {"10.65.0.0/30": count}, "deleted": false});
    let broken: [(&str, String, Option<Value>); 8] = [
        (
            "a handle counts too much",
            key("handle/a.1"),
            Some(count(3)),
        ),
        ("a handle is not there", key("handle/a.1"), None),
        (
            "a handle without a block",
            key("handle/other"),
            Some(json!({"block": {"10.9.0.0/30": 1}, "deleted": false})),
        ),
        (
            "a handle that counts nothing",
            key("handle/other"),
            Some(json!({"block": {}, "deleted": false})),
        ),
        (
            "an affinity is not confirmed",
            affinity.clone(),
            Some(pending.clone()),
        ),
        ("an affinity is not there", affinity.clone(), None),
        (
            "an affinity to no block",
            key("host/a/ipv4/block/10.9.0.0-30"),
            Some(pending.clone()),
        ),
        (
            "an affinity of a node that is gone",
            key("host/b/ipv4/block/10.65.0.0-30"),
            Some(pending),
        ),
    ];
    for (what, key, value) in broken {
        match &value {
            Some(value) => put(&store, &key, value).await,
            None => delete(&store, &key).await,
        }
        assert_eq!(found(&store).await.len(), 1, "{what}");
        assert_eq!(collect(&store).await, [true], "{what}");
        let now = store.list(KeyRange::prefix("/calico/ipam/")).await.unwrap();
        let values = |listing: &calico_store::Listing| {
            let items = listing.items.iter();
            items
                .map(|item| (item.key.clone(), item.value.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(values(&now), values(&whole), "{what}");
    }
    put(&store, &key("host/gone"), &Value::Null).await;
    assert_eq!(
        found(&store).await,
        ["node gone is deleted, but still marked as a host"]
    );
    assert_eq!(collect(&store).await, [true]);
}

#[tokio::test]
async fn cooled_address_of_an_unowned_block_is_released() {
    let store = ready().await;
    let pools = [pool("10.65.0.0/30", 30)];
    node(&store, "b").await;
    let config = |cool_down_s: u32| {
        format!(r#"{{"auto_allocate_blocks":true,"ipCooldownSeconds":{cool_down_s}}}"#)
    };
    configure(&store, &config(3600)).await;
    take(&store, "a", "a.1", 1, &pools).await.unwrap();
    collect(&store).await;
    assert_eq!(found(&store).await, Vec::<String>::new(), "it cools down");
    let left = store
        .list(KeyRange::prefix("/calico/ipam/v2/a"))
        .await
        .unwrap();
    let block: Value = serde_json::from_slice(&left.items[0].value).unwrap();
    assert!(block["attributes"][0]["releasedAt"].is_string(), "{block}");
    assert_eq!(block["affinity"], Value::Null);
    configure(&store, &config(0)).await;
    assert_eq!(collect(&store).await, [true]);
    let left = store
        .list(KeyRange::prefix("/calico/ipam/v2/a"))
        .await
        .unwrap();
    assert!(left.items.is_empty());
}

#[tokio::test]
async fn returning_node_keeps_its_blocks() {
    let store = ready().await;
    let pools = [pool("10.65.0.0/24", 28)];
    node(&store, "b").await;
    take(&store, "a", "a.1", 1, &pools).await.unwrap();
    let ipam = Ipam::new(&store);
    let inventory = ipam.inventory().await.unwrap();
    let found = findings(&inventory);
    node(&store, "a").await;
    for finding in found.iter().filter(|found| found.address().is_none()) {
        assert!(!ipam.mend(finding).await.unwrap(), "{finding}");
    }
    assert_eq!(sound(&store).await.len(), 1);
}

#[tokio::test]
async fn datastore_with_another_guid_is_not_collected() {
    let store = ready().await;
    let pools = [pool("10.65.0.0/24", 28)];
    node(&store, "b").await;
    take(&store, "a", "a.1", 1, &pools).await.unwrap();
    let ipam = Ipam::new(&store);
    let mut collector = Collector::new(Duration::ZERO);
    let mut look = async |guid: &str| {
        let mut information_value = information(&json!(true));
        information_value["spec"]["clusterGUID"] = guid.into();
        put(&store, INFORMATION, &information_value).await;
        let inventory = ipam.inventory().await.unwrap();
        let found = collector.look(Instant::now(), &inventory)?;
        Ok(found.len())
    };
    // The GUID may be set later, and a missing GUID proves nothing.
    for (guid, found) in [("", 0), ("one", 2), ("", 2), ("one", 2)] {
        assert_eq!(look(guid).await, Ok(found), "{guid}");
    }
    for _ in 0..2 {
        assert_eq!(look("other").await, Err(NotReady::Other));
    }
    // Earlier findings must be seen again.
    for found in [0, 2] {
        assert_eq!(look("one").await, Ok(found));
    }
}
