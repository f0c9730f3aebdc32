//! A daemon's reports as OpenMetrics text, over HTTP, for monitoring systems.
//!
//! It is another front end of the daemon, as the control socket is: a scrape requests status and
//! neighbors from the daemon's loop, and the replies are converted to numbers here. Nothing is
//! counted twice, and nothing can be changed. A connection is for one request.

mod felix;
mod page;
mod process;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::{Request, Response, StatusCode};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::http::{self, answer, refusal, reject_writes};
use crate::limits::METRICS_READ;
use crate::report::Neighbors;
use crate::request::{self, Request as Ask};
use crate::scrape_tls::Acceptor;
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
pub(crate) async fn serve(
    stream: TcpStream,
    tls: Option<Arc<Acceptor>>,
    requests: mpsc::Sender<Ask>,
) {
    let requests = &requests;
    let answer = |request| async move { respond(&request, requests).await };
    match tls {
        None => http::serve(stream, METRICS_READ, answer).await,
        Some(tls) => {
            if let Some(stream) = tls.accept(stream).await {
                http::serve(stream, METRICS_READ, answer).await;
            }
        }
    }
}

async fn respond<B>(request: &Request<B>, requests: &mpsc::Sender<Ask>) -> Response<String> {
    if request.uri().path() != "/metrics" {
        return refusal(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if let Some(rejection) = reject_writes(request) {
        return rejection;
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
