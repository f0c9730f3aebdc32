//! Errors of a store.

use std::borrow::Cow;

use crate::kv::{KeyValue, LeaseId, Revision};

/// Why a request to a store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The requested history has been compacted: read again.
    #[error("the history before revision {at} has been compacted")]
    Compacted {
        /// The oldest revision that can still be read; 0 when the store did not report it.
        at: Revision,
    },
    /// The requested revision does not exist yet (at the member that answered).
    #[error("the revision asked for is in the future")]
    FutureRevision,
    /// The key has another revision than the caller required.
    #[error("the key was changed by another writer")]
    Conflict {
        /// Its present state; `None` when the key does not exist.
        current: Option<Box<KeyValue>>,
    },
    /// A required key does not exist.
    #[error("there is no such key")]
    NoKey,
    /// The lease does not exist.
    #[error("there is no lease {}", .0.0)]
    NoLease(LeaseId),
    /// A lease with this id already exists.
    #[error("a lease {} is there already", .0.0)]
    LeaseExists(LeaseId),
    /// The request or the value is too large.
    #[error("the request is too large")]
    TooLarge,
    /// A transaction holds too many operations.
    #[error("the transaction holds too many operations")]
    TooManyOperations,
    /// A transaction writes a key twice.
    #[error("the transaction writes a key twice")]
    DuplicateKey,
    /// The request is invalid.
    #[error("the request is not valid: {0}")]
    BadRequest(Cow<'static, str>),
    /// The store has exceeded its size quota.
    #[error("the store is full")]
    NoSpace,
    /// The user is unknown or lacks permission.
    #[error("access denied: {0}")]
    Denied(String),
    /// The watch has ended; read again or watch again.
    #[error("the watch was lost: {0}")]
    WatchLost(String),
    /// The store is unreachable or cannot answer now; the request may or may not have been carried
    /// out.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The connection options are invalid.
    #[error("{0}")]
    Options(String),
}

impl Error {
    /// Returns whether a later retry of the same request may succeed.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_) | Self::FutureRevision | Self::WatchLost(_) | Self::NoSpace
        )
    }
}
