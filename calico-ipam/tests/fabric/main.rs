//! Many hosts assign and release addresses at once, over datastores that fail between any two
//! answers.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod address;
#[path = "../../../calico-store/tests/common/mod.rs"]
mod common;
mod documented;
mod flaky;
mod gc;
mod simulation;
mod tools;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use calico_ipam::{Ipam, IpamError, Release, Request, Time};
use calico_store::{
    Answer, Error, EtcdOptions, EtcdStore, KeyRange, LeaseId, Listing, Query, Store, Txn, TxnReply,
};
use common::{Etcd, forward};
use etcd_lite::Local;
use flaky::Flaky;
use ipnet::IpNet;
use tools::{configure, drawn_seed, pool, request, sound, take, taker};

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_start_at_once_get_different_addresses() {
    let store = Arc::new(Local::empty());
    let mut tasks = Vec::new();
    for host in 0..40 {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            let pools = [pool("10.65.0.0/20", 28)];
            let host = format!("node-{host}");
            for workload in 0..10 {
                let handle = format!("{host}.{workload}");
                take(store.as_ref(), &host, &handle, 1, &pools)
                    .await
                    .unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(sound(store.as_ref()).await.len(), 400);
}

// Promise (Workloads): No address is allocated twice and none is lost, whatever the requests and
// answers of the datastore are.
#[tokio::test(flavor = "multi_thread")]
async fn no_address_is_given_twice_or_lost_with_lost_answers() {
    for seed in 0..20 {
        lose_answers(seed).await;
    }
}

/// Besides the fixed seeds, seeds that differ with every change of the repository.
#[tokio::test(flavor = "multi_thread")]
async fn drawn_lost_answers_lose_no_address() {
    for seed in (drawn_seed()..).take(5) {
        println!("seed {seed}");
        lose_answers(seed).await;
    }
}

/// Eight hosts assign and release addresses through a datastore that loses requests and answers.
async fn lose_answers(seed: u64) {
    let store = Arc::new(Flaky::new(Local::empty(), seed));
    let mut tasks = Vec::new();
    for worker in 0..8 {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(work(store, worker)));
    }
    let mut kept = BTreeMap::new();
    for task in tasks {
        for (address, handle) in task.await.unwrap() {
            assert_eq!(
                kept.insert(address, handle),
                None,
                "seed {seed}: {address} given twice"
            );
        }
    }
    store.heal();
    let held = sound(store.as_ref()).await;
    assert_eq!(
        held, kept,
        "seed {seed}: no address without a holder is assigned"
    );
}

/// Assigns and releases addresses. After a lost answer the handle is released, repeatedly until the
/// datastore has confirmed it. Returns the addresses held at the end.
async fn work(store: Arc<Flaky>, worker: usize) -> BTreeMap<IpAddr, String> {
    // Few addresses and hosts, so that they conflict: 64 addresses in blocks of 8, 4 hosts.
    let pools = [pool("10.65.0.0/26", 29)];
    let host = format!("node-{}", worker % 4);
    let mut mine: BTreeMap<IpAddr, String> = BTreeMap::new();
    for round in 0..12 {
        let handle = format!("w{worker}.{round}");
        match take(store.as_ref(), &host, &handle, 1 + round % 3, &pools).await {
            Ok(addresses) => mine.extend(
                addresses
                    .into_iter()
                    .map(|address| (address, handle.clone())),
            ),
            Err(_) => release(store.as_ref(), &handle).await,
        }
        if round % 3 == 2
            && let Some(handle) = mine.values().next().cloned()
        {
            release(store.as_ref(), &handle).await;
            mine.retain(|_, other| *other != handle);
        }
    }
    mine
}

async fn release(store: &dyn Store, handle: &str) {
    while Ipam::new(store).release_handle(handle).await.is_err() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_many_write_at_once_counts_right() {
    let store = Arc::new(Flaky::new(Local::empty(), 7));
    let mut tasks = Vec::new();
    for worker in 0..8 {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            let pools = [pool("10.65.0.0/24", 29)];
            let host = format!("node-{}", worker % 4);
            for _ in 0..10 {
                let Ok(taken) = take(store.as_ref(), &host, "shared", 2, &pools).await else {
                    continue;
                };
                let one = [Release::of(taken[0])];
                while Ipam::new(store.as_ref()).release(&one).await.is_err() {}
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    store.heal();
    assert!(!sound(store.as_ref()).await.is_empty());
    release(store.as_ref(), "shared").await;
    assert!(sound(store.as_ref()).await.is_empty());
}

#[tokio::test]
async fn own_blocks_precede_new_and_borrowed_ones() {
    let store = Local::empty();
    let pools = [pool("10.65.0.0/29", 30)];
    let first = take(&store, "a", "a.1", 3, &pools).await.unwrap();
    let second = take(&store, "a", "a.2", 1, &pools).await.unwrap();
    let block = |address: IpAddr| IpNet::new(address, 30).unwrap().trunc();
    assert_eq!(
        block(second[0]),
        block(first[0]),
        "its own block is used up first"
    );
    let other = take(&store, "b", "b.1", 1, &pools).await.unwrap();
    assert_ne!(block(other[0]), block(first[0]));
    let borrowed = take(&store, "a", "a.3", 1, &pools).await.unwrap();
    assert_eq!(block(borrowed[0]), block(other[0]));
    configure(
        &store,
        r#"{"strict_affinity":true,"auto_allocate_blocks":true}"#,
    )
    .await;
    let error = take(&store, "a", "a.4", 1, &pools).await.unwrap_err();
    assert!(
        matches!(
            error,
            IpamError::UsedUp {
                assigned: 0,
                wanted: 1
            }
        ),
        "{error}"
    );
    sound(&store).await;
}

#[tokio::test]
async fn request_for_too_many_addresses_assigns_none() {
    let store = Local::empty();
    let pools = [pool("10.65.0.0/29", 30)];
    let error = take(&store, "a", "a.1", 9, &pools).await.unwrap_err();
    assert!(
        matches!(
            error,
            IpamError::UsedUp {
                assigned: 8,
                wanted: 9
            }
        ),
        "{error}"
    );
    assert!(sound(&store).await.is_empty());
    configure(
        &store,
        r#"{"auto_allocate_blocks":true,"maxBlocksPerHost":1}"#,
    )
    .await;
    let error = take(&store, "b", "b.1", 5, &[pool("10.66.0.0/24", 30)])
        .await
        .unwrap_err();
    assert!(
        matches!(error, IpamError::BlockLimit { blocks: 1, .. }),
        "{error}"
    );
    let error = take(&store, "b", "b.1", 1, &[]).await.unwrap_err();
    assert!(matches!(error, IpamError::NoPool { .. }), "{error}");
}

#[tokio::test]
async fn reserved_ranges_are_passed_over() {
    let store = Local::empty();
    let taker = taker("a", "h");
    let pools = [pool("10.65.0.0/29", 30)];
    let reserved = [
        "10.65.0.0/30".parse().unwrap(),
        "10.65.0.4/32".parse().unwrap(),
    ];
    let request = Request {
        reserved: &reserved,
        ..request("a", &taker, 3, &pools)
    };
    let given = Ipam::new(&store).assign(&request).await.unwrap();
    let last: Vec<String> = given
        .iter()
        .map(|given| given.address.to_string())
        .collect();
    assert_eq!(last, ["10.65.0.5", "10.65.0.6", "10.65.0.7"]);
    let error = Ipam::new(&store)
        .assign(&Request {
            count: 1,
            ..request
        })
        .await
        .unwrap_err();
    assert!(matches!(error, IpamError::UsedUp { .. }), "{error}");
}

#[tokio::test]
async fn an_empty_block_is_taken_over_once_it_is_old() {
    fn later() -> Time {
        Time::after_epoch(Duration::from_secs(4_000_000_000))
    }
    let store = Local::empty();
    let pools = [pool("10.65.0.0/30", 30)];
    configure(
        &store,
        r#"{"strict_affinity":true,"auto_allocate_blocks":true}"#,
    )
    .await;
    take(&store, "a", "a.1", 1, &pools).await.unwrap();
    let ipam = Ipam::new(&store);
    ipam.release_handle("a.1").await.unwrap();
    let error = take(&store, "b", "b.1", 1, &pools).await.unwrap_err();
    assert!(matches!(error, IpamError::UsedUp { .. }), "{error}");
    let taker = taker("b", "b.1");
    let ipam = Ipam::with_clock(&store, later);
    ipam.assign(&request("b", &taker, 1, &pools)).await.unwrap();
    assert_eq!(sound(&store).await.len(), 1);
}

#[tokio::test]
async fn partial_changes_of_calico_are_finished() {
    let store = Local::empty();
    let pools = [pool("10.65.0.0/30", 30)];
    let affinity = "/calico/ipam/v2/host/a/ipv4/block/10.65.0.0-30";
    for state in ["pending", "confirmed", "pendingDeletion"] {
        let value = format!(r#"{{"state":"{state}","deleted":false}}"#);
        store
            .put(affinity.into(), value.into(), LeaseId::NONE)
            .await
            .unwrap();
        take(&store, "a", "a.1", 1, &pools).await.unwrap();
        assert_eq!(sound(&store).await.len(), 1, "{state}");
        let ipam = Ipam::new(&store);
        ipam.release_handle("a.1").await.unwrap();
        ipam.remove_host("a").await.unwrap();
        assert!(sound(&store).await.is_empty());
    }
    // Two hosts claimed one block, and the other host got it.
    take(&store, "b", "b.1", 1, &pools).await.unwrap();
    let value = r#"{"state":"pending","deleted":false}"#;
    store
        .put(affinity.into(), value.into(), LeaseId::NONE)
        .await
        .unwrap();
    take(&store, "a", "a.1", 1, &pools).await.unwrap();
    assert_eq!(
        sound(&store).await.len(),
        2,
        "borrowed, and the affinity is gone"
    );
}

#[tokio::test]
async fn removed_host_releases_its_blocks() {
    let store = Local::empty();
    let pools = [pool("10.65.0.0/28", 30)];
    take(&store, "a", "a.1", 4, &pools).await.unwrap();
    let kept = take(&store, "a", "a.2", 1, &pools).await.unwrap();
    let ipam = Ipam::new(&store);
    ipam.release_handle("a.1").await.unwrap();
    store
        .put("/calico/ipam/v2/host/a".into(), "".into(), LeaseId::NONE)
        .await
        .unwrap();
    ipam.remove_host("a").await.unwrap();
    let held = sound(&store).await;
    assert_eq!(held.keys().copied().collect::<Vec<_>>(), kept);
    // Its block has no affinity, and is deleted with its last address.
    let not_taken = ipam
        .release(&[
            Release::of(kept[0]),
            Release::of("192.0.2.1".parse().unwrap()),
        ])
        .await;
    assert_eq!(not_taken.unwrap(), ["192.0.2.1".parse::<IpAddr>().unwrap()]);
    let left = store.list(KeyRange::prefix("/calico/ipam/")).await.unwrap();
    assert!(left.items.is_empty(), "{:?}", left.items);
}

#[tokio::test]
async fn release_of_a_range_applies_to_all_hosts() {
    let store = Local::empty();
    let pools = [pool("10.65.0.0/28", 30)];
    take(&store, "a", "a.1", 1, &pools).await.unwrap();
    take(&store, "b", "b.1", 1, &pools).await.unwrap();
    take(&store, "b", "b.2", 1, &[pool("10.66.0.0/28", 30)])
        .await
        .unwrap();
    let ipam = Ipam::new(&store);
    ipam.release_handle("a.1").await.unwrap();
    ipam.release_range("10.65.0.0/16".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(sound(&store).await.len(), 2);
    let left = store
        .list(KeyRange::prefix("/calico/ipam/v2/host/"))
        .await
        .unwrap();
    assert_eq!(left.items.len(), 1);
}

/// Runs the same over an etcd, whose transactions have the same semantics.
#[tokio::test(flavor = "multi_thread")]
async fn hosts_share_an_etcd() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let mut tasks = Vec::new();
    for host in 0..10 {
        let url = etcd.url();
        tasks.push(tokio::spawn(async move {
            let store = EtcdStore::connect(&EtcdOptions::new([url])).await.unwrap();
            let pools = [pool("fd65::/116", 122)];
            let host = format!("node-{host}");
            for workload in 0..5 {
                let handle = format!("{host}.{workload}");
                take(&store, &host, &handle, 1, &pools).await.unwrap();
            }
            Ipam::new(&store)
                .release_handle(&format!("{host}.0"))
                .await
                .unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let store = EtcdStore::connect(&EtcdOptions::new([etcd.url()]))
        .await
        .unwrap();
    assert_eq!(sound(&store).await.len(), 40);
}

/// A store whose user has no keys of host `b`, as with a role of etcd for host `a`.
struct OfHostA(Local);

impl Store for OfHostA {
    fn range(&self, query: Query) -> Answer<'_, Listing> {
        self.0.range(query)
    }

    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        let denied = format!("{txn:?}").contains("/calico/ipam/v2/host/b/");
        match denied {
            true => Box::pin(async { Err(Error::Denied("permission denied".into())) }),
            false => self.0.txn(txn),
        }
    }

    forward!(0: watch others);
}

/// The only block of the pool belongs to another host, is empty, and was claimed long ago.
#[tokio::test]
async fn empty_block_of_another_host_is_borrowed_from_if_denied() {
    let pools = [pool("10.65.0.0/30", 30)];
    let local = Local::empty();
    take(&local, "b", "b.1", 1, &pools).await.unwrap();
    Ipam::new(&local).release_handle("b.1").await.unwrap();
    let old = "/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-30";
    let found = local.get(old.into()).await.unwrap().unwrap();
    let mut block: serde_json::Value = serde_json::from_slice(&found.value).unwrap();
    block["affinity_claim_time"] = "2020-01-01T00:00:00Z".into();
    let value = block.to_string().into();
    local.put(old.into(), value, LeaseId::NONE).await.unwrap();

    let store = OfHostA(local);
    let taken = take(&store, "a", "a.1", 1, &pools).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(owner_of_first_block(&store.0).await, "host:b");
    Ipam::new(&store).release_handle("a.1").await.unwrap();
    // Without that role, the block is taken over.
    take(&store.0, "a", "a.2", 1, &pools).await.unwrap();
    assert_eq!(owner_of_first_block(&store.0).await, "host:a");
}

async fn owner_of_first_block(store: &dyn Store) -> String {
    let blocks = Ipam::new(store).blocks().await.unwrap();
    let block = blocks[0].1.as_ref().unwrap();
    block.owner().unwrap().to_string()
}
