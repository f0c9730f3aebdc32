//! Conversion between messages of the etcd v3 API and this crate's types.

use etcd_client::proto::{
    PbEvent, PbKeyValue, PbRangeResponse, PbResponseHeader, PbTxnOpResponse, PbTxnResponse,
};

use crate::kv::{
    Event, EventKind, Header, KeyRange, KeyValue, LeaseId, Listing, RangeEnd, Revision,
};
use crate::txn::{OpReply, TxnReply};

/// Returns the header of a response; the default one if there is none.
pub(crate) fn header_in(header: Option<&PbResponseHeader>) -> Header {
    header.map_or_else(Header::default, |header| Header {
        cluster: header.cluster_id,
        revision: Revision(header.revision),
    })
}

/// Returns a key with its value.
pub(crate) fn item_in(item: PbKeyValue) -> KeyValue {
    KeyValue {
        key: item.key.into(),
        value: item.value.into(),
        create_revision: Revision(item.create_revision),
        mod_revision: Revision(item.mod_revision),
        version: item.version,
        lease: LeaseId(item.lease),
    }
}

/// Returns an event; `None` for one of an unknown kind, or without a key.
pub(crate) fn event_in(event: PbEvent) -> Option<Event> {
    let kind = match event.r#type {
        0 => EventKind::Put,
        1 => EventKind::Delete,
        _ => return None,
    };
    Some(Event {
        kind,
        item: item_in(event.kv?),
        previous: event.prev_kv.map(item_in),
    })
}

/// Returns the two keys of a range.
pub(crate) fn range_out(range: KeyRange) -> (Vec<u8>, Vec<u8>) {
    // The API has no empty key: the smallest possible key replaces it.
    let start = if range.start.is_empty() {
        vec![0]
    } else {
        range.start.into()
    };
    let end = match range.end {
        RangeEnd::Single => Vec::new(),
        RangeEnd::Before(end) => end.into(),
        RangeEnd::Open => vec![0],
    };
    (start, end)
}

/// Returns the result of a range request.
pub(crate) fn listing_in(response: PbRangeResponse) -> Listing {
    Listing {
        header: header_in(response.header.as_ref()),
        items: response.kvs.into_iter().map(item_in).collect(),
        more: response.more,
        count: u64::try_from(response.count).unwrap_or(0),
    }
}

/// Returns the result of a transaction.
pub(crate) fn txn_reply_in(response: PbTxnResponse) -> TxnReply {
    let step = |response| match response {
        PbTxnOpResponse::ResponseRange(response) => OpReply::Range(listing_in(response)),
        PbTxnOpResponse::ResponsePut(response) => OpReply::Put {
            previous: response.prev_kv.map(item_in),
        },
        PbTxnOpResponse::ResponseDeleteRange(response) => OpReply::Delete {
            deleted: u64::try_from(response.deleted).unwrap_or(0),
            previous: response.prev_kvs.into_iter().map(item_in).collect(),
        },
        PbTxnOpResponse::ResponseTxn(response) => OpReply::Txn(txn_reply_in(response)),
    };
    TxnReply {
        header: header_in(response.header.as_ref()),
        succeeded: response.succeeded,
        replies: response
            .responses
            .into_iter()
            .filter_map(|op| op.response)
            .map(step)
            .collect(),
    }
}
