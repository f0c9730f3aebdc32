//! Watches the kernels of a fabric's nodes.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use futures_util::future::select_all;
use netns_lab::fabric::{Fabric, Owners, missing_routes};
use netns_lab::{RouteEventKind, RouteMonitor};
use tokio::time::{Duration, Instant, timeout};

use super::limits::{CONVERGE, DIFFERENCES_SHOWN_MAX, LOOK_AGAIN, PER_NODE};

/// A monitor for each node.
#[derive(Debug)]
pub(super) struct Kernels {
    monitors: Vec<RouteMonitor>,
}

impl Kernels {
    pub(super) fn watch(fabric: &Fabric) -> Result<Self> {
        let monitors = fabric
            .nodes
            .iter()
            .map(|node| RouteMonitor::open(&node.host));
        Ok(Self {
            monitors: monitors.collect::<Result<_, _>>()?,
        })
    }

    /// Waits until every node's kernel has routes to every workload, and to no other; returns when
    /// that was seen.
    pub(super) async fn agree(&mut self, fabric: &mut Fabric, owners: &Owners) -> Result<Instant> {
        let limit = CONVERGE + PER_NODE * u32::from(fabric.plan.shape.nodes);
        let deadline = Instant::now() + limit;
        let mut differing: BTreeSet<usize> = (0..fabric.nodes.len()).collect();
        loop {
            let mut agreed = Vec::new();
            for &node in &differing {
                if differences(fabric, owners, node).await?.is_empty() {
                    agreed.push(node);
                }
            }
            agreed.iter().for_each(|node| {
                differing.remove(node);
            });
            let now = Instant::now();
            if differing.is_empty() {
                // Each kernel agreed at some time: check all of them together again.
                differing = self.disagreeing(fabric, owners).await?;
                if differing.is_empty() {
                    return Ok(now);
                }
            }
            fabric.check()?;
            if now >= deadline {
                bail!("{}", explain(fabric, owners, &differing, limit).await?);
            }
            differing.extend(self.changed().await);
        }
    }

    async fn disagreeing(&self, fabric: &Fabric, owners: &Owners) -> Result<BTreeSet<usize>> {
        let mut nodes = BTreeSet::new();
        for node in 0..fabric.nodes.len() {
            if !differences(fabric, owners, node).await?.is_empty() {
                nodes.insert(node);
            }
        }
        Ok(nodes)
    }

    /// Waits for notifications; returns the node with a changed kernel, or `None` after a timeout.
    async fn changed(&mut self) -> Option<usize> {
        let waiting = self
            .monitors
            .iter_mut()
            .map(|monitor| Box::pin(monitor.changed()));
        timeout(LOOK_AGAIN, select_all(waiting))
            .await
            .ok()
            .map(|((), node, _)| node)
    }

    /// Returns the routes to workloads that were removed from a kernel after `since`, and kernels
    /// with lost notifications.
    pub(super) fn left_since(&self, fabric: &Fabric, since: Instant) -> Vec<String> {
        let workloads = Fabric::workload_nets();
        let mut left = Vec::new();
        for (monitor, node) in self.monitors.iter().zip(&fabric.nodes) {
            let name = &node.plan.name;
            let (events, missed) = monitor.events_since(since);
            if missed {
                left.push(format!("{name}: notifications of the kernel were missed"));
            }
            for event in events {
                if let RouteEventKind::Gone(route) = event.kind
                    && workloads.iter().any(|net| net.contains(&route.net))
                {
                    left.push(format!("{name}: {} left the kernel", route.net));
                }
            }
        }
        left
    }
}

/// Returns the missing routes of one kernel, in words.
pub(super) async fn differences(
    fabric: &Fabric,
    owners: &Owners,
    node: usize,
) -> Result<Vec<String>> {
    let routes = fabric.node(node)?.links.routes().await?;
    let lacking = missing_routes(
        &fabric.plan,
        node,
        owners,
        &Fabric::workload_nets(),
        &routes,
    );
    Ok(lacking.iter().map(ToString::to_string).collect())
}

async fn explain(
    fabric: &Fabric,
    owners: &Owners,
    nodes: &BTreeSet<usize>,
    limit: Duration,
) -> Result<String> {
    let mut all = Vec::new();
    for &node in nodes {
        let name = &fabric.node(node)?.plan.name;
        let differences = differences(fabric, owners, node).await?;
        all.extend(
            differences
                .into_iter()
                .map(|what| format!("{name}: {what}")),
        );
    }
    let more = all.len().saturating_sub(DIFFERENCES_SHOWN_MAX);
    all.truncate(DIFFERENCES_SHOWN_MAX);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    Ok(format!("not within {limit:?}:\n{}", all.join("\n")))
}
