//! The keys of one neighbor or range as they are given, and the configuration that they make.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    ops::Range,
};

use bgp_proto::Prefix;
use rib::Role;

use super::{
    Fallback, Key, Keyed, PEER_KEYS, PeerConfig, Place, RANGE_KEYS, conflicts,
    value::{At, Invalid, Value},
};
use crate::config::{RangeConfig, SpeakerConfig, no_policy};

/// What stands in for the prefix of a range until it is read.
const ANYWHERE: Prefix = match Prefix::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0) {
    Some(anywhere) => anywhere,
    None => unreachable!(),
};

/// The keys of one neighbor or range, as they are given. `Debug` shows no value: one may be a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Given {
    keys: Vec<(At<String>, At<Value>)>,
    place: Range<usize>,
}

impl Given {
    /// Returns keys that stand together at a place.
    #[must_use]
    pub const fn new(place: Range<usize>, keys: Vec<(At<String>, At<Value>)>) -> Self {
        Self { keys, place }
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&At<Value>> {
        let found = self.keys.iter().find(|(key, _)| key.value == name);
        found.map(|(_, value)| value)
    }

    /// Returns the place of them all.
    #[must_use]
    pub fn place(&self) -> Range<usize> {
        self.place.clone()
    }

    /// Returns the place of the value of a key.
    #[must_use]
    pub fn place_of(&self, name: &str) -> Option<&Range<usize>> {
        self.get(name).map(|value| &value.place)
    }

    /// Reports keys that there are not, or not here.
    fn check_names(&self, place: Place, faults: &mut Vec<Invalid>) {
        let known = known_keys(place);
        for (key, _) in &self.keys {
            if !known.contains(&key.value.as_str()) {
                faults.push(Invalid::unknown(
                    &key.place,
                    &key.value,
                    "keys",
                    known.clone(),
                ));
            }
        }
    }

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
                    let message = format!("missing field `{}`", key.name);
                    faults.push(Invalid::at(&self.place, message));
                }
                (None, Fallback::Field | Fallback::Words(_)) => {}
            }
        }
    }

    /// Makes a peer of the keys that a place may have.
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

/// Returns the names of the keys that a place may have, in their order.
fn known_keys(place: Place) -> Vec<&'static str> {
    let of_peer = PEER_KEYS
        .iter()
        .filter(|key| key.is_in(place))
        .map(|key| key.name);
    let of_range = RANGE_KEYS
        .iter()
        .filter(|key| key.is_in(place))
        .map(|key| key.name);
    of_range.chain(of_peer).collect()
}

impl<const N: usize> From<[(&str, Value); N]> for Given {
    fn from(keys: [(&str, Value); N]) -> Self {
        let keys = keys.into_iter();
        let keys = keys.map(|(key, value)| (key.to_string().into(), value.into()));
        Self::new(0..0, keys.collect())
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.keys.iter().map(|(key, _)| &key.value);
        f.debug_list().entries(names).finish()
    }
}

impl SpeakerConfig {
    /// Returns the peer that these keys describe, to be put among its [`peers`](Self::peers). It is
    /// only good when nothing is added to `faults`.
    pub fn peer(&self, given: &Given, faults: &mut Vec<Invalid>) -> PeerConfig {
        let mut peer = given.peer(Place::Neighbor, self.vacant(), faults);
        if peer.name.is_empty() {
            peer.name = peer.remote.to_string();
        }
        peer
    }

    /// Returns the range that these keys describe, to be put among its [`ranges`](Self::ranges). It
    /// is only good when nothing is added to `faults`.
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
