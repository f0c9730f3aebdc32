//! No kernel has a route to a liar for another node's workload.

use fib_sync::{RouteKey, TABLE_MAIN};

use crate::oracle::fib::LEARNED;
use crate::world::World;

/// Returns a route of one machine's kernel that follows a lie, if there is one.
pub fn check(world: &World, at: usize) -> Option<String> {
    let machine = world.machines.get(at)?;
    let kernel = machine.node.as_ref()?.kernel.borrow();
    world.lies.iter().find_map(|lie| {
        let liar = world.machines.get(lie.liar)?;
        let key = RouteKey::new(TABLE_MAIN, lie.net, LEARNED.1, 0);
        let (_, route) = kernel.routes().find(|(found, _)| **found == key)?;
        let mut hops = route.next_hops.iter();
        let follows = hops.any(|hop| hop.gateway == Some(liar.v4.into()));
        follows.then(|| {
            let (name, of) = (&machine.name, &liar.name);
            format!("{name}: the route to {} leads to the liar {of}", lie.net)
        })
    })
}
