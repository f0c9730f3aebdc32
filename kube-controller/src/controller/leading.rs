//! The part of this replica: the leader writes, all others compare.

use std::collections::BTreeSet;

use daemon_common::events::{Event, Text, emit};
use kube_client::Access;
use tokio::time::Instant;

use super::Controller;
use crate::lead::Lead;
use crate::lease::{Election, LeaseName, Standing};
use crate::limits::LEADER_IDLE;
use crate::target::Target;

/// The differing resources that a replica leaves to the leader.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    keys: BTreeSet<Target>,
    /// Since when the leader has written none of them.
    since: Option<Instant>,
    is_reported: bool,
}

impl Pending {
    /// Returns the number of resources.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Removes a resource that is compared again. Returns whether it was there.
    pub(super) fn remove(&mut self, key: &Target) -> bool {
        self.keys.remove(key)
    }

    /// Records that the leader has written one of them.
    pub(super) fn progress(&mut self) {
        self.since = None;
        self.is_reported = false;
    }

    fn add(&mut self, keys: impl Iterator<Item = Target>) {
        self.keys.extend(keys);
        match self.keys.is_empty() {
            true => self.progress(),
            false => drop(self.since.get_or_insert_with(Instant::now)),
        }
    }

    /// Returns when it is to be reported that the leader writes none of them.
    pub(super) fn report_at(&self) -> Option<Instant> {
        let since = self.since.filter(|_| !self.is_reported);
        since.map(|since| since + LEADER_IDLE)
    }

    /// Returns whether the leader has written none of them for a while.
    pub(crate) fn is_idle(&self) -> bool {
        let is_over = |since: Instant| since.elapsed() >= LEADER_IDLE;
        !self.keys.is_empty() && self.since.is_some_and(is_over)
    }
}

/// Starts the election, if there is a lease.
pub(super) fn elect(access: &Access, lease: Option<LeaseName>) -> (Option<Election>, Lead) {
    match lease {
        None => (None, Lead::alone()),
        Some(lease) => {
            let (election, standing) = Election::start(access.clone(), lease.clone());
            (Some(election), Lead::elected(lease, standing))
        }
    }
}

fn lease_of(lead: &Lead) -> String {
    lead.lease().map(ToString::to_string).unwrap_or_default()
}

impl Controller {
    /// Returns whether this replica may write, and reports a change of that. A new leader writes what
    /// differs by now.
    pub(super) fn look_at_lead(&mut self) -> bool {
        let lead = &self.writer.lead;
        let leads = lead.may_write();
        if leads {
            self.unchecked
                .extend(std::mem::take(&mut self.pending).keys);
        }
        let failure = lead.failure();
        if let Some(failure) = failure.as_ref().filter(|_| failure != self.lease_failure) {
            emit(Event::KubernetesRequestFailed {
                kind: Text::new("Lease"),
                reason: Text::new(failure),
            });
        }
        self.lease_failure = failure;
        if let (Some(lease), true) = (lead.lease(), self.is_leading != Some(leads)) {
            let (name, identity) = (Text::new(lease), Text::new(&lease.identity));
            emit(match leads {
                true => Event::KubernetesLeading {
                    lease: name,
                    identity,
                },
                false => Event::KubernetesFollowing {
                    lease: name,
                    identity,
                },
            });
        }
        self.is_leading = Some(leads);
        leads
    }

    /// Compares resources, and leaves their writes to the leader. Returns whether more can be compared
    /// now.
    pub(super) fn follow(&mut self) -> bool {
        let jobs = self.compare();
        self.pending.add(jobs.into_iter().map(|job| job.key));
        let is_released = self.report_held();
        is_released || !self.unchecked.is_empty()
    }

    /// Reports once that the leader writes none of the differing resources.
    pub(super) fn report_idle_leader(&mut self) {
        if self.pending.is_idle() && !self.pending.is_reported {
            self.pending.is_reported = true;
            emit(Event::KubernetesLeaderIdle {
                leader: Text::new(self.leader()),
                resources: self.pending.len() as u64,
            });
        }
    }

    /// Returns whether this replica may write.
    pub fn is_leading(&self) -> bool {
        self.writer.lead.may_write()
    }

    /// Returns how this replica and its lease are, for operators; empty without a lease.
    pub(crate) fn leadership(&self) -> Vec<(&'static str, String)> {
        let lead = &self.writer.lead;
        let Some(lease) = lead.lease() else {
            return Vec::new();
        };
        vec![
            ("lease", lease.to_string()),
            ("replica", lease.identity.clone()),
            ("leader", self.leader()),
            ("left to the leader", self.pending.len().to_string()),
        ]
    }

    /// Returns the name of the replica that writes.
    fn leader(&self) -> String {
        match self.writer.lead.standing() {
            Standing::Alone | Standing::Leader { .. } => "this replica".to_owned(),
            Standing::Follower { holder, .. } => match holder.filter(|name| !name.is_empty()) {
                Some(holder) => holder,
                None => "unknown".to_owned(),
            },
        }
    }

    /// Returns why this replica does not write although it could, why it cannot get the lease, and
    /// whether the leader writes nothing.
    pub(crate) fn lead_notes(&self) -> Vec<String> {
        let lead = &self.writer.lead;
        let stood_down = lead
            .stood_down()
            .map(|reason| format!("nothing is written until a restart: {reason}"));
        let failed = lead
            .failure()
            .map(|failure| format!("lease {}: {failure}", lease_of(lead)));
        let idle = self.pending.is_idle() && stood_down.is_none();
        let idle = idle.then(|| {
            format!(
                "the leader writes nothing: {} differing resources wait for {}",
                self.pending.len(),
                self.leader()
            )
        });
        stood_down.into_iter().chain(failed).chain(idle).collect()
    }

    /// Returns whether nothing stops this replica from its part.
    pub(crate) fn can_lead(&self) -> bool {
        let lead = &self.writer.lead;
        lead.stood_down().is_none() && lead.failure().is_none() && !self.pending.is_idle()
    }

    /// Ends the controller. The lease is given back, so that another replica leads at once.
    pub async fn end(mut self) {
        let election = self.election.take();
        // No write runs any longer when the lease is free.
        drop(self);
        if let Some(election) = election {
            election.release().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use calico_model::{Kind, ResourceKey};
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn leader_without_progress_is_idle_after_a_minute() {
        let key = |name: &str| {
            let key = ResourceKey::new(Kind::Profile, None, name);
            Target::Resource(key.expect("a key"))
        };
        let mut pending = Pending::default();
        pending.add([key("a"), key("b")].into_iter());
        advance(LEADER_IDLE.saturating_sub(Duration::from_secs(1))).await;
        assert!(!pending.is_idle());
        // A comparison that finds the same difference is no progress.
        assert!(pending.remove(&key("a")));
        pending.add(std::iter::once(key("a")));
        advance(Duration::from_secs(1)).await;
        assert!(pending.is_idle());
        assert!(pending.remove(&key("b")));
        pending.progress();
        assert!(!pending.is_idle(), "the leader has written one");
        assert!(pending.remove(&key("a")));
        pending.add(std::iter::empty());
        advance(2 * LEADER_IDLE).await;
        assert!(!pending.is_idle(), "nothing is left");
        assert_eq!(pending.report_at(), None);
    }
}
