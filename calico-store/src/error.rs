//! What can go wrong with a store.

use std::borrow::Cow;

use crate::kv::{KeyValue, LeaseId, Revision};

/// Why a store did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The history asked for is gone: read anew.
    #[error("the history before revision {at} has been compacted")]
    Compacted {
        /// The oldest revision that can still be read; 0 when the store did not say.
        at: Revision,
    },
    /// The revision asked for has not happened yet (at the member that answered).
    #[error("the revision asked for is in the future")]
    FutureRevision,
    /// The key is not as the caller believed.
    #[error("the key was changed by another writer")]
    Conflict {
        /// What it is; `None` when it is not there.
        current: Option<Box<KeyValue>>,
    },
    /// A key that had to be there is not.
    #[error("there is no such key")]
    NoKey,
    /// There is no such lease.
    #[error("there is no lease {}", .0.0)]
    NoLease(LeaseId),
    /// A lease with this id is there already.
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
    /// The request makes no sense.
    #[error("the request is not valid: {0}")]
    BadRequest(Cow<'static, str>),
    /// The store is full.
    #[error("the store is full")]
    NoSpace,
    /// The user may not do this, or is not known.
    #[error("access denied: {0}")]
    Denied(String),
    /// The watch has ended; read anew or watch again.
    #[error("the watch was lost: {0}")]
    WatchLost(String),
    /// The store cannot be reached or cannot answer now; the request may or may not have been
    /// carried out.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The connection options cannot be used.
    #[error("{0}")]
    Options(String),
}

impl Error {
    /// Whether trying the same again later can help.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_) | Self::FutureRevision | Self::WatchLost(_) | Self::NoSpace
        )
    }
}
