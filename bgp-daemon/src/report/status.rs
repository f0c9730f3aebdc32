//! Facts about the tables.

use bgp_speaker::Speaker;
use daemon_common::report::{Fact, TableFigures};
use rib::NextHops;

/// Returns facts of a speaker's tables for the status report.
pub fn facts(speaker: &Speaker) -> Vec<Fact> {
    let (config, stats) = (speaker.config(), speaker.rib().stats());
    let up = speaker.peers().filter(|peer| peer.params.is_some()).count();
    let next_hops = match config.next_hops {
        NextHops::AssumeReachable => format!("{}, assumed reachable at cost 0", stats.next_hops),
        NextHops::Track => stats.next_hops.to_string(),
    };
    [
        ("AS", config.local_asn.to_string()),
        ("router id", config.router_id.to_string()),
        (
            "sessions up",
            format!("{up} of {}", speaker.peers().count()),
        ),
        ("prefixes", stats.prefixes.to_string()),
        ("paths", stats.paths.to_string()),
        ("attribute sets", stats.attribute_sets.to_string()),
        ("next hops", next_hops),
    ]
    .map(|(name, value)| Fact {
        name: name.to_owned(),
        value,
    })
    .into()
}

/// Returns the counts of a speaker's tables.
pub fn tables(speaker: &Speaker) -> TableFigures {
    let stats = speaker.rib().stats();
    TableFigures {
        prefixes: stats.prefixes as u64,
        paths: stats.paths as u64,
        attribute_sets: stats.attribute_sets as u64,
        malformed: speaker.malformed_total(),
    }
}
