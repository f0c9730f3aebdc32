//! A datastore that loses requests and answers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use calico_store::{Answer, Error, Listing, Query, Store, Txn, TxnReply};
use etcd_lite::Local;

use crate::common::forward;

/// One transaction in eight is lost on its way, one in eight on its way back.
pub(crate) struct Flaky {
    store: Local,
    state: AtomicU64,
    healed: AtomicBool,
    /// Whether other tasks run before and after each request.
    slow: bool,
}

impl Flaky {
    pub(crate) fn new(store: Local, seed: u64) -> Self {
        Self {
            store,
            state: AtomicU64::new(seed),
            healed: AtomicBool::new(false),
            slow: false,
        }
    }

    /// Returns one that lets other tasks run around each request, as many times as the seed
    /// determines.
    pub(crate) fn slow(store: Local, seed: u64) -> Self {
        Self {
            slow: true,
            ..Self::new(store, seed)
        }
    }

    /// Returns the inner datastore, which never fails.
    pub(crate) const fn inner(&self) -> &Local {
        &self.store
    }

    async fn turns(&self) {
        if self.slow && !self.healed.load(Ordering::SeqCst) {
            for _ in 0..self.draw() % 4 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Stops losing requests and answers.
    pub(crate) fn heal(&self) {
        self.healed.store(true, Ordering::SeqCst);
    }

    /// Returns the next random number (SplitMix64).
    pub(crate) fn draw(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self
            .state
            .fetch_add(STEP, Ordering::SeqCst)
            .wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Store for Flaky {
    fn range(&self, query: Query) -> Answer<'_, Listing> {
        Box::pin(async move {
            self.turns().await;
            self.store.range(query).await
        })
    }

    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        let lost = || Error::Unavailable("lost".into());
        Box::pin(async move {
            self.turns().await;
            let fate = match self.healed.load(Ordering::SeqCst) {
                true => u64::MAX,
                false => self.draw() % 8,
            };
            if fate == 0 {
                return Err(lost());
            }
            let reply = self.store.txn(txn).await;
            self.turns().await;
            if fate == 1 { Err(lost()) } else { reply }
        })
    }

    forward!(store: watch others);
}
