//! The usage of a speaker's limits.

use alloc::{collections::BTreeMap, vec::Vec};

use bgp_proto::Prefix;

use crate::handshake::{HandshakeFailure, HandshakeFailures};
use crate::{outgroup::OutGroup, speaker::Speaker};

/// The usage of the limits that are relevant to an operator, and its highest values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Peers, configured and dynamic; the limit is [`crate::limits::PEERS_MAX`].
    pub peers: Level,
    /// Peers of each configured range, in the order of the configuration.
    pub ranges: Vec<RangeUsage>,
    /// Octets in the fullest ring of a group; the limit is [`crate::limits::RING_OCTETS_MAX`].
    pub ring_octets: Level,
}

/// A number with its highest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The current value.
    pub now: usize,
    /// The highest value so far.
    pub peak: usize,
}

impl Level {
    pub(crate) fn set(&mut self, now: usize) {
        self.now = now;
        self.peak = self.peak.max(now);
    }
}

/// The usage of one range's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeUsage {
    /// The range.
    pub prefix: Prefix,
    /// The maximum number of its peers at once.
    pub limit: u16,
    /// Its peers.
    pub peers: Level,
    /// Connections rejected because it was full.
    pub refused: u64,
    /// Connections that never became sessions, including the rejected ones.
    pub failures: HandshakeFailures,
}

/// The stored counters of a range.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RangeMarks {
    pub(crate) peak: usize,
}

/// The counters by the range's prefix, so that they survive a new configuration.
pub(crate) type AllRangeMarks = BTreeMap<Prefix, RangeMarks>;

impl Speaker {
    /// Returns the usage of its limits.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let ranges = self.config.ranges.iter().enumerate().map(|(at, range)| {
            let marks = self.roster.marks(range.prefix);
            let now = self.roster.out_of(at);
            let peak = marks.peak.max(now); // A peer may come from another range, or be adopted from one.
            let failures = self.tallies.total(range.prefix);
            RangeUsage {
                prefix: range.prefix,
                limit: range.limit,
                peers: Level { now, peak },
                refused: failures.count(HandshakeFailure::Full),
                failures,
            }
        });
        Usage {
            peers: self.roster.level(),
            ranges: ranges.collect(),
            ring_octets: self.ring_octets,
        }
    }

    /// Updates the level of the fullest ring.
    pub(crate) fn gauge_rings(&mut self) {
        let fullest = self.groups.iter().flatten().map(OutGroup::fullest_ring);
        self.ring_octets.set(fullest.max().unwrap_or(0));
    }
}
