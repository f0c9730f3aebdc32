//! many: the cost of remote endpoints for a node.

use std::time::Instant;

use anyhow::Result;
use calico_store::LeaseId;
use netns_lab::Lab;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::fabric::{self, Endpoint, Ground};
use crate::limits::{FABRIC_WITHIN, PUTS_MAX, SETTLED};
use crate::stage::{Measures, Options};

/// The measured node; the endpoints are on all others.
const NODE: usize = 0;
const NODES: u16 = 5;

/// Measures the resident memory of all daemons of a node that has no endpoint of its own, with a
/// route to each endpoint of the others.
pub(super) fn many(options: &Options) -> Result<Measures> {
    let each = if options.quick { 25 } else { 2_500 };
    fabric::apart(async |lab: Lab| {
        let mut ground = Ground::raise(lab, NODES).await?;
        let measured = measure(&mut ground, each).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, each: u32) -> Result<Measures> {
    ground.first(NODE + 1, NODE).await?;
    let before = resident(ground)?;
    let mut endpoints = vec![];
    for node in NODE + 1..NODES.into() {
        endpoints.extend(ground.endpoints(node, each).await?);
    }
    let mut notifications = ground.listen(NODE)?;
    let began = Instant::now();
    let mut puts = JoinSet::new();
    for endpoint in &endpoints {
        let (key, value) = endpoint.encode(endpoint.address())?;
        let store = ground.etcd.store.clone();
        puts.spawn(async move { store.put(key.into(), value.into(), LeaseId::NONE).await });
        if puts.len() >= PUTS_MAX
            && let Some(done) = puts.join_next().await
        {
            done??;
        }
    }
    while let Some(done) = puts.join_next().await {
        done??;
    }
    let all = endpoints.iter().map(Endpoint::address).collect();
    notifications.all(all, FABRIC_WITHIN).await?;
    let took = began.elapsed();
    sleep(SETTLED).await;
    ground.fabric.check()?;
    let after = resident(ground)?;
    let [felix, client] = [0, 1].map(|at| after[at].saturating_sub(before[at]) as f64 / 1e6);
    Ok(Measures::from([
        ("many_s", took.as_secs_f64()),
        ("many_mb", after.iter().sum::<u64>() as f64 / 1e6),
        ("many_felix_growth_mb", felix),
        ("many_client_growth_mb", client),
        ("many_growth_mb", felix + client),
    ]))
}

/// Returns the resident octets of Felix and of the BGP client.
fn resident(ground: &Ground) -> Result<[u64; 2]> {
    let [felix, client] = ["felix", "bgp-client"].map(|name| ground.resident(NODE, name));
    Ok([felix?, client?])
}
