//! A validation of origins that rejects some paths of some peers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use bgp_proto::{Attributes, Family};
use rib::{OriginCheck, PeerId, ReceivedPath};

use crate::parts::{address_of, index_of};

/// The paths that are not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    All,
    WithoutOriginator,
    FirstNextHop,
}

/// By prefix and peer.
type ByRoute = BTreeMap<(u8, PeerId), Doubt>;

/// The data of the check, which the test changes.
#[derive(Clone, Debug, Default)]
pub struct Doubts(Arc<Mutex<ByRoute>>);

impl Doubts {
    pub fn set(&self, net: u8, peer: PeerId, doubt: Option<Doubt>) {
        let mut doubts = self.0.lock().expect("not poisoned");
        match doubt {
            Some(doubt) => doubts.insert((net, peer), doubt),
            None => doubts.remove(&(net, peer)),
        };
    }

    /// Returns whether a path is confirmed, from its attributes.
    pub fn accept(&self, family: Family, net: u8, peer: PeerId, path: &Attributes) -> bool {
        let next_hop = path.next_hop_address();
        self.accepts(family, net, peer, (next_hop, path.originator_id.is_some()))
    }

    fn accepts(
        &self,
        family: Family,
        net: u8,
        peer: PeerId,
        (next_hop, has_originator_id): (Option<IpAddr>, bool),
    ) -> bool {
        match self.0.lock().expect("not poisoned").get(&(net, peer)) {
            None => true,
            Some(Doubt::All) => false,
            Some(Doubt::WithoutOriginator) => has_originator_id,
            Some(Doubt::FirstNextHop) => next_hop != address_of(family, 0).address(),
        }
    }
}

impl OriginCheck for Doubts {
    fn confirms(&self, path: &ReceivedPath<'_>) -> bool {
        let net = index_of(path.family, path.net).0;
        let by = (path.next_hop, path.has_originator_id);
        assert_eq!(path.address, IpAddr::from([10, 0, 2, path.peer.0 as u8]));
        self.accepts(path.family, net, path.peer, by)
    }
}
