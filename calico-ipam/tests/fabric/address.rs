//! Requests for specific addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_ipam::{AddressRequest, Given, Ipam, IpamError, Pool, Release, Request, Taker};
use calico_model::AffinityOwner;
use calico_store::{KeyRange, LeaseId, Store};
use etcd_lite::Local;
use serde_json::{Value, json};

use crate::tools::{configure, pool, sound, take, taker};

async fn take_address(
    store: &dyn Store,
    host: &str,
    handle: &str,
    address: &str,
    pools: &[Pool],
) -> Result<Given, IpamError> {
    let taker = taker(host, handle);
    let request = AddressRequest {
        host,
        taker: &taker,
        address: address.parse().unwrap(),
        pools,
    };
    Ipam::new(store).assign_address(&request).await
}

async fn values(store: &dyn Store) -> Vec<(String, Value)> {
    let listing = store.list(KeyRange::prefix("/calico/ipam/")).await.unwrap();
    let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
    let items = listing.items.iter();
    items
        .map(|item| {
            let value = serde_json::from_slice(&item.value).unwrap_or(Value::Null);
            (text(&item.key), value)
        })
        .collect()
}

#[tokio::test]
async fn requested_address_claims_its_block_for_the_host() {
    let store = Local::empty();
    let pools = [pool("10.66.0.0/16", 26), pool("10.65.0.0/16", 30)];
    let given = take_address(&store, "a", "a.1", "10.65.3.65", &pools).await;
    let given = given.unwrap();
    let (sequence, claimed) = {
        let values = values(&store).await;
        let block = &values[0].1;
        assert_eq!(values.len(), 3);
        assert_eq!(
            values[1],
            (
                "/calico/ipam/v2/handle/a.1".to_owned(),
                json!({"block": {"10.65.3.64/30": 1}, "deleted": false})
            )
        );
        assert_eq!(
            values[2],
            (
                "/calico/ipam/v2/host/a/ipv4/block/10.65.3.64-30".to_owned(),
                json!({"state": "confirmed", "deleted": false})
            )
        );
        let claimed = block["affinity_claim_time"].clone();
        assert_eq!(
            values[0],
            (
                "/calico/ipam/v2/assignment/ipv4/block/10.65.3.64-30".to_owned(),
                json!({"cidr": "10.65.3.64/30", "affinity": "host:a", "affinity_claim_time": claimed,
                    "allocations": [null, 0, null, null], "unallocated": [0, 2, 3],
                    "attributes": [{"handle_id": "a.1", "secondary": {"node": "a"}}],
                    "sequenceNumber": given.sequence, "sequenceNumberForAllocation": {"1": given.sequence},
                    "deleted": false})
            )
        );
        (given.sequence, claimed)
    };
    // The next address from the same block, once by address and once without.
    let second = take_address(&store, "a", "a.2", "10.65.3.64", &pools).await;
    assert_eq!(second.unwrap().sequence, sequence, "as it was read");
    let third = take(&store, "a", "a.3", 1, &pools).await.unwrap();
    assert_eq!(third, ["10.65.3.66".parse::<IpAddr>().unwrap()]);
    let block = values(&store).await.swap_remove(0).1;
    assert_eq!(block["sequenceNumber"], sequence + 2);
    assert_eq!(block["affinity_claim_time"], claimed);
    assert_eq!(sound(&store).await.len(), 3);
}

#[tokio::test]
async fn requested_address_is_given_once_and_owner_named() {
    let store = Local::empty();
    let pools = [pool("10.65.0.0/24", 26)];
    take_address(&store, "a", "a.1", "10.65.0.5", &pools)
        .await
        .unwrap();
    for host in ["a", "b"] {
        let error = take_address(&store, host, "x", "10.65.0.5", &pools).await;
        let error = error.unwrap_err();
        assert_eq!(error.to_string(), "10.65.0.5 is taken by a.1");
    }
    // From the block of another host, which keeps its affinity.
    take_address(&store, "b", "b.1", "10.65.0.6", &pools)
        .await
        .unwrap();
    assert_eq!(sound(&store).await.len(), 2);
    let address = "10.65.0.5".parse().unwrap();
    let holders = Ipam::new(&store).holders(&[address]).await.unwrap();
    assert_eq!(holders[0].handle.as_deref(), Some("a.1"));
    configure(
        &store,
        r#"{"auto_allocate_blocks":true,"ipCooldownSeconds":3600}"#,
    )
    .await;
    let ipam = Ipam::new(&store);
    let release = [Release::of(address)];
    assert_eq!(ipam.release(&release).await.unwrap(), Vec::<IpAddr>::new());
    let error = take_address(&store, "a", "a.1", "10.65.0.5", &pools).await;
    assert!(
        matches!(error, Err(IpamError::Taken { handle: None, .. })),
        "it cools down: {error:?}"
    );
}

#[tokio::test]
async fn strict_affinity_applies_to_requested_addresses() {
    let store = Local::empty();
    let pools = [pool("10.65.0.0/24", 26)];
    configure(
        &store,
        r#"{"strict_affinity":true,"auto_allocate_blocks":true}"#,
    )
    .await;
    take_address(&store, "a", "a.1", "10.65.0.5", &pools)
        .await
        .unwrap();
    let error = take_address(&store, "b", "b.1", "10.65.0.6", &pools).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "10.65.0.6 is in a block of host:a, and hosts keep to their own"
    );
    take_address(&store, "b", "b.1", "10.65.0.70", &pools)
        .await
        .unwrap();
    assert_eq!(sound(&store).await.len(), 2);
}

#[tokio::test]
async fn address_outside_all_pools_is_rejected() {
    let store = Local::empty();
    let pools = [pool("10.65.0.0/24", 26)];
    for address in ["10.65.1.0", "fd65::1"] {
        let error = take_address(&store, "a", "a.1", address, &pools).await;
        assert!(
            matches!(error, Err(IpamError::NotInPool(_))),
            "{address}: {error:?}"
        );
    }
    assert!(values(&store).await.is_empty());
}

/// Deletes a pool and creates it again with blocks of another size while an address of it is in
/// use.
#[tokio::test]
async fn blocks_of_another_size_are_seen() {
    let store = Local::empty();
    let old = [pool("10.65.0.0/27", 28)];
    take_address(&store, "a", "a.1", "10.65.0.5", &old)
        .await
        .unwrap();
    for new in [pool("10.65.0.0/27", 27), pool("10.65.0.0/27", 30)] {
        let error = take_address(&store, "b", "b.1", "10.65.0.5", &[new]).await;
        assert!(
            matches!(error, Err(IpamError::Taken { .. })),
            "{new:?}: {error:?}"
        );
    }
    let error = take_address(
        &store,
        "b",
        "b.1",
        "10.65.0.20",
        &[pool("10.65.0.0/27", 27)],
    )
    .await;
    assert!(matches!(error, Err(IpamError::InUse(_))), "{error:?}");
    // No new block overlaps the old one.
    for handle in 0..8 {
        let handle = format!("c.{handle}");
        let taken = take(&store, "c", &handle, 2, &[pool("10.65.0.0/27", 30)]).await;
        for address in taken.unwrap() {
            let other: IpAddr = "10.65.0.15".parse().unwrap();
            assert!(address > other, "{address}");
        }
    }
    assert_eq!(sound(&store).await.len(), 17);
}

#[tokio::test]
async fn pools_are_found_by_name_or_range_with_reservations() {
    let store = Local::empty();
    let put = async |path: &str, value: Value| {
        let key = format!("/calico/resources/v3/projectcalico.org/{path}");
        let value = value.to_string();
        store
            .put(key.into(), value.into(), LeaseId::NONE)
            .await
            .unwrap();
    };
    let spec = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    put("ippools/a", spec("a", json!({"cidr": "10.65.0.0/16"}))).await;
    let v6 = json!({"cidr": "fd65::/64", "blockSize": 120, "assignmentMode": "Manual"});
    put("ippools/b", spec("b", v6)).await;
    let off = json!({"cidr": "10.66.0.0/16", "disabled": true});
    put("ippools/c", spec("c", off)).await;
    put("ippools/d", json!({"spec": {"cidr": "nonsense"}})).await;
    let ranges = json!({"reservedCIDRs": ["10.65.0.0/29", "10.65.255.255/32"]});
    put("ipreservations/gw", spec("gw", ranges)).await;
    let ipam = Ipam::new(&store);
    let pools = ipam.pools().await.unwrap();
    let (a, b) = (pool("10.65.0.0/16", 26), pool("fd65::/64", 120));
    assert_eq!(pools.named("a").unwrap(), a);
    assert_eq!(pools.named("fd65::/64").unwrap(), b);
    for word in ["c", "d", "10.66.0.0/16", "10.65.0.0/24", ""] {
        assert!(pools.named(word).is_err(), "{word}");
    }
    assert_eq!(pools.enabled(), [a, b]);
    let balanced = json!({"cidr": "192.0.2.0/24", "allowedUses": ["LoadBalancer", "Tunnel"]});
    put("ippools/e", spec("e", balanced)).await;
    let pools = ipam.pools().await.unwrap();
    let text = "pool e is not for workloads: its allowedUses are LoadBalancer, Tunnel";
    for word in ["e", "192.0.2.0/24"] {
        assert_eq!(pools.named(word).unwrap_err().to_string(), text);
    }
    let at = |text: &str| text.parse::<IpAddr>().unwrap();
    let mixed = pools.for_addresses(&[at("10.65.3.3"), at("192.0.2.7")]);
    assert_eq!(mixed.unwrap_err().to_string(), text);
    let usable = pools.for_addresses(&[at("fd65::3"), at("10.65.3.3"), at("10.66.0.1")]);
    assert_eq!(usable.unwrap(), [a, b]);
    let none = Default::default();
    assert_eq!(pools.for_workload(false, &none, None), [a]);
    assert_eq!(pools.for_workload(true, &none, None), []);
    let reserved: Vec<String> = pools.reserved.iter().map(|at| at.to_string()).collect();
    assert_eq!(reserved, ["10.65.0.0/29", "10.65.255.255/32"]);
    put("ipreservations/gw", spec("gw", json!({"reservedCIDRs": 1}))).await;
    let error = ipam.pools().await.unwrap_err().to_string();
    assert!(error.contains("ipreservations/gw: "), "{error}");
}

// Promise (Kubernetes): Addresses of load balancers are in blocks of their own owner, without a limit of
// blocks, and no host borrows from them.
#[tokio::test]
async fn virtual_owner_has_blocks_of_its_own() {
    let store = Local::empty();
    let ipam = Ipam::new(&store);
    let balancers = ipam.of_virtual_owner();
    let pool = Pool {
        cidr: "192.0.2.0/24".parse().expect("a range"),
        block_size: 29,
    };
    let of = |handle: &str| Taker {
        handle: handle.to_owned(),
        attributes: BTreeMap::default(),
    };
    let taker = of("lb-1");
    let request = |host, taker, count| Request {
        host,
        taker,
        count,
        pools: std::slice::from_ref(&pool),
        reserved: &[],
        blocks_max: None,
    };
    let given = balancers
        .assign(&request("load-balancer", &taker, 200))
        .await;
    assert_eq!(given.expect("addresses").len(), 200, "more than 20 blocks");
    let owner = Some(AffinityOwner::Virtual("load-balancer".to_owned()));
    for (cidr, block) in ipam.blocks().await.expect("blocks") {
        let block = block.expect("a block");
        assert_eq!(block.owner(), owner, "{cidr}");
        let handles = block.holders().filter_map(|holder| holder.handle);
        assert!(handles.into_iter().all(|handle| handle == "lb-1"));
    }
    let key = "/calico/ipam/v2/virtual/load-balancer/ipv4/block/";
    let keys = store.list(KeyRange::prefix(key)).await.expect("a list");
    assert_eq!(keys.items.len(), 25);
    // The rest of the pool is free, and a host gets blocks of its own only.
    let host = of("net.web");
    let given = ipam.assign(&request("node1", &host, 57)).await;
    assert!(matches!(given, Err(IpamError::UsedUp { assigned: 56, .. })));
    let released = balancers.release_handle("lb-1").await.expect("released");
    assert_eq!(released.len(), 200);
    // Neither does a host get a specific free address of such a block.
    let given = balancers
        .assign(&request("load-balancer", &taker, 1))
        .await
        .expect("an address");
    let block = pool.block_of(given[0].address).expect("a block");
    let address = block.hosts().find(|address| *address != given[0].address);
    let request = AddressRequest {
        host: "node1",
        taker: &host,
        address: address.expect("a free address"),
        pools: std::slice::from_ref(&pool),
    };
    let refused = ipam.assign_address(&request).await;
    let is_refused = matches!(refused, Err(IpamError::Strict { .. }));
    assert!(is_refused, "{refused:?}");
}
