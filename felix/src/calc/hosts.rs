//! Host endpoints of this host, and the interfaces that they may apply to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::automatic::Automatic;
use super::types::{HostEndpoint, Problem};
use crate::render::Part;

/// Host endpoints of this host by key, and the interfaces that they may apply to.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts {
    pub(super) endpoints: BTreeMap<String, HostEndpoint>,
    /// Keys of stored host endpoints of any host.
    pub(super) stored: BTreeSet<String>,
    /// Automatic host endpoints of any host, by key.
    pub(super) automatic: BTreeMap<String, Automatic>,
    /// The interfaces of this host with their addresses, by name.
    pub(super) interfaces: BTreeMap<String, BTreeSet<IpAddr>>,
    /// The part of the packet filter of all of them.
    pub(super) part: Part,
    pub(super) problems: BTreeSet<Problem>,
}

impl Hosts {
    /// Returns whether one of these keys is that of a host endpoint.
    pub(super) fn have_any(&self, keys: &BTreeSet<String>) -> bool {
        self.endpoints.keys().any(|key| keys.contains(key))
    }
}
