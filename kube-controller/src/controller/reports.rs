//! The reports of the controller: resources that cannot be written, and deletions that are held.

use daemon_common::events::{Event, Text, emit};
use tokio::time::Instant;

use super::Controller;
use crate::guard::Held;
use crate::kinds::Watched;
use crate::limits::WRITE_RETRY_MAX;
use crate::objects::Completeness;
use crate::target::Target;

impl Controller {
    pub(super) fn fault(&mut self, key: Target, reason: String) {
        if self.faults.get(&key) != Some(&reason) {
            emit(Event::KubernetesWriteFailed {
                resource: Text::new(key.name()),
                reason: Text::new(&reason),
            });
        }
        self.faults.insert(key, reason);
        let again = Instant::now() + WRITE_RETRY_MAX;
        self.faults_at.get_or_insert(again);
    }

    /// Returns why resources may not be deleted.
    pub(super) fn hold(&self) -> Option<Held> {
        let is_listed = self.objects.completeness(Watched::Namespace) != Completeness::Unknown;
        match self.guard.held(!self.unwanted.is_empty()) {
            Some(Held::NoIdentity) if !is_listed => Some(Held::Incomplete),
            held => held,
        }
    }

    /// Reports once that the namespaces were not listed for a while.
    pub(super) fn report_incomplete(&mut self) {
        if self.incomplete_at.is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.incomplete_at = None;
        if self.guard.uid().is_none() {
            let reason = self.hold().unwrap_or(Held::Incomplete);
            emit(Event::KubernetesDeletionsHeld {
                reason: Text::new(&reason),
                uid: None,
            });
        }
    }

    /// Reports why deletions are held, if that has changed. Returns whether they are allowed now.
    pub(super) fn report_held(&mut self) -> bool {
        let held = self.hold();
        if held == self.held {
            return false;
        }
        match &held {
            Some(Held::Incomplete) => {}
            Some(reason) => emit(Event::KubernetesDeletionsHeld {
                reason: Text::new(reason),
                uid: self.guard.uid().map(Text::new),
            }),
            None => {
                emit(Event::KubernetesDeletionsAllowed {
                    uid: Text::new(self.guard.uid().unwrap_or_default()),
                });
                // Routes of missing services were kept.
                self.routes.touch_all();
            }
        }
        self.held = held;
        self.held.is_none()
    }
}
