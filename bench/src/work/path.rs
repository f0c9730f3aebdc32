//! path: from the write of an endpoint to the route in another node's kernel.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use calico_store::{LeaseId, Store};
use netns_lab::Lab;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::fabric::{self, Endpoint, Ground, Notifications, Origins, milliseconds, write};
use crate::limits::{FABRIC_WITHIN, PAUSE, PUTS_MAX};
use crate::stage::{Measures, Options, quantiles};

/// The node of the single endpoints, and the node where their routes are expected; endpoints of all
/// other nodes move.
const NEAR: usize = 0;
const FAR: usize = 1;
const NODES: u16 = 4;

/// The first address that endpoints move to.
const MOVES: u32 = 100_000;

/// CPU time of all daemons of a kind for one move, in microseconds.
const CPU: [(&str, &str); 4] = [
    ("busy_felix_us", "felix"),
    ("busy_client_us", "bgp-client"),
    ("busy_reflector_us", "route-reflector"),
    ("busy_etcd_us", "store"),
];

/// The numbers of nodes, endpoints and moves.
struct Size {
    singles: u32,
    /// Moving endpoints on each of the other nodes.
    movers: u32,
    moves: u32,
    moves_per_s: u32,
}

const FULL: Size = Size {
    singles: 300,
    movers: 250,
    moves: 10_000,
    moves_per_s: 1_000,
};

const QUICK: Size = Size {
    singles: 10,
    movers: 10,
    moves: 100,
    moves_per_s: 50,
};

/// The measures that are compared with those of a fabric without origin validation: their names there,
/// and the ratio.
const OFF: [(&str, &str, &str); 3] = [
    ("path_p50_ms", "path_off_p50_ms", "path_origins_ratio"),
    ("busy_p50_ms", "busy_off_p50_ms", "busy_origins_p50_ratio"),
    (
        "busy_p999_ms",
        "busy_off_p999_ms",
        "busy_origins_p999_ratio",
    ),
];

/// Measures new endpoints one at a time, each after a pause; then many moves. With a mode of origin
/// validation, it does so in a fabric with the mode `off`, then in one with that mode.
pub(super) fn path(options: &Options) -> Result<Measures> {
    let size = if options.quick { &QUICK } else { &FULL };
    let Some(origins) = options.origins else {
        return run(size, None);
    };
    let off = run(size, Some(Origins::Off))?;
    let mut measures = run(size, Some(origins))?;
    for (measure, name, ratio) in OFF {
        let [own, off] = [&measures, &off].map(|all| all.get(measure).copied());
        let (own, off) = own.zip(off).context(measure)?;
        measures.extend([(name, off), (ratio, own / off)]);
    }
    Ok(measures)
}

fn run(size: &Size, origins: Option<Origins>) -> Result<Measures> {
    fabric::apart(async |lab: Lab| {
        let mut ground = Ground::raise_with(lab, NODES, origins).await?;
        let measured = measure(&mut ground, size, origins).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, size: &Size, origins: Option<Origins>) -> Result<Measures> {
    ground.first(NEAR, FAR).await?;
    if let Some(origins) = origins {
        for reflector in &ground.fabric.reflectors {
            origins.in_sync(reflector).await?;
        }
    }
    let mut measures = Measures::new();
    idle(ground, size, &mut measures).await?;
    busy(ground, size, &mut measures).await?;
    ground.fabric.check()?;
    Ok(measures)
}

/// Adds one endpoint after the other: measures until its own node's kernel has the route, and until
/// the far node's has it.
async fn idle(ground: &mut Ground, size: &Size, measures: &mut Measures) -> Result<()> {
    let endpoints = ground.endpoints(NEAR, size.singles).await?;
    let (mut near, mut far) = (ground.listen(NEAR)?, ground.listen(FAR)?);
    let (mut to_near, mut to_far) = (vec![], vec![]);
    for endpoint in &endpoints {
        sleep(PAUSE).await;
        let address = endpoint.address();
        let began = write(&*ground.etcd.store, endpoint, address).await?;
        to_near.push(milliseconds(
            began,
            &near.until(address, FABRIC_WITHIN).await?,
        ));
        to_far.push(milliseconds(
            began,
            &far.until(address, FABRIC_WITHIN).await?,
        ));
    }
    let [near_p50] = quantiles(to_near, [0.5])?;
    let [p50, p99] = quantiles(to_far, [0.5, 0.99])?;
    measures.extend([
        ("path_near_p50_ms", near_p50),
        ("path_p50_ms", p50),
        ("path_p99_ms", p99),
    ]);
    Ok(())
}

/// Moves endpoints to new addresses at a fixed rate, independent of the fabric's progress; each
/// move is measured from its scheduled time.
async fn busy(ground: &mut Ground, size: &Size, measures: &mut Measures) -> Result<()> {
    let mut movers = vec![];
    for node in FAR + 1..NODES.into() {
        movers.extend(ground.endpoints(node, size.movers).await?);
    }
    let (mut near, mut far) = (ground.listen(FAR + 1)?, ground.listen(FAR)?);
    for endpoint in &movers {
        write(&*ground.etcd.store, endpoint, endpoint.address()).await?;
    }
    let all = movers.iter().map(Endpoint::address).collect();
    far.all(all, FABRIC_WITHIN).await?;
    sleep(PAUSE).await;
    let each = Duration::from_secs(1) / size.moves_per_s;
    let began = Instant::now() + PAUSE;
    let store = ground.etcd.store.clone();
    // Every second move is of an endpoint at the first of their nodes.
    let halves = movers.split_at(movers.len() / 2);
    let turns = std::iter::zip(halves.0, halves.1).flat_map(|(one, other)| [one, other]);
    let before = CPU.map(|(_, name)| ground.cpu(name));
    let (written, to_near, to_far) = tokio::join!(
        moves(store, turns.cycle(), size.moves, began, each),
        arrivals(&mut near, size.moves.div_ceil(2), began, each),
        arrivals(&mut far, size.moves, began, each)
    );
    written?;
    let [near_p50] = quantiles(to_near?, [0.5])?;
    let [p50, p99, p999] = quantiles(to_far?, [0.5, 0.99, 0.999])?;
    for ((measure, name), before) in CPU.into_iter().zip(before) {
        let used = ground.cpu(name).saturating_sub(before) / size.moves;
        measures.insert(measure, used.as_secs_f64() * 1e6);
    }
    measures.extend([
        ("busy_near_p50_ms", near_p50),
        ("busy_p50_ms", p50),
        ("busy_p99_ms", p99),
        ("busy_p999_ms", p999),
    ]);
    Ok(())
}

/// Writes each move at its scheduled time.
async fn moves<'e>(
    store: Arc<dyn Store>,
    movers: impl Iterator<Item = &'e Endpoint>,
    count: u32,
    began: Instant,
    each: Duration,
) -> Result<()> {
    let mut puts = JoinSet::new();
    for (number, endpoint) in (0..count).zip(movers) {
        let (key, value) = endpoint.encode(fabric::address(MOVES + number))?;
        sleep_until((began + each * number).into()).await;
        if puts.len() >= PUTS_MAX
            && let Some(done) = puts.join_next().await
        {
            done??;
        }
        let store = store.clone();
        puts.spawn(async move { store.put(key.into(), value.into(), LeaseId::NONE).await });
    }
    while let Some(done) = puts.join_next().await {
        done??;
    }
    Ok(())
}

/// Waits for the routes of so many moves; returns the milliseconds from the scheduled time of each.
async fn arrivals(
    notifications: &mut Notifications,
    count: u32,
    began: Instant,
    each: Duration,
) -> Result<Vec<f64>> {
    let mut samples = BTreeMap::new();
    while samples.len() < count as usize {
        let news = notifications.next(FABRIC_WITHIN).await;
        let news = news.with_context(|| format!("{} of {count} moves have come", samples.len()))?;
        let number = news
            .address
            .to_bits()
            .checked_sub(fabric::address(MOVES).to_bits());
        if let Some(number) = number {
            let sample = || milliseconds(began + each * number, &news);
            samples.entry(number).or_insert_with(sample);
        }
    }
    Ok(samples.into_values().collect())
}
