//! crowded: many endpoints of one host: the start of Felix, and calls of the plugin among them.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use netns_lab::fabric::Machine;
use serde_json::json;
use tokio::task::JoinSet;

use super::containers::{Plugin, ours, record, reference, run};
use super::felix::listed;
use super::ruleset_copy;
use crate::fabric::{self, Endpoint, Ground};
use crate::stage::{Measures, Options, quantiles};

const NODE: usize = 0;
const ENDPOINTS: u32 = 1_500;
const ENDPOINTS_QUICK: u32 = 20;
/// Calls at once, and how often.
const AT_ONCE: usize = 10;
const TURNS: usize = 10;
const TURNS_QUICK: usize = 1;

/// Starts Felix with many endpoints whose interfaces exist, then connects containers, ten at a time.
pub(super) fn crowded(options: &Options) -> Result<Measures> {
    let (count, turns) = match options.quick {
        true => (ENDPOINTS_QUICK, TURNS_QUICK),
        false => (ENDPOINTS, TURNS),
    };
    fabric::apart(async |lab| {
        let mut ground = Ground::at_rest(lab, 1).await?;
        let measured = measure(&mut ground, count, turns).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, count: u32, turns: usize) -> Result<Measures> {
    let endpoints = ground.endpoints(NODE, count).await?;
    let puts = endpoints
        .iter()
        .map(|endpoint| endpoint.labeled(&json!({})))
        .collect::<Result<_>>()?;
    fabric::fill(&*ground.etcd.store, puts).await?;
    let mut measures = Measures::new();
    let began = Instant::now();
    ground.start_felix(NODE)?;
    ground.programmed(NODE, count).await?;
    measures.insert("crowded_s", began.elapsed().as_secs_f64());
    measures.insert("crowded_cpu_s", ground.cpu("felix").as_secs_f64());
    let node = ground.fabric.node(NODE)?;
    check(node, &endpoints).await?;
    let copy = ruleset_copy::measure(listed(node)?)?;
    measures.insert("crowded_nft_s", copy.load.as_secs_f64());

    record(ground, node).await?;
    let plugins = [
        (
            ours(ground, node)?,
            "crowded_add_p50_ms",
            "crowded_add_p99_ms",
        ),
        (reference(node)?, "crowded_ptp_p50_ms", "crowded_ptp_p99_ms"),
    ];
    for (plugin, p50_name, p99_name) in plugins {
        // The first call differs: it assigns a block and reads files.
        adds(node, &plugin, 1, "first").await?;
        let mut times = vec![];
        for turn in 0..turns {
            times.extend(adds(node, &plugin, AT_ONCE, &turn.to_string()).await?);
        }
        let [p50, p99] = quantiles(times, [0.5, 0.99])?;
        measures.extend([(p50_name, p50), (p99_name, p99)]);
    }
    ground.fabric.check()?;
    Ok(measures)
}

/// Checks that the kernel has all of the first and the last endpoint, and the routes of the others.
async fn check(node: &Machine, endpoints: &[Endpoint]) -> Result<()> {
    let routes = node.links.routes().await?;
    for endpoint in endpoints {
        let net = std::net::IpAddr::V4(endpoint.address()).into();
        ensure!(
            routes.iter().any(|route| route.net == net),
            "no route to {}",
            endpoint.address()
        );
    }
    let neighbors = node
        .host
        .run(|| std::fs::read_to_string("/proc/thread-self/net/arp"))??;
    for endpoint in endpoints {
        let address = endpoint.address().to_string();
        let is_there = neighbors
            .lines()
            .any(|line| line.split(' ').next() == Some(&*address));
        ensure!(is_there, "no neighbor entry of {address}");
    }
    for endpoint in [endpoints.first(), endpoints.last()].into_iter().flatten() {
        let key = format!("net/ipv4/conf/{}/proxy_arp", endpoint.interface());
        ensure!(node.host.read_sysctl(&key)? == "1", "{key}");
    }
    Ok(())
}

/// Connects containers at once, and returns the milliseconds of each call. They stay connected.
async fn adds(node: &Machine, plugin: &Plugin, count: usize, turn: &str) -> Result<Vec<f64>> {
    let name = plugin.name().context("a name")?;
    let mut calls = JoinSet::new();
    let names: Vec<_> = (0..count).map(|at| format!("{name}-{turn}-{at}")).collect();
    for container in &names {
        run(node, "ip", &["netns", "add", container]).await?;
    }
    for container in names {
        let (plugin, host) = (plugin.clone(), node.host.clone());
        calls.spawn(async move { plugin.call(&host, "ADD", &container).await });
    }
    let mut times = vec![];
    while let Some(call) = calls.join_next().await {
        times.push(call??);
    }
    Ok(times)
}
