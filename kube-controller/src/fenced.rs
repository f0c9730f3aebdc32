//! The datastore of a replica that may write: each transaction with a write also compares the leader.

use std::sync::Arc;

use bytes::Bytes;
use calico_store::{
    Answer, Error, KeyRange, KeyValue, Lease, LeaseId, LeaseState, Listing, Op, OpReply, Query,
    Revision, Store, Txn, TxnReply, Watch, WatchRequest,
};

use crate::lead::{LEADER_KEY, Lead, NoRight, identity_in, leader_is};

/// A datastore in which only the leader writes. Clients of it need no knowledge of the election.
pub(crate) struct Fenced {
    store: Arc<dyn Store>,
    lead: Lead,
}

impl Fenced {
    pub(crate) fn new(store: Arc<dyn Store>, lead: Lead) -> Self {
        Self { store, lead }
    }

    async fn write(&self, mut txn: Txn) -> Result<TxnReply, Error> {
        if has_write(&txn.otherwise) {
            let reason = "a transaction of the controller writes only if its comparisons hold";
            return Err(Error::BadRequest(reason.into()));
        }
        let term = match self.lead.term(&*self.store).await {
            Ok(Some(term)) => term,
            Ok(None) => return self.store.txn(txn).await,
            Err(NoRight::NotLeading) => return Err(not_leading()),
            Err(NoRight::Failed(error)) => return Err(error),
        };
        txn.compares.push(leader_is(term));
        txn.otherwise
            .push(Op::Range(Query::new(KeyRange::key(LEADER_KEY))));
        let mut reply = self.store.txn(txn).await?;
        if reply.succeeded {
            return Ok(reply);
        }
        let found = reply.replies.pop().and_then(first);
        let revision = found.as_ref().map(|found| found.mod_revision);
        if revision == Some(term) {
            return Ok(reply);
        }
        let value = found.map(|found| found.value).unwrap_or_default();
        self.lead.lost(term, &identity_in(&value));
        Err(not_leading())
    }
}

fn has_write(ops: &[Op]) -> bool {
    ops.iter().any(|op| !matches!(op, Op::Range(_)))
}

/// The replica tries again: it may become the leader.
fn not_leading() -> Error {
    Error::Unavailable("this replica does not lead".to_owned())
}

/// Returns the first key of a reply.
pub(crate) fn first(reply: OpReply) -> Option<KeyValue> {
    match reply {
        OpReply::Range(listing) => listing.items.into_iter().next(),
        _ => None,
    }
}

impl Store for Fenced {
    fn range(&self, query: Query) -> Answer<'_, Listing> {
        self.store.range(query)
    }

    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        match has_write(&txn.then) || has_write(&txn.otherwise) {
            true => Box::pin(self.write(txn)),
            false => self.store.txn(txn),
        }
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch> {
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

    fn members(&self) -> Answer<'_, Vec<String>> {
        self.store.members()
    }

    fn get(&self, key: Bytes) -> Answer<'_, Option<KeyValue>> {
        self.store.get(key)
    }

    fn list(&self, range: KeyRange) -> Answer<'_, Listing> {
        self.store.list(range)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use calico_store::{Compare, CompareWith, Comparison, LeaseId, Put};
    use etcd_lite::Local;
    use tokio::sync::watch;
    use tokio::time::Instant;

    use super::*;
    use crate::lease::{LeaseName, Standing};

    /// Returns the datastore of a replica that holds the lease.
    fn replica(store: &Local, identity: &str) -> (Fenced, watch::Sender<Standing>) {
        let lease = LeaseName {
            namespace: "kube-system".into(),
            name: "cambric-kube".into(),
            identity: identity.into(),
        };
        let until = Instant::now() + Duration::from_secs(10);
        let (sender, standing) = watch::channel(Standing::Leader { until });
        let lead = Lead::elected(lease, standing);
        (Fenced::new(Arc::new(store.clone()), lead), sender)
    }

    async fn put(store: &Fenced, value: &'static str) -> Result<Revision, Error> {
        store.put("/x".into(), value.into(), LeaseId::NONE).await
    }

    #[tokio::test]
    async fn late_write_of_an_earlier_leader_changes_nothing() {
        let store = Local::empty();
        let (first, _of_first) = replica(&store, "a");
        assert!(put(&first, "1").await.is_ok());
        // The first leader is paused here, after its look at the clock.
        let (second, _of_second) = replica(&store, "b");
        assert!(put(&second, "2").await.is_ok());
        let late = put(&first, "3").await;
        assert!(matches!(late, Err(Error::Unavailable(_))), "{late:?}");
        let found = store.get("/x".into()).await.expect("an answer");
        assert_eq!(found.expect("a value").value, "2");
        let leader = store.get(LEADER_KEY.into()).await.expect("an answer");
        let text = identity_in(&leader.expect("a leader").value);
        assert!(
            text.contains("b with the lease kube-system/cambric-kube"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn conflict_of_the_leader_is_that_of_its_own_keys() {
        let store = Local::empty();
        let (leader, _standing) = replica(&store, "a");
        put(&leader, "1").await.expect("written");
        let txn = Txn {
            compares: vec![Compare {
                range: KeyRange::key("/x"),
                comparison: Comparison::Equal,
                with: CompareWith::ModRevision(Revision(1)),
            }],
            then: vec![Op::Put(Put::new("/x", "2"))],
            otherwise: vec![Op::Range(Query::new(KeyRange::key("/x")))],
        };
        let reply = leader.txn(txn).await.expect("an answer");
        assert!(!reply.succeeded);
        let found: Vec<_> = reply.replies.into_iter().filter_map(first).collect();
        assert_eq!(found.len(), 1, "without the leader");
        assert_eq!(found.first().expect("a value").value, "1");
    }

    #[tokio::test]
    async fn write_without_a_comparison_of_the_leader_is_rejected() {
        let store = Local::empty();
        let (leader, _standing) = replica(&store, "a");
        let txn = Txn {
            otherwise: vec![Op::Put(Put::new("/x", "2"))],
            ..Txn::default()
        };
        assert!(matches!(leader.txn(txn).await, Err(Error::BadRequest(_))));
    }
}
