//! Facts about the tables.

use bgp_speaker::Speaker;
use daemon_common::report::{Fact, TableFigures};
use rib::NextHops;

/// Returns facts of a speaker's tables for the status report.
pub fn facts(speaker: &Speaker) -> Vec<Fact> {
    let (config, stats) = (speaker.config(), speaker.rib().stats());
    let (up, all) = sessions(speaker);
    let next_hops = match config.next_hops {
        NextHops::AssumeReachable => format!("{}, assumed reachable at cost 0", stats.next_hops),
        NextHops::Track => stats.next_hops.to_string(),
    };
    [
        ("AS", config.local_asn.to_string()),
        ("router id", config.router_id.to_string()),
        ("sessions up", format!("{up} of {all}")),
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

/// Returns the state of a speaker in one line, for the service manager. `revision` is the applied
/// revision of the datastore.
pub fn state(speaker: &Speaker, revision: Option<u64>) -> String {
    let (up, all) = sessions(speaker);
    let stats = speaker.rib().stats();
    let (prefixes, paths) = (stats.prefixes, stats.paths);
    let mut state = format!("{up} of {all} sessions up, {prefixes} prefixes, {paths} paths");
    if let Some(revision) = revision {
        state.push_str(&format!(", datastore revision {revision}"));
    }
    if !speaker.deferred().is_empty() {
        state.push_str("; waiting for routes after a restart");
    }
    state
}

/// Returns the number of established sessions, and of all.
fn sessions(speaker: &Speaker) -> (usize, usize) {
    speaker.peers().fold((0, 0), |(up, all), peer| {
        (up + usize::from(peer.params.is_some()), all + 1)
    })
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
