//! The configuration of the tables, and their size.

use alloc::collections::BTreeSet;
use core::net::IpAddr;

use bgp_proto::{Asn, ClusterId, RouterId};

use crate::decide::DecisionRules;
use crate::limits::{LOG_ENTRIES_MIN, TOMBSTONES_MAX};
use crate::next_hop::NextHops;

/// The properties of the speaker that the tables depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RibConfig {
    /// Local AS number.
    pub local_asn: Asn,
    /// Local BGP Identifier.
    pub router_id: RouterId,
    /// The CLUSTER_IDs of this speaker as a route reflector (RFC 4456 §7).
    pub cluster_ids: BTreeSet<ClusterId>,
    /// The configurable rules of the decision process.
    pub decision: DecisionRules,
    /// How many equal-cost paths of a prefix may be used at once; 0 counts as 1.
    pub multipath_max: u16,
    /// The source of next hop reachability.
    pub next_hops: NextHops,
    /// Limits for slow readers.
    pub limits: RibLimits,
    /// Addresses of this machine beside those of the sessions: a route with one of them as next hop
    /// is not used (RFC 4271 §5.1.3).
    pub own_addresses: BTreeSet<IpAddr>,
}

impl RibConfig {
    /// Returns the default configuration of a speaker with this AS number and BGP Identifier.
    #[must_use]
    pub fn new(local_asn: Asn, router_id: RouterId) -> Self {
        Self {
            local_asn,
            router_id,
            ..Self::default()
        }
    }

    /// Returns the configuration after `change`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// Limits of the state kept for slow readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RibLimits {
    /// Entries that the log of a family may always have; see [`LOG_ENTRIES_MIN`].
    pub log_entries_min: usize,
    /// Withdrawn prefixes kept for each family; see [`TOMBSTONES_MAX`].
    pub tombstones_max: usize,
}

impl RibLimits {
    /// The default limits.
    pub const DEFAULT: Self = Self {
        log_entries_min: LOG_ENTRIES_MIN,
        tombstones_max: TOMBSTONES_MAX,
    };
}

impl Default for RibLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The size of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RibStats {
    /// Prefixes with paths.
    pub prefixes: usize,
    /// Paths.
    pub paths: usize,
    /// Distinct attribute sets.
    pub attribute_sets: usize,
    /// Attribute blocks cached as received, with or without their octets.
    pub raw_sets: usize,
    /// Next hops of attribute sets.
    pub next_hops: usize,
    /// Prefixes without paths, kept until all readers have read their withdrawal.
    pub tombstones: usize,
    /// Entries of the logs of changes.
    pub log_entries: usize,
    /// Prefixes with a pending decision.
    pub pending: usize,
    /// Octet strings of families with opaque NLRI.
    pub octet_strings: usize,
    /// Path identifiers of groups that send several paths of a prefix.
    pub sent_ids: usize,
}
