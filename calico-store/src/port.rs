//! The port: what the suite asks of a store, shaped by etcd v3.

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::sync::mpsc;

use crate::error::Error;
use crate::kv::{
    Batch, Header, KeyRange, KeyValue, Lease, LeaseId, LeaseState, Listing, Query, Revision,
};
use crate::limits::LIST_PAGE_KEYS;
use crate::txn::{Compare, CompareWith, Comparison, Delete, Op, OpReply, Put, Txn, TxnReply};

/// The answer of a store, to come.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A store of keys with a history. All methods may be called at once from many tasks; what each
/// does is atomic.
pub trait Store: Send + Sync {
    /// Reads keys.
    fn range(&self, query: Query) -> Answer<'_, Listing>;

    /// Carries out a transaction.
    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply>;

    /// Begins to watch. The answer comes once the store watches.
    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch>;

    /// Forgets the history before a revision.
    fn compact(&self, at: Revision) -> Answer<'_, ()>;

    /// Grants a lease. The store may make it longer than was asked.
    fn lease_grant(&self, ttl_s: i64) -> Answer<'_, Lease>;

    /// Makes a lease live for its full time again; answers with that time in seconds.
    fn lease_keep_alive(&self, id: LeaseId) -> Answer<'_, i64>;

    /// Ends a lease, which deletes the keys that live on it.
    fn lease_revoke(&self, id: LeaseId) -> Answer<'_, ()>;

    /// What is known of a lease.
    fn lease_state(&self, id: LeaseId) -> Answer<'_, LeaseState>;

    /// Reads one key.
    fn get(&self, key: Bytes) -> Answer<'_, Option<KeyValue>> {
        Box::pin(async move {
            let listing = self.range(Query::new(KeyRange::key(key))).await?;
            Ok(listing.items.into_iter().next())
        })
    }

    /// Reads a whole range at one revision, page by page. The header's revision is that revision:
    /// a watch from the one after it misses nothing.
    fn list(&self, range: KeyRange) -> Answer<'_, Listing> {
        Box::pin(async move {
            let mut query = Query {
                limit: LIST_PAGE_KEYS,
                ..Query::new(range)
            };
            let mut listing = self.range(query.clone()).await?;
            query.at = Some(listing.header.revision);
            while listing.more
                && let Some(last) = listing.items.last()
            {
                query.range = query.range.after(&last.key);
                let page = self.range(query.clone()).await?;
                listing.items.extend(page.items);
                listing.more = page.more;
            }
            Ok(listing)
        })
    }

    /// Writes a key, whatever it was.
    fn put(&self, key: Bytes, value: Bytes, lease: LeaseId) -> Answer<'_, Revision> {
        let put = Put {
            lease: Some(lease),
            ..Put::new(key, value)
        };
        Box::pin(async move {
            let txn = Txn {
                then: vec![Op::Put(put)],
                ..Txn::default()
            };
            Ok(self.txn(txn).await?.header.revision)
        })
    }

    /// Writes a key that must not be there yet; else [`Error::Conflict`].
    fn create(&self, key: Bytes, value: Bytes, lease: LeaseId) -> Answer<'_, Revision> {
        let put = Put {
            lease: Some(lease),
            ..Put::new(key, value)
        };
        Box::pin(self.swap(put.key.clone(), Revision::ZERO, Op::Put(put)))
    }

    /// Writes a key that must still be as it was at a revision; else [`Error::Conflict`].
    fn update(
        &self,
        key: Bytes,
        value: Bytes,
        lease: LeaseId,
        was: Revision,
    ) -> Answer<'_, Revision> {
        let put = Put {
            lease: Some(lease),
            ..Put::new(key, value)
        };
        Box::pin(self.swap(put.key.clone(), was, Op::Put(put)))
    }

    /// Deletes a key, whatever it is; tells whether it was there.
    fn delete(&self, key: Bytes) -> Answer<'_, bool> {
        let delete = Delete {
            range: KeyRange::key(key),
            previous: false,
        };
        Box::pin(async move {
            let txn = Txn {
                then: vec![Op::Delete(delete)],
                ..Txn::default()
            };
            let reply = self.txn(txn).await?;
            Ok(matches!(
                reply.replies.first(),
                Some(OpReply::Delete { deleted: 1.., .. })
            ))
        })
    }

    /// Deletes a key that must still be as it was at a revision; else [`Error::Conflict`].
    fn delete_at(&self, key: Bytes, was: Revision) -> Answer<'_, Revision> {
        let delete = Delete {
            range: KeyRange::key(key.clone()),
            previous: false,
        };
        Box::pin(self.swap(key, was, Op::Delete(delete)))
    }

    /// Does one thing if the key was last written at a revision (0: is not there).
    #[doc(hidden)]
    fn swap(&self, key: Bytes, was: Revision, op: Op) -> Answer<'_, Revision> {
        let range = KeyRange::key(key);
        let compare = Compare {
            range: range.clone(),
            comparison: Comparison::Equal,
            with: CompareWith::ModRevision(was),
        };
        let txn = Txn {
            compares: vec![compare],
            then: vec![op],
            otherwise: vec![Op::Range(Query::new(range))],
        };
        Box::pin(async move {
            let reply = self.txn(txn).await?;
            if reply.succeeded {
                return Ok(reply.header.revision);
            }
            let current = match reply.replies.into_iter().next() {
                Some(OpReply::Range(listing)) => listing.items.into_iter().next().map(Box::new),
                _ => None,
            };
            Err(Error::Conflict { current })
        })
    }
}

/// What to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchRequest {
    /// Which keys.
    pub range: KeyRange,
    /// The first revision whose changes are wanted; `None` for the next one to happen.
    pub from: Option<Revision>,
    /// Tell also what keys were before.
    pub previous: bool,
}

impl WatchRequest {
    /// Watches a range from a revision on.
    pub const fn from(range: KeyRange, from: Revision) -> Self {
        Self {
            range,
            from: Some(from),
            previous: false,
        }
    }
}

/// A watch: batches of changes until it is dropped or fails. Once it has failed it is over.
pub struct Watch {
    header: Header,
    batches: BoxStream<'static, Result<Batch, Error>>,
    prober: Prober,
}

/// Asks a watch for a sign of life.
#[derive(Debug, Clone)]
pub struct Prober(mpsc::Sender<()>);

impl Prober {
    /// Asks for a batch to be sent, without changes if there are none. Does not wait; asking
    /// again before the answer is one question.
    pub fn probe(&self) {
        // Full: a question is under way. Closed: the stream says so itself.
        let _ = self.0.try_send(());
    }
}

impl Watch {
    /// A watch of its parts. The stream must answer each probe with a batch.
    pub fn new(
        header: Header,
        batches: BoxStream<'static, Result<Batch, Error>>,
        probes: mpsc::Sender<()>,
    ) -> Self {
        Self {
            header,
            batches,
            prober: Prober(probes),
        }
    }

    /// What the store said of itself when it began to watch.
    pub const fn header(&self) -> Header {
        self.header
    }

    /// The next batch. After an error there is nothing more.
    pub async fn next(&mut self) -> Result<Batch, Error> {
        match self.batches.next().await {
            Some(batch) => batch,
            None => Err(Error::WatchLost("it has ended".into())),
        }
    }

    /// A handle to ask this watch for a sign of life.
    pub fn prober(&self) -> Prober {
        self.prober.clone()
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}
