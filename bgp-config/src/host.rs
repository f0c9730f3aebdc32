//! A node that a datastore configures, with the settings of its file and its machine.

use std::time::Duration;

use bgp_proto::FamilySet;
use rib::NextHops;

/// The identity of a node, and the settings that its machine makes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The node's name in the datastore.
    pub name: String,
    /// The tables of the speaker.
    pub families: FamilySet,
    /// Equal-cost paths of a prefix that may be used at once.
    pub multipath_max: u16,
    /// How next hops are resolved.
    pub next_hops: NextHops,
    /// The longest delay of route selection after a restart of the daemon (RFC 4724 §4.1).
    pub restart_wait: Duration,
    /// Whether its daemon is one of the fabric's reflectors.
    pub reflects: bool,
    /// How many reflectors it peers with, if its file has precedence over the datastore.
    pub reflectors: Option<usize>,
    /// How long its registration as a reflector lasts without a keepalive.
    pub registration_ttl: Duration,
    /// How long a reflector without a registration but with an established session counts as
    /// registered.
    pub absence_wait: Duration,
}
