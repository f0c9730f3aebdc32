//! The duties of a node beside its sessions, from a datastore: its own blocks, and which learned
//! routes the kernel gets.

use std::collections::BTreeSet;

use bgp_io::bgp_proto::Attributes;
use calico_bgp::{Duties, IPIP_INTERFACE, Way, degree_of, metric_of};
use fib_sync::watch::{Resolution, Watcher};
use fib_sync::{Hop, Owner, Route};
use ipnet::IpNet;

use super::learned::Paths;
use super::weights::join;
use crate::limits::ENDPOINT_METRIC;

/// The duties, prepared for the kernel's side.
#[derive(Debug, Default)]
pub(super) struct Own {
    duties: Duties,
    /// Learned destinations that are reached through tunnels.
    tunneled: BTreeSet<IpNet>,
}

/// The consequences of changed duties.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Prefixes to announce.
    pub(super) announce: Vec<IpNet>,
    /// Prefixes to withdraw.
    pub(super) withdraw: Vec<IpNet>,
    /// Prefixes with kernel routes that must be recomputed.
    pub(super) install: Vec<IpNet>,
    /// Whether the selection of learned routes for the kernel has changed.
    pub(super) all: bool,
    /// Whether the derivation of LOCAL_PREF from metrics has changed.
    pub(super) degrees: bool,
}

impl Own {
    /// Replaces the duties.
    pub(super) fn take(&mut self, new: &Duties) -> Changed {
        let [before, after] = [announced(&self.duties), announced(new)];
        let mut install: BTreeSet<IpNet> = before.symmetric_difference(&after).copied().collect();
        let hosts = self.duties.gateways.keys().chain(new.gateways.keys());
        install.extend(hosts.map(|host| IpNet::from(*host)));
        install.extend(self.duties.blocks.symmetric_difference(&new.blocks));
        let is_edited =
            |net: &&IpNet| self.duties.service_routes.get(net) != new.service_routes.get(net);
        let edited = after.intersection(&before).filter(is_edited);
        let changed = Changed {
            announce: after.difference(&before).chain(edited).copied().collect(),
            withdraw: before.difference(&after).copied().collect(),
            install: install.into_iter().collect(),
            all: self.duties.programming != new.programming,
            degrees: self.duties.programming.priorities != new.programming.priorities,
        };
        self.duties.clone_from(new);
        changed
    }

    /// Returns whether a prefix is announced independently of the kernel.
    pub(super) fn announces(&self, net: &IpNet) -> bool {
        self.duties.service_routes.contains_key(net)
            || is_whole(net)
                && (self.duties.blocks.contains(net) || self.duties.services.contains(net))
    }

    /// Adds the attributes of a service to those of the route to its address.
    pub(super) fn add_attributes(&self, net: &IpNet, attributes: &mut Attributes) {
        let Some(route) = self.duties.service_routes.get(net) else {
            return;
        };
        attributes.med = route.med;
        attributes.communities.clone_from(&route.communities);
        let large = &route.large_communities;
        attributes.large_communities.clone_from(large);
    }

    /// Returns the kernel route to a prefix that is not learned from neighbors.
    pub(super) fn route(&self, net: &IpNet, owner: Owner) -> Option<Route> {
        // An unassigned address of a block does not exist: packets to it must not follow a default
        // route.
        if is_whole(net) && self.duties.blocks.contains(net) {
            return Some(Route::blackhole(owner));
        }
        let host = (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())?;
        let gateway = self.duties.gateways.get(&host)?;
        Some(Route::unicast(owner, vec![Hop::via(*gateway)]))
    }

    /// Returns how a learned prefix is reached: through those next hops that this daemon programs,
    /// each with the gateways and interfaces that the kernel would use for it, or in a tunnel, and with its
    /// share of the bandwidth.
    pub(super) fn hops(&mut self, watcher: &Watcher, net: IpNet, paths: &Paths) -> Vec<Hop> {
        let programming = &self.duties.programming;
        let mut tunneled = false;
        let mut ways = Vec::new();
        let mut bandwidths = paths.bandwidths.iter();
        for next_hop in &paths.next_hops {
            let mut hops = Vec::new();
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
                    tunneled = true;
                    let tunnel = watcher.link_named(IPIP_INTERFACE);
                    hops.extend(tunnel.map(|tunnel| Hop::via(*next_hop).on(tunnel.index).onlink()));
                }
            }
            ways.push((hops, bandwidths.next().copied()));
        }
        match tunneled {
            true => self.tunneled.insert(net),
            false => self.tunneled.remove(&net),
        };
        join(ways)
    }

    /// Returns LOCAL_PREF of a route of this host with this metric. Cambric's Felix uses a metric
    /// below all of Calico's, and earlier versions of Calico set none: both count as the normal
    /// metric.
    pub(super) fn degree(&self, metric: u32) -> Option<u32> {
        self.duties.programming.priorities?;
        (metric > ENDPOINT_METRIC).then(|| degree_of(metric))
    }

    /// Returns the metric that corresponds to a learned route's LOCAL_PREF, if there is one. If it
    /// is better than the metric `workload` of this host's own route to the workload, the learned
    /// route is installed with precedence over it: the workload has moved, and Felix has not
    /// removed its route yet.
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
            // No metric is below 1: IPv6 has no metric 0.
            (metric < meant && metric >= workload && workload > 1).then(|| workload - 1)
        });
        before.or(Some(metric))
    }

    /// Returns the destinations that are reached through tunnels.
    pub(super) const fn tunneled(&self) -> &BTreeSet<IpNet> {
        &self.tunneled
    }
}

/// Returns whether a prefix has more than one address: a single address of a block is announced when
/// the kernel has a route to it.
fn is_whole(net: &IpNet) -> bool {
    net.prefix_len() < net.max_prefix_len()
}

fn announced(duties: &Duties) -> BTreeSet<IpNet> {
    let all = duties.blocks.iter().chain(&duties.services);
    let all = all.filter(|net| is_whole(net));
    all.chain(duties.service_routes.keys()).copied().collect()
}
