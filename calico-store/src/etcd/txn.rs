//! Transactions.

use etcd_client::{
    Compare as EtcdCompare, CompareOp, DeleteOptions, PutOptions, Txn as EtcdTxn, TxnOp,
};

use super::members::{Again, Members};
use super::{kv, list};
use crate::error::Error;
use crate::txn::{Compare, CompareWith, Comparison, Delete, Op, Put, Txn, TxnReply};
use crate::wire::{range_out, txn_reply_in};

pub(super) async fn txn(members: &Members, txn: Txn) -> Result<TxnReply, Error> {
    let txn = txn_out(txn);
    let carry_out = |client| {
        let txn = txn.clone();
        async move { kv(&client).txn(txn).await }
    };
    let (_, response) = members.ask(Again::Unsent, carry_out).await?;
    Ok(txn_reply_in(response.0))
}

fn txn_out(txn: Txn) -> EtcdTxn {
    let ops = |ops: Vec<Op>| ops.into_iter().map(op_out).collect::<Vec<_>>();
    EtcdTxn::new()
        .when(
            txn.compares
                .into_iter()
                .map(compare_out)
                .collect::<Vec<_>>(),
        )
        .and_then(ops(txn.then))
        .or_else(ops(txn.otherwise))
}

fn compare_out(compare: Compare) -> EtcdCompare {
    let op = match compare.comparison {
        Comparison::Equal => CompareOp::Equal,
        Comparison::Greater => CompareOp::Greater,
        Comparison::Less => CompareOp::Less,
        Comparison::NotEqual => CompareOp::NotEqual,
    };
    let (key, end) = range_out(compare.range);
    let out = match compare.with {
        CompareWith::Version(version) => EtcdCompare::version(key, op, version),
        CompareWith::CreateRevision(revision) => EtcdCompare::create_revision(key, op, revision.0),
        CompareWith::ModRevision(revision) => EtcdCompare::mod_revision(key, op, revision.0),
        CompareWith::Value(value) => EtcdCompare::value(key, op, value),
        CompareWith::Lease(lease) => EtcdCompare::lease(key, op, lease.0),
    };
    if end.is_empty() {
        out
    } else {
        out.with_range(end)
    }
}

fn op_out(op: Op) -> TxnOp {
    match op {
        Op::Range(query) => {
            let (key, options) = list::options(query);
            TxnOp::get(key, Some(options))
        }
        Op::Put(put) => put_out(put),
        Op::Delete(delete) => delete_out(delete),
        Op::Txn(inner) => TxnOp::txn(txn_out(*inner)),
    }
}

fn put_out(put: Put) -> TxnOp {
    let mut options = PutOptions::new();
    options = match put.lease {
        Some(lease) => options.with_lease(lease.0),
        None => options.with_ignore_lease(),
    };
    if put.previous {
        options = options.with_prev_key();
    }
    if put.value.is_none() {
        options = options.with_ignore_value();
    }
    TxnOp::put(put.key, put.value.unwrap_or_default(), Some(options))
}

fn delete_out(delete: Delete) -> TxnOp {
    let (key, end) = range_out(delete.range);
    let mut options = DeleteOptions::new().with_range(end);
    if delete.previous {
        options = options.with_prev_key();
    }
    TxnOp::delete(key, Some(options))
}
