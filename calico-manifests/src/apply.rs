//! Makes a store hold the content of a directory.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use calico_model::ResourceKey;
use serde_json::Value;

use crate::read::Wanted;
use calico_store::Error;
use calico_store::LeaseId;
use calico_store::Store;
use calico_store::resources::complete;

/// The keys of the store that came from the directory.
#[derive(Debug, Default)]
pub(super) struct Applied {
    keys: BTreeSet<ResourceKey>,
}

/// The result of applying a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) written: usize,
    pub(super) deleted: usize,
    pub(super) unchanged: usize,
}

impl Applied {
    /// Writes wanted resources that differ, and deletes resources that came from the directory and
    /// are no longer wanted.
    pub(super) async fn apply(
        &mut self,
        store: &dyn Store,
        wanted: BTreeMap<ResourceKey, Wanted>,
    ) -> Result<Done, Error> {
        let mut done = Done::default();
        let gone: Vec<ResourceKey> = self
            .keys
            .iter()
            .filter(|key| !wanted.contains_key(key))
            .cloned()
            .collect();
        for (key, wanted) in wanted {
            let at = Bytes::from(key.to_string());
            // Recorded before the write: a failed write may have been carried out.
            self.keys.insert(key);
            if write(store, at, wanted.value).await? {
                done.written += 1;
            } else {
                done.unchanged += 1;
            }
        }
        for key in gone {
            if store.delete(Bytes::from(key.to_string())).await? {
                done.deleted += 1;
            }
            self.keys.remove(&key);
        }
        Ok(done)
    }
}

/// Writes a resource unless it is unchanged. Other programs may write it at the same time: the
/// status that they report stays.
async fn write(store: &dyn Store, key: Bytes, wanted: Value) -> Result<bool, Error> {
    loop {
        let found = store.get(key.clone()).await?;
        let stored = found
            .as_ref()
            .and_then(|item| serde_json::from_slice::<Value>(&item.value).ok())
            .unwrap_or_default();
        let value = complete(wanted.clone(), &stored);
        if value == stored {
            return Ok(false);
        }
        let octets = Bytes::from(value.to_string());
        let written = match found {
            Some(found) => {
                store
                    .update(key.clone(), octets, LeaseId::NONE, found.mod_revision)
                    .await
            }
            None => store.create(key.clone(), octets, LeaseId::NONE).await,
        };
        match written {
            Ok(_) => return Ok(true),
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
}
