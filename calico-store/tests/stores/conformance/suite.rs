//! The test cases, and their common parts.

use std::sync::Arc;

use bytes::Bytes;
use calico_store::{
    Event, KeyRange, LeaseId, Op, OpReply, Put, Revision, Store, Txn, TxnReply, Watch, WatchRequest,
};
use futures_util::future::BoxFuture;

use super::{history, leases, mirrors, reads, transactions, values, watches};
use crate::common::soon;

/// A store, and a part of its keys that belongs to one case.
pub(crate) struct Bench {
    pub(crate) store: Arc<dyn Store>,
    prefix: String,
}

type Case = fn(Bench) -> BoxFuture<'static, ()>;

macro_rules! cases {
    ($($module:ident: $($case:ident),+;)+) => {
        &[$($((stringify!($case), (|bench| Box::pin($module::$case(bench))) as Case),)+)+]
    };
}

const CASES: &[(&str, Case)] = cases! {
    reads: a_written_key_reads_back, nothing_there_is_no_error, a_list_is_of_one_revision,
        pages_join_up, the_past_can_be_read, order_bounds_and_counts;
    transactions: creating_updating_and_deleting_compare_first, everything_happens_at_one_revision,
        every_comparison_compares, a_range_of_keys_can_be_compared, transactions_nest,
        a_key_is_written_once, limits_are_kept, value_and_lease_can_be_kept, deleting_nothing_is_no_change,
        deletion_of_a_range_returns_its_items;
    watches: a_watch_from_the_past_misses_nothing, watch_reports_only_its_range,
        a_revision_comes_whole, watch_can_report_previous_items, a_watch_answers_a_probe,
        a_watch_from_now_begins_now, watches_of_one_range_do_not_disturb_each_other;
    values: any_octets_are_kept, the_largest_value_fits_and_no_larger_one;
    leases: keys_go_with_their_lease, a_lease_that_is_not_kept_ends, a_key_moves_between_leases,
        leases_that_are_not_there;
    history: what_is_compacted_is_gone, the_future_cannot_be_read,
        a_compaction_under_a_watch_leaves_no_gap;
    mirrors: a_mirror_keeps_up;
};

/// Runs every case, one after another, because some of them change global state. The name separates
/// several runs in one store.
pub(crate) async fn run(store: Arc<dyn Store>, run: &str) {
    for (name, case) in CASES {
        let began = std::time::Instant::now();
        let bench = Bench {
            store: Arc::clone(&store),
            prefix: format!("/t/{run}{name}/"),
        };
        soon(name, case(bench)).await;
        println!("{name}: {} ms", began.elapsed().as_millis());
    }
}

impl Bench {
    pub(crate) fn key(&self, name: &str) -> Bytes {
        format!("{}{name}", self.prefix).into()
    }

    pub(crate) fn all(&self) -> KeyRange {
        KeyRange::prefix(self.prefix.clone())
    }

    pub(crate) async fn put(&self, name: &str, value: &str) -> Revision {
        self.store
            .put(self.key(name), value.to_owned().into(), LeaseId::NONE)
            .await
            .unwrap()
    }

    pub(crate) async fn get(&self, name: &str) -> Option<String> {
        let item = self.store.get(self.key(name)).await.unwrap()?;
        Some(String::from_utf8(item.value.to_vec()).unwrap())
    }

    pub(crate) fn put_op(&self, name: &str, value: &str) -> Op {
        Op::Put(Put::new(self.key(name), value.to_owned()))
    }

    pub(crate) async fn txn(&self, txn: Txn) -> TxnReply {
        self.store.txn(txn).await.unwrap()
    }

    /// Returns the current revision of the store.
    pub(crate) async fn now(&self) -> Revision {
        self.store.list(self.all()).await.unwrap().header.revision
    }

    pub(crate) async fn watch(&self, from: Revision) -> Watch {
        self.store
            .watch(WatchRequest::from(self.all(), from))
            .await
            .unwrap()
    }

    /// Returns the name of a key of this case.
    pub(crate) fn name(&self, key: &Bytes) -> String {
        String::from_utf8(key.to_vec())
            .unwrap()
            .strip_prefix(&self.prefix)
            .unwrap()
            .to_owned()
    }
}

/// Returns at least this many events of a watch.
pub(crate) async fn events(watch: &mut Watch, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(soon("events", watch.next()).await.unwrap().events);
    }
    events
}

/// Returns the values in an answer to a read.
pub(crate) fn values(reply: &OpReply) -> Vec<&[u8]> {
    match reply {
        OpReply::Range(listing) => listing
            .items
            .iter()
            .map(|item| item.value.as_ref())
            .collect(),
        other => panic!("{other:?}"),
    }
}
