//! A daemon's reports as OpenMetrics text, over HTTP, for monitoring systems.
//!
//! It is another front end of the daemon, as the control socket is: a scrape requests status and
//! neighbors from the daemon's loop, and the replies are converted to numbers here. Nothing is
//! counted twice, and nothing can be changed. A connection is for one request.

mod page;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::net::SocketAddr;

use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::limits::{METRICS_HEAD_OCTETS_MAX, METRICS_READ, METRICS_SCRAPE};
use crate::report::Neighbors;
use crate::request::{self, Request as Ask};
use crate::{Command, Reply, events};

/// The content type (OpenMetrics 1.0).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The section `[metrics]` of a daemon's file; without it there are no metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsSection {
    /// `listen`: the address to be scraped on.
    pub listen: SocketAddr,
}

/// Answers one scraper.
pub(crate) async fn serve(stream: TcpStream, requests: mpsc::Sender<Ask>) {
    let service = service_fn(|request| {
        let requests = &requests;
        async move { Ok::<_, Infallible>(respond(&request, requests).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(METRICS_READ)
        .max_buf_size(METRICS_HEAD_OCTETS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A scraper that disconnects, or does not use HTTP, does not affect the daemon.
    if !matches!(timeout(METRICS_SCRAPE, connection).await, Ok(Ok(()))) {
        tracing::debug!("a scrape came to nothing");
    }
}

async fn respond<B>(request: &Request<B>, requests: &mpsc::Sender<Ask>) -> Response<String> {
    if request.uri().path() != "/metrics" {
        return refusal(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "GET only\n");
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    let status = match request::ask(requests, Command::Status {}).await {
        Reply::Status(status) => status,
        Reply::Error { message } => return refusal(StatusCode::SERVICE_UNAVAILABLE, &message),
        _ => return refusal(StatusCode::SERVICE_UNAVAILABLE, "no status"),
    };
    // Not every daemon has neighbors, and no daemon has them before it has its configuration.
    let neighbors = match request::ask(requests, Command::Neighbors {}).await {
        Reply::Neighbors(neighbors) => neighbors,
        _ => Neighbors::default(),
    };
    match page::render(status, neighbors, events::counts()) {
        Ok(text) => answer(StatusCode::OK, OPEN_METRICS, text),
        Err(_) => refusal(StatusCode::INTERNAL_SERVER_ERROR, "unprintable\n"),
    }
}

fn refusal(code: StatusCode, why: &str) -> Response<String> {
    answer(code, "text/plain; charset=utf-8", why.to_owned())
}

fn answer(code: StatusCode, kind: &'static str, text: String) -> Response<String> {
    let mut response = Response::new(text);
    *response.status_mut() = code;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
