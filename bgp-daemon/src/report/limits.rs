//! The limits of a speaker.

use std::collections::BTreeMap;

use bgp_proto::{Family, Prefix};
use bgp_speaker::{
    HandshakeFailure, LimitAction, MemoryUsage, PeerView, RangeUsage, Speaker, limits,
};
use daemon_common::report::Limit;

/// Returns the limits of a speaker that an operator can reach, with their usage.
pub fn limits(speaker: &Speaker) -> Vec<Limit> {
    let (config, usage) = (speaker.config(), speaker.usage());
    let tables = speaker.rib().stats();
    let mut all = vec![
        Limit::new(
            "neighbors",
            number(limits::PEERS_MAX),
            "connections are rejected with Cease, Out of Resources",
        )
        .level(number(usage.peers.now), number(usage.peers.peak)),
    ];
    all.extend(usage.memory.as_ref().map(memory));
    all.extend(usage.ranges.iter().map(range));
    all.extend(speaker.peers().flat_map(|peer| paths(&peer)));
    all.extend(paths_by_default(speaker));
    all.extend(speaker.peers().flat_map(|peer| sent_paths(&peer)));
    all.extend([
        Limit::new(
            "paths in use for a prefix",
            config.multipath_max.into(),
            "further equal paths are kept but not used",
        )
        .key("multipath"),
        Limit::new(
            "paths for a prefix, all neighbors",
            number(rib::limits::PATHS_PER_PREFIX_MAX),
            "further paths are rejected",
        ),
        Limit::new(
            "paths for a prefix, one neighbor (ADD-PATH)",
            number(rib::limits::PATHS_PER_PEER_MAX),
            "further paths are rejected",
        ),
        Limit::new(
            "path identifiers for a prefix, one source and group (ADD-PATH)",
            number(rib::limits::PATHS_PER_PEER_MAX),
            "the oldest path ID that is no longer advertised is reused",
        ),
        Limit::new(
            "withdrawn prefixes kept, a family",
            number(rib::limits::TOMBSTONES_MAX),
            "neighbors that have not received them get a full table transfer",
        )
        .used(number(tables.tombstones)),
        Limit::new(
            "attribute blocks remembered",
            number(2 * rib::limits::RAW_SETS_MAX),
            "the least recent ones are decoded again when they are received again",
        )
        .used(number(tables.raw_sets)),
        Limit::new(
            "bytes waiting for slow members of a group",
            number(limits::RING_OCTETS_MAX),
            "UPDATEs for a slower neighbor are encoded again from the tables",
        )
        .level(
            number(usage.ring_octets.now),
            number(usage.ring_octets.peak),
        ),
        Limit::new(
            "bytes of a table transfer kept for new members of a group",
            number(limits::FEED_OCTETS_MAX),
            "later members read the tables themselves",
        )
        .level(
            number(usage.feed_octets.now),
            number(usage.feed_octets.peak),
        ),
        Limit::new(
            "bytes waiting for one neighbor",
            number(limits::SESSION_OCTETS_MAX),
            "nothing more is encoded for it until it reads",
        )
        .level(
            number(usage.session_octets.now),
            number(usage.session_octets.peak),
        ),
        Limit::new(
            "malformed messages kept",
            number(limits::MALFORMED_KEPT),
            "the oldest is dropped",
        )
        .used(number(speaker.malformed().count())),
        Limit::new(
            "bytes kept of a malformed message",
            number(limits::MALFORMED_OCTETS_MAX),
            "the rest is not kept",
        ),
        Limit::new(
            "seconds that stale paths of a neighbor without `stale_time` wait for its End-of-RIB",
            limits::STALE_TIME_S.into(),
            "they are removed",
        ),
        Limit::new(
            "seconds that a route refresh of a neighbor may take",
            limits::REFRESH_MAX.as_secs(),
            "routes that were not sent again are removed",
        ),
    ]);
    all
}

fn memory(memory: &MemoryUsage) -> Limit {
    Limit {
        met: Some(number(memory.capped)),
        ..Limit::new(
            "bytes of all neighbors and groups",
            number(memory.octets_max),
            "from 85 percent on, new paths of the neighbor with the most bytes are rejected; from 95 \
             percent on, its session ends",
        )
        .level(number(memory.octets.now), number(memory.octets.peak))
        .key("memory_max")
    }
}

/// Returns a note if new paths of neighbors are rejected because of `memory_max`.
pub fn rejected_for_memory(speaker: &Speaker) -> Option<String> {
    let capped = speaker.peers().filter(|peer| peer.capped);
    let names: Vec<&str> = capped.map(|peer| peer.config.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        let names = names.join(", ");
        format!("memory_max is nearly reached: new paths of these neighbors are rejected: {names}")
    })
}

/// Returns a note for each range that is full. A range of one address, such as a client of a
/// reflector that the datastore configures, is full whenever its neighbor is connected: it has none.
pub fn full_ranges(speaker: &Speaker) -> Vec<String> {
    let ranges = speaker.usage().ranges.into_iter();
    let full = ranges.filter(|range| {
        range.peers.now >= usize::from(range.limit) && !is_single_address(range.prefix)
    });
    full.map(|RangeUsage { prefix, limit, .. }| {
        format!("neighbor_range {prefix} is full: limit = {limit}")
    })
    .collect()
}

const fn is_single_address(prefix: Prefix) -> bool {
    match prefix {
        Prefix::V4(prefix) => prefix.len() == 32,
        Prefix::V6(prefix) => prefix.len() == 128,
    }
}

fn range(usage: &RangeUsage) -> Limit {
    let limit = Limit::new(
        "neighbors of a range",
        usage.limit.into(),
        "the oldest connection without a session is closed; without one, the new one gets Cease, \
         Out of Resources",
    );
    let evicted = usage.failures.count(HandshakeFailure::Evicted);
    Limit {
        of: Some(usage.prefix.to_string()),
        met: Some(usage.refused + evicted),
        ..limit
            .level(number(usage.peers.now), number(usage.peers.peak))
            .key("neighbor_range.limit")
    }
}

/// Returns the limits of a neighbor's paths that are given for single families.
fn paths(peer: &PeerView<'_>) -> Vec<Limit> {
    let limits = peer.families.iter().filter_map(|(family, counters)| {
        let limit = peer.config.prefix_limits.by_family().get(family)?;
        let then = match limit.action {
            LimitAction::Warn => "a warning is logged".to_owned(),
            LimitAction::Drop => "further paths are rejected".to_owned(),
            LimitAction::Restart { after_s } => {
                format!("the session is closed, then idle hold for {after_s} s")
            }
        };
        let peak = peer.path_peaks.get(family).copied().unwrap_or_default();
        let known = Limit::new("paths of a neighbor", limit.max.into(), &then)
            .level(counters.paths.into(), peak.into())
            .key("prefix_limit.max");
        Some(Limit {
            of: Some(format!("{} {family}", peer.config.name)),
            met: Some(counters.limited),
            ..known
        })
    });
    limits.collect()
}

/// Returns the limits of the paths that a neighbor is sent.
fn sent_paths(peer: &PeerView<'_>) -> Vec<Limit> {
    let limits = peer.sent.iter().map(|sent| Limit {
        of: Some(format!("{} {}", peer.config.name, sent.family)),
        met: Some(sent.suppressed),
        ..Limit::new(
            "paths sent to a neighbor",
            sent.limit.max.into(),
            "further paths are not advertised until a withdrawal makes room",
        )
        .level(sent.paths.into(), sent.peak.into())
        .key("prefix_limit_out")
    });
    limits.collect()
}

/// Returns the other limits of paths: one for all neighbors with the same number in a family, since
/// every neighbor has one. The usage is that of the neighbor with the most paths.
fn paths_by_default(speaker: &Speaker) -> Vec<Limit> {
    let mut all: BTreeMap<(u32, Family), Limit> = BTreeMap::new();
    for peer in speaker.peers() {
        let limits = &peer.config.prefix_limits;
        for (family, counters) in &peer.families {
            let others = (!limits.by_family().contains_key(family)).then(|| limits.get(*family));
            let Some(limit) = others.flatten() else {
                continue;
            };
            let peak = peer.path_peaks.get(family).copied().unwrap_or_default();
            let limit = all.entry((limit.max, *family)).or_insert_with(|| Limit {
                of: Some(format!("each other {family}")),
                ..Limit::new(
                    "paths of a neighbor",
                    limit.max.into(),
                    "further paths are rejected",
                )
                .key("prefix_limit")
            });
            limit.used = limit.used.max(Some(counters.paths.into()));
            limit.peak = limit.peak.max(Some(peak.into()));
            limit.met = Some(limit.met.unwrap_or_default() + counters.limited);
        }
    }
    all.into_values().collect()
}

fn number(count: usize) -> u64 {
    count as u64
}
