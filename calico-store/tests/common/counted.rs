//! A store that counts requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use calico_store::{Answer, Listing, Query, Store, Watch, WatchRequest};

use super::forward::forward;

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

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch> {
        self.watches.fetch_add(1, Ordering::Relaxed);
        self.store.watch(request)
    }

    forward!(store: txn others);
}
