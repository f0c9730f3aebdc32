//! The stored settings: FelixConfiguration `default`, one that selects this host's Node by labels, and
//! `node.<hostname>`.

use std::collections::{BTreeMap, BTreeSet};

use calico_model::{FelixConfigurationSpec, Selector};

use super::types::Problem;

/// The field with the labels of nodes.
pub(super) const SELECTOR: &str = "spec.nodeSelector";

/// The stored settings.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredSettings {
    /// FelixConfiguration `default`.
    pub(super) cluster_wide: Option<FelixConfigurationSpec>,
    /// Settings for the nodes that they select by labels, by key.
    pub(super) scoped: BTreeMap<String, Scoped>,
    /// FelixConfiguration `node.<hostname>`.
    pub(super) own: Option<FelixConfigurationSpec>,
    /// The labels of this host's Node.
    labels: BTreeMap<String, String>,
    /// The problems of the scoped ones that were counted.
    pub(super) problems: BTreeSet<Problem>,
}

/// Settings for the nodes that a selector matches.
#[derive(Clone, Debug)]
pub(super) struct Scoped {
    pub(super) selector: Selector,
    /// Time of creation, as text that sorts by time.
    pub(super) created: String,
    pub(super) spec: FelixConfigurationSpec,
}

impl StoredSettings {
    /// Records the labels of this host's Node. Returns whether the settings may have changed.
    pub(super) fn put_labels(&mut self, labels: BTreeMap<String, String>) -> bool {
        let changed = self.labels != labels;
        self.labels = labels;
        changed && !self.scoped.is_empty()
    }

    /// Returns the settings that select this host by labels, each with its key: the oldest first.
    fn selected(&self) -> Vec<(&String, &Scoped)> {
        let mut found: Vec<(&String, &Scoped)> = self
            .scoped
            .iter()
            .filter(|(_, scoped)| scoped.selector.matches(&self.labels))
            .collect();
        // Without a time of creation, settings count as the newest.
        found.sort_by_key(|(key, scoped)| (scoped.created.is_empty(), &scoped.created, *key));
        found
    }

    /// Returns the settings that are in effect without those of the host itself.
    pub(super) fn effective(&self) -> FelixConfigurationSpec {
        let base = self.cluster_wide.clone().unwrap_or_default();
        let base = match self.selected().first() {
            Some((_, scoped)) => scoped.spec.clone().over(&base),
            None => base,
        };
        self.own.clone().unwrap_or_default().over(&base)
    }

    /// Returns the problems of settings that select this host beside older ones.
    pub(super) fn conflicts(&self) -> BTreeSet<Problem> {
        let selected = self.selected();
        let Some(((first, _), others)) = selected.split_first() else {
            return BTreeSet::new();
        };
        let first = first.rsplit('/').next().unwrap_or_default();
        let reason = format!("has no effect: {first} selects this node, too, and is older");
        let problems = others.iter();
        problems
            .map(|(key, _)| Problem::new(key.as_str(), SELECTOR, &reason))
            .collect()
    }
}
