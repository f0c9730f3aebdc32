//! Writes into the datastore: one transaction for each resource, only over the compared value.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use calico_store::{
    Compare, CompareWith, Comparison, Delete, Error, KeyRange, KeyValue, Op, Put, Query, Revision,
    Store, Txn,
};
use futures_util::{StreamExt, stream};

use crate::fenced::{Fenced, first};
use crate::guard::{CONFIRMED_KEY, SERVER_KEY};
use crate::lead::Lead;
use crate::limits::WRITES_AT_ONCE;
use crate::stored::Value;
use crate::target::Target;

/// The datastore, and the right to write it.
#[derive(Clone)]
pub(crate) struct Writer {
    /// Each transaction compares the leader.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lead: Lead,
}

impl Writer {
    pub(crate) fn new(store: Arc<dyn Store>, lead: Lead) -> Self {
        let store = Arc::new(Fenced::new(store, lead.clone()));
        Self { store, lead }
    }
}

/// A write of a resource.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) key: Target,
    /// The value; `None` deletes the resource.
    pub(crate) octets: Option<Bytes>,
    /// The revision that the stored value must have.
    pub(crate) was: Revision,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) enum Written {
    /// It was written: the revision.
    Done(Revision),
    /// Another client has written the resource: its present value.
    Conflict(Option<Value>),
    /// It failed.
    Failed(Error),
    /// It was not tried, because an earlier one has failed, or this replica may not write.
    NotTried,
}

/// Carries out writes, [`WRITES_AT_ONCE`] at a time, and returns them in their order. Each one also stores
/// the record of the API server, if there is a new one. After a failure of the datastore itself the rest is
/// not tried, and neither is it once this replica may no longer write.
pub(crate) async fn write_all(
    writer: Writer,
    jobs: Vec<Job>,
    record: Option<Bytes>,
) -> Vec<(Job, Written)> {
    let is_away = AtomicBool::new(false);
    let write = async |job: Job| {
        let written = match is_away.load(Ordering::Relaxed) {
            true => Written::NotTried,
            false => write(&writer, &job, record.as_ref()).await,
        };
        let is_over = match &written {
            Written::Failed(error) => error.is_transient(),
            Written::NotTried => true,
            Written::Done(_) | Written::Conflict(_) => false,
        };
        is_away.fetch_or(is_over, Ordering::Relaxed);
        (job, written)
    };
    let mut jobs = jobs.into_iter();
    let mut all = Vec::new();
    // The first one makes sure that this replica leads.
    if let Some(job) = jobs.next() {
        all.push(write(job).await);
    }
    let rest = stream::iter(jobs).map(&write).buffered(WRITES_AT_ONCE);
    all.extend(rest.collect::<Vec<_>>().await);
    all
}

async fn write(writer: &Writer, job: &Job, record: Option<&Bytes>) -> Written {
    let key = Bytes::from(job.key.to_string());
    let range = KeyRange::key(key.clone());
    let op = match &job.octets {
        Some(octets) => Op::Put(Put::new(key, octets.clone())),
        None => Op::Delete(Delete {
            range: range.clone(),
            previous: false,
        }),
    };
    let record = record.map(|record| Op::Put(Put::new(SERVER_KEY, record.clone())));
    let txn = Txn {
        compares: vec![has_revision(range.clone(), job.was)],
        then: [op].into_iter().chain(record).collect(),
        otherwise: vec![Op::Range(Query::new(range))],
    };
    match writer.store.txn(txn).await {
        Ok(reply) if reply.succeeded => Written::Done(reply.header.revision),
        Ok(reply) => {
            let found = reply.replies.into_iter().next();
            Written::Conflict(found.and_then(first).map(value))
        }
        Err(_) if !writer.lead.may_write() => Written::NotTried,
        Err(error) => Written::Failed(error),
    }
}

/// Returns the condition that a key has this revision.
fn has_revision(range: KeyRange, revision: Revision) -> Compare {
    Compare {
        range,
        comparison: Comparison::Equal,
        with: CompareWith::ModRevision(revision),
    }
}

fn value(item: KeyValue) -> Value {
    Value {
        octets: item.value,
        revision: item.mod_revision,
    }
}

/// Stores the record of the API server. If it is confirmed, deletes the confirmation, which must still
/// have that revision.
pub(crate) async fn write_record(
    writer: Writer,
    record: Bytes,
    confirmation: Option<Revision>,
) -> Result<Revision, Error> {
    let mut txn = Txn {
        then: vec![Op::Put(Put::new(SERVER_KEY, record))],
        ..Txn::default()
    };
    if let Some(was) = confirmation {
        let range = KeyRange::key(CONFIRMED_KEY);
        txn.compares.push(has_revision(range.clone(), was));
        txn.then.push(Op::Delete(Delete {
            range,
            previous: false,
        }));
    }
    let reply = writer.store.txn(txn).await?;
    match reply.succeeded {
        true => Ok(reply.header.revision),
        false => Err(Error::Conflict { current: None }),
    }
}
