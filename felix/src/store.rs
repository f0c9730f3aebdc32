//! Datastore operations of the daemon.

use std::sync::Arc;
use std::time::Duration;

use calico_model::FabricKey;
use calico_store::{Error, KeyRange, LeaseId, Store};
use tokio::time::timeout;
use tracing::debug;

use crate::calc::KINDS;
use crate::limits::STATUS_WRITE_TIMEOUT;
use crate::status::{Job, Outcome};

/// Returns the ranges to mirror: resources, and the registrations of reflectors.
pub fn ranges() -> impl Iterator<Item = KeyRange> {
    let kinds = KINDS.into_iter();
    kinds
        .map(|kind| KeyRange::prefix(kind.prefix()))
        .chain([KeyRange::prefix(FabricKey::REFLECTORS)])
}

/// Runs one operation of the reporter.
pub(crate) async fn run(store: Arc<dyn Store>, job: Job) -> Outcome {
    match timeout(STATUS_WRITE_TIMEOUT, attempt(&*store, job)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => {
            debug!(%error, "status not reported");
            Outcome::Failed
        }
        Err(_) => Outcome::Failed,
    }
}

async fn attempt(store: &dyn Store, job: Job) -> Result<Outcome, Error> {
    match job {
        Job::Put { key, value, ttl } => {
            let lease = match ttl {
                Some(ttl) => store.lease_grant(seconds(ttl)).await?.id,
                None => LeaseId::default(),
            };
            store.put(key.into(), value.into(), lease).await?;
            Ok(Outcome::Done)
        }
        Job::Delete { key } => {
            store.delete(key.into()).await?;
            Ok(Outcome::Done)
        }
        Job::List { prefix } => {
            let listing = store.list(KeyRange::prefix(prefix)).await?;
            let items = listing.items.into_iter();
            let texts = items.map(|item| {
                (
                    String::from_utf8_lossy(&item.key).into_owned(),
                    item.value.to_vec(),
                )
            });
            Ok(Outcome::Listed(texts.collect()))
        }
    }
}

fn seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_secs().max(1)).unwrap_or(i64::MAX)
}
