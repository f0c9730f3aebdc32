//! The members of a cluster: one is asked until it fails, then the next.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::error_in;
use crate::error::Error;
use crate::limits::{CALL_TIMEOUT, READ_TIMEOUT};

/// The members. A client keeps to one of them, another one for each client, so that their load is
/// even; it goes on to the next when that one fails, and stays there.
pub(super) struct Members {
    members: Vec<Member>,
    options: ConnectOptions,
    /// Which one is asked.
    current: AtomicUsize,
}

struct Member {
    url: String,
    /// Made when it is first asked where there is a user: that takes an answer.
    client: OnceCell<Client>,
}

/// What may be done when nothing is known of what a member did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// Ask another one: doing it twice does no harm.
    Any,
    /// Ask another one only if the first was not reached at all.
    Unsent,
}

impl Members {
    /// Members with these options, and the user to be, if any.
    pub(super) async fn new(
        urls: &[String],
        options: ConnectOptions,
        user: Option<(String, String)>,
        start: usize,
    ) -> Result<Self, Error> {
        let mut members = Vec::with_capacity(urls.len());
        for url in urls {
            // Waits for nobody, and tells what is wrong with URL and certificates.
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

    /// Asks the members, one after the other, each at most once, until one answers. Answers with
    /// the place of that member too.
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

    /// The error, and whether the member may have got the question.
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

    /// Goes on to the next member, unless somebody has already.
    pub(super) fn failed(&self, at: usize) {
        let next = (at + 1) % self.members.len().max(1);
        // Not that one any more: somebody has.
        let _ = self
            .current
            .compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Which member an error is of.
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

/// What several members said.
fn together(failures: Vec<Error>) -> Error {
    let mut reasons = Vec::with_capacity(failures.len());
    for failure in failures {
        match failure {
            Error::Unavailable(reason) => reasons.push(reason),
            other => return other,
        }
    }
    // In one order, whichever was asked first: who says the same again is not heard.
    reasons.sort();
    Error::Unavailable(reasons.join("; "))
}

/// Whether there was no connection to send the question over.
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
