//! A host that has a route to a workload has a packet filter: the rules are in effect before the route.

use crate::world::World;

/// `rtm_protocol` of Felix's routes.
const FELIX: u8 = 80;

/// Returns a route of one machine's kernel to a workload without a packet filter, if there is one.
pub fn check(world: &World, at: usize) -> Option<String> {
    let machine = world.machines.get(at)?;
    let node = machine.node.as_ref()?;
    let table = node.host.filter.table.as_ref();
    if table.is_some_and(|table| table.has_hooks()) || node.host.filter.is_tampered {
        return None;
    }
    let kernel = node.kernel.borrow();
    let mut routes = kernel.routes();
    let (key, _) = routes.find(|(_, route)| route.protocol == FELIX)?;
    Some(format!(
        "{}: {key} is routed without a packet filter",
        machine.name
    ))
}
