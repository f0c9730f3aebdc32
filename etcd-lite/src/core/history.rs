//! The versions of one key.

use bytes::Bytes;

use calico_store::{KeyValue, LeaseId, Revision};

/// The versions of one key, oldest first. Never empty.
#[derive(Debug, Default)]
pub(super) struct History {
    versions: Vec<Version>,
}

/// The state of a key from a revision on.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) mod_revision: Revision,
    pub(super) create_revision: Revision,
    pub(super) version: i64,
    pub(super) lease: LeaseId,
    /// `None`: it was deleted.
    pub(super) value: Option<Bytes>,
}

impl Version {
    /// Returns a version that is deleted at this revision.
    pub(super) const fn gone(mod_revision: Revision) -> Self {
        Self {
            mod_revision,
            create_revision: Revision::ZERO,
            version: 0,
            lease: LeaseId::NONE,
            value: None,
        }
    }

    pub(super) fn octets(&self, key: &[u8]) -> usize {
        key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }

    fn item(&self, key: &Bytes) -> Option<KeyValue> {
        Some(KeyValue {
            key: key.clone(),
            value: self.value.clone()?,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            version: self.version,
            lease: self.lease,
        })
    }
}

impl History {
    /// Returns the key's state at a revision, if it existed.
    pub(super) fn at(&self, key: &Bytes, revision: Revision) -> Option<KeyValue> {
        let after = self
            .versions
            .partition_point(|version| version.mod_revision <= revision);
        self.versions.get(after.checked_sub(1)?)?.item(key)
    }

    /// Returns the key's present state, if it exists.
    pub(super) fn latest(&self, key: &Bytes) -> Option<KeyValue> {
        self.versions.last()?.item(key)
    }

    pub(super) fn push(&mut self, version: Version) {
        debug_assert!(
            self.versions
                .last()
                .is_none_or(|last| last.mod_revision < version.mod_revision)
        );
        self.versions.push(version);
    }

    /// Removes versions that a read at the revision or later cannot see; returns the number of
    /// freed octets, and whether no version is left.
    pub(super) fn compact(&mut self, key: &[u8], at: Revision) -> (usize, bool) {
        let seen = self
            .versions
            .partition_point(|version| version.mod_revision <= at);
        // The last version before or at the revision is still visible there, unless it is a
        // deletion.
        let keep_last = seen
            .checked_sub(1)
            .and_then(|last| self.versions.get(last))
            .is_some_and(|v| v.value.is_some());
        let gone = seen - usize::from(keep_last);
        let octets = self
            .versions
            .drain(..gone)
            .map(|version| version.octets(key))
            .sum();
        (octets, self.versions.is_empty())
    }
}
