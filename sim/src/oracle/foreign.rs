//! Foreign routes in a kernel are never changed.

use std::collections::BTreeMap;

use fib_sync::{Route, RouteKey};

use crate::world::World;

/// `rtm_protocol` of the kernel's own routes and of the daemons'.
const OWN: [u8; 3] = [2, 80, 119];

/// Returns the changes of the foreign routes of one machine, if there are any.
pub fn check(world: &World, at: usize) -> Option<String> {
    let machine = world.machines.get(at)?;
    let wanted = world.foreign.get(at)?;
    let kernel = machine.node.as_ref()?.kernel.borrow();
    let found: BTreeMap<&RouteKey, &Route> = kernel
        .routes()
        .filter(|(_, route)| !OWN.contains(&route.protocol))
        .collect();
    if wanted
        .iter()
        .eq(found.iter().map(|(key, route)| (*key, *route)))
    {
        return None;
    }
    Some(format!(
        "{}: foreign routes were {wanted:?}, and are {found:?}",
        machine.name
    ))
}
