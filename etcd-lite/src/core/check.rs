//! Decides the branches of transactions, and checks transactions, before they are carried out.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bytes::Bytes;

use super::Core;
use crate::limits::TXN_OPERATIONS_MAX;
use calico_store::Error;
use calico_store::limits::{REQUEST_OCTETS_MAX, TXN_DEPTH_MAX};
use calico_store::{Compare, CompareWith, Comparison, Op, Put, Txn};
use calico_store::{KeyRange, KeyValue, LeaseId, RangeEnd};

/// The chosen branches of a transaction and of its nested ones, in the order of its steps.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) succeeded: bool,
    pub(super) inner: Vec<Self>,
}

impl Path {
    /// Returns the steps to perform.
    pub(super) fn ops<'t>(&self, txn: &'t Txn) -> &'t [Op] {
        if self.succeeded {
            &txn.then
        } else {
            &txn.otherwise
        }
    }
}

impl Core {
    /// Evaluates every comparison, before any change.
    pub(super) fn path(&self, txn: &Txn) -> Path {
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        let mut path = Path {
            succeeded,
            inner: Vec::new(),
        };
        for op in path.ops(txn) {
            if let Op::Txn(inner) = op {
                path.inner.push(self.path(inner));
            }
        }
        path
    }

    fn holds(&self, compare: &Compare) -> bool {
        let mut items = self
            .histories(&compare.range)
            .filter_map(|(key, history)| history.latest(key))
            .peekable();
        if items.peek().is_none() {
            // A missing key compares as all zero, but equals no value.
            return !matches!(compare.with, CompareWith::Value(_))
                && passes(compare, &KeyValue::default());
        }
        items.all(|item| passes(compare, &item))
    }

    /// Checks whether the steps can be performed.
    pub(super) fn check_path(&self, txn: &Txn, path: &Path) -> Result<(), Error> {
        let mut inner = path.inner.iter();
        for op in path.ops(txn) {
            match op {
                Op::Range(query) => self.check_query(query)?,
                Op::Put(put) => self.check_put(put)?,
                Op::Delete(_) => {}
                Op::Txn(txn) => {
                    if let Some(path) = inner.next() {
                        self.check_path(txn, path)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn check_put(&self, put: &Put) -> Result<(), Error> {
        if (put.value.is_none() || put.lease.is_none())
            && self
                .keys
                .get(&put.key)
                .and_then(|history| history.latest(&put.key))
                .is_none()
        {
            return Err(Error::NoKey);
        }
        match put.lease {
            Some(lease) if lease != LeaseId::NONE && !self.leases.contains(lease) => {
                Err(Error::NoLease(lease))
            }
            _ => Ok(()),
        }
    }
}

fn passes(compare: &Compare, item: &KeyValue) -> bool {
    let ordering = match &compare.with {
        CompareWith::Version(version) => item.version.cmp(version),
        CompareWith::CreateRevision(revision) => item.create_revision.cmp(revision),
        CompareWith::ModRevision(revision) => item.mod_revision.cmp(revision),
        CompareWith::Value(value) => item.value.cmp(value),
        CompareWith::Lease(lease) => item.lease.cmp(lease),
    };
    match compare.comparison {
        Comparison::Equal => ordering == Ordering::Equal,
        Comparison::Greater => ordering == Ordering::Greater,
        Comparison::Less => ordering == Ordering::Less,
        Comparison::NotEqual => ordering != Ordering::Equal,
    }
}

/// The writes of a transaction in any branch.
#[derive(Default)]
struct Writes {
    puts: BTreeSet<Bytes>,
    deletes: Vec<KeyRange>,
}

/// Checks the form of a transaction in all branches: not too large, and no key written twice.
pub(super) fn check_form(txn: &Txn) -> Result<(), Error> {
    let mut octets = 0;
    writes(txn, 0, &mut octets)?;
    if octets > REQUEST_OCTETS_MAX {
        return Err(Error::TooLarge);
    }
    Ok(())
}

fn writes(txn: &Txn, depth: usize, octets: &mut usize) -> Result<Writes, Error> {
    let largest = txn
        .compares
        .len()
        .max(txn.then.len())
        .max(txn.otherwise.len());
    if largest > TXN_OPERATIONS_MAX || depth > TXN_DEPTH_MAX {
        return Err(Error::TooManyOperations);
    }
    // Only one of the two branches is performed, so that both may write the same key.
    let mut all = branch(&txn.then, depth, octets)?;
    let other = branch(&txn.otherwise, depth, octets)?;
    all.puts.extend(other.puts);
    all.deletes.extend(other.deletes);
    Ok(all)
}

fn branch(ops: &[Op], depth: usize, octets: &mut usize) -> Result<Writes, Error> {
    let mut all = Writes::default();
    for op in ops {
        let step = match op {
            Op::Range(query)
                if query.range.start.is_empty() && query.range.end == RangeEnd::Single =>
            {
                return Err(Error::BadRequest("the key is empty".into()));
            }
            Op::Range(_) => continue,
            Op::Put(put) => put_writes(put, octets)?,
            Op::Delete(delete) => Writes {
                deletes: vec![delete.range.clone()],
                ..Writes::default()
            },
            Op::Txn(txn) => writes(txn, depth + 1, octets)?,
        };
        let hits = |puts: &BTreeSet<Bytes>, deletes: &[KeyRange]| {
            deletes
                .iter()
                .any(|range| puts.iter().any(|key| range.contains(key)))
        };
        if step.puts.iter().any(|key| all.puts.contains(key))
            || hits(&step.puts, &all.deletes)
            || hits(&all.puts, &step.deletes)
        {
            return Err(Error::DuplicateKey);
        }
        all.puts.extend(step.puts);
        all.deletes.extend(step.deletes);
    }
    Ok(all)
}

fn put_writes(put: &Put, octets: &mut usize) -> Result<Writes, Error> {
    if put.key.is_empty() {
        return Err(Error::BadRequest("the key is empty".into()));
    }
    *octets += put.key.len() + put.value.as_ref().map_or(0, Bytes::len);
    Ok(Writes {
        puts: BTreeSet::from([put.key.clone()]),
        ..Writes::default()
    })
}
