//! Runs a [`Registrar`] against a datastore.

use std::future::pending;
use std::sync::Arc;

use bgp_io::bgp_fsm::Instant;
use calico_bgp::Host;
use calico_store::{Error, Store};
use futures_util::future::BoxFuture;
use tokio::time::{Instant as Clock, sleep_until, timeout};

use crate::limits::REGISTRY_ANSWER_MAX;
use crate::registrar::{Answer, Job, Registrar};

/// A reflector's registration, and the datastore that has it.
pub(crate) struct RegistrationTask {
    pub(crate) registrar: Registrar,
    store: Arc<dyn Store>,
    origin: Clock,
    /// The reply to the outstanding request.
    answer: Option<BoxFuture<'static, Answer>>,
}

impl RegistrationTask {
    /// Registers a host under its name. Must be called within a Tokio runtime.
    pub(crate) fn new(host: &Host, store: Arc<dyn Store>) -> Self {
        Self {
            registrar: Registrar::new(&host.name, host.registration_ttl),
            store,
            origin: Clock::now(),
            answer: None,
        }
    }

    /// Waits for the next reply of the datastore. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        loop {
            if let Some(answer) = &mut self.answer {
                let answer = answer.await;
                self.answer = None;
                let now = self.now();
                return self.registrar.done(now, answer);
            }
            let now = self.now();
            if let Some(job) = self.registrar.poll(now) {
                self.answer = Some(ask(Arc::clone(&self.store), job));
                continue;
            }
            match self.registrar.poll_timeout() {
                Some(at) => {
                    sleep_until(self.origin + at.saturating_duration_since(Instant::ZERO)).await
                }
                None => pending().await,
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }
}

/// Sends a request; the result arrives in bounded time, whatever the datastore does.
fn ask(store: Arc<dyn Store>, job: Job) -> BoxFuture<'static, Answer> {
    Box::pin(async move {
        match job {
            Job::Grant(ttl_s) => Answer::Granted(in_time(store.lease_grant(ttl_s)).await),
            Job::KeepAlive(lease) => {
                Answer::KeptAlive(in_time(store.lease_keep_alive(lease)).await)
            }
            Job::Txn(txn) => Answer::Done(in_time(store.txn(txn)).await),
        }
    })
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let silent = |_| Err(Error::Unavailable("no answer in time".into()));
    timeout(REGISTRY_ANSWER_MAX, answer)
        .await
        .unwrap_or_else(silent)
}
