//! The node that a datastore configures, as far as the file and the machine decide it.

use std::time::Duration;

use bgp_proto::FamilySet;
use rib::NextHops;

/// Which node this is, and what its machine decides itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The node's name in the store.
    pub name: String,
    /// The tables of the speaker.
    pub families: FamilySet,
    /// Equal paths that a prefix may use at once.
    pub multipath_max: u16,
    /// How next hops are looked up.
    pub next_hops: NextHops,
    /// How long the choice of routes waits at most after a restart of ours (RFC 4724 §4.1).
    pub restart_wait: Duration,
    /// Whether its daemon is one of the fabric's reflectors.
    pub reflects: bool,
    /// How many reflectors it peers with, whatever the store says.
    pub reflectors: Option<usize>,
    /// How long its registration as a reflector outlives its last word.
    pub registration_ttl: Duration,
    /// How long a reflector whose registration is gone but whose session is up counts as if it were
    /// registered.
    pub absence_wait: Duration,
}
