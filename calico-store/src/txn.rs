//! Transactions: compare, then do one thing or the other, all at one revision.

use bytes::Bytes;

use crate::kv::{Header, KeyRange, KeyValue, LeaseId, Listing, Query, Revision};

/// A transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// All must hold for `then` to be done; else `otherwise` is.
    pub compares: Vec<Compare>,
    /// What to do when all comparisons hold.
    pub then: Vec<Op>,
    /// What to do when one does not.
    pub otherwise: Vec<Op>,
}

/// A comparison of what the store holds (left) with a given thing (right).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// Of which keys; all must pass. A single key that is absent compares as all zero, and never
    /// passes a comparison of values.
    pub range: KeyRange,
    /// How.
    pub comparison: Comparison,
    /// With what.
    pub with: CompareWith,
}

/// How two things compare.
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

/// The right side of a comparison, which also says what of a key is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompareWith {
    /// How often the key was written.
    Version(i64),
    /// When it came into being.
    CreateRevision(Revision),
    /// When it was last written.
    ModRevision(Revision),
    /// Its value.
    Value(Bytes),
    /// The lease it lives on.
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

/// Writing a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Bytes,
    /// The value; `None` keeps the one it has.
    pub value: Option<Bytes>,
    /// The lease it is to live on; `None` keeps the one it has.
    pub lease: Option<LeaseId>,
    /// Answer with what it was before.
    pub previous: bool,
}

impl Put {
    /// Writes a key that lives on no lease.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self {
            key: key.into(),
            value: Some(value.into()),
            lease: Some(LeaseId::NONE),
            previous: false,
        }
    }
}

/// Deleting keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// Which.
    pub range: KeyRange,
    /// Answer with what they were before.
    pub previous: bool,
}

/// The answer to a transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxnReply {
    /// What the store says of itself, after the transaction.
    pub header: Header,
    /// Whether all comparisons held.
    pub succeeded: bool,
    /// One answer for each step that was done.
    pub replies: Vec<OpReply>,
}

/// The answer to one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpReply {
    /// What was read.
    Range(Listing),
    /// A key was written.
    Put {
        /// What it was before, if asked for and there was something.
        previous: Option<KeyValue>,
    },
    /// Keys were deleted.
    Delete {
        /// How many.
        deleted: u64,
        /// What they were before, if asked for.
        previous: Vec<KeyValue>,
    },
    /// The inner transaction's answer.
    Txn(TxnReply),
}
