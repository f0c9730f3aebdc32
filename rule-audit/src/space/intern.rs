//! Values with ids: equal values have equal ids.

use std::hash::Hash;
use std::sync::Arc;

use super::Map;

/// The values, by id.
#[derive(Debug)]
pub(super) struct Interner<T> {
    values: Vec<Arc<T>>,
    ids: Map<Arc<T>, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            ids: Map::default(),
        }
    }
}

impl<T: Eq + Hash + Default> Interner<T> {
    /// Returns the id of a value, and adds the value if it is new.
    pub(super) fn id(&mut self, value: T) -> u32 {
        if let Some(id) = self.ids.get(&value) {
            return *id;
        }
        // More values than ids do not fit into memory.
        let id = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        let value = Arc::new(value);
        self.values.push(Arc::clone(&value));
        self.ids.insert(value, id);
        id
    }

    /// Returns a value.
    pub(super) fn get(&self, id: u32) -> Arc<T> {
        let found = self.values.get(id as usize);
        found.map_or_else(Arc::default, Arc::clone)
    }

    /// Returns the number of values.
    pub(super) const fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns a value without a new reference.
    pub(super) fn peek(&self, id: u32) -> Option<&T> {
        self.values.get(id as usize).map(Arc::as_ref)
    }

    /// Removes all values from an id on.
    pub(super) fn truncate(&mut self, len: usize) {
        for value in self.values.drain(len.min(self.values.len())..) {
            self.ids.remove(&value);
        }
    }
}
