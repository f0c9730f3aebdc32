//! What a daemon's events report about its sessions is what happened: an established session was
//! reported so once, and each one that ended was reported closed, with its cause.

use crate::world::World;

/// Returns the daemons whose events differ from their sessions, one line each.
pub fn check(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    for machine in &world.machines {
        if let Some(bgp) = &machine.bgp.run {
            let found = bgp.reported.check(&bgp.speaker);
            wrong.extend(found.iter().map(|what| format!("{}: {what}", machine.name)));
        }
    }
    wrong
}
