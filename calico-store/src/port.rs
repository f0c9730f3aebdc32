//! The store interface, modeled on etcd v3.

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

/// The future answer of a store.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Error>>;

/// A store of keys with a history. All methods may be called concurrently from many tasks; each is
/// atomic.
pub trait Store: Send + Sync {
    /// Reads keys.
    fn range(&self, query: Query) -> Answer<'_, Listing>;

    /// Carries out a transaction.
    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply>;

    /// Opens a watch. The answer arrives once the store watches.
    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch>;

    /// Compacts the history before a revision.
    fn compact(&self, at: Revision) -> Answer<'_, ()>;

    /// Grants a lease. The store may choose a longer time to live than requested.
    fn lease_grant(&self, ttl_s: i64) -> Answer<'_, Lease>;

    /// Renews a lease for its full time to live; returns that time in seconds.
    fn lease_keep_alive(&self, id: LeaseId) -> Answer<'_, i64>;

    /// Revokes a lease, which deletes the keys attached to it.
    fn lease_revoke(&self, id: LeaseId) -> Answer<'_, ()>;

    /// Returns the state of a lease.
    fn lease_state(&self, id: LeaseId) -> Answer<'_, LeaseState>;

    /// Returns the URLs at which the members of the store's cluster serve clients and each other. A
    /// store inside this process has none.
    fn members(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Reads one key.
    fn get(&self, key: Bytes) -> Answer<'_, Option<KeyValue>> {
        Box::pin(async move {
            let listing = self.range(Query::new(KeyRange::key(key))).await?;
            Ok(listing.items.into_iter().next())
        })
    }

    /// Reads a whole range at one revision, page by page. The header has that revision: a watch
    /// from the next one misses no change.
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

    /// Writes a key, whatever its present state.
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

    /// Writes a key that must not exist yet; otherwise [`Error::Conflict`].
    fn create(&self, key: Bytes, value: Bytes, lease: LeaseId) -> Answer<'_, Revision> {
        let put = Put {
            lease: Some(lease),
            ..Put::new(key, value)
        };
        Box::pin(self.swap(put.key.clone(), Revision::ZERO, Op::Put(put)))
    }

    /// Writes a key that must still have a given revision; otherwise [`Error::Conflict`].
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

    /// Deletes a key, whatever its present state; returns whether it existed.
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

    /// Deletes a key that must still have a given revision; otherwise [`Error::Conflict`].
    fn delete_at(&self, key: Bytes, was: Revision) -> Answer<'_, Revision> {
        let delete = Delete {
            range: KeyRange::key(key.clone()),
            previous: false,
        };
        Box::pin(self.swap(key, was, Op::Delete(delete)))
    }

    /// Performs one operation if the last write of the key has a given revision (0: it does not
    /// exist).
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

/// A watch request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchRequest {
    /// The range to watch.
    pub range: KeyRange,
    /// The first revision of interest; `None` for the next one to happen.
    pub from: Option<Revision>,
    /// Also return the previous state of keys.
    pub previous: bool,
}

impl WatchRequest {
    /// Returns a request to watch a range from a revision on.
    pub const fn from(range: KeyRange, from: Revision) -> Self {
        Self {
            range,
            from: Some(from),
            previous: false,
        }
    }
}

/// A watch: batches of changes until it is dropped or fails. After a failure it ends.
pub struct Watch {
    header: Header,
    batches: BoxStream<'static, Result<Batch, Error>>,
    prober: Prober,
}

/// Requests progress of a watch.
#[derive(Debug, Clone)]
pub struct Prober(mpsc::Sender<()>);

impl Prober {
    /// Requests a batch, which is sent even without changes. Does not wait; several calls before
    /// the answer count as one request.
    pub fn probe(&self) {
        // Full: a request is pending. Closed: the stream reports it.
        let _ = self.0.try_send(());
    }
}

impl Watch {
    /// Creates a watch from its parts. The stream must answer each progress request with a batch.
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

    /// Returns the header of the answer that opened the watch.
    pub const fn header(&self) -> Header {
        self.header
    }

    /// Returns the next batch. After an error there are no more.
    pub async fn next(&mut self) -> Result<Batch, Error> {
        match self.batches.next().await {
            Some(batch) => batch,
            None => Err(Error::WatchLost("it has ended".into())),
        }
    }

    /// Returns a handle to request progress of this watch.
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
