//! The usage of a speaker's limits.

use alloc::{collections::BTreeMap, vec::Vec};

use bgp_proto::Prefix;
use rib::PeerId;

use crate::handshake::{HandshakeFailure, HandshakeFailures};
use crate::octets::{Octets, PeerOctets};
use crate::peer::{Peer, PeerView};
use crate::{limited::Limited, monitor::Monitoring, outgroup::OutGroup, speaker::Speaker};

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
    /// Octets in the fullest feed of a group; the limit is [`crate::limits::FEED_OCTETS_MAX`].
    pub feed_octets: Level,
    /// The most octets that wait for one peer; the limit is [`crate::limits::SESSION_OCTETS_MAX`].
    pub session_octets: Level,
    /// Octets that wait for the monitor; 0 without one.
    pub monitor_octets: usize,
    /// Octets of all peers and groups together.
    pub octets: Octets,
    /// The limit of these octets; absent without one.
    pub memory: Option<MemoryUsage>,
}

/// The usage of the limit of all accounts: [`Speaker::limit_memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUsage {
    /// The limit.
    pub octets_max: usize,
    /// The octets at the last measurement.
    pub octets: Level,
    /// The number of peers whose new paths are rejected.
    pub capped: usize,
}

/// A number with its highest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
            feed_octets: self.feed_octets,
            session_octets: self.session_octets(),
            monitor_octets: self.monitor.as_deref().map_or(0, Monitoring::octets),
            octets: self.octets(),
            memory: self.memory_usage(),
        }
    }

    fn session_octets(&self) -> Level {
        let queued = self.roster.iter();
        let queued = queued.map(|(_, peer)| peer.session.queued_octets());
        let now = queued.max().unwrap_or(0);
        let peak = self.session_peak.max(now);
        Level { now, peak }
    }

    fn memory_usage(&self) -> Option<MemoryUsage> {
        let capped = self.roster.iter().filter(|(_, peer)| peer.is_capped());
        let (now, peak) = (self.memory.now, self.memory.peak);
        Some(MemoryUsage {
            octets_max: self.memory.octets_max?,
            octets: Level { now, peak },
            capped: capped.count(),
        })
    }

    /// Returns the sums of the octets in all accounts.
    fn octets(&self) -> Octets {
        let each = self.roster.iter();
        let each = each.map(|(id, peer)| self.octets_of(id, peer));
        let peers = each.fold(PeerOctets::default(), PeerOctets::plus);
        Octets {
            peers,
            groups: self.ring_octets(),
        }
    }

    /// Returns the octets in the account of a peer.
    pub(crate) fn octets_of(&self, id: PeerId, peer: &Peer) -> PeerOctets {
        let group = self.out_group(peer);
        let limited = group.into_iter().flat_map(|group| group.limited(id));
        PeerOctets {
            received: self.rib.octets(id),
            queued: peer.session.queued_octets(),
            behind: group.map_or(0, |group| group.octets_behind(id)),
            sent: limited.map(Limited::octets).sum(),
        }
    }

    /// Returns the state of a peer.
    pub(crate) fn view<'a>(&'a self, id: PeerId, peer: &'a Peer) -> PeerView<'a> {
        let (octets, sent) = (self.octets_of(id, peer), self.sent_to(peer, id));
        peer.view(id, &self.rib, octets, sent)
    }

    /// Updates the levels of the fullest ring and the fullest feed.
    pub(crate) fn gauge_rings(&mut self) {
        let groups = self.groups.iter().flatten().map(OutGroup::fullest);
        let (ring, feed) = groups.fold((0, 0), |(ring, feed), (r, f)| (ring.max(r), feed.max(f)));
        self.ring_octets.set(ring);
        self.feed_octets.set(feed);
    }
}
