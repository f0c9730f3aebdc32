//! The labels that endpoints inherit from profiles.

use std::ops::Bound;
use std::sync::Arc;

use super::anchors::Labels;
use super::index::{Index, List};
use super::member::Entry;
use crate::work;

impl Index {
    /// Lets endpoints inherit the changed labels of lists, about as many as take so many steps: a step
    /// is an endpoint or an evaluated selector. Returns whether all have inherited them.
    pub(crate) fn inherit(&mut self, steps: u64) -> bool {
        let checks = self.checks;
        let mut endpoints = 0;
        while let Some((list, last)) = self.due.relabeled.pop_first() {
            let mut last = last;
            loop {
                if endpoints + self.checks - checks >= steps {
                    self.due.relabeled.insert(list, last);
                    return false;
                }
                let after = last.map_or(Bound::Unbounded, Bound::Excluded);
                let names = self.named_by.get(&*list);
                let next = names.and_then(|names| names.range((after, Bound::Unbounded)).next());
                let Some(name) = next.cloned() else {
                    break;
                };
                self.relabel(&name);
                endpoints += 1;
                last = Some(name);
            }
        }
        true
    }

    /// Returns whether endpoints are still to inherit changed labels.
    pub(crate) fn inherits(&self) -> bool {
        !self.due.relabeled.is_empty()
    }

    /// Computes the labels of an endpoint again.
    fn relabel(&mut self, name: &Arc<str>) {
        work::count(1);
        let Some(entry) = self.members.get(name).cloned() else {
            return;
        };
        let labels = self.inherited(&entry.own_labels, &entry.profiles);
        // It was written again since the change.
        if Arc::ptr_eq(&labels, &entry.labels) {
            return;
        }
        self.replace(Arc::clone(name), Some(Entry { labels, ..entry }));
    }

    /// Returns labels together with those that profiles add.
    pub(super) fn inherited(&mut self, own: &Arc<Labels>, profiles: &[String]) -> Arc<Labels> {
        let lists = profiles
            .iter()
            .filter_map(|profile| Some(&self.lists.get(profile.as_str())?.list));
        let lists: Vec<&List> = lists.filter(|list| !list.labels.is_empty()).collect();
        if lists.is_empty() {
            return own.clone();
        }
        let mut labels = Labels::clone(own);
        for (label, value) in lists.iter().flat_map(|list| &list.labels) {
            let own = labels.entry(label.clone());
            own.or_insert_with(|| value.clone());
        }
        self.labels.share(labels)
    }
}
