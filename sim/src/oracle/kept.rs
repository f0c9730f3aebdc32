//! Routes to hosts that live stay in every kernel, whatever happens to other machines and to daemons.

use fib_sync::{RouteKey, TABLE_MAIN};

use crate::oracle::fib::LEARNED;
use crate::world::World;

/// Returns a route that is missing in one machine's kernel, if there is one.
pub fn check(world: &World, at: usize) -> Option<String> {
    let kept = world.kept.get(&at)?;
    let machine = world.machines.get(at)?;
    let kernel = machine.node.as_ref()?.kernel.borrow();
    let missing = kept.iter().find(|(net, gateway)| {
        let key = RouteKey::new(TABLE_MAIN, *net, LEARNED.1, 0);
        let hops = kernel.route(&key).map(|route| &route.next_hops);
        let mut hops = hops.into_iter().flatten();
        !hops.any(|hop| hop.gateway == Some(*gateway))
    });
    let (net, gateway) = missing?;
    Some(format!(
        "{}: the route to {net} by way of {gateway} is missing",
        machine.name
    ))
}
