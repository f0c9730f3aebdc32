//! A proxy in front of etcd that decides in which order lists of the datastore are answered.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use h2::{RecvStream, SendStream};
use netns_lab::Host;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::limits::{
    PAGE_OCTETS_MAX, PROXY_CONNECTION_OCTETS, PROXY_STREAM_OCTETS, RANGE_OCTETS_MAX,
};

/// The order of two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// All policies before the first endpoint.
    PoliciesFirst,
    /// All endpoints before the first policy.
    EndpointsFirst,
    /// A page of the one, then a page of the other.
    Mixed,
}

/// A list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Policies,
    Endpoints,
}

const RANGE: &str = "/etcdserverpb.KV/Range";
/// Octets of the header of a gRPC message.
const FRAME: usize = 5;
/// `more` of a RangeResponse.
const MORE: u64 = 3;

impl List {
    /// Returns the list that a request is about.
    fn of(request: &[u8]) -> Option<Self> {
        let names = |name: &[u8]| request.windows(name.len()).any(|part| part == name);
        if names(b"/globalnetworkpolicies/") {
            return Some(Self::Policies);
        }
        names(b"/workloadendpoints/").then_some(Self::Endpoints)
    }
}

/// The answered pages of a list.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    pages: u32,
    is_complete: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Answered {
    policies: Progress,
    endpoints: Progress,
}

impl Answered {
    /// Returns whether the next page of a list is due.
    const fn is_due(&self, order: Order, list: List) -> bool {
        let (own, other) = match list {
            List::Policies => (self.policies, self.endpoints),
            List::Endpoints => (self.endpoints, self.policies),
        };
        if own.is_complete || other.is_complete {
            return true;
        }
        match (order, list) {
            (Order::PoliciesFirst, List::Policies) | (Order::EndpointsFirst, List::Endpoints) => {
                true
            }
            (Order::PoliciesFirst, List::Endpoints) | (Order::EndpointsFirst, List::Policies) => {
                false
            }
            (Order::Mixed, List::Policies) => own.pages <= other.pages,
            (Order::Mixed, List::Endpoints) => own.pages < other.pages,
        }
    }
}

#[derive(Debug)]
struct Gate {
    order: Order,
    answered: Mutex<Answered>,
    changed: Notify,
}

impl Gate {
    /// Waits until the next page of a list is due.
    async fn wait(&self, list: List) {
        loop {
            let changed = self.changed.notified();
            if self.answered().is_due(self.order, list) {
                return;
            }
            changed.await;
        }
    }

    fn enter(&self, list: List, has_more: bool) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = match list {
            List::Policies => &mut answered.policies,
            List::Endpoints => &mut answered.endpoints,
        };
        progress.pages += 1;
        progress.is_complete |= !has_more;
        drop(answered);
        self.changed.notify_waiters();
    }

    fn answered(&self) -> Answered {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The proxy. Dropping it ends new connections.
#[derive(Debug)]
pub struct Lists {
    gate: Arc<Gate>,
    task: JoinHandle<()>,
}

impl Lists {
    /// Listens on the address of etcd at a host that has this address itself.
    pub fn start(host: &Host, etcd: SocketAddr, order: Order) -> Result<Self> {
        let listener = host.run(|| std::net::TcpListener::bind(etcd))??;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let gate = Arc::new(Gate {
            order,
            answered: Mutex::default(),
            changed: Notify::new(),
        });
        let shared = Arc::clone(&gate);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let gate = Arc::clone(&shared);
                // A connection ends with the daemon.
                tokio::spawn(async move { serve(stream, etcd, gate).await });
            }
        });
        Ok(Self { gate, task })
    }

    /// Ends it. Returns an error unless both lists were answered.
    pub async fn stop(mut self) -> Result<()> {
        self.task.abort();
        // It has no result. Its end closes the socket.
        let _ = (&mut self.task).await;
        let answered = self.gate.answered();
        let is_complete = answered.policies.is_complete && answered.endpoints.is_complete;
        ensure!(is_complete, "lists are missing: {answered:?}");
        Ok(())
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, etcd: SocketAddr, gate: Arc<Gate>) -> Result<()> {
    let mut server = h2::server::Builder::new()
        .initial_window_size(PROXY_STREAM_OCTETS)
        .initial_connection_window_size(PROXY_CONNECTION_OCTETS)
        .handshake::<_, Bytes>(stream)
        .await?;
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(PROXY_STREAM_OCTETS)
        .initial_connection_window_size(PROXY_CONNECTION_OCTETS)
        .handshake::<_, Bytes>(TcpStream::connect(etcd).await?)
        .await?;
    tokio::spawn(connection);
    while let Some(call) = server.accept().await {
        let (request, mut respond) = call?;
        let (client, gate) = (client.clone(), Arc::clone(&gate));
        // A call that fails ends its stream, which the daemon reports.
        tokio::spawn(async move {
            let is_range = request.uri().path() == RANGE;
            let mut body = None;
            let head = request.map(|stream| body = Some(stream));
            let mut body = body.context("a body")?;
            let (mut list, mut read) = (None, None);
            if is_range {
                let request = whole(&mut body).await?;
                list = List::of(&request);
                if let Some(list) = list {
                    gate.wait(list).await;
                }
                read = Some(request);
            }
            let (response, send) = client.ready().await?.send_request(head, false)?;
            let upward = async {
                match read {
                    Some(request) => finish(send, request).await,
                    None => pump(body, send, None).await,
                }
            };
            let downward = async {
                let mut body = None;
                let head = response.await?.map(|stream| body = Some(stream));
                let body = body.context("a body")?;
                let is_over = body.is_end_stream();
                let send = respond.send_response(head, is_over)?;
                let mut answer = vec![];
                if !is_over {
                    pump(body, send, list.map(|_| &mut answer)).await?;
                }
                if let Some(list) = list {
                    gate.enter(list, has_more(&answer));
                }
                Ok(())
            };
            tokio::try_join!(upward, downward)
        });
    }
    Ok(())
}

/// Returns the whole body of a range request.
async fn whole(body: &mut RecvStream) -> Result<Bytes> {
    let mut request = vec![];
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        request.extend_from_slice(&data);
        ensure!(request.len() <= RANGE_OCTETS_MAX, "a long range request");
    }
    Ok(request.into())
}

/// Sends a body with its end.
async fn finish(mut send: SendStream<Bytes>, body: Bytes) -> Result<()> {
    pass(&mut send, body).await?;
    send.send_data(Bytes::new(), true)?;
    Ok(())
}

/// Passes on a body and its trailers, and copies its first octets.
async fn pump(
    mut body: RecvStream,
    mut send: SendStream<Bytes>,
    mut copy: Option<&mut Vec<u8>>,
) -> Result<()> {
    while let Some(data) = body.data().await {
        let data = data?;
        let length = data.len();
        if let Some(copy) = &mut copy {
            ensure!(copy.len() <= PAGE_OCTETS_MAX, "a long page");
            copy.extend_from_slice(&data);
        }
        pass(&mut send, data).await?;
        body.flow_control().release_capacity(length)?;
    }
    match body.trailers().await? {
        Some(trailers) => send.send_trailers(trailers)?,
        None => send.send_data(Bytes::new(), true)?,
    }
    Ok(())
}

/// Sends octets as far as the receiver permits.
async fn pass(send: &mut SendStream<Bytes>, mut data: Bytes) -> Result<()> {
    while !data.is_empty() {
        send.reserve_capacity(data.len());
        let capacity = poll_fn(|context| send.poll_capacity(context)).await;
        let capacity = capacity.context("the stream has ended")??;
        let part = data.split_to(capacity.min(data.len()));
        send.send_data(part, false)?;
    }
    Ok(())
}

/// Returns whether the answer to a range request states that there are further keys.
fn has_more(answer: &[u8]) -> bool {
    let mut rest = answer.get(FRAME..).unwrap_or_default();
    while let Some((key, value)) = varint(rest) {
        let (field, wire_type) = (key >> 3, key & 7);
        let Some((number, after)) = varint(value) else {
            return false;
        };
        match wire_type {
            0 if field == MORE => return number != 0,
            0 => rest = after,
            _ => {
                let length = usize::try_from(number).unwrap_or(usize::MAX);
                rest = after.get(length..).unwrap_or_default();
            }
        }
    }
    false
}

/// Returns a number of protobuf, and the octets behind it.
fn varint(octets: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, octet) in octets.iter().enumerate().take(10) {
        number |= u64::from(octet & 0x7f) << (7 * at);
        if octet & 0x80 == 0 {
            return Some((number, octets.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_with_more_keys_is_found() {
        // A header of two octets, a key and its value of 200 octets, `more`, a count.
        let mut page = vec![0, 0, 0, 0, 0, 0x0a, 2, 8, 1, 0x12, 200, 1];
        page.extend([0x18; 200]);
        let end = page.len();
        page.extend([0x18, 1, 0x20, 7]);
        assert!(has_more(&page));
        page[end + 1] = 0;
        assert!(!has_more(&page));
        assert!(!has_more(&page[..end]));
        assert!(!has_more(&[]));
    }

    #[test]
    fn pages_are_due_in_the_required_order() {
        let due = |order| {
            let mut answered = Answered::default();
            let mut lists = String::new();
            while !(answered.policies.is_complete && answered.endpoints.is_complete) {
                for (list, letter) in [(List::Endpoints, 'e'), (List::Policies, 'p')] {
                    let is_due = answered.is_due(order, list);
                    let progress = match list {
                        List::Policies => &mut answered.policies,
                        List::Endpoints => &mut answered.endpoints,
                    };
                    if is_due && !progress.is_complete {
                        progress.pages += 1;
                        progress.is_complete = progress.pages == 3;
                        lists.push(letter);
                    }
                }
            }
            lists
        };
        assert_eq!(due(Order::PoliciesFirst), "pppeee");
        assert_eq!(due(Order::EndpointsFirst), "eeeppp");
        assert_eq!(due(Order::Mixed), "pepepe");
    }
}
