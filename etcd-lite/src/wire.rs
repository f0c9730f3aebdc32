//! Converts requests of the etcd v3 API to types of [`calico_store`], and results to responses.

use bytes::Bytes;
use calico_store::limits::TXN_DEPTH_MAX;
use calico_store::{
    Compare, CompareWith, Comparison, Delete, Error, Event, EventKind, Header, KeyRange, KeyValue,
    LeaseId, Listing, Op, OpReply, Order, OrderBy, Put, Query, RangeEnd, Revision, RevisionBounds,
    Txn, TxnReply,
};
use etcd_client::proto::{
    PbCompare, PbCompareTarget, PbDeleteRequest, PbDeleteResponse, PbEvent, PbKeyValue,
    PbPutRequest, PbPutResponse, PbRangeRequest, PbRangeResponse, PbResponseHeader, PbTargetUnion,
    PbTxnOpRequest, PbTxnOpResponse, PbTxnRequest, PbTxnRequestOp, PbTxnResponse,
};
use etcd_client::{CompareOp, SortOrder, SortTarget};

/// The member ID of the served store.
pub(crate) const MEMBER: u64 = 1;

/// Returns the header of a response.
pub(crate) const fn header_out(header: Header) -> PbResponseHeader {
    PbResponseHeader {
        cluster_id: header.cluster,
        member_id: MEMBER,
        revision: header.revision.0,
        raft_term: 1,
    }
}

/// Returns a key with its value as a message.
pub(crate) fn item_out(item: KeyValue) -> PbKeyValue {
    PbKeyValue {
        key: item.key.into(),
        create_revision: item.create_revision.0,
        mod_revision: item.mod_revision.0,
        version: item.version,
        value: item.value.into(),
        lease: item.lease.0,
    }
}

/// Returns an event as a message.
pub(crate) fn event_out(event: Event) -> PbEvent {
    PbEvent {
        r#type: match event.kind {
            EventKind::Put => 0,
            EventKind::Delete => 1,
        },
        kv: Some(item_out(event.item)),
        prev_kv: event.previous.map(item_out),
    }
}

/// Parses a range from two keys: an empty end means one key, a zero octet means no end.
pub(crate) fn range_in(key: Vec<u8>, end: Vec<u8>) -> Result<KeyRange, Error> {
    if key.is_empty() && end != [0] {
        return Err(Error::BadRequest("the key is empty".into()));
    }
    let end = match end.as_slice() {
        [] => RangeEnd::Single,
        [0] => RangeEnd::Open,
        _ => RangeEnd::Before(end.into()),
    };
    Ok(KeyRange {
        start: key.into(),
        end,
    })
}

/// Returns the query of a range request.
///
/// # Errors
///
/// The request has an unsupported range or option.
pub(crate) fn query_in(request: PbRangeRequest) -> Result<Query, Error> {
    let positive = |revision: i64| (revision > 0).then_some(Revision(revision));
    let order = match request.sort_order() {
        SortOrder::None => None,
        order => Some(Order {
            by: match request.sort_target() {
                SortTarget::Key => OrderBy::Key,
                SortTarget::Version => OrderBy::Version,
                SortTarget::Create => OrderBy::CreateRevision,
                SortTarget::Mod => OrderBy::ModRevision,
                SortTarget::Value => OrderBy::Value,
            },
            descending: order == SortOrder::Descend,
        }),
    };
    // Sorting by anything but the key is ascending by default.
    let order = order.or_else(|| {
        let by = match request.sort_target() {
            SortTarget::Key => return None,
            SortTarget::Version => OrderBy::Version,
            SortTarget::Create => OrderBy::CreateRevision,
            SortTarget::Mod => OrderBy::ModRevision,
            SortTarget::Value => OrderBy::Value,
        };
        Some(Order {
            by,
            descending: false,
        })
    });
    Ok(Query {
        at: positive(request.revision),
        limit: usize::try_from(request.limit).unwrap_or(0),
        keys_only: request.keys_only,
        count_only: request.count_only,
        order,
        bounds: RevisionBounds {
            mod_min: positive(request.min_mod_revision),
            mod_max: positive(request.max_mod_revision),
            create_min: positive(request.min_create_revision),
            create_max: positive(request.max_create_revision),
        },
        range: range_in(request.key, request.range_end)?,
    })
}

/// Returns the response to a range request.
pub(crate) fn listing_out(listing: Listing) -> PbRangeResponse {
    PbRangeResponse {
        header: Some(header_out(listing.header)),
        kvs: listing.items.into_iter().map(item_out).collect(),
        more: listing.more,
        count: i64::try_from(listing.count).unwrap_or(i64::MAX),
    }
}

/// Returns the write of a put request.
///
/// # Errors
///
/// The request asks to keep the value or the lease of the key.
pub(crate) fn put_in(request: PbPutRequest) -> Result<Put, Error> {
    if request.ignore_value && !request.value.is_empty() {
        return Err(Error::BadRequest(
            "a value is given and is to be ignored".into(),
        ));
    }
    if request.ignore_lease && request.lease != 0 {
        return Err(Error::BadRequest(
            "a lease is given and is to be ignored".into(),
        ));
    }
    Ok(Put {
        key: request.key.into(),
        value: (!request.ignore_value).then(|| request.value.into()),
        lease: (!request.ignore_lease).then_some(LeaseId(request.lease)),
        previous: request.prev_kv,
    })
}

/// Returns the deletion of a delete request.
///
/// # Errors
///
/// The range is not valid.
pub(crate) fn delete_in(request: PbDeleteRequest) -> Result<Delete, Error> {
    Ok(Delete {
        range: range_in(request.key, request.range_end)?,
        previous: request.prev_kv,
    })
}

/// Returns the transaction of a request.
///
/// # Errors
///
/// An operation or comparison is not valid, or the transaction is nested too deeply.
pub(crate) fn txn_in(request: PbTxnRequest) -> Result<Txn, Error> {
    txn_in_at(request, 0)
}

fn txn_in_at(request: PbTxnRequest, depth: usize) -> Result<Txn, Error> {
    if depth > TXN_DEPTH_MAX {
        return Err(Error::TooManyOperations);
    }
    let ops = |ops: Vec<PbTxnRequestOp>| {
        ops.into_iter()
            .map(|op| op_in(op, depth))
            .collect::<Result<Vec<_>, _>>()
    };
    Ok(Txn {
        compares: request
            .compare
            .into_iter()
            .map(compare_in)
            .collect::<Result<_, _>>()?,
        then: ops(request.success)?,
        otherwise: ops(request.failure)?,
    })
}

fn op_in(op: PbTxnRequestOp, depth: usize) -> Result<Op, Error> {
    Ok(
        match op
            .request
            .ok_or(Error::BadRequest("an operation is empty".into()))?
        {
            PbTxnOpRequest::RequestRange(request) => Op::Range(query_in(request)?),
            PbTxnOpRequest::RequestPut(request) => Op::Put(put_in(request)?),
            PbTxnOpRequest::RequestDeleteRange(request) => Op::Delete(delete_in(request)?),
            PbTxnOpRequest::RequestTxn(request) => {
                Op::Txn(Box::new(txn_in_at(request, depth + 1)?))
            }
        },
    )
}

fn compare_in(compare: PbCompare) -> Result<Compare, Error> {
    let comparison = match CompareOp::try_from(compare.result) {
        Ok(CompareOp::Equal) => Comparison::Equal,
        Ok(CompareOp::Greater) => Comparison::Greater,
        Ok(CompareOp::Less) => Comparison::Less,
        Ok(CompareOp::NotEqual) => Comparison::NotEqual,
        Err(_) => return Err(Error::BadRequest("a comparison is of no known kind".into())),
    };
    // A missing number is zero.
    let number = |found: Option<i64>| found.unwrap_or_default();
    let union = compare.target_union;
    let with = match PbCompareTarget::try_from(compare.target) {
        Ok(PbCompareTarget::Version) => CompareWith::Version(number(match union {
            Some(PbTargetUnion::Version(version)) => Some(version),
            _ => None,
        })),
        Ok(PbCompareTarget::Create) => CompareWith::CreateRevision(Revision(number(match union {
            Some(PbTargetUnion::CreateRevision(revision)) => Some(revision),
            _ => None,
        }))),
        Ok(PbCompareTarget::Mod) => CompareWith::ModRevision(Revision(number(match union {
            Some(PbTargetUnion::ModRevision(revision)) => Some(revision),
            _ => None,
        }))),
        Ok(PbCompareTarget::Lease) => CompareWith::Lease(LeaseId(number(match union {
            Some(PbTargetUnion::Lease(lease)) => Some(lease),
            _ => None,
        }))),
        Ok(PbCompareTarget::Value) => CompareWith::Value(match union {
            Some(PbTargetUnion::Value(value)) => value.into(),
            _ => Bytes::new(),
        }),
        Err(_) => {
            return Err(Error::BadRequest(
                "a comparison is with no known thing".into(),
            ));
        }
    };
    Ok(Compare {
        range: range_in(compare.key, compare.range_end)?,
        comparison,
        with,
    })
}

/// Returns the response to a put request.
pub(crate) fn put_out(header: Header, previous: Option<KeyValue>) -> PbPutResponse {
    PbPutResponse {
        header: Some(header_out(header)),
        prev_kv: previous.map(item_out),
    }
}

/// Returns the response to a delete request.
pub(crate) fn delete_out(
    header: Header,
    deleted: u64,
    previous: Vec<KeyValue>,
) -> PbDeleteResponse {
    PbDeleteResponse {
        header: Some(header_out(header)),
        deleted: i64::try_from(deleted).unwrap_or(i64::MAX),
        prev_kvs: previous.into_iter().map(item_out).collect(),
    }
}

/// Returns the response to a transaction.
pub(crate) fn txn_out(header: Header, reply: TxnReply) -> PbTxnResponse {
    let mut response = PbTxnResponse {
        header: Some(header_out(header)),
        succeeded: reply.succeeded,
        responses: Vec::with_capacity(reply.replies.len()),
    };
    for step in reply.replies {
        // The envelope's type has no public name; its default value has.
        response.responses.push(Default::default());
        if let Some(envelope) = response.responses.last_mut() {
            envelope.response = Some(match step {
                OpReply::Range(listing) => PbTxnOpResponse::ResponseRange(listing_out(listing)),
                OpReply::Put { previous } => {
                    PbTxnOpResponse::ResponsePut(put_out(header, previous))
                }
                OpReply::Delete { deleted, previous } => {
                    PbTxnOpResponse::ResponseDeleteRange(delete_out(header, deleted, previous))
                }
                OpReply::Txn(inner) => PbTxnOpResponse::ResponseTxn(txn_out(header, inner)),
            });
        }
    }
    response
}
