//! The resources to compare, in the order of their importance.

use std::collections::BTreeSet;

use calico_model::Kind;

use crate::target::Target;

/// A set of keys. Routes and members of services precede policies, tiers and profiles. Endpoints and
/// Nodes are last, because there are many of them.
#[derive(Debug, Default)]
pub(crate) struct Unchecked {
    first: BTreeSet<Target>,
    last: BTreeSet<Target>,
}

impl Unchecked {
    pub(crate) fn insert(&mut self, key: Target) -> bool {
        match key.resource().map(|key| key.kind()) {
            Some(Kind::WorkloadEndpoint | Kind::Node) => self.last.insert(key),
            _ => self.first.insert(key),
        }
    }

    pub(crate) fn pop_first(&mut self) -> Option<Target> {
        self.first.pop_first().or_else(|| self.last.pop_first())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.last.len()
    }
}

impl Extend<Target> for Unchecked {
    fn extend<T: IntoIterator<Item = Target>>(&mut self, keys: T) {
        for key in keys {
            self.insert(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use calico_model::{ResourceKey, ServiceRoutesKey};

    use super::*;

    #[test]
    fn policies_and_profiles_precede_endpoints_and_nodes() {
        let key = |kind, namespace, name| {
            let key = ResourceKey::new(kind, namespace, name).expect("a key");
            Target::Resource(key)
        };
        let mut unchecked = Unchecked::default();
        unchecked.extend([
            key(Kind::Node, None, "a"),
            key(Kind::WorkloadEndpoint, Some("a"), "a-k8s-a-eth0"),
            key(Kind::NetworkPolicy, Some("z"), "z"),
            key(Kind::Profile, None, "z"),
            Target::Routes(ServiceRoutesKey::of("n1")),
        ]);
        assert_eq!(unchecked.len(), 5);
        assert!(
            unchecked
                .pop_first()
                .is_some_and(|key| key.resource().is_none())
        );
        let mut kinds = Vec::new();
        while let Some(key) = unchecked.pop_first() {
            kinds.extend(key.resource().map(ResourceKey::kind));
        }
        let (first, last) = kinds.split_at(2);
        assert!(first.contains(&Kind::NetworkPolicy) && first.contains(&Kind::Profile));
        assert!(last.contains(&Kind::Node) && last.contains(&Kind::WorkloadEndpoint));
    }
}
