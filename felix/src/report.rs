//! Answers of the control socket.

use std::collections::BTreeSet;

use calico_model::EndpointState;
use daemon_common::Reply;
use daemon_common::command::PacketQuery;
use daemon_common::report::{
    Endpoint, EndpointFigures, Endpoints, Fact, FelixFigures, Fib, FibHop, FibRoute, FlowFigures,
    KernelFigures, PacketVerdict, Preview, Rule, Rules, Status, StoreFigures, UnclaimedInterface,
};
use fib_sync::{FibStatus, FibView, Hop, Instant, Route, RouteKey};
use ipnet::IpNet;

use crate::agent::{Agent, EndpointView, Waiting};
use crate::apply::LinuxHost;
use crate::calc::{Placement, Problem};
use crate::explain;
use crate::flows::Table;
use crate::limits::{HOST_ENDPOINTS_SHOWN_MAX, PROBLEMS_SHOWN_MAX};
use crate::render::{Control, TABLE, UDP, rule_text};
use crate::store::StoreCounts;

/// The program's name.
pub const DAEMON: &str = "cambric-felix";

/// Returns the endpoints of this host, and interfaces without an endpoint.
pub fn endpoints(agent: &Agent, hostname: &str, now: Instant) -> Endpoints {
    Endpoints {
        hostname: hostname.into(),
        in_sync: agent.is_store_in_sync(),
        endpoints: agent.endpoints().map(|view| endpoint(&view)).collect(),
        unclaimed: agent
            .unclaimed()
            .map(|(interface, since)| UnclaimedInterface {
                interface: interface.into(),
                for_s: now.saturating_duration_since(since).as_secs(),
            })
            .collect(),
    }
}

fn endpoint(view: &EndpointView<'_>) -> Endpoint {
    let endpoint = &view.placement.endpoint;
    Endpoint {
        name: endpoint.resource.clone(),
        interface: endpoint.interface.clone(),
        mac: endpoint.mac.map(|mac| mac.to_string()),
        networks: endpoint
            .addresses
            .iter()
            .map(|address| IpNet::from(*address))
            .collect(),
        profiles: endpoint.profiles.clone(),
        state: state(view.state).into(),
        problem: view.problem(),
    }
}

/// Returns the policies and profiles that apply to the endpoints with this name.
pub fn endpoint_rules(agent: &Agent, name: &str) -> Reply {
    let describe = |placement: &Placement| {
        let view = agent.endpoint(&placement.endpoint.id)?;
        Some(endpoint(&view))
    };
    let found = explain::endpoint(agent.calculator(), name, describe);
    found.map_or_else(Reply::error, Reply::EndpointRules)
}

/// Returns the verdict of the calculated packet filter on a packet.
pub fn packet(agent: &Agent, query: &PacketQuery) -> Reply {
    if !agent.is_active() {
        return Reply::error("no rules are calculated yet: `cambric show status` has the reason");
    }
    match explain::packet(agent.calculator(), query) {
        Ok(verdict) => Reply::Packet(PacketVerdict {
            in_sync: agent.rules_in_sync(),
            ..verdict
        }),
        Err(reason) => Reply::error(reason),
    }
}

/// Returns the effect that a staged policy would have on the flows of a table.
pub(crate) fn preview(agent: &Agent, policy: &str, table: &Table, has_flows: bool) -> Reply {
    if !agent.is_active() || !agent.is_store_in_sync() {
        return Reply::error("the datastore is not read yet: `cambric show status` has the reason");
    }
    match explain::preview(agent.calculator(), policy, table) {
        Ok(preview) => Reply::Preview(Preview {
            has_flows,
            ..preview
        }),
        Err(reason) => Reply::error(reason),
    }
}

const fn state(state: EndpointState) -> &'static str {
    match state {
        EndpointState::Up => "up",
        EndpointState::Down => "down",
        EndpointState::Error => "error",
    }
}

/// Returns the packet filter, with the counters of its rules.
pub fn rules(agent: &Agent, host: &mut LinuxHost) -> Rules {
    let counted = host.packets();
    let problem = match (agent.rules_problem(), &counted) {
        (Some(reason), _) => Some(reason.to_owned()),
        (None, Err(error)) => Some(error.to_string()),
        (None, Ok(_)) => None,
    };
    let counted = counted.unwrap_or_default();
    let mut listed = Vec::new();
    for (name, chain) in agent.rules_assumed().iter().flat_map(|held| &held.chains) {
        let packets = counted.get(name);
        for (at, rule) in chain.rules.iter().enumerate() {
            listed.push(Rule {
                chain: name.clone(),
                text: rule_text(rule),
                packets: packets.and_then(|chain| chain.get(at).copied()).flatten(),
            });
        }
    }
    Rules {
        table: format!("inet {TABLE}"),
        in_sync: agent.rules_in_sync(),
        problem,
        rules: listed,
    }
}

/// Returns the routes of endpoints.
pub fn fib(agent: &Agent) -> Fib {
    Fib {
        in_sync: agent.waiting_for().is_empty(),
        install: true,
        routes: agent
            .routes()
            .map(|view| route(agent, &view))
            .chain(
                agent
                    .foreign_routes()
                    .map(|(key, route)| foreign(agent, key, route)),
            )
            .collect(),
    }
}

fn route(agent: &Agent, view: &FibView<'_>) -> FibRoute {
    let (state, error) = match &view.status {
        FibStatus::Acked => ("installed", None),
        FibStatus::Wanted | FibStatus::Sent => ("pending", None),
        FibStatus::Stray => ("stray", None),
        status => ("refused", Some(status.to_string())),
    };
    let route = view.want.or(view.found);
    FibRoute {
        prefix: Some(view.key.prefix),
        table: view.key.table,
        metric: view.key.metric,
        protocol: route.map_or(0, |route| route.protocol),
        kind: route.map_or_else(String::new, |route| route.kind.to_string()),
        source: "endpoint".into(),
        state: state.into(),
        error,
        next_hops: route
            .iter()
            .flat_map(|route| &route.next_hops)
            .map(|h| hop(agent, h))
            .collect(),
    }
}

/// Returns the report of a route of Felix's protocol that belongs to another program.
fn foreign(agent: &Agent, key: &RouteKey, route: &Route) -> FibRoute {
    FibRoute {
        prefix: Some(key.prefix),
        table: key.table,
        metric: key.metric,
        protocol: route.protocol,
        kind: route.kind.to_string(),
        source: "foreign".into(),
        state: "foreign".into(),
        error: None,
        next_hops: route.next_hops.iter().map(|one| hop(agent, one)).collect(),
    }
}

fn hop(agent: &Agent, hop: &Hop) -> FibHop {
    let interface = hop.interface.map(|index| match agent.link_name(index) {
        Some(name) => name.to_owned(),
        None => format!("#{index}"),
    });
    FibHop {
        gateway: hop.gateway,
        interface,
        weight: hop.weight,
    }
}

/// The data of the program itself for its status.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Seconds since it started.
    pub uptime_s: u64,
    /// The configuration file.
    pub config: String,
    /// Why the last reload was rejected.
    pub config_error: Option<String>,
    /// The status of the datastore.
    pub store: StoreFigures,
    /// Why the datastore, or a part of it, cannot be read now.
    pub store_troubles: Vec<String>,
    /// Which files of BGP daemons cannot be read.
    pub bgp_file_problems: Vec<String>,
    /// Notes about the sockets for probes and scrapers.
    pub socket_notes: Vec<String>,
    /// Events of the datastore.
    pub counts: StoreCounts,
    /// Why the flow log is not complete.
    pub flows_problem: Option<String>,
    /// The counts of the flow log, while it is on.
    pub flow_figures: Option<FlowFigures>,
    /// Why the status files for plugins are outdated.
    pub files_problem: Option<String>,
}

/// Returns the status of the daemon.
pub fn status(agent: &Agent, host: &mut LinuxHost, process: Process) -> Status {
    let mut waiting: Vec<String> = agent.waiting_for().iter().map(waiting).collect();
    let mut notes = problems(&agent.desired().problems);
    if process.store.away {
        let words = "the store is away; the last configuration stays in effect";
        waiting.push("the store is away".into());
        notes.push(words.into());
    }
    notes.extend(process.store_troubles);
    let foreign = agent.route_summary().foreign;
    if let Some((key, route)) = agent.foreign_routes().next() {
        notes.push(format!(
            "foreign kernel routes with Felix's protocol {}: {foreign}, such as {key}; Felix does not \
             change them: if their metric is that of a former setting, delete them",
            route.owner()
        ));
    }
    if let Some(age_s) = process.store.snapshot_age_s {
        notes.push(format!(
            "a snapshot that was {age_s} s old at the start is in effect; nothing is removed \
             until the \
             store has been read and is ready"
        ));
    }
    notes.extend(agent.comparison_problem().map(|problem| {
        format!(
            "the packet filter cannot be compared with the written one: {problem}; changes by other \
             programs are not detected until it can"
        )
    }));
    notes.extend(unlimited(agent));
    notes.extend(agent.cutting_problem().map(|problem| {
        format!("established connections that policies forbid are not cut: {problem}")
    }));
    notes.extend(
        agent
            .offload_problem()
            .map(|problem| format!("nftablesFlowTableOffload is not in effect: {problem}")),
    );
    notes.extend(host.unowned().map(|reason| {
        format!("own_tables has no effect, other programs may change the packet filter: {reason}")
    }));
    notes.extend(process.bgp_file_problems);
    notes.extend(process.socket_notes);
    notes.extend(process.flows_problem);
    if let Some(problem) = process.files_problem {
        notes.push(format!(
            "endpoint status files for CNI plugins cannot be written: {problem}"
        ));
    }
    let log = daemon_common::log::figures();
    notes.extend(log.note());
    let settings = &agent.desired().settings;
    let mut facts = facts(agent, host, &process.store);
    facts.push(Fact {
        name: "log lines".into(),
        value: log.to_string(),
    });
    Status {
        daemon: DAEMON.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        uptime_s: process.uptime_s,
        resident_kib: daemon_common::daemon::resident_kib(),
        ready: waiting.is_empty(),
        waiting_for: waiting,
        notes,
        config: process.config,
        config_error: process.config_error,
        facts,
        log: Some(log.into()),
        felix: Some(Box::new(FelixFigures {
            resync_state: resync_state(&process.store),
            resyncs_started: process.counts.resyncs_started,
            calc_graph_updates_processed: process.counts.updates_processed,
            ..agent.figures()
        })),
        store: Some(process.store.into()),
        kernel: Some(kernel(agent).into()),
        flows: process.flow_figures.map(Box::new),
        process: settings
            .listening
            .process_metrics
            .then(|| Box::new(daemon_common::process::figures())),
        endpoints: Some(figures(agent, host).into()),
        ..Status::default()
    }
}

/// Returns Calico's number of a state of the datastore.
const fn resync_state(store: &StoreFigures) -> u64 {
    match (store.in_sync, store.unready) {
        (true, _) => 3,
        (false, true) => 1,
        (false, false) => 2,
    }
}

/// Describes the most serious problems, and the number of the others.
fn problems(all: &BTreeSet<Problem>) -> Vec<String> {
    let mut sorted: Vec<&Problem> = all.iter().collect();
    sorted.sort_by_cached_key(|problem| problem.severity());
    let shown = sorted.iter().take(PROBLEMS_SHOWN_MAX);
    let mut notes: Vec<String> = shown.map(ToString::to_string).collect();
    let more = all.len().saturating_sub(notes.len());
    if more > 0 {
        notes.push(format!("{more} more problems"));
    }
    notes
}

/// Describes the endpoints with limits of bandwidth that are not in effect.
fn unlimited(agent: &Agent) -> Option<String> {
    let all = agent.endpoints();
    let mut all = all.filter_map(|view| Some((view.id, view.unlimited?)));
    let (id, reason) = all.next()?;
    let count = 1 + all.count();
    Some(format!(
        "endpoints with a limit of bandwidth that is not in effect: {count}, such as {id}: {reason}"
    ))
}

/// Returns the state of the daemon in one line, for the service manager. `revision` is the known
/// revision of the datastore.
pub fn summary(agent: &Agent, revision: Option<i64>) -> String {
    let (up, all) = agent.endpoints().fold((0_u64, 0_u64), |(up, all), view| {
        (up + u64::from(view.state == EndpointState::Up), all + 1)
    });
    let routes = agent.route_summary();
    let (installed, wanted) = (routes.acked, routes.wanted);
    let mut state = format!("{up} of {all} endpoints up, {installed} of {wanted} routes installed");
    state.push_str(match agent.rules_in_sync() {
        true => ", packet filter applied",
        false => ", packet filter not applied",
    });
    if let Some(revision) = revision {
        state.push_str(&format!(", datastore revision {revision}"));
    }
    if let Some(first) = agent.waiting_for().first() {
        state.push_str(&format!("; waiting for {}", waiting(first)));
    }
    state
}

/// Describes a condition that is not met yet.
pub(crate) fn waiting(waiting: &Waiting) -> String {
    match waiting {
        Waiting::Store => "a full read of the store".into(),
        Waiting::StoreReady(why) => format!("the store is not ready: {why}"),
        Waiting::Rules(None) => "the packet filter is not written yet".into(),
        Waiting::Rules(Some(reason)) => format!("the packet filter: {reason}"),
        Waiting::Host(reason) => format!("the host to forward: {reason}"),
        Waiting::Overlay(reason) => format!("the tunnel device {reason}"),
        Waiting::Routes => "the routing table is not in sync".into(),
        Waiting::Withdrawal(count) => {
            format!("the BGP client, to withdraw the routes of {count} deleted endpoints")
        }
    }
}

fn kernel(agent: &Agent) -> KernelFigures {
    let sum = agent.route_summary();
    KernelFigures {
        wanted: sum.wanted as u64,
        installed: sum.acked as u64,
        pending: sum.pending as u64,
        failed: (sum.failed + sum.conflicts) as u64,
        drift: sum.drift,
        writes: sum.puts + sum.deletes,
    }
}

fn figures(agent: &Agent, host: &mut LinuxHost) -> EndpointFigures {
    let mut figures = EndpointFigures {
        unclaimed: agent.unclaimed().count() as u64,
        rules_in_sync: agent.rules_in_sync(),
        rules_transactions: host.transactions(),
        rules_foreign_edits: agent.foreign_edits(),
        connections_cut: agent.connections_cut_so_far(),
        ..EndpointFigures::default()
    };
    for view in agent.endpoints() {
        *match view.state {
            EndpointState::Up => &mut figures.up,
            EndpointState::Down => &mut figures.down,
            EndpointState::Error => &mut figures.error,
        } += 1;
    }
    figures
}

/// Describes the control ports that are closed to workloads, and the exempt sources.
fn control_ports(control: &Control) -> String {
    let ports: Vec<String> = control
        .ports
        .iter()
        .map(|(protocol, port)| match *protocol {
            UDP => format!("UDP {port}"),
            _ => port.to_string(),
        })
        .collect();
    let (nodes, services) = (control.nodes.len(), control.services.len());
    let mut text = format!(
        "{} closed to workloads on {nodes} addresses of nodes and outside the pools; {services} \
         single services",
        ports.join(", ")
    );
    if !control.node_ports.is_empty() {
        let ports: Vec<String> = control.node_ports.iter().map(u16::to_string).collect();
        text.push_str(&format!("; {} on nodes", ports.join(", ")));
    }
    if !control.exceptions.is_empty() {
        let from: Vec<String> = control.exceptions.iter().map(ToString::to_string).collect();
        text.push_str(&format!("; open to {}", from.join(", ")));
    }
    text
}

/// Describes the host endpoints of this host.
fn host_endpoints(agent: &Agent) -> String {
    let all = agent.host_endpoints().take(HOST_ENDPOINTS_SHOWN_MAX + 1);
    let mut all: Vec<String> = all
        .map(|(name, is_automatic)| match is_automatic {
            true => format!("{name} (automatic)"),
            false => name.to_owned(),
        })
        .collect();
    if all.is_empty() {
        return "none".to_owned();
    }
    if all.len() > HOST_ENDPOINTS_SHOWN_MAX {
        all.truncate(HOST_ENDPOINTS_SHOWN_MAX);
        all.push("…".to_owned());
    }
    all.join(", ")
}

/// Describes whether connections are cut, and how many were.
fn connections_cut(agent: &Agent) -> String {
    match agent.config().cut_mark {
        Some(_) => agent.connections_cut_so_far().to_string(),
        None => "off: policies apply to new connections".to_owned(),
    }
}

fn facts(agent: &Agent, host: &mut LinuxHost, store: &StoreFigures) -> Vec<Fact> {
    let fact = |name: &str, value: String| Fact {
        name: name.into(),
        value,
    };
    let states: Vec<EndpointState> = agent.endpoints().map(|view| view.state).collect();
    let count = |state| states.iter().filter(|one| **one == state).count();
    let (up, error) = (count(EndpointState::Up), count(EndpointState::Error));
    let routes = agent.route_summary();
    let settings = &agent.desired().settings;
    vec![
        fact("store", store.to_string()),
        fact(
            "endpoints",
            format!("{}, {up} up, {error} refused", states.len()),
        ),
        fact(
            "unclaimed interfaces",
            agent.unclaimed().count().to_string(),
        ),
        fact("interface prefixes", settings.interface_prefixes.join(", ")),
        fact("control ports", control_ports(&agent.desired().control)),
        fact(
            "routes",
            match settings.routing.is_off {
                true => "left to another program (routeSyncDisabled)".to_owned(),
                false => format!("{} of {} installed", routes.acked, routes.wanted),
            },
        ),
        fact("host endpoints", host_endpoints(agent)),
        fact("packet filter", agent.filter_in_effect().to_owned()),
        fact("nftables transactions", host.transactions().to_string()),
        fact(
            "nftables foreign edits undone",
            agent.foreign_edits().to_string(),
        ),
        fact("connections cut", connections_cut(agent)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_endpoint_is_listed_before_a_hundred_other_problems() {
        let key = |kind: &str, name: &str| {
            format!("/calico/resources/v3/projectcalico.org/{kind}/{name}")
        };
        let left_out = "named ports are not supported; the rule is left out";
        let dropped = "named ports are not supported; all packets that reach this rule are dropped";
        let mut all: BTreeSet<Problem> = (0..PROBLEMS_SHOWN_MAX)
            .map(|at| key("globalnetworkpolicies", &at.to_string()))
            .map(|key| Problem::new(key, "spec.ingress[0]", left_out))
            .collect();
        let felix = key("felixconfigurations", "default");
        all.insert(Problem::new(felix, "spec", "settings without effect"));
        let deny = Problem::new(key("networkpolicies", "a/p"), "spec.ingress[0]", dropped);
        let host = Problem::new(key("hostendpoints", "h"), "spec", "nothing is enforced");
        all.extend([deny.clone(), host.clone()]);
        let notes = problems(&all);
        assert_eq!(notes.len(), PROBLEMS_SHOWN_MAX + 1);
        assert_eq!(notes[..2], [host.to_string(), deny.to_string()]);
        assert_eq!(notes.last().map(String::as_str), Some("3 more problems"));
        assert!(
            !notes
                .iter()
                .any(|note| note.contains("felixconfigurations"))
        );
    }
}
