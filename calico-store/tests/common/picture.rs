//! The picture built from a mirror's updates.

use std::collections::BTreeMap;

use bytes::Bytes;
use calico_store::{Change, Follower, Status, Update};

use super::soon;

/// The picture of a follower's consumer.
#[derive(Default)]
pub(crate) struct Picture {
    pub(crate) state: BTreeMap<Bytes, Bytes>,
    pub(crate) status: Option<Status>,
    /// A snapshot was delivered.
    pub(crate) was_restored: bool,
}

impl Picture {
    pub(crate) async fn until(
        &mut self,
        follower: &mut Follower,
        what: &str,
        done: impl Fn(&Self) -> bool,
    ) {
        while !done(self) {
            self.take(soon(what, follower.next()).await);
        }
    }

    pub(crate) fn take(&mut self, updates: Vec<Update>) {
        for update in updates {
            match update {
                Update::Status(status) => {
                    self.was_restored |= matches!(status, Status::Snapshot { .. });
                    self.status = Some(status);
                }
                Update::Change(Change::Put(item)) => {
                    self.state.insert(item.key, item.value);
                }
                Update::Change(Change::Delete(key)) => {
                    self.state.remove(&key);
                }
            }
        }
    }

    /// Returns the number of its keys with this prefix.
    pub(crate) fn keys_below(&self, prefix: &str) -> usize {
        let keys = self.state.keys();
        keys.filter(|key| key.starts_with(prefix.as_bytes()))
            .count()
    }

    pub(crate) fn holds(&self, key: &str, value: &str) -> bool {
        self.state
            .get(key.as_bytes())
            .is_some_and(|held| held == value)
    }
}
