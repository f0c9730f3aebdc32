//! The right to write: the lease of this replica, and a key of the datastore that each write compares.
//!
//! A process that was paused cannot notice that it is late between its check of a clock and its write.
//! So the leader writes its identity into [`LEADER_KEY`] before its first write, and each of its
//! transactions compares the revision of that key. After another replica has written the key, no
//! transaction of the earlier leader succeeds, however late it arrives.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use calico_store::{
    Compare, CompareWith, Comparison, Error, KeyRange, Op, Put, Revision, Store, Txn,
};
use daemon_common::events::{Event, Text, emit};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lease::{LeaseName, Standing};
use crate::limits::LEADER_LOSSES_MAX;
use kube_client::Failure;
use kube_client::limits::REASON_CHARACTERS_MAX;

/// The key with the identity of the leader.
pub const LEADER_KEY: &str = "/cambric/kubernetes/v1/leader";

/// The right of this replica to write. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Lead {
    lease: Option<LeaseName>,
    standing: watch::Receiver<Standing>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The revision of [`LEADER_KEY`] as this replica wrote it; `None` if it did not, or no longer.
    term: Option<Revision>,
    /// How often another process has written the key while this replica held the lease.
    losses: u32,
    /// The end of the lease when the key was lost. A later one shows that the lease is still held.
    lost_at: Option<Instant>,
    /// Why this replica does not write although it could. Only a restart changes that.
    stood_down: Option<String>,
}

/// Why nothing may be written.
#[derive(Debug)]
pub(crate) enum NoRight {
    /// This replica does not lead.
    NotLeading,
    /// The datastore failed.
    Failed(Error),
}

impl Lead {
    /// Returns the right of the only replica.
    pub(crate) fn alone() -> Self {
        Self::new(None, watch::channel(Standing::Alone).1)
    }

    /// Returns the right of one of several replicas.
    pub(crate) fn elected(lease: LeaseName, standing: watch::Receiver<Standing>) -> Self {
        Self::new(Some(lease), standing)
    }

    fn new(lease: Option<LeaseName>, standing: watch::Receiver<Standing>) -> Self {
        Self {
            lease,
            standing,
            shared: Arc::default(),
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lease, if there is one.
    pub(crate) const fn lease(&self) -> Option<&LeaseName> {
        self.lease.as_ref()
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// Returns why this replica could not ask for the lease.
    pub(crate) fn failure(&self) -> Option<Failure> {
        match &*self.standing.borrow() {
            Standing::Follower { failure, .. } => failure.clone(),
            Standing::Alone | Standing::Leader { .. } => None,
        }
    }

    /// Returns why this replica does not write although it could.
    pub(crate) fn stood_down(&self) -> Option<String> {
        self.shared().stood_down.clone()
    }

    /// Ends all writes of this replica until its restart.
    pub(crate) fn stand_down(&self, reason: &str) {
        let mut shared = self.shared();
        if shared.stood_down.is_none() {
            emit(Event::KubernetesStoodDown {
                reason: Text::new(reason),
            });
            shared.stood_down = Some(reason.to_owned());
        }
    }

    /// Returns whether this replica may write now.
    pub(crate) fn may_write(&self) -> bool {
        let shared = self.shared();
        let is_lost = match (&*self.standing.borrow(), shared.lost_at) {
            (Standing::Leader { until }, Some(lost_at)) => *until <= lost_at,
            _ => false,
        };
        let may = self.standing.borrow().may_write(Instant::now());
        may && !is_lost && shared.stood_down.is_none()
    }

    /// Waits for the next change of the standing, or until the right ends by its time. Cancellation
    /// loses nothing.
    pub(crate) async fn changed(&mut self) {
        let until = match &*self.standing.borrow() {
            Standing::Leader { until } if *until > Instant::now() => Some(*until),
            _ => None,
        };
        let expired = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.standing.changed() => {
                // The sender of the only replica is dropped at once: nothing will change.
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            () = expired => {}
        }
        if !matches!(&*self.standing.borrow(), Standing::Leader { .. }) {
            let mut shared = self.shared();
            shared.losses = 0;
            shared.lost_at = None;
            shared.term = None;
        }
    }

    /// Returns the revision of [`LEADER_KEY`] that each transaction of this replica must compare; `None`
    /// for the only replica. Writes the key before the first one.
    pub(crate) async fn term(&self, store: &dyn Store) -> Result<Option<Revision>, NoRight> {
        if !self.may_write() {
            return Err(NoRight::NotLeading);
        }
        let Some(lease) = &self.lease else {
            return Ok(None);
        };
        let known = self.shared().term;
        let term = match known {
            Some(term) => term,
            None => self.take(store, lease).await?,
        };
        Ok(Some(term))
    }

    /// Writes the leader, over the value that was read before the lease was found to be valid.
    async fn take(&self, store: &dyn Store, lease: &LeaseName) -> Result<Revision, NoRight> {
        let found = store
            .get(LEADER_KEY.into())
            .await
            .map_err(NoRight::Failed)?;
        let was = found.map_or(Revision::ZERO, |found| found.mod_revision);
        if !self.may_write() {
            return Err(NoRight::NotLeading);
        }
        let value = json!({"identity": lease.identity, "lease": lease.to_string()});
        let txn = Txn {
            compares: vec![leader_is(was)],
            then: vec![Op::Put(Put::new(
                LEADER_KEY,
                Bytes::from(value.to_string()),
            ))],
            otherwise: Vec::new(),
        };
        let reply = store.txn(txn).await.map_err(NoRight::Failed)?;
        if !reply.succeeded {
            return Err(NoRight::NotLeading);
        }
        let term = reply.header.revision;
        self.shared().term = Some(term);
        Ok(term)
    }

    /// Records that another process has written [`LEADER_KEY`] after this term. Several writes of a term
    /// may notice it. This replica writes again once it has renewed the lease. If the same happens again and again, the other process has another lease:
    /// then this replica stands down.
    pub(crate) fn lost(&self, term: Revision, other: &str) {
        let until = match &*self.standing.borrow() {
            Standing::Leader { until } => Some(*until),
            _ => None,
        };
        let mut shared = self.shared();
        if shared.term != Some(term) {
            return;
        }
        shared.term = None;
        shared.lost_at = until;
        shared.losses += 1;
        let is_fight = shared.losses >= LEADER_LOSSES_MAX;
        drop(shared);
        if is_fight {
            self.stand_down(&format!("another controller writes: {other}"));
        }
    }
}

/// Returns the condition that the leader has this revision.
pub(crate) fn leader_is(revision: Revision) -> Compare {
    Compare {
        range: KeyRange::key(LEADER_KEY),
        comparison: Comparison::Equal,
        with: CompareWith::ModRevision(revision),
    }
}

/// Returns the identity in a value of [`LEADER_KEY`].
pub(crate) fn identity_in(value: &[u8]) -> String {
    let value: Value = serde_json::from_slice(value).unwrap_or_default();
    let text = |field: &str| value[field].as_str().unwrap_or("unknown").to_owned();
    let text = format!("{} with the lease {}", text("identity"), text("lease"));
    text.chars().take(REASON_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use etcd_lite::Local;

    use super::*;

    fn lease(identity: &str) -> LeaseName {
        LeaseName {
            namespace: "kube-system".into(),
            name: "cambric-kube".into(),
            identity: identity.into(),
        }
    }

    fn leader() -> (watch::Sender<Standing>, watch::Receiver<Standing>) {
        let until = Instant::now() + Duration::from_secs(10);
        watch::channel(Standing::Leader { until })
    }

    #[tokio::test]
    async fn replica_without_the_lease_has_no_right() {
        let store = Local::empty();
        let (sender, standing) = leader();
        let lead = Lead::elected(lease("a"), standing);
        assert!(lead.may_write());
        sender.send_replace(Standing::Leader {
            until: Instant::now(),
        });
        assert!(!lead.may_write());
        let refused = lead.term(&store).await;
        assert!(matches!(refused, Err(NoRight::NotLeading)));
        assert_eq!(store.get(LEADER_KEY.into()).await.expect("an answer"), None);
    }

    #[tokio::test]
    async fn leader_that_loses_its_key_waits_for_a_renewal() {
        let store = Local::empty();
        let (sender, standing) = leader();
        let lead = Lead::elected(lease("a"), standing);
        for loss in 1..=LEADER_LOSSES_MAX {
            assert!(lead.may_write() && lead.stood_down().is_none());
            let term = lead.term(&store).await.expect("the right");
            // Several writes at once notice one loss.
            for _ in 0..2 * LEADER_LOSSES_MAX {
                lead.lost(term.expect("a term"), "b");
            }
            assert!(!lead.may_write());
            let seconds = (20 * loss).into();
            let until = Instant::now() + Duration::from_secs(seconds);
            sender.send_replace(Standing::Leader { until });
        }
        let reason = lead.stood_down().expect("a reason");
        assert_eq!(reason, "another controller writes: b");
        assert!(!lead.may_write());
    }

    #[tokio::test]
    async fn only_replica_compares_nothing() {
        let store = Local::empty();
        let term = Lead::alone().term(&store).await.expect("the right");
        assert_eq!(term, None);
    }
}
