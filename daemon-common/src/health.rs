//! Liveness and readiness over HTTP, for probes: `/liveness` and `/readiness`.
//!
//! The answers come from a thread of their own, so that a probe is answered while the daemon's loop is
//! busy. Liveness is the time since the last turn of the loop. Readiness is the loop's own answer to a
//! request; a loop that does not answer in time is not ready.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hyper::{Request, Response, StatusCode};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::http::{self, refusal, reject_writes};
use crate::limits::{PROBE_READ, READINESS_ANSWER};
use crate::report::Readiness;
use crate::request::{self, Request as Ask};
use crate::{Command, Reply};

#[cfg(test)]
mod tests;

/// The section `[health]` of a BGP daemon's file; without it there are no probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthSection {
    /// `listen`: the address to be probed on.
    pub listen: SocketAddr,
}

/// The turns of a daemon's loop, shared with the thread that answers probes.
#[derive(Clone, Debug)]
pub struct Pulse {
    start: Instant,
    /// Milliseconds from `start` to the last turn.
    turned_ms: Arc<AtomicU64>,
}

impl Pulse {
    /// Returns the pulse of a loop that turns now.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            turned_ms: Arc::default(),
        }
    }

    /// Records a turn of the loop.
    pub fn beat(&self) {
        let passed = self.start.elapsed().as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        self.turned_ms.store(passed, Ordering::Relaxed);
    }

    /// Returns the time since the last turn.
    fn silence(&self) -> Duration {
        let turned = Duration::from_millis(self.turned_ms.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(turned)
    }
}

impl Default for Pulse {
    fn default() -> Self {
        Self::new()
    }
}

/// The pulse of a loop, and how long it may be silent.
#[derive(Clone, Debug)]
pub(crate) struct Liveness {
    pulse: Pulse,
    /// `None`: for any time.
    within: Option<Duration>,
}

/// The thread that answers probes. Dropping it closes its socket.
#[derive(Debug)]
pub struct HealthServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HealthServer {
    /// Starts the thread, which runs `accept` for a listening socket.
    pub(crate) fn start<F>(
        listener: std::net::TcpListener,
        pulse: Pulse,
        within: Option<Duration>,
        accept: impl FnOnce(tokio::net::TcpListener, Liveness) -> F + Send + 'static,
    ) -> std::io::Result<Self>
    where
        F: Future<Output = ()>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let work = move || {
            runtime.block_on(async {
                // It was made non-blocking when it was opened.
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                    return;
                };
                tokio::select! {
                    () = accept(listener, Liveness { pulse, within }) => {}
                    _ = stopped => {}
                }
            });
        };
        let thread = thread::Builder::new()
            .name("health".to_owned())
            .spawn(work)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // It waits for nothing: requests in progress are dropped with its runtime.
            let _ = thread.join();
        }
    }
}

/// Answers one probe.
pub(crate) async fn serve(stream: TcpStream, requests: mpsc::Sender<Ask>, liveness: Liveness) {
    let (requests, liveness) = (&requests, &liveness);
    let answer = |request| async move { respond(&request, requests, liveness).await };
    http::serve(stream, PROBE_READ, answer).await;
}

async fn respond<B>(
    request: &Request<B>,
    requests: &mpsc::Sender<Ask>,
    liveness: &Liveness,
) -> Response<String> {
    if let Some(rejection) = reject_writes(request) {
        return rejection;
    }
    match request.uri().path() {
        "/liveness" => match liveness.fault() {
            None => refusal(StatusCode::OK, "live\n"),
            Some(fault) => refusal(StatusCode::SERVICE_UNAVAILABLE, &fault),
        },
        "/readiness" => readiness(requests).await,
        _ => refusal(
            StatusCode::NOT_FOUND,
            "probes are at /liveness and /readiness\n",
        ),
    }
}

impl Liveness {
    /// Returns why the loop is not alive.
    fn fault(&self) -> Option<String> {
        let within = self.within?;
        let silence = self.pulse.silence();
        (silence > within).then(|| {
            let (silence, within) = (silence.as_secs(), within.as_secs());
            format!("the main loop has not turned for {silence} s; its limit is {within} s\n")
        })
    }
}

async fn readiness(requests: &mpsc::Sender<Ask>) -> Response<String> {
    let asked = request::ask(requests, Command::Readiness {});
    let missing = match timeout(READINESS_ANSWER, asked).await {
        Ok(Reply::Readiness(Readiness { missing, .. })) if missing.is_empty() => {
            return refusal(StatusCode::OK, "ready\n");
        }
        Ok(Reply::Readiness(Readiness { missing, .. })) => missing,
        Ok(Reply::Error { message }) => vec![message],
        Ok(_) => vec!["no answer about readiness".to_owned()],
        Err(_) => {
            let limit = READINESS_ANSWER.as_secs();
            vec![format!("the main loop has not answered for {limit} s")]
        }
    };
    let mut text = String::from("not ready\n");
    for one in missing {
        text.push_str(&one.replace(char::is_control, " "));
        text.push('\n');
    }
    refusal(StatusCode::SERVICE_UNAVAILABLE, &text)
}
