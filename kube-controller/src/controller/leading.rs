//! The part of this replica: the leader writes, all others compare.

use daemon_common::events::{Event, Text, emit};

use super::Controller;
use crate::lead::Lead;
use crate::lease::{Election, LeaseName, Standing};
use kube_client::Access;

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

impl Controller {
    /// Returns whether this replica may write, and reports a change of that. A new leader writes what
    /// differs by now.
    pub(super) fn look_at_lead(&mut self) -> bool {
        let lead = &self.writer.lead;
        let leads = lead.may_write();
        if leads {
            self.unchecked.extend(std::mem::take(&mut self.pending));
        }
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
        self.pending.extend(jobs.into_iter().map(|job| job.key));
        let is_released = self.report_held();
        is_released || !self.unchecked.is_empty()
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
        let own = &lease.identity;
        let leader = match lead.standing() {
            Standing::Alone => String::new(),
            Standing::Leader { .. } => format!("{own} (this replica)"),
            Standing::Follower { holder, .. } => match holder.filter(|name| !name.is_empty()) {
                Some(holder) => holder,
                None => "unknown".to_owned(),
            },
        };
        vec![
            ("lease", lease.to_string()),
            ("replica", own.clone()),
            ("leader", leader),
            ("left to the leader", self.pending.len().to_string()),
        ]
    }

    /// Returns why this replica does not write although it could, and why it cannot get the lease.
    pub(crate) fn lead_notes(&self) -> Vec<String> {
        let lead = &self.writer.lead;
        let stood_down = lead
            .stood_down()
            .map(|reason| format!("nothing is written until a restart: {reason}"));
        let failed = match lead.standing() {
            Standing::Follower {
                failure: Some(failure),
                ..
            } => Some(format!("lease: {failure}")),
            _ => None,
        };
        stood_down.into_iter().chain(failed).collect()
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
