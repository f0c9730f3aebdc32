//! What a mirror tells.

use std::collections::BTreeMap;

use bytes::Bytes;
use datastore::{Change, Follower, Status, Update};

use super::soon;

/// What a follower's consumer holds.
#[derive(Default)]
pub(crate) struct Picture {
    pub(crate) state: BTreeMap<Bytes, Bytes>,
    pub(crate) status: Option<Status>,
}

impl Picture {
    pub(crate) async fn until(
        &mut self,
        follower: &mut Follower,
        what: &str,
        done: impl Fn(&Self) -> bool,
    ) {
        while !done(self) {
            for update in soon(what, follower.next()).await {
                match update {
                    Update::Status(status) => self.status = Some(status),
                    Update::Change(Change::Put(item)) => {
                        self.state.insert(item.key, item.value);
                    }
                    Update::Change(Change::Delete(key)) => {
                        self.state.remove(&key);
                    }
                }
            }
        }
    }

    pub(crate) fn holds(&self, key: &str, value: &str) -> bool {
        self.state
            .get(key.as_bytes())
            .is_some_and(|held| held == value)
    }
}
