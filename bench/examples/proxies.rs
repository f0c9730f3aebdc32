//! What `etcd grpc-proxy` takes off the core: watches and CPU at a real etcd under the mirrors of many
//! hosts, straight and through two proxies.
//!
//! `cargo run --release -p bench --example proxies -- [HOSTS [WRITES]]`, 1500 and 200 if not said.
//! Every host is two clients, with the ranges that Felix and the BGP client mirror; every mirror of what
//! is written is checked to hold the last write. All runs on this machine; what is compared is CPU time,
//! not seconds.

#![allow(clippy::unwrap_used, reason = "a measurement that fails shall fail")]

#[path = "../../datastore/tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Etcd, Proxy, metric};
use datastore::{
    Change, EtcdOptions, EtcdStore, Follower, KeyRange, LeaseId, Status, Store, Update,
    follow_ready,
};
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use intent::store::View;
use model::Kind;

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

/// What a host runs: Felix, which mirrors what is written here, and the BGP client.
struct Host {
    felix: Follower,
    _bgp: Follower,
}

async fn host(urls: &[String], seed: usize) -> Host {
    let prefixes = View::prefixes(&format!("node{seed}"));
    let bgp = prefixes.into_iter().map(KeyRange::prefix).collect();
    Host {
        felix: client(urls, cambric_felix::store::ranges().collect(), 2 * seed).await,
        _bgp: client(urls, bgp, 2 * seed + 1).await,
    }
}

/// A client with a connection of its own, in sync.
async fn client(urls: &[String], ranges: Vec<KeyRange>, seed: usize) -> Follower {
    let mut urls = urls.to_vec();
    let first = seed / 2 % urls.len();
    urls.rotate_left(first);
    let store = EtcdStore::connect(&EtcdOptions::new(urls)).await.unwrap();
    let mut follower = follow_ready(Arc::new(store), ranges, seed as u64, None);
    while !follower
        .next()
        .await
        .contains(&Update::Status(Status::InSync))
    {}
    follower
}

async fn until(mut host: Host, value: &str) -> Host {
    let last = |update: &Update| match update {
        Update::Change(Change::Put(item)) => item.value == value,
        _ => false,
    };
    while !host.felix.next().await.iter().any(last) {}
    host
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
    let writer = EtcdStore::connect(&EtcdOptions::new(etcd.urls()))
        .await
        .unwrap();
    let (key, ready) = (
        format!("{}default", Kind::ClusterInformation.prefix()),
        r#"{"spec":{"clusterGUID":"one","datastoreReady":true}}"#,
    );
    let put = writer.put(key.into(), ready.into(), LeaseId::NONE);
    put.await.unwrap();
    let began = Instant::now();
    let all = stream::iter(0..hosts).map(|seed| host(urls, seed));
    let all: Vec<_> = all.buffer_unordered(TOGETHER).collect().await;
    let up = began.elapsed();
    let watches = metric(&etcd.url(), "etcd_debugging_mvcc_watcher_total").await;
    let (core_up, proxies_up) = (cpu(&core), cpu(proxies));

    let value = |nth: usize| format!("{what} {nth:0VALUE_OCTETS$}");
    let last = value(writes);
    let reached: FuturesUnordered<_> = all
        .into_iter()
        .map(|host| {
            tokio::spawn({
                let last = last.clone();
                async move { until(host, &last).await }
            })
        })
        .collect();
    for nth in 1..=writes {
        let endpoints = Kind::WorkloadEndpoint.prefix();
        let key = format!("{endpoints}default/node{}", nth % 100);
        let put = writer.put(key.into(), value(nth).into(), LeaseId::NONE);
        put.await.unwrap();
        tokio::time::sleep(GAP).await;
    }
    let all: Vec<_> = reached.collect().await;
    assert_eq!(all.iter().flatten().count(), hosts);
    println!(
        "| {what} | {watches} | {:.2} s | {:.2} s | {:.2} s | {:.2} s | {:.1} s |",
        (core_up - core_before).as_secs_f64(),
        (proxies_up - proxies_before).as_secs_f64(),
        (cpu(&core) - core_up).as_secs_f64(),
        (cpu(proxies) - proxies_up).as_secs_f64(),
        up.as_secs_f64(),
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().unwrap());
    let (hosts, writes) = (
        arguments.next().unwrap_or(1500),
        arguments.next().unwrap_or(200),
    );
    println!("{hosts} hosts; {writes} writes of {VALUE_OCTETS} octets\n");
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
