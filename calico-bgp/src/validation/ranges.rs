//! Prefixes with the nodes that hold them.

use std::collections::{BTreeMap, BTreeSet};

use bgp_proto::Prefix;

use super::endpoints::NodeId;

/// Prefixes with the nodes that hold them. A look-up needs one search for each length of the set.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges {
    all: BTreeSet<(Prefix, NodeId)>,
    /// How many prefixes have each length; the longest last.
    lengths: BTreeMap<u8, usize>,
}

impl Ranges {
    /// Adds a prefix of a node; returns whether it is new.
    pub(super) fn insert(&mut self, prefix: Prefix, node: NodeId) -> bool {
        let is_new = self.all.insert((prefix, node));
        if is_new {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        is_new
    }

    /// Removes a prefix of a node; returns whether it was there.
    pub(super) fn remove(&mut self, prefix: Prefix, node: NodeId) -> bool {
        let was_there = self.all.remove(&(prefix, node));
        if was_there && let Some(count) = self.lengths.get_mut(&prefix.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
        was_there
    }

    /// Returns whether there is no prefix.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns all prefixes.
    pub(super) fn all(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.all.iter().map(|(prefix, _)| *prefix)
    }

    /// Returns the length of the shortest prefix that equals or contains `prefix`.
    pub(super) fn shortest_around(&self, prefix: Prefix) -> Option<u8> {
        let mut lengths = self
            .lengths
            .range(..=prefix.len())
            .map(|(length, _)| *length);
        lengths.find(|length| {
            let around = Prefix::new(prefix.addr(), *length);
            let mut found = around
                .into_iter()
                .flat_map(|around| self.all.range((around, 0)..=(around, NodeId::MAX)));
            found.next().is_some()
        })
    }

    /// Returns the prefixes that equal or contain `prefix`, the longest first.
    pub(super) fn around(&self, prefix: Prefix) -> impl Iterator<Item = (Prefix, NodeId)> + '_ {
        let lengths = self.lengths.range(..=prefix.len()).rev();
        lengths.flat_map(move |(length, _)| {
            let around = Prefix::new(prefix.addr(), *length).into_iter();
            around.flat_map(move |around| {
                self.all.range((around, 0)..=(around, NodeId::MAX)).copied()
            })
        })
    }
}
