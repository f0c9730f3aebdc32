//! No kernel has a route through a dead host for longer than its death can be detected.

use crate::oracle::fib::LEARNED;
use crate::world::World;

/// Returns a route of one machine's kernel through a dead host, if there is one too late.
pub fn check(world: &World, at: usize) -> Option<String> {
    if world.dead.contains_key(&at) {
        return None;
    }
    let machine = world.machines.get(at)?;
    let kernel = machine.node.as_ref()?.kernel.borrow();
    let late = world.dead.iter().filter(|(_, limit)| world.now > **limit);
    late.into_iter().find_map(|(dead, limit)| {
        let dead = world.machines.get(*dead)?;
        // Sessions are over IPv4, and only a mesh has one with the dead host itself.
        let is_back = (world.returned).is_some_and(|(of, limit)| of == at && world.now <= limit);
        let versions: &[bool] = match (is_back, world.options.mesh) {
            (false, _) => &[false, true],
            (true, true) => &[false],
            (true, false) => &[],
        };
        let is_through = |gateway| versions.iter().any(|is_v6| dead.address(*is_v6) == gateway);
        let (key, _) = kernel.routes().find(|(_, route)| {
            let mut gateways = route.next_hops.iter().filter_map(|hop| hop.gateway);
            route.protocol == LEARNED.0 && gateways.any(is_through)
        })?;
        let over_ms = (world.now - limit) / 1_000_000;
        let (name, of) = (&machine.name, &dead.name);
        Some(format!(
            "{name}: {key} leads to {of}, which is dead: {over_ms} ms too late"
        ))
    })
}
