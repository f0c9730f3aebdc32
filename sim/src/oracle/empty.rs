//! When all neighbors have left, a speaker holds nothing of theirs any more: no path, no set of
//! attributes, no entry of a log, no octets for anybody.

use bgp_speaker::rib::{PeerId, RibStats};
use bgp_speaker::{Speaker, rib};

use crate::world::World;

/// What the speaker of a machine still holds though it is alone, one line each.
pub fn check(world: &World, at: usize) -> Vec<String> {
    let Some(machine) = world.machines.get(at) else {
        return Vec::new();
    };
    let Some(bgp) = &machine.bgp.run else {
        return vec![format!("{} does not run", machine.name)];
    };
    let own = own_routes(&bgp.speaker);
    // All routes of its own have the same attributes, which name no next hop.
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
    // What is only remembered, and holds on to nothing, is no matter: `raw_sets`.
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
