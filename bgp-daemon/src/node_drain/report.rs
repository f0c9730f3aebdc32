//! Writes the report of a drained node into the datastore.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use calico_model::{DrainReport, FabricKey};
use calico_store::{Error, LeaseId, Store};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until, timeout};

use crate::limits::{REGISTRY_ANSWER_MAX, REGISTRY_RETRY_MAX, REGISTRY_RETRY_MIN};

#[cfg(test)]
mod tests;

/// Keeps the stored report equal to the wanted one.
pub(crate) struct ReportTask {
    key: String,
    store: Arc<dyn Store>,
    wanted: Option<DrainReport>,
    /// The stored report, as far as known.
    stored: Option<DrainReport>,
    /// The report in the view of the datastore.
    seen: Option<DrainReport>,
    under_way: Option<Write>,
    /// No request is sent before.
    not_before: Instant,
    delay: Duration,
    /// Why the last request failed.
    trouble: Option<String>,
}

/// A request to the datastore.
struct Write {
    report: Option<DrainReport>,
    reply: BoxFuture<'static, Result<(), Error>>,
}

impl ReportTask {
    /// Creates the task of a node. Must be called within a Tokio runtime.
    pub(crate) fn new(node: &str, store: Arc<dyn Store>) -> Self {
        Self {
            key: FabricKey::DrainReport(node.to_owned()).to_string(),
            store,
            wanted: None,
            stored: None,
            seen: None,
            under_way: None,
            not_before: Instant::now(),
            delay: REGISTRY_RETRY_MIN,
            trouble: None,
        }
    }

    /// Sets the report to store; `None` for no report.
    pub(crate) fn want(&mut self, report: Option<DrainReport>) {
        self.wanted = report;
    }

    /// Takes the report in the view of the datastore.
    pub(crate) fn see(&mut self, report: Option<&DrainReport>) {
        if self.seen.as_ref() != report {
            self.seen = report.cloned();
            self.stored = self.seen.clone();
        }
    }

    /// Returns why the report is not stored.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Writes until the next reply of the datastore. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        if self.under_way.is_none() {
            if self.wanted == self.stored {
                self.trouble = None;
                return pending().await;
            }
            sleep_until(self.not_before).await;
            self.under_way = Some(Write {
                report: self.wanted.clone(),
                reply: write(Arc::clone(&self.store), self.key.clone(), &self.wanted),
            });
        }
        let Some(write) = &mut self.under_way else {
            return;
        };
        let result = (&mut write.reply).await;
        let Some(Write { report, .. }) = self.under_way.take() else {
            return;
        };
        match result {
            Ok(()) => {
                self.stored = report;
                (self.delay, self.trouble) = (REGISTRY_RETRY_MIN, None);
            }
            Err(error) => {
                self.trouble = Some(error.to_string());
                self.not_before = Instant::now() + self.delay;
                self.delay = (self.delay * 2).min(REGISTRY_RETRY_MAX);
            }
        }
    }
}

/// Stores or deletes a report; the reply arrives in bounded time, whatever the datastore does.
fn write(
    store: Arc<dyn Store>,
    key: String,
    report: &Option<DrainReport>,
) -> BoxFuture<'static, Result<(), Error>> {
    let value = report.as_ref().map(DrainReport::encode);
    Box::pin(async move {
        let write = async {
            match value {
                Some(value) => store
                    .put(key.into(), value.into(), LeaseId::NONE)
                    .await
                    .map(drop),
                None => store.delete(key.into()).await.map(drop),
            }
        };
        let silent = |_| Err(Error::Unavailable("no answer in time".into()));
        timeout(REGISTRY_ANSWER_MAX, write)
            .await
            .unwrap_or_else(silent)
    })
}
