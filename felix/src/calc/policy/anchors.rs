//! Finds selectors by labels that they might select.
//!
//! Most selectors match only if a label has one of a few values, or exists at all. Such a selector
//! is stored under one of these conditions, and is evaluated only for labels that satisfy it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The labels of a member.
pub(super) type Labels = BTreeMap<String, String>;

use calico_model::Selector;

/// Selectors by key.
#[derive(Clone, Debug)]
pub(super) struct Anchors<K> {
    /// By the label that they need.
    by_label: BTreeMap<Arc<str>, Bucket<K>>,
    /// Selectors that need no label.
    rest: BTreeSet<K>,
}

/// Selectors that need the same label.
#[derive(Clone, Debug)]
struct Bucket<K> {
    /// With any value.
    present: BTreeSet<K>,
    /// With this value.
    values: BTreeMap<Arc<str>, BTreeSet<K>>,
}

impl<K> Default for Anchors<K> {
    fn default() -> Self {
        Self {
            by_label: BTreeMap::new(),
            rest: BTreeSet::new(),
        }
    }
}

impl<K> Default for Bucket<K> {
    fn default() -> Self {
        Self {
            present: BTreeSet::new(),
            values: BTreeMap::new(),
        }
    }
}

/// The alternatives of a condition; everything selected satisfies one of them.
type Condition = Box<[(Arc<str>, Option<Arc<str>>)]>;

/// The place of a selector: under all alternatives of one of its conditions, or separate.
#[derive(Clone, Debug)]
pub(super) struct Anchor(Option<Condition>);

impl<K: Ord + Clone> Anchors<K> {
    /// Stores a selector. Returns its place, for [`remove`](Self::remove).
    ///
    /// Of several conditions it uses the one with the fewest selectors. For example, if all
    /// selectors name the same namespace and each another application, they are stored by
    /// application.
    pub(super) fn insert(&mut self, key: &K, selector: &Selector) -> Anchor {
        let conditions = selector.conditions().into_iter();
        let least = conditions.min_by_key(|condition| {
            let loads = condition
                .iter()
                .map(|(label, value)| self.load(label, *value));
            (loads.sum::<usize>(), condition.len())
        });
        let Some(condition) = least else {
            self.rest.insert(key.clone());
            return Anchor(None);
        };
        let mut kept = Vec::with_capacity(condition.len());
        for (label, value) in condition {
            let (label, value) = (Arc::<str>::from(label), value.map(Arc::from));
            let bucket = self.by_label.entry(Arc::clone(&label)).or_default();
            match &value {
                Some(value) => bucket.values.entry(Arc::clone(value)).or_default(),
                None => &mut bucket.present,
            }
            .insert(key.clone());
            kept.push((label, value));
        }
        Anchor(Some(kept.into()))
    }

    /// Removes a selector from its place.
    pub(super) fn remove(&mut self, key: &K, anchor: &Anchor) {
        let Some(condition) = &anchor.0 else {
            self.rest.remove(key);
            return;
        };
        for (label, value) in condition {
            let Some(bucket) = self.by_label.get_mut(label) else {
                continue;
            };
            match value {
                Some(value) => {
                    let keys = bucket.values.get_mut(value);
                    if keys.is_some_and(|keys| keys.remove(key) && keys.is_empty()) {
                        bucket.values.remove(value);
                    }
                }
                None => drop(bucket.present.remove(key)),
            }
            if bucket.present.is_empty() && bucket.values.is_empty() {
                self.by_label.remove(label);
            }
        }
    }

    /// Returns the selectors that might select these labels, each once.
    pub(super) fn candidates(&self, labels: &Labels) -> Vec<&K> {
        let mut found: Vec<&K> = self.rest.iter().collect();
        if self.by_label.is_empty() {
            return found;
        }
        for (label, value) in labels {
            let Some(bucket) = self.by_label.get(label.as_str()) else {
                continue;
            };
            found.extend(&bucket.present);
            let keys = bucket.values.get(value.as_str());
            found.extend(keys.into_iter().flatten());
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Returns the number of selectors that are evaluated if this condition holds.
    fn load(&self, label: &str, value: Option<&str>) -> usize {
        let Some(bucket) = self.by_label.get(label) else {
            return 0;
        };
        match value {
            Some(value) => bucket.values.get(value).map_or(0, BTreeSet::len),
            None => bucket.present.len(),
        }
    }
}
