//! Transactions: comparisons, then one of two lists of operations, all at one revision.

use bytes::Bytes;

use crate::kv::{Header, KeyRange, KeyValue, LeaseId, Listing, Query, Revision};

/// A transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// If all hold, `then` is performed, otherwise `otherwise`.
    pub compares: Vec<Compare>,
    /// Operations when all comparisons hold.
    pub then: Vec<Op>,
    /// Operations when one comparison fails.
    pub otherwise: Vec<Op>,
}

/// A comparison of a stored value (left) with a given one (right).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// The compared keys; all must pass. A single missing key compares as all zero, and never
    /// passes a comparison of values.
    pub range: KeyRange,
    /// The relation.
    pub comparison: Comparison,
    /// The right side.
    pub with: CompareWith,
}

/// The relation of two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Left equals right.
    Equal,
    /// Left is greater.
    Greater,
    /// Left is less.
    Less,
    /// They differ.
    NotEqual,
}

/// The right side of a comparison, which also selects the compared property of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompareWith {
    /// The number of writes since creation.
    Version(i64),
    /// The revision of creation.
    CreateRevision(Revision),
    /// The revision of the last write.
    ModRevision(Revision),
    /// Its value.
    Value(Bytes),
    /// The lease it is attached to.
    Lease(LeaseId),
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Read.
    Range(Query),
    /// Write a key.
    Put(Put),
    /// Delete keys.
    Delete(Delete),
    /// Another transaction, at the same revision.
    Txn(Box<Txn>),
}

/// A write of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Bytes,
    /// The value; `None` keeps the one it has.
    pub value: Option<Bytes>,
    /// The lease to attach it to; `None` keeps the present one.
    pub lease: Option<LeaseId>,
    /// Return its previous state.
    pub previous: bool,
}

impl Put {
    /// Returns a write of a key without a lease.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self {
            key: key.into(),
            value: Some(value.into()),
            lease: Some(LeaseId::NONE),
            previous: false,
        }
    }
}

/// A deletion of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// The range.
    pub range: KeyRange,
    /// Return their previous state.
    pub previous: bool,
}

/// The answer to a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxnReply {
    /// The header of the answer, after the transaction.
    pub header: Header,
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// One answer per performed operation.
    pub replies: Vec<OpReply>,
}

/// The answer to one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpReply {
    /// The result of a read.
    Range(Listing),
    /// A key was written.
    Put {
        /// Its previous state, if requested and existing.
        previous: Option<KeyValue>,
    },
    /// Keys were deleted.
    Delete {
        /// Number of deleted keys.
        deleted: u64,
        /// Their previous state, if requested.
        previous: Vec<KeyValue>,
    },
    /// The inner transaction's answer.
    Txn(TxnReply),
}
