//! The resources to compare, in the order of their importance.

use std::collections::BTreeSet;

use calico_model::{Kind, ResourceKey};

/// A set of resources. Policies, tiers and profiles precede endpoints and Nodes, of which there are many.
#[derive(Debug, Default)]
pub(crate) struct Unchecked {
    first: BTreeSet<ResourceKey>,
    last: BTreeSet<ResourceKey>,
}

impl Unchecked {
    pub(crate) fn insert(&mut self, key: ResourceKey) -> bool {
        match key.kind() {
            Kind::WorkloadEndpoint | Kind::Node => self.last.insert(key),
            _ => self.first.insert(key),
        }
    }

    pub(crate) fn pop_first(&mut self) -> Option<ResourceKey> {
        self.first.pop_first().or_else(|| self.last.pop_first())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.last.len()
    }
}

impl Extend<ResourceKey> for Unchecked {
    fn extend<T: IntoIterator<Item = ResourceKey>>(&mut self, keys: T) {
        for key in keys {
            self.insert(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_profiles_precede_endpoints_and_nodes() {
        let key = |kind, namespace, name| ResourceKey::new(kind, namespace, name).expect("a key");
        let mut unchecked = Unchecked::default();
        unchecked.extend([
            key(Kind::Node, None, "a"),
            key(Kind::WorkloadEndpoint, Some("a"), "a-k8s-a-eth0"),
            key(Kind::NetworkPolicy, Some("z"), "z"),
            key(Kind::Profile, None, "z"),
        ]);
        assert_eq!(unchecked.len(), 4);
        let mut kinds = Vec::new();
        while let Some(key) = unchecked.pop_first() {
            kinds.push(key.kind());
        }
        let (first, last) = kinds.split_at(2);
        assert!(first.contains(&Kind::NetworkPolicy) && first.contains(&Kind::Profile));
        assert!(last.contains(&Kind::Node) && last.contains(&Kind::WorkloadEndpoint));
    }
}
