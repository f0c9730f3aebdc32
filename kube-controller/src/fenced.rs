//! The datastore of a replica that may write: each transaction with a write also compares the leader.

use std::sync::Arc;

use bytes::Bytes;
use calico_store::{
    Answer, Compare, CompareWith, Error, KeyRange, KeyValue, Lease, LeaseId, LeaseState, Listing,
    Op, OpReply, Query, Revision, Store, Txn, TxnReply, Watch, WatchRequest,
};

use crate::lead::{LEADER_KEY, Lead, NoRight, identity_in};

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
        let leads = match self.lead.compares(&*self.store).await {
            Ok(leads) => leads,
            Err(NoRight::NotLeading) => return Err(not_leading()),
            Err(NoRight::Failed(error)) => return Err(error),
        };
        if leads.is_empty() {
            return self.store.txn(txn).await;
        }
        txn.compares.extend(leads.iter().cloned());
        let query = Query::new(KeyRange::key(LEADER_KEY));
        txn.otherwise.push(Op::Range(query));
        let mut reply = self.store.txn(txn).await?;
        if reply.succeeded {
            return Ok(reply);
        }
        let found = reply.replies.pop().and_then(first);
        match other_leader(&leads, found) {
            None => Ok(reply),
            Some(identity) => {
                self.lead.lost(&identity);
                Err(not_leading())
            }
        }
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

/// Returns the identity of the leader if it does not fit the comparisons of this replica.
fn other_leader(leads: &[Compare], found: Option<KeyValue>) -> Option<String> {
    let revision = found.as_ref().map(|found| found.mod_revision);
    let revision = CompareWith::ModRevision(revision.unwrap_or_default());
    let is_other = leads.iter().any(|lead| lead.with != revision);
    let value = found.map(|found| found.value).unwrap_or_default();
    is_other.then(|| identity_in(&value))
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
