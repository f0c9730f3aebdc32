//! ipam: addresses for one host, assigned one after another, and for many hosts at once.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use calico_ipam::{Ipam, Pool, Request, Taker};
use calico_store::{EtcdStore, LeaseId, Store};
use netns_lab::fabric::Fabric;
use tokio::task::JoinSet;

use crate::fabric::{self, Etcd};
use crate::stage::{Measures, Options, quantiles};

/// Approximate octets of a half-assigned block.
const BLOCK_OCTETS: usize = 8 << 10;

/// One host assigns addresses one after another, as for a series of containers; then hosts that
/// start at the same time assign addresses to their first workloads, each host one after another.
pub(super) fn addresses(options: &Options) -> Result<Measures> {
    let (assigns, hosts, workloads) = if options.quick {
        (100, 10, 10)
    } else {
        (1000, 100, 10)
    };
    fabric::beside_etcd(async |fabric, etcd| {
        let (one, requests) = one_host(fabric, etcd, assigns).await?;
        let bare = bare(etcd, assigns).await?;
        let many = many_hosts(etcd, hosts, workloads).await?;
        let together: f64 = one.iter().sum();
        let [p50, p99] = quantiles(one, [0.5, 0.99])?;
        Ok(Measures::from([
            ("ipam_host_s", together / 1e3),
            ("ipam_assign_p50_ms", p50),
            ("ipam_assign_p99_ms", p99),
            ("ipam_requests", requests),
            ("ipam_bare_s", bare),
            ("ipam_hosts_s", many),
        ]))
    })
}

/// Returns the milliseconds of each assignment, and the requests to etcd per assignment.
async fn one_host(fabric: &Fabric, etcd: &Etcd, assigns: usize) -> Result<(Vec<f64>, f64)> {
    let requests =
        async || anyhow::Ok(etcd.calls(fabric, "Txn").await? + etcd.calls(fabric, "Range").await?);
    let store = etcd.connect().await?;
    let before = requests().await?;
    let mut taken = BTreeSet::new();
    let mut times = Vec::new();
    for number in 0..assigns {
        let began = Instant::now();
        taken.insert(assign(&store, "node0", number, "10.65.0.0/16").await?);
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    ensure!(taken.len() == assigns, "an address was given twice");
    let count = u32::try_from(assigns).context("too many")?;
    Ok((times, (requests().await? - before) / f64::from(count)))
}

/// Returns the seconds of as many plain requests of the same size: two reads, of a key and of a
/// block, and a write of a block.
async fn bare(etcd: &Etcd, assigns: usize) -> Result<f64> {
    let store = etcd.connect().await?;
    let value = || Bytes::from_static(&[b'x'; BLOCK_OCTETS]);
    let write = async || store.put("/bare".into(), value(), LeaseId::NONE).await;
    write().await?;
    let began = Instant::now();
    for _ in 0..assigns {
        store.get("/bare/not".into()).await?;
        store.get("/bare".into()).await?;
        write().await?;
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Returns the seconds until hosts that start at once have an address for each of their workloads.
async fn many_hosts(etcd: &Etcd, hosts: usize, workloads: usize) -> Result<f64> {
    let mut tasks = JoinSet::new();
    let began = Instant::now();
    for host in 0..hosts {
        let store = etcd.connect().await?;
        tasks.spawn(async move {
            let mut taken = Vec::new();
            for number in 0..workloads {
                let name = format!("host{host}");
                taken.push(assign(&store, &name, number, "10.66.0.0/16").await?);
            }
            anyhow::Ok(taken)
        });
    }
    let mut taken = BTreeSet::new();
    while let Some(done) = tasks.join_next().await {
        taken.extend(done??);
    }
    let took = began.elapsed();
    ensure!(
        taken.len() == hosts * workloads,
        "an address was given twice"
    );
    // The assigned addresses are those in the datastore.
    let store: &dyn Store = &*etcd.store;
    let all: Vec<IpAddr> = taken.iter().copied().collect();
    let holders = Ipam::new(store).holders(&all).await?;
    let handles: BTreeSet<_> = holders.iter().map(|holder| &holder.handle).collect();
    ensure!(
        handles.len() == taken.len(),
        "some addresses have no handle"
    );
    Ok(took.as_secs_f64())
}

/// Assigns an address to a workload, as the CNI plugin does.
async fn assign(store: &EtcdStore, host: &str, number: usize, pool: &str) -> Result<IpAddr> {
    let attribute = |name: &str, value: String| (name.to_owned(), value);
    let taker = Taker {
        handle: format!("k8s-pod-network.{host}-{number}"),
        attributes: [
            attribute("node", host.to_owned()),
            attribute("namespace", "default".to_owned()),
            attribute("pod", format!("pod-{number}")),
            attribute("timestamp", "2026-03-04 10:21:00 +0000 UTC".to_owned()),
        ]
        .into(),
    };
    let pools = [Pool {
        cidr: pool.parse()?,
        block_size: 26,
    }];
    let request = Request {
        host,
        taker: &taker,
        count: 1,
        pools: &pools,
        reserved: &[],
        blocks_max: None,
    };
    let given = Ipam::new(store).assign(&request).await?;
    Ok(given.first().context("no address was given")?.address)
}
