//! Values as documented by Calico, compared key for key before and after.

use std::net::IpAddr;

use calico_ipam::{Ipam, IpamError, Request};
use calico_model::AffinityOwner;
use calico_store::{KeyRange, Store};
use etcd_lite::Local;
use ipnet::IpNet;
use serde_json::{Value, json};

use crate::gc::{collect_all, endpoint, node, put, ready};
use crate::tools::{configure, pool, request, sound, take, taker};

const BLOCK: &str = "/calico/ipam/v2/assignment/ipv4/block/10.65.3.64-30";
const AFFINITY: &str = "/calico/ipam/v2/host/r1-c07/ipv4/block/10.65.3.64-30";
const TUNNEL: &str = "/calico/ipam/v2/handle/vxlan-tunnel-addr-r1-c07";
const SEQUENCE: u64 = 1_772_619_630_000_000_123;

async fn value(store: &dyn Store, key: &str) -> Value {
    let found = store.get(key.to_owned().into()).await.unwrap();
    found.map_or(Value::Null, |found| {
        serde_json::from_slice(&found.value).unwrap()
    })
}

/// Returns a block with a tunnel's address and a pod's, as Calico's writers store it.
fn block() -> Value {
    json!({"cidr": "10.65.3.64/30", "affinity": "host:r1-c07",
        "affinity_claim_time": "2026-03-04T10:20:30Z",
        "allocations": [0, null, 1, null], "unallocated": [3, 1],
        "attributes": [
            {"handle_id": "vxlan-tunnel-addr-r1-c07", "secondary": {"node": "r1-c07", "type": "vxlanTunnelAddress"}},
            {"handle_id": "k8s-pod-network.9f3c", "secondary": {"namespace": "prod", "pod": "web-0", "node": "r1-c07",
                "timestamp": "2026-03-04 10:21:00 +0000 UTC"}}],
        "sequenceNumber": SEQUENCE,
        "sequenceNumberForAllocation": {"0": SEQUENCE - 1, "2": SEQUENCE},
        "deleted": false})
}

async fn as_calico_left_it() -> Local {
    let store = Local::empty();
    put(&store, BLOCK, &block()).await;
    // Without a state: confirmed.
    put(&store, AFFINITY, &json!({})).await;
    let count = json!({"block": {"10.65.3.64/30": 1}, "deleted": false});
    put(&store, TUNNEL, &count).await;
    put(
        &store,
        "/calico/ipam/v2/handle/k8s-pod-network.9f3c",
        &count,
    )
    .await;
    store
}

#[tokio::test]
async fn assign_and_release_write_the_keys_of_calico() {
    let store = as_calico_left_it().await;
    let pools = [pool("10.65.0.0/16", 30)];
    let taken = take(&store, "r1-c07", "net.1", 1, &pools).await.unwrap();
    assert_eq!(
        taken,
        ["10.65.3.67".parse::<IpAddr>().unwrap()],
        "first of the free ones"
    );
    let mut expected = block();
    expected["allocations"] = json!([0, null, 1, 2]);
    expected["unallocated"] = json!([1]);
    let attributes = expected["attributes"].as_array_mut().unwrap();
    attributes.push(json!({"handle_id": "net.1", "secondary": {"node": "r1-c07"}}));
    expected["sequenceNumber"] = json!(SEQUENCE + 1);
    expected["sequenceNumberForAllocation"]["3"] = json!(SEQUENCE);
    assert_eq!(value(&store, BLOCK).await, expected);
    assert_eq!(value(&store, AFFINITY).await, json!({}), "left as it is");
    let count = json!({"block": {"10.65.3.64/30": 1}, "deleted": false});
    assert_eq!(value(&store, "/calico/ipam/v2/handle/net.1").await, count);

    let ipam = Ipam::new(&store);
    ipam.release_handle("k8s-pod-network.9f3c").await.unwrap();
    // The released address is the last to be assigned again, and its attributes are removed.
    expected["allocations"] = json!([0, null, null, 1]);
    expected["unallocated"] = json!([1, 2]);
    expected["attributes"].as_array_mut().unwrap().remove(1);
    expected["sequenceNumber"] = json!(SEQUENCE + 2);
    let sequences = expected["sequenceNumberForAllocation"].as_object_mut();
    sequences.unwrap().remove("2");
    assert_eq!(value(&store, BLOCK).await, expected);
    let gone = value(&store, "/calico/ipam/v2/handle/k8s-pod-network.9f3c").await;
    assert_eq!(gone, Value::Null);
    sound(&store).await;

    // A host is removed: its block has no affinity until the last address is released.
    ipam.release_handle("net.1").await.unwrap();
    ipam.remove_host("r1-c07").await.unwrap();
    let left = value(&store, BLOCK).await;
    assert_eq!(left["affinity"], Value::Null);
    assert_eq!(left.get("affinity_claim_time"), None);
    ipam.release_handle("vxlan-tunnel-addr-r1-c07")
        .await
        .unwrap();
    let left = store.list(KeyRange::prefix("/calico/ipam/")).await.unwrap();
    assert!(left.items.is_empty());
}

#[tokio::test]
async fn an_address_cools_down_as_calico_notes_it() {
    let store = as_calico_left_it().await;
    configure(
        &store,
        r#"{"auto_allocate_blocks":true,"ipCooldownSeconds":3600}"#,
    )
    .await;
    let ipam = Ipam::new(&store);
    ipam.release_handle("k8s-pod-network.9f3c").await.unwrap();
    let now = value(&store, BLOCK).await;
    let released = now["attributes"][1]["releasedAt"].clone();
    assert!(released.as_str().unwrap().ends_with('Z'), "{released}");
    let mut expected = block();
    expected["attributes"][1] = json!({"releasedAt": released});
    expected["sequenceNumber"] = json!(SEQUENCE + 1);
    assert_eq!(now, expected);
    // Neither free, nor allocated, nor leaked.
    let address: IpAddr = "10.65.3.66".parse().unwrap();
    assert!(ipam.holders(&[address]).await.unwrap().is_empty());
    let pools = [pool("10.65.3.64/30", 30)];
    let taken = take(&store, "r1-c07", "net.1", 2, &pools).await.unwrap();
    assert!(!taken.contains(&address));
    let error = take(&store, "r1-c07", "net.2", 1, &pools).await;
    assert!(matches!(error, Err(IpamError::UsedUp { .. })), "{error:?}");
    configure(&store, r#"{"auto_allocate_blocks":true}"#).await;
    let taken = take(&store, "r1-c07", "net.2", 1, &pools).await.unwrap();
    assert_eq!(taken, [address]);
}

#[tokio::test]
async fn the_settings_mean_what_they_mean_to_calico() {
    let pools = [pool("10.65.0.0/24", 30)];
    // Without the key: blocks are claimed, at most twenty, and then nothing is borrowed.
    let store = Local::empty();
    take(&store, "b", "b.1", 1, &pools).await.unwrap();
    take(&store, "a", "a.1", 80, &pools).await.unwrap();
    let error = take(&store, "a", "a.2", 1, &pools).await;
    assert!(
        matches!(error, Err(IpamError::BlockLimit { blocks: 20, .. })),
        "{error:?}"
    );
    // Zero selects that built-in number, other values apply as they are; a request can set a lower
    // maximum.
    configure(
        &store,
        r#"{"auto_allocate_blocks":true,"maxBlocksPerHost":0}"#,
    )
    .await;
    let error = take(&store, "a", "a.2", 1, &pools).await;
    assert!(
        matches!(error, Err(IpamError::BlockLimit { blocks: 20, .. })),
        "{error:?}"
    );
    configure(
        &store,
        r#"{"auto_allocate_blocks":true,"maxBlocksPerHost":21}"#,
    )
    .await;
    take(&store, "a", "a.2", 4, &pools).await.unwrap();
    let error = take(&store, "a", "a.3", 1, &pools).await;
    assert!(
        matches!(error, Err(IpamError::BlockLimit { blocks: 21, .. })),
        "{error:?}"
    );
    let taker = taker("b", "b.2");
    let few = Request {
        blocks_max: Some(1),
        ..request("b", &taker, 4, &pools)
    };
    let error = Ipam::new(&store).assign(&few).await;
    assert!(
        matches!(error, Err(IpamError::BlockLimit { blocks: 1, .. })),
        "{error:?}"
    );
    // A missing field of a stored value is off: no blocks, but borrowing.
    configure(&store, "{}").await;
    let borrowed = take(&store, "c", "c.1", 1, &pools).await.unwrap();
    assert_eq!(sound(&store).await[&borrowed[0]], "c.1");
    let affinities = KeyRange::prefix("/calico/ipam/v2/host/c/");
    assert!(store.list(affinities).await.unwrap().items.is_empty());
    configure(&store, r#"{"strict_affinity":true}"#).await;
    let error = take(&store, "c", "c.2", 1, &pools).await;
    assert!(
        matches!(error, Err(IpamError::UsedUp { assigned: 0, .. })),
        "{error:?}"
    );
    sound(&store).await;
}

#[tokio::test]
async fn earlier_blocks_of_the_host_may_be_outdated() {
    let store = ready().await;
    let ipam = Ipam::new(&store);
    let pools = [pool("10.65.0.0/16", 30)];
    let none = ipam.host_blocks("a").await.unwrap();
    let assign = async |handle: &str, count, earlier| {
        let taker = taker("a", handle);
        let request = request("a", &taker, count, &pools);
        let given = ipam.assign_after(&request, Some(earlier)).await.unwrap();
        assert_eq!(given.len(), count);
        given[0].address
    };
    // The host has another block now, and then a full one.
    let first = assign("a.1", 1, &none).await;
    let one = ipam.host_blocks("a").await.unwrap();
    let second = assign("a.2", 3, &none).await;
    let block = IpNet::new(first, 30).unwrap().trunc();
    assert!(block.contains(&second), "{first} and {second} of one block");
    let third = assign("a.3", 2, &one).await;
    assert!(
        !block.contains(&third),
        "{third} is in the full block {block}"
    );
    // The block is released: it is made again.
    for handle in ["a.1", "a.2"] {
        ipam.release_handle(handle).await.unwrap();
    }
    let owner = AffinityOwner::Host("a".to_owned());
    ipam.release_affinity(&owner, block, None).await.unwrap();
    let again = assign("a.4", 1, &one).await;
    assert!(block.contains(&again), "{again} is not in {block}");
    sound(&store).await;
}

#[tokio::test]
async fn blocks_of_load_balancers_are_left_to_them() {
    let store = ready().await;
    let pools = [pool("10.65.3.64/29", 30)];
    let mut lent = block();
    lent["affinity"] = json!("virtual:load-balancer");
    lent["affinity_claim_time"] = json!("2020-01-01T00:00:00Z");
    lent["attributes"] = json!([
        {"handle_id": "lb-1", "secondary": {"namespace": "prod", "service": "web", "type": "loadBalancer"}},
        {"handle_id": "lb-2", "secondary": {"service": "db", "type": "loadBalancer"}}]);
    let affinity = "/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.65.3.64-30";
    put(&store, BLOCK, &lent).await;
    let confirmed = json!({"state": "confirmed", "deleted": false});
    put(&store, affinity, &confirmed).await;
    let count = json!({"block": {"10.65.3.64/30": 1}, "deleted": false});
    for handle in ["lb-1", "lb-2"] {
        put(&store, &format!("/calico/ipam/v2/handle/{handle}"), &count).await;
    }
    node(&store, "a").await;
    // A host neither borrows from them, nor takes over an empty one.
    for round in 0..2 {
        let taken = take(&store, "a", "a.1", 4, &pools).await.unwrap();
        for address in &taken {
            endpoint(&store, "a", &format!("w{address}"), *address).await;
        }
        let error = take(&store, "a", "a.2", 1, &pools).await;
        assert!(matches!(error, Err(IpamError::UsedUp { .. })), "{error:?}");
        collect_all(&store).await;
        assert_eq!(value(&store, BLOCK).await, lent, "round {round}");
        assert_eq!(value(&store, affinity).await, confirmed);
        Ipam::new(&store).release_handle("a.1").await.unwrap();
        if round == 0 {
            for handle in ["lb-1", "lb-2"] {
                Ipam::new(&store).release_handle(handle).await.unwrap();
            }
            lent = value(&store, BLOCK).await;
            assert_eq!(lent["affinity"], "virtual:load-balancer");
            assert_eq!(lent["attributes"], json!([]));
        }
    }
}
