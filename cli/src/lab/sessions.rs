//! The BGP sessions of a fabric, as its daemons report them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use daemon_common::report::Neighbor;
use daemon_common::{Command, Reply};
use netns_lab::fabric::{Fabric, Machine, MachinePlan};

/// The reported state of a session that is up.
const ESTABLISHED: &str = "Established";

/// The daemons of a reflector and of a node.
pub(super) const REFLECTOR: &str = "route-reflector";
pub(super) const NODE: &str = "bgp-client";

/// Sessions of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sessions {
    /// The machine.
    pub(super) machine: String,
    /// How many are established.
    pub(super) up: usize,
    /// How many are configured, by either side.
    pub(super) wanted: usize,
}

/// Queries every machine, reflectors first. A daemon that does not answer counts as without
/// sessions.
pub(super) async fn of(fabric: &Fabric) -> Vec<Sessions> {
    let plan = &fabric.plan;
    let mut nodes = Vec::new();
    // Source and destination.
    let mut dialed: Vec<(IpAddr, IpAddr)> = Vec::new();
    for machine in &fabric.nodes {
        let neighbors = neighbors(machine.control(NODE)).await;
        let configured = neighbors.as_ref().map(Vec::len);
        let wanted = configured.unwrap_or_else(|| plan.sessions_of_node());
        let neighbors = neighbors.unwrap_or_default();
        let addresses = neighbors.iter().filter_map(|neighbor| neighbor.address);
        dialed.extend(addresses.map(|to| (address_beside(&machine.plan, to), to)));
        nodes.push(Sessions::new(&machine.plan, &neighbors, wanted));
    }
    let mut all = Vec::new();
    for machine in &fabric.reflectors {
        let neighbors = neighbors(machine.control(REFLECTOR)).await;
        let to_it = dialed.iter().filter(|(_, to)| is_of(&machine.plan, *to));
        let clients: BTreeSet<IpAddr> = to_it.map(|(from, _)| *from).collect();
        let wanted = match &neighbors {
            Some(neighbors) => wanted_of(neighbors, clients),
            None => plan.sessions_of_reflector() + clients.len(),
        };
        let neighbors = neighbors.unwrap_or_default();
        all.push(Sessions::new(&machine.plan, &neighbors, wanted));
    }
    all.extend(nodes);
    all
}

/// Returns the number of sessions that a reflector should have: with its configured neighbors, and
/// with the clients that connect to it. A neighbor may be both.
fn wanted_of(neighbors: &[Neighbor], mut clients: BTreeSet<IpAddr>) -> usize {
    let configured = neighbors.iter().filter(|neighbor| !neighbor.dynamic);
    clients.extend(configured.filter_map(|neighbor| neighbor.address));
    clients.len()
}

impl Sessions {
    fn new(plan: &MachinePlan, neighbors: &[Neighbor], wanted: usize) -> Self {
        Self {
            machine: plan.name.clone(),
            up: neighbors.iter().filter(|one| is_up(one)).count(),
            wanted,
        }
    }
}

/// Returns why not all sessions are up, or their number.
pub(super) async fn all_up(fabric: &Fabric) -> Result<usize, String> {
    let all = of(fabric).await;
    for Sessions {
        machine,
        up,
        wanted,
    } in &all
    {
        if up != wanted {
            return Err(format!("{machine} has {up} of {wanted} sessions"));
        }
    }
    let ends: usize = all.iter().map(|sessions| sessions.up).sum();
    match (ends / 2, fabric.plan.sessions()) {
        (up, wanted) if up == wanted => Ok(up),
        (up, wanted) => Err(format!("{up} of {wanted} sessions are configured")),
    }
}

/// Fails with the reason while a daemon of a machine does not listen for BGP.
pub(super) async fn listens(machine: &Machine, daemon: &str) -> Result<(), String> {
    let name = &machine.plan.name;
    let answer = daemon_common::client::call(machine.control(daemon), &Command::Status {}).await;
    let status = match answer.map_err(|error| error.to_string())? {
        Reply::Status(status) => status,
        _ => return Err(format!("{name} answers something else")),
    };
    let mut facts = status.facts.iter();
    let listens = facts.any(|fact| fact.name == "listening" && !fact.value.is_empty());
    match listens {
        true => Ok(()),
        false => Err(format!(
            "{name} waits for {}",
            status.waiting_for.join(", ")
        )),
    }
}

/// Whether a daemon has an established session with a machine.
pub(super) async fn established_with(control: PathBuf, other: &MachinePlan) -> bool {
    let neighbors = neighbors(control).await.unwrap_or_default();
    let mut up = neighbors.iter().filter(|neighbor| is_up(neighbor));
    up.any(|neighbor| neighbor.address.is_some_and(|at| is_of(other, at)))
}

fn is_up(neighbor: &Neighbor) -> bool {
    neighbor.state == ESTABLISHED
}

/// Returns a machine's address of the same family as another address.
const fn address_beside(machine: &MachinePlan, other: IpAddr) -> IpAddr {
    match other {
        IpAddr::V4(_) => IpAddr::V4(machine.v4),
        IpAddr::V6(_) => IpAddr::V6(machine.v6),
    }
}

fn is_of(machine: &MachinePlan, address: IpAddr) -> bool {
    address == IpAddr::V4(machine.v4) || address == IpAddr::V6(machine.v6)
}

async fn neighbors(control: PathBuf) -> Option<Vec<Neighbor>> {
    match daemon_common::client::call(control, &Command::Neighbors {}).await {
        Ok(Reply::Neighbors(reply)) => Some(reply.neighbors),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_that_is_configured_too_counts_once() {
        let neighbor = |address: &str, dynamic| Neighbor {
            address: address.parse().ok(),
            dynamic,
            ..Neighbor::default()
        };
        let neighbors = [
            neighbor("10.0.0.2", false),
            neighbor("10.0.0.11", false),
            neighbor("10.0.0.12", true),
        ];
        let clients = ["10.0.0.11", "10.0.0.12", "10.0.0.13"];
        let clients = clients.map(|address| address.parse().expect("an address"));
        assert_eq!(wanted_of(&neighbors, clients.into()), 4);
    }
}
