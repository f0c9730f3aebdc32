//! Numbered entries of several owners. The owner with the most entries is the first to lose one, so one
//! owner's flood removes none of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An entry with an owner.
pub(super) trait Owned {
    /// Returns the name of its owner; empty: none.
    fn owner(&self) -> &str;
}

/// The numbers of entries. A lower number is an older entry.
#[derive(Debug, Default)]
pub(super) struct Shares {
    numbers: BTreeMap<Arc<str>, BTreeSet<u64>>,
    /// The owners by the number of their entries.
    sizes: BTreeSet<(usize, Arc<str>)>,
}

impl Shares {
    pub(super) fn add(&mut self, owner: &str, number: u64) {
        let known = self.numbers.get_key_value(owner);
        let owner = known.map_or_else(|| Arc::from(owner), |(known, _)| Arc::clone(known));
        let numbers = self.numbers.entry(Arc::clone(&owner)).or_default();
        let before = numbers.len();
        numbers.insert(number);
        let after = numbers.len();
        self.resize(owner, before, after);
    }

    pub(super) fn remove(&mut self, owner: &str, number: u64) {
        let Some((owner, _)) = self.numbers.get_key_value(owner) else {
            return;
        };
        let owner = Arc::clone(owner);
        let Some(numbers) = self.numbers.get_mut(&owner) else {
            return;
        };
        let before = numbers.len();
        numbers.remove(&number);
        let after = numbers.len();
        if after == 0 {
            self.numbers.remove(&owner);
        }
        self.resize(owner, before, after);
    }

    /// Replaces a number of an owner by a later one.
    pub(super) fn renumber(&mut self, owner: &str, number: u64, later: u64) {
        if let Some(numbers) = self.numbers.get_mut(owner)
            && numbers.remove(&number)
        {
            numbers.insert(later);
        }
    }

    /// Returns the oldest entry of the owner with the most entries.
    pub(super) fn oldest_of_largest(&self) -> Option<u64> {
        let (_, owner) = self.sizes.last()?;
        self.numbers.get(owner)?.first().copied()
    }

    fn resize(&mut self, owner: Arc<str>, before: usize, after: usize) {
        if before == after {
            return;
        }
        self.sizes.remove(&(before, Arc::clone(&owner)));
        if after > 0 {
            self.sizes.insert((after, owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_owner_loses_its_oldest_entry() {
        let mut shares = Shares::default();
        for (owner, number) in [
            ("few", 1),
            ("many", 2),
            ("many", 3),
            ("many", 4),
            ("few", 5),
        ] {
            shares.add(owner, number);
        }
        shares.renumber("many", 2, 6);
        assert_eq!(shares.oldest_of_largest(), Some(3));
        shares.remove("many", 3);
        shares.remove("many", 4);
        assert_eq!(shares.oldest_of_largest(), Some(1));
        for (owner, number) in [("few", 1), ("few", 5), ("many", 6), ("many", 6), ("no", 7)] {
            shares.remove(owner, number);
        }
        assert_eq!(shares.oldest_of_largest(), None);
        assert!(shares.numbers.is_empty() && shares.sizes.is_empty());
    }
}
