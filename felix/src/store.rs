//! Datastore operations of the daemon.

use std::sync::Arc;
use std::time::Duration;

use calico_model::{FabricKey, IpamKey, SERVICES_PREFIX};
use calico_store::{Change, Error, KeyRange, LeaseId, Status, Store, Update};
use tokio::time::timeout;
use tracing::debug;

use crate::calc::KINDS;
use crate::limits::STATUS_WRITE_TIMEOUT;
use crate::status::{Job, Outcome};

/// Returns the ranges to mirror: resources, registrations of reflectors, endpoints of services, owners
/// of blocks.
pub fn ranges() -> impl Iterator<Item = KeyRange> {
    let kinds = KINDS.into_iter();
    kinds
        .map(|kind| KeyRange::prefix(kind.prefix()))
        .chain([FabricKey::REFLECTORS, SERVICES_PREFIX, IpamKey::HOSTS].map(KeyRange::prefix))
}

/// The number of events of the datastore since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Full reads that were begun.
    pub resyncs_started: u64,
    /// Changes that were processed.
    pub updates_processed: u64,
}

impl StoreCounts {
    /// Returns the counts at the start, which is the beginning of a full read.
    pub(crate) const fn new() -> Self {
        Self {
            resyncs_started: 1,
            updates_processed: 0,
        }
    }

    /// Counts a processed update.
    pub(crate) fn update(&mut self, update: &Update) {
        self.updates_processed += u64::from(matches!(update, Update::Change(_)));
    }

    /// Counts a changed status.
    pub(crate) fn status(&mut self, status: Status) {
        self.resyncs_started += u64::from(status == Status::Syncing);
    }
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

/// Returns whether an update reports that the datastore has been read.
pub(crate) fn is_in_sync(update: &Update) -> bool {
    matches!(update, Update::Status(Status::InSync))
}

/// Returns the weight of an update: the time to apply it grows with its size.
pub(crate) fn octets(update: &Update) -> usize {
    match update {
        Update::Change(Change::Put(item)) => item.key.len() + item.value.len(),
        Update::Change(Change::Delete(key)) => key.len(),
        Update::Status(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use calico_model::{Kind, Region, StatusKey};
    use calico_store::roles::{EtcdRole, Owner, Part};

    use super::*;

    #[test]
    fn role_of_etcd_has_the_ranges_of_the_mirror() {
        let owner = Owner {
            node: "h1".to_owned(),
            ..Owner::default()
        };
        let role = EtcdRole::new(Part::Felix, &owner);
        let granted: BTreeSet<_> = role.read_ranges().cloned().collect();
        // The mirror adds the ClusterInformation, and the reporter lists its own reports.
        let reports = StatusKey::workloads_prefix(&Region::None, "h1");
        let others = [Kind::ClusterInformation.prefix(), reports.clone()];
        let read = ranges().chain(others.map(KeyRange::prefix)).collect();
        assert_eq!(granted, read);
        let (region, host) = (Region::None, "h1".to_owned());
        let status = StatusKey::Host { region, host };
        assert!(role.writes(status.to_string().as_bytes()));
        assert!(role.writes(format!("{reports}k8s/a/endpoint/b").as_bytes()));
    }
}
