//! A received route as a question to the records, and the answers.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bgp_proto::{Asn, Prefix};
use rib::PrefixRange;

/// The neighbor that sends a route, by the datastore's record of the session's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbor<'a> {
    /// A node.
    Node(&'a str),
    /// A node that the operator designates as a route reflector.
    Reflector(&'a str),
    /// No node.
    Other,
    /// No node, but a switch that passes routes of nodes on.
    Transit {
        /// The last AS of the route's path.
        origin: Asn,
    },
}

/// The properties of a received route that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedRoute {
    /// The prefix.
    pub prefix: Prefix,
    /// The next hop, if it is an address.
    pub next_hop: Option<IpAddr>,
    /// Whether it has the attribute ORIGINATOR_ID (RFC 4456 §8).
    pub has_originator_id: bool,
}

/// The answer of the datastore's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'i> {
    /// A record confirms the route, or no record is required.
    Confirmed,
    /// No record.
    Unknown,
    /// The next hop is not an address of the neighbor.
    NextHop,
    /// A record of another owner.
    Conflict(Owner<'i>),
}

/// The owner of a record that conflicts with a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner<'i> {
    /// A node.
    Node(&'i str),
    /// An IPPool, whose addresses only nodes announce.
    Pool(&'i str),
    /// The service ranges, which only nodes announce.
    Services,
}

/// The received routes whose evaluation a change of the datastore may change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// Routes of every neighbor with a prefix in one of these ranges.
    pub ranges: BTreeSet<PrefixRange>,
    /// All of these nodes.
    pub nodes: BTreeSet<String>,
    /// Whether all of the neighbors that pass routes of nodes on are affected.
    pub transit: bool,
}

impl Affected {
    /// Returns whether no route is affected.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
