//! At rest every session is up.

use crate::world::World;

/// Machines whose sessions are not all up, one line each.
pub fn check(world: &World) -> Vec<String> {
    let (nodes, reflectors) = (world.plan.nodes.len(), world.plan.reflectors.len());
    let mut wrong = Vec::new();
    for machine in &world.machines {
        let wanted = match machine.node {
            Some(_) => reflectors,
            None => nodes + reflectors - 1,
        };
        let found = machine.bgp.run.as_ref().map_or(0, |bgp| bgp.established());
        if found != wanted {
            wrong.push(format!("{}: {found} of {wanted} sessions", machine.name));
        }
    }
    wrong
}
