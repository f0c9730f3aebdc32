//! What the tables are made with, and how much they hold.

use alloc::collections::BTreeSet;
use core::net::IpAddr;

use bgp_proto::{Asn, ClusterId, RouterId};

use crate::decide::DecisionRules;
use crate::limits::{LOG_ENTRIES_MIN, TOMBSTONES_MAX};
use crate::next_hop::NextHops;

/// What the tables need to know about the speaker they are part of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RibConfig {
    /// Our AS number.
    pub local_asn: Asn,
    /// Our BGP Identifier.
    pub router_id: RouterId,
    /// The CLUSTER_IDs of the clusters that we are a reflector of (RFC 4456 §7).
    pub cluster_ids: BTreeSet<ClusterId>,
    /// What is free to choose about decisions.
    pub decision: DecisionRules,
    /// How many equally good paths of a prefix may be used at once; 0 counts as 1.
    pub multipath_max: u16,
    /// Where the reachability of next hops comes from.
    pub next_hops: NextHops,
    /// How much is kept for readers that lag behind.
    pub limits: RibLimits,
    /// Addresses of this machine beside those of the sessions: a route whose next hop is one of
    /// them is not used (RFC 4271 §5.1.3).
    pub own_addresses: BTreeSet<IpAddr>,
}

/// How much is kept for readers that lag behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RibLimits {
    /// Entries that the log of a family may always have; see [`LOG_ENTRIES_MIN`].
    pub log_entries_min: usize,
    /// Withdrawn prefixes kept for each family; see [`TOMBSTONES_MAX`].
    pub tombstones_max: usize,
}

impl Default for RibLimits {
    fn default() -> Self {
        Self {
            log_entries_min: LOG_ENTRIES_MIN,
            tombstones_max: TOMBSTONES_MAX,
        }
    }
}

/// How much the tables hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RibStats {
    /// Prefixes with paths.
    pub prefixes: usize,
    /// Paths.
    pub paths: usize,
    /// Different attribute sets.
    pub attribute_sets: usize,
    /// Attribute blocks remembered as received, in octets or not.
    pub raw_sets: usize,
    /// Next hops that attribute sets name.
    pub next_hops: usize,
    /// Prefixes without paths, kept until all readers have heard of their withdrawal.
    pub tombstones: usize,
    /// Entries of the logs of changes.
    pub log_entries: usize,
    /// Prefixes that wait for a decision.
    pub pending: usize,
    /// Octet strings kept for families that are carried unread.
    pub octet_strings: usize,
    /// Path identifiers kept for groups that send several paths of a prefix.
    pub sent_ids: usize,
}
