//! The elements of a set: a sorted tree whose copies share their parts.
//!
//! The wanted ruleset and the written one have the same elements, except for the latest changes. A
//! copy takes one step, and a change after it copies one leaf and the path to it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Elements of a leaf, and children of an inner node.
const NODE_MAX: usize = 64;

/// Two neighbors with together at most so many elements or children become one node.
const MERGED_MAX: usize = NODE_MAX / 2;

/// Keys in order, each with a value or none.
#[derive(Clone)]
pub struct Elements<K, V> {
    root: Node<K, V>,
    len: usize,
}

/// A part of the tree. Only the root can be empty, and all leaves are at the same depth.
#[derive(Clone)]
enum Node<K, V> {
    Leaf(Arc<Leaf<K, V>>),
    Inner(Arc<Vec<Self>>),
}

/// Keys in order. Most sets have no values, and take no place for them.
#[derive(Clone)]
struct Leaf<K, V> {
    keys: Vec<K>,
    /// Empty if no key has a value.
    values: Vec<Option<V>>,
}

/// A new node to the right of the changed one, if that was full.
type Split<K, V> = Option<Node<K, V>>;

impl<K, V> Default for Node<K, V> {
    fn default() -> Self {
        let (keys, values) = (Vec::new(), Vec::new());
        Self::Leaf(Arc::new(Leaf { keys, values }))
    }
}

impl<K, V> Default for Elements<K, V> {
    fn default() -> Self {
        Self {
            root: Node::default(),
            len: 0,
        }
    }
}

impl<K: Ord + Clone, V: Clone> Elements<K, V> {
    /// Returns the number of elements.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the value of a key; `None` without the key.
    pub fn get(&self, key: &K) -> Option<&Option<V>> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Inner(children) => node = children.get(child_of(children, key))?,
                Node::Leaf(leaf) => return leaf.value(leaf.keys.binary_search(key).ok()?),
            }
        }
    }

    /// Returns whether a key is there.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Puts a key with its value. Returns the former value.
    pub fn insert(&mut self, key: K, value: Option<V>) -> Option<Option<V>> {
        let (former, split) = self.root.insert(key, value);
        if let Some(right) = split {
            let left = std::mem::take(&mut self.root);
            self.root = Node::Inner(Arc::new(vec![left, right]));
        }
        self.len += usize::from(former.is_none());
        former
    }

    /// Removes a key. Returns its value.
    pub fn remove(&mut self, key: &K) -> Option<Option<V>> {
        // Without it, nothing is copied.
        self.get(key)?;
        let former = self.root.remove(key)?;
        self.len -= 1;
        while let Node::Inner(children) = &mut self.root
            && children.len() == 1
        {
            let only = Arc::make_mut(children).pop().unwrap_or_default();
            self.root = only;
        }
        Some(former)
    }

    /// Keeps the elements for which `keeps` returns true.
    pub fn retain(&mut self, mut keeps: impl FnMut(&K, &Option<V>) -> bool) {
        let gone = self.iter().filter(|(key, value)| !keeps(key, value));
        let gone: Vec<K> = gone.map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.remove(&key);
        }
    }

    /// Returns all elements, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Option<V>)> {
        Iter {
            path: vec![(&self.root, 0)],
        }
    }

    /// Returns all keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Returns all values, in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &Option<V>> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Ord + Clone, V: Clone> Node<K, V> {
    /// Returns its lowest key.
    fn first(&self) -> Option<&K> {
        match self {
            Self::Leaf(leaf) => leaf.keys.first(),
            Self::Inner(children) => children.first()?.first(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.keys.len(),
            Self::Inner(children) => children.len(),
        }
    }

    fn insert(&mut self, key: K, value: Option<V>) -> (Option<Option<V>>, Split<K, V>) {
        match self {
            Self::Leaf(leaf) => Arc::make_mut(leaf).insert(key, value),
            Self::Inner(children) => {
                let at = child_of(children, &key);
                let children = Arc::make_mut(children);
                let Some(child) = children.get_mut(at) else {
                    return (None, None);
                };
                let (former, split) = child.insert(key, value);
                if let Some(right) = split {
                    children.insert(at + 1, right);
                }
                let split = split_at(children.len(), at + 1);
                let split = split.map(|from| Self::Inner(Arc::new(children.split_off(from))));
                if split.is_some() {
                    children.shrink_to_fit();
                }
                (former, split)
            }
        }
    }

    fn remove(&mut self, key: &K) -> Option<Option<V>> {
        match self {
            Self::Leaf(leaf) => Arc::make_mut(leaf).remove(key),
            Self::Inner(children) => {
                let at = child_of(children, key);
                let children = Arc::make_mut(children);
                let former = children.get_mut(at)?.remove(key);
                if children.get(at)?.len() == 0 {
                    children.remove(at);
                } else {
                    merge(children, at);
                    merge(children, at.saturating_sub(1));
                }
                former
            }
        }
    }

    /// Appends a right neighbor of the same depth.
    fn append(&mut self, right: &Self) {
        match (self, right) {
            (Self::Leaf(left), Self::Leaf(right)) => Arc::make_mut(left).append(right),
            (Self::Inner(left), Self::Inner(right)) => {
                Arc::make_mut(left).extend(right.iter().cloned());
            }
            _ => debug_assert!(false, "leaves at two depths"),
        }
    }
}

/// Returns the child that has the key, or would have it.
fn child_of<K: Ord + Clone, V: Clone>(children: &[Node<K, V>], key: &K) -> usize {
    let lower = children.partition_point(|child| child.first().is_some_and(|first| first <= key));
    lower.saturating_sub(1)
}

/// Returns where a node of this length is split after an insertion at `at`. Keys that arrive in order
/// leave full nodes.
fn split_at(len: usize, at: usize) -> Option<usize> {
    let is_last = at + 1 == len;
    (len > NODE_MAX).then_some(if is_last { NODE_MAX } else { len / 2 })
}

/// Makes one node of a child and its right neighbor, if both are small.
fn merge<K: Ord + Clone, V: Clone>(children: &mut Vec<Node<K, V>>, at: usize) {
    let right = children.get(at + 1).map_or(NODE_MAX, Node::len);
    if children.get(at).map_or(NODE_MAX, Node::len) + right <= MERGED_MAX {
        let right = children.remove(at + 1);
        if let Some(left) = children.get_mut(at) {
            left.append(&right);
        }
    }
}

impl<K: Ord + Clone, V: Clone> Leaf<K, V> {
    fn value(&self, at: usize) -> Option<&Option<V>> {
        match self.values.is_empty() {
            true => self.keys.get(at).map(|_| &None),
            false => self.values.get(at),
        }
    }

    /// Makes place for values.
    fn with_values(&mut self) -> &mut Vec<Option<V>> {
        if self.values.is_empty() {
            self.values = vec![None; self.keys.len()];
        }
        &mut self.values
    }

    fn insert(&mut self, key: K, value: Option<V>) -> (Option<Option<V>>, Split<K, V>) {
        let has_values = value.is_some() || !self.values.is_empty();
        let at = match self.keys.binary_search(&key) {
            Ok(at) if has_values => {
                let held = self.with_values().get_mut(at);
                let former = held.and_then(|held| std::mem::replace(held, value));
                return (Some(former), None);
            }
            Ok(_) => return (Some(None), None),
            Err(at) => at,
        };
        if has_values {
            self.with_values().insert(at, value);
        }
        self.keys.insert(at, key);
        let split = split_at(self.keys.len(), at).map(|from| {
            let right = Self {
                keys: self.keys.split_off(from),
                values: self.values.split_off(from.min(self.values.len())),
            };
            self.keys.shrink_to_fit();
            self.values.shrink_to_fit();
            Node::Leaf(Arc::new(right))
        });
        (None, split)
    }

    fn remove(&mut self, key: &K) -> Option<Option<V>> {
        let at = self.keys.binary_search(key).ok()?;
        self.keys.remove(at);
        Some(match self.values.is_empty() {
            true => None,
            false => self.values.remove(at),
        })
    }

    fn append(&mut self, right: &Self) {
        if !self.values.is_empty() || !right.values.is_empty() {
            let values = self.with_values();
            match right.values.is_empty() {
                true => values.extend(right.keys.iter().map(|_| None)),
                false => values.extend_from_slice(&right.values),
            }
        }
        self.keys.extend_from_slice(&right.keys);
    }
}

/// The rest of the elements: nodes from the root to a leaf, each with the next place in it.
struct Iter<'e, K, V> {
    path: Vec<(&'e Node<K, V>, usize)>,
}

impl<'e, K: Ord + Clone, V: Clone> Iterator for Iter<'e, K, V> {
    type Item = (&'e K, &'e Option<V>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (node, at) = self.path.last_mut()?;
            let place = *at;
            *at += 1;
            let child = match node {
                Node::Leaf(leaf) => match leaf.keys.get(place).zip(leaf.value(place)) {
                    Some(element) => return Some(element),
                    None => None,
                },
                Node::Inner(children) => children.get(place),
            };
            match child {
                Some(child) => self.path.push((child, 0)),
                None => drop(self.path.pop()),
            }
        }
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> PartialEq for Elements<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Ord + Clone, V: Clone + Eq> Eq for Elements<K, V> {}

impl<K: Ord + Clone + fmt::Debug, V: Clone + fmt::Debug> fmt::Debug for Elements<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Ord + Clone, V: Clone> Extend<(K, Option<V>)> for Elements<K, V> {
    fn extend<T: IntoIterator<Item = (K, Option<V>)>>(&mut self, elements: T) {
        for (key, value) in elements {
            self.insert(key, value);
        }
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, Option<V>)> for Elements<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, Option<V>)>>(elements: T) -> Self {
        // The last value of a key counts.
        let sorted: BTreeMap<K, Option<V>> = elements.into_iter().collect();
        let len = sorted.len();
        let mut sorted = sorted.into_iter().peekable();
        let mut nodes = Vec::with_capacity(len.div_ceil(NODE_MAX));
        while sorted.peek().is_some() {
            nodes.push(Node::Leaf(Arc::new(
                sorted.by_ref().take(NODE_MAX).collect(),
            )));
        }
        while nodes.len() > 1 {
            let parents = nodes.chunks(NODE_MAX);
            let parents = parents.map(|children| Node::Inner(Arc::new(children.to_vec())));
            nodes = parents.collect();
        }
        let root = nodes.pop().unwrap_or_default();
        Self { root, len }
    }
}

impl<K, V> FromIterator<(K, Option<V>)> for Leaf<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, Option<V>)>>(elements: T) -> Self {
        let (mut keys, mut values): (Vec<K>, Vec<Option<V>>) = elements.into_iter().unzip();
        if values.iter().all(Option::is_none) {
            values = Vec::new();
        }
        keys.shrink_to_fit();
        values.shrink_to_fit();
        Self { keys, values }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::render::{Key, Value, Verdict};

    const fn key(number: u16) -> Key {
        Key::Ports(number, number)
    }

    fn value(number: u16) -> Option<Value> {
        number
            .is_multiple_of(3)
            .then_some(Value::Verdict(Verdict::Accept))
    }

    /// Checks that all leaves are at one depth, and that no node but the root is empty or too large.
    fn depth(node: &Node<Key, Value>, is_root: bool) -> usize {
        assert!(node.len() <= NODE_MAX && (is_root || node.len() > 0));
        match node {
            Node::Leaf(leaf) => {
                assert!(leaf.values.is_empty() || leaf.values.len() == leaf.keys.len());
                0
            }
            Node::Inner(children) => {
                assert!(!is_root || children.len() > 1);
                let depths: Vec<usize> = children.iter().map(|child| depth(child, false)).collect();
                assert!(depths.iter().all(|one| *one == depths[0]));
                1 + depths[0]
            }
        }
    }

    fn leaves(node: &Node<Key, Value>) -> Vec<*const Leaf<Key, Value>> {
        match node {
            Node::Leaf(leaf) => vec![Arc::as_ptr(leaf)],
            Node::Inner(children) => children.iter().flat_map(leaves).collect(),
        }
    }

    proptest! {
        #[test]
        fn elements_are_those_of_a_map_and_copies_stay(
            steps in prop::collection::vec((0..400_u16, 0..9_u8), 1..1500),
            sorted in any::<bool>(),
        ) {
            let mut steps = steps;
            if sorted {
                steps.sort_unstable();
            }
            let (mut elements, mut map) = (Elements::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for (number, kind) in steps {
                let one = key(number);
                match kind {
                    0 => copies.push((elements.clone(), map.clone())),
                    1..=4 => prop_assert_eq!(elements.remove(&one), map.remove(&one)),
                    _ => {
                        let with = value(number + u16::from(kind));
                        let former = map.insert(one.clone(), with.clone());
                        prop_assert_eq!(elements.insert(one, with), former);
                    }
                }
            }
            copies.push((elements, map));
            for (elements, map) in &copies {
                depth(&elements.root, true);
                prop_assert!(elements.iter().eq(map.iter()));
                prop_assert_eq!(elements.len(), map.len());
                for number in 0..400 {
                    prop_assert_eq!(elements.get(&key(number)), map.get(&key(number)));
                }
                let again: Elements<Key, Value> = map.clone().into_iter().collect();
                prop_assert_eq!(elements, &again);
            }
        }
    }

    #[test]
    fn change_of_ten_thousand_copies_one_leaf() {
        let all = (0..10_000).map(|number| (key(number), None));
        let mut elements: Elements<Key, Value> = all.collect();
        let full = leaves(&elements.root).len();
        assert_eq!(
            full,
            10_000_usize.div_ceil(NODE_MAX),
            "keys in order leave full leaves"
        );
        let held = elements.clone();
        assert_eq!(elements.remove(&key(5_000)), Some(None));
        let before = leaves(&held.root);
        let changed = leaves(&elements.root);
        let other = changed.iter().filter(|leaf| !before.contains(leaf));
        assert_eq!(other.count(), 1);
        assert_eq!((held.len(), elements.len()), (10_000, 9_999));
        // An element that is not there copies nothing.
        let again = elements.clone();
        assert_eq!(elements.remove(&key(5_000)), None);
        assert_eq!(leaves(&elements.root), leaves(&again.root));
    }
}
