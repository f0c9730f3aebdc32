//! The load that `etcd grpc-proxy` removes from etcd: watches and CPU of a real etcd with the
//! mirrors of many hosts, directly and through two proxies.
//!
//! `cargo run --release -p cambric-bench --example proxies -- [HOSTS [WRITES]]`, by default 1500
//! and 200. Every host is two clients, with the ranges that Felix and the BGP client mirror; every
//! mirror of the written range is checked to hold the last write. Everything runs on this machine;
//! the comparison is of CPU time, not of elapsed time.

#![allow(clippy::unwrap_used, reason = "a measurement that fails shall fail")]

#[path = "../../calico-store/tests/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use calico_bgp::View;
use calico_model::Kind;
use calico_store::{
    Change, EtcdOptions, EtcdStore, Follower, KeyRange, LeaseId, Status, Store, Update,
    follow_ready,
};
use common::{Etcd, Proxy, metric};
use futures_util::StreamExt;
use futures_util::stream::{self, FuturesUnordered};
use netns_lab::{Usage, usage};

/// Hosts that start at once.
const TOGETHER: usize = 50;

/// Octets of an endpoint.
const VALUE_OCTETS: usize = 600;

/// The interval between two writes.
const GAP: Duration = Duration::from_millis(20);

/// Returns the total usage of processes.
fn used(pids: &[u32]) -> Usage {
    let each = pids.iter().map(|pid| usage(*pid).unwrap());
    each.fold(Usage::default(), |sum, one| Usage {
        resident_octets: sum.resident_octets + one.resident_octets,
        peak_octets: sum.peak_octets + one.peak_octets,
        cpu: sum.cpu + one.cpu,
    })
}

/// The mirrors of a host: Felix's, which includes the written range, and the BGP client's.
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

/// Starts a client with a connection of its own, and waits until it is in sync.
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

/// Writes one value after another, without waiting for the readers.
#[tokio::main(flavor = "current_thread")]
async fn write(urls: &[String], values: Vec<String>) {
    let writer = EtcdStore::connect(&EtcdOptions::new(urls)).await.unwrap();
    for (nth, value) in values.into_iter().enumerate() {
        let endpoints = Kind::WorkloadEndpoint.prefix();
        put(
            &writer,
            format!("{endpoints}default/node{}", nth % 100),
            value,
        )
        .await;
        tokio::time::sleep(GAP).await;
    }
}

/// Writes a value, and retries where there is no answer in time.
async fn put(writer: &EtcdStore, key: String, value: String) {
    let put = || writer.put(key.clone().into(), value.clone().into(), LeaseId::NONE);
    while let Err(error) = put().await {
        eprintln!("{key}: {error}");
    }
}

/// Runs one round with so many hosts and writes.
async fn round(
    what: &str,
    etcd: &Etcd,
    urls: &[String],
    proxies: &[u32],
    hosts: usize,
    writes: usize,
) {
    let core = [etcd.members[0].pid()];
    let both = || [used(&core), used(proxies)];
    let before = both();
    let writer = EtcdStore::connect(&EtcdOptions::new(etcd.urls()))
        .await
        .unwrap();
    let key = format!("{}default", Kind::ClusterInformation.prefix());
    let ready = r#"{"spec":{"clusterGUID":"one","datastoreReady":true}}"#;
    put(&writer, key, ready.to_owned()).await;
    let began = Instant::now();
    let all = stream::iter(0..hosts).map(|seed| host(urls, seed));
    let all: Vec<_> = all.buffer_unordered(TOGETHER).collect().await;
    let up = began.elapsed();
    let watches = metric(&etcd.url(), "etcd_debugging_mvcc_watcher_total").await;
    let after_up = both();

    let values: Vec<_> = (1..=writes)
        .map(|nth| format!("{what} {nth:0VALUE_OCTETS$}"))
        .collect();
    let last = values.last().unwrap().clone();
    let reached: FuturesUnordered<_> = all
        .into_iter()
        .map(|host| {
            tokio::spawn({
                let last = last.clone();
                async move { until(host, &last).await }
            })
        })
        .collect();
    let urls = etcd.urls();
    let writing = std::thread::spawn(move || write(&urls, values));
    let all: Vec<_> = reached.collect().await;
    writing.join().unwrap();
    assert_eq!(all.iter().flatten().count(), hosts);
    let after = both();
    let seconds = |now: [Usage; 2], then: [Usage; 2]| {
        [0, 1].map(|at| format!("{:.2} s", (now[at].cpu - then[at].cpu).as_secs_f64()))
    };
    let row = [
        vec![what.to_owned(), watches.to_string()],
        after_up
            .map(|used| format!("{:.0} MB", used.resident_octets as f64 / 1e6))
            .to_vec(),
        seconds(after_up, before).to_vec(),
        seconds(after, after_up).to_vec(),
        vec![format!("{:.0} s", up.as_secs_f64())],
    ];
    println!("| {} |", row.concat().join(" | "));
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
        "| | watches at the core | core's memory | proxies' | core's CPU, all come up | proxies' | \
         core's CPU, the writes | proxies' | all up after |\n|---|---|---|---|---|---|---|---|---|"
    );
    {
        let etcd = Etcd::start().await.expect("an etcd");
        round("no mirror", &etcd, &[], &[], 0, writes).await;
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
