//! The port over the network: a client of etcd, or of anything that speaks its v3 API.
//!
//! Every call has a deadline. The channel beneath finds its way back by itself when a server comes
//! back; watches do not, and say so ([`crate::Mirror`] begins them anew).

mod lease;
mod list;
mod options;
mod txn;
mod watch;

use std::future::Future;

use etcd_client::{Client, KvClient, LeaseClient, WatchClient};
use tokio::time::timeout;

use crate::error::Error;
use crate::kv::{Lease, LeaseId, LeaseState, Listing, Query, Revision};
use crate::limits::{ANSWER_OCTETS_MAX, CALL_TIMEOUT};
use crate::port::{Answer, Store, Watch, WatchRequest};
use crate::txn::{Txn, TxnReply};
use crate::wire::status::status_in;

pub use options::{EtcdOptions, TlsFiles};

/// A client of an etcd cluster. Cheap to clone.
#[derive(Clone)]
pub struct EtcdStore {
    kv: KvClient,
    watch: WatchClient,
    lease: LeaseClient,
}

impl EtcdStore {
    /// A client with these options. Without a user this does not wait for a server to be there;
    /// with one it must be, to know the user.
    pub async fn connect(options: &EtcdOptions) -> Result<Self, Error> {
        let connect = options.connect()?;
        let client = called(Client::connect(&options.endpoints, Some(connect))).await?;
        Ok(Self {
            kv: client
                .kv_client()
                .max_decoding_message_size(ANSWER_OCTETS_MAX),
            watch: client
                .watch_client()
                .max_decoding_message_size(ANSWER_OCTETS_MAX),
            lease: client.lease_client(),
        })
    }
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").finish_non_exhaustive()
    }
}

impl Store for EtcdStore {
    fn range(&self, query: Query) -> Answer<'_, Listing> {
        Box::pin(list::range(self.kv.clone(), query))
    }

    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        Box::pin(txn::txn(self.kv.clone(), txn))
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch> {
        Box::pin(watch::watch(self.watch.clone(), request))
    }

    fn compact(&self, at: Revision) -> Answer<'_, ()> {
        let mut kv = self.kv.clone();
        Box::pin(async move {
            called(kv.compact(at.0, None)).await?;
            Ok(())
        })
    }

    fn lease_grant(&self, ttl_s: i64) -> Answer<'_, Lease> {
        Box::pin(lease::grant(self.lease.clone(), ttl_s))
    }

    fn lease_keep_alive(&self, id: LeaseId) -> Answer<'_, i64> {
        Box::pin(lease::keep_alive(self.lease.clone(), id))
    }

    fn lease_revoke(&self, id: LeaseId) -> Answer<'_, ()> {
        Box::pin(lease::revoke(self.lease.clone(), id))
    }

    fn lease_state(&self, id: LeaseId) -> Answer<'_, LeaseState> {
        Box::pin(lease::state(self.lease.clone(), id))
    }
}

/// Waits for an answer, but not for ever.
async fn called<T>(call: impl Future<Output = Result<T, etcd_client::Error>>) -> Result<T, Error> {
    match timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => answer.map_err(error_in),
        Err(_) => Err(Error::Unavailable(format!(
            "no answer within {} s",
            CALL_TIMEOUT.as_secs()
        ))),
    }
}

fn error_in(error: etcd_client::Error) -> Error {
    match error {
        etcd_client::Error::GRpcStatus(status) => status_in(&status),
        etcd_client::Error::InvalidArgs(_)
        | etcd_client::Error::InvalidUri(_)
        | etcd_client::Error::InvalidMetadataValue(_)
        | etcd_client::Error::EndpointError(_) => Error::Options(error.to_string()),
        error => Error::Unavailable(error.to_string()),
    }
}
