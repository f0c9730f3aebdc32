//! Writes into the datastore: one transaction for each resource, only over the compared value.

use std::sync::Arc;

use bytes::Bytes;
use calico_store::{
    Compare, CompareWith, Comparison, Delete, Error, KeyRange, KeyValue, Op, OpReply, Put, Query,
    Revision, Store, Txn,
};

use crate::guard::{CONFIRMED_KEY, SERVER_KEY};
use crate::stored::Value;
use crate::target::Target;

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
    /// It was not tried, because an earlier one has failed.
    NotTried,
}

/// Carries out writes in their order. Each one also stores the record of the API server, if there is a
/// new one. After a failure of the datastore itself the rest is not tried.
pub(crate) async fn write_all(
    store: Arc<dyn Store>,
    jobs: Vec<Job>,
    record: Option<Bytes>,
) -> Vec<(Job, Written)> {
    let mut all = Vec::new();
    let mut is_away = false;
    for job in jobs {
        let written = match is_away {
            true => Written::NotTried,
            false => write(&*store, &job, record.as_ref()).await,
        };
        is_away |= matches!(&written, Written::Failed(error) if error.is_transient());
        all.push((job, written));
    }
    all
}

async fn write(store: &dyn Store, job: &Job, record: Option<&Bytes>) -> Written {
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
        compares: vec![Compare {
            range: range.clone(),
            comparison: Comparison::Equal,
            with: CompareWith::ModRevision(job.was),
        }],
        then: [op].into_iter().chain(record).collect(),
        otherwise: vec![Op::Range(Query::new(range))],
    };
    match store.txn(txn).await {
        Ok(reply) if reply.succeeded => Written::Done(reply.header.revision),
        Ok(reply) => Written::Conflict(match reply.replies.into_iter().next() {
            Some(OpReply::Range(listing)) => listing.items.into_iter().next().map(value),
            _ => None,
        }),
        Err(error) => Written::Failed(error),
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
    store: Arc<dyn Store>,
    record: Bytes,
    confirmation: Option<Revision>,
) -> Result<Revision, Error> {
    let mut txn = Txn {
        then: vec![Op::Put(Put::new(SERVER_KEY, record))],
        ..Txn::default()
    };
    if let Some(was) = confirmation {
        let range = KeyRange::key(CONFIRMED_KEY);
        txn.compares.push(Compare {
            range: range.clone(),
            comparison: Comparison::Equal,
            with: CompareWith::ModRevision(was),
        });
        txn.then.push(Op::Delete(Delete {
            range,
            previous: false,
        }));
    }
    let reply = store.txn(txn).await?;
    match reply.succeeded {
        true => Ok(reply.header.revision),
        false => Err(Error::Conflict { current: None }),
    }
}
