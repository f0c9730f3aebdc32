//! The given keys of one neighbor or range.

use alloc::{
    string::{String, ToString},
    vec::Vec,
};
use core::{fmt, ops::Range};

use super::{
    PEER_KEYS, Place, RANGE_KEYS,
    value::{At, Invalid, Value},
};

/// The given keys of one neighbor or range. `Debug` shows no value: one may be a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Given {
    keys: Vec<(At<String>, At<Value>)>,
    place: Range<usize>,
}

impl Given {
    /// Makes the keys of one section.
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

    /// Returns the position of the section.
    #[must_use]
    pub fn place(&self) -> Range<usize> {
        self.place.clone()
    }

    /// Returns the position of a key's value.
    #[must_use]
    pub fn place_of(&self, name: &str) -> Option<&Range<usize>> {
        self.get(name).map(|value| &value.place)
    }

    /// Reports keys that are unknown, or invalid in this place.
    pub(super) fn check_names(&self, place: Place, faults: &mut Vec<Invalid>) {
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
