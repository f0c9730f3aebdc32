//! The events of a daemon are compared with its state: an established session was reported so once, and
//! each one that ended was reported closed, with its cause; a route is in the kernel if and only if it
//! was reported installed, and not deleted since.

use crate::world::World;

/// Returns the daemons whose events differ from their sessions or from their kernel, one line each.
pub fn check(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    for machine in &world.machines {
        if let Some(bgp) = &machine.bgp.run {
            let mut found = bgp.reported.check(&bgp.speaker);
            if let (Some(glue), Some(node)) = (&bgp.kernel, &machine.node) {
                found.extend(glue.reported.check(&node.kernel.borrow()));
            }
            wrong.extend(found.iter().map(|what| format!("{}: {what}", machine.name)));
        }
    }
    wrong
}
