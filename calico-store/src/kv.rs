//! The data types of a store: keys and values with their revisions, ranges, events.

use std::fmt;

use bytes::Bytes;

/// A point in the store's history. Every write creates the next one; 0 precedes the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

impl Revision {
    /// The revision before any write.
    pub const ZERO: Self = Self(0);

    /// Returns the revision after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a lease; 0 stands for no lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl LeaseId {
    /// No lease.
    pub const NONE: Self = Self(0);
}

/// A key with its value and history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// Revision at which the key was last created.
    pub create_revision: Revision,
    /// Revision of its last write.
    pub mod_revision: Revision,
    /// Number of writes since its creation.
    pub version: i64,
    /// The lease that the key is attached to, if any.
    pub lease: LeaseId,
}

/// A set of keys: a single one, or all from a start to an end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    /// The first key.
    pub start: Bytes,
    /// The end of the range.
    pub end: RangeEnd,
}

impl fmt::Display for KeyRange {
    /// Formats the start: the key, or the prefix of its keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.start))
    }
}

/// The end of a range of keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RangeEnd {
    /// The range is a single key.
    Single,
    /// The range ends before this key.
    Before(Bytes),
    /// The range has no end.
    Open,
}

impl KeyRange {
    /// Returns the range of one key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self {
            start: key.into(),
            end: RangeEnd::Single,
        }
    }

    /// Returns the range of all keys with this prefix.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start: Bytes = prefix.into();
        // The first key after them: the prefix without trailing 0xff, its last octet incremented.
        let mut end = start.to_vec();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                return Self {
                    start,
                    end: RangeEnd::Before(end.into()),
                };
            }
        }
        Self {
            start,
            end: RangeEnd::Open,
        }
    }

    /// Returns the range of all keys.
    pub const fn all() -> Self {
        Self {
            start: Bytes::new(),
            end: RangeEnd::Open,
        }
    }

    /// Returns whether the range contains the key.
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            RangeEnd::Single => key == self.start,
            RangeEnd::Before(end) => key >= self.start.as_ref() && key < end.as_ref(),
            RangeEnd::Open => key >= self.start.as_ref(),
        }
    }

    /// Returns whether the range contains every key of the other range.
    pub fn covers(&self, other: &Self) -> bool {
        let end_covers = match (&self.end, &other.end) {
            (RangeEnd::Open, _) | (RangeEnd::Single, RangeEnd::Single) => true,
            (_, RangeEnd::Open) | (RangeEnd::Single, _) => false,
            (RangeEnd::Before(end), RangeEnd::Single) => other.start < end,
            (RangeEnd::Before(end), RangeEnd::Before(other)) => other <= end,
        };
        end_covers && self.contains(&other.start)
    }

    /// Returns the part of the range after one of its keys: the range of the next page.
    #[must_use]
    pub fn after(&self, key: &[u8]) -> Self {
        let mut start = key.to_vec();
        start.push(0);
        Self {
            start: start.into(),
            end: self.end.clone(),
        }
    }
}

/// The header of every answer of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// The cluster ID, which identifies the history of the revisions. A store that was created
    /// again has another one.
    pub cluster: u64,
    /// The store's revision at the time of the answer.
    pub revision: Revision,
}

/// A read request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The range to read.
    pub range: KeyRange,
    /// The revision to read at; `None` for the current one.
    pub at: Option<Revision>,
    /// Maximum number of keys; 0 for all.
    pub limit: usize,
    /// Leave the values out.
    pub keys_only: bool,
    /// Only count.
    pub count_only: bool,
    /// Order of the result; `None` for the order of the keys.
    pub order: Option<Order>,
    /// Only keys whose revisions lie within these bounds.
    pub bounds: RevisionBounds,
}

impl Query {
    /// Returns a query for all keys of a range at the current revision.
    pub fn new(range: KeyRange) -> Self {
        Self {
            range,
            at: None,
            limit: 0,
            keys_only: false,
            count_only: false,
            order: None,
            bounds: RevisionBounds::default(),
        }
    }
}

/// A sort order of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// The sort criterion.
    pub by: OrderBy,
    /// Whether the largest comes first.
    pub descending: bool,
}

/// A sort criterion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderBy {
    /// The key.
    Key,
    /// The number of writes since creation.
    Version,
    /// The revision of creation.
    CreateRevision,
    /// The revision of the last write.
    ModRevision,
    /// The value.
    Value,
}

/// Inclusive bounds on a key's revisions; `None` for no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RevisionBounds {
    /// Least revision of the last write.
    pub mod_min: Option<Revision>,
    /// Greatest revision of the last write.
    pub mod_max: Option<Revision>,
    /// Least revision of creation.
    pub create_min: Option<Revision>,
    /// Greatest revision of creation.
    pub create_max: Option<Revision>,
}

impl RevisionBounds {
    /// Returns whether any bound is set.
    pub fn is_any(&self) -> bool {
        *self != Self::default()
    }

    /// Returns whether the key is within the bounds.
    pub fn admit(&self, item: &KeyValue) -> bool {
        let within = |min: Option<Revision>, max: Option<Revision>, found| {
            min.is_none_or(|min| found >= min) && max.is_none_or(|max| found <= max)
        };
        within(self.mod_min, self.mod_max, item.mod_revision)
            && within(self.create_min, self.create_max, item.create_revision)
    }
}

/// The result of a read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The header of the answer.
    pub header: Header,
    /// The keys and values.
    pub items: Vec<KeyValue>,
    /// Whether the limit cut off some keys.
    pub more: bool,
    /// Number of keys in the range, whatever the limit.
    pub count: u64,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The kind of change.
    pub kind: EventKind,
    /// The key after the change; for a deletion, key and revision only.
    pub item: KeyValue,
    /// The key before the change, if requested and existing.
    pub previous: Option<KeyValue>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The key was written.
    Put,
    /// The key was deleted.
    Delete,
}

/// Changes in the order of their revisions. All changes of a revision are in one batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The revision of the last change; for a batch without changes (a progress notification), the
    /// store's.
    pub revision: Revision,
    /// The changes.
    pub events: Vec<Event>,
}

/// A granted lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: LeaseId,
    /// Its time to live without renewal, in seconds.
    pub ttl_s: i64,
}

/// The state of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseState {
    /// Remaining time to live, in seconds.
    pub remaining_s: i64,
    /// Granted time to live, in seconds.
    pub granted_s: i64,
    /// The keys attached to it.
    pub keys: Vec<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(
            KeyRange::prefix("foo1").end,
            RangeEnd::Before("foo2".into())
        );
        assert_eq!(
            KeyRange::prefix(&b"a\xff\xff"[..]).end,
            RangeEnd::Before("b".into())
        );
        assert_eq!(KeyRange::prefix(&b"\xff"[..]).end, RangeEnd::Open);
        assert!(KeyRange::prefix(&b"\xff"[..]).contains(b"\xff\x00"));
        assert_eq!(KeyRange::prefix(""), KeyRange::all());
    }

    #[test]
    fn covering() {
        let prefix = KeyRange::prefix;
        assert!(prefix("/a/").covers(&prefix("/a/b/")));
        assert!(prefix("/a/").covers(&prefix("/a/")));
        assert!(prefix("/a/").covers(&KeyRange::key("/a/b")));
        assert!(!prefix("/a/b/").covers(&prefix("/a/")));
        assert!(!prefix("/a/").covers(&KeyRange::all()));
        assert!(!KeyRange::key("/a/").covers(&prefix("/a/")));
        assert!(!prefix("/a/").covers(&KeyRange::key("/b")));
    }
}
