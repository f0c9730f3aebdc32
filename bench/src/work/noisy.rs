//! noisy: round trips between two workloads while another workload of their node floods.

use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use netns_lab::until;
use serde_json::json;

use super::scheduling::schedule;
use crate::fabric::{self, Ground, Workload};
use crate::limits::{FLOOD_WITHIN, NOISY_BURST, NOISY_GAP};
use crate::stage::{Measures, Options, quantiles};
use crate::traffic::{Attack, rates};

const NODE: usize = 0;
const UPLINK: &str = "eth0";
/// A network on the uplink in which no host answers.
const NETWORK: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 0);
/// The port of the quiet workloads.
const PORT: u16 = 8080;
/// Packets of a flood before its effect is measured: it is over its budgets.
const PACKETS_BEFORE: u64 = 1_000;

/// The names of a flood's measures.
struct Names {
    /// p99 in relation to that without a flood.
    ratio: &'static str,
    /// p99 in relation to that during as many ordinary packets.
    beside: &'static str,
    /// p99 in milliseconds.
    p99: &'static str,
}

const ATTACKS: [(Attack, Names); 3] = [
    (
        Attack::Neighbors(NETWORK),
        Names {
            ratio: "noisy_neighbors_ratio",
            beside: "noisy_neighbors_beside_ratio",
            p99: "noisy_neighbors_p99_ms",
        },
    ),
    (
        Attack::Connections,
        Names {
            ratio: "noisy_connections_ratio",
            beside: "noisy_connections_beside_ratio",
            p99: "noisy_connections_p99_ms",
        },
    ),
    (
        Attack::Fragments,
        Names {
            ratio: "noisy_fragments_ratio",
            beside: "noisy_fragments_beside_ratio",
            p99: "noisy_fragments_p99_ms",
        },
    ),
];

/// Measures blocks of round trips in turn: without a flood, with ordinary packets, with the flood.
pub(super) fn noisy(options: &Options) -> Result<Measures> {
    let (blocks, round_trips) = if options.quick { (1, 50) } else { (4, 800) };
    fabric::apart(async |lab| {
        let mut ground = Ground::at_rest(lab, 1).await?;
        let measured = measure(&mut ground, blocks, round_trips).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, blocks: usize, round_trips: usize) -> Result<Measures> {
    let workloads = ground.workloads(NODE, 3).await?;
    let [quiet, other, attacker] = workloads.as_slice() else {
        anyhow::bail!("three workloads");
    };
    for workload in &workloads {
        let (key, value) = workload.endpoint.labeled(&json!({}))?;
        fabric::put(&*ground.etcd.store, key, value).await?;
    }
    ground.start_felix(NODE)?;
    ground.programmed(NODE, 3).await?;
    let links = &ground.fabric.node(NODE)?.links;
    links
        .add_route(format!("{NETWORK}/16").parse()?, None, UPLINK)
        .await?;

    let mut measures = Measures::new();
    let mut slowest = f64::INFINITY;
    let samples = || {
        // In a fabric, the floods and the workloads have processors of their own. Here the workloads run
        // before all other threads.
        if !schedule("--fifo", "1")? {
            eprintln!("noisy: without SCHED_FIFO, the workloads wait for processors");
        }
        let times = rates::round_trips([quiet, other], PORT, round_trips, Some(NOISY_GAP));
        schedule("--other", "0")?;
        times
    };
    for (attack, names) in ATTACKS {
        let (mut free, mut beside, mut flooded) = (vec![], vec![], vec![]);
        for _ in 0..blocks {
            free.extend(samples()?);
            for (attack, times) in [(Attack::Ordinary, &mut beside), (attack, &mut flooded)] {
                let (block, rate) = during(attack, [attacker, other], samples).await?;
                times.extend(block);
                slowest = slowest.min(rate);
            }
        }
        let [free] = quantiles(free, [0.99])?;
        let [beside] = quantiles(beside, [0.99])?;
        let [flooded] = quantiles(flooded, [0.99])?;
        measures.insert(names.ratio, flooded / free);
        measures.insert(names.beside, flooded / beside);
        measures.insert(names.p99, flooded);
    }
    measures.insert("noisy_rate", slowest);
    ground.fabric.check()?;
    Ok(measures)
}

/// Returns the result of `samples` during a flood, and the packets a second of the flood.
async fn during(
    attack: Attack,
    ends: [&Workload; 2],
    samples: impl Fn() -> Result<Vec<f64>>,
) -> Result<(Vec<f64>, f64)> {
    let flooding = attack.start(ends, NOISY_BURST);
    until(FLOOD_WITHIN, "the flood has begun", async || {
        ensure!(!flooding.is_over(), "the flood has ended");
        let sent = flooding.sent();
        Ok((sent >= PACKETS_BEFORE)
            .then_some(())
            .ok_or_else(|| sent.to_string()))
    })
    .await
    .with_context(|| format!("{attack:?}"))?;
    let (before, began) = (flooding.sent(), Instant::now());
    let block = samples();
    let rate = (flooding.sent() - before) as f64 / began.elapsed().as_secs_f64();
    flooding.stop()?;
    Ok((block?, rate))
}
