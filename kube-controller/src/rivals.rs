//! Other programs that write the resources of the controller.

use std::collections::BTreeMap;

use calico_store::Revision;
use tokio::time::Instant;

use crate::limits::{REPAIRS_MAX, REPAIRS_WINDOW};
use crate::target::Target;

/// The own writes, and how often other programs have changed them.
#[derive(Debug, Default)]
pub(crate) struct Rivals {
    /// The revision of the last own write of each key.
    written: BTreeMap<Target, Revision>,
    /// The keys that another program has changed since, with the revisions; `None`: it was deleted.
    changed: BTreeMap<Target, Option<Revision>>,
    /// The number of repairs of a key, and the time of the first one.
    repairs: BTreeMap<Target, (u32, Instant)>,
    /// Whether the datastore has had the status of this program.
    pub(crate) has_own_status: bool,
}

impl Rivals {
    /// Records an own write, or with `None` an own deletion. The datastore may have delivered it before.
    pub(crate) fn wrote(&mut self, key: &Target, revision: Option<Revision>) {
        if self.changed.get(key) == Some(&revision) {
            self.changed.remove(key);
        }
        match revision {
            Some(revision) => drop(self.written.insert(key.clone(), revision)),
            None => drop(self.written.remove(key)),
        }
    }

    /// Records the revision of a key as the datastore delivers it; `None`: it was deleted.
    pub(crate) fn changed(&mut self, key: &Target, revision: Option<Revision>) {
        let is_other = |own: &Revision| revision.is_none_or(|revision| revision > *own);
        if self.written.get(key).is_some_and(is_other) {
            self.written.remove(key);
            self.changed.insert(key.clone(), revision);
        }
    }

    /// Records that a key is as it should be.
    pub(crate) fn forget(&mut self, key: &Target) {
        self.changed.remove(key);
    }

    /// Records that a resource is written. Returns whether another program has changed own writes of it
    /// too often.
    pub(crate) fn repairs(&mut self, key: &Target, now: Instant) -> bool {
        if self.changed.remove(key).is_none() {
            return false;
        }
        let is_recent = |since: &Instant| now.duration_since(*since) <= REPAIRS_WINDOW;
        self.repairs.retain(|_, (_, since)| is_recent(since));
        let (count, _) = self.repairs.entry(key.clone()).or_insert((0, now));
        *count += 1;
        *count >= REPAIRS_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use calico_model::{Kind, ResourceKey};

    use super::*;

    fn profile() -> Target {
        let key = ResourceKey::new(Kind::Profile, None, "kns.a");
        Target::Resource(key.expect("a key"))
    }

    /// Lets another program change an own write, and returns whether its repair is one too many.
    fn fight(rivals: &mut Rivals, key: &Target, at: u32, now: Instant) -> bool {
        let revision = i64::from(at) * 10;
        rivals.wrote(key, Some(Revision(revision)));
        rivals.changed(key, Some(Revision(revision)));
        assert!(!rivals.repairs(key, now), "its own write");
        rivals.wrote(key, Some(Revision(revision)));
        rivals.changed(key, Some(Revision(revision + 1)));
        rivals.repairs(key, now)
    }

    #[test]
    fn repeated_changes_of_a_resource_reveal_another_writer() {
        let key = profile();
        let now = Instant::now();
        let mut rivals = Rivals::default();
        for at in 1..REPAIRS_MAX {
            assert!(!fight(&mut rivals, &key, at, now));
        }
        assert!(fight(&mut rivals, &key, REPAIRS_MAX, now));
        // Rare changes, as by an operator, do not count together.
        let mut rare = Rivals::default();
        let later = |at: u32| now + (REPAIRS_WINDOW + Duration::from_secs(1)) * at;
        for at in 1..3 * REPAIRS_MAX {
            assert!(!fight(&mut rare, &key, at, later(at)));
        }
    }

    #[test]
    fn deletion_by_another_program_counts_as_a_change() {
        let key = profile();
        let mut rivals = Rivals::default();
        rivals.wrote(&key, Some(Revision(3)));
        rivals.changed(&key, None);
        assert!(rivals.changed.contains_key(&key));
        rivals.forget(&key);
        assert!(!rivals.repairs(&key, Instant::now()));
    }

    #[test]
    fn own_writes_that_arrive_early_are_no_changes_by_others() {
        let key = profile();
        let now = Instant::now();
        let mut rivals = Rivals::default();
        for at in 1..10_i64 {
            // The datastore delivers a write before its answer.
            rivals.changed(&key, Some(Revision(at)));
            rivals.wrote(&key, Some(Revision(at)));
            assert!(!rivals.repairs(&key, now), "{at}");
        }
        // An object that is deleted and created again and again.
        for at in 10..20_i64 {
            rivals.changed(&key, None);
            rivals.wrote(&key, None);
            assert!(!rivals.repairs(&key, now), "{at}");
            rivals.wrote(&key, Some(Revision(at)));
        }
    }
}
