//! A store that counts requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use calico_store::{
    Answer, Lease, LeaseId, LeaseState, Listing, Query, Revision, Store, Txn, TxnReply, Watch,
    WatchRequest,
};

/// A store that counts reads and watches.
pub(crate) struct Counted {
    store: Arc<dyn Store>,
    reads: AtomicUsize,
    lists: AtomicUsize,
    watches: AtomicUsize,
}

impl Counted {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            reads: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
        })
    }

    /// Returns the number of reads.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the number of reads of whole ranges or of pages of them.
    pub(crate) fn lists(&self) -> usize {
        self.lists.load(Ordering::Relaxed)
    }

    /// Returns the number of watch requests.
    pub(crate) fn watches(&self) -> usize {
        self.watches.load(Ordering::Relaxed)
    }
}

impl Store for Counted {
    fn range(&self, query: Query) -> Answer<'_, Listing> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let is_list = !query.bounds.is_any();
        self.lists.fetch_add(is_list.into(), Ordering::Relaxed);
        self.store.range(query)
    }

    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        self.store.txn(txn)
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch> {
        self.watches.fetch_add(1, Ordering::Relaxed);
        self.store.watch(request)
    }

    fn compact(&self, at: Revision) -> Answer<'_, ()> {
        self.store.compact(at)
    }

    fn lease_grant(&self, ttl_s: i64) -> Answer<'_, Lease> {
        self.store.lease_grant(ttl_s)
    }

    fn lease_keep_alive(&self, id: LeaseId) -> Answer<'_, i64> {
        self.store.lease_keep_alive(id)
    }

    fn lease_revoke(&self, id: LeaseId) -> Answer<'_, ()> {
        self.store.lease_revoke(id)
    }

    fn lease_state(&self, id: LeaseId) -> Answer<'_, LeaseState> {
        self.store.lease_state(id)
    }
}
