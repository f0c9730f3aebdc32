//! Shared values, stored once.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Values, each shared by its holders.
#[derive(Clone, Debug)]
pub(super) struct Pool<T>(BTreeSet<Arc<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: Ord> Pool<T> {
    /// Returns the shared instance of a value.
    pub(super) fn share(&mut self, value: T) -> Arc<T> {
        if let Some(held) = self.0.get(&value) {
            return held.clone();
        }
        let value = Arc::new(value);
        self.0.insert(value.clone());
        value
    }

    /// Drops one holder of a value; the value is removed with its last holder.
    pub(super) fn give_back(&mut self, value: Arc<T>) {
        /// The pool's reference, and the one that is dropped.
        const LAST: usize = 2;
        if Arc::strong_count(&value) <= LAST {
            self.0.remove(&*value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_value_is_stored_once_until_last_release() {
        let mut pool = Pool::default();
        let (one, two) = (pool.share("web".to_owned()), pool.share("web".to_owned()));
        assert!(Arc::ptr_eq(&one, &two));
        pool.give_back(one);
        assert_eq!(pool.0.len(), 1);
        pool.give_back(two);
        assert!(pool.0.is_empty());
    }
}
