//! In a stable state every session is established.

use crate::world::World;

/// Returns the machines with sessions that are not established, one line each.
pub fn check(world: &World) -> Vec<String> {
    let (nodes, plan) = (world.plan.nodes.len(), &world.plan);
    let mut wrong = Vec::new();
    for machine in &world.machines {
        let wanted = match machine.node {
            Some(_) => plan.sessions_of_node(),
            None => nodes + plan.sessions_of_reflector(),
        };
        let found = machine.bgp.run.as_ref().map_or(0, |bgp| bgp.established());
        if found != wanted {
            let states = machine.bgp.run.as_ref().map(|bgp| bgp.not_established());
            let states = states.unwrap_or_default();
            wrong.push(format!(
                "{}: {found} of {wanted} sessions; {states}",
                machine.name
            ));
        }
    }
    wrong
}

/// Returns the number of established sessions of nodes.
pub(crate) fn up(world: &World) -> usize {
    let nodes = world
        .machines
        .iter()
        .filter(|machine| machine.node.is_some());
    let up = nodes.filter_map(|machine| machine.bgp.run.as_ref());
    up.map(|bgp| bgp.established()).sum()
}
