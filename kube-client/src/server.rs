//! Requests to the API server: one connection, over TLS or in plain text.

mod access;
mod answer;
mod unread;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::limits::{
    ANSWER_TIMEOUT, CONNECT_TIMEOUT, KEEP_ALIVE_AFTER, KEEP_ALIVE_CHECKS, KEEP_ALIVE_INTERVAL,
    OBJECT_OCTETS_MAX, PAGE_OCTETS_MAX, REASON_CHARACTERS_MAX, STATUS_OCTETS_MAX,
};

pub use access::{Access, AccessError, Credential, Trust};
pub use answer::Lines;
use answer::whole;
pub use unread::{Unread, parse};

/// The name of this client in the logs of the server.
const AGENT: &str = concat!("cambric/", env!("CARGO_PKG_VERSION"));

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server cannot be reached.
    #[error("no connection: {0}")]
    Connection(String),
    /// The server rejected the request.
    #[error("the server answered {code} {reason}: {message}")]
    Rejected {
        /// The HTTP status, or the code of an event of a watch.
        code: u16,
        /// The reason as one word.
        reason: String,
        /// The message of the server.
        message: String,
        /// The delay that the server demands.
        retry_after: Option<Duration>,
    },
    /// The server no longer has the requested history.
    #[error("the history is too old: {0}")]
    Expired(String),
    /// The answer does not have the form of the API.
    #[error("invalid answer: {0}")]
    Invalid(String),
    /// The answer is longer than its limit.
    #[error("the answer has more than {0} octets")]
    TooLong(usize),
    /// The connection ended within an answer.
    #[error("the answer was cut off: {0}")]
    Cut(String),
    /// The server did not answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
}

impl Failure {
    /// Returns whether the server does not have the requested path.
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::Rejected { code: 404, .. })
    }

    /// Returns the delay that the server demands.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Rejected { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns the failure that a `Status` of the API describes. The text of the server is cut.
    pub fn of_status(code: u16, status: &Value, retry_after: Option<Duration>) -> Self {
        let text = |field: &str| {
            let text = status[field].as_str().unwrap_or_default();
            text.chars().take(REASON_CHARACTERS_MAX).collect::<String>()
        };
        let (reason, message) = (text("reason"), text("message"));
        if code == StatusCode::GONE.as_u16() || reason == "Expired" || reason == "Gone" {
            return Self::Expired(message);
        }
        Self::Rejected {
            code,
            reason,
            message,
            retry_after,
        }
    }
}

/// The content types of bodies.
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

/// A request.
struct Call<'c> {
    method: Method,
    path: &'c str,
    body: Option<(&'static str, String)>,
}

impl<'c> Call<'c> {
    const fn get(path: &'c str) -> Self {
        Self {
            method: Method::GET,
            path,
            body: None,
        }
    }
}

/// A client of the API server. It connects when a request needs it.
#[derive(Debug)]
pub struct Server {
    access: Access,
    sender: Option<SendRequest<String>>,
    unread: &'static [Unread],
}

impl Server {
    /// Creates a client.
    pub const fn new(access: Access) -> Self {
        Self {
            access,
            sender: None,
            unread: &[],
        }
    }

    /// Leaves fields out of the objects of lists and watches.
    #[must_use]
    pub const fn without(mut self, unread: &'static [Unread]) -> Self {
        self.unread = unread;
        self
    }

    /// Reads a page of a list.
    ///
    /// # Errors
    ///
    /// The request failed.
    pub async fn read(&mut self, path: &str) -> Result<Value, Failure> {
        let octets = self.octets(&Call::get(path), PAGE_OCTETS_MAX).await?;
        let page = parse(&octets, "items", self.unread);
        page.map_err(|error| Failure::Invalid(error.to_string()))
    }

    /// Reads an object.
    ///
    /// # Errors
    ///
    /// The request failed.
    pub async fn object(&mut self, path: &str) -> Result<Value, Failure> {
        self.json(&Call::get(path), OBJECT_OCTETS_MAX).await
    }

    /// Creates an object, or sends a request of the kind that has an answer as an object. Returns the
    /// answer.
    ///
    /// # Errors
    ///
    /// The request failed.
    pub async fn create(&mut self, path: &str, object: &Value) -> Result<Value, Failure> {
        self.send(Method::POST, path, object).await
    }

    /// Replaces an object. It must have the `resourceVersion` of the stored one, if it has any. Returns the
    /// object.
    ///
    /// # Errors
    ///
    /// The request failed. Without an answer, it is unknown whether the object was written.
    pub async fn replace(&mut self, path: &str, object: &Value) -> Result<Value, Failure> {
        self.send(Method::PUT, path, object).await
    }

    async fn send(&mut self, method: Method, path: &str, object: &Value) -> Result<Value, Failure> {
        let call = Call {
            method,
            path,
            body: Some((JSON, object.to_string())),
        };
        self.json(&call, OBJECT_OCTETS_MAX).await
    }

    /// Changes fields of an object, as a merge patch (RFC 7386). Returns the object.
    ///
    /// # Errors
    ///
    /// The request failed.
    pub async fn patch(&mut self, path: &str, patch: &Value) -> Result<Value, Failure> {
        self.patch_as(MERGE, path, patch).await
    }

    /// Changes an object by a strategic merge: elements of lists with a merge key are replaced by this
    /// key, and others stay. Returns the object.
    ///
    /// # Errors
    ///
    /// The request failed.
    pub async fn patch_strategically(
        &mut self,
        path: &str,
        patch: &Value,
    ) -> Result<Value, Failure> {
        self.patch_as(STRATEGIC_MERGE, path, patch).await
    }

    async fn patch_as(
        &mut self,
        form: &'static str,
        path: &str,
        patch: &Value,
    ) -> Result<Value, Failure> {
        let call = Call {
            method: Method::PATCH,
            path,
            body: Some((form, patch.to_string())),
        };
        self.json(&call, OBJECT_OCTETS_MAX).await
    }

    /// Opens a watch.
    ///
    /// # Errors
    ///
    /// The request failed.
    pub async fn watch(&mut self, path: &str) -> Result<Lines, Failure> {
        let response = self.request(&Call::get(path)).await?;
        Ok(Lines::new(response.into_body(), self.unread))
    }

    async fn octets(&mut self, call: &Call<'_>, octets_max: usize) -> Result<Vec<u8>, Failure> {
        let response = self.request(call).await?;
        whole(response.into_body(), octets_max).await
    }

    async fn json(&mut self, call: &Call<'_>, octets_max: usize) -> Result<Value, Failure> {
        let octets = self.octets(call, octets_max).await?;
        serde_json::from_slice(&octets).map_err(|error| Failure::Invalid(error.to_string()))
    }

    async fn request(&mut self, call: &Call<'_>) -> Result<Response<Incoming>, Failure> {
        let is_kept = match &mut self.sender {
            Some(sender) => matches!(timeout(CONNECT_TIMEOUT, sender.ready()).await, Ok(Ok(()))),
            None => false,
        };
        if !is_kept {
            self.sender = None;
        }
        let mut sender = match self.sender.take() {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let request = self.build(call)?;
        let response = match timeout(ANSWER_TIMEOUT, sender.send_request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(Failure::Connection(error.to_string())),
            Err(_) => return Err(Failure::Timeout(ANSWER_TIMEOUT)),
        };
        self.sender = Some(sender);
        match response.status() {
            StatusCode::OK | StatusCode::CREATED => Ok(response),
            _ => Err(rejection(response).await),
        }
    }

    fn build(&self, call: &Call<'_>) -> Result<Request<String>, Failure> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path)
            .header(HOST, self.access.authority())
            .header(ACCEPT, JSON)
            .header(USER_AGENT, AGENT);
        // A file is read for each request, because the kubelet replaces the token before it expires.
        let token = self.access.token();
        if let Some(token) = token.map_err(|error| Failure::Connection(error.to_string()))? {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut bearer = bearer.map_err(|_| {
                Failure::Connection("the token has characters that no token has".to_owned())
            })?;
            bearer.set_sensitive(true);
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = match &call.body {
            Some((kind, body)) => request.header(CONTENT_TYPE, *kind).body(body.clone()),
            None => request.body(String::new()),
        };
        request.map_err(|error| Failure::Invalid(error.to_string()))
    }

    async fn connect(&self) -> Result<SendRequest<String>, Failure> {
        let connect = async {
            let stream = self.open().await?;
            let (sender, connection) = handshake(TokioIo::new(stream))
                .await
                .map_err(|error| Failure::Connection(error.to_string()))?;
            // Ends with its sender; an error is the answer to the request.
            tokio::spawn(async move {
                let _ = connection.await;
            });
            Ok(sender)
        };
        let connected = timeout(CONNECT_TIMEOUT, connect).await;
        connected.unwrap_or(Err(Failure::Timeout(CONNECT_TIMEOUT)))
    }

    async fn open(&self) -> Result<Stream, Failure> {
        let failed = |error: std::io::Error| Failure::Connection(error.to_string());
        let address = (self.access.host(), self.access.port());
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let keep_alive = TcpKeepalive::new()
            .with_time(KEEP_ALIVE_AFTER)
            .with_interval(KEEP_ALIVE_INTERVAL)
            .with_retries(KEEP_ALIVE_CHECKS);
        let socket = SockRef::from(&stream);
        socket.set_tcp_keepalive(&keep_alive).map_err(failed)?;
        match self.access.tls().map_err(failed)? {
            None => Ok(Stream::Plain(stream)),
            Some((config, name)) => {
                let connector = TlsConnector::from(config);
                let stream = connector.connect(name, stream).await.map_err(failed)?;
                Ok(Stream::Tls(Box::new(stream)))
            }
        }
    }
}

/// Reads why the server rejected a request.
async fn rejection(response: Response<Incoming>) -> Failure {
    let code = response.status().as_u16();
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    let octets = whole(response.into_body(), STATUS_OCTETS_MAX).await;
    let status = octets.map(|octets| serde_json::from_slice(&octets).unwrap_or_default());
    Failure::of_status(
        code,
        &status.unwrap_or_default(),
        retry_after.map(Duration::from_secs),
    )
}

/// A connection to the server.
#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, octets),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, octets),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
