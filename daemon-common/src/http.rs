//! HTTP for scrapers and probes: one request in each connection, with bounds on its time and its
//! octets.

use std::convert::Infallible;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::limits::{METRICS_HEAD_OCTETS_MAX, METRICS_SCRAPE};

/// Answers the request of one client, which has to arrive within `read`.
pub(crate) async fn serve<S, F>(stream: S, read: Duration, respond: impl Fn(Request<Incoming>) -> F)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<String>>,
{
    let service = service_fn(|request| {
        let answer = respond(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(read)
        .max_buf_size(METRICS_HEAD_OCTETS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A client that disconnects, or does not use HTTP, does not affect the daemon.
    if !matches!(timeout(METRICS_SCRAPE, connection).await, Ok(Ok(()))) {
        tracing::debug!("an HTTP request came to nothing");
    }
}

/// Returns the rejection of a request that does not only read.
pub(crate) fn reject_writes<B>(request: &Request<B>) -> Option<Response<String>> {
    if request.method() == Method::GET || request.method() == Method::HEAD {
        return None;
    }
    let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
    let allowed = HeaderValue::from_static("GET, HEAD");
    response.headers_mut().insert(ALLOW, allowed);
    Some(response)
}

pub(crate) fn refusal(code: StatusCode, why: &str) -> Response<String> {
    answer(code, "text/plain; charset=utf-8", why.to_owned())
}

pub(crate) fn answer(code: StatusCode, kind: &'static str, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = code;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
