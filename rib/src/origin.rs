//! Validation of the origin of received paths by data outside of the tables.

use core::fmt;
use core::net::IpAddr;

use bgp_proto::{Asn, Family, Net};

use crate::origin_rules::OriginRules;
use crate::peer::PeerId;

/// Confirms the origin of received paths, by data such as the records of a datastore.
///
/// The tables call it for each path that the import policy accepts, before its first decision, and
/// at each other evaluation. A path that it does not confirm is held in the Adj-RIB-In and counts
/// against its limits, but takes no part in the decision process. When its data changes, the caller
/// must request another evaluation of the paths concerned: [`Rib::reevaluate`].
///
/// [`Rib::reevaluate`]: crate::Rib::reevaluate
pub trait OriginCheck: fmt::Debug + Send + Sync {
    /// Returns whether the origin of a path is confirmed. It must not depend on other paths.
    fn confirms(&self, path: &ReceivedPath<'_>) -> bool;
}

/// The properties of a received path that its origin is validated by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedPath<'a> {
    /// The family.
    pub family: Family,
    /// The destination.
    pub net: Net<'a>,
    /// The peer that announced it.
    pub peer: PeerId,
    /// The address of the peer.
    pub address: IpAddr,
    /// Its path identifier; 0 for none (RFC 7911 §3).
    pub path_id: u32,
    /// The received next hop.
    pub next_hop: Option<IpAddr>,
    /// Whether it has the attribute ORIGINATOR_ID (RFC 4456 §8).
    pub has_originator_id: bool,
    /// The settings of the peer.
    pub rules: OriginRules,
    /// The AS in which the path originates, by its AS_PATH: only for a peer with
    /// [`OriginRules::is_transit`], and `None` if the AS_PATH ends with a set.
    pub origin_as: Option<Asn>,
}
