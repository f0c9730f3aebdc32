//! Kernel routes in reports of the control socket.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_bgp::IPIP_INTERFACE;
use daemon_common::report::{Fact, Fib, FibHop, FibRoute, KernelFigures, Limit, Path, Routes};
use fib_sync::watch::Resolution;
use fib_sync::{FibStatus, FibView, Hop, Route, RouteKey};
use ipnet::IpNet;

use crate::Node;
use crate::limits::REFUSALS_SHOWN_MAX;

/// Returns the wanted, installed and imported routes.
pub(crate) fn fib(node: &Node) -> Fib {
    let install = node.config().install;
    let ours = node
        .reconciler()
        .routes()
        .map(|view| ours(node, &view, install));
    let imported = node.watcher().imported_routes();
    let imported = imported.map(|(key, route)| FibRoute {
        source: "imported".to_owned(),
        state: "imported".to_owned(),
        ..fib_route(node, key, route)
    });
    let foreign = node.reconciler().foreigners();
    let foreign = foreign.map(|(key, route)| FibRoute {
        source: "foreign".to_owned(),
        state: "foreign".to_owned(),
        ..fib_route(node, key, route)
    });
    Fib {
        in_sync: node.reconciler().in_sync(),
        install,
        routes: ours.chain(imported).chain(foreign).collect(),
    }
}

fn ours(node: &Node, view: &FibView<'_>, install: bool) -> FibRoute {
    let route = view.want.or(view.found);
    let (state, error) = match &view.status {
        FibStatus::Acked => ("installed", None),
        FibStatus::Sent => ("pending", None),
        FibStatus::Wanted if install => ("pending", None),
        FibStatus::Wanted if view.found.is_some() => ("differs", None),
        FibStatus::Wanted => ("missing", None),
        FibStatus::Failed {
            error, attempts, ..
        } => ("refused", Some(format!("{error}; attempt {attempts}"))),
        FibStatus::Conflict { .. } => ("conflict", Some(view.status.to_string())),
        FibStatus::Stray => ("stray", None),
    };
    let mut report = route.map_or_else(FibRoute::default, |r| fib_route(node, &view.key, r));
    report.source = "bgp".to_owned();
    report.state = state.to_owned();
    report.error = error;
    report
}

fn fib_route(node: &Node, key: &RouteKey, route: &Route) -> FibRoute {
    let name = |index| name_of(node, index);
    let hops = route.next_hops.iter().map(|hop| FibHop {
        gateway: hop.gateway,
        interface: hop.interface.and_then(name),
        weight: hop.weight,
    });
    FibRoute {
        prefix: Some(key.prefix),
        table: key.table,
        metric: key.metric,
        protocol: route.protocol,
        kind: route.kind.to_string(),
        next_hops: hops.collect(),
        ..FibRoute::default()
    }
}

/// Adds the outgoing interface of each path, if there is exactly one.
pub(crate) fn locate(node: &Node, page: &mut Routes) {
    for route in &mut page.routes {
        let prefix = route.prefix.parse::<IpNet>().ok();
        for path in &mut route.paths {
            let hops = match path.neighbor_address {
                Some(_) => next_hop_of(path).and_then(|at| reached(node, at)),
                None => prefix.and_then(|prefix| imported_hops(node, prefix)),
            };
            path.interface = match hops {
                Some([hop]) => hop.interface.and_then(|index| name_of(node, index)),
                _ => None,
            };
        }
    }
}

/// An IPv6 next hop may be followed by a link-local one.
fn next_hop_of(path: &Path) -> Option<IpAddr> {
    path.next_hop
        .as_ref()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

fn reached(node: &Node, next_hop: IpAddr) -> Option<&[Hop]> {
    match node.watcher().resolution(next_hop)? {
        Resolution::Reachable { hops, .. } => Some(hops),
        Resolution::Unreachable(_) => None,
    }
}

fn imported_hops(node: &Node, prefix: IpNet) -> Option<&[Hop]> {
    let (_, route) = node.watcher().imported_routes_to(prefix).next()?;
    Some(&route.next_hops)
}

fn name_of(node: &Node, index: u32) -> Option<String> {
    node.watcher().link(index).map(|link| link.name.clone())
}

/// Returns the kernel section of the status.
pub(crate) fn facts(node: &Node) -> Vec<Fact> {
    let sum = node.summary();
    let imported = node.watcher().imported().count();
    let mut facts = vec![
        ("kernel routes wanted", sum.wanted.to_string()),
        ("kernel routes installed", sum.acked.to_string()),
        ("kernel routes imported", imported.to_string()),
    ];
    // Rare counters are listed only if they are not zero.
    let rare = [
        ("kernel routes pending", sum.pending as u64),
        ("kernel routes refused", sum.failed as u64),
        ("kernel routes in conflict", sum.conflicts as u64),
        ("kernel routes stray", sum.strays as u64),
        (
            "kernel routes foreign, with this daemon's protocol",
            sum.foreign as u64,
        ),
        ("kernel nexthop objects", sum.nexthops as u64),
        ("kernel routes changed by others", sum.drift),
        ("kernel notifications overrun", sum.overruns),
    ];
    facts.extend(
        rare.iter()
            .filter(|(_, n)| *n > 0)
            .map(|(name, n)| (*name, n.to_string())),
    );
    facts.extend([
        ("kernel writes", (sum.puts + sum.deletes).to_string()),
        ("kernel reads", sum.dumps.to_string()),
    ]);
    facts
        .into_iter()
        .map(|(name, value)| Fact {
            name: name.to_owned(),
            value,
        })
        .collect()
}

/// Returns the counters of kernel routes.
pub(crate) fn figures(node: &Node) -> KernelFigures {
    let sum = node.summary();
    KernelFigures {
        wanted: sum.wanted as u64,
        installed: sum.acked as u64,
        pending: sum.pending as u64,
        failed: (sum.failed + sum.conflicts) as u64,
        drift: sum.drift,
        writes: sum.puts + sum.deletes,
    }
}

/// Returns the limits of the kernel side.
pub(crate) fn limits(node: &Node) -> Vec<Limit> {
    let sent = |view: &FibView<'_>| matches!(view.status, FibStatus::Sent);
    let in_flight = node.reconciler().routes().filter(sent).count();
    vec![
        Limit::new(
            "kernel writes in flight",
            fib_sync::limits::IN_FLIGHT_MAX as u64,
            "further ones wait for the kernel's answers",
        )
        .used(in_flight as u64),
        Limit::new(
            "next hops of a kernel route",
            fib_sync::limits::HOPS_MAX as u64,
            "further ones are left out",
        ),
    ]
}

/// Returns notes for operators about the kernel: rejected routes, next hops without a route.
pub(crate) fn notes(node: &Node) -> Vec<String> {
    let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
    for view in node.reconciler().routes() {
        match &view.status {
            FibStatus::Failed { error, .. } => *refusals.entry(error.to_string()).or_default() += 1,
            status @ FibStatus::Conflict { .. } => {
                *refusals.entry(status.to_string()).or_default() += 1;
            }
            _ => {}
        }
    }
    let mut refusals: Vec<(String, usize)> = refusals.into_iter().collect();
    refusals.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let refused = refusals.into_iter().take(REFUSALS_SHOWN_MAX);
    let refused =
        refused.map(|(why, count)| format!("kernel routes not installed: {count}: {why}"));
    let unreachable = node
        .watcher()
        .resolutions()
        .filter_map(|(address, resolution)| match resolution {
            Resolution::Unreachable(why) => {
                Some(format!("next hop {address} is unreachable: {why}"))
            }
            Resolution::Reachable { .. } => None,
        });
    let tunnel = node.without_tunnel().map(|(count, why)| {
        format!(
            "kernel routes not installed: {count}: pools with ipipMode need the interface \
             {IPIP_INTERFACE}, which {why}"
        )
    });
    refused
        .chain(foreign_note(node))
        .chain(tunnel)
        .chain(unreachable.take(REFUSALS_SHOWN_MAX))
        .collect()
}

/// Returns a note about foreign routes with this daemon's protocol: another program may use the
/// number.
fn foreign_note(node: &Node) -> Option<String> {
    let count = node.summary().foreign;
    let (key, route) = node.reconciler().foreigners().next()?;
    Some(format!(
        "foreign kernel routes with this daemon's protocol {}: {count}, such as {key}; they are left \
         alone. If another program writes them, set kernel.protocol; if a former run did, list their \
         metric in kernel.former_metrics",
        route.owner()
    ))
}

/// Returns the kernel conditions that the daemon waits for.
pub(crate) fn waiting(node: &Node) -> Vec<String> {
    let sum = node.summary();
    let mut waiting = Vec::new();
    if sum.void || !node.watcher().is_certain() {
        waiting.push("a full read of the kernel's routes".to_owned());
    }
    if node.config().install && sum.pending + sum.failed > 0 {
        waiting.push(format!("{} kernel routes", sum.pending + sum.failed));
    }
    waiting
}
