//! A client of etcd, or of any server of its v3 API, as a [`Store`](crate::Store).
//!
//! Every call has a deadline. The client uses one of several members until it fails, then the next;
//! it repeats a writing request at another member only if the first one cannot have received it. A
//! watch ends with an error when its member fails ([`crate::Mirror`] opens it again).

mod calico;
mod check;
mod lease;
mod list;
mod members;
mod options;
mod txn;
mod watch;

use std::sync::Arc;

use etcd_client::{Client, KvClient, WatchClient};
use tonic::Code;

use crate::error::Error;
use crate::kv::{Lease, LeaseId, LeaseState, Listing, Query, Revision};
use crate::limits::ANSWER_OCTETS_MAX;
use crate::port::{Answer, Store, Watch, WatchRequest};
use crate::status::status_in;
use crate::txn::{Txn, TxnReply};

pub use calico::{CalicoEtcd, CalicoFault};
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
            let list = |client: Client| async move {
                offered(client.cluster_client().member_list().await)
            };
            let (_, response) = self.0.ask(Again::Any, list).await?;
            let response = response.ok_or(Error::BadRequest(NO_MEMBERS.into()))?;
            let urls = response.members().iter();
            let urls = urls.flat_map(|member| [member.client_urls(), member.peer_urls()]);
            Ok(urls.flatten().cloned().collect())
        })
    }
}

const NO_MEMBERS: &str = "the server does not list the members of its cluster";

/// Returns `None` if the server does not have this request: asking again would not help.
fn offered<T>(answer: Result<T, etcd_client::Error>) -> Result<Option<T>, etcd_client::Error> {
    match answer {
        Err(etcd_client::Error::GRpcStatus(status)) if status.code() == Code::Unimplemented => {
            Ok(None)
        }
        answer => answer.map(Some),
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Serves HTTP/2 (RFC 9113) and answers every request with the gRPC status 12, UNIMPLEMENTED.
    fn implement_nothing(mut client: TcpStream) -> std::io::Result<()> {
        const ANSWER: &[u8] =
            b"\x88\x00\x0ccontent-type\x10application/grpc\x00\x0bgrpc-status\x0212";
        let frame = |kind: u8, flags: u8, stream: [u8; 4], payload: &[u8]| {
            let head = [0, 0, u8::try_from(payload.len()).unwrap(), kind, flags];
            [&head, &stream[..], payload].concat()
        };
        client.read_exact(&mut [0; 24])?;
        client.write_all(&frame(4, 0, [0; 4], &[]))?;
        loop {
            let mut head = [0; 9];
            client.read_exact(&mut head)?;
            let [a, b, c, kind, flags, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            client.read_exact(&mut payload)?;
            match kind {
                1 => client.write_all(&frame(1, 5, stream, ANSWER))?,
                4 | 6 if flags & 1 == 0 => {
                    let payload = if kind == 6 { &payload[..] } else { &[] };
                    client.write_all(&frame(kind, 1, stream, payload))?;
                }
                _ => {}
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn server_without_a_list_of_members_is_no_outage() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // The client closes the connection.
                std::thread::spawn(move || implement_nothing(client));
            }
        });
        let store = EtcdStore::connect(&EtcdOptions::new([url])).await.unwrap();
        let error = store.members().await.unwrap_err();
        assert_eq!(error, Error::BadRequest(NO_MEMBERS.into()));
        assert!(!error.is_transient());
        // Another member may have the other requests.
        let error = store.get("/a".into()).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }
}
