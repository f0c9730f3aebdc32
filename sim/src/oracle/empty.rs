//! When all neighbors have disconnected, a speaker holds no state from them: no path, no attribute
//! set, no entry of a log, no octets to send.

use bgp_speaker::rib::{PeerId, RibStats};
use bgp_speaker::{Speaker, rib};

use crate::world::World;

/// Returns the remaining state of the isolated speaker of a machine, one line each.
pub fn check(world: &World, at: usize) -> Vec<String> {
    let Some(machine) = world.machines.get(at) else {
        return Vec::new();
    };
    let Some(bgp) = &machine.bgp.run else {
        return vec![format!("{} does not run", machine.name)];
    };
    let own = own_routes(&bgp.speaker);
    // All routes that it originates have the same attributes, without a next hop.
    let wanted = [own, own, own.min(1), 0, 0, 0, 0, 0, 0, 0];
    let found = counts(&bgp.speaker);
    let pairs = wanted.into_iter().zip(found);
    let wrong = pairs.filter(|(wanted, (_, found))| wanted != found);
    wrong
        .map(|(wanted, (what, found))| {
            format!("{}: {found} {what}, {wanted} expected", machine.name)
        })
        .collect()
}

fn counts(speaker: &Speaker) -> [(&'static str, usize); 10] {
    // `raw_sets` does not count: it is a cache that holds no references.
    let RibStats {
        prefixes,
        paths,
        attribute_sets,
        raw_sets: _,
        next_hops,
        tombstones,
        log_entries,
        pending,
        octet_strings,
        sent_ids,
        ..
    } = speaker.rib().stats();
    [
        ("prefixes", prefixes),
        ("paths", paths),
        ("attribute sets", attribute_sets),
        ("next hops", next_hops),
        ("withdrawn prefixes kept", tombstones),
        ("log entries", log_entries),
        ("prefixes to decide", pending),
        ("octet strings", octet_strings),
        ("path identifiers", sent_ids),
        ("octets in rings", speaker.usage().ring_octets.now),
    ]
}

fn own_routes(speaker: &Speaker) -> usize {
    let own = |route: &rib::RouteView<'_>| route.paths.iter().any(|p| p.peer == PeerId::LOCAL);
    let families = speaker.config().families.iter();
    families
        .map(|family| speaker.rib().prefixes(family).filter(own).count())
        .sum()
}
