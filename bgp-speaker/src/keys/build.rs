//! Construction of neighbors and ranges from the given keys.

use alloc::vec::Vec;
use alloc::{
    format,
    string::{String, ToString},
};
use core::net::{IpAddr, Ipv4Addr};

use bgp_proto::Prefix;
use rib::Role;

use super::{
    Fallback, Given, Key, Keyed, PEER_KEYS, PeerConfig, Place, RANGE_KEYS, conflicts,
    value::Invalid,
};
use crate::config::{RangeConfig, SpeakerConfig, no_policy};

/// The placeholder for the prefix of a range until it is read.
const ANYWHERE: Prefix = match Prefix::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0) {
    Some(anywhere) => anywhere,
    None => unreachable!(),
};

impl Given {
    /// Sets the keys of a configuration in the order of its table.
    fn apply<'k, C: Keyed + 'k>(
        &self,
        keys: impl Iterator<Item = &'k Key<C>>,
        config: &mut C,
        faults: &mut Vec<Invalid>,
    ) {
        for key in keys {
            match (self.get(key.name), key.default) {
                (Some(given), _) => key.set(config, given, faults),
                (None, Fallback::Value(value)) => key.set(config, &value().into(), faults),
                (None, Fallback::Required) => {
                    let message = format!("missing key `{}`", key.name);
                    faults.push(Invalid::at(&self.place(), message));
                }
                (None, Fallback::Field | Fallback::Words(_)) => {}
            }
        }
    }

    /// Makes a peer from the keys that a place may have.
    fn peer(&self, place: Place, mut peer: PeerConfig, faults: &mut Vec<Invalid>) -> PeerConfig {
        self.check_names(place, faults);
        let keys = PEER_KEYS.iter().filter(|key| key.is_in(place));
        self.apply(keys, &mut peer, faults);
        conflicts::check(self, &mut peer, faults);
        if peer.role == Role::External {
            // RFC 8212 §2
            for (key, policy) in [("import", &mut peer.import), ("export", &mut peer.export)] {
                if self.get(key).is_none() {
                    *policy = no_policy();
                }
            }
        }
        peer
    }
}

impl SpeakerConfig {
    /// Returns the peer that these keys describe, to be added to the speaker's
    /// [`peers`](Self::peers). It is only valid when nothing is added to `faults`.
    pub fn peer(&self, given: &Given, faults: &mut Vec<Invalid>) -> PeerConfig {
        let mut peer = given.peer(Place::Neighbor, self.vacant(), faults);
        if peer.name.is_empty() {
            peer.name = peer.remote.to_string();
        }
        peer
    }

    /// Returns the range that these keys describe, to be added to the speaker's
    /// [`ranges`](Self::ranges). It is only valid when nothing is added to `faults`.
    pub fn range(&self, given: &Given, faults: &mut Vec<Invalid>) -> RangeConfig {
        let mut range = RangeConfig {
            name: String::new(),
            prefix: ANYWHERE,
            limit: 0,
            awaited: true,
            template: self.vacant(),
        };
        given.apply(RANGE_KEYS.iter(), &mut range, faults);
        let mut template = given.peer(Place::Range, range.template, faults);
        if template.name.is_empty() {
            template.name = range.prefix.to_string();
        }
        template.remote = range.prefix.addr();
        template.session.passive = true;
        range.name.clone_from(&template.name);
        range.template = template;
        range
    }
}
