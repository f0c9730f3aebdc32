//! The objects of a table that commits have changed.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::TOUCHED_MAX;

/// Changed chains, sets and elements of Felix's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    chains: BTreeSet<String>,
    /// Changed sets and maps; with the interfaces of the changed elements, if only elements have changed.
    sets: BTreeMap<String, Option<BTreeSet<String>>>,
    names: usize,
    is_everything: bool,
    /// Another table has changed: no endpoint depends on it.
    has_foreign: bool,
}

impl Touched {
    /// Returns a change of any object.
    pub fn everything() -> Self {
        Self {
            is_everything: true,
            ..Self::default()
        }
    }

    /// Returns whether any object may have changed.
    pub const fn is_everything(&self) -> bool {
        self.is_everything
    }

    /// Returns whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds an object of another table.
    pub const fn add_foreign(&mut self) {
        self.has_foreign = true;
    }

    /// Adds a chain, or its rules.
    pub fn add_chain(&mut self, name: String) {
        if self.chains.insert(name) {
            self.count();
        }
    }

    /// Adds a set or map.
    pub fn add_set(&mut self, name: String) {
        if self.sets.insert(name, None) != Some(None) {
            self.count();
        }
    }

    /// Adds an element of a set or map. `interface` is the name in the first 16 octets of its key, if they
    /// are one.
    pub fn add_element(&mut self, set: String, interface: Option<String>) {
        let Some(interface) = interface else {
            return self.add_set(set);
        };
        let own = self
            .sets
            .entry(set)
            .or_insert_with(|| Some(BTreeSet::new()));
        if own.as_mut().is_some_and(|own| own.insert(interface)) {
            self.count();
        }
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: Self) {
        if other.is_everything {
            *self = Self::everything();
        }
        self.has_foreign |= other.has_foreign && !self.is_everything;
        for name in other.chains {
            self.add_chain(name);
        }
        for (set, interfaces) in other.sets {
            match interfaces {
                None => self.add_set(set),
                Some(interfaces) => {
                    for interface in interfaces {
                        self.add_element(set.clone(), Some(interface));
                    }
                }
            }
        }
    }

    /// Counts a name: beyond [`TOUCHED_MAX`], everything counts as changed.
    fn count(&mut self) {
        self.names += 1;
        if self.names > TOUCHED_MAX || self.is_everything {
            *self = Self::everything();
        }
    }

    pub(crate) fn has_chain(&self, name: &str) -> bool {
        self.is_everything || self.chains.contains(name)
    }

    /// Returns the interfaces of changed elements of a set; `None` if it has not changed, and an inner
    /// `None` if all of it may have changed.
    pub(crate) fn interfaces(&self, set: &str) -> Option<Option<&BTreeSet<String>>> {
        match self.is_everything {
            true => Some(None),
            false => self.sets.get(set).map(Option::as_ref),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_names_are_everything() {
        let mut touched = Touched::default();
        assert!(touched.is_empty());
        for number in 0..TOUCHED_MAX {
            touched.add_chain(number.to_string());
            touched.add_chain(number.to_string());
        }
        assert!(!touched.is_everything() && touched.has_chain("7") && !touched.has_chain("x"));
        touched.add_element("s".to_owned(), Some("cali1".to_owned()));
        assert_eq!(touched, Touched::everything());
        touched.add_set("s".to_owned());
        assert_eq!(touched, Touched::everything());
    }

    #[test]
    fn whole_set_includes_its_elements() {
        let element = |touched: &mut Touched, name: &str| {
            touched.add_element("s".to_owned(), Some(name.to_owned()));
        };
        let mut touched = Touched::default();
        element(&mut touched, "cali1");
        let mut other = Touched::default();
        element(&mut other, "cali2");
        touched.merge(other.clone());
        let names = touched.interfaces("s").unwrap().unwrap();
        assert_eq!(Vec::from_iter(names), ["cali1", "cali2"]);
        assert_eq!(touched.interfaces("t"), None);
        touched.add_element("s".to_owned(), None);
        touched.merge(other);
        assert_eq!(touched.interfaces("s"), Some(None));
        touched.merge(Touched::everything());
        assert!(touched.is_everything());
    }
}
