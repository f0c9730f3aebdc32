//! The vocabulary of a store: keys and values with their revisions, ranges, events.

use std::fmt;

use bytes::Bytes;

/// A point in the store's history. Every write makes the next one; 0 is before the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

impl Revision {
    /// Before anything was written.
    pub const ZERO: Self = Self(0);

    /// The revision after this one.
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
    /// When the key came into being, last.
    pub create_revision: Revision,
    /// When it was last written.
    pub mod_revision: Revision,
    /// How often it was written since it came into being.
    pub version: i64,
    /// The lease that it lives on, if any.
    pub lease: LeaseId,
}

/// A set of keys: one, or all from a start up to an end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRange {
    /// The first key.
    pub start: Bytes,
    /// Where it ends.
    pub end: RangeEnd,
}

impl fmt::Display for KeyRange {
    /// Where it starts: the key, or what all its keys begin with.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.start))
    }
}

/// Where a range of keys ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RangeEnd {
    /// It is the one key.
    Single,
    /// Before this key.
    Before(Bytes),
    /// Nowhere.
    Open,
}

impl KeyRange {
    /// One key.
    pub fn key(key: impl Into<Bytes>) -> Self {
        Self {
            start: key.into(),
            end: RangeEnd::Single,
        }
    }

    /// All keys that begin so.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        let start: Bytes = prefix.into();
        // The first key after them: the prefix without trailing 0xff, its last octet one up.
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

    /// All keys.
    pub const fn all() -> Self {
        Self {
            start: Bytes::new(),
            end: RangeEnd::Open,
        }
    }

    /// Whether the key is among them.
    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            RangeEnd::Single => key == self.start,
            RangeEnd::Before(end) => key >= self.start.as_ref() && key < end.as_ref(),
            RangeEnd::Open => key >= self.start.as_ref(),
        }
    }

    /// Whether every key of the other range is in this one.
    pub fn covers(&self, other: &Self) -> bool {
        let end_covers = match (&self.end, &other.end) {
            (RangeEnd::Open, _) | (RangeEnd::Single, RangeEnd::Single) => true,
            (_, RangeEnd::Open) | (RangeEnd::Single, _) => false,
            (RangeEnd::Before(end), RangeEnd::Single) => other.start < end,
            (RangeEnd::Before(end), RangeEnd::Before(other)) => other <= end,
        };
        end_covers && self.contains(&other.start)
    }

    /// The part of the range after a key that is in it: where the next page begins.
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

/// What a store says of itself in every answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// Which history the revisions belong to. A store that was made anew has another one.
    pub cluster: u64,
    /// The store's revision when it answered.
    pub revision: Revision,
}

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Of which keys.
    pub range: KeyRange,
    /// As of when; `None` for now.
    pub at: Option<Revision>,
    /// At most so many keys; 0 for all.
    pub limit: usize,
    /// Leave the values out.
    pub keys_only: bool,
    /// Only count.
    pub count_only: bool,
    /// In which order; `None` for that of the keys.
    pub order: Option<Order>,
    /// Only keys whose revisions lie within these bounds.
    pub bounds: RevisionBounds,
}

impl Query {
    /// Everything of a range, now.
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

/// An order of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// By what.
    pub by: OrderBy,
    /// The largest first.
    pub descending: bool,
}

/// What keys are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderBy {
    /// The key.
    Key,
    /// How often it was written.
    Version,
    /// When it came into being.
    CreateRevision,
    /// When it was last written.
    ModRevision,
    /// The value.
    Value,
}

/// Bounds on a key's revisions, both ends included; `None` for no bound.
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
    /// Whether there are any.
    pub fn is_any(&self) -> bool {
        *self != Self::default()
    }

    /// Whether the key lies within.
    pub fn admit(&self, item: &KeyValue) -> bool {
        let within = |min: Option<Revision>, max: Option<Revision>, found| {
            min.is_none_or(|min| found >= min) && max.is_none_or(|max| found <= max)
        };
        within(self.mod_min, self.mod_max, item.mod_revision)
            && within(self.create_min, self.create_max, item.create_revision)
    }
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// What the store says of itself.
    pub header: Header,
    /// The keys and values.
    pub items: Vec<KeyValue>,
    /// Whether the limit left some out.
    pub more: bool,
    /// How many keys the range holds, whatever the limit.
    pub count: u64,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The key as it is now; for a deletion, key and revision only.
    pub item: KeyValue,
    /// The key as it was before, if asked for and there was one.
    pub previous: Option<KeyValue>,
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was written.
    Put,
    /// It was deleted.
    Delete,
}

/// Changes in the order of their revisions. A revision is never split over two batches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// The revision of the last change; of a batch without changes (a sign of life), the store's.
    pub revision: Revision,
    /// The changes.
    pub events: Vec<Event>,
}

/// A lease as granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: LeaseId,
    /// How long it lives without being kept alive, in seconds.
    pub ttl_s: i64,
}

/// What is known of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseState {
    /// How much longer it lives, in seconds.
    pub remaining_s: i64,
    /// How long it was granted for, in seconds.
    pub granted_s: i64,
    /// The keys that live on it.
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
