//! How near a speaker is to its limits.

use alloc::{collections::BTreeMap, vec::Vec};

use bgp_proto::Prefix;

use crate::handshake::{HandshakeFailure, HandshakeFailures};
use crate::{outgroup::OutGroup, speaker::Speaker};

/// What is used of the limits that an operator can meet, and the most that ever was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Peers, configured and dynamic; the limit is [`crate::limits::PEERS_MAX`].
    pub peers: Level,
    /// Peers out of each configured range, in the order of the configuration.
    pub ranges: Vec<RangeUsage>,
    /// Octets in the fullest ring of a group; the limit is [`crate::limits::RING_OCTETS_MAX`].
    pub ring_octets: Level,
}

/// A number that rises and falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// What it is now.
    pub now: usize,
    /// The highest it ever was.
    pub peak: usize,
}

impl Level {
    pub(crate) fn set(&mut self, now: usize) {
        self.now = now;
        self.peak = self.peak.max(now);
    }
}

/// What is used of the limit of one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeUsage {
    /// The range.
    pub prefix: Prefix,
    /// How many peers may come out of it at once.
    pub limit: u16,
    /// Peers that came out of it.
    pub peers: Level,
    /// Connections refused because it was full.
    pub refused: u64,
    /// Connections that never became sessions, those refused among them.
    pub failures: HandshakeFailures,
}

/// What is remembered of a range.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RangeMarks {
    pub(crate) peak: usize,
}

/// By the range's prefix, so that a new configuration leaves them alone.
pub(crate) type AllRangeMarks = BTreeMap<Prefix, RangeMarks>;

impl Speaker {
    /// What is used of its limits.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let ranges = self.config.ranges.iter().enumerate().map(|(at, range)| {
            let marks = self.roster.marks(range.prefix);
            let now = self.roster.out_of(at);
            let peak = marks.peak.max(now); // One may come out of another range, or be taken over.
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

    /// Takes note of how full the rings are.
    pub(crate) fn gauge_rings(&mut self) {
        let fullest = self.groups.iter().flatten().map(OutGroup::fullest_ring);
        self.ring_octets.set(fullest.max().unwrap_or(0));
    }
}
