//! What a store says of a node beside its sessions: blocks of its own, and which learned routes the
//! kernel gets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calico_bgp::{Duties, IPIP_INTERFACE, Way, degree_of, metric_of};
use fib_sync::watch::{Resolution, Watcher};
use fib_sync::{Hop, Owner, Route};
use ipnet::IpNet;

use crate::limits::ENDPOINT_METRIC;

/// Duties as the kernel's side has to look at them.
#[derive(Debug, Default)]
pub(super) struct Own {
    duties: Duties,
    /// Destinations that go through tunnels, as far as they are learned.
    tunnelled: BTreeSet<IpNet>,
}

/// What is to be done after duties have changed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Announced from now on.
    pub(super) announce: Vec<IpNet>,
    /// Announced no more.
    pub(super) withdraw: Vec<IpNet>,
    /// The kernel's routes to these are others.
    pub(super) install: Vec<IpNet>,
    /// Which learned routes the kernel gets has changed.
    pub(super) all: bool,
    /// So has what LOCAL_PREF is made of metrics.
    pub(super) degrees: bool,
}

impl Own {
    /// Takes over other duties.
    pub(super) fn take(&mut self, new: &Duties) -> Changed {
        let [before, after] = [announced(&self.duties), announced(new)];
        let mut install: BTreeSet<IpNet> = before.symmetric_difference(&after).copied().collect();
        let hosts = self.duties.gateways.keys().chain(new.gateways.keys());
        install.extend(hosts.map(|host| IpNet::from(*host)));
        install.extend(self.duties.blocks.symmetric_difference(&new.blocks));
        let changed = Changed {
            announce: after.difference(&before).copied().collect(),
            withdraw: before.difference(&after).copied().collect(),
            install: install.into_iter().collect(),
            all: self.duties.programming != new.programming,
            degrees: self.duties.programming.priorities != new.programming.priorities,
        };
        self.duties.clone_from(new);
        changed
    }

    /// Whether a prefix is announced whatever the kernel has.
    pub(super) fn announces(&self, net: &IpNet) -> bool {
        is_whole(net) && (self.duties.blocks.contains(net) || self.duties.services.contains(net))
    }

    /// The kernel route to a prefix that does not come from neighbours.
    pub(super) fn route(&self, net: &IpNet, owner: Owner) -> Option<Route> {
        // What is in a block and nobody has is nowhere: it must not follow a default route.
        if is_whole(net) && self.duties.blocks.contains(net) {
            return Some(Route::blackhole(owner));
        }
        let host = (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())?;
        let gateway = self.duties.gateways.get(&host)?;
        Some(Route::unicast(owner, vec![Hop::via(*gateway)]))
    }

    /// Where packets to a learned prefix go: to those of its next hops that are our business, each
    /// through the gateways and interfaces the kernel would use for it, or in a tunnel.
    pub(super) fn hops(&mut self, watcher: &Watcher, net: IpNet, next_hops: &[IpAddr]) -> Vec<Hop> {
        let programming = &self.duties.programming;
        let mut tunnelled = false;
        let mut hops = Vec::new();
        for next_hop in next_hops {
            match programming.way(net, *next_hop) {
                Way::Theirs => {}
                Way::Direct => {
                    if let Some(Resolution::Reachable { hops: found, .. }) =
                        watcher.resolution(*next_hop)
                    {
                        hops.extend(found);
                    }
                }
                Way::Tunnel { .. } => {
                    tunnelled = true;
                    let tunnel = watcher.link_named(IPIP_INTERFACE);
                    hops.extend(tunnel.map(|tunnel| Hop {
                        interface: Some(tunnel.index),
                        onlink: true,
                        ..Hop::via(*next_hop)
                    }));
                }
            }
        }
        match tunnelled {
            true => self.tunnelled.insert(net),
            false => self.tunnelled.remove(&net),
        };
        hops
    }

    /// LOCAL_PREF of a route of this host's with this metric. Felix here gives a metric that is
    /// below all that Calico's ever has, and Calico's gave none once: both are the normal ones.
    pub(super) fn degree(&self, metric: u32) -> Option<u32> {
        self.duties.programming.priorities?;
        (metric > ENDPOINT_METRIC).then(|| degree_of(metric))
    }

    /// The metric that a learned route says with its LOCAL_PREF, if it says one. One that is better
    /// than that of the workload of this host, whose route has `workload` in the kernel, goes
    /// before it: the workload has moved, and Felix does not know yet.
    pub(super) fn metric(
        &self,
        net: &IpNet,
        local_pref: Option<u32>,
        workload: impl FnOnce() -> Option<u32>,
    ) -> Option<u32> {
        let priorities = self.duties.programming.priorities?;
        let metric = metric_of(local_pref?)?;
        let normal = priorities.normal(matches!(net, IpNet::V6(_)));
        if metric >= normal {
            return Some(metric);
        }
        let before = workload().and_then(|workload| {
            let meant = if workload > ENDPOINT_METRIC {
                workload
            } else {
                normal
            };
            // There is no metric before the first: IPv6 has no 0.
            (metric < meant && metric >= workload && workload > 1).then(|| workload - 1)
        });
        before.or(Some(metric))
    }

    /// Destinations that go through tunnels.
    pub(super) const fn tunnelled(&self) -> &BTreeSet<IpNet> {
        &self.tunnelled
    }
}

/// Whether it is more than one address: a single one is announced when the kernel has it.
fn is_whole(net: &IpNet) -> bool {
    net.prefix_len() < net.max_prefix_len()
}

fn announced(duties: &Duties) -> BTreeSet<IpNet> {
    let all = duties.blocks.iter().chain(&duties.services);
    all.copied().filter(is_whole).collect()
}
