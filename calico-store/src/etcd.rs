//! A client of etcd, or of any server of its v3 API, as a [`Store`](crate::Store).
//!
//! Every call has a deadline. The client uses one of several members until it fails, then the next;
//! it repeats a writing request at another member only if the first one cannot have received it. A
//! watch ends with an error when its member fails ([`crate::Mirror`] opens it again).

mod check;
mod lease;
mod list;
mod members;
mod options;
mod txn;
mod watch;

use std::sync::Arc;

use etcd_client::{Client, KvClient, WatchClient};

use crate::error::Error;
use crate::kv::{Lease, LeaseId, LeaseState, Listing, Query, Revision};
use crate::limits::ANSWER_OCTETS_MAX;
use crate::port::{Answer, Store, Watch, WatchRequest};
use crate::status::status_in;
use crate::txn::{Txn, TxnReply};

pub use check::OptionFault;
use members::{Again, Members};
pub use options::{EtcdOptions, Password, TlsFiles};

/// A client of an etcd cluster. Cheap to clone.
#[derive(Clone)]
pub struct EtcdStore(Arc<Members>);

impl EtcdStore {
    /// Creates a client with these options. It neither waits for a server nor checks the user's
    /// permissions: the calls return such errors.
    pub async fn connect(options: &EtcdOptions) -> Result<Self, Error> {
        let connect = options.connect()?;
        let user = options.user()?;
        let chance = crate::random::octets().map(u64::from_le_bytes);
        // Without randomness all clients start with the first member, which works as well.
        let start = usize::try_from(chance.unwrap_or(0) >> 33).unwrap_or(0);
        let members = Members::new(&options.endpoints, connect, user, start).await?;
        Ok(Self(Arc::new(members)))
    }
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").finish_non_exhaustive()
    }
}

impl Store for EtcdStore {
    fn range(&self, query: Query) -> Answer<'_, Listing> {
        Box::pin(list::range(&self.0, query))
    }

    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        Box::pin(txn::txn(&self.0, txn))
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch> {
        Box::pin(watch::watch(&self.0, request))
    }

    fn compact(&self, at: Revision) -> Answer<'_, ()> {
        Box::pin(async move {
            let compact = |client| async move { kv(&client).compact(at.0, None).await };
            self.0.ask(Again::Unsent, compact).await?;
            Ok(())
        })
    }

    fn lease_grant(&self, ttl_s: i64) -> Answer<'_, Lease> {
        Box::pin(lease::grant(&self.0, ttl_s))
    }

    fn lease_keep_alive(&self, id: LeaseId) -> Answer<'_, i64> {
        Box::pin(lease::keep_alive(&self.0, id))
    }

    fn lease_revoke(&self, id: LeaseId) -> Answer<'_, ()> {
        Box::pin(lease::revoke(&self.0, id))
    }

    fn lease_state(&self, id: LeaseId) -> Answer<'_, LeaseState> {
        Box::pin(lease::state(&self.0, id))
    }

    fn members(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async move {
            let list = |client: Client| async move { client.cluster_client().member_list().await };
            let (_, response) = self.0.ask(Again::Any, list).await?;
            let urls = response.members().iter();
            let urls = urls.flat_map(|member| [member.client_urls(), member.peer_urls()]);
            Ok(urls.flatten().cloned().collect())
        })
    }
}

fn kv(client: &Client) -> KvClient {
    client
        .kv_client()
        .max_decoding_message_size(ANSWER_OCTETS_MAX)
}

fn watch_client(client: &Client) -> WatchClient {
    client
        .watch_client()
        .max_decoding_message_size(ANSWER_OCTETS_MAX)
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
