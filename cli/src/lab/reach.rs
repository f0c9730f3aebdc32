//! Reachability between workloads.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use futures_util::{StreamExt, stream};
use netns_lab::Flow;
use netns_lab::fabric::Fabric;

use super::limits::{FLOW_PERIOD, PING, PINGS_MAX};

/// The result of pings between many pairs.
#[derive(Debug, Default)]
pub(super) struct Pings {
    /// Pings with a reply.
    pub(super) answered: usize,
    /// Pings without a reply: `w1 -> 10.65.0.3`.
    pub(super) lost: Vec<String>,
    /// The slowest reply.
    pub(super) slowest: Duration,
}

/// Pings from every workload to every other, IPv4 and IPv6, once each.
pub(super) async fn all_pairs(fabric: &Fabric) -> Result<Pings> {
    let mut pairs = Vec::new();
    for from in &fabric.workloads {
        for to in fabric.workloads.iter().filter(|to| to.name != from.name) {
            for address in to.addresses() {
                pairs.push((from.name.as_str(), from.pinger()?, address));
            }
        }
    }
    let answers = stream::iter(pairs)
        .map(|(from, pinger, to)| async move { (from, to, pinger.ping(to, PING).await) })
        .buffer_unordered(PINGS_MAX)
        .collect::<Vec<(&str, IpAddr, Option<Duration>)>>()
        .await;
    let mut pings = Pings::default();
    for (from, to, answer) in answers {
        match answer {
            Some(time) => {
                pings.answered += 1;
                pings.slowest = pings.slowest.max(time);
            }
            None => pings.lost.push(format!("{from} -> {to}")),
        }
    }
    pings.lost.sort_unstable();
    Ok(pings)
}

/// A flow in each family from every workload to one of the next node: all nodes send and
/// receive.
pub(super) fn ring(fabric: &Fabric) -> Result<Vec<Flow>> {
    let workloads = &fabric.workloads;
    let mut flows = Vec::new();
    for (i, from) in workloads.iter().enumerate() {
        let after = workloads
            .iter()
            .cycle()
            .skip(i + 1)
            .take(workloads.len().saturating_sub(1));
        let Some(to) = after.into_iter().find(|to| to.place != from.place) else {
            continue;
        };
        for address in to.addresses() {
            flows.push(from.pinger()?.flow(address, FLOW_PERIOD));
        }
    }
    Ok(flows)
}
