//! The members of a cluster: one is used until it fails, then the next.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::error_in;
use crate::error::Error;
use crate::limits::{CALL_TIMEOUT, READ_TIMEOUT};

/// The members. Each client starts with another member, so that the load is even. A client keeps
/// its member until that member fails, and then moves to the next.
pub(super) struct Members {
    members: Vec<Member>,
    options: ConnectOptions,
    /// The member in use.
    current: AtomicUsize,
}

struct Member {
    url: String,
    /// Created at the first request if there is a user, because authentication needs an answer.
    client: OnceCell<Client>,
}

/// Whether a request may be repeated when its outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// Send it to another member: repeating it does no harm.
    Any,
    /// Send it to another member only if the first was not reached at all.
    Unsent,
}

impl Members {
    /// Creates clients of these members, with these options and optionally a user.
    pub(super) async fn new(
        urls: &[String],
        options: ConnectOptions,
        user: Option<(String, String)>,
        start: usize,
    ) -> Result<Self, Error> {
        let mut members = Vec::with_capacity(urls.len());
        for url in urls {
            // Does not wait for a connection, but checks URL and certificates.
            let client = Client::connect([url], Some(options.clone())).await;
            let client = client.map_err(|error| named(url, error_in(error)))?;
            let client = match user {
                None => OnceCell::new_with(Some(client)),
                Some(_) => OnceCell::new(),
            };
            let url = url.clone();
            members.push(Member { url, client });
        }
        let options = match user {
            None => options,
            Some((name, password)) => options
                .with_user(name, password)
                .with_auto_token_refresh(true),
        };
        Ok(Self {
            members,
            options,
            current: AtomicUsize::new(start % urls.len().max(1)),
        })
    }

    /// Sends a request to the members, one after the other, each at most once, until one answers.
    /// Returns the index of that member too.
    pub(super) async fn ask<T, F>(
        &self,
        again: Again,
        call: impl Fn(Client) -> F,
    ) -> Result<(usize, T), Error>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let deadline = Instant::now() + CALL_TIMEOUT;
        let first = self.current.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        for step in 0..self.members.len() {
            let at = (first + step) % self.members.len();
            let last = step + 1 == self.members.len();
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = match again {
                Again::Any if !last => left.min(READ_TIMEOUT),
                _ => left,
            };
            match self.ask_one(at, patience, &call).await {
                Ok(answer) => return Ok((at, answer)),
                Err((error, _)) if !matches!(error, Error::Unavailable(_)) => return Err(error),
                Err((error, sent)) => {
                    self.failed(at);
                    failures.push(error);
                    if sent && again == Again::Unsent {
                        break;
                    }
                }
            }
        }
        Err(together(failures))
    }

    /// Returns the error, and whether the member may have received the request.
    async fn ask_one<T, F>(
        &self,
        at: usize,
        patience: Duration,
        call: &impl Fn(Client) -> F,
    ) -> Result<T, (Error, bool)>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let Some(member) = self.members.get(at) else {
            return Err((
                Error::Options("no endpoint of the store is given".into()),
                false,
            ));
        };
        let late = || Error::Unavailable(format!("no answer within {} s", patience.as_secs()));
        let began = Instant::now();
        let client = match timeout(patience, self.client(member)).await {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err((named(&member.url, error_in(error)), false)),
            Err(_) => return Err((named(&member.url, late()), false)),
        };
        let left = patience.saturating_sub(began.elapsed());
        match timeout(left, call(client)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                let sent = !never_sent(&error);
                Err((named(&member.url, error_in(error)), sent))
            }
            Err(_) => Err((named(&member.url, late()), true)),
        }
    }

    async fn client(&self, member: &Member) -> Result<Client, etcd_client::Error> {
        let connect = || Client::connect([&member.url], Some(self.options.clone()));
        member.client.get_or_try_init(connect).await.cloned()
    }

    /// Moves to the next member, unless another task already has.
    pub(super) fn failed(&self, at: usize) {
        let next = (at + 1) % self.members.len().max(1);
        // If the current member has changed, another task has moved on.
        let _ = self
            .current
            .compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Adds the member's URL to an error.
    pub(super) fn name(&self, at: usize, error: Error) -> Error {
        match self.members.get(at) {
            Some(member) => named(&member.url, error),
            None => error,
        }
    }
}

fn named(url: &str, error: Error) -> Error {
    match error {
        Error::Unavailable(reason) => Error::Unavailable(format!("{url}: {reason}")),
        Error::WatchLost(reason) => Error::WatchLost(format!("{url}: {reason}")),
        Error::Options(reason) => Error::Options(format!("{url}: {reason}")),
        error => error,
    }
}

/// Combines the errors of several members.
fn together(failures: Vec<Error>) -> Error {
    let mut reasons = Vec::with_capacity(failures.len());
    for failure in failures {
        match failure {
            Error::Unavailable(reason) => reasons.push(reason),
            other => return other,
        }
    }
    // Sorted, so that the text does not depend on the first member, and without duplicates.
    reasons.sort();
    Error::Unavailable(reasons.join("; "))
}

/// Returns whether there was no connection to send the request over.
fn never_sent(error: &etcd_client::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = match error {
        etcd_client::Error::GRpcStatus(status) => std::error::Error::source(status),
        etcd_client::Error::TransportError(error) => Some(error),
        _ => None,
    };
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}
