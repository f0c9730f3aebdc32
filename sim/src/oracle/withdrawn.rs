//! A deleted endpoint is removed from every kernel within a time limit.

use ipnet::IpNet;

use crate::world::World;

/// Returns the daemons' routes to any of these that are still in a kernel although the datastore
/// has no such endpoint, one line each.
pub fn check(world: &World, nets: &[IpNet]) -> Vec<String> {
    let owners = super::fib::owners(world);
    let mut wrong = Vec::new();
    for machine in &world.machines {
        let Some(node) = &machine.node else { continue };
        for (key, route) in node.kernel.borrow().routes() {
            let ours = [80, 119].contains(&route.protocol);
            if ours && nets.contains(&key.prefix) && !owners.contains_key(&key.prefix) {
                wrong.push(format!("{}: {key} is still there", machine.name));
            }
        }
    }
    wrong
}
