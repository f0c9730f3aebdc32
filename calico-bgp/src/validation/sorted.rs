//! A sorted list with little memory beside its values.
//!
//! A `BTreeSet` of small values takes about twice their size, and a hash table more. This list has
//! chunks of at most [`CHUNK_MAX`] values, each with room for a few more.

/// The greatest length of a chunk. An insertion moves the values of one chunk.
const CHUNK_MAX: usize = 256;

/// The room that a full chunk gets at once.
const ROOM: usize = 8;

/// A sorted list. Equal values are kept as often as they are inserted.
#[derive(Clone, Debug)]
pub(super) struct Sorted<T> {
    /// No chunk is empty.
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T: Copy + Ord> Sorted<T> {
    /// Inserts a value.
    pub(super) fn insert(&mut self, value: T) {
        let at = self
            .chunk_of(&value)
            .min(self.chunks.len().saturating_sub(1));
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(vec![value]);
            return;
        };
        if chunk.len() == chunk.capacity() {
            chunk.reserve_exact(ROOM);
        }
        chunk.insert(chunk.partition_point(|other| *other < value), value);
        if chunk.len() > CHUNK_MAX {
            let upper = chunk.split_off(CHUNK_MAX / 2);
            chunk.shrink_to_fit();
            self.chunks.insert(at + 1, upper);
        }
    }

    /// Removes one of the values that equal this one; returns whether there was one.
    pub(super) fn remove(&mut self, value: &T) -> bool {
        let at = self.chunk_of(value);
        let Some(chunk) = self.chunks.get_mut(at) else {
            return false;
        };
        let index = chunk.partition_point(|other| other < value);
        if chunk.get(index) != Some(value) {
            return false;
        }
        chunk.remove(index);
        if chunk.capacity() > chunk.len() + 2 * ROOM {
            chunk.shrink_to(chunk.len() + ROOM);
        }
        if chunk.is_empty() {
            self.chunks.remove(at);
        } else {
            self.merge(at);
        }
        true
    }

    /// Returns the values from `first` on, in order.
    pub(super) fn from(&self, first: T) -> impl Iterator<Item = T> + '_ {
        let chunks = self.chunks.get(self.chunk_of(&first)..).unwrap_or_default();
        let lower = chunks
            .first()
            .map_or(0, |chunk| chunk.partition_point(|other| *other < first));
        chunks.iter().flatten().skip(lower).copied()
    }

    /// Returns the first chunk that ends at this value or behind it.
    fn chunk_of(&self, value: &T) -> usize {
        self.chunks
            .partition_point(|chunk| chunk.last() < Some(value))
    }

    /// Joins a chunk with the next one if both together are short.
    fn merge(&mut self, at: usize) {
        let Some([chunk, next]) = self.chunks.get_mut(at..at + 2) else {
            return;
        };
        if chunk.len() + next.len() <= CHUNK_MAX / 2 {
            chunk.reserve_exact(next.len());
            chunk.append(next);
            self.chunks.remove(at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers in an order without pattern.
    fn numbers(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48)
    }

    fn all(list: &Sorted<u64>) -> Vec<u64> {
        list.from(0).collect()
    }

    #[test]
    fn values_are_sorted_and_equal_ones_kept() {
        let mut list = Sorted::default();
        let mut expected: Vec<u64> = numbers(5_000).chain(numbers(500)).collect();
        expected.iter().for_each(|value| list.insert(*value));
        expected.sort_unstable();
        assert_eq!(all(&list), expected);
        for first in [0, 1, 30_000, 65_535, 65_536] {
            let from: Vec<u64> = list.from(first).collect();
            let at = expected.partition_point(|value| *value < first);
            assert_eq!(from, expected[at..], "{first}");
        }
    }

    #[test]
    fn removal_takes_one_value_and_leaves_short_chunks() {
        let mut list = Sorted::default();
        let mut left: Vec<u64> = numbers(5_000).chain(numbers(500)).collect();
        left.iter().for_each(|value| list.insert(*value));
        for value in numbers(4_990) {
            assert!(list.remove(&value));
            let at = left.iter().position(|other| *other == value);
            left.swap_remove(at.expect("a value"));
        }
        left.sort_unstable();
        assert_eq!(all(&list), left);
        assert!(!list.remove(&70_000));
        let room: usize = list.chunks.iter().map(Vec::capacity).sum();
        assert!(room <= 4 * left.len() + CHUNK_MAX, "{room}");
        assert!(list.chunks.iter().all(|chunk| !chunk.is_empty()));
        left.iter().for_each(|value| assert!(list.remove(value)));
        assert!(list.chunks.is_empty());
    }
}
