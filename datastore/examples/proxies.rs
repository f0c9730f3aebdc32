//! What `etcd grpc-proxy` takes off the core: watches and CPU at a real etcd under the mirrors of many
//! hosts, straight and through two proxies.
//!
//! `cargo run --release -p datastore --example proxies -- [HOSTS [WRITES]]`, 1500 and 200 if not said.
//! Every host is a client of its own with four watches, as Felix's; every mirror is checked to hold the
//! last write. All runs on this machine; what is compared is CPU time, not seconds.

#![allow(clippy::unwrap_used, reason = "a measurement that fails shall fail")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Etcd, Proxy, metric};
use datastore::{
    Change, EtcdOptions, EtcdStore, Follower, KeyRange, LeaseId, Status, Store, Update, follow,
};
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};

/// What is mirrored; the first is written to.
const RANGES: [&str; 4] = [
    "/calico/resources/v3/projectcalico.org/workloadendpoints/",
    "/calico/resources/v3/projectcalico.org/profiles/",
    "/calico/resources/v3/projectcalico.org/felixconfigurations/",
    "/calico/resources/v3/projectcalico.org/clusterinformations/",
];

/// Hosts that come up at once.
const TOGETHER: usize = 50;

/// Octets of an endpoint.
const VALUE_OCTETS: usize = 600;

/// Between two writes.
const GAP: Duration = Duration::from_millis(20);

/// CPU time that processes have used.
fn cpu(pids: &[u32]) -> Duration {
    let ticks = pids.iter().map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    });
    // Linux tells it in hundredths of a second, whatever its own clock.
    Duration::from_millis(10) * u32::try_from(ticks.sum::<u64>()).unwrap()
}

async fn host(urls: &[String], seed: usize) -> Follower {
    let mut urls = urls.to_vec();
    let first = seed % urls.len();
    urls.rotate_left(first);
    let store = EtcdStore::connect(&EtcdOptions::new(urls)).await.unwrap();
    let mut follower = follow(Arc::new(store), RANGES.map(KeyRange::prefix), seed as u64);
    while !follower
        .next()
        .await
        .contains(&Update::Status(Status::InSync))
    {}
    follower
}

async fn until(mut follower: Follower, value: &str) -> Follower {
    let last = |update: &Update| match update {
        Update::Change(Change::Put(item)) => item.value == value,
        _ => false,
    };
    while !follower.next().await.iter().any(last) {}
    follower
}

/// One round: so many hosts there, so many writes.
async fn round(
    what: &str,
    etcd: &Etcd,
    urls: &[String],
    proxies: &[u32],
    hosts: usize,
    writes: usize,
) {
    let core = [etcd.members[0].pid()];
    let (core_before, proxies_before) = (cpu(&core), cpu(proxies));
    let began = Instant::now();
    let followers = stream::iter(0..hosts).map(|seed| host(urls, seed));
    let followers: Vec<_> = followers.buffer_unordered(TOGETHER).collect().await;
    let up = began.elapsed();
    let watches = metric(&etcd.url(), "etcd_debugging_mvcc_watcher_total").await;
    let (core_up, proxies_up) = (cpu(&core), cpu(proxies));

    let writer = EtcdStore::connect(&EtcdOptions::new(etcd.urls()))
        .await
        .unwrap();
    let value = |nth: usize| format!("{what} {nth:0VALUE_OCTETS$}");
    let last = value(writes);
    let reached: FuturesUnordered<_> = followers
        .into_iter()
        .map(|follower| {
            tokio::spawn({
                let last = last.clone();
                async move { until(follower, &last).await }
            })
        })
        .collect();
    for nth in 1..=writes {
        let key = format!("{}default/node{}", RANGES[0], nth % 100);
        let put = writer.put(key.into(), value(nth).into(), LeaseId::NONE);
        put.await.unwrap();
        tokio::time::sleep(GAP).await;
    }
    let followers: Vec<_> = reached.collect().await;
    assert_eq!(followers.iter().flatten().count(), hosts);
    println!(
        "| {what} | {watches} | {:.2} s | {:.2} s | {:.2} s | {:.2} s | {:.1} s |",
        (core_up - core_before).as_secs_f64(),
        (proxies_up - proxies_before).as_secs_f64(),
        (cpu(&core) - core_up).as_secs_f64(),
        (cpu(proxies) - proxies_up).as_secs_f64(),
        up.as_secs_f64(),
    );
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().unwrap());
    let (hosts, writes) = (
        arguments.next().unwrap_or(1500),
        arguments.next().unwrap_or(200),
    );
    println!(
        "{hosts} hosts with {} watches each; {writes} writes of {VALUE_OCTETS} octets\n",
        RANGES.len()
    );
    println!(
        "| | watches at the core | core, all come up | proxies, all come up | core, the writes | proxies, the writes | all up after |"
    );
    println!("|---|---|---|---|---|---|---|");
    {
        let etcd = Etcd::start().await.expect("an etcd");
        round("nobody", &etcd, &[], &[], 0, writes).await;
        round("straight", &etcd, &etcd.urls(), &[], hosts, writes).await;
    }
    let etcd = Etcd::start().await.expect("an etcd");
    let proxies = [
        Proxy::start(&etcd.urls()).await.expect("a proxy"),
        Proxy::start(&etcd.urls()).await.expect("a proxy"),
    ];
    let urls: Vec<_> = proxies.iter().map(|proxy| proxy.url.clone()).collect();
    let pids: Vec<_> = proxies.iter().map(Proxy::pid).collect();
    round("two proxies", &etcd, &urls, &pids, hosts, writes).await;
}
